#include "params/params.h"

#include <stdlib.h>

static struct weight weight_of(const struct param *row, enum param_store store)
{
    int64_t cols =
        row->role == PARAM_VECTOR ? row->n_elements : row->shape[row->n_dims - 1];
    return (struct weight){.dtype = row->in[store].dtype,
                           .rows = cols > 0 ? row->n_elements / cols : 0,
                           .cols = cols};
}

int params_init(struct params *p, const struct param_table *table, struct error *err)
{
    *p = (struct params){.table = table};
    for (int s = 0; s < N_STORES; s++) {
        p->weights[s] = calloc((size_t)table->n_params + 1, sizeof *p->weights[s]);
        if (!p->weights[s]) {
            params_release(p);
            return error_set(err, ERROR_RUNTIME, "out of memory for %lld parameters",
                             (long long)table->n_params);
        }
        for (int64_t i = 0; i < table->n_params; i++)
            p->weights[s][i] = weight_of(&table->params[i], (enum param_store)s);
    }
    return 0;
}

void params_release(struct params *p)
{
    for (int s = 0; s < N_STORES; s++)
        free(p->weights[s]);
    *p = (struct params){0};
}

void params_bind(struct params *p, enum param_store store, void *storage)
{
    p->storage[store] = storage;
    for (int i = 0; i < p->table->n_layers; i++) {
        int64_t n_bytes;
        int64_t at = param_table_layer_bytes(p->table, store, i, &n_bytes);
        params_bind_layer(p, store, i, (char *)storage + at);
    }
}

void params_bind_layer(struct params *p, enum param_store store, int layer, void *base)
{
    const struct param_layer *l = &p->table->layers[layer];
    const struct param *rows = p->table->params;
    for (int64_t i = l->first_row; i < l->end_row; i++) {
        int64_t at = rows[i].in[store].at - rows[l->first_row].in[store].at;
        p->weights[store][i].data = (char *)base + at;
        p->weights[store][i].version++;
    }
}

void params_changed(struct params *p)
{
    for (int64_t i = 0; i < p->table->n_params; i++)
        p->weights[STORE_PARAMS][i].version++;
}

const struct weight *params_layer(const struct params *p, enum param_store store,
                                  enum param_layer_kind kind, int64_t block)
{
    int layer = param_table_layer(p->table, kind, block);
    if (layer < 0)
        return NULL;
    return &p->weights[store]
                      [p->table->layers[layer].first_row + p->table->tied_row[kind]];
}

void params_open_layer(struct params *p, enum param_layer_kind kind, int64_t block,
                       int next, bool is_backward)
{
    int layer = param_table_layer(p->table, kind, block);
    if (p->owner.open)
        p->owner.open(p->owner.context, layer, next, is_backward);
}

void params_close_layer(struct params *p, enum param_layer_kind kind, int64_t block,
                        bool is_backward, bool is_last)
{
    int layer = param_table_layer(p->table, kind, block);
    if (p->owner.close)
        p->owner.close(p->owner.context, layer, is_backward, is_last);
}
