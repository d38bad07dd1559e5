/*
 * Attention and decoding on a GPU: which kernel computes a head of so many columns, and
 * how it is launched.
 */
#include "device/gpu/gpu_attention_args.h"
#include "device/gpu/gpu_device.h"
#include "device/gpu/gpu_table.h"

#include <math.h>

/* -- kernels ------------------------------------------------------------------------- */

/* Those of one size of head. */
struct head_kernels {
    int64_t columns; // at most; of the last in a list, of a block: more are more blocks
    gpu_kernel *fwd, *dq, *dkv;
    size_t fwd_bytes, dq_bytes, dkv_bytes; // of shared memory
    int64_t tile;                          // queries or keys of a block
    uint32_t threads;
};

#define WORD_BYTES sizeof(uint32_t)
#define WITH_TENSOR_CORES(DP, type)                                                      \
    {                                                                                    \
        DP, gpu_attention_##DP##_##type, gpu_attention_dq_##DP##_##type,                 \
            gpu_attention_dkv_##DP##_##type, ATTENTION_FWD_WORDS(DP) * WORD_BYTES,       \
            ATTENTION_DQ_WORDS(DP) * WORD_BYTES, ATTENTION_DKV_WORDS(DP) * WORD_BYTES,   \
            ATTENTION_TILE, ATTENTION_THREADS                                            \
    }
#define PLAIN(columns, type)                                                             \
    {                                                                                    \
        columns, gpu_attention_plain_##columns##_##type,                                 \
            gpu_attention_plain_dq_##columns##_##type,                                   \
            gpu_attention_plain_dkv_##columns##_##type,                                  \
            sizeof(struct gpu_attention_plain), sizeof(struct gpu_attention_plain),      \
            sizeof(struct gpu_attention_plain), PLAIN_TILE, PLAIN_THREADS                \
    }

extern gpu_kernel gpu_attention_plain_64_f32, gpu_attention_plain_dq_64_f32,
    gpu_attention_plain_dkv_64_f32, gpu_attention_plain_128_f32,
    gpu_attention_plain_dq_128_f32, gpu_attention_plain_dkv_128_f32,
    gpu_attention_plain_256_f32, gpu_attention_plain_dq_256_f32,
    gpu_attention_plain_dkv_256_f32;
extern gpu_kernel gpu_attention_32_f16, gpu_attention_dq_32_f16, gpu_attention_dkv_32_f16,
    gpu_attention_64_f16, gpu_attention_dq_64_f16, gpu_attention_dkv_64_f16,
    gpu_attention_96_f16, gpu_attention_dq_96_f16, gpu_attention_dkv_96_f16,
    gpu_attention_128_f16, gpu_attention_dq_128_f16, gpu_attention_dkv_128_f16,
    gpu_attention_plain_256_f16, gpu_attention_plain_dq_256_f16,
    gpu_attention_plain_dkv_256_f16;
extern gpu_kernel gpu_attention_32_bf16, gpu_attention_dq_32_bf16,
    gpu_attention_dkv_32_bf16, gpu_attention_64_bf16, gpu_attention_dq_64_bf16,
    gpu_attention_dkv_64_bf16, gpu_attention_96_bf16, gpu_attention_dq_96_bf16,
    gpu_attention_dkv_96_bf16, gpu_attention_128_bf16, gpu_attention_dq_128_bf16,
    gpu_attention_dkv_128_bf16, gpu_attention_plain_256_bf16,
    gpu_attention_plain_dq_256_bf16, gpu_attention_plain_dkv_256_bf16;
TYPED_KERNEL(attention_delta);
TYPED_KERNEL(decode_scores);
TYPED_KERNEL(decode_out);
TYPED_KERNEL(matvec);

static const struct head_kernels of_f32[] = {PLAIN(64, f32), PLAIN(128, f32),
                                             PLAIN(256, f32)};
static const struct head_kernels of_f16[] = {
    WITH_TENSOR_CORES(32, f16), WITH_TENSOR_CORES(64, f16), WITH_TENSOR_CORES(96, f16),
    WITH_TENSOR_CORES(128, f16), PLAIN(256, f16)};
static const struct head_kernels of_bf16[] = {
    WITH_TENSOR_CORES(32, bf16), WITH_TENSOR_CORES(64, bf16), WITH_TENSOR_CORES(96, bf16),
    WITH_TENSOR_CORES(128, bf16), PLAIN(256, bf16)};

static const struct head_kernels *kernels_for(enum dtype dtype, int64_t D)
{
    const struct head_kernels *all = dtype == DTYPE_F32   ? of_f32
                                     : dtype == DTYPE_F16 ? of_f16
                                                          : of_bf16;
    size_t n = dtype == DTYPE_F32 ? ARRAY_LEN(of_f32) : ARRAY_LEN(of_f16), i = 0;
    while (i + 1 < n && all[i].columns < D)
        i++;
    return &all[i];
}

/* -- arguments ----------------------------------------------------------------------- */

/* Whether the rows of a tensor can be read by 16 bytes. */
static bool is_by_16(const void *x, int64_t row, enum dtype dtype)
{
    return (uintptr_t)x % 16 == 0 && (size_t)row * dtype_bytes(dtype) % 16 == 0;
}

