/*
 * kernel_cases - every kernel of kernels.h as one row of a table: its buffers in the
 * order of the call, how each is filled and how close it must come to the reference, and
 * the family of shapes to try it on.
 *
 * gemm is not here: its shapes and its bits have a test program of their own.
 */
#ifndef TESTS_KERNEL_CASES_H
#define TESTS_KERNEL_CASES_H

#include "kernel_test.h"

#define MAX_BUFFERS 9
#define MAX_IN_PLACE 2
#define VOCAB 17

struct shape {
    int64_t B, S;
    int64_t C;    // hidden, vocabulary or elements, as the kernel has it
    int64_t A, D; // attention only
    int64_t A_kv; // heads of keys and values
    double rate;  // of dropout
    int64_t first_sample;
};

/* Elements of a buffer, of one sample if it is PER_SAMPLE. */
enum extent {
    SIZE_S,
    SIZE_C,
    SIZE_SC,
    SIZE_VC,
    SIZE_AD,
    SIZE_SAD,
    SIZE_S3AD,
    SIZE_AS,
    SIZE_PARTIAL_C,
    SIZE_PARTIAL_2C,
    SIZE_SQUARES, // doubles, so two words each
};
enum share { WHOLE, PER_SAMPLE };
enum role { END, IN, OUT, UPDATED, SCRATCH };
enum fill { BELL, POSITIVE, TOKENS, POSITIONS, TARGETS, FIRST_KEYS };

struct buffer {
    enum role role;
    enum share share;
    enum extent extent;
    enum fill fill;
    double tolerance; // allowed: tolerance * (|want| + mean of |want|) + floor
    double floor;
};

struct pair {
    int out, in;
};

enum family { ROWS, ATTENTION, LOSS, FLAT };

struct kernel_case {
    const char *name;
    enum family family;
    void (*run)(const struct kernels *k, const struct shape *s, void **b);
    void (*prepare)(const struct kernels *ref, const struct shape *s, void **b);
    struct buffer buffers[MAX_BUFFERS];
    int n_in_place;
    struct pair in_place[MAX_IN_PLACE]; // one by one, then all together if outs differ
};

/* -- shapes -------------------------------------------------------------------------- */

static const int64_t samples[][2] = {{1, 1},  {2, 1},  {5, 1}, {7, 9},
                                     {1, 64}, {65, 1}, {2, 65}}; // B, S
static const int64_t columns[] = {1, 3, 7, 16, 17, 127, 128, 129, 768, 1000};
static const int64_t lengths[] = {1, 2, 7, 64, 127, 128, 129, 200, 257, 300};
static const int64_t head_sizes[] = {1, 5, 16, 64, 80};
static const int64_t vocabularies[] = {1, 2, 17, 1000, 50304};
static const int64_t counts[] = {1, 2, 15, 17, 1000, 16383, 16384, 16385, 50001};
static const double rates[] = {0, 0.1, 0.5};

/* Shape i of a family in *s; false when there are no more. */
static bool shape_at(enum family family, int64_t i, struct shape *s)
{
    *s = (struct shape){
        .A = 1, .A_kv = 1, .D = 1, .S = 1, .rate = rates[i % 3], .first_sample = 11};
    int64_t n_samples = ARRAY_LEN(samples), n_columns = ARRAY_LEN(columns);
    int64_t n_lengths = ARRAY_LEN(lengths), n_heads = ARRAY_LEN(head_sizes);
    int64_t n_vocabularies = ARRAY_LEN(vocabularies), n_counts = ARRAY_LEN(counts);
    switch (family) {
    case ROWS:
        s->B = samples[i % n_samples][0];
        s->S = samples[i % n_samples][1];
        s->C = columns[i / n_samples % n_columns];
        return i < n_samples * n_columns;
    case ATTENTION:
        s->S = lengths[i % n_lengths];
        s->D = head_sizes[i / n_lengths % n_heads];
        s->A = (i + i / n_lengths) % 2 ? 4 : 1; // every length and size meets both
        s->A_kv = s->A == 1 ? 1 : i % 3 == 0 ? 4 : i % 3; // 4, 1 or 2 of 4
        s->B = s->S < 128 ? 3 : 1;
        return i < n_lengths * n_heads;
    case LOSS:
        s->C = vocabularies[i % n_vocabularies];
        s->B = 1 + 2 * (i / n_vocabularies);
        return i < 3 * n_vocabularies;
    case FLAT:
        s->B = 1 + i % 3;
        s->C = counts[i % n_counts];
        return i < n_counts;
    }
    return false;
}

