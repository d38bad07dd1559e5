/*
 * Causal attention, backward: the scores are computed again and become probabilities with
 * the row's saved log-sum-exp.
 *
 * A unit of work is one head of keys and values of one sample, with the heads of queries
 * that share it: its tiles of keys in ascending order, for each of them heads, and tiles
 * of queries, in ascending order. Where there are few units, threads take tiles of keys
 * one by one. The gradients of keys and values are a thread's own then as well; what a
 * tile of queries gets has to be added in the order of the tiles of keys, so that a
 * thread waits there for its turn. Tiles are given out in order: the first that is not
 * done waits for nobody. So the bits depend on the sample alone.
 *
 * Cost per tile: 5 matrix products of TILE x TILE x D.
 */
#include "device/cpu/cpu_attention_bwd.h"
#include "device/device.h"

#include <omp.h>
#include <sched.h>

/* -- turns --------------------------------------------------------------------------- */

/* Tiles that were added to a tile of queries, counted on when its memory is used for the
 * next unit: a unit counts n_tiles + 1. */
static int32_t *turn_of(const struct bwd *at, const struct unit *u, int64_t h, int64_t q0,
                        int64_t first)
{
    int64_t tile = (u->slot * at->shared + h - u->h_first) * at->n_tiles + q0 / TILE;
    return at->turns + tile * at->n_parts + first / DEPTH;
}

static int32_t turn_wanted(const struct bwd *at, const struct unit *u, int64_t k0,
                           int64_t k_first)
{
    int64_t begun = u->round * (at->n_tiles + 1);
    return (int32_t)(begun + (k0 > k_first ? k0 / TILE : 0));
}

static void turn_await(const struct bwd *at, const int32_t *turn, int32_t wanted)
{
    if (!at->is_split)
        return;
    for (int tries = 0; __atomic_load_n(turn, __ATOMIC_ACQUIRE) != wanted; tries++)
        if (tries > 1000)
            sched_yield();
}

static void turn_end(const struct bwd *at, const struct unit *u, int32_t *turn,
                     int64_t q0, int64_t k0)
{
    int64_t n = at->n_tiles + 1;
    int64_t next = q0 == k0 ? (u->round + 1) * n : u->round * n + k0 / TILE + 1;
    if (at->is_split)
        __atomic_store_n(turn, (int32_t)next, __ATOMIC_RELEASE);
}

/* -- sums of dq ---------------------------------------------------------------------- */

/* y := x rounded, of rows of n; rows lie y_row and x_row elements apart. */
static void rows_store(void *y, int64_t y_row, enum dtype dtype, const float *x,
                       int64_t x_row, int64_t rows, int64_t n)
{
    for (int64_t r = 0; r < rows; r++)
        narrow(element_of(y, r * y_row, dtype), x + r * x_row, dtype, n);
}

static void rows_zero(float *x, int64_t row, int64_t rows)
{
    memset(x, 0, (size_t)(row * rows) * sizeof *x);
}

struct head_grad K(head_grad_of)(const struct bwd *at, const struct unit *u, int64_t h)
{
    const struct attention *fwd = &at->args->fwd;
    int64_t S = fwd->S, A = fwd->A, D = fwd->D, bh = u->b * A + h;
    bool is_float = at->dtype == DTYPE_F32;
    struct head_grad gr = {
        .hd = head_of(fwd, at->dtype, u->b, h),
        .h = h,
        .dout = element(at->args->dout, (u->b * S * A + h) * D, at->dtype),
        .out_row = A * D,
        .dq = element_of(at->args->dq, u->b * S * fwd->q_row + h * D, at->dtype),
        .dq_row = fwd->q_row,
        .sums_row = is_float ? fwd->q_row : i64_round_up(D, PANEL),
        .lse = fwd->lse + bh * S,
        .delta = at->args->delta + bh * S};
    int64_t nth = u->slot * at->shared + h - u->h_first;
    gr.sums = is_float ? gr.dq : at->sums + nth * at->n_tiles * TILE * gr.sums_row;
    return gr;
}

