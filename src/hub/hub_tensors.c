#include "hub/hub_tensors.h"

#include "base/fs.h"
#include "base/stop.h"
#include "ckpt/ckpt_find.h"
#include "model/gpt_params.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_PREFIX "layers."
#define TILE 32 // rows and columns that are transposed at a time: two of them fit in L1

static const struct name_row {
    const char *ours; // of a block: what follows "layers.N."
    const char *theirs[N_HF_DIALECTS];
    bool is_conv1d;
} names[] = {
    {"embedding.word.weight", {"wte.weight", "token_embd.weight"}, false},
    {"embedding.position.weight", {"wpe.weight", "position_embd.weight"}, false},
    {"ln1.weight", {"ln_1.weight", "attn_norm.weight"}, false},
    {"ln1.bias", {"ln_1.bias", "attn_norm.bias"}, false},
    {"attn.qkv.weight", {"attn.c_attn.weight", "attn_qkv.weight"}, true},
    {"attn.qkv.bias", {"attn.c_attn.bias", "attn_qkv.bias"}, false},
    {"attn.proj.weight", {"attn.c_proj.weight", "attn_output.weight"}, true},
    {"attn.proj.bias", {"attn.c_proj.bias", "attn_output.bias"}, false},
    {"ln2.weight", {"ln_2.weight", "ffn_norm.weight"}, false},
    {"ln2.bias", {"ln_2.bias", "ffn_norm.bias"}, false},
    {"mlp.fc.weight", {"mlp.c_fc.weight", "ffn_up.weight"}, true},
    {"mlp.fc.bias", {"mlp.c_fc.bias", "ffn_up.bias"}, false},
    {"mlp.proj.weight", {"mlp.c_proj.weight", "ffn_down.weight"}, true},
    {"mlp.proj.bias", {"mlp.c_proj.bias", "ffn_down.bias"}, false},
    {"final_norm.weight", {"ln_f.weight", "output_norm.weight"}, false},
    {"final_norm.bias", {"ln_f.bias", "output_norm.bias"}, false},
};

static const char *const block_names[N_HF_DIALECTS] = {"h", "blk"};

/* The name without "layers.N."; and N, or -1. */
static const char *name_in_layer(const struct param *row, int64_t *block)
{
    size_t n = strlen(BLOCK_PREFIX);
    *block = -1;
    if (strncmp(row->name, BLOCK_PREFIX, n) != 0)
        return row->name;
    char *end;
    *block = strtoll(row->name + n, &end, 10);
    return end + 1;
}

/* NULL: it has no name elsewhere. */
static const struct name_row *look_up(const struct param *row)
{
    int64_t block;
    const char *ours = name_in_layer(row, &block);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(names[i].ours, ours) == 0)
            return &names[i];
    return NULL;
}

static const struct name_row *find_name(const struct param *row)
{
    const struct name_row *found = look_up(row);
    CHECK(found, "parameter '%s' has no name elsewhere", row->name);
    return found;
}

int hf_names_check(const struct param_table *whole, struct error *err)
{
    for (int64_t i = 0; i < whole->n_params; i++)
        if (!look_up(&whole->params[i]))
            return error_set(err, ERROR_INPUT,
                             "the model has a parameter '%s', for which a GPT-2 of other "
                             "programs has no name: it can be neither exported nor "
                             "imported",
                             whole->params[i].name);
    return 0;
}

void hf_name(const struct param *row, enum hf_dialect dialect, char name[HF_NAME_BYTES])
{
    const char *theirs = find_name(row)->theirs[dialect];
    int64_t block;
    name_in_layer(row, &block);
    int n = block < 0 ? snprintf(name, HF_NAME_BYTES, "%s", theirs)
                      : snprintf(name, HF_NAME_BYTES, "%s.%lld.%s", block_names[dialect],
                                 (long long)block, theirs);
    CHECK(n > 0 && n < HF_NAME_BYTES, "the name of '%s' is cut", row->name);
}

struct hf_shape hf_shape(const struct param *row, enum hf_dialect dialect)
{
    if (row->role == PARAM_VECTOR)
        return (struct hf_shape){.n_dims = 1, .shape = {row->n_elements}};
    int64_t in = row->shape[row->n_dims - 1], out = row->n_elements / in;
    if (dialect == HF_TRANSFORMERS && find_name(row)->is_conv1d)
        return (struct hf_shape){2, {in, out}, true};
    return (struct hf_shape){2, {out, in}, false};
}

bool hf_name_is_buffer(const char *name)
{
    int end = 0, layer;
    if (sscanf(name, "h.%d.attn.%n", &layer, &end) != 1 || end == 0)
        return false;
    return strcmp(name + end, "bias") == 0 || strcmp(name + end, "masked_bias") == 0;
}

void hf_transpose(float *y, const float *x, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r += TILE)
        for (int64_t c = 0; c < cols; c += TILE)
            for (int64_t i = r; i < i64_min(r + TILE, rows); i++)
                for (int64_t j = c; j < i64_min(c + TILE, cols); j++)
                    y[j * rows + i] = x[i * cols + j];
}

#define CHUNK 65536 // elements converted and written at a time

static int open_table(struct hub_source *src, struct error *err)
{
    struct ckpt_info info;
    if (ckpt_read_info(src->path, &info, err))
        return -1;
    int rc = config_from_json(&src->cfg, info.config_json, err);
    ckpt_info_release(&info);
    if (rc)
        return error_prefix(err, "checkpoint '%s'", src->path);
    if (gpt_param_table(&src->table, &src->cfg.model, NULL, err))
        return -1;
    return hf_names_check(&src->table, err);
}

static int open_buffers(struct hub_source *src, struct error *err)
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

int hub_source_open(struct hub_source *src, const char *ckpt_dir, struct error *err)
{
    *src = (struct hub_source){.raw = NULL};
    if (ckpt_resolve(ckpt_dir, CKPT_MODEL + 1, src->path, sizeof src->path, err) ||
        open_table(src, err) ||
        ckpt_reader_open(&src->reader, src->path, CKPT_MODEL + 1, err) ||
        ckpt_reader_check(&src->reader, &src->table, NULL, CKPT_MODEL + 1, err))
        return -1;
    return open_buffers(src, err);
}

void hub_source_close(struct hub_source *src)
{
    ckpt_reader_close(&src->reader);
    param_table_release(&src->table);
    free(src->raw);
    free(src->turned);
    src->raw = src->turned = NULL;
}

static int copy_tensor(void *context, int kind, const struct ckpt_piece *piece,
                       int64_t first, int64_t n, const float *x, struct error *err)
{
    (void)kind;
    (void)piece;
    (void)err;
    memcpy((float *)context + first, x, (size_t)n * sizeof *x);
    return 0;
}

const float *hub_source_read(struct hub_source *src, const struct param *row,
                             enum hf_dialect dialect, struct error *err)
{
    struct ckpt_piece piece = {.row = row, .runs = param_runs(row), .n = row->n_elements};
    struct ckpt_part part = {&piece, 1, row->n_elements};
    struct ckpt_sink sink = {copy_tensor, src->raw};
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
