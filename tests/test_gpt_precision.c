/*
 * The model in 16 bits against the float32 one; what is recomputed against what is kept,
 * to the last bit; the lookup's gradient; documents that share a sample.
 */
#include "test.h"

#include "model/gpt.h"

enum { B = 4, S = 33, N = B * S, L = 4, MICRO = 2 };

static const enum dtype all_types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};

static struct config small_config(double dropout)
{
    return (struct config){
        .model = {.vocab_size = 101,
                  .hidden_size = 40,
                  .num_layers = L,
                  .num_attention_heads = 4,
                  .ffn_hidden_size = 150,
                  .hidden_dropout_prob = dropout,
                  .attention_probs_dropout_prob = dropout,
                  .max_position_embeddings = S},
        .dataset = {.max_seq_len = S},
        .seed = 77,
    };
}

/* -- one step --------------------------------------------------------------------------
 */

struct text {
    int32_t tokens[N], targets[N], starts[N];
    float weights[N];
    bool has_starts;
};

static struct text make_text(int64_t V, float scale)
{
    struct text t = {.has_starts = false};
    struct philox_key key = philox_key(3, PHILOX_SAMPLE_TOKEN, 0);
    for (int64_t n = 0; n < N; n++) {
        t.tokens[n] = (int32_t)(philox_uniform(key, (uint64_t)n, 0) * (float)V);
        t.targets[n] = (int32_t)(philox_uniform(key, (uint64_t)n, 1) * (float)V);
        t.weights[n] = n % 7 == 0 ? 0.0F : scale / N;
    }
    return t;
}

struct outcome { // grads: (n_flat) in float32, as the table counts elements
    double loss_sums[B];
    float *grads;
    struct param_table table;
};

static void outcome_release(struct outcome *out)
{
    free(out->grads);
    param_table_release(&out->table);
}

static float *widened_grads(const struct gpt *g)
{
    float *x = calloc((size_t)g->table.n_flat, sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < g->table.n_params; i++) {
        const struct param *row = &g->table.params[i];
        dtype_load(x + row->offset, (char *)g->grads + row->in[STORE_GRADS].at,
                   row->in[STORE_GRADS].dtype, row->n_elements);
    }
    return x;
}

static struct gpt_batch micro_batch(const struct text *t, int64_t b)
{
    return (struct gpt_batch){.B = MICRO,
                              .S = S,
                              .tokens = t->tokens + b * S,
                              .targets = t->targets + b * S,
                              .weights = t->weights + b * S,
                              .document_start = t->has_starts ? t->starts + b * S : NULL,
                              .step = 5,
                              .first_sample = b,
                              .is_training = true,
                              .accumulate = b > 0,
                              .is_last = b + MICRO == B};
}

static struct gpt_options options_of(struct comm *alone)
{
    return (struct gpt_options){.B = MICRO,
                                .n_stashes = 2,
                                .has_grads = true,
                                .part = param_part_whole(L),
                                .model_group = alone,
                                .n_step_tokens = N};
}

/* All forwards, then all backwards: as a pipeline has them in flight. The model's chunks
 * follow each other through `between`. */
static void run_micro_batches(struct gpt *g, const struct text *t, double *loss_sums)
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
            struct gpt_batch batch = micro_batch(t, b);
            gpt_chunk_forward(g, c, &batch, &g->stashes[b / MICRO * n_chunks + c],
                              between, between, loss_sums + b);
        }
    for (int64_t b = 0; b < B; b += MICRO)
        for (int c = n_chunks - 1; c >= 0; c--) {
            struct gpt_batch batch = micro_batch(t, b);
            gpt_chunk_backward(g, c, &batch, &g->stashes[b / MICRO * n_chunks + c], dx);
        }
    gpt_finish_grads(g);
    free(between);
    free(dx);
}

