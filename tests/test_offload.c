/* Arrays on disk: what is written stays, memory stays small, failures are sentences. */
#include "base/offload.h"
#include "test.h"

#include "base/fs.h"
#include "base/memory.h"

#include <limits.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define WINDOW ((size_t)64 << 10)
#define KEY "save_load.offload_dir"

/* -- fixture ------------------------------------------------------------------------- */

static bool is_in_memory(const char *dir)
{
    struct statfs st;
    return statfs(dir, &st) == 0 &&
           (st.f_type == TMPFS_MAGIC || st.f_type == RAMFS_MAGIC);
}

/* A directory on a disk: where temporary ones are in memory, below the current one. */
static int make_disk_directory(void **state)
{
    char *dir = test_make_directory();
    if (is_in_memory(dir)) {
        rmdir(dir);
        snprintf(dir, PATH_MAX, "./trefoil-test-XXXXXX");
        assert_non_null(mkdtemp(dir));
    }
    *state = dir;
    return 0;
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Nothing may be left in it. */
static int remove_directory(void **state)
{
    limit_files(RLIM_INFINITY); // a test that failed has not
    int rc = rmdir(*state);
    free(*state);
    return rc;
}

static struct offload *open_array(const char *dir, size_t n_bytes, bool is_cached)
{
    struct error err;
    struct offload *o;
    struct offload_options opt = {.dir = dir,
                                  .dir_key = KEY,
                                  .what = "a test",
                                  .n_bytes = n_bytes,
                                  .window_bytes = WINDOW,
                                  .n_windows = 3,
                                  .is_cached = is_cached};
    assert_ok(offload_open(&o, &opt, &err), err);
    return o;
}

static void expect_refusal(const struct offload_options *opt, const char *words)
{
    struct error err = {0};
    struct offload *o;
    assert_int_equal(offload_open(&o, opt, &err), -1);
    assert_null(o);
    if (!strstr(err.text, words) || !strstr(err.text, KEY))
        fail_msg("no '%s' or no '%s' in: %s", words, KEY, err.text);
}

static size_t pages_in_memory(const struct offload *o, size_t n_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t n = (n_bytes + page - 1) / page, sum = 0;
    unsigned char *in_memory = malloc(n);
    assert_non_null(in_memory);
    assert_int_equal(mincore(offload_data(o), n * page, in_memory), 0);
    for (size_t i = 0; i < n; i++)
        sum += in_memory[i] & 1;
    free(in_memory);
    return sum;
}

/* What is written in the background leaves the memory in the end. */
static void wait_until_empty(const struct offload *o, size_t n_bytes)
{
    for (int i = 0; i < 1000 && pages_in_memory(o, n_bytes) > 0; i++)
        usleep(10000);
    assert_int_equal(pages_in_memory(o, n_bytes), 0);
}

/* A fixed sequence of numbers without order. */
static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* -- content ------------------------------------------------------------------------- */

static void test_open__gives_zeros(void **state)
{
    struct error err;
    size_t n = 5 * WINDOW + 12;
    struct offload *o = open_array(*state, n, false);
    const uint8_t *data = offload_data(o);
    offload_begin(o, OFFLOAD_READ);
    for (size_t at = 0; at < n; at++) {
        if (at % 1000 == 0)
            assert_ok(offload_advance(o, at, at + 1000 < n ? at + 1000 : n, &err), err);
        assert_int_equal(data[at], 0);
    }
    offload_end(o);
    offload_close(o);
}

/* Passes with ranges of any length, some bytes skipped, against the same in memory. */
static void run_passes(const char *dir, size_t n, size_t longest, bool is_cached)
{
    struct error err;
    struct offload *o = open_array(dir, n * sizeof(uint32_t), is_cached);
    uint32_t *data = offload_data(o), seed = 7;
    uint32_t *expected = calloc(n, sizeof *expected);
    assert_non_null(expected);
    for (uint32_t pass = 1; pass <= 4; pass++) {
        offload_begin(o, OFFLOAD_UPDATE);
        for (size_t first = 0; first < n;) {
            size_t end = first + next_random(&seed) % longest;
            end = end < n ? end : n;
            assert_ok(offload_advance(o, first * 4, end * 4, &err), err);
            for (size_t i = first; i < end; i++) {
                assert_int_equal(data[i], expected[i]);
                expected[i] = expected[i] * 3 + (uint32_t)i + pass;
                data[i] = data[i] * 3 + (uint32_t)i + pass;
            }
            bool has_gap = next_random(&seed) % 4 == 0;
            first = end + (has_gap ? next_random(&seed) % longest : 0);
        }
        offload_end(o);
    }
    offload_fetch(o, 0, n * 4);
    assert_ok(offload_wait(o, 0, n * 4, &err), err);
    assert_memory_equal(data, expected, n * 4);
    offload_drop(o, 0, n * 4, OFFLOAD_READ);
    free(expected);
    offload_close(o);
}

static void test_pass__keeps_every_bit(void **state)
{
    size_t in_window = WINDOW / sizeof(uint32_t);
    for (int is_cached = 0; is_cached < 2; is_cached++) {
        run_passes(*state, 11 * in_window + 5, in_window / 3, is_cached);
        run_passes(*state, 40 * in_window, 7 * in_window, is_cached);
        run_passes(*state, 3, 2, is_cached); // less than a window
    }
}

static void test_pass__can_start_right_after_another(void **state)
{
    struct error err;
    struct offload *o = open_array(*state, 4 * WINDOW, false);
    uint32_t *data = offload_data(o);
    for (uint32_t pass = 0; pass < 200; pass++) {
        offload_begin(o, OFFLOAD_UPDATE); // while the last windows are being written
        for (size_t w = 0; w < 4; w++) {
            assert_ok(offload_advance(o, w * WINDOW, (w + 1) * WINDOW, &err), err);
            assert_int_equal(data[w * WINDOW / 4], pass);
            data[w * WINDOW / 4]++;
        }
        offload_end(o);
    }
    offload_close(o);
}

static void test_pass__to_read_writes_nothing_back(void **state)
{
    struct error err;
    struct offload *o = open_array(*state, 4 * WINDOW, false);
    uint8_t *data = offload_data(o);
    offload_begin(o, OFFLOAD_READ);
    assert_ok(offload_advance(o, 0, 10, &err), err);
    data[5] = 1;
    offload_end(o); // early, too
    offload_begin(o, OFFLOAD_READ);
    assert_ok(offload_advance(o, 0, 10, &err), err);
    assert_int_equal(data[5], 0);
    offload_end(o);
    offload_close(o);
}

static void test_fetch__holds_a_window_as_often_as_it_was_called(void **state)
{
    struct error err;
    struct offload *o = open_array(*state, 10 * WINDOW, false);
    uint8_t *data = offload_data(o);
    size_t middle = 2 * WINDOW + WINDOW / 2; // two ranges that meet inside a window
    offload_fetch(o, middle, 4 * WINDOW);
    offload_fetch(o, 0, middle);
    assert_ok(offload_wait(o, 0, middle, &err), err);
    data[middle - 1] = 1;
    offload_drop(o, 0, middle, OFFLOAD_UPDATE);
    assert_ok(offload_wait(o, middle, 4 * WINDOW, &err), err);
    data[middle] = 2;
    offload_drop(o, middle, 4 * WINDOW,
                 OFFLOAD_READ); // the window is written all the same
    offload_fetch(o, middle - 1, middle + 1);
    assert_ok(offload_wait(o, middle - 1, middle + 1, &err), err);
    assert_int_equal(data[middle - 1], 1);
    assert_int_equal(data[middle], 2);
    offload_drop(o, middle - 1, middle + 1, OFFLOAD_READ);
    offload_close(o);
}

static void test_array__of_no_bytes_can_be_used(void **state)
{
    struct error err;
    struct offload *o = open_array(*state, 0, false);
    offload_begin(o, OFFLOAD_UPDATE);
    assert_ok(offload_advance(o, 0, 0, &err), err);
    offload_end(o);
    offload_fetch(o, 0, 0);
    assert_ok(offload_wait(o, 0, 0, &err), err);
    offload_drop(o, 0, 0, OFFLOAD_UPDATE);
    offload_close(o);
}

/* -- memory -------------------------------------------------------------------------- */

static void test_pass__leaves_nothing_in_memory(void **state)
{
    struct error err;
    for (int is_cached = 0; is_cached < 2; is_cached++) {
        struct offload *o = open_array(*state, 20 * WINDOW, is_cached);
        assert_int_equal(pages_in_memory(o, 20 * WINDOW), 0);
        offload_begin(o, OFFLOAD_UPDATE);
        assert_ok(offload_advance(o, 0, 3 * WINDOW, &err), err);
        memset(offload_data(o), 1, 3 * WINDOW);
        assert_ok(offload_advance(o, 9 * WINDOW, 9 * WINDOW + 1, &err), err);
        offload_end(o);
        wait_until_empty(o, 20 * WINDOW);
        offload_close(o);
    }
}

static void test_pass__takes_a_few_windows_of_memory(void **state)
{
    struct error err;
    size_t n = (size_t)128 << 20, window = (size_t)1 << 20, before, most = 0;
    struct offload *o;
    struct offload_options opt = {.dir = *state,
                                  .dir_key = KEY,
                                  .what = "a test",
                                  .n_bytes = n,
                                  .window_bytes = window};
    assert_ok(offload_open(&o, &opt, &err), err);
    before = memory_resident_bytes();
    offload_begin(o, OFFLOAD_UPDATE);
    for (size_t at = 0; at < n; at += window) {
        assert_ok(offload_advance(o, at, at + window, &err), err);
        memset((uint8_t *)offload_data(o) + at, 1, window);
        size_t now = memory_resident_bytes();
        most = now > most ? now : most;
    }
    offload_end(o);
    offload_close(o);
    // the kernel's count may lag behind by some pages a processor
    size_t allowed = before + OFFLOAD_WINDOWS * window + ((size_t)8 << 20);
    if (most > allowed)
        fail_msg("%zu bytes resident, %zu allowed", most, allowed);
}

/* Whatever the speed of the disk: by the windows, for ranges of one and across two. */
static void test_pass__keeps_to_its_limit(void **state)
{
    struct error err;
    for (int n_windows = 2; n_windows < 5; n_windows++)
        for (size_t shift = 0; shift < 2; shift++) {
            struct offload *o;
            struct offload_options opt = {.dir = *state,
                                          .dir_key = KEY,
                                          .what = "a test",
                                          .n_bytes = 50 * WINDOW,
                                          .window_bytes = WINDOW,
                                          .n_windows = n_windows};
            assert_ok(offload_open(&o, &opt, &err), err);
            offload_begin(o, OFFLOAD_UPDATE);
            for (size_t at = shift; at + WINDOW <= opt.n_bytes; at += WINDOW) {
                assert_ok(offload_advance(o, at, at + WINDOW, &err), err);
                size_t n = pages_in_memory(o, opt.n_bytes);
                assert_true(n * (size_t)sysconf(_SC_PAGESIZE) <=
                            (size_t)n_windows * WINDOW);
            }
            offload_end(o);
            offload_close(o);
        }
}

/* Data that is not there is never read as something. */
static void test_array__cannot_be_touched_where_it_is_not_held(void **state)
{
    struct error err;
    struct offload *o = open_array(*state, 8 * WINDOW, false);
    int status;
    offload_fetch(o, 0, WINDOW);
    assert_ok(offload_wait(o, 0, WINDOW, &err), err);
    offload_drop(o, 0, WINDOW, OFFLOAD_UPDATE);
    wait_until_empty(o, 8 * WINDOW);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGSEGV, SIG_DFL);
        _exit(*(volatile uint8_t *)offload_data(o));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    offload_close(o);
}

