/*
 * gpu_attention_args - arguments of the kernels of attention and of decoding, and the
 * shared memory they take.
 */
#ifndef DEVICE_GPU_GPU_ATTENTION_ARGS_H
#define DEVICE_GPU_GPU_ATTENTION_ARGS_H

#include "device/gpu/gpu_args.h"

/* struct attention, and where backward needs more, struct attention_bwd. */
struct gpu_attention {
    const void *q, *k, *v, *dout;
    void *out, *dq, *dk, *dv;
    float *lse, *delta;
    const int32_t *first_key; // (B, S) or NULL
    const int32_t *key_end;   // (B) or NULL
    int64_t q_row, kv_row;
    int32_t B, S, A, A_kv, D;
    int32_t n_parts; // of a head's columns, where one block cannot have all of them
    int32_t first_head;
    bool is_aligned; // every 8 columns of every row begin at a multiple of 16 bytes
    float scale;     // of scores
    struct dropout drop;
};

/* -- with tensor cores: heads of up to DP columns, 4 warps --------------------------- */

#define ATTENTION_THREADS 128
#define ATTENTION_TILE 64 // queries or keys that a block owns; a warp has 16 of them
/* 32-bit words from row to row in shared memory. Four more than a row has: load_matrix
 * then finds 8 rows in different banks. */
#define ATTENTION_ROW(DP) ((DP) / 2 + 4)
/* Keys that dq takes at a time, and queries that dk and dv do: so many that a block fits
 * into 64 KiB, and the sums of a thread into its registers. */
#define ATTENTION_KEYS(DP) ((DP) > 64 ? 32 : 64)
#define ATTENTION_QUERIES(DP) ((DP) == 64 || (DP) == 96 ? 32 : 16)
/* Of a query for dk and dv: lse, delta, first key, 16 bytes for what dropout keeps. */
#define ATTENTION_QUERY_WORDS 7

#define ATTENTION_FWD_WORDS(DP) (3 * ATTENTION_TILE * ATTENTION_ROW(DP))
#define ATTENTION_DQ_WORDS(DP)                                                           \
    (2 * (ATTENTION_TILE + ATTENTION_KEYS(DP)) * ATTENTION_ROW(DP))
#define ATTENTION_DKV_WORDS(DP)                                                          \
    (2 * (ATTENTION_TILE + 2 * ATTENTION_QUERIES(DP)) * ATTENTION_ROW(DP) +              \
     2 * ATTENTION_QUERIES(DP) * ATTENTION_QUERY_WORDS)

/* -- without: any number of columns, 256 threads ------------------------------------- */

#define PLAIN_THREADS 256
#define PLAIN_TILE 64  // queries and keys
#define PLAIN_CHUNK 32 // columns that scores are summed over at a time
#define PLAIN_ROW (PLAIN_TILE + 4)

struct gpu_attention_plain {
    union {
        struct { // columns of two tensors, one after another
            float x[PLAIN_CHUNK][PLAIN_ROW], y[PLAIN_CHUNK][PLAIN_ROW];
        } columns;
        float rows[PLAIN_TILE][PLAIN_ROW]; // of one, 64 columns of them
    } in;
    float p[PLAIN_TILE][PLAIN_ROW]; // the factors of those rows
};

/* -- decoding ------------------------------------------------------------------------ */

#define DECODE_KEYS 32 // that a block of scores has
#define DECODE_COLUMNS 32
#define DECODE_SCORE_THREADS 128
#define DECODE_OUT_THREADS 256
#define DECODE_WARPS (DECODE_OUT_THREADS / 32)

struct gpu_decode {
    void *out;
    const void *q, *keys, *values;
    int64_t kv_row;
    float *scores;
    int32_t n_keys, A, A_kv, D;
    float scale;
};

struct gpu_decode_shared {
    float p[DECODE_OUT_THREADS];
    float sums[DECODE_WARPS][DECODE_COLUMNS];
    float tops[DECODE_WARPS], totals[DECODE_WARPS];
};

#define MATVEC_THREADS 128
#define MATVEC_OUTPUTS 2 // that a warp computes together: what it reads of x serves both
#define MATVEC_ROWS 8    // likewise, of x

struct gpu_matvec {
    void *y;
    const void *w, *x;
    const float *b;
    int64_t R, O, I;
    enum dtype w_dtype, y_dtype;
};

#endif
