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

/* Columns [first, first + DEPTH) of the sums of dq of a tile of queries: wait for the turn
 * of the keys at t->k0 to add to them; and let the next go on, after the last rounding
 * them to dq. */
struct output K(dq_begin)(const struct bwd *at, const struct unit *u,
                          const struct head_grad *gr, const struct tile *t,
                          int64_t first);
void K(dq_end)(const struct bwd *at, const struct unit *u, const struct head_grad *gr,
               const struct tile *t, const struct output *y);

/* -- the gradients of a row of scores ------------------------------------------------ */

struct row_grad {
    struct span keys;    // that are seen
    const float *factor; // of dropout, or NULL
    float scale, lse, delta;
};

/* Row r of a tile, with room for its factors. */
static inline struct row_grad row_grad_of(float factors[FACTORS],
                                          const struct head_grad *gr,
                                          const struct tile *t, int64_t r)
{
    int64_t q = t->q0 + r;
    return (struct row_grad){.keys = visible(&gr->hd, q, t->k0, t->n_keys),
                             .factor = tile_factors(factors, &gr->hd, q, t->k0),
                             .scale = gr->hd.scale,
                             .lse = gr->lse[q],
                             .delta = gr->delta[q]};
}

/* x where the keys from column c are seen, else 0. */
INLINE vec row_seen(vec x, struct span keys, int64_t c)
{
#define FOUR(bits) bits, bits, bits, bits
    static const uint32_t ones[3 * VEC] = {
#if VEC == 16
        FOUR(0),
        FOUR(0),
        FOUR(0),
        FOUR(0),
        FOUR(~0u),
        FOUR(~0u),
        FOUR(~0u),
        FOUR(~0u)
#elif VEC == 8
        FOUR(0),
        FOUR(0),
        FOUR(~0u),
        FOUR(~0u)
#else
        FOUR(0),
        FOUR(~0u)
#endif
    };
#undef FOUR
    int64_t before = i64_max(0, i64_min(VEC, keys.first - c));
    int64_t seen = i64_max(0, i64_min(VEC, keys.end - c));
    uvec from, below;
    memcpy(&from, ones + VEC - before, sizeof from);
    memcpy(&below, ones + 2 * VEC - seen, sizeof below);
    return (vec)((uvec)x & from & below);
}

/* From ROW_STEP scores p and dp = dout v^T, from column c: the dropped probabilities and
 * the gradients of scores; zeros where keys are not seen. */
INLINE void grad_step(vec probability[ROW_STEP / VEC], vec ds[ROW_STEP / VEC],
                      const float *p, const float *dp, int64_t c,
                      const struct row_grad *g, const bool is_dropped)
{
    enum { STEP = ROW_STEP / VEC };
    vec *e = probability;
    for (int i = 0; i < STEP; i++)
        e[i] = vec_fused(vecs(p + c)[i], vec_of(g->scale), vec_of(-g->lse));
    vec_exp(e, STEP);
    for (int i = 0; i < STEP; i++) {
        vec d = vecs(dp + c)[i];
        if (is_dropped)
            d *= vecs(g->factor + c)[i];
        ds[i] = e[i] * (d - g->delta) * g->scale;
        if (is_dropped)
            e[i] *= vecs(g->factor + c)[i];
    }
    if (c >= g->keys.first && c + ROW_STEP <= g->keys.end)
        return;
    for (int i = 0; i < STEP; i++) {
        e[i] = row_seen(e[i], g->keys, c + i * VEC);
        ds[i] = row_seen(ds[i], g->keys, c + i * VEC);
    }
}

/* Whether none of the ROW_STEP keys from column c is seen. */
static inline bool is_unseen(struct span keys, int64_t c)
{
    return c + ROW_STEP <= keys.first || c >= keys.end;
}

/* -- bfloat16 on tiles of AMX -------------------------------------------------------- */

#ifdef KERNEL_TILES
/* Tiles first .. end of a unit's keys, and the heads of queries that see them. */
void K(tiles_bwd)(const struct bwd *at, const struct unit *u, struct span tiles);
#endif

#endif