/* -- failures ------------------------------------------------------------------------ */

static void test_open__refuses_a_disk_that_is_too_small(void **state)
{
    struct offload_options opt = {
        .dir = *state, .dir_key = KEY, .what = "the moments", .n_bytes = (size_t)1 << 62};
    expect_refusal(&opt, "not enough room for the moments");
    opt.n_bytes = SIZE_MAX;
    expect_refusal(&opt, "MB are free");
}

static void test_open__refuses_a_directory_it_cannot_use(void **state)
{
    char path[PATH_MAX];
    struct error err;
    struct offload_options opt = {
        .dir = path, .dir_key = KEY, .what = "the moments", .n_bytes = 10};
    assert_ok(fs_join(path, sizeof path, *state, "file", &err), err);
    expect_refusal(&opt, "No such file or directory");
    assert_ok(fs_write_atomic(path, "", 0, &err), err);
    expect_refusal(&opt, "Not a directory");
    unlink(path);
}

static void test_open__refuses_a_directory_in_memory(void **state)
{
    (void)state;
    struct offload_options opt = {
        .dir = "/dev/shm", .dir_key = KEY, .what = "the moments", .n_bytes = 10};
    if (!is_in_memory(opt.dir))
        skip();
    expect_refusal(&opt, "is in memory");
}

