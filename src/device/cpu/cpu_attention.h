/*
 * cpu_attention - what forward and backward of attention share: heads, tiles of TILE
 * queries by TILE keys, which of their pairs are seen, and the products over them.
 *
 * Tiles above the diagonal, and those between documents, are never computed, nor the
 * blocks of a tile that no query of theirs sees, and no more than two tiles of scores
 * exist per thread.
 *
 * An element of an output is the sum over tiles, in ascending order, of sums within a
 * tile, in ascending order; whichever thread and whatever processor computes it. Where q,
 * k and v have 16 bits,
 *   - scores, and the gradients of probabilities, are products of them with joined sums
 *     (cpu_tile.h), and floats;
 *   - probabilities times their dropout factors, and the gradients of scores, are rounded
 *     to the type: they are operands of the other products. The sum of a row is of
 *     probabilities that are not;
 *   - those products join groups of 32 keys (out, dq) or 32 queries (dk, dv), counted
 *     from the tile's first, with zeros for pairs that are not seen. Of out and dq a
 *     block of 16 queries and 32 keys that holds no pair that is seen is left out; of dk
 *     and dv one of 32 queries and 32 keys;
 *   - the sums begin with +0 and are floats until they are whole, and rounded once.
 */
#ifndef DEVICE_CPU_CPU_ATTENTION_H
#define DEVICE_CPU_CPU_ATTENTION_H

#include "device/cpu/cpu_tile.h"
#include "device/cpu/cpu_vec.h"

#include <math.h>

#define CHAIN 128        // values of D that a chain of scores has
#define DEPTH TILE_DEPTH // columns of a head that are packed, and of outputs, at a time
#define QUERY_TILES 4    // of queries that use a packed tile of keys, at most

/* -- heads --------------------------------------------------------------------------- */

/* One head of one sample. Rows are tokens; q_row and kv_row elements lie between them. */
struct head {
    const void *q, *k, *v;
    enum dtype dtype;
    int64_t q_row, kv_row;
    int64_t S, D;
    float scale;
    const struct dropout *drop;
    uint32_t sample;
    int64_t drop_row;         // the row of dropout that query 0 has
    const int32_t *first_key; // (S), or NULL
    int64_t key_end;          // no query sees keys from here on
};

/* x + n elements. */
static inline const void *element(const void *x, int64_t n, enum dtype dtype)
{
    return (const char *)x + n * (dtype == DTYPE_F32 ? 4 : 2);
}

static inline void *element_of(void *x, int64_t n, enum dtype dtype)
{
    return (char *)x + n * (dtype == DTYPE_F32 ? 4 : 2);
}

/* The head of keys and values that query head h uses. */
static inline int64_t kv_head(const struct attention *at, int64_t h)
{
    return h / (at->A / at->A_kv);
}

static inline struct head head_of(const struct attention *at, enum dtype dtype, int64_t b,
                                  int64_t h)
{
    int64_t kv = b * at->S * at->kv_row + kv_head(at, h) * at->D;
    return (struct head){
        .q = element(at->q, b * at->S * at->q_row + h * at->D, dtype),
        .k = element(at->k, kv, dtype),
        .v = element(at->v, kv, dtype),
        .dtype = dtype,
        .q_row = at->q_row,
        .kv_row = at->kv_row,
        .S = at->S,
        .D = at->D,
        .scale = 1.0F / sqrtf((float)at->D),
        .drop = &at->drop,
        .sample = at->drop.first_sample + (uint32_t)b,
        .drop_row = (at->first_head + h) * at->S,
        .first_key = at->first_key ? at->first_key + b * at->S : NULL,
        .key_end = at->key_end ? at->key_end[b] : at->S,
    };
}

/* -- what is seen -------------------------------------------------------------------- */

/* The keys of a tile that a query sees: first .. end of it, none when they are equal. */
struct span {
    int64_t first, end;
};

