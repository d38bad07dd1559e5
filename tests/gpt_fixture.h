/*
 * gpt_fixture - a tiny model and one training step of it, in any of its variants: what
 * the tests of src/model compare with each other.
 */
#ifndef TESTS_GPT_FIXTURE_H
#define TESTS_GPT_FIXTURE_H

#include "model_fixture.h"
#include "test.h"

#include "model/gpt_params.h"

enum { B = 4, S = 33, N = B * S, L = 4, MICRO = 2 };

static const enum dtype all_types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};

static inline struct config small_config(double dropout)
{
    return (struct config){
        .model = {.vocab_size = 101,
                  .hidden_size = 40,
                  .num_layers = L,
                  .num_attention_heads = 4,
                  .ffn_hidden_size = 150,
                  .hidden_dropout_prob = dropout,
                  .embed_drop_rate = dropout,
                  .attention_probs_dropout_prob = dropout,
                  .norm_epsilon = 1e-5,
                  .max_position_embeddings = S},
        .dataset = {.max_seq_len = S},
        .seed = 77,
    };
}

/* -- one step ----------------------------------------------------------------------- */

struct text {
    int32_t tokens[N], targets[N], starts[N];
    float mask[N], weight;
    bool has_starts;
};

static inline struct text make_text(int64_t V, float scale)
{
    struct text t = {.weight = scale / N};
    struct philox_key key = philox_key(3, PHILOX_SAMPLE_TOKEN, 0);
    for (int64_t n = 0; n < N; n++) {
        t.tokens[n] = (int32_t)(philox_uniform(key, (uint64_t)n, 0) * (float)V);
        t.targets[n] = (int32_t)(philox_uniform(key, (uint64_t)n, 1) * (float)V);
        t.mask[n] = n % 7 == 0 ? 0.0F : 1.0F;
    }
    return t;
}

struct outcome { // grads: (n_flat) in float32, as the table counts elements
    double loss_sums[B];
    float *grads;
    struct param_table table;
};

static inline void outcome_release(struct outcome *out)
{
    free(out->grads);
    param_table_release(&out->table);
}

static inline float *widened_grads(const struct gpt *g)
{
    float *x = calloc((size_t)g->params.table->n_flat, sizeof *x);
    char *grads = tensor_copy(g, g->params.storage[STORE_GRADS],
                              (size_t)g->params.table->n_bytes[STORE_GRADS]);
    assert_non_null(x);
    for (int64_t i = 0; i < g->params.table->n_params; i++) {
        const struct param *row = &g->params.table->params[i];
        dtype_load(x + row->offset, grads + row->in[STORE_GRADS].at,
                   row->in[STORE_GRADS].dtype, row->n_elements);
    }
    free(grads);
    return x;
}

static inline struct batch micro_batch(const struct text *t, int64_t b, double *loss_sums)
{
    return (struct batch){.B = MICRO,
                          .S = S,
                          .tokens = t->tokens + b * S,
                          .targets = t->targets + b * S,
                          .loss_mask = t->mask + b * S,
                          .loss_weight = t->weight,
                          .loss_sums = loss_sums,
                          .document_start = t->has_starts ? t->starts + b * S : NULL,
                          .step = 5,
                          .first_sample = b,
                          .is_training = true,
                          .accumulate = b > 0,
                          .is_last = b + MICRO == B};
}

/* Prepare MICRO x 2 samples; `change` says what differs from a float32 model that keeps
 * everything: types, recomputation, chunks. */
static inline void prepare(struct model *m, const struct config *cfg,
                           const struct gpt_options *change)
{
    struct config typed = *cfg;
    struct error err;
    typed.mix_precision.dtype = change->dtype;
    typed.mix_precision.fp32_grads =
        change->grad_dtype == DTYPE_F32 ? TRUTH_TRUE : TRUTH_FALSE;
    typed.distributed.pp_schedule = SCHEDULE_F_THEN_B; // all are in flight
    assert_ok(model_prepare(m, &typed, MICRO, B / MICRO, LAYOUT_TRAIN, &err), err);
    m->layout.model.recompute = change->recompute;
    m->layout.model.keeps_all = change->keeps_all;
    m->layout.model.splits_backward = change->splits_backward;
    if (change->part.n_chunks > 0)
        m->layout.model.part = change->part;
    m->layout.model.n_stashes = B / MICRO * m->layout.model.part.n_chunks;
}

