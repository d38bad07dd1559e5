/*
 * cpu_attention_bwd - what backward of attention shares between floats, numbers of 16
 * bits, and tiles of AMX: units of work, the memory of their sums, and whose turn it is
 * to add to them (cpu_attention_bwd.c says why).
 */
#ifndef DEVICE_CPU_CPU_ATTENTION_BWD_H
#define DEVICE_CPU_CPU_ATTENTION_BWD_H

#include "device/cpu/cpu_attention.h"

struct bwd {
    const struct attention_bwd *args;
    enum dtype dtype;
    int64_t shared;  // heads of queries that share one of keys
    int64_t n_tiles; // of queries, and of keys
    int64_t n_parts; // of DEPTH columns of a head
    int64_t n_slots; // units that can be under way
    bool is_split;   // threads share units
    float *sums;    // of a type of 16 bits: (n_slots, shared, S rounded up, D rounded up)
    int32_t *turns; // (n_slots, shared, n_tiles, n_parts)
};

/* One head of keys and values of one sample. */
struct unit {
    int64_t b, h_first; // the first of the heads of queries that use it
    int64_t slot;       // whose memory it uses,
    int64_t round;      // after as many units
};

/* One head of queries: its rows of what backward reads and writes. */
struct head_grad {
    struct head hd;
    int64_t h;
    const void *dout; // (S, D) with out_row
    int64_t out_row;
    void *dq; // (S, D) with dq_row
    int64_t dq_row;
    float *sums; // that become dq, with sums_row; of floats, dq itself
    int64_t sums_row;
    const float *lse, *delta; // (S)
};

struct head_grad K(head_grad_of)(const struct bwd *at, const struct unit *u, int64_t h);

/* From a tile of scores p and of dp = dout v^T:
 *   dp := the gradient of the scores,   p := the dropped probabilities, both rounded
 * to a type. */
void K(tile_grads)(float *p, float *dp, const struct head_grad *gr, const struct tile *t,
                   enum dtype dtype);

/* Columns [first, first + DEPTH) of the sums of dq of a tile of queries: wait for the turn
 * of the keys at t->k0 to add to them; and let the next go on, after the last rounding
 * them to dq. */
struct output K(dq_begin)(const struct bwd *at, const struct unit *u,
                          const struct head_grad *gr, const struct tile *t,
                          int64_t first);
void K(dq_end)(const struct bwd *at, const struct unit *u, const struct head_grad *gr,
               const struct tile *t, const struct output *y);

/* y := x rounded, of rows of n; rows lie y_row and x_row elements apart. */
void K(rows_store)(void *y, int64_t y_row, enum dtype dtype, const float *x,
                   int64_t x_row, int64_t rows, int64_t n);

#ifdef KERNEL_TILES
/* The keys at k0, and the heads of queries that see them, on tiles of AMX. */
void K(tiles_bwd)(const struct bwd *at, const struct unit *u, int64_t k0);
#endif

#endif
