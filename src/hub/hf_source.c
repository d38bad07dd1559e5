#include "hub/hf_source.h"

#include "base/fs.h"
#include "base/stop.h"
#include "ckpt/ckpt_find.h"
#include "model/gpt_params.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 65536 // elements converted and written at a time

static int open_table(struct hf_source *src, struct error *err)
{
    struct ckpt_info info;
    if (ckpt_read_info(src->path, &info, err))
        return -1;
    int rc = config_from_json(&src->cfg, info.config_json, err);
    ckpt_info_release(&info);
    if (rc)
        return error_prefix(err, "checkpoint '%s'", src->path);
    return gpt_param_table(&src->table, &src->cfg.model, NULL, err);
}

static int open_room(struct hf_source *src, struct error *err)
{
    int64_t most = 1;
    for (int64_t i = 0; i < src->table.n_params; i++)
        most = i64_max(most, src->table.params[i].n_elements);
    src->raw = malloc((size_t)most * sizeof *src->raw);
    src->turned = malloc((size_t)most * sizeof *src->turned);
    if (!src->raw || !src->turned)
        return error_set(err, ERROR_RUNTIME,
                         "out of memory for two tensors of %lld numbers, the largest of "
                         "checkpoint '%s'",
                         (long long)most, src->path);
    return 0;
}

int hf_source_open(struct hf_source *src, const char *ckpt_dir, struct error *err)
{
    *src = (struct hf_source){.raw = NULL};
    if (ckpt_resolve(ckpt_dir, CKPT_MODEL + 1, src->path, sizeof src->path, err) ||
        open_table(src, err) ||
        ckpt_reader_open(&src->reader, src->path, CKPT_MODEL + 1, err) ||
        ckpt_reader_check(&src->reader, &src->table, NULL, CKPT_MODEL + 1, err))
        return -1;
    return open_room(src, err);
}

void hf_source_close(struct hf_source *src)
{
    ckpt_reader_close(&src->reader);
    param_table_release(&src->table);
    free(src->raw);
    free(src->turned);
    src->raw = src->turned = NULL;
}

static int take(void *context, int kind, const struct ckpt_piece *piece, int64_t first,
                int64_t n, const float *x, struct error *err)
{
    (void)kind;
    (void)piece;
    (void)err;
    memcpy((float *)context + first, x, (size_t)n * sizeof *x);
    return 0;
}

const float *hf_source_read(struct hf_source *src, const struct param *row,
                            enum hf_dialect dialect, struct error *err)
{
    struct ckpt_piece piece = {.row = row, .runs = param_runs(row), .n = row->n_elements};
    struct ckpt_part part = {&piece, 1, row->n_elements};
    struct ckpt_sink sink = {take, src->raw};
    if (ckpt_reader_read(&src->reader, CKPT_MODEL + 1, &part, &sink, err))
        return NULL;
    struct hf_shape shape = hf_shape(row, dialect);
    if (!shape.is_transposed)
        return src->raw;
    hf_transpose(src->turned, src->raw, shape.shape[1], shape.shape[0]);
    return src->turned;
}

/* The index of the first number that float16 would make infinite; n: none. */
static int64_t find_too_large(const float *x, int64_t n)
{
    int64_t i = 0;
    while (i < n && !(isfinite(x[i]) && fabsf(x[i]) >= 65520.0F))
        i++;
    return i;
}

int hf_write_numbers(int fd, const float *x, int64_t n, enum dtype dtype,
                     const char *name, const char *path, struct error *err)
{
    uint8_t bytes[CHUNK * sizeof(float)];
    int64_t bad = dtype == DTYPE_F16 ? find_too_large(x, n) : n;
    if (bad < n)
        return error_set(
            err, ERROR_INPUT,
            "tensor '%s' does not fit float16: number %lld of it is %g, over "
            "65504; another --dtype can hold it",
            name, (long long)bad, (double)x[bad]);
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t part = i64_min(CHUNK, n - i);
        if (stop_check(err))
            return -1;
        dtype_store(bytes, x + i, dtype, part);
        if (fs_write_exact(fd, bytes, (size_t)part * dtype_bytes(dtype)))
            return error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", path,
                             strerror(errno));
    }
    return 0;
}
