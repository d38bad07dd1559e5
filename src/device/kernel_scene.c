#include "device/kernel_scene.h"

#include <stdlib.h>

#define N_TYPED (SCENE_ARRAYS - SCENE_FLOATS)
#define SCRATCH_BYTES (4 * SCENE_ARRAY_BYTES)

enum { B = 2, S = 21, N = B * S, H = 83, V = 97 };   // samples, tokens, columns, words
enum { I = 301, O = 91 };                            // of a matrix
enum { A = 4, A_KV = 2, D = 20, KEYS = SCENE_KEYS }; // of attention
enum { Q_ROW = (A + 2 * A_KV) * D, KV_ROW = Q_ROW };
enum { SQUARES = 3001 }; // elements
_Static_assert(N == SCENE_TOKENS, "tokens of all samples");
_Static_assert((SQUARES - 1) / KERNEL_SQUARE_CHUNK + 1 == SCENE_SQUARE_SUMS, "chunks");

enum { POSITIVE = SCENE_FLOATS - 1 };

/* -- the scene ----------------------------------------------------------------------- */

int scene_open(struct scene *c, struct device *dev, struct error *err)
{
    *c = (struct scene){.dev = dev,
                        .s = device_stream(dev, STREAM_COMPUTE),
                        .k = dev->k,
                        .dtype = dev->dtype};
    c->memory = dev->ops->alloc(dev, SCENE_BYTES);
    c->scratch = dev->ops->alloc(dev, SCRATCH_BYTES);
    c->result = malloc(SCENE_BYTES);
    if (!c->memory || !c->scratch || !c->result)
        return error_set(err, ERROR_RUNTIME, "not enough memory to compare kernels");
    for (size_t i = 0; i < SCENE_FLOATS; i++)
        c->f[i] = (float *)(void *)(c->memory + i * SCENE_ARRAY_BYTES);
    for (size_t i = 0; i < N_TYPED; i++)
        c->t[i] = c->memory + (SCENE_FLOATS + i) * SCENE_ARRAY_BYTES;
    for (int i = 0; i < N; i++) {
        c->tokens[i] = i * 31 % V;
        c->positions[i] = i % S;
        c->mask[i] = (float)(i % 5) * 0.3F;
    }
    for (int i = 0; i < KEYS; i++)
        c->first_keys[i] = i < 60 ? 0 : 60; // two documents
    return 0;
}

void scene_close(struct scene *c)
{
    if (c->memory)
        device_free(c->dev, c->memory, SCENE_BYTES);
    if (c->scratch)
        device_free(c->dev, c->scratch, SCRATCH_BYTES);
    free(c->result);
}

void scene_numbers(uint8_t *numbers, enum dtype dtype)
{
    struct philox_key key = philox_key(5, PHILOX_SAMPLE_TOKEN, 0);
    for (uint32_t a = 0; a < SCENE_ARRAYS; a++) {
        uint8_t *array = numbers + a * SCENE_ARRAY_BYTES;
        for (uint32_t i = 0; i < SCENE_ELEMENTS; i++) {
            float u = philox_uniform(key, i, a), x = a == POSITIVE ? u : 2 * u - 1;
            enum dtype stored = a < SCENE_FLOATS ? DTYPE_F32 : dtype;
            dtype_store(array + i * dtype_bytes(stored), &x, stored, 1);
        }
    }
}

void scene_run(struct scene *c, const uint8_t *numbers, const struct scene_kernel *kernel)
{
    memset(c->squares, 0, sizeof c->squares);
    device_copy(c->s, c->memory, numbers, SCENE_BYTES, COPY_TO_DEVICE);
    kernel->run(c);
    device_copy(c->s, c->result, c->memory, SCENE_BYTES, COPY_TO_HOST);
    device_synchronize(c->s);
}

static struct weight weight_of(const struct scene *c, int array, int64_t rows,
                               int64_t cols)
{
    return (struct weight){
        .data = c->t[array], .dtype = c->dtype, .rows = rows, .cols = cols, .version = 1};
}

static struct dropout some_dropout(void)
{
    return dropout_init(0.1, 7, PHILOX_DROP_MLP_OUT, 1, 3, 5);
}

/* -- one row of the table each ------------------------------------------------------- */

static void run_embedding_fwd(struct scene *c)
{
    struct weight words = weight_of(c, 0, V, H), places = weight_of(c, 1, S, H);
    struct embedding e = {c->f[0], &words, &places, c->tokens, c->positions, B, S, H};
    c->k->embedding_fwd(c->s, &e);
}

