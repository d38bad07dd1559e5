/*
 * golden - tests/golden/gpt_tiny.json for C tests: a tiny GPT's loss, gradients, ten AdamW
 * steps, and the losses of twenty steps of Adam with exact GELU, computed in double
 * precision by tests/interop/make_golden.py.
 *
 * Parameters and tokens are given by a formula, so a test builds the same state itself:
 *
 *     golden_load(&g);
 *     number = golden_find(&g, "layers.0.ln1.weight");
 *     x[i] = golden_value(&g, number, i);
 *     tokens[b * (S + 1) + s] = golden_token(&g, step, b * (S + 1) + s);
 *     golden_check(&g, "gradients", number, dx, 1e-5);
 *
 * A step has (B, S + 1) tokens: the first S of a row are inputs, the last S targets.
 * Everything fails the running test instead of returning an error.
 */
#ifndef TESTS_GOLDEN_H
#define TESTS_GOLDEN_H

#include "test.h"

#include <jansson.h>
#include <stdbool.h>

struct golden {
    json_t *root;
    int64_t V, H, L, A, F, P, S, B;
    int64_t n_params;
    int64_t n_steps;
    double loss; // of step 0, before any update
};

struct golden_step {
    double loss, grad_norm, lr; // grad_norm before the clip; lr of this update
};

static inline void golden_load(struct golden *g)
{
    json_error_t error;
    g->root = json_load_file(TEST_SOURCE_DIR "/golden/gpt_tiny.json",
                             JSON_REJECT_DUPLICATES, &error);
    if (!g->root)
        fail_msg("gpt_tiny.json:%d: %s", error.line, error.text);

    json_t *gradients, *steps;
    int64_t dims[8];
    int bad = json_unpack_ex(
        g->root, &error, 0, "{s:{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I},s:F,s:o,s:o}", "config",
        "vocab_size", &dims[0], "hidden_size", &dims[1], "num_layers", &dims[2],
        "num_attention_heads", &dims[3], "ffn_hidden_size", &dims[4],
        "max_position_embeddings", &dims[5], "seq_len", &dims[6], "batch_size", &dims[7],
        "loss", &g->loss, "gradients", &gradients, "steps", &steps);
    if (bad)
        fail_msg("gpt_tiny.json: %s", error.text);
    g->V = dims[0], g->H = dims[1], g->L = dims[2], g->A = dims[3];
    g->F = dims[4], g->P = dims[5], g->S = dims[6], g->B = dims[7];
    g->n_params = (int64_t)json_array_size(gradients);
    g->n_steps = (int64_t)json_array_size(steps);
}

static inline void golden_release(struct golden *g)
{
    json_decref(g->root);
    g->root = NULL;
}

/* A number below an object of the file: golden_number(&g, "optimizer", "grad_clip"). */
static inline double golden_number(const struct golden *g, const char *object,
                                   const char *key)
{
    const json_t *value = json_object_get(json_object_get(g->root, object), key);
    if (!json_is_number(value))
        fail_msg("gpt_tiny.json has no number %s.%s", object, key);
    return json_number_value(value);
}

/* As above, for the learning-rate schedule: decay_steps, warmup_rate, max_lr, min_lr. */
static inline double golden_lr(const struct golden *g, const char *key)
{
    const json_t *lr = json_object_get(json_object_get(g->root, "optimizer"), "lr");
    const json_t *value = json_object_get(lr, key);
    if (!json_is_number(value))
        fail_msg("gpt_tiny.json has no number optimizer.lr.%s", key);
    return json_number_value(value);
}

static inline struct golden_step golden_step(const struct golden *g, int64_t step)
{
    struct golden_step out;
    json_t *row = json_array_get(json_object_get(g->root, "steps"), (size_t)step);
    if (json_unpack(row, "{s:F,s:F,s:F}", "loss", &out.loss, "grad_norm", &out.grad_norm,
                    "lr", &out.lr))
        fail_msg("gpt_tiny.json has no step %lld", (long long)step);
    return out;
}

/* The number of steps of Adam, and the loss of one. */
static inline int64_t golden_n_adam(const struct golden *g)
{
    const json_t *adam = json_object_get(g->root, "adam");
    return (int64_t)json_array_size(json_object_get(adam, "losses"));
}

static inline double golden_adam_loss(const struct golden *g, int64_t step)
{
    const json_t *adam = json_object_get(g->root, "adam");
    const json_t *loss = json_array_get(json_object_get(adam, "losses"), (size_t)step);
    if (!json_is_number(loss))
        fail_msg("gpt_tiny.json has no loss of Adam's step %lld", (long long)step);
    return json_number_value(loss);
}

/* -- tensors ------------------------------------------------------------------------- */

/* Row `number` of the table "gradients" or "parameters_after". */
static inline json_t *golden_row(const struct golden *g, const char *table,
                                 int64_t number)
{
    json_t *row = json_array_get(json_object_get(g->root, table), (size_t)number);
    if (!row)
        fail_msg("gpt_tiny.json has no row %lld in %s", (long long)number, table);
    return row;
}