/* One step of micro-batches; `change` is what differs from options_of(). */
static struct outcome run_step(const struct config *cfg, const struct text *t,
                               const struct gpt_options *change)
{
    struct outcome out = {{0}, NULL, {0}};
    struct gpt g;
    struct error err;
    struct comm *alone;
    assert_ok(comm_world_open(&alone, &err), err);
    struct gpt_options opt = options_of(alone);
    opt.dtype = change->dtype;
    opt.grad_dtype = change->grad_dtype;
    opt.recompute = change->recompute;
    opt.keeps_all = change->keeps_all;
    if (change->part.n_chunks > 0)
        opt.part = change->part;
    opt.n_stashes = 2 * opt.part.n_chunks;
    assert_ok(gpt_open_part(&g, cfg, &opt, &err), err);
    gpt_init_params(&g, 0.05);
    run_micro_batches(&g, t, out.loss_sums);
    out.grads = widened_grads(&g);
    assert_ok(param_table_init(&out.table, &cfg->model, &err), err);
    assert_int_equal(out.table.n_flat, g.table.n_flat);
    gpt_close(&g);
    comm_world_close(alone);
    return out;
}

static void assert_same(const struct outcome *a, const struct outcome *b)
{
    assert_memory_equal(a->loss_sums, b->loss_sums, sizeof a->loss_sums);
    assert_memory_equal(a->grads, b->grads, (size_t)a->table.n_flat * sizeof(float));
}

/* -- 16 bits against 32 ----------------------------------------------------------------
 */

/* |b / scale - a| / |a| over one parameter. */
static double distance(const struct outcome *a, const struct outcome *b,
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

static void test_gpt__16_bit_losses_and_gradients_are_near_the_float32_ones(void **state)
{
    (void)state;
    static const struct {
        enum dtype dtype;
        float scale;
        double loss, grad; // allowed, relative
    } cases[] = {{DTYPE_F16, 1024, 2e-4, 5e-3}, {DTYPE_BF16, 1, 2e-3, 4e-2}};
    struct config cfg = small_config(0.1);
    struct text t = make_text(101, 1);
    struct outcome exact = run_step(&cfg, &t, &(struct gpt_options){0});
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct gpt_options opt = {.dtype = cases[i].dtype, .grad_dtype = cases[i].dtype};
        struct text scaled = make_text(101, cases[i].scale);
        struct outcome out = run_step(&cfg, &scaled, &opt);
        for (int b = 0; b < B; b++)
            assert_close(out.loss_sums[b], exact.loss_sums[b],
                         cases[i].loss * exact.loss_sums[b]);
        for (int64_t r = 0; r < exact.table.n_params; r++) {
            const struct param *row = &exact.table.params[r];
            double d = distance(&exact, &out, row, (double)cases[i].scale);
            if (!(d <= cases[i].grad))
                fail_msg("%s: %s is %.3g apart", dtype_name(cases[i].dtype), row->name,
                         d);
        }
        outcome_release(&out);
    }
    outcome_release(&exact);
}

/* The gradients of one micro-batch; of several, each addition rounds. */
static void test_gpt__16_bit_gradients_are_the_float32_ones_rounded(void **state)
{
    (void)state;
    struct config cfg = small_config(0.1);
    struct text t = make_text(101, 1024);
    for (int64_t n = MICRO * S; n < N; n++)
        t.weights[n] = 0;
    struct gpt_options wide = {.dtype = DTYPE_F16, .grad_dtype = DTYPE_F32};
    struct gpt_options narrow = {.dtype = DTYPE_F16, .grad_dtype = DTYPE_F16};
    struct outcome a = run_step(&cfg, &t, &wide), b = run_step(&cfg, &t, &narrow);
    assert_memory_equal(a.loss_sums, b.loss_sums, sizeof a.loss_sums);
    for (int64_t i = 0; i < a.table.n_params; i++) {
        const struct param *row = &a.table.params[i];
        bool is_typed = row->layer > 0 && row->has_decay;
        for (int64_t e = row->offset; e < row->offset + row->n_elements; e++) {
            float x = is_typed ? f16_to_f32(f32_to_f16(a.grads[e])) : a.grads[e];
            assert_close(b.grads[e], x, 0);
        }
    }
    outcome_release(&a);
    outcome_release(&b);
}

/* -- recomputation ---------------------------------------------------------------------
 */

static const bool alternate[L] = {false, true, false, true};
static const bool first_only[L] = {true, false, false, false};

