/*
 * The rows come from three short lists of specs with symbolic dims: what stands before
 * the blocks, one block, what stands after. A spec's place in its list is its place in
 * memory and in checkpoints, so the lists may grow only together with the checkpoint
 * format.
 */
#include "model/param_table.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum param_dim { // a symbolic dim; DIM_END closes a shape that has fewer than four
    DIM_END,
    DIM_QKV, // query, key, value
    DIM_V,
    DIM_P,
    DIM_H,
    DIM_A,
    DIM_D,
    DIM_F,
    N_DIMS,
};

struct param_spec {
    const char *name; // in a block: what follows "layers.i."
    size_t member;
    enum param_dim shape[PARAM_MAX_DIMS];
    enum param_init init;
    bool has_decay;
    int split_dim;
};

#define MEMBER(name) offsetof(struct layer_params, name)

// clang-format off
static const struct param_spec embedding_specs[] = {
    // name                         member          shape                            init         decay  split
    {"embedding.word.weight",       MEMBER(wte),   {DIM_V, DIM_H},                  INIT_NORMAL, true,  0},
    {"embedding.position.weight",   MEMBER(wpe),   {DIM_P, DIM_H},                  INIT_NORMAL, true,  -1},
};

static const struct param_spec block_specs[] = {
    {"ln1.weight",                  MEMBER(ln1_g), {DIM_H},                         INIT_ONES,   false, -1},
    {"ln1.bias",                    MEMBER(ln1_b), {DIM_H},                         INIT_ZEROS,  false, -1},
    {"attn.qkv.weight",             MEMBER(qkv_w), {DIM_QKV, DIM_A, DIM_D, DIM_H},  INIT_NORMAL, true,  1},
    {"attn.qkv.bias",               MEMBER(qkv_b), {DIM_QKV, DIM_A, DIM_D},         INIT_ZEROS,  false, 1},
    {"attn.proj.weight",            MEMBER(proj_w),{DIM_H, DIM_H},                  INIT_NORMAL, true,  1},
    {"attn.proj.bias",              MEMBER(proj_b),{DIM_H},                         INIT_ZEROS,  false, -1},
    {"ln2.weight",                  MEMBER(ln2_g), {DIM_H},                         INIT_ONES,   false, -1},
    {"ln2.bias",                    MEMBER(ln2_b), {DIM_H},                         INIT_ZEROS,  false, -1},
    {"mlp.fc.weight",               MEMBER(fc_w),  {DIM_F, DIM_H},                  INIT_NORMAL, true,  0},
    {"mlp.fc.bias",                 MEMBER(fc_b),  {DIM_F},                         INIT_ZEROS,  false, 0},
    {"mlp.proj.weight",             MEMBER(fc2_w), {DIM_H, DIM_F},                  INIT_NORMAL, true,  1},
    {"mlp.proj.bias",               MEMBER(fc2_b), {DIM_H},                         INIT_ZEROS,  false, -1},
};

static const struct param_spec final_specs[] = {
    {"final_norm.weight",           MEMBER(lnf_g), {DIM_H},                         INIT_ONES,   false, -1},
    {"final_norm.bias",             MEMBER(lnf_b), {DIM_H},                         INIT_ZEROS,  false, -1},
};
// clang-format on

/* The sizes of the symbolic dims; a model that has none of its own dims is refused. */
static int resolve_dims(int64_t dims[N_DIMS], const struct config_model *m,
                        struct error *err)
{
    const struct {
        const char *key;
        int64_t value;
    } needed[] = {
        {"vocab_size", m->vocab_size},
        {"hidden_size", m->hidden_size},
        {"num_layers", m->num_layers},
        {"num_attention_heads", m->num_attention_heads},
        {"ffn_hidden_size", m->ffn_hidden_size},
        {"max_position_embeddings", m->max_position_embeddings},
    };
    for (size_t i = 0; i < ARRAY_LEN(needed); i++)
        if (needed[i].value < 1)
            return error_set(err, ERROR_INPUT,
                             "cannot lay out the model: Model.%s is %lld, must be at "
                             "least 1",
                             needed[i].key, (long long)needed[i].value);
    if (m->num_layers > INT_MAX - 1)
        return error_set(err, ERROR_INPUT,
                         "cannot lay out the model: Model.num_layers is %lld, must be at "
                         "most %d",
                         (long long)m->num_layers, INT_MAX - 1);
    if (m->hidden_size % m->num_attention_heads != 0)
        return error_set(err, ERROR_INPUT,
                         "cannot lay out the model: Model.hidden_size %lld is not a "
                         "multiple of Model.num_attention_heads %lld",
                         (long long)m->hidden_size, (long long)m->num_attention_heads);
    dims[DIM_END] = 0;
    dims[DIM_QKV] = 3;
    dims[DIM_V] = m->vocab_size;
    dims[DIM_P] = m->max_position_embeddings;
    dims[DIM_H] = m->hidden_size;
    dims[DIM_A] = m->num_attention_heads;
    dims[DIM_D] = m->hidden_size / m->num_attention_heads;
    dims[DIM_F] = m->ffn_hidden_size;
    return 0;
}

