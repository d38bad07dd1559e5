/*
 * Causal attention by tensor cores, backward, of types of 16 bits: the scores are
 * computed again and become probabilities with the row's saved log-sum-exp.
 *
 * Two kernels, so that every sum is one block's and has one order. dq: a block has 64
 * queries and walks their keys in ascending order. dk and dv: a block has 64 keys of one
 * head and walks the heads of queries that share them, and the queries of each that see
 * them, in ascending order; it computes scores transposed, keys by rows, so that what
 * the products over queries take is what the products over columns left in registers.
 * Both read rows through two sets of buffers, as forward does: one barrier for each.
 *
 * What dropout keeps is decided in eights of keys 16 apart. In dq a thread has all keys
 * of some eights; in dk and dv it has one key of each, so that a block draws what it
 * needs of a query into shared memory, where all its threads find it.
 */
#include "device/gpu/gpu_attention_tile.h"

#if GPU_DTYPE != 0

/* What a pair gives: p (dropped) and ds, from its score s and its dp = dout v^T. */
GPU_FN void pair_grad(float *s, float *dp, float lse, float delta, float factor,
                      bool seen, float scale)
{
    float p = gpu_exp(fmaf(*s, scale, -lse));
    float ds = p * (*dp * factor - delta) * scale;
    *s = seen ? p * factor : 0.0F;
    *dp = seen ? ds : 0.0F;
}

/* -- dq ------------------------------------------------------------------------------ */

/* The thread's two rows. */
struct rows {
    int q[2], first_key[2], last_key[2];
    float lse[2], delta[2];
    uint32_t kept[2]; // of the group of 128 keys
};

GPU_FN struct rows rows_of(const struct gpu_attention *a, int b, int h, int q)
{
    struct rows rows;
    GPU_UNROLL
    for (int i = 0; i < 2; i++) {
        bool is_there = q + 8 * i < a->S;
        int64_t at = statistics_at(a, b, h) + q + 8 * i;
        rows.q[i] = q + 8 * i;
        rows.first_key[i] = first_key_of(a, b, q + 8 * i);
        rows.last_key[i] = last_key_of(a, b, q + 8 * i);
        rows.lse[i] = is_there ? a->lse[at] : 0.0F;
        rows.delta[i] = is_there ? a->delta[at] : 0.0F;
        rows.kept[i] = 0;
    }
    return rows;
}

/* ds of the warp's queries and `keys` keys at k0, packed, from their scores and dp. */
GPU_FN void query_grads(uint32_t *ds, float (*s)[4], float (*dp)[4],
                        const struct rows *rows, const struct gpu_attention *a, int k0,
                        const int keys)
{
    bool is_whole = k0 >= rows->first_key[1] && k0 + keys - 1 <= rows->last_key[0];
    int key = k0 + (int)threadIdx.x % 4 * 2;
    GPU_UNROLL
    for (int n = 0; n < keys / 8; n++) {
        GPU_UNROLL
        for (int j = 0; j < 4; j++) {
            const int i = j / 2;
            bool seen = is_whole || is_seen(rows->last_key[i], rows->first_key[i],
                                            key + 8 * n + j % 2);
            uint32_t kept = rows->kept[i] >> (k0 % 128 / 4 + 2 * n + j % 2) & 1;
            float factor = a->drop.threshold == 0 ? 1.0F : kept ? a->drop.scale : 0.0F;
            pair_grad(&s[n][j], &dp[n][j], rows->lse[i], rows->delta[i], factor, seen,
                      a->scale);
        }
        pack_columns(ds + 2 * n, dp[n]);
    }
}

GPU_FN void fetch_keys(uint32_t *to, const struct gpu_attention *a, const void *x, int b,
                       int h, int k0, const int DP)
{
    const T *from =
        (const T *)x + keys_at(a, b, kv_head_of(a, h)) + (int64_t)k0 * a->kv_row;
    load_tile(to, a, from, a->kv_row, a->S - k0, ATTENTION_KEYS(DP), DP);
    copy_async_commit();
}

