#include "data/text/text_input.h"

#include "data_fixture.h"

#include <signal.h>
#include <sys/wait.h>
#include <zlib.h>
#include <zstd.h>

enum { ROOM = 4 << 20 };

static int never_stop(void *context, struct error *err)
{
    (void)context;
    (void)err;
    return 0;
}
static const struct text_watch no_watch = {.tick = never_stop};
static const struct text_form whole = {.kind = TEXT_WHOLE_FILE};

struct bytes {
    char *at;
    size_t n;
};

static struct bytes bytes_make(void)
{
    struct bytes b = {malloc(ROOM), 0};
    assert_non_null(b.at);
    return b;
}

static void bytes_add(struct bytes *b, const void *data, size_t n)
{
    assert_true(n <= ROOM - b->n);
    memcpy(b->at + b->n, data, n);
    b->n += n;
}

/* A text that does not pack to nothing. */
static struct bytes make_text(size_t n)
{
    struct bytes b = bytes_make();
    uint32_t x = 1;
    for (b.n = 0; b.n < n; b.n++) {
        x = x * 1664525 + 1013904223;
        b.at[b.n] = "the quick brown fox\n"[x >> 24 & 15];
    }
    return b;
}

static void add_gzip(struct bytes *b, const void *data, size_t n)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY),
                     Z_OK);
    z.next_in = (Bytef *)(uintptr_t)data;
    z.avail_in = (uInt)n;
    z.next_out = (Bytef *)b->at + b->n;
    z.avail_out = (uInt)(ROOM - b->n);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    b->n += z.total_out;
    deflateEnd(&z);
}

static void add_zstd(struct bytes *b, const void *data, size_t n)
{
    size_t packed = ZSTD_compress(b->at + b->n, ROOM - b->n, data, n, 3);
    assert_false(ZSTD_isError(packed));
    b->n += packed;
}

static void add_packed(struct bytes *b, bool is_zstd, const void *data, size_t n)
{
    if (is_zstd)
        add_zstd(b, data, n);
    else
        add_gzip(b, data, n);
}

/* The whole text of a file, read in pieces of `step` bytes. */
static int read_all(const char *path, size_t step, struct bytes *out, struct error *err)
{
    struct text_input *in;
    size_t n = 1;
    int rc = 0;
    out->n = 0;
    if (text_input_open(&in, path, &whole, &no_watch, err))
        return -1;
    while (rc == 0 && n > 0) {
        assert_true(out->n + step <= ROOM);
        rc = text_input_read(in, out->at + out->n, step, &n, err);
        if (rc == 0)
            out->n += n;
    }
    if (rc == 0) {
        assert_int_equal(text_input_file_bytes(in), test_file_bytes(path));
        assert_int_equal(text_input_text_bytes(in), out->n);
    }
    text_input_close(in);
    return rc;
}

static const size_t steps[] = {1 << 18, 1000, 7};

static void check_reads_as(const char *path, const void *text, size_t n)
{
    struct bytes got = bytes_make();
    struct error err;
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        assert_ok(read_all(path, steps[i], &got, &err), err);
        assert_int_equal(got.n, n);
        assert_memory_equal(got.at, text, n);
    }
    free(got.at);
}

static void check_refused(const char *path, const char *part)
{
    struct bytes got = bytes_make();
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        struct error err = {.text = ""};
        assert_int_equal(read_all(path, steps[i], &got, &err), -1);
        assert_int_equal(err.kind, ERROR_INPUT);
        assert_says(err, part);
        assert_says(err, path);
    }
    free(got.at);
}

static void test_text_input__packing_is_told_by_the_first_bytes(void **state)
{
    const char *path = test_path(*state, "misleading.txt");
    struct bytes text = make_text(1000000), file = bytes_make();
    test_write_file(path, text.at, text.n);
    check_reads_as(path, text.at, text.n);
    for (int is_zstd = 0; is_zstd < 2; is_zstd++) {
        file.n = 0;
        add_packed(&file, is_zstd, text.at, text.n);
        test_write_file(path, file.at, file.n);
        check_reads_as(path, text.at, text.n);
    }
    const char *plain = test_path(*state, "plain.gz");
    test_write_file(plain, "text", 4);
    check_reads_as(plain, "text", 4);
    test_write_file(plain, "", 0);
    check_reads_as(plain, "", 0);
    free(text.at);
    free(file.at);
}