static int64_t extent_of(enum extent extent, const struct shape *s)
{
    switch (extent) {
    case SIZE_S:
        return s->S;
    case SIZE_C:
        return s->C;
    case SIZE_SC:
        return s->S * s->C;
    case SIZE_VC:
        return VOCAB * s->C;
    case SIZE_AD:
        return s->A * s->D;
    case SIZE_SAD:
        return s->S * s->A * s->D;
    case SIZE_S3AD:
        return s->S * (s->A + 2 * s->A_kv) * s->D;
    case SIZE_AS:
        return s->A * s->S;
    case SIZE_PARTIAL_C:
        return kernel_partials(s->B * s->S, s->C);
    case SIZE_PARTIAL_2C:
        return kernel_partials(s->B * s->S, 2 * s->C);
    case SIZE_SQUARES:
        return 2 * i64_round_up(s->B * s->S * s->C, KERNEL_SQUARE_CHUNK) /
               KERNEL_SQUARE_CHUNK;
    }
    return 0;
}

static int64_t buffer_words(const struct buffer *b, const struct shape *s)
{
    return extent_of(b->extent, s) * (b->share == PER_SAMPLE ? s->B : 1);
}

/* -- the cases ----------------------------------------------------------------------- */

static struct dropout drop_of(const struct shape *s)
{
    if (s->rate <= 0)
        return dropout_none();
    return dropout_init(s->rate, 0x123456789ABCu, PHILOX_DROP_MLP_OUT, 3, 7,
                        s->first_sample);
}

static void run_embedding_fwd(const struct kernels *k, const struct shape *s, void **b)
{
    struct dropout drop = drop_of(s);
    embedding_fwd(k, b[0], b[1], b[2], b[3], b[4], s->B, s->S, s->C, &drop);
}

static void run_embedding_bwd(const struct kernels *k, const struct shape *s, void **b)
{
    struct dropout drop = drop_of(s);
    embedding_bwd(k, b[0], b[1], b[2], b[3], b[4], s->B, s->S, s->C, &drop);
}

static void run_layernorm_fwd(const struct kernels *k, const struct shape *s, void **b)
{
    layernorm_fwd(k, b[0], b[1], b[2], b[3], b[4], b[5], s->B * s->S, s->C);
}

static void run_layernorm_again(const struct kernels *k, const struct shape *s, void **b)
{
    layernorm_again(k, b[0], b[1], b[2], b[3], b[4], b[5], s->B * s->S, s->C);
}

static void prepare_layernorm_again(const struct kernels *ref, const struct shape *s,
                                    void **b)
{
    layernorm_fwd(ref, b[0], b[2], b[3], b[1], b[4], b[5], s->B * s->S, s->C);
    floats_set(b[0], s->B * s->S * s->C, NAN);
}

static void run_layernorm_bwd(const struct kernels *k, const struct shape *s, void **b)
{
    layernorm_bwd(k, b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], s->B * s->S,
                  s->C);
}

static void prepare_layernorm_bwd(const struct kernels *ref, const struct shape *s,
                                  void **b)
{
    float *y = words_new(s->B * s->S * s->C);
    layernorm_fwd(ref, y, b[6], b[7], b[4], b[5], b[5], s->B * s->S, s->C);
    // a row of one column has rstd 316, which would magnify the rounding of h - avg(h)
    if (s->C == 1)
        floats_set(b[7], s->B * s->S, 1.0F);
    free(y);
}

