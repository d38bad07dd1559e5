/*
 * Any bytes as JSON, as text with blank lines, and as one document: every line or value
 * is a document, a bad line with its number and reason, or blank; documents of text are
 * parts of the file.
 *
 *     clang -fsanitize=fuzzer,address,undefined ... tests/fuzz/fuzz_json_lines.c
 */
#include "base/fs.h"
#include "base/log.h"
#include "data/text/text_documents.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct counts {
    int64_t n_bytes, n_documents, n_bad, last_line, n_read, sum;
};

static int append(void *context, const char *bytes, size_t n, struct error *err)
{
    struct counts *c = context;
    (void)err;
    CHECK(n > 0, "an empty piece");
    c->n_bytes += (int64_t)n;
    for (size_t i = 0; i < n; i++) // so that every byte is touched
        c->sum += (unsigned char)bytes[i];
    return 0;
}

static int end_document(void *context, struct error *err)
{
    struct counts *c = context;
    (void)err;
    c->n_documents++;
    return 0;
}

static int bad_line(void *context, const char *path, int64_t line, const char *reason,
                    struct error *err)
{
    struct counts *c = context;
    (void)path;
    (void)err;
    // several values of an array may stand in one line
    CHECK(line >= c->last_line && line >= 1 && reason[0], "line %lld after %lld",
          (long long)line, (long long)c->last_line);
    c->last_line = line;
    c->n_bad++;
    return 0;
}

static int progress(void *context, size_t n, struct error *err)
{
    struct counts *c = context;
    (void)err;
    c->n_read += (int64_t)n;
    return 0;
}

static int64_t count_lines(const uint8_t *data, size_t size)
{
    int64_t n = size > 0 && data[size - 1] != '\n';
    for (size_t i = 0; i < size; i++)
        n += data[i] == '\n';
    return n;
}

static void read_as(const char *path, enum text_kind kind, int64_t n_lines,
                    int64_t n_bytes)
{
    struct counts c = {0};
    struct error err = {.text = ""};
    const struct text_sink sink = {append, end_document, bad_line, progress, &c};
    const struct text_form form = {
        .kind = kind,
        .encoding = kind == TEXT_JSON_LINES ? NULL : "bytes",
        .json_key = "text",
    };
    if (text_documents_read(path, &form, &sink, &err)) {
        CHECK(err.text[0], "an error without a sentence");
        return;
    }
    int64_t n_read = c.n_read + (kind == TEXT_JSON_LINES ? 3 : 0); // a mark is left out
    CHECK(c.n_read <= n_bytes && n_read >= n_bytes, "%lld bytes of %lld",
          (long long)c.n_read, (long long)n_bytes);
    int64_t most = kind == TEXT_JSON_LINES ? n_bytes + 1 : n_lines + 1;
    CHECK(c.n_documents + c.n_bad <= most,
          "%lld documents and %lld bad ones in %lld lines", (long long)c.n_documents,
          (long long)c.n_bad, (long long)n_lines);
    CHECK(c.n_bytes <= n_bytes && (kind != TEXT_WHOLE_FILE || c.n_bytes == n_bytes),
          "%lld bytes of %lld", (long long)c.n_bytes, (long long)n_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    log_set_level(LOG_ERROR);
    if (size > 1 && (data[0] == 0x1f || data[0] == 0x28 || data[0] == 0x50))
        return 0; // packed: fuzz_text_input's
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    CHECK(fd >= 0 && fs_pwrite_exact(fd, data, size, 0) == 0, "no memory file");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (int kind = TEXT_BLANK_LINES; kind <= TEXT_JSON_LINES; kind++)
        read_as(path, (enum text_kind)kind, count_lines(data, size), (int64_t)size);
    close(fd);
    return 0;
}