/* As `cat a.gz b.gz` makes them, empty ones among them. */
static void test_text_input__all_members_and_frames_are_read(void **state)
{
    const char *path = test_path(*state, "x");
    struct bytes text = make_text(300000), file = bytes_make();
    for (int is_zstd = 0; is_zstd < 2; is_zstd++) {
        file.n = 0;
        if (is_zstd) // a frame of somebody's own data, to be skipped
            bytes_add(&file, "\x50\x2a\x4d\x18\x03\0\0\0abc", 11);
        add_packed(&file, is_zstd, text.at, 100000);
        add_packed(&file, is_zstd, "", 0);
        add_packed(&file, is_zstd, text.at + 100000, 1);
        add_packed(&file, is_zstd, text.at + 100001, text.n - 100001);
        test_write_file(path, file.at, file.n);
        check_reads_as(path, text.at, text.n);
    }
    free(text.at);
    free(file.at);
}

static void test_text_input__damage_is_an_error_with_a_place(void **state)
{
    static const char *const names[] = {"gzip", "zstd"};
    const char *path = test_path(*state, "x");
    struct bytes text = make_text(100000), file = bytes_make();
    for (int is_zstd = 0; is_zstd < 2; is_zstd++) {
        file.n = 0;
        add_packed(&file, is_zstd, text.at, text.n);
        for (size_t n = 4; n < file.n; n += file.n / 9) {
            test_write_file(path, file.at, n);
            check_refused(path, "in the middle of its");
            check_refused(path, names[is_zstd]);
        }
        test_write_file(path, file.at, file.n - 1);
        check_refused(path, "in the middle of its");
        bytes_add(&file, "garbage", 7);
        test_write_file(path, file.at, file.n);
        check_refused(path, "is damaged near byte");
    }
    // gzip has a checksum of the text; zstd's is left out by many writers
    file.n = 0;
    add_gzip(&file, text.at, text.n);
    file.at[file.n / 2] ^= 0x10;
    test_write_file(path, file.at, file.n);
    check_refused(path, "is damaged near byte");
    free(text.at);
    free(file.at);
}

static void test_text_input__files_that_are_no_text_are_refused(void **state)
{
    char tar[512] = "name";
    memcpy(tar + 257, "ustar", 5);
    const struct {
        const char *bytes;
        size_t n;
        const char *says;
    } cases[] = {
        {"BZh91AY&SY", 10, "bzip2"},
        {"\xfd"
         "7zXZ",
         6, "xz"},
        {"PK\x03\x04...", 7, "zip"},
        {tar, sizeof tar, "tar"},
        {"\x93NUMPY\x01", 7, "numpy"},
        {"MMIDIDX\0\0", 9, "index"},
        {"%PDF-1.4\n", 9, "a PDF document"},
        {"PAR1\x15\x04", 6, "a Parquet file"},
        {"GGUF\3\0\0\0", 8, "a GGUF model"},
        {"ORC\n\xff\0", 6, "an ORC file"},
        {"SQLite format 3\0", 16, "an SQLite database"},
        {"x\0y", 3, "byte 1 of it is 0"},
    };
    const char *path = test_path(*state, "x");
    struct bytes file = bytes_make();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        test_write_file(path, cases[i].bytes, cases[i].n);
        check_refused(path, cases[i].says);
        file.n = 0;
        add_gzip(&file, cases[i].bytes, cases[i].n);
        test_write_file(path, file.at, file.n);
        check_refused(path, cases[i].says);
        file.n = 0;
        for (size_t at = 0; at < cases[i].n; at++) // a member each
            add_gzip(&file, cases[i].bytes + at, 1);
        test_write_file(path, file.at, file.n);
        check_refused(path, cases[i].says);
    }
    check_refused(test_path(*state, "missing"), "cannot open");
    free(file.at);
}

static void test_text_input__text_may_speak_of_other_files(void **state)
{
    static const char *const texts[] = {
        "GGUF is a file format.\n",
        "BZhang wrote this.\n",
        "%PDF- is how a document begins.\n",
        "{\"meta\":{\"set\": 1}, \"text\": \"a\"}\n",
    };
    const char *path = test_path(*state, "x");
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        test_write_file(path, texts[i], strlen(texts[i]));
        check_reads_as(path, texts[i], strlen(texts[i]));
    }
}