static void test_open__refuses_a_file_past_the_limit(void **state)
{
    struct offload_options opt = {
        .dir = *state, .dir_key = KEY, .what = "the moments", .n_bytes = 10 * WINDOW};
    limit_files(WINDOW);
    expect_refusal(&opt, "ulimit -f");
    limit_files(RLIM_INFINITY);
}

static void expect_failure(int rc, const struct error *err, const char *words)
{
    assert_int_equal(rc, -1);
    if (!strstr(err->text, words) || !strstr(err->text, KEY))
        fail_msg("no '%s' or no '%s' in: %s", words, KEY, err->text);
}

/* The byte a failure to write is said to be at. */
static unsigned long failed_at(const struct error *err)
{
    static const char words[] = "cannot write a test at byte ";
    const char *found = strstr(err->text, words);
    return found ? strtoul(found + strlen(words), NULL, 10) : 0;
}

/*
 * A limit on files that comes after the opening stands in for a disk that fails. Several
 * threads write; which window past the limit fails first is theirs to decide.
 */
static void test_write__that_fails_is_an_error_of_a_later_call(void **state)
{
    struct error err = {0};
    struct offload *o = open_array(*state, 30 * WINDOW, false);
    int rc = 0;
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    limit_files(4 * WINDOW);
    offload_begin(o, OFFLOAD_UPDATE);
    for (size_t w = 0; w < 30 && rc == 0; w++) {
        rc = offload_advance(o, w * WINDOW, (w + 1) * WINDOW, &err);
        if (rc == 0)
            memset((uint8_t *)offload_data(o) + w * WINDOW, 1, WINDOW);
    }
    expect_failure(rc, &err, "cannot write a test at byte");
    assert_in_range(failed_at(&err), 4 * WINDOW, 29 * WINDOW);
    assert_int_equal(failed_at(&err) % WINDOW, 0);
    offload_end(o);
    offload_fetch(o, 0, WINDOW);
    expect_failure(offload_wait(o, 0, WINDOW, &err), &err, "cannot write");
    offload_close(o);
    limit_files(RLIM_INFINITY);
    signal(SIGXFSZ, before);
}