GPU_FN void fetch_block_queries(uint32_t *queries, uint32_t *dout,
                                const struct gpu_attention *a, int b, int h, int q0,
                                const int DP)
{
    load_tile(queries, a, (const T *)a->q + queries_at(a, b, h) + q0 * a->q_row, a->q_row,
              a->S - q0, ATTENTION_TILE, DP);
    load_tile(dout, a, (const T *)a->dout + out_at(a, b, h) + q0 * out_row(a), out_row(a),
              a->S - q0, ATTENTION_TILE, DP);
}

GPU_FN void grad_queries(const struct gpu_attention *a, uint32_t *sh, const int DP)
{
    const int keys = ATTENTION_KEYS(DP), row = ATTENTION_ROW(DP);
    struct place at = query_place(a, ATTENTION_TILE);
    int b = at.b, h = at.h, q0 = at.tile * ATTENTION_TILE;
    int warp_row = (int)threadIdx.x / 32 * 16, lane = (int)threadIdx.x % 32;
    uint32_t *dout = sh + ATTENTION_TILE * row;
    uint32_t *values = sh + 2 * ATTENTION_TILE * row, *keys_now = values + keys * row;
    struct rows rows = rows_of(a, b, h, q0 + warp_row + lane / 4);
    float dq[ATTENTION_DP_MOST / 8][4], s[8][4], dp[8][4], one[2] = {1.0F, 1.0F};
    int begin = first_key_of(a, b, q0) / keys * keys;
    int end = least_of(q0 + ATTENTION_TILE, a->S);

    clear(dq, DP / 8);
    fetch_block_queries(sh, dout, a, b, h, q0, DP);
    fetch_keys(values, a, a->v, b, h, begin, DP);
    for (int k0 = begin; k0 < end; k0 += keys) {
        uint32_t ds[16];
        copy_async_wait(0); // values are there, and nobody works on keys any more
        __syncthreads();
        fetch_keys(keys_now, a, a->k, b, h, k0, DP);
        if (a->drop.threshold > 0 && (k0 % 128 == 0 || k0 == begin)) {
            GPU_UNROLL
            for (int i = 0; i < 2; i++)
                rows.kept[i] = dropout_kept_in_row(a, b, h, rows.q[i], k0);
        }
        clear(dp, keys / 8);
        add_over_columns(dp, dout + warp_row * row, values, keys, DP);
        copy_async_wait(0);
        __syncthreads();
        if (k0 + keys < end)
            fetch_keys(values, a, a->v, b, h, k0 + keys, DP);
        clear(s, keys / 8);
        add_over_columns(s, sh + warp_row * row, keys_now, keys, DP);
        query_grads(ds, s, dp, &rows, a, k0, keys);
        add_over_rows(dq, ds, keys_now, keys, DP);
    }
    int first = q0 + warp_row;
    store_tile((T *)a->dq + queries_at(a, b, h) + first * a->q_row, a, a->q_row,
               a->S - first, dq, one, DP);
}

/* -- dk and dv ----------------------------------------------------------------------- */

/* The queries that are worked on, or come next. */
struct queries {
    uint32_t *q, *dout;
    float *lse, *delta;
    int32_t *first_key;
    uint8_t *kept; // (queries, 16): bit i of byte j for key 16 i + j of the group
};

GPU_FN struct queries queries_in(uint32_t *sh, int turn, const int DP)
{
    const int n = ATTENTION_QUERIES(DP), row = ATTENTION_ROW(DP);
    uint32_t *tiles = sh + 2 * (ATTENTION_TILE + turn * n) * row;
    uint32_t *words = sh + 2 * (ATTENTION_TILE + 2 * n) * row;
    struct queries x;
    words += turn * n * ATTENTION_QUERY_WORDS;
    x.q = tiles;
    x.dout = tiles + n * row;
    x.lse = (float *)words;
    x.delta = (float *)words + n;
    x.first_key = (int32_t *)words + 2 * n;
    x.kept = (uint8_t *)(words + 3 * n);
    return x;
}

/* Of the query that a thread brings, one of n; past the last one that sees no key. */
struct statistics {
    float lse, delta;
    int32_t first_key;
};