static struct gpu_attention args_of(struct stream *s, const struct attention *at,
                                    const struct head_kernels *k)
{
    enum dtype dtype = s->dev->dtype;
    size_t keys_bytes = (size_t)(at->B * at->S) * sizeof *at->first_key;
    size_t ends_bytes = (size_t)at->B * sizeof *at->key_end;
    bool is_aligned =
        is_by_16(at->q, at->q_row, dtype) && is_by_16(at->k, at->kv_row, dtype) &&
        is_by_16(at->v, at->kv_row, dtype) && is_by_16(at->out, at->D, dtype);
    CHECK(at->S <= INT32_MAX / 2 && at->A * at->D <= INT32_MAX,
          "attention of %lld tokens", (long long)at->S);
    return (struct gpu_attention){
        .q = at->q,
        .k = at->k,
        .v = at->v,
        .out = at->out,
        .lse = at->lse,
        .first_key = at->first_key ? gpu_upload(s, at->first_key, keys_bytes) : NULL,
        .key_end = at->key_end ? gpu_upload(s, at->key_end, ends_bytes) : NULL,
        .q_row = at->q_row,
        .kv_row = at->kv_row,
        .B = (int32_t)at->B,
        .S = (int32_t)at->S,
        .A = (int32_t)at->A,
        .A_kv = (int32_t)at->A_kv,
        .D = (int32_t)at->D,
        .n_parts = (int32_t)gpu_parts(at->D, k->columns),
        .first_head = (int32_t)at->first_head,
        .is_aligned = is_aligned,
        .scale = 1.0F / sqrtf((float)at->D),
        .drop = at->drop};
}

/* Blocks of a tile of queries or keys each, of so many heads. */
static struct gpu_grid tiles_of(const struct gpu_attention *a, int64_t heads,
                                const struct head_kernels *k, size_t shared_bytes)
{
    int64_t n_tiles = gpu_parts(a->S, k->tile);
    return (struct gpu_grid){.blocks = a->B * heads * n_tiles * a->n_parts,
                             .columns = 1,
                             .threads = k->threads,
                             .shared_bytes = shared_bytes};
}

/* -- the table ----------------------------------------------------------------------- */

void gpu_table_attention_fwd(struct stream *s, const struct attention *at)
{
    const struct head_kernels *k = kernels_for(s->dev->dtype, at->D);
    struct gpu_attention a = args_of(s, at, k);
    struct gpu_grid grid = tiles_of(&a, a.A, k, k->fwd_bytes);
    gpu_table_launch(s, k->fwd, "attention", &grid, &a, sizeof a);
}

void gpu_table_attention_bwd(struct stream *s, const struct attention_bwd *at)
{
    enum dtype dtype = s->dev->dtype;
    const struct head_kernels *k = kernels_for(dtype, at->fwd.D);
    struct gpu_attention a = args_of(s, &at->fwd, k);
    a.dout = at->dout;
    a.dq = at->dq;
    a.dk = at->dk;
    a.dv = at->dv;
    a.delta = at->delta;
    a.is_aligned = a.is_aligned && is_by_16(a.dout, a.D, dtype) &&
                   is_by_16(a.dq, a.q_row, dtype) && is_by_16(a.dk, a.kv_row, dtype) &&
                   is_by_16(a.dv, a.kv_row, dtype);

    int64_t rows = (int64_t)a.B * a.A * a.S;
    struct gpu_grid by_rows = {.blocks = gpu_parts(rows, PLAIN_THREADS / 32),
                               .columns = 1,
                               .threads = PLAIN_THREADS};
    struct gpu_grid by_queries = tiles_of(&a, a.A, k, k->dq_bytes);
    struct gpu_grid by_keys = tiles_of(&a, a.A_kv, k, k->dkv_bytes);
    gpu_table_launch(s, attention_delta[dtype], "attention_delta", &by_rows, &a,
                     sizeof a);
    gpu_table_launch(s, k->dkv, "attention_dkv", &by_keys, &a, sizeof a);
    gpu_table_launch(s, k->dq, "attention_dq", &by_queries, &a, sizeof a);
}

void gpu_table_attention_decode(struct stream *s, const struct attention_decode *at)
{
    struct gpu_decode a = {.out = at->out,
                           .q = at->q,
                           .keys = at->keys,
                           .values = at->values,
                           .kv_row = at->kv_row,
                           .scores = at->scores,
                           .n_keys = (int32_t)at->n_keys,
                           .A = (int32_t)at->A,
                           .A_kv = (int32_t)at->A_kv,
                           .D = (int32_t)at->D,
                           .scale = 1.0F / sqrtf((float)at->D)};
    struct gpu_grid by_keys = {.blocks = gpu_parts(at->n_keys, DECODE_KEYS),
                               .columns = at->A,
                               .threads = DECODE_SCORE_THREADS};
    struct gpu_grid by_columns = {.blocks = gpu_parts(at->D, DECODE_COLUMNS),
                                  .columns = at->A,
                                  .threads = DECODE_OUT_THREADS,
                                  .shared_bytes = sizeof(struct gpu_decode_shared)};
    enum dtype dtype = s->dev->dtype;
    gpu_table_launch(s, decode_scores[dtype], "decode_scores", &by_keys, &a, sizeof a);
    gpu_table_launch(s, decode_out[dtype], "decode_out", &by_columns, &a, sizeof a);
}

void gpu_table_matvec(struct stream *s, const struct matvec *m)
{
    struct gpu_matvec a = {.y = m->y,
                           .w = m->w->data,
                           .x = m->x,
                           .b = m->b,
                           .R = m->R,
                           .O = m->w->rows,
                           .I = m->w->cols,
                           .w_dtype = m->w->dtype,
                           .y_dtype = m->y_dtype};
    int64_t outputs = MATVEC_OUTPUTS * (MATVEC_THREADS / 32);
    struct gpu_grid grid = {.blocks = m->R > 0 ? gpu_parts(a.O, outputs) : 0,
                            .columns = 1,
                            .threads = MATVEC_THREADS};
    gpu_table_launch(s, matvec[s->dev->dtype], "matvec", &grid, &a, sizeof a);
}