struct output K(dq_begin)(const struct bwd *at, const struct unit *u,
                          const struct head_grad *gr, const struct tile *t, int64_t first)
{
    int64_t k_first = first_tile(&gr->hd, t->q0);
    struct output y = {.y = gr->sums + t->q0 * gr->sums_row + first,
                       .row = gr->sums_row,
                       .first = first,
                       .n = i64_min(DEPTH, gr->hd.D - first),
                       .accumulate = t->k0 > k_first,
                       .is_whole = at->dtype != DTYPE_F32};
    turn_await(at, turn_of(at, u, gr->h, t->q0, first),
               turn_wanted(at, u, t->k0, k_first));
    if (y.is_whole && !y.accumulate)
        for (int64_t r = 0; r < TILE; r++)
            set_zero(y.y + r * y.row, i64_round_up(y.n, PANEL));
    return y;
}

void K(dq_end)(const struct bwd *at, const struct unit *u, const struct head_grad *gr,
               const struct tile *t, const struct output *y)
{
    if (y->is_whole && t->k0 == t->q0)
        rows_store(element_of(gr->dq, t->q0 * gr->dq_row + y->first, at->dtype),
                   gr->dq_row, at->dtype, y->y, y->row, t->n_queries, y->n);
    turn_end(at, u, turn_of(at, u, gr->h, t->q0, y->first), t->q0, t->k0);
}

/* -- rows of a tile ------------------------------------------------------------------ */

/* From rows of scores p and of dp = dout v^T:
 *   dp := the gradient of the scores,   p := the dropped probabilities, both rounded. */
INLINE void grad_row(float *p, float *dp, const struct row_grad *g, int64_t n_keys,
                     const bool is_dropped, const enum dtype dtype)
{
    enum { STEP = ROW_STEP / VEC };
    for (int64_t c = 0; c < n_keys; c += ROW_STEP) {
        vec e[STEP], ds[STEP];
        if (is_unseen(g->keys, c)) {
            set_zero(p + c, ROW_STEP);
            set_zero(dp + c, ROW_STEP);
            continue;
        }
        grad_step(e, ds, p, dp, c, g, is_dropped);
        for (int i = 0; i < STEP; i++) {
            ((vec *)(p + c))[i] = vec_rounded(e[i], dtype);
            ((vec *)(dp + c))[i] = vec_rounded(ds[i], dtype);
        }
    }
}

INLINE void tile_grads(float *p, float *dp, const struct head_grad *gr,
                       const struct tile *t, const enum dtype dtype)
{
    int64_t n_keys = i64_round_up(t->n_keys, ROW_STEP), r = 0;
    for (; r < t->n_queries; r++) {
        float factors[FACTORS];
        struct row_grad g = row_grad_of(factors, gr, t, r);
        if (g.factor)
            grad_row(p + r * P_ROW, dp + r * P_ROW, &g, n_keys, true, dtype);
        else
            grad_row(p + r * P_ROW, dp + r * P_ROW, &g, n_keys, false, dtype);
    }
    for (; r < i64_round_up(t->n_queries, GROUP); r++) { // what fills a group
        set_zero(p + r * P_ROW, n_keys);
        set_zero(dp + r * P_ROW, n_keys);
    }
}

/* -- tiles --------------------------------------------------------------------------- */

/* What a thread works with. */
struct bwd_work {
    struct pack keys, values;             // transposed, for the scores and their gradient
    struct pack keys_rows, queries, dout; // for the gradients of q, k, v, and the scores
    _Alignas(64) float p[TILE * P_ROW];
    _Alignas(64) float dp[TILE * P_ROW];
    _Alignas(64) float dk[TILE * DEPTH]; // of the tile of keys
    _Alignas(64) float dv[TILE * DEPTH];
};

