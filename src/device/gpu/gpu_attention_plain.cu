/*
 * Causal attention without tensor cores: of floats, which are never rounded, and of heads
 * with more columns than gpu_attention.cu has registers for. The same steps in the same
 * order as there and in gpu_attention_bwd.cu, by tiles of 64 queries and 64 keys. And
 * delta, the first step of backward, for all.
 *
 * A block is 16 x 16 threads. A thread has 4 x 4 elements of a product: rows 4 y .. 4 y +
 * 3 and columns x, x + 16, x + 32, x + 48, where x = thread % 16, y = thread / 16. Of a
 * row, the keys a thread has are those that one block of Philox decides.
 *
 * A block has 256 columns of out, dq, dk and dv at most. Of a head with more, several
 * blocks compute a part each, every one the scores again.
 */
#include "device/gpu/gpu_attention_tile.h"

#define SIDE PLAIN_TILE
#define SUMS_MOST 4 // runs of SIDE columns that a block has

/* Rows of a tensor: the tile's first, elements from row to row, how many there are. */
struct tensor {
    const T *at;
    int64_t row;
    int n_rows;
};

GPU_FN struct tensor tensor_at(const void *x, int64_t first, int64_t row, int r, int S)
{
    struct tensor t;
    t.at = (const T *)x + first + r * row;
    t.row = row;
    t.n_rows = S - r;
    return t;
}

GPU_FN int thread_x(void)
{
    return (int)threadIdx.x % 16;
}

GPU_FN int thread_y(void)
{
    return (int)threadIdx.x / 16;
}

/* -- products ------------------------------------------------------------------------ */

GPU_FN void load_columns(float (*to)[PLAIN_ROW], const struct tensor *x, int first, int D)
{
    GPU_NO_UNROLL
    for (int i = (int)threadIdx.x; i < SIDE * PLAIN_CHUNK; i += PLAIN_THREADS) {
        int r = i / PLAIN_CHUNK, d = i % PLAIN_CHUNK;
        bool is_there = r < x->n_rows && first + d < D;
        to[d][r] = is_there ? widen(x->at[r * x->row + first + d]) : 0.0F;
    }
}

/* c := x y^T, over all D columns in ascending order. */
GPU_FN void over_columns(float c[4][4], struct gpu_attention_plain *sh,
                         const struct tensor *x, const struct tensor *y, int D)
{
    GPU_UNROLL
    for (int i = 0; i < 16; i++)
        c[i / 4][i % 4] = 0.0F;
    for (int first = 0; first < D; first += PLAIN_CHUNK) {
        int n = least_of(PLAIN_CHUNK, D - first);
        __syncthreads(); // what is there was read
        load_columns(sh->in.columns.x, x, first, D);
        load_columns(sh->in.columns.y, y, first, D);
        __syncthreads();
        for (int d = 0; d < n; d++) {
            const float *xs = sh->in.columns.x[d] + 4 * thread_y();
            const float *ys = sh->in.columns.y[d] + thread_x();
            GPU_UNROLL
            for (int i = 0; i < 16; i++)
                c[i / 4][i % 4] = fmaf(xs[i / 4], ys[16 * (i % 4)], c[i / 4][i % 4]);
        }
    }
}

/* c[m] += the rows of p, transposed, times columns [64 m, 64 m + 64) of y, over its rows
 * in ascending order. Columns count from `first`, the block's own. p may be written up to
 * the call. */
GPU_FN void add_rows_times_p(float (*c)[4][4], struct gpu_attention_plain *sh,
                             const struct tensor *y, int first, int D, const int DP)
{
    GPU_UNROLL
    for (int m = 0; m < DP / SIDE; m++) {
        int begin = first + m * SIDE;
        if (begin >= D)
            continue; // all threads do
        __syncthreads();
        GPU_NO_UNROLL
        for (int i = (int)threadIdx.x; i < SIDE * SIDE; i += PLAIN_THREADS) {
            int r = i / SIDE, d = i % SIDE;
            bool is_there = r < y->n_rows && begin + d < D;
            sh->in.rows[r][d] = is_there ? widen(y->at[r * y->row + begin + d]) : 0.0F;
        }
        __syncthreads();
        for (int r = 0; r < SIDE; r++) {
            const float *ps = sh->p[r] + 4 * thread_y();
            const float *ys = sh->in.rows[r] + thread_x();
            GPU_UNROLL
            for (int i = 0; i < 16; i++)
                c[m][i / 4][i % 4] =
                    fmaf(ps[i / 4], ys[16 * (i % 4)], c[m][i / 4][i % 4]);
        }
    }
}

