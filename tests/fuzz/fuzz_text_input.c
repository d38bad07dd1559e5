/*
 * Any bytes as a text file, packed or not, in any encoding: the same text whatever the
 * size of the reads, or the same verdict; and what is said to be UTF-8 is. Unpacked text
 * is read up to a limit, since a small file can be a huge text.
 *
 *     clang -fsanitize=fuzzer,address,undefined ... tests/fuzz/fuzz_text_input.c
 */
#include "base/fs.h"
#include "base/log.h"
#include "base/utf8.h"
#include "data/text/text_input.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#define MOST_BYTES (1u << 20)
#define MOST_READ_BYTES 4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int tick(void *context, struct error *err)
{
    (void)context;
    (void)err;
    return 0;
}

/* What came out of the file, up to MOST_BYTES. */
struct result {
    int rc;
    size_t n_bytes;
    uint64_t hash;
};

static struct result read_file(const char *path, const struct text_form *form,
                               size_t step)
{
    struct utf8_check check = {.n_held = 0};
    const struct text_watch watch = {.tick = tick};
    struct result got = {0};
    struct text_input *in;
    struct error err = {.text = ""};
    char buf[MOST_READ_BYTES];
    size_t n = 1;
    got.rc = text_input_open(&in, path, form, &watch, &err);
    while (got.rc == 0 && n > 0 && got.n_bytes < MOST_BYTES) {
        size_t left = MOST_BYTES - got.n_bytes;
        got.rc = text_input_read(in, buf, left < step ? left : step, &n, &err);
        if (got.rc)
            break;
        CHECK(n <= step, "%zu bytes of %zu", n, step);
        // what was converted may hold a NUL
        CHECK(form->encoding || form->kind == TEXT_JSON_LINES ||
                  utf8_check_take(&check, buf, n),
              "not UTF-8 at %lld", (long long)check.n_bytes);
        for (size_t i = 0; i < n; i++) // byte by byte, so that pieces do not matter
            got.hash = XXH3_64bits_withSeed(buf + i, 1, got.hash);
        got.n_bytes += n;
    }
    CHECK(got.rc || n > 0 || form->encoding || form->kind == TEXT_JSON_LINES ||
              utf8_check_end(&check),
          "half a character");
    CHECK(got.rc == 0 || err.text[0], "an error without a sentence");
    text_input_close(in);
    return got;
}

static const struct text_form forms[] = {
    {.kind = TEXT_WHOLE_FILE},
    {.kind = TEXT_JSON_LINES},
    {.kind = TEXT_WHOLE_FILE, .encoding = "bytes"},
    {.kind = TEXT_WHOLE_FILE, .encoding = "GB18030"},
    {.kind = TEXT_WHOLE_FILE, .encoding = "UTF-16"},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    log_set_level(LOG_ERROR);
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    CHECK(fd >= 0 && fs_pwrite_exact(fd, data, size, 0) == 0, "no memory file");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const struct text_form *form = &forms[size % ARRAY_LEN(forms)];
    struct result all = read_file(path, form, MOST_READ_BYTES),
                  some = read_file(path, form, 100);
    CHECK(all.rc == some.rc, "%d, then %d", all.rc, some.rc);
    CHECK(all.rc || (all.n_bytes == some.n_bytes && all.hash == some.hash),
          "%zu bytes, then %zu", all.n_bytes, some.n_bytes);
    close(fd);
    return 0;
}
