/*
 * Causal attention of bfloat16 on the tile unit: the products of cpu_attention.h on tiles
 * of 16 x 16 sums, its bits, and its softmax.
 *
 * Operands are packed into what one instruction takes, 1 KiB each:
 *   left    16 rows of 32 values of k;
 *   right   16 pairs of k by 16 columns, the two of a pair side by side.
 * A left-hand side that lies in rows is used where it lies. Of dk and dv the transposes
 * are computed: probabilities and gradients of scores then are right-hand sides, which
 * two rows of them become as they are rounded, and only queries and dout, which are
 * smaller, have to be transposed.
 *
 * Four tiles of sums by two tiles of either side are in use at a time.
 */
#include "device/cpu/cpu_attention_bwd.h"

#ifdef KERNEL_TILES

#include "device/cpu/cpu_tiles.h"

#define BLOCK 16  // rows and columns of a tile of sums
#define PAIR 32   // of two of them
#define UNIT 512  // elements of a packed tile
#define H_ROW 160 // between rows of rounded scores
#define T_ROW 144 // between rows of transposed gradients: no power of two

static const uint8_t all_rows[AMX_TILES] = {16, 16, 16, 16, 16, 16, 16, 16};

/* Rows of a head, TILE of them, D of each rounded up to 32 with zeros. */
struct rows {
    _Alignas(64) uint16_t x[TILE * DEPTH];
};

/* -- packing ------------------------------------------------------------------------- */

static void rows_copy(struct rows *to, const uint16_t *from, int64_t stride, int64_t rows,
                      int64_t D)
{
    int64_t width = i64_round_up(D, GROUP);
    for (int64_t r = 0; r < rows; r++) {
        memcpy(to->x + r * width, from + r * stride, (size_t)D * sizeof *to->x);
        memset(to->x + r * width + D, 0, (size_t)(width - D) * sizeof *to->x);
    }
    memset(to->x + rows * width, 0, (size_t)((TILE - rows) * width) * sizeof *to->x);
}

/* One tile of 16 x 16 pairs, transposed. */
static void pairs_transpose(uint16_t *to, const uint16_t *from, int64_t from_row)
{
    for (int i = 0; i < BLOCK; i += VEC)
        for (int j = 0; j < BLOCK; j += VEC)
            tile_transpose((float *)(void *)to + j * BLOCK + i, BLOCK,
                           (const float *)(const void *)from + i * from_row / 2 + j,
                           from_row / 2);
}

/* x^T as a right-hand side over its columns: tile (k / 32, row / 16). */
static void right_of_transpose(struct rows *to, const struct rows *x, int64_t width)
{
    for (int64_t k = 0; k < width; k += GROUP)
        for (int64_t r = 0; r < TILE; r += BLOCK)
            pairs_transpose(to->x + (k / GROUP * (TILE / BLOCK) + r / BLOCK) * UNIT,
                            x->x + r * width + k, width);
}

/* x as a right-hand side over its rows: tile (row / 32, column / 16). */
static void right_of_rows(struct rows *to, const struct rows *x, int64_t width)
{
    for (int64_t r = 0; r < TILE; r += 2)
        for (int64_t c = 0; c < width; c += BLOCK) {
            const uint16_t *even = x->x + r * width + c, *odd = even + width;
            uint16_t *pairs =
                to->x + (r / GROUP * (width / BLOCK) + c / BLOCK) * UNIT + r % GROUP * 16;
            for (int i = 0; i < BLOCK; i++) {
                uint32_t pair = even[i] | (uint32_t)odd[i] << 16;
                memcpy(pairs + 2 * i, &pair, sizeof pair);
            }
        }
}

/* x^T as a left-hand side, x being right_of_rows(): the same tiles, each transposed. */
static void left_of_transpose(struct rows *to, const struct rows *pairs, int64_t width)
{
    for (int64_t i = 0; i < TILE * width; i += UNIT)
        pairs_transpose(to->x + i, pairs->x + i, 2 * BLOCK);
}

/* -- products ------------------------------------------------------------------------ */