/* Columns [first, first + n) of the gradients. `adds`: dk and dv have begun. */
static void tile_bwd(const struct bwd *at, const struct unit *u,
                     const struct head_grad *gr, struct bwd_work *w, int64_t q0,
                     int64_t k0, int64_t first, bool adds)
{
    int64_t n = i64_min(DEPTH, gr->hd.D - first);
    struct output y = {.row = i64_round_up(n, PANEL),
                       .first = first,
                       .n = n,
                       .accumulate = adds,
                       .is_whole = true};
    struct tile t;

    tile_init(&t, &gr->hd, q0, k0);
    if (k0 >= gr->hd.key_end) { // padding has no gradient, but dq's turn ends
        rows_zero(w->dk, y.row, TILE);
        rows_zero(w->dv, y.row, TILE);
        y = K(dq_begin)(at, u, gr, &t, first);
        K(dq_end)(at, u, gr, &t, &y);
        return;
    }
    K(tile_scores)(w->p, &t, &w->queries, &w->keys);
    K(tile_scores)(w->dp, &t, &w->dout, &w->values);
    TYPED(at->dtype, tile_grads, w->p, w->dp, gr, &t);
    y.y = w->dv;
    K(sum_over_queries)(&y, w->p, &t, &w->dout);
    y.y = w->dk;
    K(sum_over_queries)(&y, w->dp, &t, &w->queries);
    y = K(dq_begin)(at, u, gr, &t, first);
    K(sum_over_keys)(&y, w->dp, &t, &w->keys_rows);
    K(dq_end)(at, u, gr, &t, &y);
}

/* The keys at k0, and the heads of queries that see them. The scores of a head that has
 * more than DEPTH columns are computed for each part of them. */
static void key_tile_bwd(const struct bwd *at, const struct unit *u, int64_t k0,
                         struct bwd_work *w)
{
    const struct attention *fwd = &at->args->fwd;
    int64_t S = fwd->S, D = fwd->D, rows = i64_min(TILE, S - k0);
    int64_t kv = (u->b * S + k0) * fwd->kv_row + kv_head(fwd, u->h_first) * D;
    for (int64_t first = 0; first < D; first += DEPTH) {
        int64_t n = i64_min(DEPTH, D - first), row = i64_round_up(n, PANEL);
        if (at->dtype != DTYPE_F32) {
            rows_zero(w->dk, row, TILE);
            rows_zero(w->dv, row, TILE);
        }
        for (int64_t h = u->h_first; h < u->h_first + at->shared; h++) {
            struct head_grad gr = K(head_grad_of)(at, u, h);
            K(pack_init)(&w->queries, &gr.hd, gr.hd.q, gr.hd.q_row, false);
            K(pack_init)(&w->dout, &gr.hd, gr.dout, gr.out_row, false);
            // a tile of keys is first seen by the queries on the diagonal
            for (int64_t q0 = k0; q0 < S && first_tile(&gr.hd, q0) <= k0; q0 += TILE)
                tile_bwd(at, u, &gr, w, q0, k0, first, q0 > k0 || h > u->h_first);
        }
        rows_store(element_of(at->args->dk, kv + first, at->dtype), fwd->kv_row,
                   at->dtype, w->dk, row, rows, n);
        rows_store(element_of(at->args->dv, kv + first, at->dtype), fwd->kv_row,
                   at->dtype, w->dv, row, rows, n);
    }
}

/* -- units --------------------------------------------------------------------------- */

/* delta[q] = dout[q] . out[q], the sum over keys of p * dp. */
static void head_delta(float *delta, const void *out, const void *dout, enum dtype dtype,
                       int64_t stride, int64_t rows, int64_t D)
{
    for (int64_t q = 0; q < rows; q++) {
        const void *x = element(out, q * stride, dtype);
        const void *y = element(dout, q * stride, dtype);
        delta[q] = TYPED(dtype, row_dot, x, y, D);
    }
}

