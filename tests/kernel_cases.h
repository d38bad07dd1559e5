/*
 * kernel_cases - every kernel of kernels.h as one row of a table: its buffers in the
 * order of the call, how each is filled and how close it must come to the reference, and
 * the family of shapes to try it on.
 *
 * gemm is not here: its shapes and its bits have a test program of their own.
 */
#ifndef TESTS_KERNEL_CASES_H
#define TESTS_KERNEL_CASES_H

#include "kernel_shapes.h"

#define MAX_BUFFERS 9
#define MAX_IN_PLACE 2

struct pair {
    int out, in;
    bool is_f32_only;
};

struct kernel_case {
    const char *name;
    enum family family;
    void (*run)(const struct kernels *k, const struct shape *s, void **b);
    void (*prepare)(const struct kernels *ref, const struct shape *s, void **b);
    struct buffer buffers[MAX_BUFFERS];
    int n_in_place;
    struct pair in_place[MAX_IN_PLACE]; // one by one, then all together if outs differ
};

static struct stream *stream_for(const struct kernels *k, const struct shape *s)
{
    return typed_stream_of(k, s->dtype);
}

static struct dropout drop_of(const struct shape *s)
{
    if (s->rate <= 0)
        return dropout_none();
    return dropout_init(s->rate, 0x123456789ABCu, PHILOX_DROP_MLP_OUT, 3, 7,
                        s->first_sample);
}

/* -- rows ---------------------------------------------------------------------------- */

static void run_embedding_fwd(const struct kernels *k, const struct shape *s, void **b)
{
    struct weight wte = {.data = b[1], .dtype = s->dtype, .rows = VOCAB, .cols = s->C};
    struct weight wpe = {.data = b[2], .dtype = s->dtype, .rows = s->S, .cols = s->C};
    k->embedding_fwd(stream_for(k, s),
                     &(struct embedding){.x = b[0],
                                         .wte = &wte,
                                         .wpe = s->rate > 0 ? &wpe : NULL,
                                         .tokens = b[3],
                                         .positions = b[4],
                                         .B = s->B,
                                         .S = s->S,
                                         .H = s->C});
}

static void run_embedding_bwd(const struct kernels *k, const struct shape *s, void **b)
{
    struct embedding_bwd e = {b[0], b[1], b[2], b[3], b[4], s->B, s->S, s->C};
    k->embedding_bwd(stream_for(k, s), &e);
}

static struct layernorm layernorm_of(const struct shape *s, void *y, void *mean,
                                     void *rstd, const void *x, const float *g,
                                     const float *b)
{
    return (struct layernorm){y, mean, rstd, x, g, b, s->B * s->S, s->C, 1e-5F};
}

static void run_layernorm_fwd(const struct kernels *k, const struct shape *s, void **b)
{
    struct layernorm ln = layernorm_of(s, b[0], b[1], b[2], b[3], b[4], b[5]);
    k->layernorm_fwd(stream_for(k, s), &ln);
}

static void run_layernorm_again(const struct kernels *k, const struct shape *s, void **b)
{
    struct layernorm ln = layernorm_of(s, b[0], b[2], b[3], b[1], b[4], b[5]);
    k->layernorm_again(stream_for(k, s), &ln);
}

static void prepare_layernorm_again(const struct kernels *ref, const struct shape *s,
                                    void **b)
{
    void *y = words_new(s->B * s->S * s->C);
    struct layernorm ln = layernorm_of(s, y, b[2], b[3], b[1], b[4], b[5]);
    ref->layernorm_fwd(stream_for(ref, s), &ln);
    free(y);
}

static void run_layernorm_bwd(const struct kernels *k, const struct shape *s, void **b)
{
    struct layernorm_bwd ln = {b[0], b[1], b[2], b[3],        b[4], b[5],
                               b[6], b[7], b[8], s->B * s->S, s->C};
    k->layernorm_bwd(stream_for(k, s), &ln);
}

static void prepare_layernorm_bwd(const struct kernels *ref, const struct shape *s,
                                  void **b)
{
    void *y = words_new(s->B * s->S * s->C);
    struct layernorm ln = layernorm_of(s, y, b[6], b[7], b[4], b[5], b[5]);
    ref->layernorm_fwd(stream_for(ref, s), &ln);
    // a row of one column has rstd 316, which would magnify the rounding of h - avg(h)
    if (s->C == 1)
        floats_set(b[7], s->B * s->S, 1.0F);
    free(y);
}

static void run_bias_grad(const struct kernels *k, const struct shape *s, void **b)
{
    k->bias_grad(stream_for(k, s),
                 &(struct bias_grad){b[0], b[1], b[2], s->B * s->S, s->C});
}