static inline const char *golden_name(const struct golden *g, int64_t number)
{
    return json_string_value(json_object_get(golden_row(g, "gradients", number), "name"));
}

/* The number of the parameter called `name`. */
static inline int64_t golden_find(const struct golden *g, const char *name)
{
    for (int64_t number = 0; number < g->n_params; number++)
        if (!strcmp(golden_name(g, number), name))
            return number;
    fail_msg("gpt_tiny.json has no parameter %s", name);
    return -1;
}

static inline int64_t golden_n_elements(const struct golden *g, int64_t number)
{
    return json_integer_value(
        json_object_get(golden_row(g, "gradients", number), "n_elements"));
}

/* Whether element i of n is a bias of the keys, which a softmax does not feel: its
 * gradient is zero but for rounding, and AdamW turns that into noise. */
static inline bool golden_is_key_bias(const char *name, int64_t n, int64_t i)
{
    return strstr(name, ".attn.qkv.bias") && i >= n / 3 && i < 2 * n / 3;
}

static inline void golden_check_sums(const char *what, const char *name, const float *x,
                                     const json_t *row, double tolerance)
{
    int64_t n = json_integer_value(json_object_get(row, "n_elements"));
    double squares = json_number_value(json_object_get(row, "sum_squares"));
    double weighted = json_number_value(json_object_get(row, "weighted_sum"));
    double got_squares = 0, got_weighted = 0;
    for (int64_t i = 0; i < n; i++) {
        if (golden_is_key_bias(name, n, i))
            continue;
        got_squares += (double)x[i] * (double)x[i];
        got_weighted += (double)x[i] * (double)(i % 11 - 5);
    }
    if (!(fabs(got_squares - squares) <= 2 * tolerance * squares))
        fail_msg("%s of %s: sum of squares is %.9g, not %.9g", what, name, got_squares,
                 squares);
    if (!(fabs(got_weighted - weighted) <= tolerance * 5 * sqrt(squares * (double)n)))
        fail_msg("%s of %s: weighted sum is %.9g, not %.9g", what, name, got_weighted,
                 weighted);
}

/*
 * Fails unless x, the whole tensor, has the elements and sums of row `number` of `table`.
 * An element may differ by `tolerance` times its own size or the root mean square of the
 * tensor, whichever is larger; the sums by what that allows each element. Gradients of
 * the keys' bias must be zero within the same.
 */
static inline void golden_check(const struct golden *g, const char *table, int64_t number,
                                const float *x, double tolerance)
{
    const json_t *row = golden_row(g, table, number);
    const json_t *index = json_object_get(row, "index");
    const json_t *value = json_object_get(row, "value");
    const char *name = golden_name(g, number);
    int64_t n = golden_n_elements(g, number);
    double squares = json_number_value(json_object_get(row, "sum_squares"));
    double rms = sqrt(squares / (double)n);

    for (size_t k = 0; k < json_array_size(index); k++) {
        int64_t i = json_integer_value(json_array_get(index, k));
        double want = json_number_value(json_array_get(value, k));
        double allowed = tolerance * fmax(fabs(want), rms);
        if (!(fabs((double)x[i] - want) <= allowed))
            fail_msg("%s of %s: element %lld is %.9g, not %.9g (allowed %.3g)", table,
                     name, (long long)i, (double)x[i], want, allowed);
    }
    bool is_gradient = !strcmp(table, "gradients");
    for (int64_t i = 0; is_gradient && i < n; i++)
        if (golden_is_key_bias(name, n, i))
            assert_close(x[i], 0, tolerance * rms);
    golden_check_sums(table, name, x, row, tolerance);
}

/* -- the state, by formula: torch_gpt.py has the same in Python --------------------- */

static inline uint32_t golden_hash(uint32_t stream, int64_t i)
{
    uint32_t x =
        (uint32_t)((uint64_t)i * 2654435761u + (uint64_t)stream * 40503u + 12345u);
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    return x ^ (x >> 16);
}

/* Element i of the initial value of parameter `number`. */
static inline float golden_value(const struct golden *g, int64_t number, int64_t i)
{
    const char *name = golden_name(g, number);
    const char *last_dot = strrchr(name, '.');
    bool is_bias = !strcmp(last_dot, ".bias");
    bool is_norm = strstr(name, ".ln") || !strncmp(name, "final_norm", 10);
    double u = (double)golden_hash((uint32_t)number, i) / 2147483648.0 - 1.0;
    return (float)(is_bias ? 0.02 * u : is_norm ? 1.0 + 0.1 * u : 0.05 * u);
}

/* Token i of the (B, S + 1) tokens of a step, counted from 0. */
static inline int32_t golden_token(const struct golden *g, int64_t step, int64_t i)
{
    int64_t stream = (int64_t)golden_number(g, "config", "token_stream") + step;
    return (int32_t)(golden_hash((uint32_t)stream, i) % (uint32_t)g->V);
}

#endif