GPU_FN void clear_sums(float (*c)[4][4], const int DP)
{
    GPU_UNROLL
    for (int i = 0; i < DP / SIDE * 16; i++)
        c[i / 16][i / 4 % 4][i % 4] = 0.0F;
}

/* Columns from `first` on of the tile's rows, each row times its factor. */
GPU_FN void store_sums(T *to, int64_t row, int n_rows, float (*c)[4][4],
                       const float factor[4], int first, int D, const int DP)
{
    GPU_UNROLL
    for (int i = 0; i < DP / SIDE * 16; i++) {
        int r = 4 * thread_y() + i / 4 % 4;
        int column = first + i / 16 * SIDE + thread_x() + 16 * (i % 4);
        if (r < n_rows && column < D)
            to[r * row + column] =
                narrow(c[i / 16][i / 4 % 4][i % 4] * factor[i / 4 % 4]);
    }
}

/* Whoever reads p is done; p := c rounded, by rows or transposed. */
GPU_FN void put(struct gpu_attention_plain *sh, float c[4][4], const bool by_rows)
{
    __syncthreads();
    GPU_UNROLL
    for (int i = 0; i < 16; i++) {
        int r = 4 * thread_y() + i / 4, column = thread_x() + 16 * (i % 4);
        float x = widen(narrow(c[i / 4][i % 4]));
        if (by_rows)
            sh->p[r][column] = x;
        else
            sh->p[column][r] = x;
    }
}

/* -- forward ------------------------------------------------------------------------- */

/* The thread's four rows. */
struct rows {
    int first_key[4], last_key[4];
    float max[4], sum[4]; // of scaled scores; of exponentials in this thread's columns
};

/* s := exp(scaled scores of 128 keys at k0 - maximum so far); sums are rescaled. */
GPU_FN void softmax(float (*s)[4][4], float (*out)[4][4], struct rows *rows,
                    const struct gpu_attention *a, int k0, const int DP)
{
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        float top = -INFINITY, sum = 0.0F;
        GPU_UNROLL
        for (int j = 0; j < 8; j++) {
            float *x = &s[j / 4][i][j % 4];
            if (!is_seen(rows->last_key[i], rows->first_key[i], k0 + thread_x() + 16 * j))
                *x = -INFINITY;
            top = fmaxf(top, *x);
        }
        GPU_UNROLL
        for (int step = 1; step < 16; step *= 2)
            top = fmaxf(top, __shfl_xor_sync(GPU_ALL_LANES, top, step));
        top = fmaxf(rows->max[i], top * a->scale);
        // a row that has seen no key yet has only exponentials of -inf, which are 0
        float shift = top > -INFINITY ? -top : 0.0F;
        float shrink = gpu_exp(rows->max[i] + shift);
        GPU_UNROLL
        for (int j = 0; j < 8; j++) {
            float *x = &s[j / 4][i][j % 4];
            *x = gpu_exp(fmaf(*x, a->scale, shift));
            sum += *x;
        }
        GPU_UNROLL
        for (int j = 0; j < DP / SIDE * 4; j++)
            out[j / 4][i][j % 4] *= shrink;
        rows->sum[i] = fmaf(rows->sum[i], shrink, sum);
        rows->max[i] = top;
    }
}

/* Of the thread's pairs of query q and the keys of a group of 128, bit j for its key
 * x + 16 j. */
GPU_FN uint32_t kept_of(const struct gpu_attention *a, struct place at, int q, int key)
{
    return dropout_kept(a, at.b, dropout_group(a, at.h, q, key), thread_x(), 1);
}