/* p(q, key) = x(q) . y(key) of the blocks that are seen; y is right_of_transpose(). */
static void scores(struct amx_tiles *u, float *p, const struct tile *t,
                   const struct rows *x, const struct rows *y, int64_t width)
{
    const int64_t row = width * 2;
    for (int64_t c = 0; c < t->n_keys; c += PAIR)
        for (int64_t r = 0; r < t->n_queries; r += PAIR) {
            int64_t last = i64_min(r + PAIR, t->n_queries) - 1;
            if (c + PAIR <= t->seen[r / BLOCK].first || c >= t->seen[last / BLOCK].end)
                continue;
            amx_zero(u, 0);
            amx_zero(u, 1);
            amx_zero(u, 2);
            amx_zero(u, 3);
            for (int64_t k = 0; k < width; k += GROUP) {
                const uint16_t *a = x->x + r * width + k;
                const uint16_t *b =
                    y->x + (k / GROUP * (TILE / BLOCK) + c / BLOCK) * UNIT;
                amx_load(u, 4, a, row);
                amx_load(u, 6, b, AMX_ROW_BYTES);
                amx_dot_bf16(u, 0, 4, 6);
                amx_load(u, 7, b + UNIT, AMX_ROW_BYTES);
                amx_dot_bf16(u, 1, 4, 7);
                amx_load(u, 5, a + BLOCK * width, row);
                amx_dot_bf16(u, 2, 5, 6);
                amx_dot_bf16(u, 3, 5, 7);
            }
            float *to = p + r * P_ROW + c;
            amx_store(u, 0, to, P_ROW * 4);
            amx_store(u, 1, to + BLOCK, P_ROW * 4);
            amx_store(u, 2, to + BLOCK * P_ROW, P_ROW * 4);
            amx_store(u, 3, to + BLOCK * P_ROW + BLOCK, P_ROW * 4);
        }
}

/* Tiles 0 to 3 are the PAIR x PAIR sums at c. */
static void sums_load(struct amx_tiles *u, const float *c, int64_t row)
{
    amx_load(u, 0, c, row * 4);
    amx_load(u, 1, c + BLOCK, row * 4);
    amx_load(u, 2, c + BLOCK * row, row * 4);
    amx_load(u, 3, c + BLOCK * row + BLOCK, row * 4);
}

static void sums_store(struct amx_tiles *u, float *c, int64_t row)
{
    amx_store(u, 0, c, row * 4);
    amx_store(u, 1, c + BLOCK, row * 4);
    amx_store(u, 2, c + BLOCK * row, row * 4);
    amx_store(u, 3, c + BLOCK * row + BLOCK, row * 4);
}

/* y(q) += sum over keys of h(q, key) x(key); h has rows of H_ROW, x is right_of_rows(). */
static void over_keys(struct amx_tiles *u, const struct output *y, const uint16_t *h,
                      const struct tile *t, const struct rows *x, int64_t width)
{
    for (int64_t r = 0; r < t->n_queries; r += PAIR) {
        struct span upper = groups_of_keys(t->seen[r / BLOCK]), lower = {0, 0};
        if (r + BLOCK < t->n_queries)
            lower = groups_of_keys(t->seen[r / BLOCK + 1]);
        for (int64_t d = 0; d < width; d += PAIR) {
            float *c = y->y + r * y->row + d;
            sums_load(u, c, y->row);
            for (int64_t k = 0; k < TILE; k += GROUP) {
                const uint16_t *a = h + r * H_ROW + k;
                const uint16_t *b =
                    x->x + (k / GROUP * (width / BLOCK) + d / BLOCK) * UNIT;
                bool in_upper = k >= upper.first && k < upper.end;
                bool in_lower = k >= lower.first && k < lower.end;
                if (!in_upper && !in_lower)
                    continue;
                amx_load(u, 6, b, AMX_ROW_BYTES);
                amx_load(u, 7, b + UNIT, AMX_ROW_BYTES);
                if (in_upper) {
                    amx_load(u, 4, a, H_ROW * 2);
                    amx_dot_bf16(u, 0, 4, 6);
                    amx_dot_bf16(u, 1, 4, 7);
                }
                if (in_lower) {
                    amx_load(u, 5, a + BLOCK * H_ROW, H_ROW * 2);
                    amx_dot_bf16(u, 2, 5, 6);
                    amx_dot_bf16(u, 3, 5, 7);
                }
            }
            sums_store(u, c, y->row);
        }
    }
}

/* y(d, key) += sum over queries of x(q, d) h(q, key), rows of y T_ROW apart; x is
 * left_of_transpose(), h pairs of queries: tile (q / 32, key / 16). */