/* One output a token, so that a part of the samples is a part of the rows of w. */
static void run_matvec(const struct kernels *k, const struct shape *s, void **b)
{
    matvec(k, b[0], b[1], DTYPE_F32, b[2], s->rate > 0 ? b[3] : NULL, 1, s->B * s->S,
           s->C);
}

static void run_bias_add(const struct kernels *k, const struct shape *s, void **b)
{
    k->bias_add(stream_of(k), b[0], b[1], s->B * s->S, s->C);
}

static void run_bias_grad(const struct kernels *k, const struct shape *s, void **b)
{
    k->bias_grad(stream_of(k), b[0], b[1], b[2], s->B * s->S, s->C);
}

static void run_gelu_fwd(const struct kernels *k, const struct shape *s, void **b)
{
    gelu_fwd(k, b[0], b[1], b[2], s->B * s->S, s->C);
}

static void run_gelu_bwd(const struct kernels *k, const struct shape *s, void **b)
{
    gelu_bwd(k, b[0], b[1], b[2], b[3], b[4], b[5], b[6], s->B * s->S, s->C);
}

static void run_bias_dropout_residual(const struct kernels *k, const struct shape *s,
                                      void **b)
{
    struct dropout drop = drop_of(s);
    bias_dropout_residual(k, b[0], b[1], b[2], b[3], s->B, s->S, s->C, &drop);
}

static void run_dropout_bwd(const struct kernels *k, const struct shape *s, void **b)
{
    struct dropout drop = drop_of(s);
    const float *at = k->dropout_bwd(stream_of(k), b[0], b[1], s->B, s->S, s->C, &drop);
    if (at != b[0])
        memcpy(b[0], at, (size_t)(s->B * s->S * s->C) * sizeof *at);
}

static struct attention attention_of(const struct shape *s)
{
    return (struct attention){
        .B = s->B, .S = s->S, .A = s->A, .A_kv = s->A_kv, .D = s->D, .drop = drop_of(s)};
}

static void run_attention_fwd(const struct kernels *k, const struct shape *s, void **b)
{
    struct attention at = attention_of(s);
    at.out = b[0];
    at.lse = b[1];
    attention_fwd(k, at, b[2]);
}

static void run_attention_bwd(const struct kernels *k, const struct shape *s, void **b)
{
    struct attention_bwd at = {.fwd = attention_of(s), .dout = b[5], .delta = b[1]};
    at.fwd.out = b[3];
    at.fwd.lse = b[4];
    attention_bwd(k, at, b[2], b[0]);
}

static void prepare_attention_bwd(const struct kernels *ref, const struct shape *s,
                                  void **b)
{
    run_attention_fwd(ref, s, (void *[]){b[3], b[4], b[2]});
}

static void run_documents_fwd(const struct kernels *k, const struct shape *s, void **b)
{
    struct attention at = attention_of(s);
    at.out = b[0];
    at.lse = b[1];
    at.first_key = b[3];
    attention_fwd(k, at, b[2]);
}

static void run_documents_bwd(const struct kernels *k, const struct shape *s, void **b)
{
    struct attention_bwd at = {.fwd = attention_of(s), .dout = b[5], .delta = b[1]};
    at.fwd.out = b[3];
    at.fwd.lse = b[4];
    at.fwd.first_key = b[6];
    attention_bwd(k, at, b[2], b[0]);
}

static void prepare_documents_bwd(const struct kernels *ref, const struct shape *s,
                                  void **b)
{
    run_documents_fwd(ref, s, (void *[]){b[3], b[4], b[2], b[6]});
}

/* Keys and values lie in a cache with rows (A + 2 A_kv, D), as in qkv. */
static void run_attention_decode(const struct kernels *k, const struct shape *s, void **b)
{
    const float *cache = b[2];
    int64_t q = s->A * s->D, kv = s->A_kv * s->D;
    k->attention_decode(stream_of(k), &(struct attention_decode){.out = b[0],
                                                                 .q = b[1],
                                                                 .keys = cache + q,
                                                                 .values = cache + q + kv,
                                                                 .kv_row = q + 2 * kv,
                                                                 .scores = b[3],
                                                                 .n_keys = s->S,
                                                                 .A = s->A,
                                                                 .A_kv = s->A_kv,
                                                                 .D = s->D});
}