static struct param_part two_chunks(void)
{
    struct param_part part = param_part_whole(L);
    part.n_chunks = 2;
    part.chunks[0].first = 0;
    part.chunks[0].end = 1;
    part.chunks[1].first = 1;
    part.chunks[1].end = L;
    return part;
}

static void test_gpt__recomputing_does_not_change_a_bit(void **state)
{
    (void)state;
    static const bool *const kept[] = {NULL, alternate, first_only};
    struct config cfg = small_config(0.1);
    for (size_t t = 0; t < ARRAY_LEN(all_types); t++) {
        struct text text = make_text(101, 64);
        struct gpt_options opt = {.dtype = all_types[t], .grad_dtype = all_types[t]};
        struct outcome all_kept = run_step(&cfg, &text, &opt);
        for (int r = RECOMPUTE_CORE; r <= RECOMPUTE_BLOCK; r++)
            for (size_t k = 0; k < ARRAY_LEN(kept); k++) {
                opt.recompute = (enum gpt_recompute)r;
                opt.keeps_all = kept[k];
                struct outcome out = run_step(&cfg, &text, &opt);
                assert_same(&all_kept, &out);
                outcome_release(&out);
            }
        outcome_release(&all_kept);
    }
}

static void test_gpt__chunks_of_a_pipeline_do_not_change_a_bit(void **state)
{
    (void)state;
    struct config cfg = small_config(0.1);
    for (size_t t = 0; t < ARRAY_LEN(all_types); t++) {
        struct text text = make_text(101, 64);
        struct gpt_options opt = {.dtype = all_types[t], .grad_dtype = all_types[t]};
        struct outcome whole = run_step(&cfg, &text, &opt);
        opt.part = two_chunks();
        for (int r = RECOMPUTE_NOTHING; r <= RECOMPUTE_BLOCK; r++) {
            opt.recompute = (enum gpt_recompute)r;
            opt.keeps_all = r == RECOMPUTE_BLOCK ? alternate : NULL;
            struct outcome out = run_step(&cfg, &text, &opt);
            assert_same(&whole, &out);
            outcome_release(&out);
        }
        outcome_release(&whole);
    }
}

static size_t activation_bytes(const struct gpt_options *opt)
{
    struct config cfg = small_config(0.1);
    struct gpt_memory mem;
    struct error err;
    assert_ok(gpt_measure(&mem, &cfg, opt, &err), err);
    return mem.activations;
}

static void test_gpt__recomputing_saves_what_it_says(void **state)
{
    (void)state;
    static const bool all[L] = {true, true, true, true};
    for (size_t t = 0; t < ARRAY_LEN(all_types); t++) {
        struct gpt_options opt = options_of(NULL);
        opt.n_stashes = 1;
        opt.dtype = opt.grad_dtype = all_types[t];
        size_t bytes[RECOMPUTE_BLOCK + 1], one_block, input;
        for (int r = RECOMPUTE_NOTHING; r <= RECOMPUTE_BLOCK; r++) {
            opt.recompute = (enum gpt_recompute)r;
            bytes[r] = activation_bytes(&opt);
            assert_true(r == 0 || bytes[r] < bytes[r - 1]);
        }
        opt.keeps_all = all; // pays for the shared block too
        assert_true(activation_bytes(&opt) >= bytes[RECOMPUTE_NOTHING]);
        opt.keeps_all = alternate;
        assert_true(activation_bytes(&opt) > bytes[RECOMPUTE_BLOCK]);
        // one block's input a layer, and one block
        one_block = bytes[RECOMPUTE_NOTHING] / L;
        input = (size_t)(MICRO * S * 40) * dtype_bytes(all_types[t]);
        size_t dx = (size_t)(MICRO * S * 40) * sizeof(float);
        assert_true(bytes[RECOMPUTE_BLOCK] <= L * (input + 256) + one_block + dx);
    }
}

/* -- the lookup's gradient -------------------------------------------------------------
 */

/* A first stage, whose gradient of the word embedding is the lookup's alone. */
static struct gpt_options first_stage(struct comm *alone)
{
    struct gpt_options opt = options_of(alone);
    opt.part.has_head = false;
    opt.part.chunks[0].end = 1;
    return opt;
}

