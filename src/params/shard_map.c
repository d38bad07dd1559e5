#include "params/shard_map.h"

#include "device/kernels.h"

#include <stdlib.h>

/* -- cuts ---------------------------------------------------------------------------- */

/* The place nearest to `flat`, in or at the ends of the row, where a cut may fall. */
static int64_t nearest_in_row(const struct param *row, int64_t flat)
{
    int64_t inside = flat - row->offset, chunk = KERNEL_SQUARE_CHUNK;
    int64_t rounded = (inside + chunk / 2) / chunk * chunk;
    return row->offset + i64_min(rounded, row->n_elements);
}

/* Cuts fall on beginnings of rows: an end is the beginning of the next one. */
static int64_t place_cut(const struct param_table *table, int64_t first_row,
                         int64_t end_row, int64_t flat)
{
    int64_t i = first_row;
    while (i + 1 < end_row && table->params[i + 1].offset <= flat)
        i++;
    const struct param *row = &table->params[i];
    int64_t cut = nearest_in_row(row, flat);
    if (cut == row->offset + row->n_elements && i + 1 < end_row)
        return table->params[i + 1].offset;
    return cut;
}

/* cuts[0 .. size]: where the ranges of one layer begin and end. */
static void cut_layer(const struct shard_map *map, int layer, int64_t *cuts)
{
    const struct param_layer *l = &map->table->layers[layer];
    int64_t first = l->first, end = l->end;
    cuts[0] = first;
    for (int r = 1; r < map->size; r++) {
        // whole parts first: (end - first) * r could overflow
        int64_t each = (end - first) / map->size, more = (end - first) % map->size;
        int64_t wanted = first + each * r + more * r / map->size;
        cuts[r] =
            i64_max(cuts[r - 1], place_cut(map->table, l->first_row, l->end_row, wanted));
    }
    cuts[map->size] = end;
}

/* -- pieces -------------------------------------------------------------------------- */

/* Append the part of the row that lies in [first, end), if any. */
static void add_piece(struct shard_map *map, int64_t row_index, int64_t first,
                      int64_t end)
{
    const struct param *row = &map->table->params[row_index];
    int64_t begin = i64_max(first, row->offset);
    int64_t stop = i64_min(end, row->offset + row->n_elements);
    if (begin >= stop)
        return;
    int64_t padded = i64_round_up(stop - begin, PARAM_ALIGN);
    struct shard_piece *piece = &map->pieces[map->n_pieces++];
    *piece = (struct shard_piece){.row = row_index,
                                  .first = begin - row->offset,
                                  .n = stop - begin,
                                  .local = map->n_local};
    map->n_local += padded;
    for (int s = 0; s < N_STORES; s++) {
        piece->local_at[s] = map->n_local_bytes[s];
        map->n_local_bytes[s] += padded * (int64_t)dtype_bytes(row->in[s].dtype);
    }
}

static void add_layer(struct shard_map *map, int i)
{
    const int64_t *cuts = map->cuts + (int64_t)i * (map->size + 1);
    const struct param_layer *l = &map->table->layers[i];
    map->layer_pieces[i] = map->n_pieces;
    for (int64_t row = l->first_row; row < l->end_row; row++)
        add_piece(map, row, cuts[map->rank], cuts[map->rank + 1]);
    map->layer_pieces[i + 1] = map->n_pieces;
}

int shard_map_init(struct shard_map *map, const struct param_table *table, int size,
                   int rank, struct error *err)
{
    *map = (struct shard_map){.table = table, .size = size, .rank = rank};
    size_t n = (size_t)table->n_layers;
    map->cuts = calloc(n * ((size_t)size + 1) + 1, sizeof *map->cuts);
    map->layer_pieces = calloc(n + 1, sizeof *map->layer_pieces);
    map->pieces = calloc((size_t)table->n_params + 1, sizeof *map->pieces);
    if (!map->cuts || !map->layer_pieces || !map->pieces) {
        shard_map_release(map);
        return error_set(err, ERROR_RUNTIME,
                         "out of memory for the ranges of %lld parameters",
                         (long long)table->n_params);
    }
    for (int i = 0; i < table->n_layers; i++) {
        cut_layer(map, i, map->cuts + (int64_t)i * (size + 1));
        add_layer(map, i);
    }
    return 0;
}

void shard_map_release(struct shard_map *map)
{
    free(map->cuts);
    free(map->layer_pieces);
    free(map->pieces);
    *map = (struct shard_map){0};
}

/* -- questions ----------------------------------------------------------------------- */

void shard_map_bounds(const struct shard_map *map, int i, enum param_store store,
                      int64_t *bounds)
{
    const int64_t *cuts = map->cuts + (int64_t)i * (map->size + 1);
    int64_t begin = param_table_byte(map->table, store, cuts[0]);
    for (int r = 0; r <= map->size; r++)
        bounds[r] = param_table_byte(map->table, store, cuts[r]) - begin;
}

int64_t shard_map_local_at(const struct shard_map *map, int i, enum param_store store,
                           int64_t *n_bytes)
{
    int64_t first = map->layer_pieces[i], end = map->layer_pieces[i + 1];
    *n_bytes = 0;
    if (first == end)
        return 0;
    const struct shard_piece *last = &map->pieces[end - 1];
    const struct param *row = &map->table->params[last->row];
    int64_t at = map->pieces[first].local_at[store];
    *n_bytes =
        last->local_at[store] - at + last->n * (int64_t)dtype_bytes(row->in[store].dtype);
    return at;
}

void *shard_piece_at(const struct shard_map *map, const struct shard_store *where,
                     const struct shard_piece *piece)
{
    const struct param *row = &map->table->params[piece->row];
    int64_t at = piece->first * (int64_t)dtype_bytes(row->in[where->store].dtype);
    const struct param_layer *l = &map->table->layers[row->layer];
    char *layer = where->layers ? where->layers[row->layer] : NULL;
    if (where->whole)
        return (char *)where->whole + row->in[where->store].at + at;
    if (layer)
        return layer + row->in[where->store].at -
               map->table->params[l->first_row].in[where->store].at + at;
    return (char *)where->owned + (piece->local_at[where->store] - where->owned_from);
}