static void run_embedding_bwd(struct scene *c)
{
    struct embedding_bwd e = {c->f[0],      c->f[1], c->t[0], c->tokens,
                              c->positions, B,       S,       H};
    c->k->embedding_bwd(c->s, &e);
}

static struct layernorm layernorm_of(const struct scene *c)
{
    return (struct layernorm){.y = c->t[0],
                              .mean = c->f[0],
                              .rstd = c->f[1],
                              .x = c->t[1],
                              .g = c->f[2],
                              .b = c->f[3],
                              .N = N,
                              .C = H,
                              .epsilon = 1e-5F};
}

static void run_layernorm_fwd(struct scene *c)
{
    struct layernorm ln = layernorm_of(c);
    c->k->layernorm_fwd(c->s, &ln);
}

static void run_layernorm_again(struct scene *c)
{
    struct layernorm ln = layernorm_of(c);
    c->k->layernorm_again(c->s, &ln);
}

static void run_layernorm_bwd(struct scene *c)
{
    struct layernorm_bwd ln = {.dx = c->t[0],
                               .dg = c->f[3],
                               .db = c->f[4],
                               .dy = c->t[1],
                               .x = c->t[2],
                               .g = c->f[0],
                               .mean = c->f[1],
                               .rstd = c->f[2],
                               .partial = c->scratch,
                               .N = N,
                               .C = H};
    c->k->layernorm_bwd(c->s, &ln);
}

static void run_gemm(struct scene *c)
{
    struct gemm g = {.m = N,
                     .n = O,
                     .k = I,
                     .a = c->f[0],
                     .a_row = I,
                     .a_col = 1,
                     .b = c->f[1],
                     .b_row = 1,
                     .b_col = I,
                     .c = c->f[2],
                     .c_row = O,
                     .c_col = 1,
                     .accumulate = true};
    c->k->gemm(c->s, &g);
}

static void run_linear_fwd(struct scene *c)
{
    struct weight w = weight_of(c, 0, O, I);
    struct linear l = {.w = &w,
                       .x = c->t[1],
                       .y = c->t[2],
                       .y_dtype = c->dtype,
                       .bias = c->f[0],
                       .act = ACTIVATION_GELU_TANH,
                       .act_y = c->t[3],
                       .N = N};
    c->k->linear_fwd(c->s, &l);
    l.act = ACTIVATION_NONE;
    l.y = c->f[1];
    l.y_dtype = DTYPE_F32;
    c->k->linear_fwd(c->s, &l);
}

static void run_linear_bwd_input(struct scene *c)
{
    struct weight w = weight_of(c, 0, O, I);
    struct linear_bwd_input l = {
        .dx = c->t[1], .dx_dtype = c->dtype, .dy = c->t[2], .dy_row = O, .w = &w, .N = N};
    c->k->linear_bwd_input(c->s, &l);
}

static void run_linear_bwd_weight(struct scene *c)
{
    struct weight dw = weight_of(c, 0, O, I);
    struct linear_bwd_weight l = {
        .dw = &dw, .dy = c->t[1], .x = c->t[2], .dy_row = O, .accumulate = true, .N = N};
    c->k->linear_bwd_weight(c->s, &l);
    dw.data = c->f[0];
    dw.dtype = DTYPE_F32;
    c->k->linear_bwd_weight(c->s, &l);
}

static void run_matvec(struct scene *c)
{
    struct weight w = weight_of(c, 0, O, I);
    struct matvec m = {
        .y = c->t[1], .y_dtype = c->dtype, .w = &w, .x = c->t[2], .b = c->f[0], .R = 3};
    c->k->matvec(c->s, &m);
}

static void run_bias_grad(struct scene *c)
{
    c->k->bias_grad(c->s, &(struct bias_grad){c->f[0], c->t[0], c->scratch, N, H});
}

static void run_add_partials(struct scene *c)
{
    c->k->add_partials(c->s,
                       &(struct add_partials){c->f[0], c->f[1], 200, 2 * (int64_t)H, H});
}

static void run_activation_fwd(struct scene *c)
{
    struct activation_fwd a = {ACTIVATION_GELU_TANH, c->t[0], c->t[1], c->f[0], N, H};
    c->k->activation_fwd(c->s, &a);
    a.act = ACTIVATION_GELU;
    a.y = c->t[2];
    c->k->activation_fwd(c->s, &a);
}