static void activate(const struct kernels *k, const struct shape *s, void **b,
                     enum activation act)
{
    struct activation_fwd a = {act, b[0], b[1], b[2], s->B * s->S, s->C};
    k->activation_fwd(stream_for(k, s), &a);
}

static void run_gelu_fwd(const struct kernels *k, const struct shape *s, void **b)
{
    activate(k, s, b, ACTIVATION_GELU);
}

static void run_gelu_tanh_fwd(const struct kernels *k, const struct shape *s, void **b)
{
    activate(k, s, b, ACTIVATION_GELU_TANH);
}

static void activate_bwd(const struct kernels *k, const struct shape *s, void **b,
                         enum activation act)
{
    struct activation_bwd a = {act,  b[0], b[1], b[2],        b[3],
                               b[4], b[5], b[6], s->B * s->S, s->C};
    k->activation_bwd(stream_for(k, s), &a);
}

static void run_gelu_bwd(const struct kernels *k, const struct shape *s, void **b)
{
    activate_bwd(k, s, b, ACTIVATION_GELU);
}

static void run_gelu_tanh_bwd(const struct kernels *k, const struct shape *s, void **b)
{
    activate_bwd(k, s, b, ACTIVATION_GELU_TANH);
}

static void run_bias_dropout_residual(const struct kernels *k, const struct shape *s,
                                      void **b)
{
    struct residual r = {b[0], b[1], b[2], b[3], s->B, s->S, s->C, drop_of(s)};
    k->bias_dropout_residual(stream_for(k, s), &r);
}

static void run_dropout_fwd(const struct kernels *k, const struct shape *s, void **b)
{
    k->dropout_fwd(stream_for(k, s),
                   &(struct dropped){b[0], b[1], s->B, s->S, s->C, drop_of(s)});
}

static void run_dropout_bwd(const struct kernels *k, const struct shape *s, void **b)
{
    k->dropout_bwd(stream_for(k, s),
                   &(struct dropped){b[0], b[1], s->B, s->S, s->C, drop_of(s)});
}

/* -- products: B rows, k is C, D columns --------------------------------------------- */

static struct weight weight_of(const struct shape *s, void *data, enum dtype dtype)
{
    return (struct weight){.data = data, .dtype = dtype, .rows = s->D, .cols = s->C};
}

static void run_linear(const struct kernels *k, const struct shape *s, void **b,
                       enum dtype y_dtype)
{
    struct weight w = weight_of(s, b[2], s->dtype);
    k->linear_fwd(stream_for(k, s), &(struct linear){.w = &w,
                                                     .x = b[1],
                                                     .y = b[0],
                                                     .y_dtype = y_dtype,
                                                     .bias = s->rate > 0 ? b[3] : NULL,
                                                     .is_fused = s->rate > 0,
                                                     .N = s->B});
}

static void run_linear_fwd(const struct kernels *k, const struct shape *s, void **b)
{
    run_linear(k, s, b, s->dtype);
}

static void run_linear_sum(const struct kernels *k, const struct shape *s, void **b)
{
    run_linear(k, s, b, DTYPE_F32);
}

static void run_linear_gelu(const struct kernels *k, const struct shape *s, void **b)
{
    struct weight w = weight_of(s, b[3], s->dtype);
    k->linear_fwd(stream_for(k, s), &(struct linear){.w = &w,
                                                     .x = b[2],
                                                     .y = b[0],
                                                     .y_dtype = s->dtype,
                                                     .bias = b[4],
                                                     .act = ACTIVATION_GELU_TANH,
                                                     .act_y = b[1],
                                                     .is_fused = s->rate > 0,
                                                     .N = s->B});
}

static void run_bwd_input(const struct kernels *k, const struct shape *s, void **b,
                          enum dtype dx_dtype)
{
    struct weight w = weight_of(s, b[2], s->dtype);
    k->linear_bwd_input(
        stream_for(k, s),
        &(struct linear_bwd_input){b[0], dx_dtype, b[1], dy_row_of(s), &w, s->B});
}

static void run_linear_bwd_input(const struct kernels *k, const struct shape *s, void **b)
{
    run_bwd_input(k, s, b, s->dtype);
}

static void run_linear_bwd_sum(const struct kernels *k, const struct shape *s, void **b)
{
    run_bwd_input(k, s, b, DTYPE_F32);
}

static void run_bwd_weight(const struct kernels *k, const struct shape *s, void **b,
                           enum dtype dtype, bool accumulate)
{
    struct weight dw = weight_of(s, b[0], dtype);
    k->linear_bwd_weight(
        stream_for(k, s),
        &(struct linear_bwd_weight){&dw, b[1], b[2], dy_row_of(s), accumulate, s->B});
}

static void run_weight_new(const struct kernels *k, const struct shape *s, void **b)
{
    run_bwd_weight(k, s, b, s->dtype, false);
}