static inline struct span visible(const struct head *hd, int64_t q, int64_t k0,
                                  int64_t n_keys)
{
    int64_t end = i64_min(q + 1, hd->key_end) - k0;
    struct span keys = {.end = i64_max(0, i64_min(n_keys, end))};
    if (hd->first_key)
        keys.first = i64_min(keys.end, i64_max(0, hd->first_key[q] - k0));
    return keys;
}

/* The first tile of keys that any query of the tile at q0 sees: its first query's, since
 * later ones see no earlier keys. */
static inline int64_t first_tile(const struct head *hd, int64_t q0)
{
    return hd->first_key ? hd->first_key[q0] / TILE * TILE : 0;
}

/* The queries and keys of a tile, and what any query of a block of rows sees. */
struct tile {
    int64_t q0, n_queries, k0, n_keys;
    int64_t block; // rows of a block: CHAIN_ROWS or JOIN_ROWS
    struct span seen[TILE / CHAIN_ROWS + 1];
};

static inline struct span rows_see(const struct head *hd, const struct tile *t, int64_t r,
                                   int64_t n)
{
    int64_t last = i64_min(r + n, t->n_queries) - 1;
    struct span top = visible(hd, t->q0 + r, t->k0, t->n_keys);
    struct span bottom = visible(hd, t->q0 + last, t->k0, t->n_keys);
    return (struct span){.first = top.first, .end = i64_max(top.first, bottom.end)};
}

static inline void tile_init(struct tile *t, const struct head *hd, int64_t q0,
                             int64_t k0)
{
    t->q0 = q0;
    t->n_queries = i64_min(TILE, hd->S - q0);
    t->k0 = k0;
    t->n_keys = i64_min(TILE, hd->S - k0);
    t->block = hd->dtype == DTYPE_F32 ? CHAIN_ROWS : JOIN_ROWS;
    for (int64_t r = 0; r < t->n_queries; r += t->block)
        t->seen[r / t->block] = rows_see(hd, t, r, t->block);
}

/* Whether row r of a tile sees any of its keys: a later row may not, if its document
 * begins after them. Tiles of padding alone are skipped before this. */
static inline bool sees_any(const struct head *hd, const struct tile *t, int64_t r)
{
    struct span keys = visible(hd, t->q0 + r, t->k0, t->n_keys);
    return keys.first < keys.end;
}

/* The groups of keys of which a block of queries sees any, in keys. */
static inline struct span groups_of_keys(struct span seen)
{
    if (seen.first == seen.end)
        return (struct span){0, 0};
    return (struct span){seen.first / GROUP * GROUP, i64_round_up(seen.end, GROUP)};
}

/* The groups of queries that see any of the GROUP keys from `key`, in queries; they
 * follow one on the other. */
static inline struct span groups_of_queries(const struct tile *t, int64_t key)
{
    struct span groups = {0, 0};
    for (int64_t r = 0; r < t->n_queries; r += GROUP) {
        int64_t last = i64_min(r + GROUP, t->n_queries) - 1;
        int64_t first = t->seen[r / JOIN_ROWS].first, end = t->seen[last / JOIN_ROWS].end;
        if (first >= end || first >= key + GROUP || end <= key)
            continue;
        if (groups.first == groups.end)
            groups.first = r;
        groups.end = r + GROUP;
    }
    return groups;
}

/* -- vectors ------------------------------------------------------------------------- */