GPU_FN void drop(float (*s)[4][4], const struct gpu_attention *a, struct place at, int q,
                 int k0)
{
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        uint32_t kept = kept_of(a, at, q + i, k0);
        GPU_UNROLL
        for (int j = 0; j < 8; j++)
            s[j / 4][i][j % 4] *= kept >> j & 1 ? a->drop.scale : 0.0F;
    }
}

GPU_FN void finish(float (*out)[4][4], const struct rows *rows,
                   const struct gpu_attention *a, struct place at, int q0, const int DP)
{
    int q = q0 + 4 * thread_y();
    float inverse[4];
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        float sum = rows->sum[i];
        GPU_UNROLL
        for (int step = 1; step < 16; step *= 2)
            sum += __shfl_xor_sync(GPU_ALL_LANES, sum, step);
        inverse[i] = 1.0F / sum;
        if (thread_x() == 0 && at.part == 0 && q + i < a->S)
            a->lse[statistics_at(a, at.b, at.h) + q + i] = rows->max[i] + gpu_log(sum);
    }
    store_sums((T *)a->out + out_at(a, at.b, at.h) + q0 * out_row(a), out_row(a),
               a->S - q0, out, inverse, at.part * DP, a->D, DP);
}

GPU_FN void forward(const struct gpu_attention *a, struct gpu_attention_plain *sh,
                    const int DP)
{
    struct place at = query_place(a, SIDE);
    int q0 = at.tile * SIDE, q = q0 + 4 * thread_y();
    int64_t kv = keys_at(a, at.b, kv_head_of(a, at.h));
    struct tensor queries =
        tensor_at(a->q, queries_at(a, at.b, at.h), a->q_row, q0, a->S);
    int begin = first_key_of(a, at.b, q0) / SIDE * SIDE;
    int end = least_of(q0 + SIDE, a->S);
    float out[SUMS_MOST][4][4], s[2][4][4];
    struct rows rows;

    for (int i = 0; i < 4; i++) {
        rows.first_key[i] = first_key_of(a, at.b, q + i);
        rows.last_key[i] = last_key_of(a, at.b, q + i);
        rows.max[i] = -INFINITY;
        rows.sum[i] = 0.0F;
    }
    clear_sums(out, DP);
    for (int k0 = begin / (2 * SIDE) * (2 * SIDE); k0 < end; k0 += 2 * SIDE) {
        GPU_UNROLL
        for (int i = 0; i < 2; i++) {
            int key = k0 + i * SIDE;
            struct tensor keys = tensor_at(a->k, kv, a->kv_row, key, a->S);
            if (key >= begin && key < end)
                over_columns(s[i], sh, &queries, &keys, a->D);
            else
                clear_sums(s + i, SIDE); // softmax sees that they are not seen
        }
        softmax(s, out, &rows, a, k0, DP);
        if (a->drop.threshold > 0)
            drop(s, a, at, q, k0);
        GPU_UNROLL
        for (int i = 0; i < 2; i++) {
            int key = k0 + i * SIDE;
            struct tensor values = tensor_at(a->v, kv, a->kv_row, key, a->S);
            if (key < begin || key >= end)
                continue;
            put(sh, s[i], false);
            add_rows_times_p(out, sh, &values, at.part * DP, a->D, DP);
        }
    }
    finish(out, &rows, a, at, q0, DP);
}

/* -- backward ------------------------------------------------------------------------ */

/* No query sees a padding key. A separate loop, because grads() has no free registers. */
GPU_FN void clear_padding(float s[4][4], float dp[4][4], const struct gpu_attention *a,
                          int b, int k0)
{
    if (!a->key_end)
        return;
    GPU_UNROLL
    for (int j = 0; j < 4; j++)
        if (k0 + thread_x() + 16 * j >= a->key_end[b]) {
            GPU_UNROLL
            for (int i = 0; i < 4; i++)
                s[i][j] = dp[i][j] = 0.0F;
        }
}

/* From scores s and dp = dout v^T of 64 queries at q0 and 64 keys at k0, of head at.h: p,
 * dropped, and ds in their places. */