/* Append the row of `spec`, placed at the first aligned element after the rows so far.
 * False when the flat buffer would pass what can be addressed in bytes. */
static bool append_row(struct param_table *table, const struct param_spec *spec,
                       int layer, const int64_t dims[N_DIMS])
{
    struct param *row = &table->params[table->n_params++];
    row->layer = layer;
    row->member = spec->member;
    row->init = spec->init;
    row->has_decay = spec->has_decay;
    row->split_dim = spec->split_dim;
    row->offset = table->n_flat;
    row->n_elements = 1;
    for (int i = 0; i < PARAM_MAX_DIMS && spec->shape[i] != DIM_END; i++) {
        row->shape[row->n_dims++] = dims[spec->shape[i]];
        if (__builtin_mul_overflow(row->n_elements, dims[spec->shape[i]],
                                   &row->n_elements))
            return false;
    }
    int64_t end, flat_bytes;
    if (__builtin_add_overflow(row->offset, row->n_elements, &end) ||
        __builtin_add_overflow(end, PARAM_ALIGN, &end) ||
        __builtin_mul_overflow(end, (int64_t)sizeof(float), &flat_bytes))
        return false;
    table->n_elements += row->n_elements;
    table->n_flat = i64_round_up(row->offset + row->n_elements, PARAM_ALIGN);
    return true;
}

static bool append_rows(struct param_table *table, const struct param_spec *specs,
                        size_t n_specs, int layer, const int64_t dims[N_DIMS])
{
    for (size_t i = 0; i < n_specs; i++) {
        char *name = table->params[table->n_params].name;
        int n = specs == block_specs
                    ? snprintf(name, PARAM_NAME_BYTES, "layers.%d.%s", layer - 1,
                               specs[i].name)
                    : snprintf(name, PARAM_NAME_BYTES, "%s", specs[i].name);
        CHECK(n < PARAM_NAME_BYTES, "parameter name '%s' is cut", name);
        if (!append_row(table, &specs[i], layer, dims))
            return false;
    }
    return true;
}

int param_table_init(struct param_table *table, const struct config_model *m,
                     struct error *err)
{
    int64_t dims[N_DIMS];
    *table = (struct param_table){0};
    if (resolve_dims(dims, m, err))
        return -1;

    int L = (int)m->num_layers;
    size_t n_rows = ARRAY_LEN(embedding_specs) + (size_t)L * ARRAY_LEN(block_specs) +
                    ARRAY_LEN(final_specs);
    table->params = calloc(n_rows, sizeof *table->params);
    if (!table->params)
        return error_set(err, ERROR_RUNTIME,
                         "out of memory for the table of %zu parameters (%d layers)",
                         n_rows, L);

    bool fits = append_rows(table, embedding_specs, ARRAY_LEN(embedding_specs), 0, dims);
    for (int layer = 1; layer <= L && fits; layer++)
        fits = append_rows(table, block_specs, ARRAY_LEN(block_specs), layer, dims);
    if (fits)
        fits = append_rows(table, final_specs, ARRAY_LEN(final_specs), L + 1, dims);
    if (!fits) {
        param_table_release(table);
        return error_set(err, ERROR_INPUT,
                         "the model is too large to address: its parameters take more "
                         "than 2^63 bytes; lower Model.hidden_size, Model.num_layers or "
                         "Model.vocab_size");
    }
    return 0;
}

void param_table_release(struct param_table *table)
{
    free(table->params);
    *table = (struct param_table){0};
}

void param_table_bind(const struct param_table *table, float *flat,
                      struct layer_params *layers)
{
    for (int64_t i = 0; i < table->n_params; i++) {
        const struct param *row = &table->params[i];
        float *where = flat + row->offset;
        memcpy((char *)&layers[row->layer] + row->member, &where, sizeof where);
    }
}

const struct param *param_table_find(const struct param_table *table, const char *name)
{
    for (int64_t i = 0; i < table->n_params; i++)
        if (strcmp(table->params[i].name, name) == 0)
            return &table->params[i];
    return NULL;
}
