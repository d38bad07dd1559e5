/*
 * shard_map - which elements of the flat buffers each of several processes owns.
 *
 * Every layer is cut into `size` contiguous ranges of nearly equal length, one for each
 * process, so that a layer can be summed to its owners, or gathered from them, as
 * soon as it is ready. Cuts fall on beginnings of rows and on multiples of
 * KERNEL_SQUARE_CHUNK elements in a row: then no sum of squares is cut.
 *
 * What a process owns is a list of pieces (runs of elements of one row), in the order of
 * the flat buffer. `local` counts the elements owned, without what others own: buffers
 * that hold nothing else are laid out by it. With one process the pieces are the rows.
 *
 * Takes (rank, size) as plain ints.
 */
#ifndef PARAMS_SHARD_MAP_H
#define PARAMS_SHARD_MAP_H

#include "params/param_table.h"

struct shard_piece {
    int64_t row;      // in the table
    int64_t first, n; // elements of the row
    int64_t local;    // of the first one; a multiple of PARAM_ALIGN
    /* Bytes from the start of a storage that holds what is owned and nothing else. */
    int64_t local_at[N_STORES];
};

struct shard_map {
    const struct param_table *table; // borrowed
    int size, rank;
    int64_t *cuts;              // (layers, size + 1) elements of the flat buffer
    int64_t *layer_pieces;      // (layers + 1) first piece of each layer of the table
    struct shard_piece *pieces; // (n_pieces) of `rank`
    int64_t n_pieces;
    int64_t n_local; // elements owned, gaps included
    int64_t n_local_bytes[N_STORES];
};

MUST_CHECK int shard_map_init(struct shard_map *map, const struct param_table *table,
                              int size, int rank, struct error *err);
void shard_map_release(struct shard_map *map);

/* The ranges of layer i in bytes of a storage, counted from where the
 * layer begins: bounds[r] .. bounds[r + 1] is rank r's. size + 1 values. */
void shard_map_bounds(const struct shard_map *map, int i, enum param_store store,
                      int64_t *bounds);
/* Where this rank's range of layer i begins in a storage that holds what is owned and
 * nothing else, in bytes, and how long it is. */
int64_t shard_map_local_at(const struct shard_map *map, int i, enum param_store store,
                           int64_t *n_bytes);

/* Where a process has a store: all of it; or some layers, and of the rest what it owns.
 * What is not there is NULL. */
struct shard_store {
    enum param_store store;
    void *whole;
    void *const *layers; // (layers of the table) where all of a layer lies, or NULL
    void *owned;         // the bytes of what is owned, from byte `owned_from` of them on
    int64_t owned_from;
};

/* The first element of the piece. */
void *shard_piece_at(const struct shard_map *map, const struct shard_store *where,
                     const struct shard_piece *piece);

#endif