static void run_xent_max(const struct kernels *k, const struct shape *s, void **b)
{
    xent_max(k, b[0], b[1], s->B, s->C);
}

static void run_xent_exp(const struct kernels *k, const struct shape *s, void **b)
{
    xent_exp(k, b[0], b[1], b[2], b[3], b[4], s->B, s->C);
}

static void prepare_xent_exp(const struct kernels *ref, const struct shape *s, void **b)
{
    xent_max(ref, b[3], b[2], s->B, s->C);
}

static void run_xent_grad(const struct kernels *k, const struct shape *s, void **b)
{
    xent_grad(k, b[0], b[1], b[2], b[3], s->B, s->C);
}

static void prepare_xent_grad(const struct kernels *ref, const struct shape *s, void **b)
{
    float *scratch = words_new(2 * s->B);
    xent_max(ref, scratch, b[0], s->B, s->C);
    xent_exp(ref, b[1], scratch + s->B, b[0], scratch, b[2], s->B, s->C);
    free(scratch);
}

static void run_adamw(const struct kernels *k, const struct shape *s, void **b)
{
    // a large rate, so that an error of the update shows in p
    struct adamw a = {.lr = 0.3,
                      .beta1 = 0.9,
                      .beta2 = 0.999,
                      .epsilon = 1e-8,
                      .decay = 0.1,
                      .bias1 = 0.19,
                      .bias2 = 0.001999,
                      .grad_scale = 0.25};
    k->adamw(stream_of(k),
             &(struct update){.master = b[0],
                              .grad = b[3],
                              .exp_avg = b[1],
                              .exp_avg_sq = b[2],
                              .n = s->B * s->C},
             &a);
}

static void run_sum_squares(const struct kernels *k, const struct shape *s, void **b)
{
    k->sum_squares(stream_of(k), b[0], b[1], DTYPE_F32, s->B * s->C);
}

static void run_copy(const struct kernels *k, const struct shape *s, void **b)
{
    k->copy(stream_of(k), b[0], b[1], s->B * s->C);
}

static void run_add(const struct kernels *k, const struct shape *s, void **b)
{
    k->add(stream_of(k), b[0], b[1], s->B * s->C);
}

static void run_fill(const struct kernels *k, const struct shape *s, void **b)
{
    k->fill(stream_of(k), b[0], -1.5F, s->B * s->C);
}

/* What two float roundings may change. */
#define TWO_ROUNDINGS 1.3e-7