/* a where it is more than b, else b. */
INLINE vec vec_max(vec a, vec b)
{
#if KERNEL_AVX512
    return (vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif KERNEL_AVX2
    return (vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
    uvec more = (uvec)(a > b);
    return (vec)((more & (uvec)a) | (~more & (uvec)b));
#endif
}

/* Lanes that are n apart change places, n a constant power of two. */
#if VEC == 16
#define VEC_SWAP(x, n)                                                                   \
    __builtin_shufflevector(x, x, 0 ^ (n), 1 ^ (n), 2 ^ (n), 3 ^ (n), 4 ^ (n), 5 ^ (n),  \
                            6 ^ (n), 7 ^ (n), 8 ^ (n), 9 ^ (n), 10 ^ (n), 11 ^ (n),      \
                            12 ^ (n), 13 ^ (n), 14 ^ (n), 15 ^ (n))
#elif VEC == 8
#define VEC_SWAP(x, n)                                                                   \
    __builtin_shufflevector(x, x, 0 ^ (n), 1 ^ (n), 2 ^ (n), 3 ^ (n), 4 ^ (n), 5 ^ (n),  \
                            6 ^ (n), 7 ^ (n))
#else
#define VEC_SWAP(x, n) __builtin_shufflevector(x, x, 0 ^ (n), 1 ^ (n), 2 ^ (n), 3 ^ (n))
#endif

INLINE float vec_most(vec x)
{
#if VEC == 16
    x = vec_max(x, VEC_SWAP(x, 8));
#endif
#if VEC >= 8
    x = vec_max(x, VEC_SWAP(x, 4));
#endif
    x = vec_max(x, VEC_SWAP(x, 2));
    x = vec_max(x, VEC_SWAP(x, 1));
    return x[0];
}

/* As lanes_sum(). */
INLINE float row_sum(const float lanes[LANES])
{
    const vec *sum = vecs(lanes);
#if VEC == 16
    vec x = sum[0] + VEC_SWAP(sum[0], 8);
#elif VEC == 8
    vec x = sum[0] + sum[1];
#else
    vec x = (sum[0] + sum[2]) + (sum[1] + sum[3]);
#endif
#if VEC >= 8
    x += VEC_SWAP(x, 4);
#endif
    x += VEC_SWAP(x, 2);
    x += VEC_SWAP(x, 1);
    return x[0];
}

/* -- rows of a tile ------------------------------------------------------------------ */

static inline void set_zero(float *x, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        x[c] = 0.0F;
}

/* x . y of n elements of a type, over LANES sums. */
INLINE float row_dot(const void *x, const void *y, int64_t n, const enum dtype dtype)
{
    float lane[LANES];
    vec sum[LANES / VEC] = {{0}};
    if (dtype == DTYPE_F32)
        return lanes_dot(x, y, n);
    for (int64_t c = 0; c < n; c += LANES)
        for (int i = 0; i < LANES / VEC; i++) {
            int64_t at = c + i * VEC, here = i64_max(0, i64_min(VEC, n - at));
            sum[i] = vec_fused(vec_load(x, at, here, dtype), vec_load(y, at, here, dtype),
                               sum[i]);
        }
    lanes_store(lane, sum);
    return lanes_sum(lane);
}

/* Rows are worked through ROW_STEP keys at a time; in softmax, where sums depend on it,
 * beginning with the first that is seen, so that they may end as far beyond the tile. */
#define ROW_STEP (2 * LANES)
_Static_assert(P_ROW >= TILE + ROW_STEP - 1, "a row has room for its last step");
#define FACTORS (TILE + ROW_STEP)

/* The dropout factors of query q for the keys of the tile at k0, zeros beyond it; NULL
 * when nothing is dropped. */
static inline const float *tile_factors(float factor[FACTORS], const struct head *hd,
                                        int64_t q, int64_t k0)
{
    int64_t n_groups = i64_round_up(hd->S, DROPOUT_GROUP) / DROPOUT_GROUP;
    if (hd->drop->threshold == 0)
        return NULL;
    K(dropout_group)
    (factor, hd->drop, hd->sample,
     (uint64_t)((hd->drop_row + q) * n_groups + k0 / DROPOUT_GROUP));
    set_zero(factor + TILE, FACTORS - TILE);
    return factor;
}

/* -- softmax of a row ---------------------------------------------------------------- */

/* Scores of the keys that are seen are followed by what is no less than any number, as
 * far as the last step goes; returns how many there are then. */
static inline int64_t row_fill(float *seen, int64_t n)
{
    int64_t end = i64_round_up(n, ROW_STEP);
    for (int64_t c = n; c < end; c++)
        seen[c] = -INFINITY;
    return end;
}

/* The largest of n scores, a multiple of ROW_STEP; any, where one is no number. */
INLINE float row_max(const float *x, int64_t n)
{
    enum { STEP = ROW_STEP / VEC };
    vec most[STEP];
    for (int i = 0; i < STEP; i++)
        most[i] = vecs(x)[i];
    for (int64_t c = ROW_STEP; c < n; c += ROW_STEP)
        for (int i = 0; i < STEP; i++)
            most[i] = vec_max(vecs(x + c)[i], most[i]);
    for (int i = 1; i < STEP; i++)
        most[0] = vec_max(most[i], most[0]);
    return vec_most(most[0]);
}

/* What becomes of a probability. */
struct row_use {
    const float *factor; // it is multiplied with, or NULL
    enum dtype dtype;    // it is rounded to,
    bool is_stored;      // and stored as, instead of float
};

/* ROW_STEP or twice as many scores x into probabilities, and into `to`. */
INLINE void row_step(void *to, const float *x, int64_t c, vec sum[LANES / VEC],
                     float scale, float shift, const struct row_use use, const int n)
{
    vec e[EXP_MOST];
    for (int i = 0; i < n; i++)
        e[i] = vec_fused(vecs(x + c)[i], vec_of(scale), vec_of(-shift));
    vec_exp(e, n);
    for (int i = 0; i < n; i++) {
        sum[i % (LANES / VEC)] += e[i];
        if (use.factor)
            e[i] *= vecs(use.factor + c)[i];
        if (use.is_stored)
            vec_store(to, c + i * VEC, e[i], VEC, use.dtype);
        else
            vec_store(to, c + i * VEC, vec_rounded(e[i], use.dtype), VEC, DTYPE_F32);
    }
}

/* to := exp(x * scale - shift), used so; its sums, before it is, to LANES lanes. */
INLINE void row_exp(void *to, const float *x, int64_t n, float scale, float shift,
                    float lanes[LANES], const struct row_use use)
{
    enum { STEP = ROW_STEP / VEC };
    vec sum[LANES / VEC] = {{0}};
    for (int64_t c = 0; c < n; c += ROW_STEP)
        row_step(to, x, c, sum, scale, shift, use, STEP);
    lanes_store(lanes, sum);
}

/* -- softmax of a tile --------------------------------------------------------------- */

/* Running maxima and sums of a tile's rows, and what was summed with them. */
struct softmax {
    float *max, *sum; // (TILE)
    float *out;       // (TILE, row)
    int64_t row;
};

static inline bool is_first_tile(const struct head *hd, int64_t q, int64_t k0)
{
    return k0 == 0 || (hd->first_key && k0 <= hd->first_key[q]);
}

/* The maximum of row r grows; what was summed before is rescaled. */
static inline void softmax_grow(const struct softmax *s, int64_t r, float top,
                                bool is_first)
{
    float grown = is_first || top > s->max[r] ? top : s->max[r];
    if (!is_first && grown > s->max[r]) {
        float shrink = fast_exp(s->max[r] - grown);
        for (int64_t d = 0; d < s->row; d++)
            s->out[r * s->row + d] *= shrink;
        s->sum[r] *= shrink;
    }
    s->max[r] = grown;
}

/* Row r of scores p: dropout, and rounding to `to`, which is p or where it is stored. */
INLINE void softmax_row(const struct softmax *s, void *to, const float *p,
                        const struct head *hd, const struct tile *t, int64_t r,
                        float lanes[LANES], const enum dtype dtype, const bool is_stored)
{
    int64_t q = t->q0 + r;
    struct span keys = visible(hd, q, t->k0, t->n_keys);
    float factors[FACTORS];
    const float *factor = tile_factors(factors, hd, q, t->k0);
    const float *x = p + keys.first;
    int64_t n = i64_round_up(keys.end - keys.first, ROW_STEP);
    to = (char *)to + keys.first * (is_stored ? 2 : 4);
    if (factor)
        row_exp(to, x, n, hd->scale, s->max[r], lanes,
                (struct row_use){factor + keys.first, dtype, is_stored});
    else
        row_exp(to, x, n, hd->scale, s->max[r], lanes,
                (struct row_use){NULL, dtype, is_stored});
}

/* Scores p of a tile into probabilities; zeros where keys are not seen are the caller's.
 * Every row takes each step before any takes the next: a row alone would wait for its own
 * maximum and sum. */
INLINE void tile_softmax(const struct softmax *s, void *to, int64_t to_row, float *p,
                         const struct head *hd, const struct tile *t,
                         const enum dtype dtype, const bool is_stored)
{
    _Alignas(64) float lanes[TILE][LANES];
    float top[TILE];
    for (int64_t r = 0; r < t->n_queries; r++) {
        struct span keys = visible(hd, t->q0 + r, t->k0, t->n_keys);
        float *seen = p + r * P_ROW + keys.first;
        top[r] = -INFINITY;
        if (keys.first < keys.end)
            top[r] = row_max(seen, row_fill(seen, keys.end - keys.first)) * hd->scale;
    }
    for (int64_t r = 0; r < t->n_queries; r++)
        if (sees_any(hd, t, r))
            softmax_grow(s, r, top[r], is_first_tile(hd, t->q0 + r, t->k0));
    for (int64_t r = 0; r < t->n_queries; r++)
        if (sees_any(hd, t, r))
            softmax_row(s, (char *)to + r * to_row * (is_stored ? 2 : 4), p + r * P_ROW,
                        hd, t, r, lanes[r], dtype, is_stored);
    for (int64_t r = 0; r < t->n_queries; r++)
        if (sees_any(hd, t, r)) {
            float sum = row_sum(lanes[r]);
            bool is_first = is_first_tile(hd, t->q0 + r, t->k0);
            s->sum[r] = is_first ? sum : s->sum[r] + sum;
        }
}

/* -- products of tiles --------------------------------------------------------------- */

/* Up to TILE rows and DEPTH columns of a head's matrix, packed for a product. */
struct pack {
    _Alignas(64) float x[TILE * DEPTH];
    const void *from; // (S, D) with `stride`
    enum dtype dtype;
    int64_t stride, S, D;
    bool is_transposed;
    int64_t row, column; // of its first element; row -1: nothing is packed yet
};

void K(pack_init)(struct pack *pk, const struct head *hd, const void *from,
                  int64_t stride, bool is_transposed);

/* p(q, key) = x(q) . y(key), of pairs that are seen; x is packed by rows, y transposed. */
void K(tile_scores)(float *p, const struct tile *t, struct pack *x, struct pack *y);

/* Columns [first, first + n) of an output, DEPTH at most, as a tile's rows. `is_whole`:
 * all TILE rows can be written, and n rounded up to PANEL columns. */
struct output {
    float *y;
    int64_t row, first, n;
    bool accumulate, is_whole;
};

/* y(q) (+)= sum over keys of p(q, key) x(key); of 16 bits: whole, and +=. */
void K(sum_over_keys)(const struct output *y, const float *p, const struct tile *t,
                      struct pack *x);
/* y(key) (+)= sum over queries of p(q, key) x(q), y whole; of 16 bits: +=. A key is seen
 * by no query before it. */
void K(sum_over_queries)(const struct output *y, const float *p, const struct tile *t,
                         struct pack *x);

/* -- bfloat16 on tiles of AMX -------------------------------------------------------- */

#ifdef KERNEL_TILES
static inline bool is_on_tiles(enum dtype dtype, int64_t D)
{
    return dtype == DTYPE_BF16 && D <= DEPTH;
}

/* Queries first .. end of a head, QUERY_TILES tiles at most. */
void K(tiles_fwd)(const struct attention *at, int64_t b, int64_t h, struct span queries);
#endif

#endif