static void run_activation_bwd(struct scene *c)
{
    struct activation_bwd a = {.act = ACTIVATION_GELU_TANH,
                               .dx = c->t[0],
                               .y = c->t[1],
                               .db = c->f[0],
                               .dy = c->t[2],
                               .x = c->t[3],
                               .b = c->f[1],
                               .partial = c->scratch,
                               .N = N,
                               .C = H};
    c->k->activation_bwd(c->s, &a);
    a.act = ACTIVATION_GELU;
    a.dx = c->t[2];
    a.y = c->t[3];
    a.db = c->f[2];
    c->k->activation_bwd(c->s, &a);
}

static void run_bias_dropout_residual(struct scene *c)
{
    struct residual r = {.y = c->t[0],
                         .res = c->t[1],
                         .x = c->f[0],
                         .b = c->f[1],
                         .B = B,
                         .S = S,
                         .C = H,
                         .drop = some_dropout()};
    c->k->bias_dropout_residual(c->s, &r);
}

static void run_dropout_fwd(struct scene *c)
{
    c->k->dropout_fwd(c->s, &(struct dropped){c->t[0], c->f[0], B, S, H, some_dropout()});
}

static void run_dropout_bwd(struct scene *c)
{
    c->k->dropout_bwd(c->s, &(struct dropped){c->t[0], c->t[1], B, S, H, some_dropout()});
}

static struct attention attention_of(const struct scene *c)
{
    size_t element = dtype_bytes(c->dtype);
    const uint8_t *q = c->t[0];
    return (struct attention){.B = 1,
                              .S = KEYS,
                              .A = A,
                              .A_kv = A_KV,
                              .D = D,
                              .q = q,
                              .k = q + A * D * element,
                              .v = q + (A + A_KV) * D * element,
                              .q_row = Q_ROW,
                              .kv_row = KV_ROW,
                              .out = c->t[1],
                              .lse = c->f[0],
                              .drop = some_dropout(),
                              .first_head = 1,
                              .first_key = c->first_keys};
}

static void run_attention_fwd(struct scene *c)
{
    struct attention at = attention_of(c);
    c->k->attention_fwd(c->s, &at);
}

static void run_attention_bwd(struct scene *c)
{
    size_t element = dtype_bytes(c->dtype);
    uint8_t *dq = c->t[2];
    struct attention_bwd at = {.fwd = attention_of(c),
                               .dout = c->t[3],
                               .dq = dq,
                               .dk = dq + A * D * element,
                               .dv = dq + (A + A_KV) * D * element,
                               .delta = c->scratch,
                               .scratch = c->scratch + SCENE_ELEMENTS};
    CHECK(attention_scratch(c->dtype, KEYS, A, A_KV, D) <= 3 * SCENE_ELEMENTS,
          "scratch of attention");
    c->k->attention_fwd(c->s, &at.fwd);
    c->k->attention_bwd(c->s, &at);
}

static void run_attention_decode(struct scene *c)
{
    struct attention_decode at = {.out = c->t[0],
                                  .q = c->t[1],
                                  .keys = c->t[2],
                                  .values = c->t[3],
                                  .kv_row = A_KV * D,
                                  .scores = c->scratch,
                                  .n_keys = KEYS,
                                  .A = A,
                                  .A_kv = A_KV,
                                  .D = D};
    c->k->attention_decode(c->s, &at);
}

static struct xent xent_of(const struct scene *c)
{
    return (struct xent){.logits = c->f[0],
                         .row_max = c->f[1],
                         .row_sum = c->f[POSITIVE],
                         .target_logit = c->f[2],
                         .targets = c->tokens,
                         .mask = c->mask,
                         .weight = 0.25F,
                         .R = N,
                         .V = V};
}

static void run_xent_max(struct scene *c)
{
    struct xent x = xent_of(c);
    c->k->xent_max(c->s, &x);
}

static void run_xent_exp(struct scene *c)
{
    struct xent x = xent_of(c);
    c->k->xent_exp(c->s, &x);
}

static void run_xent_grad(struct scene *c)
{
    struct xent x = xent_of(c);
    c->k->xent_grad(c->s, &x);
    for (int64_t r = 0; r < N; r++) { // what lies behind a row of few bytes is anything
        uint8_t *row = (uint8_t *)(c->f[0] + r * V);
        size_t used = V * dtype_bytes(c->dtype), left = V * sizeof(float) - used;
        if (left > 0)
            device_fill(c->s, row + used, 0, left);
    }
}

static void run_xent_top(struct scene *c)
{
    struct xent x = xent_of(c);
    x.column = (int32_t *)(void *)c->f[4];
    c->k->xent_max(c->s, &x);
    c->k->xent_top(c->s, &x);
}

