/*
 * What the model does with its input: the gradient of the lookup, and documents that
 * share a sample, in every type.
 */
#include "gpt_fixture.h"

/* -- the lookup's gradient ---------------------------------------------------------- */

/* A first stage, whose gradient of the word embedding is the lookup's alone. */
static void prepare_first_stage(struct model *m, const struct config *cfg,
                                const struct gpt_options *change)
{
    struct config two_stages = *cfg;
    two_stages.distributed.pp_degree = 2;
    prepare(m, &two_stages, change);
    assert_false(m->layout.model.part.has_head);
}

/* One step of it with these tokens, and a gradient of ones from the stage after it. */
static void run_first_stage(struct model *m, const struct text *t)
{
    struct gpt *g = &m->runner.gpt;
    struct error err;
    enum { ROWS = MICRO * S };
    static float x_out[ROWS * 40], dx[ROWS * 40];
    gpt_start_step(g);
    for (int64_t b = 0; b < B; b += MICRO) {
        struct batch batch = micro_batch(t, b, NULL);
        for (size_t i = 0; i < ARRAY_LEN(dx); i++)
            dx[i] = 1.0F + (float)(i % 3);
        gpt_chunk_forward(g, 0, &batch, &g->stashes[0], NULL, x_out);
        gpt_chunk_backward(g, 0, &batch, &g->stashes[0], dx, GPT_BWD_BOTH);
    }
    gpt_finish_grads(g);
    assert_ok(runner_finish_grads(&m->runner, &err), err);
}

static void test_gpt__the_lookup_has_rows_for_the_tokens_that_occur(void **state)
{
    (void)state;
    struct config cfg = small_config(0.0);
    struct model m;
    struct gpt *g = &m.runner.gpt;
    prepare_first_stage(&m, &cfg, &(struct gpt_options){0});
    m.layout.model.n_step_tokens = 6; // as many as there will be
    start(&m);
    assert_int_equal(g->lookup.n_rows_most, 6);
    struct text t = make_text(101, 1);
    const void *grad = g->params.weights[STORE_GRADS][GPT_WORD_WEIGHT].data;
    enum { BYTES = 101 * 40 * sizeof(float) };
    for (int first = 10; first <= 90; first += 40) { // three steps, other tokens each
        for (int64_t n = 0; n < N;
             n++) // the second micro-batch shares half with the first
            t.tokens[n] = (int32_t)(first + n % 4 + (n < N / 2 ? 0 : 2));
        run_first_stage(&m, &t);
        float *before = tensor_copy(g, grad, BYTES);
        run_first_stage(&m, &t); // nothing of one step is left in the next
        float *dwte = tensor_copy(g, grad, BYTES);
        assert_memory_equal(before, dwte, BYTES);
        assert_int_equal(g->lookup.n_rows, 0);
        for (int64_t v = 0; v < 101; v++) {
            double size = 0;
            for (int64_t c = 0; c < 40; c++)
                size += fabs((double)dwte[v * 40 + c]);
            assert_int_equal(size > 0, v >= first && v < first + 6);
            assert_int_equal(g->lookup.slot[v], -1);
        }
        free(before);
        free(dwte);
    }
    model_close(&m);
}

/* Every position is one token's: summed over the vocabulary and over positions, the
 * gradients of the two embeddings are the same. */
static void test_gpt__word_and_position_gradients_have_the_same_sum(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all_types); i++) {
        struct config cfg = small_config(0.1);
        struct model m;
        struct gpt *g = &m.runner.gpt;
        struct gpt_options typed = {.dtype = all_types[i], .grad_dtype = all_types[i]};
        prepare_first_stage(&m, &cfg, &typed);
        start(&m);
        struct text t = make_text(101, 1);
        run_first_stage(&m, &t);
        const struct weight *grads = g->params.weights[STORE_GRADS];
        float *dwte =
            tensor_copy(g, grads[GPT_WORD_WEIGHT].data, 101 * 40 * sizeof *dwte);
        float *dwpe =
            tensor_copy(g, grads[GPT_POSITION_WEIGHT].data, S * 40 * sizeof *dwpe);
        for (int64_t c = 0; c < 40; c++) {
            double words = 0, positions = 0;
            for (int64_t v = 0; v < 101; v++)
                words += (double)dwte[v * 40 + c];
            for (int64_t p = 0; p < S; p++)
                positions += (double)dwpe[p * 40 + c];
            assert_true(fabs(words) > 1);
            assert_close(words, positions, 1e-5 * fabs(positions));
        }
        free(dwte);
        free(dwpe);
        model_close(&m);
    }
}