static void over_queries(struct amx_tiles *u, float *y, const uint16_t *h,
                         const struct tile *t, const struct rows *x, int64_t width)
{
    for (int64_t c = 0; c < t->n_keys; c += PAIR) {
        struct span queries = groups_of_queries(t, c);
        for (int64_t d = 0; d < width && queries.first < queries.end; d += PAIR) {
            float *to = y + d * T_ROW + c;
            sums_load(u, to, T_ROW);
            for (int64_t k = queries.first; k < queries.end; k += GROUP) {
                const uint16_t *a =
                    x->x + (k / GROUP * (width / BLOCK) + d / BLOCK) * UNIT;
                const uint16_t *b = h + (k / GROUP * (TILE / BLOCK) + c / BLOCK) * UNIT;
                amx_load(u, 4, a, AMX_ROW_BYTES);
                amx_load(u, 6, b, AMX_ROW_BYTES);
                amx_dot_bf16(u, 0, 4, 6);
                amx_load(u, 7, b + UNIT, AMX_ROW_BYTES);
                amx_dot_bf16(u, 1, 4, 7);
                amx_load(u, 5, a + UNIT, AMX_ROW_BYTES);
                amx_dot_bf16(u, 2, 5, 6);
                amx_dot_bf16(u, 3, 5, 7);
            }
            sums_store(u, to, T_ROW);
        }
    }
}

/* -- forward ------------------------------------------------------------------------- */

struct tiles_queries { // one tile of queries
    int64_t q0;
    struct rows queries;
    _Alignas(64) float out[TILE * DEPTH];
    float max[TILE], sum[TILE];
};

struct tiles_fwd { // what a thread works with
    struct amx_tiles unit;
    struct rows copy, keys, values;
    _Alignas(64) float p[TILE * P_ROW];
    _Alignas(64) uint16_t h[TILE * H_ROW]; // probabilities, dropped and rounded
    struct tiles_queries tiles[QUERY_TILES];
};

/* Softmax of a tile's row, its probabilities into h. */
static void softmax_rounded(struct tiles_fwd *w, struct tiles_queries *qt,
                            const struct head *hd, const struct tile *t, int64_t r,
                            int64_t width)
{
    int64_t q = t->q0 + r, end = i64_round_up(t->n_keys, GROUP);
    struct span keys = visible(hd, q, t->k0, t->n_keys);
    uint16_t *h = w->h + r * H_ROW;
    float factors[FACTORS], *seen = w->p + r * P_ROW + keys.first;
    if (keys.first < keys.end) {
        int64_t n = row_fill(seen, keys.end - keys.first);
        const float *factor = tile_factors(factors, hd, q, t->k0);
        softmax_step(&(struct softmax_row){.max = &qt->max[r],
                                           .sum = &qt->sum[r],
                                           .out = qt->out + r * width,
                                           .n = width},
                     seen, n, hd->scale,
                     t->k0 == 0 || (hd->first_key && t->k0 <= hd->first_key[q]));
        for (int64_t c = 0; c < n; c += VEC) {
            vec p = *vecs(seen + c);
            if (factor)
                p *= *vecs(factor + keys.first + c);
            vec_store(h, keys.first + c, p, VEC, DTYPE_BF16);
        }
    }
    memset(h, 0, (size_t)keys.first * sizeof *h);
    memset(h + keys.end, 0, (size_t)(end - keys.end) * sizeof *h);
}

static void queries_begin(struct tiles_queries *qt, const struct head *hd, int64_t q0)
{
    int64_t width = i64_round_up(hd->D, GROUP);
    qt->q0 = q0;
    rows_copy(&qt->queries, (const uint16_t *)hd->q + q0 * hd->q_row, hd->q_row,
              i64_min(TILE, hd->S - q0), hd->D);
    memset(qt->out, 0, (size_t)(TILE * width) * sizeof *qt->out);
}

static void queries_end(struct tiles_queries *qt, const struct attention *at, int64_t b,
                        int64_t h)
{
    int64_t width = i64_round_up(at->D, GROUP), rows = i64_min(TILE, at->S - qt->q0);
    for (int64_t r = 0; r < rows; r++) {
        uint16_t *out =
            (uint16_t *)at->out + ((b * at->S + qt->q0 + r) * at->A + h) * at->D;
        float inverse = 1.0F / qt->sum[r];
        for (int64_t d = 0; d < width; d++)
            qt->out[r * width + d] *= inverse;
        narrow(out, qt->out + r * width, DTYPE_BF16, at->D);
        at->lse[(b * at->A + h) * at->S + qt->q0 + r] = qt->max[r] + logf(qt->sum[r]);
    }
}