static void run_reduce(struct scene *c)
{
    const void *parts[] = {c->t[0], c->t[1], c->t[2]};
    struct reduction r = {.op = REDUCE_SUM,
                          .dtype = c->dtype,
                          .x = c->t[3],
                          .parts = parts,
                          .n_parts = 3,
                          .n = 1001};
    c->k->reduce(c->s, &r);
}

static void run_adamw(struct scene *c)
{
    const struct adamw_rule rule = {.lr = 1e-3,
                                    .beta1 = 0.9,
                                    .beta2 = 0.999,
                                    .epsilon = 1e-8,
                                    .decay = 0.01,
                                    .bias1 = 0.1,
                                    .bias2 = 0.001,
                                    .grad_scale = 0.5};
    struct adamw u = {.rule = rule,
                      .master = c->f[0],
                      .param = c->dtype == DTYPE_F32 ? NULL : c->t[0],
                      .param_dtype = c->dtype,
                      .grad = c->t[1],
                      .grad_dtype = c->dtype,
                      .exp_avg = c->f[1],
                      .exp_avg_sq = c->f[POSITIVE],
                      .n = 1001};
    c->k->adamw(c->s, &u);
}

static void run_sum_squares(struct scene *c)
{
    c->k->sum_squares(c->s,
                      &(struct sum_squares){c->squares, c->t[0], c->dtype, SQUARES});
}

static void run_load(struct scene *c)
{
    c->k->load(c->s, &(struct convert){c->f[0], c->t[0], c->dtype, 1001});
}

static void run_store(struct scene *c)
{
    c->k->store(c->s, &(struct convert){c->t[0], c->f[0], c->dtype, 1001});
}

static void run_store_add(struct scene *c)
{
    c->k->store_add(c->s, &(struct convert){c->t[0], c->f[0], c->dtype, 1001});
}

static void run_add_stored(struct scene *c)
{
    c->k->add_stored(c->s, &(struct convert){c->t[0], c->t[1], c->dtype, 1001});
}

static void run_copy(struct scene *c)
{
    c->k->copy(c->s, &(struct floats){c->f[0], c->f[1], 1001});
}

static void run_add(struct scene *c)
{
    c->k->add(c->s, &(struct floats){c->f[0], c->f[1], 1001});
}

static void run_add_rows(struct scene *c)
{
    static const int32_t rows[] = {5, 0, 17};
    c->k->add_rows(c->s, &(struct add_rows){c->f[0], c->f[1], rows, 3, H});
}

static void run_fill(struct scene *c)
{
    c->k->fill(c->s, &(struct fill){c->f[0], 0.5F, 1001});
}

const struct scene_kernel scene_kernels[] = {
    {"embedding_fwd", run_embedding_fwd, false},
    {"embedding_bwd", run_embedding_bwd, true},
    {"layernorm_fwd", run_layernorm_fwd, false},
    {"layernorm_again", run_layernorm_again, false},
    {"layernorm_bwd", run_layernorm_bwd, false},
    {"gemm", run_gemm, false},
    {"linear_fwd", run_linear_fwd, false},
    {"linear_bwd_input", run_linear_bwd_input, false},
    {"linear_bwd_weight", run_linear_bwd_weight, false},
    {"matvec", run_matvec, false},
    {"bias_grad", run_bias_grad, false},
    {"add_partials", run_add_partials, false},
    {"activation_fwd", run_activation_fwd, false},
    {"activation_bwd", run_activation_bwd, false},
    {"bias_dropout_residual", run_bias_dropout_residual, false},
    {"dropout_fwd", run_dropout_fwd, true},
    {"dropout_bwd", run_dropout_bwd, true},
    {"attention_fwd", run_attention_fwd, false},
    {"attention_bwd", run_attention_bwd, false},
    {"attention_decode", run_attention_decode, false},
    {"xent_max", run_xent_max, true},
    {"xent_exp", run_xent_exp, false},
    {"xent_grad", run_xent_grad, false},
    {"xent_top", run_xent_top, true},
    {"reduce", run_reduce, true},
    {"adamw", run_adamw, false},
    {"sum_squares", run_sum_squares, false},
    {"load", run_load, true},
    {"store", run_store, true},
    {"store_add", run_store_add, true},
    {"add_stored", run_add_stored, true},
    {"copy", run_copy, true},
    {"add", run_add, true},
    {"add_rows", run_add_rows, true},
    {"fill", run_fill, true},
};
_Static_assert(sizeof(struct kernels) ==
                   sizeof(char *) + ARRAY_LEN(scene_kernels) * sizeof(void (*)(void)),
               "a kernel that is new is checked as well");
const int n_scene_kernels = ARRAY_LEN(scene_kernels);