/* A window of 256 MiB, as `zstd --long=28` declares one, more than zstd takes by itself:
 * read, and where more is declared than can be, called what it is. */
static void test_text_input__large_windows_of_zstd_are_read(void **state)
{
    const char *path = test_path(*state, "x");
    char frame[] = "\x28\xb5\x2f\xfd\0\x90\x51\0\0text text\n"; // 2^28, one raw block
    test_write_file(path, frame, sizeof frame - 1);
    check_reads_as(path, "text text\n", 10);
    frame[5] = '\xb0'; // 2^32
    test_write_file(path, frame, sizeof frame - 1);
    check_refused(path, "a window of more than 2048 MB");
}

static void test_text_input__devices_are_refused(void **state)
{
    (void)state;
    check_refused("/dev/zero", "'/dev/zero' is a device");
    check_refused("/dev/full", "is a device");
    check_refused("/dev/urandom", "is a device");
    check_reads_as("/dev/null", "", 0);
}

static void test_text_input__a_pipe_without_a_writer_is_given_up(void **state)
{
    const char *fifo = test_path(*state, "fifo");
    const struct text_watch watch = {.writer_seconds = 0.2};
    struct text_input *in;
    struct error err = {.text = ""};
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(text_input_open(&in, fifo, &whole, &watch, &err), -1);
    assert_non_null(strstr(err.text, "nobody has opened the named pipe"));
    assert_int_equal(err.kind, ERROR_INPUT);
}

static int stop_now(void *context, struct error *err)
{
    int *n_left = context;
    return (*n_left)-- > 0 ? 0 : error_set(err, ERROR_STOPPED, "stopped");
}

/* Neither a pipe that nobody writes to nor a file that unpacks without end holds it up.
 */
static void test_text_input__the_watch_can_always_stop_it(void **state)
{
    const char *fifo = test_path(*state, "fifo"), *path = test_path(*state, "x");
    struct text_input *in;
    struct error err = {.text = ""};
    int n_left = 1;
    const struct text_watch watch = {.tick = stop_now, .context = &n_left};
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(text_input_open(&in, fifo, &whole, &watch, &err), -1);
    assert_int_equal(err.kind, ERROR_STOPPED);

    struct bytes file = bytes_make();
    char buf[64];
    size_t n;
    int rc = 0;
    for (int i = 0; i < 1000; i++) // all of it fits in one read
        add_gzip(&file, "", 0);
    test_write_file(path, file.at, file.n);
    n_left = 100;
    assert_ok(text_input_open(&in, path, &whole, &watch, &err), err);
    rc = text_input_read(in, buf, sizeof buf, &n, &err);
    assert_int_equal(rc, -1);
    assert_int_equal(err.kind, ERROR_STOPPED);
    text_input_close(in);
    free(file.at);
}

static void test_text_input__a_pipe_is_read_to_its_end(void **state)
{
    const char *fifo = test_path(*state, "fifo");
    struct bytes text = make_text(300000), file = bytes_make(), got = bytes_make();
    struct text_input *in;
    struct error err;
    size_t n = 1;
    add_zstd(&file, text.at, text.n);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = open(fifo, O_WRONLY);
        _exit(fs_write_exact(fd, file.at, 3) ||
              fs_write_exact(fd, file.at + 3, file.n - 3));
    }
    assert_ok(text_input_open(&in, fifo, &whole, &no_watch, &err), err);
    while (n > 0) {
        assert_ok(text_input_read(in, got.at + got.n, 4096, &n, &err), err);
        got.n += n;
    }
    text_input_close(in);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(got.n, text.n);
    assert_memory_equal(got.at, text.at, text.n);
    free(text.at);
    free(file.at);
    free(got.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_text_input__packing_is_told_by_the_first_bytes),
        data_test(test_text_input__all_members_and_frames_are_read),
        data_test(test_text_input__damage_is_an_error_with_a_place),
        data_test(test_text_input__files_that_are_no_text_are_refused),
        data_test(test_text_input__text_may_speak_of_other_files),
        data_test(test_text_input__large_windows_of_zstd_are_read),
        data_test(test_text_input__devices_are_refused),
        data_test(test_text_input__a_pipe_without_a_writer_is_given_up),
        data_test(test_text_input__the_watch_can_always_stop_it),
        data_test(test_text_input__a_pipe_is_read_to_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
