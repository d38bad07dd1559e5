#include "hub/hf_names.h"

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
static const char *own_name(const struct param *row, int64_t *block)
{
    size_t n = strlen(BLOCK_PREFIX);
    *block = -1;
    if (strncmp(row->name, BLOCK_PREFIX, n) != 0)
        return row->name;
    char *end;
    *block = strtoll(row->name + n, &end, 10);
    return end + 1;
}

static const struct name_row *find(const struct param *row)
{
    int64_t block;
    const char *ours = own_name(row, &block);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(names[i].ours, ours) == 0)
            return &names[i];
    CHECK(false, "parameter '%s' has no name elsewhere", row->name);
}

void hf_name(const struct param *row, enum hf_dialect dialect, char name[HF_NAME_BYTES])
{
    const char *theirs = find(row)->theirs[dialect];
    int64_t block;
    own_name(row, &block);
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
    if (dialect == HF_TRANSFORMERS && find(row)->is_conv1d)
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
