/*
 * The rows come from three short lists of specs with symbolic dims: what stands before
 * the blocks, one block, what stands after. A spec's place in its list is its place in
 * memory; its number is its identity, which its initial values and the order of the norm
 * depend on, and which stays when a list is put in another order.
 */
#include "params/param_table.h"

#include "base/philox.h"

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
    enum param_role role;
    enum param_storage storage;
    enum param_grad grad;
    enum param_init init;
    bool decays;
    int split_dim;
    int number; // in its list, as it was first
};

#define MEMBER(name) offsetof(struct layer_params, name)

// clang-format off
static const struct param_spec embedding_specs[] = {
    // name                         member          shape                           role          stored        gradient          init         decays split number
    {"embedding.word.weight",       MEMBER(wte),   {DIM_V, DIM_H},                  PARAM_ROWS,   STORED_TYPED, GRAD_BY_ROWS,     INIT_NORMAL, true,  0,   0},
    {"embedding.position.weight",   MEMBER(wpe),   {DIM_P, DIM_H},                  PARAM_ROWS,   STORED_TYPED, GRAD_BY_ROWS,     INIT_NORMAL, true,  -1,  1},
};

static const struct param_spec block_specs[] = {
    {"ln1.weight",                  MEMBER(ln1_g), {DIM_H},                         PARAM_VECTOR, STORED_F32,   GRAD_ACCUMULATED, INIT_ONES,   false, -1,  0},
    {"ln1.bias",                    MEMBER(ln1_b), {DIM_H},                         PARAM_VECTOR, STORED_F32,   GRAD_ACCUMULATED, INIT_ZEROS,  false, -1,  1},
    {"attn.qkv.bias",               MEMBER(qkv_b), {DIM_QKV, DIM_A, DIM_D},         PARAM_VECTOR, STORED_F32,   GRAD_ACCUMULATED, INIT_ZEROS,  false, 1,   3},
    {"attn.proj.bias",              MEMBER(proj_b),{DIM_H},                         PARAM_VECTOR, STORED_F32,   GRAD_ACCUMULATED, INIT_ZEROS,  false, -1,  5},
    {"ln2.weight",                  MEMBER(ln2_g), {DIM_H},                         PARAM_VECTOR, STORED_F32,   GRAD_ACCUMULATED, INIT_ONES,   false, -1,  6},
    {"ln2.bias",                    MEMBER(ln2_b), {DIM_H},                         PARAM_VECTOR, STORED_F32,   GRAD_ACCUMULATED, INIT_ZEROS,  false, -1,  7},
    {"mlp.fc.bias",                 MEMBER(fc_b),  {DIM_F},                         PARAM_VECTOR, STORED_F32,   GRAD_ACCUMULATED, INIT_ZEROS,  false, 0,   9},
    {"mlp.proj.bias",               MEMBER(fc2_b), {DIM_H},                         PARAM_VECTOR, STORED_F32,   GRAD_ACCUMULATED, INIT_ZEROS,  false, -1,  11},
    {"attn.qkv.weight",             MEMBER(qkv_w), {DIM_QKV, DIM_A, DIM_D, DIM_H},  PARAM_MATRIX, STORED_TYPED, GRAD_OVERWRITTEN, INIT_NORMAL, true,  1,   2},
    {"attn.proj.weight",            MEMBER(proj_w),{DIM_H, DIM_H},                  PARAM_MATRIX, STORED_TYPED, GRAD_OVERWRITTEN, INIT_NORMAL, true,  1,   4},
    {"mlp.fc.weight",               MEMBER(fc_w),  {DIM_F, DIM_H},                  PARAM_MATRIX, STORED_TYPED, GRAD_OVERWRITTEN, INIT_NORMAL, true,  0,   8},
    {"mlp.proj.weight",             MEMBER(fc2_w), {DIM_H, DIM_F},                  PARAM_MATRIX, STORED_TYPED, GRAD_OVERWRITTEN, INIT_NORMAL, true,  1,   10},
};