/* -- documents ---------------------------------------------------------------------- */

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
static double loss_alone(struct model *m, const struct text *t, int64_t at,
                         int64_t length)
{
    double sum;
    struct error err;
    struct batch batch = {.B = 1,
                          .S = length,
                          .tokens = t->tokens + at,
                          .targets = t->targets + at,
                          .loss_mask = t->mask + at,
                          .loss_sums = &sum};
    assert_ok(runner_forward(&m->runner, &batch, &err), err);
    return sum;
}

static void test_gpt__documents_of_a_sample_do_not_see_each_other(void **state)
{
    (void)state;
    struct text t = make_text(101, 1);
    struct config cfg = small_config(0.0);
    set_documents(&t);
    for (size_t i = 0; i < ARRAY_LEN(all_types); i++) {
        struct model m;
        struct gpt_options typed = {.dtype = all_types[i], .grad_dtype = all_types[i]};
        struct outcome packed = run_step(&cfg, &t, &typed);
        prepare(&m, &cfg, &typed);
        start(&m);
        for (int64_t b = 0; b < B; b++) {
            int64_t second = second_document(b);
            double apart = loss_alone(&m, &t, b * S, second) +
                           loss_alone(&m, &t, b * S + second, S - second);
            assert_close(packed.loss_sums[b], apart, 2e-6 * apart);
        }
        model_close(&m);
        outcome_release(&packed);
    }
}

/* The gradients of all documents, each by itself; the caller frees them. */
static float *grads_alone(struct gpt *g, const struct text *t)
{
    gpt_start_step(g);
    for (int64_t i = 0; i < 2 * B; i++) {
        int64_t second = second_document(i / 2), at = i / 2 * S + (i % 2 ? second : 0);
        double sum;
        struct batch batch = {.B = 1,
                              .S = i % 2 ? S - second : second,
                              .tokens = t->tokens + at,
                              .targets = t->targets + at,
                              .loss_mask = t->mask + at,
                              .loss_weight = t->weight,
                              .loss_sums = &sum,
                              .is_training = true,
                              .accumulate = i > 0,
                              .is_last = i + 1 == 2 * B};
        gpt_chunk_forward(g, 0, &batch, &g->stashes[0], NULL, NULL);
        gpt_chunk_backward(g, 0, &batch, &g->stashes[0], NULL, GPT_BWD_BOTH);
    }
    gpt_finish_grads(g);
    return widened_grads(g);
}

static void test_gpt__gradients_of_a_sample_are_the_sums_of_its_documents(void **state)
{
    (void)state;
    static const double allowed[] = {
        [DTYPE_F32] = 1e-5, [DTYPE_F16] = 2e-3, [DTYPE_BF16] = 2e-2};
    struct config cfg = small_config(0.0);
    struct text t = make_text(101, 1024);
    set_documents(&t);
    for (size_t i = 0; i < ARRAY_LEN(all_types); i++) {
        struct model m;
        struct gpt_options opt = {.dtype = all_types[i]}; // gradients are float32
        struct outcome packed = run_step(&cfg, &t, &opt), apart = {{0}, NULL, {0}};
        prepare(&m, &cfg, &opt);
        start(&m);
        apart.grads = grads_alone(&m.runner.gpt, &t);
        for (int64_t r = 0; r < packed.table.n_params; r++) {
            double d = distance(&packed, &apart, &packed.table.params[r], 1);
            if (!(d <= allowed[all_types[i]]))
                fail_msg("%s: %s is %.3g apart", dtype_name(all_types[i]),
                         packed.table.params[r].name, d);
        }
        model_close(&m);
        outcome_release(&packed);
        outcome_release(&apart);
    }
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
            t.mask[n] = 0;
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
        cmocka_unit_test(test_gpt__the_lookup_has_rows_for_the_tokens_that_occur),
        cmocka_unit_test(test_gpt__word_and_position_gradients_have_the_same_sum),
        cmocka_unit_test(test_gpt__documents_of_a_sample_do_not_see_each_other),
        cmocka_unit_test(test_gpt__gradients_of_a_sample_are_the_sums_of_its_documents),
        cmocka_unit_test(test_gpt__one_document_a_sample_is_no_documents_at_all),
        cmocka_unit_test(test_gpt__gradients_do_not_cross_documents),
    };
    kernels_set_threads(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