GPU_FN struct statistics statistics_of(const struct gpu_attention *a, int b, int h,
                                       int q0, const int n)
{
    struct statistics x = {0.0F, 0.0F, a->S};
    int q = q0 + (int)threadIdx.x;
    int64_t at = statistics_at(a, b, h) + q;
    if (q < a->S && q < q0 + n) {
        x.lse = a->lse[at];
        x.delta = a->delta[at];
        x.first_key = first_key_of(a, b, q);
    }
    return x;
}

GPU_FN void put_statistics(const struct queries *to, const struct statistics *x,
                           const int n)
{
    int i = (int)threadIdx.x;
    if (i < n) {
        to->lse[i] = x->lse;
        to->delta[i] = x->delta;
        to->first_key[i] = x->first_key;
    }
}

/* All but the statistics, which are waited for later. */
GPU_FN void fetch_queries(const struct queries *to, const struct gpu_attention *a, int b,
                          int h, int q0, int k0, const int DP)
{
    const int n = ATTENTION_QUERIES(DP);
    load_tile(to->q, a, (const T *)a->q + queries_at(a, b, h) + q0 * a->q_row, a->q_row,
              a->S - q0, n, DP);
    load_tile(to->dout, a, (const T *)a->dout + out_at(a, b, h) + q0 * out_row(a),
              out_row(a), a->S - q0, n, DP);
    copy_async_commit();
    if (a->drop.threshold == 0)
        return;
    GPU_NO_UNROLL
    for (int turn = 0; turn < n * 16 / ATTENTION_THREADS; turn++) {
        int i = turn * ATTENTION_THREADS + (int)threadIdx.x;
        uint32_t group = dropout_group(a, h, q0 + i / 16, k0);
        to->kept[i] = (uint8_t)dropout_kept(a, b, group, i % 16, 1);
    }
}

/* p and ds of 16 keys of the warp, from `key` on, and n queries at q0, packed. */
GPU_FN void key_grads(uint32_t *p, uint32_t *ds, float (*s)[4], float (*dp)[4],
                      const struct queries *x, const struct gpu_attention *a, int key,
                      int q0, const int n_queries)
{
    int lane = (int)threadIdx.x % 32, j0 = lane / 4, bit = key % 128 / 16;
    GPU_UNROLL
    for (int n = 0; n < n_queries / 8; n++) {
        GPU_UNROLL
        for (int j = 0; j < 4; j++) {
            int i = 8 * n + lane % 4 * 2 + j % 2, row = j0 + j / 2 * 8;
            bool seen = is_seen(q0 + i, x->first_key[i], key + row);
            float factor = 1.0F;
            if (a->drop.threshold > 0)
                factor = x->kept[i * 16 + row] >> bit & 1 ? a->drop.scale : 0.0F;
            pair_grad(&s[n][j], &dp[n][j], x->lse[i], x->delta[i], factor, seen,
                      a->scale);
        }
        pack_columns(p + 2 * n, s[n]);
        pack_columns(ds + 2 * n, dp[n]);
    }
}

/* The gradients of padding keys among the warp's 16 are 0: no query sees them. They are
 * cleared after the sums, which keeps the test out of the loop over queries. */
GPU_FN void clear_padding(float (*dk)[4], float (*dv)[4], const struct gpu_attention *a,
                          int b, int key, const int n_columns)
{
    int first = key + (int)threadIdx.x % 32 / 4;
    if (!a->key_end)
        return;
    GPU_UNROLL
    for (int n = 0; n < n_columns; n++) {
        GPU_UNROLL
        for (int j = 0; j < 4; j++)
            if (first + j / 2 * 8 >= a->key_end[b])
                dk[n][j] = dv[n][j] = 0.0F;
    }
}