static void run_weight_added(const struct kernels *k, const struct shape *s, void **b)
{
    run_bwd_weight(k, s, b, s->dtype, true);
}

static void run_weight_float(const struct kernels *k, const struct shape *s, void **b)
{
    run_bwd_weight(k, s, b, DTYPE_F32, true);
}

static void run_matvec(const struct kernels *k, const struct shape *s, void **b)
{
    matvec(k, b[0], s->dtype, b[2], s->dtype, b[1], s->rate > 0 ? b[3] : NULL, s->B, s->D,
           s->C);
}

static void run_matvec_float(const struct kernels *k, const struct shape *s, void **b)
{
    matvec(k, b[0], DTYPE_F32, b[2], s->dtype, b[1], s->rate > 0 ? b[3] : NULL, s->B,
           s->D, s->C);
}

/* -- attention ----------------------------------------------------------------------- */

static struct attention attention_of(const struct shape *s)
{
    return (struct attention){
        .B = s->B, .S = s->S, .A = s->A, .A_kv = s->A_kv, .D = s->D, .drop = drop_of(s)};
}

static void run_documents_fwd(const struct kernels *k, const struct shape *s, void **b)
{
    struct attention at = attention_of(s);
    at.out = b[0];
    at.lse = b[1];
    at.first_key = b[3];
    typed_attention_fwd(k, s->dtype, at, b[2]);
}

static void run_attention_fwd(const struct kernels *k, const struct shape *s, void **b)
{
    run_documents_fwd(k, s, (void *[]){b[0], b[1], b[2], NULL});
}

static void run_documents_bwd(const struct kernels *k, const struct shape *s, void **b)
{
    struct attention_bwd at = {.fwd = attention_of(s), .dout = b[5], .delta = b[1]};
    at.fwd.out = b[3];
    at.fwd.lse = b[4];
    at.fwd.first_key = b[6];
    typed_attention_bwd(k, s->dtype, at, b[2], b[0]);
}

static void run_attention_bwd(const struct kernels *k, const struct shape *s, void **b)
{
    run_documents_bwd(k, s, (void *[]){b[0], b[1], b[2], b[3], b[4], b[5], NULL});
}

static void run_padding_fwd(const struct kernels *k, const struct shape *s, void **b)
{
    struct attention at = attention_of(s);
    at.out = b[0];
    at.lse = b[1];
    at.key_end = b[3];
    typed_attention_fwd(k, s->dtype, at, b[2]);
}

static void run_padding_bwd(const struct kernels *k, const struct shape *s, void **b)
{
    struct attention_bwd at = {.fwd = attention_of(s), .dout = b[5], .delta = b[1]};
    at.fwd.out = b[3];
    at.fwd.lse = b[4];
    at.fwd.key_end = b[6];
    typed_attention_bwd(k, s->dtype, at, b[2], b[0]);
}

static void prepare_padding_bwd(const struct kernels *ref, const struct shape *s,
                                void **b)
{
    run_padding_fwd(ref, s, (void *[]){b[3], b[4], b[2], b[6]});
}

static void prepare_documents_bwd(const struct kernels *ref, const struct shape *s,
                                  void **b)
{
    run_documents_fwd(ref, s, (void *[]){b[3], b[4], b[2], b[6]});
}

static void prepare_attention_bwd(const struct kernels *ref, const struct shape *s,
                                  void **b)
{
    run_attention_fwd(ref, s, (void *[]){b[3], b[4], b[2]});
}

/* Keys and values lie in a cache with rows (A + 2 A_kv, D), as in qkv. */
static void run_attention_decode(const struct kernels *k, const struct shape *s, void **b)
{
    int64_t q = s->A * s->D, kv = s->A_kv * s->D;
    struct attention_decode at = {.out = b[0],
                                  .q = b[1],
                                  .keys = element_at(b[2], s->dtype, q),
                                  .values = element_at(b[2], s->dtype, q + kv),
                                  .kv_row = q + 2 * kv,
                                  .scores = b[3],
                                  .n_keys = s->S,
                                  .A = s->A,
                                  .A_kv = s->A_kv,
                                  .D = s->D};
    k->attention_decode(stream_for(k, s), &at);
}

/* -- the loss ------------------------------------------------------------------------ */

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

static void run_xent_top(const struct kernels *k, const struct shape *s, void **b)
{
    k->xent_top(
        stream_for(k, s),
        &(struct xent){
            .column = b[0], .logits = b[1], .row_max = b[2], .R = s->B, .V = s->C});
}

static void prepare_xent_top(const struct kernels *ref, const struct shape *s, void **b)
{
    xent_max(ref, b[2], b[1], s->B, s->C);
}

