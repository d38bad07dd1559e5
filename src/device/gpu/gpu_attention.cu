/*
 * Causal attention by tensor cores, forward, of types of 16 bits: a running maximum and
 * sum per row (online softmax); what was summed is rescaled when the maximum grows.
 *
 * A block has 64 queries of one head of one sample, a warp 16 of them. It walks the keys
 * that they see in tiles of 128 counted from the sample's key 0, ascending, the maximum
 * taken once per tile: so the bits depend on the sample alone, and what is rounded is
 * what the contract says. A tile comes in parts of 64 rows, keys before values, through
 * two buffers: while one is worked on the next is copied, and one barrier per part is
 * enough, since whoever passes it is done with the other buffer.
 *
 * Scores and probabilities never leave the registers: the fragment that a product leaves
 * is what the next one takes. A part of which no pair is seen is not loaded.
 */
#include "device/gpu/gpu_attention_tile.h"

#if GPU_DTYPE != 0

#define PART ATTENTION_TILE
#define COLUMNS (2 * PART / 8) // of a tile of keys, in eights

/* The way through the keys. */
struct walk {
    const T *keys, *values; // row 0
    uint32_t *buffers;
    int first, last; // parts that are seen
    int turn;        // which one of the buffers is the next to be worked on
};

/* The thread's two rows. */
struct rows {
    int q[2], first_key[2], last_key[2];
    float max[2], sum[2]; // of scaled scores; of exponentials in this thread's columns
};

GPU_FN void fetch(const struct walk *w, const struct gpu_attention *a, const T *from,
                  int part, const int DP)
{
    uint32_t *to = w->buffers + w->turn * PART * ATTENTION_ROW(DP);
    int row = part * PART;
    load_tile(to, a, from + row * a->kv_row, a->kv_row, a->S - row, PART, DP);
    copy_async_commit();
}

/* Waits for the part that was fetched last, and begins to fetch the one after it. */
GPU_FN const uint32_t *next_part(struct walk *w, const struct gpu_attention *a, int part,
                                 const bool is_value, const int DP)
{
    const uint32_t *now = w->buffers + w->turn * PART * ATTENTION_ROW(DP);
    int begin = most_of(part / 2 * 2, w->first); // of the tile
    int end = least_of(part / 2 * 2 + 1, w->last);
    bool is_end = part == end; // of the tile's keys, or of its values
    copy_async_wait(0);
    __syncthreads();
    w->turn = 1 - w->turn;
    if (!is_value || part < w->last)
        fetch(w, a, is_value == is_end ? w->keys : w->values,
              is_end && !is_value ? begin : part + 1, DP);
    return now;
}

/* s := scores of the warp's queries and the 128 keys at k0, -inf where they are not
 * seen. */
GPU_FN void scores(float (*s)[4], struct walk *w, const struct rows *rows,
                   const uint32_t *queries, const struct gpu_attention *a, int k0,
                   const int DP)
{
    GPU_UNROLL
    for (int i = 0; i < 2; i++) {
        int part = k0 / PART + i;
        clear(s + i * PART / 8, PART / 8);
        if (part >= w->first && part <= w->last)
            add_over_columns(s + i * PART / 8, queries, next_part(w, a, part, false, DP),
                             PART, DP);
    }
    if (k0 >= rows->first_key[1] && k0 + 2 * PART - 1 <= rows->last_key[0])
        return; // both rows see all
    int key = k0 + (int)threadIdx.x % 4 * 2;
    GPU_UNROLL
    for (int n = 0; n < COLUMNS; n++) {
        GPU_UNROLL
        for (int j = 0; j < 4; j++)
            if (!is_seen(rows->last_key[j / 2], rows->first_key[j / 2],
                         key + 8 * n + j % 2))
                s[n][j] = -INFINITY;
    }
}

/* s := exp(scaled scores - maximum so far), what was summed so far is rescaled to it. */
GPU_FN void softmax(float (*s)[4], float (*out)[4], struct rows *rows, float scale,
                    const int DP)
{
    GPU_UNROLL
    for (int i = 0; i < 2; i++) {
        float top = -INFINITY, sum = 0.0F;
        GPU_UNROLL
        for (int n = 0; n < COLUMNS; n++)
            top = fmaxf(top, fmaxf(s[n][2 * i], s[n][2 * i + 1]));
        top = fmaxf(top, __shfl_xor_sync(GPU_ALL_LANES, top, 1));
        top = fmaxf(top, __shfl_xor_sync(GPU_ALL_LANES, top, 2));
        top = fmaxf(rows->max[i], top * scale);
        // a row that has seen no key yet has only exponentials of -inf, which are 0
        float shift = top > -INFINITY ? -top : 0.0F;
        float shrink = gpu_exp(rows->max[i] + shift);
        GPU_UNROLL
        for (int n = 0; n < COLUMNS; n++) {
            GPU_UNROLL
            for (int j = 2 * i; j < 2 * i + 2; j++) {
                s[n][j] = gpu_exp(fmaf(s[n][j], scale, shift));
                sum += s[n][j];
            }
        }
        GPU_UNROLL
        for (int n = 0; n < DP / 8; n++) {
            out[n][2 * i] *= shrink;
            out[n][2 * i + 1] *= shrink;
        }
        rows->sum[i] = fmaf(rows->sum[i], shrink, sum);
        rows->max[i] = top;
    }
}