GPU_FN void grads(float s[4][4], float dp[4][4], const struct gpu_attention *a,
                  struct place at, int q0, int k0)
{
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        int q = q0 + 4 * thread_y() + i, first_key = first_key_of(a, at.b, q);
        int64_t row = statistics_at(a, at.b, at.h) + q;
        float lse = q < a->S ? a->lse[row] : 0.0F;
        float delta = q < a->S ? a->delta[row] : 0.0F;
        uint32_t kept = 0;
        if (a->drop.threshold > 0)
            kept = kept_of(a, at, q, k0) >> k0 % 128 / 16;
        GPU_UNROLL
        for (int j = 0; j < 4; j++) {
            float factor = kept >> j & 1 ? a->drop.scale : 0.0F;
            if (a->drop.threshold == 0)
                factor = 1.0F;
            bool seen = is_seen(q, first_key, k0 + thread_x() + 16 * j);
            float p = gpu_exp(fmaf(s[i][j], a->scale, -lse));
            float ds = p * (dp[i][j] * factor - delta) * a->scale;
            s[i][j] = seen ? p * factor : 0.0F;
            dp[i][j] = seen ? ds : 0.0F;
        }
    }
    clear_padding(s, dp, a, at.b, k0);
}

GPU_FN void grad_queries(const struct gpu_attention *a, struct gpu_attention_plain *sh,
                         const int DP)
{
    struct place at = query_place(a, SIDE);
    int q0 = at.tile * SIDE;
    int64_t kv = keys_at(a, at.b, kv_head_of(a, at.h));
    struct tensor queries =
        tensor_at(a->q, queries_at(a, at.b, at.h), a->q_row, q0, a->S);
    struct tensor dout = tensor_at(a->dout, out_at(a, at.b, at.h), out_row(a), q0, a->S);
    int end = least_of(q0 + SIDE, a->S);
    float dq[SUMS_MOST][4][4], s[4][4], dp[4][4];
    const float one[4] = {1.0F, 1.0F, 1.0F, 1.0F};

    clear_sums(dq, DP);
    for (int k0 = first_key_of(a, at.b, q0) / SIDE * SIDE; k0 < end; k0 += SIDE) {
        struct tensor keys = tensor_at(a->k, kv, a->kv_row, k0, a->S);
        struct tensor values = tensor_at(a->v, kv, a->kv_row, k0, a->S);
        over_columns(s, sh, &queries, &keys, a->D);
        over_columns(dp, sh, &dout, &values, a->D);
        grads(s, dp, a, at, q0, k0);
        put(sh, dp, false);
        add_rows_times_p(dq, sh, &keys, at.part * DP, a->D, DP);
    }
    store_sums((T *)a->dq + queries_at(a, at.b, at.h) + q0 * a->q_row, a->q_row,
               a->S - q0, dq, one, at.part * DP, a->D, DP);
}

/* Of the keys of one head: over the heads of queries that share them, then queries. */
GPU_FN void grad_keys(const struct gpu_attention *a, struct gpu_attention_plain *sh,
                      const int DP)
{
    struct place at = block_place(a, a->A_kv, SIDE);
    int k0 = at.tile * SIDE, shared = a->A / a->A_kv, kv_head = at.h;
    int64_t kv = keys_at(a, at.b, kv_head);
    struct tensor keys = tensor_at(a->k, kv, a->kv_row, k0, a->S);
    struct tensor values = tensor_at(a->v, kv, a->kv_row, k0, a->S);
    int last = last_query_of(a, at.b, k0 + SIDE - 1);
    float dk[SUMS_MOST][4][4], dv[SUMS_MOST][4][4], s[4][4], dp[4][4];
    const float one[4] = {1.0F, 1.0F, 1.0F, 1.0F};

    clear_sums(dk, DP);
    clear_sums(dv, DP);
    for (at.h = kv_head * shared; at.h < (kv_head + 1) * shared; at.h++)
        for (int q0 = k0; q0 <= last; q0 += SIDE) {
            struct tensor queries =
                tensor_at(a->q, queries_at(a, at.b, at.h), a->q_row, q0, a->S);
            struct tensor dout =
                tensor_at(a->dout, out_at(a, at.b, at.h), out_row(a), q0, a->S);
            over_columns(s, sh, &queries, &keys, a->D);
            over_columns(dp, sh, &dout, &values, a->D);
            grads(s, dp, a, at, q0, k0);
            put(sh, s, true);
            add_rows_times_p(dv, sh, &dout, at.part * DP, a->D, DP);
            put(sh, dp, true);
            add_rows_times_p(dk, sh, &queries, at.part * DP, a->D, DP);
        }
    store_sums((T *)a->dk + kv + k0 * a->kv_row, a->kv_row, a->S - k0, dk, one,
               at.part * DP, a->D, DP);
    store_sums((T *)a->dv + kv + k0 * a->kv_row, a->kv_row, a->S - k0, dv, one,
               at.part * DP, a->D, DP);
}