/* The gradients are left in place of the logits, and then put side by side. */
static void run_xent_grad(const struct kernels *k, const struct shape *s, void **b)
{
    struct xent x = {.logits = b[1],
                     .row_sum = b[2],
                     .targets = b[3],
                     .mask = b[4],
                     .weight = 0.7F,
                     .R = s->B,
                     .V = s->C};
    size_t row = (size_t)s->C * dtype_bytes(s->dtype);
    k->xent_grad(stream_for(k, s), &x);
    for (int64_t r = 0; r < s->B; r++)
        memcpy((char *)b[0] + (size_t)r * row,
               element_at(b[1], s->dtype, r * xent_grad_row(s->dtype, s->C)), row);
}

static void prepare_xent_grad(const struct kernels *ref, const struct shape *s, void **b)
{
    float *scratch = words_new(2 * s->B);
    xent_max(ref, scratch, b[1], s->B, s->C);
    xent_exp(ref, b[2], scratch + s->B, b[1], scratch, b[3], s->B, s->C);
    free(scratch);
}

/* -- flat ranges --------------------------------------------------------------------- */

static void run_adamw(const struct kernels *k, const struct shape *s, void **b)
{
    // a large rate, so that an error of the update shows in p
    struct adamw_rule rule = {.lr = 0.3,
                              .beta1 = 0.9,
                              .beta2 = 0.999,
                              .epsilon = 1e-8,
                              .decay = 0.1,
                              .bias1 = 0.19,
                              .bias2 = 0.001999,
                              .grad_scale = 0.25,
                              .is_l2 = s->rate > 0.2};
    k->adamw(stream_for(k, s), &(struct adamw){.rule = rule,
                                               .master = b[0],
                                               .param = b[4],
                                               .param_dtype = s->dtype,
                                               .grad = b[3],
                                               .grad_dtype = s->dtype,
                                               .exp_avg = b[1],
                                               .exp_avg_sq = b[2],
                                               .n = s->B * s->C});
}

static void run_sum_squares(const struct kernels *k, const struct shape *s, void **b)
{
    k->sum_squares(stream_for(k, s),
                   &(struct sum_squares){b[0], b[1], s->dtype, s->B * s->C});
}

static void run_load(const struct kernels *k, const struct shape *s, void **b)
{
    k->load(stream_for(k, s), &(struct convert){b[0], b[1], s->dtype, s->B * s->C});
}

static void run_store(const struct kernels *k, const struct shape *s, void **b)
{
    k->store(stream_for(k, s), &(struct convert){b[0], b[1], s->dtype, s->B * s->C});
}

static void run_store_add(const struct kernels *k, const struct shape *s, void **b)
{
    k->store_add(stream_for(k, s), &(struct convert){b[0], b[1], s->dtype, s->B * s->C});
}

static void run_add_stored(const struct kernels *k, const struct shape *s, void **b)
{
    k->add_stored(stream_for(k, s), &(struct convert){b[0], b[1], s->dtype, s->B * s->C});
}

static void run_reduce(const struct kernels *k, const struct shape *s, void **b)
{
    const void *parts[] = {b[1], b[2], b[3]};
    k->reduce(stream_for(k, s), &(struct reduction){.op = REDUCE_SUM,
                                                    .dtype = s->dtype,
                                                    .x = b[0],
                                                    .parts = parts,
                                                    .n_parts = 3,
                                                    .n = s->B * s->C});
}

static void run_copy(const struct kernels *k, const struct shape *s, void **b)
{
    k->copy(stream_for(k, s), &(struct floats){b[0], b[1], s->B * s->C});
}

static void run_add(const struct kernels *k, const struct shape *s, void **b)
{
    k->add(stream_for(k, s), &(struct floats){b[0], b[1], s->B * s->C});
}

static void run_fill(const struct kernels *k, const struct shape *s, void **b)
{
    k->fill(stream_for(k, s), &(struct fill){b[0], -1.5F, s->B * s->C});
}

#include "kernel_case_table.h"

/* Which share of the shapes and types is taken, where not all are: TEST_TURN, or 0. Turns 0
 * to 20 take all of them, since no stride is more than LONGEST_STRIDE. */
#define LONGEST_STRIDE 7
static inline int64_t test_turn(void)
{
    const char *turn = getenv("TEST_TURN");
    return turn ? strtoll(turn, NULL, 10) : 0;
}

/* The first shape of case c, of those that lie `stride` apart. */
static inline int64_t first_shape(size_t c, int64_t stride)
{
    return ((int64_t)c + test_turn()) % stride;
}

/* Shape i of case c, in a type: they take turns, other than the rates of dropout do. */
static inline struct shape shape_in_turn(size_t c, int64_t i)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    size_t turn = c + (size_t)(i + i / 3 + test_turn() / LONGEST_STRIDE);
    return shape_at(cases[c].family, i, types[turn % ARRAY_LEN(types)]);
}

#endif
