/*
 * Both index formats need all lengths more than once, and their counts first. So the
 * lengths go to a file of their own while documents arrive, and the index is made from it
 * at the end in one or two passes.
 */
#include "data/formats/dataset_writer.h"

#include "base/fs.h"
#include "data/formats/dataset_index.h"
#include "data/formats/npy.h"
#include "data/formats/npz.h"
#include "data/formats/out_file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MEGATRON_U16_BELOW 65500 // a vocabulary smaller than this is stored in 16 bits
#define CHUNK 8192               // numbers converted at once

struct dataset_writer {
    enum dataset_format format;
    enum disk_int type;
    char *prefix;
    struct out_file data;
    struct out_file lens; // int32 each; only ever temporary
    struct out_file index;
    int64_t n_documents;
    int64_t n_tokens;
    int64_t document_start; // in tokens
};

/* The same prefix in another format would make the dataset ambiguous. */
static int refuse_other_formats(const char *prefix, enum dataset_format format,
                                struct error *err)
{
    for (int f = 0; f < N_DATASET_FORMATS; f++) {
        char path[PATH_MAX];
        if (f == (int)format)
            continue;
        if (snprintf(path, sizeof path, "%s%s", prefix, dataset_formats[f].data_suffix) >=
            (int)sizeof path)
            return error_set(err, ERROR_INPUT, "path too long: '%s'", prefix);
        if (fs_exists(path))
            return error_set(err, ERROR_INPUT,
                             "'%s' exists: one prefix in two formats could not be read "
                             "again; remove it or choose another output",
                             path);
    }
    return 0;
}

static int make_parent(const char *prefix, struct error *err)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(prefix, '/');
    if (slash && slash[1] == 0)
        return error_set(err, ERROR_INPUT,
                         "'%s' is a directory; the output is a prefix of file names, for "
                         "example %stext",
                         prefix, prefix);
    if (!slash || slash == prefix)
        return 0;
    snprintf(parent, sizeof parent, "%.*s", (int)(slash - prefix), prefix);
    return fs_make_directories(parent, err);
}

int dataset_writer_open(struct dataset_writer **out, const char *prefix,
                        enum dataset_format format, int64_t vocab_size, struct error *err)
{
    uint8_t header[NPY_WRITE_HEADER_BYTES] = {0}; // filled in when the count is known
    int rc = -1;
    CHECK(format == DATASET_MEGATRON || format == DATASET_FLEETX, "format %d", format);
    *out = NULL;
    struct dataset_writer *w = calloc(1, sizeof *w);
    if (!w || !(w->prefix = strdup(prefix))) {
        free(w);
        return error_set(err, ERROR_RUNTIME, "out of memory");
    }
    w->format = format;
    w->type = vocab_size < MEGATRON_U16_BELOW ? DISK_U16 : DISK_I32;
    w->data.fd = w->lens.fd = w->index.fd = -1;
    if (refuse_other_formats(prefix, format, err) || make_parent(prefix, err) ||
        out_file_open(&w->data, prefix, dataset_formats[format].data_suffix, err) ||
        out_file_open(&w->lens, prefix, ".lens", err) ||
        out_file_open(&w->index, prefix, dataset_formats[format].index_suffix, err))
        goto done;
    if (format == DATASET_FLEETX && out_file_write(&w->data, header, sizeof header, err))
        goto done;
    *out = w;
    rc = 0;
done:
    if (rc)
        dataset_writer_close(w);
    return rc;
}

int dataset_writer_append(struct dataset_writer *w, const int32_t *tokens, int64_t n,
                          struct error *err)
{
    uint8_t raw[CHUNK * 4];
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t n_now = i64_min(CHUNK, n - i);
        disk_int_write_i32(w->type, tokens + i, n_now, raw);
        if (out_file_write(&w->data, raw, (size_t)n_now * disk_int_bytes(w->type), err))
            return -1;
    }
    w->n_tokens += n;
    return 0;
}

int dataset_writer_end_document(struct dataset_writer *w, struct error *err)
{
    uint8_t raw[4];
    int64_t n = w->n_tokens - w->document_start;
    if (n > INT32_MAX)
        return error_set(err, ERROR_INPUT,
                         "document %lld has %lld tokens; the formats end at %d a "
                         "document: split it",
                         (long long)w->n_documents + 1, (long long)n, INT32_MAX);
    disk_put_u32(raw, (uint32_t)n);
    w->document_start = w->n_tokens;
    w->n_documents++;
    return out_file_write(&w->lens, raw, sizeof raw, err);
}

int64_t dataset_writer_n_tokens(const struct dataset_writer *w)
{
    return w->n_tokens;
}

/* -- the index ----------------------------------------------------------------------- */