/* The keys at k0, for every tile of queries that sees any of them. */
static void keys_fwd(struct tiles_fwd *w, const struct head *hd, int64_t k0, int n_tiles)
{
    int64_t rows = i64_min(TILE, hd->S - k0), width = i64_round_up(hd->D, GROUP);
    rows_copy(&w->copy, (const uint16_t *)hd->k + k0 * hd->kv_row, hd->kv_row, rows,
              hd->D);
    right_of_transpose(&w->keys, &w->copy, width);
    rows_copy(&w->copy, (const uint16_t *)hd->v + k0 * hd->kv_row, hd->kv_row, rows,
              hd->D);
    right_of_rows(&w->values, &w->copy, width);
    for (int i = 0; i < n_tiles; i++) {
        struct tiles_queries *qt = &w->tiles[i];
        struct output y = {.y = qt->out, .row = width};
        struct tile t;
        if (k0 < first_tile(hd, qt->q0) || k0 > qt->q0)
            continue;
        tile_init(&t, hd, qt->q0, k0);
        scores(&w->unit, w->p, &t, &qt->queries, &w->keys, width);
        for (int64_t r = 0; r < t.n_queries; r++)
            softmax_rounded(w, qt, hd, &t, r, width);
        over_keys(&w->unit, &y, w->h, &t, &w->values, width);
    }
}

void K(tiles_fwd)(const struct attention *at, int64_t b, int64_t h, struct span queries)
{
    struct head hd = head_of(at, DTYPE_BF16, b, h);
    struct tiles_fwd w;
    int n_tiles = 0;
    amx_init(&w.unit, all_rows);
    for (int64_t q0 = queries.first; q0 < queries.end; q0 += TILE)
        queries_begin(&w.tiles[n_tiles++], &hd, q0);
    for (int64_t k0 = first_tile(&hd, queries.first); k0 < queries.end; k0 += TILE)
        keys_fwd(&w, &hd, k0, n_tiles);
    amx_release(&w.unit);
    for (int i = 0; i < n_tiles; i++)
        queries_end(&w.tiles[i], at, b, h);
}

/* -- backward ------------------------------------------------------------------------ */

struct tiles_bwd { // what a thread works with
    struct amx_tiles unit;
    struct rows keys, values, keys_rows; // right-hand sides
    struct rows queries, dout;           // left-hand sides, and transposed
    struct rows queries_by, dout_by, copy;
    _Alignas(64) float p[TILE * P_ROW];
    _Alignas(64) float dp[TILE * P_ROW];
    _Alignas(64) uint16_t p_pairs[TILE * TILE]; // of queries
    _Alignas(64) uint16_t ds_pairs[TILE * TILE];
    _Alignas(64) uint16_t ds[TILE * H_ROW];
    _Alignas(64) float dk[DEPTH * T_ROW]; // of the tile of keys, transposed
    _Alignas(64) float dv[DEPTH * T_ROW];
};

/* x rounded to bfloat16, in the upper half of each element. */
INLINE uvec bf16_above(vec x)
{
    return __builtin_convertvector(vec_to_bf16(x), uvec) << 16;
}

/* Rows r and r + 1 of p and dp, which are floats: rounded, as pairs and as rows. */
static void pairs_round(struct tiles_bwd *w, int64_t r, int64_t n_keys)
{
    const float *p = w->p + r * P_ROW, *dp = w->dp + r * P_ROW;
    for (int64_t c = 0; c < n_keys; c += VEC) {
        int64_t at = (r / GROUP * (TILE / BLOCK) + c / BLOCK) * UNIT + r % GROUP * 16 +
                     c % BLOCK * 2;
        uvec even = bf16_above(*vecs(p + c)), odd = bf16_above(*vecs(p + P_ROW + c));
        uvec pairs = even >> 16 | odd;
        memcpy(w->p_pairs + at, &pairs, sizeof pairs);
        even = bf16_above(*vecs(dp + c)) >> 16;
        odd = bf16_above(*vecs(dp + P_ROW + c));
        pairs = even | odd;
        memcpy(w->ds_pairs + at, &pairs, sizeof pairs);
        *(hvec *)(w->ds + r * H_ROW + c) = __builtin_convertvector(even, hvec);
        *(hvec *)(w->ds + (r + 1) * H_ROW + c) = __builtin_convertvector(odd >> 16, hvec);
    }
}

static void rows_of_queries(struct tiles_bwd *w, struct rows *to, struct rows *by,
                            const void *from, int64_t stride, const struct tile *t,
                            int64_t D)
{
    int64_t width = i64_round_up(D, GROUP);
    rows_copy(to, (const uint16_t *)from + t->q0 * stride, stride, t->n_queries, D);
    right_of_rows(&w->copy, to, width);
    left_of_transpose(by, &w->copy, width);
}