// clang-format off
static const struct kernel_case cases[] = {
    {"embedding_fwd", ROWS, run_embedding_fwd, NULL,
     {{OUT,     PER_SAMPLE, SIZE_SC, BELL, TWO_ROUNDINGS, 0},     // x
      {IN,      WHOLE,      SIZE_VC, BELL, 0, 0},                 // wte
      {IN,      WHOLE,      SIZE_SC, BELL, 0, 0},                 // wpe
      {IN,      PER_SAMPLE, SIZE_S,  TOKENS, 0, 0},
      {IN,      PER_SAMPLE, SIZE_S,  POSITIONS, 0, 0}}, 0, {{0}}},
    {"embedding_bwd", ROWS, run_embedding_bwd, NULL,
     {{UPDATED, WHOLE,      SIZE_VC, BELL, 0, 0},                 // dwte: order is given
      {UPDATED, WHOLE,      SIZE_SC, BELL, 0, 0},                 // dwpe
      {UPDATED, PER_SAMPLE, SIZE_SC, BELL, 0, 0},                 // dx
      {IN,      PER_SAMPLE, SIZE_S,  TOKENS, 0, 0},
      {IN,      PER_SAMPLE, SIZE_S,  POSITIONS, 0, 0}}, 0, {{0}}},
    {"layernorm_fwd", ROWS, run_layernorm_fwd, NULL,
     {{OUT,     PER_SAMPLE, SIZE_SC, BELL, 1e-6, 0},              // y
      {OUT,     PER_SAMPLE, SIZE_S,  BELL, 1e-6, 1e-7},           // mean: may cancel to 0
      {OUT,     PER_SAMPLE, SIZE_S,  BELL, 1e-6, 0},              // rstd
      {IN,      PER_SAMPLE, SIZE_SC, BELL, 0, 0},                 // x
      {IN,      WHOLE,      SIZE_C,  BELL, 0, 0},                 // g
      {IN,      WHOLE,      SIZE_C,  BELL, 0, 0}}, 0, {{0}}},     // b
    {"layernorm_again", ROWS, run_layernorm_again, prepare_layernorm_again,
     {{OUT,     PER_SAMPLE, SIZE_SC, BELL, 5e-7, 0},              // y
      {IN,      PER_SAMPLE, SIZE_SC, BELL, 0, 0},                 // x
      {IN,      PER_SAMPLE, SIZE_S,  BELL, 0, 0},                 // mean
      {IN,      PER_SAMPLE, SIZE_S,  BELL, 0, 0},                 // rstd
      {IN,      WHOLE,      SIZE_C,  BELL, 0, 0},                 // g
      {IN,      WHOLE,      SIZE_C,  BELL, 0, 0}}, 0, {{0}}},     // b
    {"layernorm_bwd", ROWS, run_layernorm_bwd, prepare_layernorm_bwd,
     {{UPDATED, PER_SAMPLE, SIZE_SC, BELL, 2e-6, 0},              // dx
      {UPDATED, WHOLE,      SIZE_C,  BELL, 1e-6, 1e-6},           // dg
      {UPDATED, WHOLE,      SIZE_C,  BELL, 1e-6, 1e-6},           // db
      {IN,      PER_SAMPLE, SIZE_SC, BELL, 0, 0},                 // dy
      {IN,      PER_SAMPLE, SIZE_SC, BELL, 0, 0},                 // x
      {IN,      WHOLE,      SIZE_C,  BELL, 0, 0},                 // g
      {IN,      PER_SAMPLE, SIZE_S,  BELL, 0, 0},                 // mean
      {IN,      PER_SAMPLE, SIZE_S,  BELL, 0, 0},                 // rstd
      {SCRATCH, WHOLE,      SIZE_PARTIAL_2C, BELL, 0, 0}}, 0, {{0}}},
    {"matvec", ROWS, run_matvec, NULL,
     {{OUT,     PER_SAMPLE, SIZE_S,  BELL, 1e-6, 3e-6},           // y: may cancel
      {IN,      PER_SAMPLE, SIZE_SC, BELL, 0, 0},                 // w
      {IN,      WHOLE,      SIZE_C,  BELL, 0, 0},                 // x
      {IN,      PER_SAMPLE, SIZE_S,  BELL, 0, 0}}, 0, {{0}}},     // b
    {"bias_add", ROWS, run_bias_add, NULL,
     {{UPDATED, PER_SAMPLE, SIZE_SC, BELL, 0, 0},                 // x
      {IN,      WHOLE,      SIZE_C,  BELL, 0, 0}}, 0, {{0}}},     // b
    {"bias_grad", ROWS, run_bias_grad, NULL,
     {{UPDATED, WHOLE,      SIZE_C,  BELL, 1e-6, 1e-6},           // db: may cancel
      {IN,      PER_SAMPLE, SIZE_SC, BELL, 0, 0},                 // dy
      {SCRATCH, WHOLE,      SIZE_PARTIAL_C, BELL, 0, 0}}, 0, {{0}}},
    {"gelu_fwd", ROWS, run_gelu_fwd, NULL,
     {{OUT,     PER_SAMPLE, SIZE_SC, BELL, 1e-6, 0},              // y
      {IN,      PER_SAMPLE, SIZE_SC, BELL, 0, 0},                 // x
      {IN,      WHOLE,      SIZE_C,  BELL, 0, 0}},                // b
     1, {{0, 1}}},
    {"gelu_bwd", ROWS, run_gelu_bwd, NULL,
     {{OUT,     PER_SAMPLE, SIZE_SC, BELL, 2e-6, 0},              // dx
      {OUT,     PER_SAMPLE, SIZE_SC, BELL, 1e-6, 0},              // y
      {UPDATED, WHOLE,      SIZE_C,  BELL, 1e-6, 2e-5},           // db: may cancel
      {IN,      PER_SAMPLE, SIZE_SC, BELL, 0, 0},                 // dy
      {IN,      PER_SAMPLE, SIZE_SC, BELL, 0, 0},                 // x
      {IN,      WHOLE,      SIZE_C,  BELL, 0, 0},                 // b
      {SCRATCH, WHOLE,      SIZE_PARTIAL_C, BELL, 0, 0}},
     2, {{0, 3}, {1, 4}}},
    {"bias_dropout_residual", ROWS, run_bias_dropout_residual, NULL,
     {{OUT,     PER_SAMPLE, SIZE_SC, BELL, 2.5e-7, 0},            // y
      {IN,      PER_SAMPLE, SIZE_SC, BELL, 0, 0},                 // res
      {IN,      PER_SAMPLE, SIZE_SC, BELL, 0, 0},                 // x
      {IN,      WHOLE,      SIZE_C,  BELL, 0, 0}},                // b
     2, {{0, 1}, {0, 2}}},
    {"dropout_bwd", ROWS, run_dropout_bwd, NULL,
     {{OUT,     PER_SAMPLE, SIZE_SC, BELL, 0, 0},                 // dx
      {IN,      PER_SAMPLE, SIZE_SC, BELL, 0, 0}}, 0, {{0}}},     // dy
    {"attention_fwd", ATTENTION, run_attention_fwd, NULL,
     {{OUT,     PER_SAMPLE, SIZE_SAD,  BELL, 5e-6, 0},            // out
      {OUT,     PER_SAMPLE, SIZE_AS,   BELL, 1e-6, 0},            // lse
      {IN,      PER_SAMPLE, SIZE_S3AD, BELL, 0, 0}}, 0, {{0}}},   // qkv
    {"attention_bwd", ATTENTION, run_attention_bwd, prepare_attention_bwd,
     {{OUT,     PER_SAMPLE, SIZE_S3AD, BELL, 2e-5, 0},            // dqkv
      {SCRATCH, PER_SAMPLE, SIZE_AS,   BELL, 0, 0},               // delta
      {IN,      PER_SAMPLE, SIZE_S3AD, BELL, 0, 0},               // qkv
      {IN,      PER_SAMPLE, SIZE_SAD,  BELL, 0, 0},               // out
      {IN,      PER_SAMPLE, SIZE_AS,   BELL, 0, 0},               // lse
      {IN,      PER_SAMPLE, SIZE_SAD,  BELL, 0, 0}}, 0, {{0}}},   // dout
    {"attention_fwd of documents", ATTENTION, run_documents_fwd, NULL,
     {{OUT,     PER_SAMPLE, SIZE_SAD,  BELL, 5e-6, 0},            // out
      {OUT,     PER_SAMPLE, SIZE_AS,   BELL, 1e-6, 1e-6},         // lse: one key cancels
      {IN,      PER_SAMPLE, SIZE_S3AD, BELL, 0, 0},               // qkv
      {IN,      PER_SAMPLE, SIZE_S,    FIRST_KEYS, 0, 0}}, 0, {{0}}},
    {"attention_bwd of documents", ATTENTION, run_documents_bwd, prepare_documents_bwd,
     {{OUT,     PER_SAMPLE, SIZE_S3AD, BELL, 2e-5, 0},            // dqkv
      {SCRATCH, PER_SAMPLE, SIZE_AS,   BELL, 0, 0},               // delta
      {IN,      PER_SAMPLE, SIZE_S3AD, BELL, 0, 0},               // qkv
      {IN,      PER_SAMPLE, SIZE_SAD,  BELL, 0, 0},               // out
      {IN,      PER_SAMPLE, SIZE_AS,   BELL, 0, 0},               // lse
      {IN,      PER_SAMPLE, SIZE_SAD,  BELL, 0, 0},               // dout
      {IN,      PER_SAMPLE, SIZE_S,    FIRST_KEYS, 0, 0}}, 0, {{0}}},
    {"attention_decode", ATTENTION, run_attention_decode, NULL,
     {{OUT,     WHOLE,      SIZE_AD,   BELL, 2e-6, 0},            // out
      {IN,      WHOLE,      SIZE_AD,   BELL, 0, 0},               // q
      {IN,      WHOLE,      SIZE_S3AD, BELL, 0, 0},               // the cache
      {SCRATCH, WHOLE,      SIZE_AS,   BELL, 0, 0}}, 0, {{0}}},   // scores
    {"xent_max", LOSS, run_xent_max, NULL,
     {{OUT,     PER_SAMPLE, SIZE_S,  BELL, 0, 0},                 // row_max
      {IN,      PER_SAMPLE, SIZE_SC, BELL, 0, 0}}, 0, {{0}}},     // logits
    {"xent_exp", LOSS, run_xent_exp, prepare_xent_exp,
     {{OUT,     PER_SAMPLE, SIZE_S,  BELL, 1e-6, 0},              // row_sum
      {OUT,     PER_SAMPLE, SIZE_S,  BELL, 0, 0},                 // target_logit
      {UPDATED, PER_SAMPLE, SIZE_SC, BELL, 5e-7, 0},              // logits
      {IN,      PER_SAMPLE, SIZE_S,  BELL, 0, 0},                 // row_max
      {IN,      PER_SAMPLE, SIZE_S,  TARGETS, 0, 0}}, 0, {{0}}},
    {"xent_grad", LOSS, run_xent_grad, prepare_xent_grad,
     {{UPDATED, PER_SAMPLE, SIZE_SC, BELL, 5e-7, 1.2e-7},         // logits: p - 1 cancels
      {IN,      PER_SAMPLE, SIZE_S,  BELL, 0, 0},                 // row_sum
      {IN,      PER_SAMPLE, SIZE_S,  TARGETS, 0, 0},
      {IN,      PER_SAMPLE, SIZE_S,  POSITIVE, 0, 0}}, 0, {{0}}}, // weight
    {"adamw", FLAT, run_adamw, NULL,
     {{UPDATED, PER_SAMPLE, SIZE_SC, BELL, 5e-7, 0},              // p
      {UPDATED, PER_SAMPLE, SIZE_SC, BELL, TWO_ROUNDINGS, 0},     // m
      {UPDATED, PER_SAMPLE, SIZE_SC, POSITIVE, 2e-7, 0},          // v
      {IN,      PER_SAMPLE, SIZE_SC, BELL, 0, 0}}, 0, {{0}}},     // g
    {"sum_squares", FLAT, run_sum_squares, NULL,
     {{OUT,     WHOLE,      SIZE_SQUARES, BELL, 1e-13, 0},        // partial
      {IN,      PER_SAMPLE, SIZE_SC, BELL, 0, 0}}, 0, {{0}}},     // x
    {"copy", FLAT, run_copy, NULL,
     {{OUT,     PER_SAMPLE, SIZE_SC, BELL, 0, 0},
      {IN,      PER_SAMPLE, SIZE_SC, BELL, 0, 0}}, 0, {{0}}},
    {"add", FLAT, run_add, NULL,
     {{UPDATED, PER_SAMPLE, SIZE_SC, BELL, 0, 0},
      {IN,      PER_SAMPLE, SIZE_SC, BELL, 0, 0}}, 0, {{0}}},
    {"fill", FLAT, run_fill, NULL,
     {{OUT,     PER_SAMPLE, SIZE_SC, BELL, 0, 0}}, 0, {{0}}},
};
// clang-format on

#endif