/* One step of it with these tokens, and a gradient of ones from the stage after it. */
static void run_first_stage(struct gpt *g, const struct text *t)
{
    enum { ROWS = MICRO * S };
    static float x_out[ROWS * 40], dx[ROWS * 40];
    gpt_start_step(g);
    for (int64_t b = 0; b < B; b += MICRO) {
        struct gpt_batch batch = micro_batch(t, b);
        for (size_t i = 0; i < ARRAY_LEN(dx); i++)
            dx[i] = 1.0F + (float)(i % 3);
        gpt_chunk_forward(g, 0, &batch, &g->stashes[0], NULL, x_out, NULL);
        gpt_chunk_backward(g, 0, &batch, &g->stashes[0], dx);
    }
    gpt_finish_grads(g);
}

static void test_gpt__the_lookup_has_rows_for_the_tokens_that_occur(void **state)
{
    (void)state;
    struct config cfg = small_config(0.0);
    struct error err;
    struct comm *alone;
    struct gpt g;
    assert_ok(comm_world_open(&alone, &err), err);
    struct gpt_options opt = first_stage(alone);
    opt.n_step_tokens = 6; // as many as there will be
    assert_ok(gpt_open_part(&g, &cfg, &opt, &err), err);
    gpt_init_params(&g, 0.05);
    assert_int_equal(g.lookup.n_rows_most, 6);
    struct text t = make_text(101, 1);
    const float *dwte = g.d[0].wte;
    for (int first = 10; first <= 90; first += 40) { // three steps, other tokens each
        for (int64_t n = 0; n < N;
             n++) // the second micro-batch shares half with the first
            t.tokens[n] = (int32_t)(first + n % 4 + (n < N / 2 ? 0 : 2));
        run_first_stage(&g, &t);
        assert_int_equal(g.lookup.n_rows, 0);
        for (int64_t v = 0; v < 101; v++) {
            double size = 0;
            for (int64_t c = 0; c < 40; c++)
                size += fabs((double)dwte[v * 40 + c]);
            assert_int_equal(size > 0, v >= first && v < first + 6);
            assert_int_equal(g.lookup.slot[v], -1);
        }
    }
    gpt_close(&g);
    comm_world_close(alone);
}

/* Every position is one token's: summed over the vocabulary and over positions, the
 * gradients of the two embeddings are the same. */
static void test_gpt__word_and_position_gradients_have_the_same_sum(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all_types); i++) {
        struct config cfg = small_config(0.1);
        struct error err;
        struct comm *alone;
        struct gpt g;
        assert_ok(comm_world_open(&alone, &err), err);
        struct gpt_options opt = first_stage(alone);
        opt.dtype = opt.grad_dtype = all_types[i];
        assert_ok(gpt_open_part(&g, &cfg, &opt, &err), err);
        gpt_init_params(&g, 0.05);
        struct text t = make_text(101, 1);
        run_first_stage(&g, &t);
        const float *dwte = g.d[0].wte, *dwpe = g.d[0].wpe;
        for (int64_t c = 0; c < 40; c++) {
            double words = 0, positions = 0;
            for (int64_t v = 0; v < 101; v++)
                words += (double)dwte[v * 40 + c];
            for (int64_t p = 0; p < S; p++)
                positions += (double)dwpe[p * 40 + c];
            assert_true(fabs(words) > 1);
            assert_close(words, positions, 1e-5 * fabs(positions));
        }
        gpt_close(&g);
        comm_world_close(alone);
    }
}

/* -- documents -------------------------------------------------------------------------
 */

/* Every sample has two documents; where the second one begins. */
static int32_t second_document(int64_t sample)
{
    return (int32_t)(14 + 3 * sample);
}

static void set_documents(struct text *t)
{
    t->has_starts = true;
    for (int64_t n = 0; n < N; n++)
        t->starts[n] = n % S < second_document(n / S) ? 0 : second_document(n / S);
}

/* The loss of one document by itself, in a batch that holds nothing else. */
static double loss_alone(struct gpt *g, const struct text *t, int64_t at, int64_t length)
{
    double sum;
    struct gpt_batch batch = {.B = 1,
                              .S = length,
                              .tokens = t->tokens + at,
                              .targets = t->targets + at,
                              .weights = t->weights + at};
    gpt_forward(g, &batch, &sum);
    return sum;
}