/* Of the pairs with the 128 keys at k0. */
GPU_FN void drop(float (*s)[4], const struct rows *rows, const struct gpu_attention *a,
                 int b, int h, int k0)
{
    GPU_UNROLL
    for (int i = 0; i < 2; i++) {
        uint32_t kept = dropout_kept_in_row(a, b, h, rows->q[i], k0);
        GPU_UNROLL
        for (int n = 0; n < COLUMNS; n++) {
            GPU_UNROLL
            for (int j = 0; j < 2; j++)
                s[n][2 * i + j] *= kept >> (2 * n + j) & 1 ? a->drop.scale : 0.0F;
        }
    }
}

/* out += the dropped and rounded probabilities times values. */
GPU_FN void add_values(float (*out)[4], float (*s)[4], struct walk *w,
                       const struct gpu_attention *a, int k0, const int DP)
{
    uint32_t p[2 * COLUMNS];
    GPU_UNROLL
    for (int n = 0; n < COLUMNS; n++)
        pack_columns(p + 2 * n, s[n]);
    GPU_UNROLL
    for (int i = 0; i < 2; i++) {
        int part = k0 / PART + i;
        if (part >= w->first && part <= w->last)
            add_over_rows(out, p + i * COLUMNS, next_part(w, a, part, true, DP), PART,
                          DP);
    }
}

GPU_FN void finish(float (*out)[4], const struct rows *rows,
                   const struct gpu_attention *a, int b, int h, const int DP)
{
    int lane = (int)threadIdx.x % 32, warp_q = rows->q[0] - lane / 4;
    float inverse[2];
    GPU_UNROLL
    for (int i = 0; i < 2; i++) {
        float sum = rows->sum[i];
        sum += __shfl_xor_sync(GPU_ALL_LANES, sum, 1);
        sum += __shfl_xor_sync(GPU_ALL_LANES, sum, 2);
        inverse[i] = 1.0F / sum;
        if (lane % 4 == 0 && rows->q[i] < a->S)
            a->lse[statistics_at(a, b, h) + rows->q[i]] = rows->max[i] + gpu_log(sum);
    }
    T *to = (T *)a->out + out_at(a, b, h) + warp_q * out_row(a);
    store_tile(to, a, out_row(a), a->S - warp_q, out, inverse, DP);
}

GPU_FN void forward(const struct gpu_attention *a, uint32_t *sh, const int DP)
{
    struct place at = query_place(a, ATTENTION_TILE);
    int b = at.b, h = at.h, q0 = at.tile * ATTENTION_TILE;
    int lane = (int)threadIdx.x % 32, warp_row = (int)threadIdx.x / 32 * 16;
    const uint32_t *queries = sh + warp_row * ATTENTION_ROW(DP);
    float out[ATTENTION_DP_MOST / 8][4], s[COLUMNS][4];
    struct rows rows;
    struct walk w;

    w.keys = (const T *)a->k + keys_at(a, b, kv_head_of(a, h));
    w.values = (const T *)a->v + keys_at(a, b, kv_head_of(a, h));
    w.buffers = sh + ATTENTION_TILE * ATTENTION_ROW(DP);
    w.first = first_key_of(a, b, q0) / PART;
    w.last = (least_of(q0 + ATTENTION_TILE, a->S) - 1) / PART;
    w.turn = 0;
    GPU_UNROLL
    for (int i = 0; i < 2; i++) {
        rows.q[i] = q0 + warp_row + lane / 4 + 8 * i;
        rows.first_key[i] = first_key_of(a, b, rows.q[i]);
        rows.last_key[i] = last_key_of(a, b, rows.q[i]);
        rows.max[i] = -INFINITY;
        rows.sum[i] = 0.0F;
    }
    clear(out, DP / 8);
    load_tile(sh, a, (const T *)a->q + queries_at(a, b, h) + q0 * a->q_row, a->q_row,
              a->S - q0, ATTENTION_TILE, DP);
    fetch(&w, a, w.keys, w.first, DP);
    for (int k0 = w.first / 2 * 2 * PART; k0 <= w.last * PART; k0 += 2 * PART) {
        scores(s, &w, &rows, queries, a, k0, DP);
        softmax(s, out, &rows, a->scale, DP);
        if (a->drop.threshold > 0)
            drop(s, &rows, a, b, h, k0);
        add_values(out, s, &w, a, k0, DP);
    }
    finish(out, &rows, a, b, h, DP);
}

GPU_KERNEL(N(attention_32), ATTENTION_THREADS, struct gpu_attention, a)
{
    SHARED(uint32_t, sh);
    forward(&a, sh, 32);
}

GPU_KERNEL(N(attention_64), ATTENTION_THREADS, struct gpu_attention, a)
{
    SHARED(uint32_t, sh);
    forward(&a, sh, 64);
}

GPU_KERNEL(N(attention_96), ATTENTION_THREADS, struct gpu_attention, a)
{
    SHARED(uint32_t, sh);
    forward(&a, sh, 96);
}

GPU_KERNEL(N(attention_128), ATTENTION_THREADS, struct gpu_attention, a)
{
    SHARED(uint32_t, sh);
    forward(&a, sh, 128);
}

#endif