/* The descriptor of the one nameless file of this process in `dir`. */
static int find_descriptor(const char *dir)
{
    char link[PATH_MAX], target[PATH_MAX], full[PATH_MAX];
    assert_non_null(realpath(dir, full));
    for (int fd = 0; fd < 1024; fd++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, target, sizeof target - 1);
        if (n > 0 && strncmp(target, full, strlen(full)) == 0)
            return fd;
    }
    fail_msg("no file in '%s' is open", dir);
    return -1;
}

static void test_read__that_fails_is_an_error(void **state)
{
    struct error err = {0};
    struct offload *o = open_array(*state, 10 * WINDOW, false);
    assert_int_equal(ftruncate(find_descriptor(*state), (off_t)(5 * WINDOW)), 0);
    offload_fetch(o, 0, 10 * WINDOW);
    int rc = offload_wait(o, 0, 10 * WINDOW, &err);
    expect_failure(rc, &err, "cannot read a test at byte ");
    offload_drop(o, 0, 10 * WINDOW, OFFLOAD_UPDATE);
    offload_close(o);
}

/* Use an array, say so in the pipe, and wait for the end. */
static void live_until_killed(const char *dir, int ready)
{
    struct error err;
    struct offload *o;
    struct offload_options opt = {
        .dir = dir, .dir_key = KEY, .what = "a test", .n_bytes = 4 * WINDOW};
    if (offload_open(&o, &opt, &err))
        _exit(1);
    offload_begin(o, OFFLOAD_UPDATE);
    if (offload_advance(o, 0, WINDOW, &err))
        _exit(1);
    memset(offload_data(o), 1, WINDOW);
    if (write(ready, "", 1) == 1)
        pause();
    _exit(1);
}

/* remove_directory() fails if anything is left. */
static void test_file__is_gone_after_a_kill(void **state)
{
    int ready[2], status;
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        live_until_killed(*state, ready[1]);
    close(ready[1]);
    ssize_t n = read(ready[0], &byte, 1);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    close(ready[0]);
    assert_int_equal(n, 1);
    assert_true(WIFSIGNALED(status));
}

#define ON_DISK(test)                                                                    \
    cmocka_unit_test_setup_teardown(test, make_disk_directory, remove_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_DISK(test_open__gives_zeros),
        ON_DISK(test_pass__keeps_every_bit),
        ON_DISK(test_pass__can_start_right_after_another),
        ON_DISK(test_pass__to_read_writes_nothing_back),
        ON_DISK(test_fetch__holds_a_window_as_often_as_it_was_called),
        ON_DISK(test_array__of_no_bytes_can_be_used),
        ON_DISK(test_pass__leaves_nothing_in_memory),
        ON_DISK(test_pass__takes_a_few_windows_of_memory),
        ON_DISK(test_pass__keeps_to_its_limit),
        ON_DISK(test_array__cannot_be_touched_where_it_is_not_held),
        ON_DISK(test_open__refuses_a_disk_that_is_too_small),
        ON_DISK(test_open__refuses_a_directory_it_cannot_use),
        ON_DISK(test_open__refuses_a_directory_in_memory),
        ON_DISK(test_open__refuses_a_file_past_the_limit),
        ON_DISK(test_write__that_fails_is_an_error_of_a_later_call),
        ON_DISK(test_read__that_fails_is_an_error),
        ON_DISK(test_file__is_gone_after_a_kill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