GPU_FN void grad_keys(const struct gpu_attention *a, uint32_t *sh, const int DP)
{
    const int n = ATTENTION_QUERIES(DP), row = ATTENTION_ROW(DP);
    struct place at = block_place(a, a->A_kv, ATTENTION_TILE);
    int b = at.b, k0 = at.tile * ATTENTION_TILE, shared = a->A / a->A_kv;
    int warp_row = (int)threadIdx.x / 32 * 16, n_rows = a->S - k0;
    uint32_t *values = sh + ATTENTION_TILE * row;
    int64_t from = keys_at(a, b, at.h) + k0 * a->kv_row;
    float dk[ATTENTION_DP_MOST / 8][4], dv[ATTENTION_DP_MOST / 8][4];
    float one[2] = {1.0F, 1.0F};
    int last = last_query_of(a, b, k0 + ATTENTION_TILE - 1);
    int n_tiles = last / n - k0 / n + 1;

    clear(dk, DP / 8);
    clear(dv, DP / 8);
    load_tile(sh, a, (const T *)a->k + from, a->kv_row, n_rows, ATTENTION_TILE, DP);
    load_tile(values, a, (const T *)a->v + from, a->kv_row, n_rows, ATTENTION_TILE, DP);
    struct queries x = queries_in(sh, 0, DP), next;
    struct statistics coming = statistics_of(a, b, at.h * shared, k0, n);
    fetch_queries(&x, a, b, at.h * shared, k0, k0, DP);
    put_statistics(&x, &coming, n);
    for (int i = 0; i < n_tiles * shared; i++) {
        float s[4][4], dp[4][4];
        uint32_t p[8], ds[8];
        int q0 = k0 + i % n_tiles * n, next_q0 = k0 + (i + 1) % n_tiles * n;
        int next_h = at.h * shared + (i + 1) / n_tiles;
        bool is_last = i + 1 == n_tiles * shared;
        copy_async_wait(0); // nobody works on the other buffers any more
        __syncthreads();
        x = queries_in(sh, i % 2, DP);
        next = queries_in(sh, (i + 1) % 2, DP);
        if (!is_last) {
            coming = statistics_of(a, b, next_h, next_q0, n);
            fetch_queries(&next, a, b, next_h, next_q0, k0, DP);
        }
        clear(s, n / 8);
        clear(dp, n / 8);
        add_over_columns(s, sh + warp_row * row, x.q, n, DP);
        add_over_columns(dp, values + warp_row * row, x.dout, n, DP);
        key_grads(p, ds, s, dp, &x, a, k0 + warp_row, q0, n);
        add_over_rows(dv, p, x.dout, n, DP);
        add_over_rows(dk, ds, x.q, n, DP);
        if (!is_last)
            put_statistics(&next, &coming, n);
    }
    clear_padding(dk, dv, a, b, k0 + warp_row, DP / 8);
    store_tile((T *)a->dk + from + warp_row * a->kv_row, a, a->kv_row, n_rows - warp_row,
               dk, one, DP);
    store_tile((T *)a->dv + from + warp_row * a->kv_row, a, a->kv_row, n_rows - warp_row,
               dv, one, DP);
}

GPU_KERNEL(N(attention_dq_32), ATTENTION_THREADS, struct gpu_attention, a)
{
    SHARED(uint32_t, sh);
    grad_queries(&a, sh, 32);
}

GPU_KERNEL(N(attention_dq_64), ATTENTION_THREADS, struct gpu_attention, a)
{
    SHARED(uint32_t, sh);
    grad_queries(&a, sh, 64);
}

GPU_KERNEL(N(attention_dq_96), ATTENTION_THREADS, struct gpu_attention, a)
{
    SHARED(uint32_t, sh);
    grad_queries(&a, sh, 96);
}

GPU_KERNEL(N(attention_dq_128), ATTENTION_THREADS, struct gpu_attention, a)
{
    SHARED(uint32_t, sh);
    grad_queries(&a, sh, 128);
}

GPU_KERNEL(N(attention_dkv_32), ATTENTION_THREADS, struct gpu_attention, a)
{
    SHARED(uint32_t, sh);
    grad_keys(&a, sh, 32);
}

GPU_KERNEL(N(attention_dkv_64), ATTENTION_THREADS, struct gpu_attention, a)
{
    SHARED(uint32_t, sh);
    grad_keys(&a, sh, 64);
}

GPU_KERNEL(N(attention_dkv_96), ATTENTION_THREADS, struct gpu_attention, a)
{
    SHARED(uint32_t, sh);
    grad_keys(&a, sh, 96);
}

GPU_KERNEL(N(attention_dkv_128), ATTENTION_THREADS, struct gpu_attention, a)
{
    SHARED(uint32_t, sh);
    grad_keys(&a, sh, 128);
}

#endif