static const struct param_spec final_specs[] = {
    {"final_norm.weight",           MEMBER(lnf_g), {DIM_H},                         PARAM_VECTOR, STORED_F32,   GRAD_ACCUMULATED, INIT_ONES,   false, -1,  0},
    {"final_norm.bias",             MEMBER(lnf_b), {DIM_H},                         PARAM_VECTOR, STORED_F32,   GRAD_ACCUMULATED, INIT_ZEROS,  false, -1,  1},
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
    row->init_scale = 1.0;
    row->role = spec->role;
    row->storage = spec->storage;
    row->grad = spec->grad;
    row->decays = spec->decays;
    row->lr_scale = 1.0;
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
        if (!append_row(table, &specs[i], layer, number + specs[i].number, part, dims))
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
    param_table_set_types(table, DTYPE_F32, DTYPE_F32);
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

void param_table_set_types(struct param_table *table, enum dtype params, enum dtype grads)
{
    const enum dtype wanted[N_STORES] = {params, grads};
    for (int s = 0; s < N_STORES; s++) {
        int64_t at = 0;
        for (int64_t i = 0; i < table->n_params; i++) {
            struct param *row = &table->params[i];
            bool is_typed = row->storage == STORED_TYPED &&
                            (s == STORE_PARAMS || row->grad == GRAD_OVERWRITTEN);
            row->in[s].dtype = is_typed ? wanted[s] : DTYPE_F32;
            row->in[s].at = at;
            at += i64_round_up(row->n_elements, PARAM_ALIGN) *
                  (int64_t)dtype_bytes(row->in[s].dtype);
        }
        table->n_bytes[s] = at;
    }
}

static void bind_row(const struct param *row, void *where, struct layer_params *layers)
{
    memcpy((char *)&layers[row->layer] + row->member, &where, sizeof where);
}

void param_table_bind(const struct param_table *table, enum param_store store, void *base,
                      struct layer_params *layers)
{
    for (int64_t i = 0; i < table->n_params; i++)
        bind_row(&table->params[i], (char *)base + table->params[i].in[store].at, layers);
}

void param_table_bind_layer(const struct param_table *table, enum param_store store,
                            int layer, void *base, struct layer_params *layers)
{
    int64_t first, end;
    param_table_rows(table, layer, &first, &end);
    for (int64_t i = first; i < end; i++)
        bind_row(&table->params[i],
                 (char *)base +
                     (table->params[i].in[store].at - table->params[first].in[store].at),
                 layers);
}

void param_table_rows(const struct param_table *table, int layer, int64_t *first,
                      int64_t *end)
{
    int64_t low = 0, high = table->n_params; // rows below `low` are of layers before it
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (table->params[middle].layer < layer)
            low = middle + 1;
        else
            high = middle;
    }
    *first = *end = low;
    while (*end < table->n_params && table->params[*end].layer == layer)
        ++*end;
}

void param_table_layer(const struct param_table *table, int layer, int64_t *first,
                       int64_t *end)
{
    int64_t first_row, end_row;
    *first = *end = 0;
    param_table_rows(table, layer, &first_row, &end_row);
    if (first_row == end_row)
        return;
    const struct param *last = &table->params[end_row - 1];
    *first = table->params[first_row].offset;
    *end = last->offset + last->n_elements;
}

int64_t param_table_byte(const struct param_table *table, enum param_store store,
                         int64_t flat)
{
    int64_t low = 0, high = table->n_params; // the last row that begins at or before
    if (flat >= table->n_flat)
        return table->n_bytes[store];
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (table->params[middle].offset <= flat)
            low = middle;
        else
            high = middle;
    }
    const struct param *row = &table->params[low];
    return row->in[store].at +
           (flat - row->offset) * (int64_t)dtype_bytes(row->in[store].dtype);
}

/* Elements [first, first + n) of this part lie in several runs of the whole parameter,
 * and it is the whole parameter's element that has a value. */
static void init_normal(const struct param *row, int64_t first, int64_t n,
                        struct philox_key key, double std, float *x)
{
    struct param_runs runs = param_runs(row);
    for (int64_t done = 0; done < n;) {
        int64_t run = (first + done) / runs.run_length;
        int64_t inside = (first + done) % runs.run_length;
        int64_t part = i64_min(n - done, runs.run_length - inside);
        philox_normal_fill(x + done, part, key,
                           (uint64_t)(runs.first + run * runs.run_stride + inside), std);
        done += part;
    }
}

void param_init_values(const struct param *row, int64_t first, int64_t n, uint64_t seed,
                       double std, float *x)
{
    if (row->init == INIT_NORMAL) {
        init_normal(row, first, n, philox_key(seed, PHILOX_INIT, (uint32_t)row->number),
                    std * row->init_scale, x);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        x[i] = row->init == INIT_ONES ? 1.0F : 0.0F;
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
