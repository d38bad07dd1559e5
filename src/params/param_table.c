/*
 * The rows of a part are appended layer by layer. A spec's place in its layer is its
 * place in memory; its number is its identity, which its initial values and the order of
 * the norm depend on, and which stays when rows are put in another order.
 */
#include "params/param_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* -- what a part holds --------------------------------------------------------------- */

static bool holds_layer(const struct param_part *part, enum param_layer_kind kind)
{
    switch (kind) {
    case LAYER_EMBEDDING:
        return part->has_embedding;
    case LAYER_FINAL_NORM:
    case LAYER_HEAD:
        return part->has_head;
    default:
        return true; // its chunks say which blocks
    }
}

/* Whether a row is tied to this one: any row, or with `part` one of a layer it holds. */
static bool has_tie_to(const struct param_model *model, const struct param_part *part,
                       enum param_layer_kind kind, int row)
{
    for (int k = 0; k < N_LAYER_KINDS; k++)
        for (int i = 0; i < model->layers[k].n_rows; i++) {
            const struct param_tie *tie = &model->layers[k].rows[i].tie;
            if (tie->is_tied && tie->layer == kind && tie->row == row &&
                (!part || holds_layer(part, (enum param_layer_kind)k)))
                return true;
        }
    return false;
}

/* Rows of a kind that are parameters of their own. */
static int64_t count_own_rows(const struct param_model *model, enum param_layer_kind kind)
{
    int64_t n = 0;
    for (int i = 0; i < model->layers[kind].n_rows; i++)
        n += !model->layers[kind].rows[i].tie.is_tied;
    return n;
}

static int64_t n_layers_of(const struct param_model *model, int kind)
{
    return kind == LAYER_BLOCK ? model->n_blocks : 1;
}

/* Rows of the whole model before this layer, or of all of it. */
static int64_t count_rows_before(const struct param_model *model, int kind, int64_t block)
{
    int64_t n = 0;
    for (int k = 0; k < kind; k++)
        n += n_layers_of(model, k) * count_own_rows(model, (enum param_layer_kind)k);
    return kind == LAYER_BLOCK ? n + block * count_own_rows(model, LAYER_BLOCK) : n;
}

/* -- rows ---------------------------------------------------------------------------- */