static void deltas(const struct bwd *at)
{
    const struct attention *fwd = &at->args->fwd;
    int64_t S = fwd->S, A = fwd->A, D = fwd->D;
#pragma omp for collapse(2) schedule(static)
    for (int64_t bh = 0; bh < fwd->B * A; bh++)
        for (int64_t q0 = 0; q0 < S; q0 += TILE) {
            int64_t from = ((bh / A * S + q0) * A + bh % A) * D;
            head_delta(at->args->delta + bh * S + q0, element(fwd->out, from, at->dtype),
                       element(at->args->dout, from, at->dtype), at->dtype, A * D,
                       i64_min(TILE, S - q0), D);
        }
}

static void unit_begin(const struct bwd *at, const struct unit *u, struct bwd_work *w)
{
    struct head hd = head_of(&at->args->fwd, at->dtype, u->b, u->h_first);
    K(pack_init)(&w->keys, &hd, hd.k, hd.kv_row, true);
    K(pack_init)(&w->values, &hd, hd.v, hd.kv_row, true);
    K(pack_init)(&w->keys_rows, &hd, hd.k, hd.kv_row, false);
}

/* The next unit, or tile of keys of one, that nobody has begun; false: there is none. */
static bool next_task(const struct bwd *at, int64_t *next, struct unit *u,
                      struct span *tiles)
{
    const struct attention *fwd = &at->args->fwd;
    int64_t per_unit = at->is_split ? at->n_tiles : 1;
    int64_t i = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED), unit = i / per_unit;
    if (unit >= fwd->B * fwd->A_kv)
        return false;
    *u = (struct unit){.b = unit / fwd->A_kv,
                       .h_first = unit % fwd->A_kv * at->shared,
                       .slot = at->is_split ? unit % at->n_slots : omp_get_thread_num(),
                       .round = unit / at->n_slots};
    *tiles = at->is_split ? (struct span){i % per_unit, i % per_unit + 1}
                          : (struct span){0, at->n_tiles};
    return true;
}

static __attribute__((noinline)) void thread_bwd(const struct bwd *at, int64_t *next)
{
    struct bwd_work w;
    struct unit u;
    struct span tiles;
    while (next_task(at, next, &u, &tiles)) {
        unit_begin(at, &u, &w);
        for (int64_t i = tiles.first; i < tiles.end; i++)
            key_tile_bwd(at, &u, i * TILE, &w);
    }
}

#ifdef KERNEL_TILES
static void thread_bwd_on_tiles(const struct bwd *at, int64_t *next)
{
    struct unit u;
    struct span tiles;
    while (next_task(at, next, &u, &tiles))
        K(tiles_bwd)(at, &u, tiles);
}
#endif

/* Whether units are too few, or too uneven, for threads to take them whole. */
static bool is_split(const struct bwd *at)
{
    int64_t units = at->args->fwd.B * at->args->fwd.A_kv;
    return at->n_tiles > 1 && units < 8 * at->n_slots && units % at->n_slots != 0;
}

void K(attention_bwd)(struct stream *s, const struct attention_bwd *args)
{
    const struct attention *fwd = &args->fwd;
    struct bwd at = {.args = args,
                     .dtype = s->dev->dtype,
                     .shared = fwd->A / fwd->A_kv,
                     .n_tiles = i64_round_up(fwd->S, TILE) / TILE,
                     .n_parts = i64_round_up(fwd->D, DEPTH) / DEPTH,
                     .n_slots = omp_get_max_threads()};
    int64_t tiles = at.n_slots * at.shared * at.n_tiles, next = 0;
    int64_t n_sums = at.dtype == DTYPE_F32 ? 0 : TILE * i64_round_up(fwd->D, PANEL);
    at.is_split = is_split(&at);
    at.sums = args->scratch;
    at.turns = (int32_t *)(args->scratch + tiles * n_sums);
    if (at.is_split)
        memset(at.turns, 0, (size_t)(tiles * at.n_parts) * sizeof *at.turns);
#pragma omp parallel
    {
        deltas(&at);
#ifdef KERNEL_TILES
        if (is_on_tiles(at.dtype, fwd->D))
            thread_bwd_on_tiles(&at, &next);
#endif
        thread_bwd(&at, &next); // nothing, if that was done
    }
}
