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

#include "base/real.h"
#include "device/cpu/cpu_tiles.h"

#define BLOCK 16  // rows and columns of a tile of sums
#define PAIR 32   // of two of them
#define UNIT 512  // elements of a packed tile
#define H_ROW 160 // between rows of rounded scores
#define T_ROW 144 // between rows of transposed gradients: no power of two

static const uint8_t all_rows[AMX_TILES] = {16, 16, 16, 16, 16, 16, 16, 16};

/* Rows of a head, TILE of them, D of each rounded up to 32 with zeros. */
#define ROWS (TILE * DEPTH)

/* -- packing ------------------------------------------------------------------------- */

/* n elements, rounded up to GROUP with zeros. */
static void row_copy(uint16_t *restrict to, const uint16_t *restrict from, int64_t n)
{
    int64_t c = 0;
    for (; c + GROUP <= n; c += GROUP)
        memcpy(to + c, from + c, GROUP * sizeof *to);
    for (int64_t i = c; c < n && i < c + GROUP; i++)
        to[i] = i < n ? from[i] : 0;
}

/* Rows of x from `first`, TILE of them; those of the next tile are asked for: they lie on
 * pages of their own, where no processor looks ahead by itself. */
static void rows_copy(uint16_t *to, const void *x, int64_t stride, int64_t first,
                      int64_t S, int64_t D)
{
    const uint16_t *from = (const uint16_t *)x + first * stride;
    int64_t width = i64_round_up(D, GROUP), rows = i64_min(TILE, S - first);
    for (int64_t r = 0; r < rows; r++) {
        row_copy(to + r * width, from + r * stride, D);
        for (int64_t c = 0; first + TILE + r < S && c < D; c += GROUP)
            __builtin_prefetch(from + (TILE + r) * stride + c, 0, 2);
    }
    memset(to + rows * width, 0, (size_t)((TILE - rows) * width) * sizeof *to);
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
static void right_of_transpose(uint16_t *to, const uint16_t *x, int64_t width)
{
    for (int64_t k = 0; k < width; k += GROUP)
        for (int64_t r = 0; r < TILE; r += BLOCK)
            pairs_transpose(to + (k / GROUP * (TILE / BLOCK) + r / BLOCK) * UNIT,
                            x + r * width + k, width);
}

/* x as a right-hand side over its rows: tile (row / 32, column / 16). */
static void right_of_rows(uint16_t *to, const uint16_t *x, int64_t width)
{
    for (int64_t r = 0; r < TILE; r += 2)
        for (int64_t c = 0; c < width; c += BLOCK) {
            const uint16_t *even = x + r * width + c, *odd = even + width;
            uint16_t *pairs =
                to + (r / GROUP * (width / BLOCK) + c / BLOCK) * UNIT + r % GROUP * 16;
            for (int i = 0; i < BLOCK; i += VEC) {
                uvec low = uvec_from_halves(*(const hvec *)(even + i));
                uvec high = uvec_from_halves(*(const hvec *)(odd + i));
                uvec both = low | high << 16;
                memcpy(pairs + 2 * i, &both, sizeof both);
            }
        }
}

/* x^T as a left-hand side, x being right_of_rows(): the same tiles, each transposed. */
static void left_of_transpose(uint16_t *to, const uint16_t *pairs, int64_t width)
{
    for (int64_t i = 0; i < TILE * width; i += UNIT)
        pairs_transpose(to + i, pairs + i, 2 * BLOCK);
}

/* -- products ------------------------------------------------------------------------ */

/* p(q, key) = x(q) . y(key) of the blocks that are seen; y is right_of_transpose(). */
static void scores(struct amx_tiles *u, float *p, const struct tile *t, const uint16_t *x,
                   const uint16_t *y, int64_t width)
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
                const uint16_t *a = x + r * width + k;
                const uint16_t *b = y + (k / GROUP * (TILE / BLOCK) + c / BLOCK) * UNIT;
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
                      const struct tile *t, const uint16_t *x, int64_t width)
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
                const uint16_t *b = x + (k / GROUP * (width / BLOCK) + d / BLOCK) * UNIT;
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
                         const struct tile *t, const uint16_t *x, int64_t width)
{
    for (int64_t c = 0; c < t->n_keys; c += PAIR) {
        struct span queries = groups_of_queries(t, c);
        for (int64_t d = 0; d < width && queries.first < queries.end; d += PAIR) {
            float *to = y + d * T_ROW + c;
            sums_load(u, to, T_ROW);
            for (int64_t k = queries.first; k < queries.end; k += GROUP) {
                const uint16_t *a = x + (k / GROUP * (width / BLOCK) + d / BLOCK) * UNIT;
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
    _Alignas(64) uint16_t queries[ROWS];
    _Alignas(64) float out[TILE * DEPTH];
    float max[TILE], sum[TILE];
};

struct tiles_fwd { // what a thread works with
    struct amx_tiles unit;
    _Alignas(64) uint16_t copy[ROWS];
    _Alignas(64) uint16_t keys[ROWS];
    _Alignas(64) uint16_t values[ROWS];
    _Alignas(64) float p[TILE * P_ROW];
    _Alignas(64) uint16_t h[TILE * H_ROW]; // probabilities, dropped and rounded
    struct tiles_queries tiles[QUERY_TILES];
};

static void softmax(struct tiles_fwd *w, struct tiles_queries *qt, const struct head *hd,
                    const struct tile *t, int64_t width)
{
    struct softmax rows = {.max = qt->max, .sum = qt->sum, .out = qt->out, .row = width};
    int64_t n_keys = i64_round_up(t->n_keys, GROUP);
    tile_softmax(&rows, w->h, H_ROW, w->p, hd, t, DTYPE_BF16, true);
    for (int64_t r = 0; r < t->n_queries; r++) {
        struct span keys = visible(hd, t->q0 + r, t->k0, t->n_keys);
        uint16_t *h = w->h + r * H_ROW;
        memset(h, 0, (size_t)keys.first * sizeof *h);
        memset(h + keys.end, 0, (size_t)(n_keys - keys.end) * sizeof *h);
    }
}

static void queries_begin(struct tiles_queries *qt, const struct head *hd, int64_t q0)
{
    int64_t width = i64_round_up(hd->D, GROUP);
    qt->q0 = q0;
    rows_copy(qt->queries, hd->q, hd->q_row, q0, hd->S, hd->D);
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
        at->lse[(b * at->A + h) * at->S + qt->q0 + r] =
            qt->max[r] + (float)real_log((double)qt->sum[r]);
    }
}

/* The keys at k0, for every tile of queries that sees any of them. */
static void keys_fwd(struct tiles_fwd *w, const struct head *hd, int64_t k0, int n_tiles)
{
    int64_t width = i64_round_up(hd->D, GROUP);
    rows_copy(w->copy, hd->k, hd->kv_row, k0, hd->S, hd->D);
    right_of_transpose(w->keys, w->copy, width);
    rows_copy(w->copy, hd->v, hd->kv_row, k0, hd->S, hd->D);
    right_of_rows(w->values, w->copy, width);
    for (int i = 0; i < n_tiles; i++) {
        struct tiles_queries *qt = &w->tiles[i];
        struct output y = {.y = qt->out, .row = width};
        struct tile t;
        if (k0 < first_tile(hd, qt->q0) || k0 > qt->q0 || k0 >= hd->key_end)
            continue;
        tile_init(&t, hd, qt->q0, k0);
        scores(&w->unit, w->p, &t, qt->queries, w->keys, width);
        softmax(w, qt, hd, &t, width);
        over_keys(&w->unit, &y, w->h, &t, w->values, width);
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

/* Keys that a tile of queries, once packed, is used for; fewer of wide heads. */
#define KEY_TILES 4
#define KEY_COLUMNS DEPTH // of all of them together

/* A tile of keys. */
struct tiles_keys {
    int64_t k0;
    uint16_t *keys, *values, *keys_rows; // right-hand sides
    float *dk, *dv;                      // transposed, rows T_ROW apart
};

struct tiles_bwd { // what a thread works with
    struct amx_tiles unit;
    _Alignas(64) uint16_t queries[ROWS];
    _Alignas(64) uint16_t dout[ROWS];
    _Alignas(64) uint16_t queries_by[ROWS];
    _Alignas(64) uint16_t dout_by[ROWS];
    _Alignas(64) uint16_t copy[ROWS];
    _Alignas(64) float p[TILE * P_ROW];
    _Alignas(64) float dp[TILE * P_ROW];
    _Alignas(64) uint16_t p_pairs[TILE * TILE]; // of queries
    _Alignas(64) uint16_t ds_pairs[TILE * TILE];
    _Alignas(64) uint16_t ds[TILE * H_ROW];
    struct tiles_keys tiles[KEY_TILES];
    _Alignas(64) uint16_t keys[3 * TILE * KEY_COLUMNS];
    _Alignas(64) float sums[2 * KEY_COLUMNS * T_ROW];
};

/* What two rows of queries have of a vector of keys, rounded: as pairs; and as rows of
 * ds, upper and lower. */
INLINE void pair_store(struct tiles_bwd *w, int64_t r, int64_t c, const vec p[2],
                       const vec ds[2])
{
    int64_t at =
        (r / GROUP * (TILE / BLOCK) + c / BLOCK) * UNIT + r % GROUP * 16 + c % BLOCK * 2;
    uvec upper = vec_bf16_above(p[0]), lower = vec_bf16_above(p[1]);
    uvec pairs = upper >> 16 | (lower & 0xFFFF0000u);
    memcpy(w->p_pairs + at, &pairs, sizeof pairs);
    upper = vec_bf16_above(ds[0]);
    lower = vec_bf16_above(ds[1]);
    pairs = upper >> 16 | (lower & 0xFFFF0000u);
    memcpy(w->ds_pairs + at, &pairs, sizeof pairs);
    *(hvec *)(w->ds + r * H_ROW + c) = uvec_above(upper);
    *(hvec *)(w->ds + (r + 1) * H_ROW + c) = uvec_above(lower);
}

/* Rows r and r + 1 of scores and dp into their gradients, of which g says how; those that
 * no query sees, and rows beyond the last, are zeros. */
INLINE void pair_grads(struct tiles_bwd *w, const struct row_grad g[2], int64_t r,
                       int64_t n_keys, const bool is_dropped)
{
    enum { STEP = ROW_STEP / VEC };
    const float *p = w->p + r * P_ROW, *dp = w->dp + r * P_ROW;
    for (int64_t c = 0; c < n_keys; c += ROW_STEP) {
        vec e[2][STEP] = {{{0}}}, ds[2][STEP] = {{{0}}};
        for (int i = 0; i < 2; i++)
            if (!is_unseen(g[i].keys, c))
                grad_step(e[i], ds[i], p + i * P_ROW, dp + i * P_ROW, c, &g[i],
                          is_dropped);
        for (int i = 0; i < STEP; i++)
            pair_store(w, r, c + i * VEC, (vec[2]){e[0][i], e[1][i]},
                       (vec[2]){ds[0][i], ds[1][i]});
    }
}

static void grads(struct tiles_bwd *w, const struct head_grad *gr, const struct tile *t)
{
    int64_t n_keys = i64_round_up(t->n_keys, GROUP);
    for (int64_t r = 0; r < i64_round_up(t->n_queries, GROUP); r += 2) {
        float factors[2][FACTORS];
        struct row_grad g[2] = {{.factor = NULL}};
        for (int i = 0; i < 2 && r + i < t->n_queries; i++)
            g[i] = row_grad_of(factors[i], gr, t, r + i);
        if (gr->hd.drop->threshold > 0)
            pair_grads(w, g, r, n_keys, true);
        else
            pair_grads(w, g, r, n_keys, false);
    }
}

/* The queries whose rows are packed, and the keys of a tile. */
static void tile_bwd(const struct bwd *at, const struct unit *u,
                     const struct head_grad *gr, struct tiles_bwd *w,
                     const struct tiles_keys *keys, int64_t q0)
{
    int64_t width = i64_round_up(gr->hd.D, GROUP);
    struct output y;
    struct tile t;
    tile_init(&t, &gr->hd, q0, keys->k0);
    if (keys->k0 >= gr->hd.key_end) { // padding has no gradient, but dq's turn ends
        y = K(dq_begin)(at, u, gr, &t, 0);
        K(dq_end)(at, u, gr, &t, &y);
        return;
    }
    scores(&w->unit, w->p, &t, w->queries, keys->keys, width);
    scores(&w->unit, w->dp, &t, w->dout, keys->values, width);
    grads(w, gr, &t);
    over_queries(&w->unit, keys->dv, w->p_pairs, &t, w->dout_by, width);
    over_queries(&w->unit, keys->dk, w->ds_pairs, &t, w->queries_by, width);
    y = K(dq_begin)(at, u, gr, &t, 0);
    over_keys(&w->unit, &y, w->ds, &t, keys->keys_rows, width);
    K(dq_end)(at, u, gr, &t, &y);
}

static void queries_pack(struct tiles_bwd *w, const struct head_grad *gr, int64_t q0)
{
    int64_t S = gr->hd.S, D = gr->hd.D, width = i64_round_up(D, GROUP);
    rows_copy(w->queries, gr->hd.q, gr->hd.q_row, q0, S, D);
    right_of_rows(w->copy, w->queries, width);
    left_of_transpose(w->queries_by, w->copy, width);
    rows_copy(w->dout, gr->dout, gr->out_row, q0, S, D);
    right_of_rows(w->copy, w->dout, width);
    left_of_transpose(w->dout_by, w->copy, width);
}

/* Tile number i of those that are worked on. */
static void keys_begin(struct tiles_bwd *w, const struct head *hd, int64_t k0, int i)
{
    int64_t width = i64_round_up(hd->D, GROUP), size = TILE * width;
    struct tiles_keys *to = &w->tiles[i];
    uint16_t *x = w->keys + 3 * i * size;
    float *sums = w->sums + 2 * i * width * T_ROW;
    *to = (struct tiles_keys){.k0 = k0,
                              .keys = x,
                              .values = x + size,
                              .keys_rows = x + 2 * size,
                              .dk = sums,
                              .dv = sums + width * T_ROW};
    rows_copy(w->copy, hd->v, hd->kv_row, k0, hd->S, hd->D);
    right_of_transpose(to->values, w->copy, width);
    rows_copy(w->copy, hd->k, hd->kv_row, k0, hd->S, hd->D);
    right_of_transpose(to->keys, w->copy, width);
    right_of_rows(to->keys_rows, w->copy, width);
    memset(sums, 0, (size_t)(2 * width * T_ROW) * sizeof *sums);
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

static void keys_end(const struct bwd *at, const struct unit *u,
                     const struct tiles_keys *keys)
{
    const struct attention *fwd = &at->args->fwd;
    int64_t S = fwd->S, rows = i64_min(TILE, S - keys->k0);
    int64_t kv = (u->b * S + keys->k0) * fwd->kv_row + kv_head(fwd, u->h_first) * fwd->D;
    store_transposed((uint16_t *)at->args->dk + kv, fwd->kv_row, keys->dk, rows, fwd->D);
    store_transposed((uint16_t *)at->args->dv + kv, fwd->kv_row, keys->dv, rows, fwd->D);
}

/* The keys of n tiles, and all queries that see any of them. */
static void keys_bwd(const struct bwd *at, const struct unit *u, struct tiles_bwd *w,
                     int n)
{
    int64_t k_first = w->tiles[0].k0, k_last = w->tiles[n - 1].k0;
    for (int64_t h = u->h_first; h < u->h_first + at->shared; h++) {
        struct head_grad gr = K(head_grad_of)(at, u, h);
        for (int64_t q0 = k_first; q0 < gr.hd.S; q0 += TILE) {
            if (first_tile(&gr.hd, q0) > k_last)
                break;
            queries_pack(w, &gr, q0);
            for (int i = 0; i < n; i++)
                if (w->tiles[i].k0 <= q0 && first_tile(&gr.hd, q0) <= w->tiles[i].k0)
                    tile_bwd(at, u, &gr, w, &w->tiles[i], q0);
        }
    }
}

void K(tiles_bwd)(const struct bwd *at, const struct unit *u, struct span tiles)
{
    const struct attention *fwd = &at->args->fwd;
    struct head hd = head_of(fwd, DTYPE_BF16, u->b, u->h_first);
    int64_t most = i64_min(KEY_TILES, KEY_COLUMNS / i64_round_up(fwd->D, GROUP));
    struct tiles_bwd w;
    amx_init(&w.unit, all_rows);
    for (int64_t first = tiles.first; first < tiles.end; first += most) {
        int n = (int)i64_min(most, tiles.end - first);
        for (int i = 0; i < n; i++)
            keys_begin(&w, &hd, (first + i) * TILE, i);
        keys_bwd(at, u, &w, n);
        for (int i = 0; i < n; i++)
            keys_end(at, u, &w.tiles[i]);
    }
    amx_release(&w.unit);
}

#endif