/* The shape of this part of the row; false when its size overflows. */
static bool set_shape(struct param *row, const struct param_spec *spec,
                      const struct param_part *part, const int64_t *dims)
{
    row->n_elements = 1;
    for (int i = 0; i < PARAM_MAX_DIMS && spec->shape[i] != 0; i++) {
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

static void set_name(struct param *row, const struct param_spec *spec,
                     const struct param_layer *layer)
{
    int n = layer->kind == LAYER_BLOCK
                ? snprintf(row->name, sizeof row->name, "layers.%lld.%s",
                           (long long)layer->block, spec->name)
                : snprintf(row->name, sizeof row->name, "%s", spec->name);
    CHECK(n < PARAM_NAME_BYTES, "parameter name '%s' is cut", row->name);
}

/* Append the row of `spec`, placed at the first aligned element after the rows so far.
 * False when the flat buffer would pass what can be addressed in bytes. */
static bool append_row(struct param_table *table, const struct param_spec *spec,
                       const struct param_part *part, const int64_t *dims)
{
    const struct param_layer *layer = &table->layers[table->n_layers];
    struct param *row = &table->params[table->n_params++];
    int64_t end, flat_bytes;
    *row = (struct param){
        .role = spec->role,
        .storage = spec->storage,
        .grad = spec->grad,
        .init = spec->init,
        .init_scale = spec->init_scale,
        .decays = spec->decays,
        .lr_scale = spec->lr_scale,
        .split_dim = spec->split_dim,
        .owner = spec->owner,
        .is_counted = spec->split_dim >= 0 || part->mp_rank == 0,
        .layer = table->n_layers,
        .offset = table->n_flat,
    };
    set_name(row, spec, layer);
    if (!set_shape(row, spec, part, dims) ||
        __builtin_add_overflow(row->offset, row->n_elements, &end) ||
        __builtin_add_overflow(end, PARAM_ALIGN, &end) ||
        __builtin_mul_overflow(end, (int64_t)sizeof(float), &flat_bytes))
        return false;
    table->n_elements += row->n_elements;
    table->n_flat = i64_round_up(row->offset + row->n_elements, PARAM_ALIGN);
    return true;
}

/* A part that lacks a layer still holds the rows of it that its own layers are tied to,
 * as copies that do not count: those of another part do. */
static bool append_layer(struct param_table *table, const struct param_model *model,
                         const struct param_part *part, enum param_layer_kind kind,
                         int64_t block)
{
    struct param_layer *layer = &table->layers[table->n_layers];
    bool is_held = holds_layer(part, kind);
    int64_t first_number = count_rows_before(model, (int)kind, block);
    *layer =
        (struct param_layer){.kind = kind, .block = block, .first_row = table->n_params};
    for (int i = 0; i < model->layers[kind].n_rows; i++) {
        const struct param_spec *spec = &model->layers[kind].rows[i];
        if (spec->tie.is_tied || (!is_held && !has_tie_to(model, part, kind, i)))
            continue;
        CHECK(table->n_params - layer->first_row == i,
              "row %d of a layer is without "
              "those before it",
              i); // users find rows by their place
        if (!append_row(table, spec, part, model->dims))
            return false;
        struct param *row = &table->params[table->n_params - 1];
        row->number = first_number + spec->number;
        row->is_tied = has_tie_to(model, NULL, kind, i);
        row->is_counted &= is_held;
        layer->is_late |= row->grad == GRAD_BY_ROWS;
    }
    layer->end_row = table->n_params;
    if (layer->first_row == layer->end_row)
        return true;
    const struct param *last = &table->params[layer->end_row - 1];
    layer->first = table->params[layer->first_row].offset;
    layer->end = last->offset + last->n_elements;
    if (table->by_kind[kind] < 0)
        table->by_kind[kind] = table->n_layers;
    table->n_layers++;
    return true;
}

static bool append_blocks(struct param_table *table, const struct param_model *model,
                          const struct param_part *part)
{
    for (int c = 0; c < part->n_chunks; c++)
        for (int64_t i = part->chunks[c].first; i < part->chunks[c].end; i++) {
            table->n_blocks++;
            if (!append_layer(table, model, part, LAYER_BLOCK, i))
                return false;
        }
    return true;
}

/* The layer of a row that is tied is that of the other row. */
static void resolve_tie(struct param_table *table, const struct param_model *model,
                        enum param_layer_kind kind)
{
    for (int i = 0; i < model->layers[kind].n_rows; i++) {
        const struct param_tie *tie = &model->layers[kind].rows[i].tie;
        if (!tie->is_tied)
            continue;
        CHECK(model->layers[kind].n_rows == 1 && tie->layer < kind,
              "a row that is tied is not the only one of its layer");
        table->by_kind[kind] = table->by_kind[tie->layer];
        table->tied_row[kind] = tie->row;
    }
}

static bool append_all(struct param_table *table, const struct param_model *model,
                       const struct param_part *part)
{
    for (int k = 0; k < N_LAYER_KINDS; k++) {
        enum param_layer_kind kind = (enum param_layer_kind)k;
        table->by_kind[kind] = -1;
        if (kind == LAYER_BLOCK ? !append_blocks(table, model, part)
                                : !append_layer(table, model, part, kind, 0))
            return false;
        if (holds_layer(part, kind))
            resolve_tie(table, model, kind);
    }
    return true;
}

int param_table_init(struct param_table *table, const struct param_model *model,
                     const struct param_part *part, struct error *err)
{
    int64_t n_layers = model->n_blocks + N_LAYER_KINDS - 1;
    *table = (struct param_table){.n_params_whole =
                                      count_rows_before(model, N_LAYER_KINDS, 0)};
    table->params = calloc((size_t)table->n_params_whole, sizeof *table->params);
    table->layers = calloc((size_t)n_layers + 1, sizeof *table->layers);
    if (!table->params || !table->layers) {
        long long n_params = table->n_params_whole;
        param_table_release(table);
        return error_set(err, ERROR_RUNTIME,
                         "out of memory for the table of %lld parameters (%lld layers)",
                         n_params, (long long)model->n_blocks);
    }
    if (!append_all(table, model, part)) {
        param_table_release(table);
        return error_set(err, ERROR_INPUT,
                         "the model is too large to address: its parameters take more "
                         "than 2^63 bytes; lower Model.hidden_size, Model.num_layers or "
                         "Model.vocab_size");
    }
    param_table_set_types(table, DTYPE_F32, DTYPE_F32);
    return 0;
}

void param_table_release(struct param_table *table)
{
    free(table->params);
    free(table->layers);
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

/* -- questions ----------------------------------------------------------------------- */

int param_table_layer(const struct param_table *table, enum param_layer_kind kind,
                      int64_t block)
{
    int low = table->by_kind[kind], high = low + (int)table->n_blocks;
    if (kind != LAYER_BLOCK || low < 0)
        return low;
    while (high - low > 1) { // the last layer that is not after the block
        int middle = low + (high - low) / 2;
        if (table->layers[middle].block <= block)
            low = middle;
        else
            high = middle;
    }
    return table->layers[low].block == block ? low : -1;
}

int64_t param_table_layer_bytes(const struct param_table *table, enum param_store store,
                                int layer, int64_t *n_bytes)
{
    const struct param_layer *l = &table->layers[layer];
    int64_t at = param_table_byte(table, store, l->first);
    *n_bytes = param_table_byte(table, store, l->end) - at;
    return at;
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