static int read_lengths(struct dataset_writer *w, uint8_t *raw, uint64_t at, size_t n,
                        struct error *err)
{
    if (fs_pread_exact(w->lens.fd, raw, n, (off_t)at))
        return error_set(err, ERROR_RUNTIME, "cannot read '%s': %s", w->lens.tmp_path,
                         strerror(errno));
    return 0;
}

/* The lengths as they are, or (as_pointers) the byte offset of each document. */
static int write_lengths(struct dataset_writer *w, bool as_pointers, struct error *err)
{
    uint8_t raw[CHUNK * 4], wide[CHUNK * 8];
    uint64_t offset = 0, size = disk_int_bytes(w->type);
    for (int64_t i = 0; i < w->n_documents; i += CHUNK) {
        size_t n = (size_t)i64_min(CHUNK, w->n_documents - i);
        if (read_lengths(w, raw, 4 * (uint64_t)i, n * 4, err))
            return -1;
        for (size_t k = 0; k < n && as_pointers; k++) {
            disk_put_u64(wide + 8 * k, offset);
            offset += disk_get_u32(raw + 4 * k) * size;
        }
        if (out_file_write(&w->index, as_pointers ? wide : raw,
                           as_pointers ? n * 8 : n * 4, err))
            return -1;
    }
    return 0;
}

/* first, first + 1, ...: every document is one sequence. */
static void count_up(uint8_t *wide, uint64_t first, size_t n)
{
    for (size_t k = 0; k < n; k++)
        disk_put_u64(wide + 8 * k, first + k);
}

static int write_megatron_index(struct dataset_writer *w, struct error *err)
{
    uint8_t header[MEGATRON_HEADER_BYTES], wide[CHUNK * 8];
    megatron_index_header(header, w->type, w->n_documents, w->n_documents);
    if (out_file_write(&w->index, header, sizeof header, err) ||
        write_lengths(w, false, err) || write_lengths(w, true, err))
        return -1;
    for (int64_t i = 0; i <= w->n_documents; i += CHUNK) {
        size_t n = (size_t)i64_min(CHUNK, w->n_documents + 1 - i);
        count_up(wide, (uint64_t)i, n);
        if (out_file_write(&w->index, wide, n * 8, err))
            return -1;
    }
    return 0;
}

static int give_lens(void *context, uint64_t at, uint8_t *data, size_t n,
                     struct error *err)
{
    return read_lengths(context, data, at, n, err);
}

static int give_docs(void *context, uint64_t at, uint8_t *data, size_t n,
                     struct error *err)
{
    (void)context, (void)err;
    count_up(data, at / 8, n / 8);
    return 0;
}

static int write_fleetx_index(struct dataset_writer *w, struct error *err)
{
    uint8_t header[NPY_WRITE_HEADER_BYTES];
    const struct npz_array arrays[] = {
        {"lens", DISK_I32, w->n_documents, give_lens, w},
        {"docs", DISK_I64, w->n_documents + 1, give_docs, NULL},
    };
    if (npz_write(w->index.fd, w->index.tmp_path, arrays, ARRAY_LEN(arrays), err))
        return -1;
    npy_write_header(header, w->type, w->n_tokens);
    if (fs_pwrite_exact(w->data.fd, header, sizeof header, 0))
        return error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", w->data.tmp_path,
                         strerror(errno));
    return 0;
}

int dataset_writer_commit(struct dataset_writer *w, const struct dataset_meta *meta,
                          struct error *err)
{
    struct dataset_meta counted = *meta;
    char *meta_path = NULL;
    int rc = -1;
    counted.n_documents = w->n_documents;
    counted.n_tokens = w->n_tokens;
    if (out_file_flush(&w->data, err) || out_file_flush(&w->lens, err) ||
        (w->format == DATASET_FLEETX ? write_fleetx_index(w, err)
                                     : write_megatron_index(w, err)) ||
        out_file_sync(&w->data, err) || out_file_sync(&w->index, err))
        return -1;
    if (asprintf(&meta_path, "%s.meta.json", w->prefix) < 0)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    // the old index goes first, so that at no moment it could be read with the new data
    if (unlink(w->index.path) && errno != ENOENT)
        error_set(err, ERROR_RUNTIME, "cannot replace '%s': %s", w->index.path,
                  strerror(errno));
    else if (out_file_commit(&w->data, err) == 0 &&
             dataset_meta_write(meta_path, &counted, err) == 0)
        rc = out_file_commit(&w->index, err);
    free(meta_path);
    return rc;
}

void dataset_writer_close(struct dataset_writer *w)
{
    if (!w)
        return;
    out_file_close(&w->data);
    out_file_close(&w->lens);
    out_file_close(&w->index);
    free(w->prefix);
    free(w);
}