/* -- kernels ------------------------------------------------------------------------- */

/* delta = dout . out, a warp for each query of each head. */
GPU_KERNEL(N(attention_delta), PLAIN_THREADS, struct gpu_attention, a)
{
    int lane = (int)threadIdx.x % GPU_WARP;
    int64_t row =
        (int64_t)blockIdx.x * (PLAIN_THREADS / GPU_WARP) + threadIdx.x / GPU_WARP;
    if (row >= (int64_t)a.B * a.A * a.S)
        return;
    int64_t bh = row / a.S, q = row % a.S;
    int64_t at = out_at(&a, (int)(bh / a.A), (int)(bh % a.A)) + q * out_row(&a);
    const T *out = (const T *)a.out + at, *dout = (const T *)a.dout + at;
    float sum = 0.0F;
    for (int d = lane; d < a.D; d += GPU_WARP)
        sum = fmaf(widen(dout[d]), widen(out[d]), sum);
    sum = warp_sum(sum);
    if (lane == 0)
        a.delta[row] = sum;
}

GPU_KERNEL(N(attention_plain_256), PLAIN_THREADS, struct gpu_attention, a)
{
    SHARED(struct gpu_attention_plain, sh);
    forward(&a, sh, 256);
}

GPU_KERNEL(N(attention_plain_dq_256), PLAIN_THREADS, struct gpu_attention, a)
{
    SHARED(struct gpu_attention_plain, sh);
    grad_queries(&a, sh, 256);
}

GPU_KERNEL(N(attention_plain_dkv_256), PLAIN_THREADS, struct gpu_attention, a)
{
    SHARED(struct gpu_attention_plain, sh);
    grad_keys(&a, sh, 256);
}

#if GPU_DTYPE == 0
GPU_KERNEL(N(attention_plain_64), PLAIN_THREADS, struct gpu_attention, a)
{
    SHARED(struct gpu_attention_plain, sh);
    forward(&a, sh, 64);
}

GPU_KERNEL(N(attention_plain_128), PLAIN_THREADS, struct gpu_attention, a)
{
    SHARED(struct gpu_attention_plain, sh);
    forward(&a, sh, 128);
}

GPU_KERNEL(N(attention_plain_dq_64), PLAIN_THREADS, struct gpu_attention, a)
{
    SHARED(struct gpu_attention_plain, sh);
    grad_queries(&a, sh, 64);
}

GPU_KERNEL(N(attention_plain_dq_128), PLAIN_THREADS, struct gpu_attention, a)
{
    SHARED(struct gpu_attention_plain, sh);
    grad_queries(&a, sh, 128);
}

GPU_KERNEL(N(attention_plain_dkv_64), PLAIN_THREADS, struct gpu_attention, a)
{
    SHARED(struct gpu_attention_plain, sh);
    grad_keys(&a, sh, 64);
}

GPU_KERNEL(N(attention_plain_dkv_128), PLAIN_THREADS, struct gpu_attention, a)
{
    SHARED(struct gpu_attention_plain, sh);
    grad_keys(&a, sh, 128);
}
#endif
