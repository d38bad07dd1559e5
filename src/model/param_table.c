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

int64_t param_share(int64_t full, int mp, int mp_rank, int64_t *first)
{
    int64_t each = full / mp, more = full % mp;
    *first = each * mp_rank + i64_min(mp_rank, more);
    return each + (mp_rank < more ? 1 : 0);
}

struct param_part param_part_whole(int64_t L)
{
    return (struct param_part){.mp = 1,
                               .has_embedding = true,
                               .has_head = true,
                               .n_chunks = 1,
                               .chunks = {{0, L}}};
}

/* The shape of this part of the row; false when its size overflows. */
static bool set_shape(struct param *row, const struct param_spec *spec,
                      const struct param_part *part, const int64_t dims[N_DIMS])
{
    row->n_elements = 1;
    for (int i = 0; i < PARAM_MAX_DIMS && spec->shape[i] != DIM_END; i++) {
        int64_t size = dims[spec->shape[i]];
        if (i == spec->split_dim) {
            row->split_full = size;
            size = param_share(size, part->mp, part->mp_rank, &row->split_first);
        }
        row->shape[row->n_dims++] = size;
        if (__builtin_mul_overflow(row->n_elements, size, &row->n_elements))
            return false;
    }
    return true;
}

/* Append the row of `spec`, placed at the first aligned element after the rows so far.
 * False when the flat buffer would pass what can be addressed in bytes. */
static bool append_row(struct param_table *table, const struct param_spec *spec,
                       int layer, int64_t number, const struct param_part *part,
                       const int64_t dims[N_DIMS])
{
    struct param *row = &table->params[table->n_params++];
    int64_t end, flat_bytes;
    row->layer = layer;
    row->number = number;
    row->member = spec->member;
    row->init = spec->init;
    row->has_decay = spec->has_decay;
    row->split_dim = spec->split_dim;
    row->is_counted = spec->split_dim >= 0 || part->mp_rank == 0;
    row->offset = table->n_flat;
    if (!set_shape(row, spec, part, dims) ||
        __builtin_add_overflow(row->offset, row->n_elements, &end) ||
        __builtin_add_overflow(end, PARAM_ALIGN, &end) ||
        __builtin_mul_overflow(end, (int64_t)sizeof(float), &flat_bytes))
        return false;
    table->n_elements += row->n_elements;
    table->n_flat = i64_round_up(row->offset + row->n_elements, PARAM_ALIGN);
    return true;
}

static bool append_rows(struct param_table *table, const struct param_spec *specs,
                        size_t n_specs, int layer, int64_t number,
                        const struct param_part *part, const int64_t dims[N_DIMS])
{
    for (size_t i = 0; i < n_specs; i++) {
        char *name = table->params[table->n_params].name;
        int n = specs == block_specs
                    ? snprintf(name, PARAM_NAME_BYTES, "layers.%d.%s", layer - 1,
                               specs[i].name)
                    : snprintf(name, PARAM_NAME_BYTES, "%s", specs[i].name);
        CHECK(n < PARAM_NAME_BYTES, "parameter name '%s' is cut", name);
        if (!append_row(table, &specs[i], layer, number + (int64_t)i, part, dims))
            return false;
    }
    return true;
}

/* The last stage of a pipeline holds the word embedding too, as the head's matrix; it is
 * the first stage's that counts. */
static bool append_embedding(struct param_table *table, const struct param_part *part,
                             const int64_t dims[N_DIMS])
{
    size_t n = part->has_embedding ? ARRAY_LEN(embedding_specs) : part->has_head ? 1 : 0;
    if (!append_rows(table, embedding_specs, n, 0, 0, part, dims))
        return false;
    if (n == 1)
        table->params[0].is_counted = false;
    return true;
}

static bool append_all(struct param_table *table, const struct param_part *part,
                       int64_t L, const int64_t dims[N_DIMS])
{
    int64_t n_first = ARRAY_LEN(embedding_specs), n_block = ARRAY_LEN(block_specs);
    if (!append_embedding(table, part, dims))
        return false;
    for (int c = 0; c < part->n_chunks; c++)
        for (int64_t i = part->chunks[c].first; i < part->chunks[c].end; i++)
            if (!append_rows(table, block_specs, ARRAY_LEN(block_specs), (int)i + 1,
                             n_first + i * n_block, part, dims))
                return false;
    return !part->has_head || append_rows(table, final_specs, ARRAY_LEN(final_specs),
                                          (int)L + 1, n_first + L * n_block, part, dims);
}

int param_table_init_part(struct param_table *table, const struct config_model *m,
                          const struct param_part *part, struct error *err)
{
    int64_t dims[N_DIMS];
    *table = (struct param_table){0};
    if (resolve_dims(dims, m, err))
        return -1;

    table->n_params_whole =
        (int64_t)(ARRAY_LEN(embedding_specs) + ARRAY_LEN(final_specs)) +
        m->num_layers * (int64_t)ARRAY_LEN(block_specs);
    table->params = calloc((size_t)table->n_params_whole, sizeof *table->params);
    if (!table->params)
        return error_set(err, ERROR_RUNTIME,
                         "out of memory for the table of %lld parameters (%lld layers)",
                         (long long)table->n_params_whole, (long long)m->num_layers);
    if (!append_all(table, part, m->num_layers, dims)) {
        param_table_release(table);
        return error_set(err, ERROR_INPUT,
                         "the model is too large to address: its parameters take more "
                         "than 2^63 bytes; lower Model.hidden_size, Model.num_layers or "
                         "Model.vocab_size");
    }
    return 0;
}

int param_table_init(struct param_table *table, const struct config_model *m,
                     struct error *err)
{
    struct param_part whole = param_part_whole(m->num_layers);
    return param_table_init_part(table, m, &whole, err);
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

void param_table_layer(const struct param_table *table, int layer, int64_t *first,
                       int64_t *end)
{
    *first = *end = 0;
    for (int64_t i = 0; i < table->n_params; i++) {
        const struct param *row = &table->params[i];
        if (row->layer != layer)
            continue;
        if (*end == 0)
            *first = row->offset;
        *end = row->offset + row->n_elements;
    }
}

struct param_runs param_runs(const struct param *row)
{
    struct param_runs runs = {1, row->n_elements, 0, 0};
    if (row->split_dim < 0)
        return runs;
    int64_t inner = 1;
    for (int i = row->n_dims - 1; i > row->split_dim; i--)
        inner *= row->shape[i];
    for (int i = 0; i < row->split_dim; i++)
        runs.n_runs *= row->shape[i];
    runs.run_length = row->shape[row->split_dim] * inner;
    runs.run_stride = row->split_full * inner;
    runs.first = row->split_first * inner;
    return runs;
}

const struct param *param_table_find(const struct param_table *table, const char *name)
{
    for (int64_t i = 0; i < table->n_params; i++)
        if (strcmp(table->params[i].name, name) == 0)
            return &table->params[i];
    return NULL;
}