static void tile_bwd(const struct bwd *at, const struct unit *u,
                     const struct head_grad *gr, struct tiles_bwd *w, int64_t q0,
                     int64_t k0)
{
    int64_t width = i64_round_up(gr->hd.D, GROUP);
    struct tile t;
    tile_init(&t, &gr->hd, q0, k0);
    rows_of_queries(w, &w->queries, &w->queries_by, gr->hd.q, gr->hd.q_row, &t, gr->hd.D);
    rows_of_queries(w, &w->dout, &w->dout_by, gr->dout, gr->out_row, &t, gr->hd.D);
    scores(&w->unit, w->p, &t, &w->queries, &w->keys, width);
    scores(&w->unit, w->dp, &t, &w->dout, &w->values, width);
    K(tile_grads)(w->p, w->dp, gr, &t, DTYPE_F32);
    for (int64_t r = 0; r < i64_round_up(t.n_queries, GROUP); r += 2)
        pairs_round(w, r, i64_round_up(t.n_keys, GROUP));
    over_queries(&w->unit, w->dv, w->p_pairs, &t, &w->dout_by, width);
    over_queries(&w->unit, w->dk, w->ds_pairs, &t, &w->queries_by, width);
    struct output y = K(dq_begin)(at, u, gr, &t, 0);
    over_keys(&w->unit, &y, w->ds, &t, &w->keys_rows, width);
    K(dq_end)(at, u, gr, &t, &y);
}

/* The rows of a tile's gradient, transposed and rounded, to where they belong. */
static void store_transposed(uint16_t *to, int64_t row, const float *from, int64_t rows,
                             int64_t D)
{
    _Alignas(64) float part[LANES * DEPTH];
    int64_t width = i64_round_up(D, GROUP);
    for (int64_t r = 0; r < rows; r += LANES) {
        for (int64_t d = 0; d < width; d += VEC)
            for (int i = 0; i < LANES; i += VEC)
                tile_transpose(part + i * width + d, width, from + d * T_ROW + r + i,
                               T_ROW);
        for (int64_t i = 0; i < i64_min(LANES, rows - r); i++)
            narrow(to + (r + i) * row, part + i * width, DTYPE_BF16, D);
    }
}

static void keys_begin(struct tiles_bwd *w, const struct head *hd, int64_t k0)
{
    int64_t rows = i64_min(TILE, hd->S - k0), width = i64_round_up(hd->D, GROUP);
    rows_copy(&w->copy, (const uint16_t *)hd->v + k0 * hd->kv_row, hd->kv_row, rows,
              hd->D);
    right_of_transpose(&w->values, &w->copy, width);
    rows_copy(&w->copy, (const uint16_t *)hd->k + k0 * hd->kv_row, hd->kv_row, rows,
              hd->D);
    right_of_transpose(&w->keys, &w->copy, width);
    right_of_rows(&w->keys_rows, &w->copy, width);
    memset(w->dk, 0, (size_t)(width * T_ROW) * sizeof *w->dk);
    memset(w->dv, 0, (size_t)(width * T_ROW) * sizeof *w->dv);
}

void K(tiles_bwd)(const struct bwd *at, const struct unit *u, int64_t k0)
{
    const struct attention *fwd = &at->args->fwd;
    int64_t S = fwd->S, rows = i64_min(TILE, S - k0);
    int64_t kv = (u->b * S + k0) * fwd->kv_row + kv_head(fwd, u->h_first) * fwd->D;
    struct head hd = head_of(fwd, DTYPE_BF16, u->b, u->h_first);
    struct tiles_bwd w;
    amx_init(&w.unit, all_rows);
    keys_begin(&w, &hd, k0);
    for (int64_t h = u->h_first; h < u->h_first + at->shared; h++) {
        struct head_grad gr = K(head_grad_of)(at, u, h);
        for (int64_t q0 = k0; q0 < S && first_tile(&gr.hd, q0) <= k0; q0 += TILE)
            tile_bwd(at, u, &gr, &w, q0, k0);
    }
    amx_release(&w.unit);
    store_transposed((uint16_t *)at->args->dk + kv, fwd->kv_row, w.dk, rows, fwd->D);
    store_transposed((uint16_t *)at->args->dv + kv, fwd->kv_row, w.dv, rows, fwd->D);
}

#endif