static inline void start(struct model *m)
{
    struct error err;
    assert_ok(model_start(m, 0.05, &err), err);
}

/* All forwards, then all backwards, of a model in chunks that follow each other through
 * `between`: as the stages of a pipeline do, in one process. Where backward's halves come
 * apart, all of its weight halves come last. */
static inline void run_chunks(struct gpt *g, const struct text *t, double *loss_sums)
{
    enum { ROWS = MICRO * S };
    int n_chunks = g->part.n_chunks;
    size_t n = (size_t)(ROWS * g->dims.H);
    char *between = calloc(n, sizeof(float));
    float *dx = calloc(n, sizeof *dx);
    assert_true(between && dx);
    gpt_start_step(g);
    for (int64_t b = 0; b < B; b += MICRO)
        for (int c = 0; c < n_chunks; c++) {
            struct batch batch = micro_batch(t, b, loss_sums + b);
            gpt_chunk_forward(g, c, &batch, &g->stashes[b / MICRO * n_chunks + c],
                              between, between);
        }
    static const enum gpt_half both[] = {GPT_BWD_BOTH},
                               apart[] = {GPT_BWD_INPUT, GPT_BWD_WEIGHT};
    const enum gpt_half *halves = g->splits_backward ? apart : both;
    for (size_t h = 0; h < (g->splits_backward ? 2 : 1); h++)
        for (int64_t b = 0; b < B; b += MICRO)
            for (int c = n_chunks - 1; c >= 0; c--) {
                struct batch batch = micro_batch(t, b, NULL);
                gpt_chunk_backward(g, c, &batch, &g->stashes[b / MICRO * n_chunks + c],
                                   dx, halves[h]);
            }
    gpt_finish_grads(g);
    free(between);
    free(dx);
}

/* One step; `change` as for prepare(). */
static inline struct outcome run_step(const struct config *cfg, const struct text *t,
                                      const struct gpt_options *change)
{
    struct outcome out = {{0}, NULL, {0}};
    struct batch batch = micro_batch(t, 0, out.loss_sums);
    struct model m;
    struct error err;
    prepare(&m, cfg, change);
    start(&m);
    batch.B = B;
    if (change->part.n_chunks > 1 || change->splits_backward)
        run_chunks(&m.runner.gpt, t, out.loss_sums);
    else
        assert_ok(runner_train(&m.runner, &batch, &err), err);
    assert_ok(runner_finish_grads(&m.runner, &err), err);
    out.grads = widened_grads(&m.runner.gpt);
    assert_ok(gpt_param_table(&out.table, &cfg->model, NULL, &err), err);
    assert_int_equal(out.table.n_flat, m.runner.gpt.params.table->n_flat);
    model_close(&m);
    return out;
}

static inline void assert_same(const struct outcome *a, const struct outcome *b)
{
    assert_memory_equal(a->loss_sums, b->loss_sums, sizeof a->loss_sums);
    assert_memory_equal(a->grads, b->grads, (size_t)a->table.n_flat * sizeof(float));
}

/* |b / scale - a| / |a| over one parameter. */
static inline double distance(const struct outcome *a, const struct outcome *b,
                              const struct param *row, double scale)
{
    double apart = 0, size = 0;
    for (int64_t e = row->offset; e < row->offset + row->n_elements; e++) {
        double x = (double)a->grads[e], y = (double)b->grads[e] / scale;
        apart += (x - y) * (x - y);
        size += x * x;
    }
    return sqrt(apart / size);
}

#endif