static void test_gpt__documents_of_a_sample_do_not_see_each_other(void **state)
{
    (void)state;
    struct text t = make_text(101, 1);
    struct config cfg = small_config(0.0);
    struct error err;
    struct comm *alone;
    set_documents(&t);
    assert_ok(comm_world_open(&alone, &err), err);
    for (size_t i = 0; i < ARRAY_LEN(all_types); i++) {
        struct gpt g;
        struct gpt_options opt = options_of(alone);
        struct gpt_options typed = {.dtype = all_types[i], .grad_dtype = all_types[i]};
        opt.dtype = opt.grad_dtype = all_types[i];
        struct outcome packed = run_step(&cfg, &t, &typed);
        assert_ok(gpt_open_part(&g, &cfg, &opt, &err), err);
        gpt_init_params(&g, 0.05);
        for (int64_t b = 0; b < B; b++) {
            int64_t second = second_document(b);
            double apart = loss_alone(&g, &t, b * S, second) +
                           loss_alone(&g, &t, b * S + second, S - second);
            assert_close(packed.loss_sums[b], apart, 2e-6 * apart);
        }
        gpt_close(&g);
        outcome_release(&packed);
    }
    comm_world_close(alone);
}

static void test_gpt__one_document_a_sample_is_no_documents_at_all(void **state)
{
    (void)state;
    struct text t = make_text(101, 1), marked = make_text(101, 1), other = t;
    struct config cfg = small_config(0.1);
    marked.has_starts = true;
    set_documents(&other);
    struct gpt_options opt = {.dtype = DTYPE_F32};
    struct outcome a = run_step(&cfg, &t, &opt), b = run_step(&cfg, &marked, &opt);
    struct outcome c = run_step(&cfg, &other, &opt);
    assert_same(&a, &b);
    assert_true(fabs(a.loss_sums[0] - c.loss_sums[0]) > 1e-3);
    outcome_release(&a);
    outcome_release(&b);
    outcome_release(&c);
}

/* Losses of the first documents only: then nothing of the second ones has a gradient. */
static void test_gpt__gradients_do_not_cross_documents(void **state)
{
    (void)state;
    struct text t = make_text(101, 1);
    struct config cfg = small_config(0.1);
    set_documents(&t);
    for (int64_t n = 0; n < N; n++)
        if (t.starts[n] > 0)
            t.weights[n] = 0;
    struct text changed = t;
    for (int64_t n = 0; n < N; n++)
        if (t.starts[n] > 0)
            changed.tokens[n] = (t.tokens[n] + 50) % 101;
    struct gpt_options opt = {.dtype = DTYPE_F16, .grad_dtype = DTYPE_F32};
    struct outcome a = run_step(&cfg, &t, &opt), b = run_step(&cfg, &changed, &opt);
    assert_memory_equal(a.loss_sums, b.loss_sums, sizeof a.loss_sums);
    for (int64_t i = 0; i < a.table.n_flat; i++)
        assert_close(a.grads[i], b.grads[i], 1e-9);
    outcome_release(&a);
    outcome_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt__16_bit_losses_and_gradients_are_near_the_float32_ones),
        cmocka_unit_test(test_gpt__16_bit_gradients_are_the_float32_ones_rounded),
        cmocka_unit_test(test_gpt__recomputing_does_not_change_a_bit),
        cmocka_unit_test(test_gpt__chunks_of_a_pipeline_do_not_change_a_bit),
        cmocka_unit_test(test_gpt__recomputing_saves_what_it_says),
        cmocka_unit_test(test_gpt__the_lookup_has_rows_for_the_tokens_that_occur),
        cmocka_unit_test(test_gpt__word_and_position_gradients_have_the_same_sum),
        cmocka_unit_test(test_gpt__documents_of_a_sample_do_not_see_each_other),
        cmocka_unit_test(test_gpt__one_document_a_sample_is_no_documents_at_all),
        cmocka_unit_test(test_gpt__gradients_do_not_cross_documents),
    };
    kernels_set_threads(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
