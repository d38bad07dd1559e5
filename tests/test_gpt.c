/*
 * The model against itself: what must not change a bit (threads, micro-batches, the way
 * it is run), and what is known of it in advance.
 */
#include "model_fixture.h"
#include "test.h"

#include "model/sampler.h"
#include "optim/optimizer.h"

static struct config small_config(double dropout)
{
    return (struct config){
        .model = {.vocab_size = 101,
                  .hidden_size = 40,
                  .num_layers = 2,
                  .num_attention_heads = 4,
                  .ffn_hidden_size = 150,
                  .hidden_dropout_prob = dropout,
                  .embed_drop_rate = dropout,
                  .attention_probs_dropout_prob = dropout,
                  .norm_epsilon = 1e-5,
                  .max_position_embeddings = 140},
        .optimizer = {.adam_beta1 = 0.9, .adam_beta2 = 0.999, .adam_epsilon = 1e-8},
        .dataset = {.max_seq_len = 133},
        .seed = 77,
    };
}

enum { B = 6, S = 133, N = B * S };

struct run { // the outcome of one step
    double loss_sums[B];
    double norm;
    uint64_t grads_hash;
};

static uint64_t hash_bytes(const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 1099511628211u;
    return h;
}

static void fill_batch(int32_t *tokens, int32_t *targets, float *mask, int64_t V)
{
    struct philox_key key = philox_key(3, PHILOX_SAMPLE_TOKEN, 0);
    for (int64_t n = 0; n < N; n++) {
        tokens[n] = (int32_t)(philox_uniform(key, (uint64_t)n, 0) * (float)V);
        targets[n] = (int32_t)(philox_uniform(key, (uint64_t)n, 1) * (float)V);
        mask[n] = n % 7 == 0 ? 0.0F : 1.0F;
    }
}

/* One training step in micro-batches of M samples; M divides B. */
static struct run run_step(const struct config *cfg, int64_t M, int n_threads,
                           bool is_training)
{
    static int32_t tokens[N], targets[N];
    static float mask[N];
    struct run out = {{0}, 0, 0};
    struct model m;
    struct optimizer opt;
    struct error err;
    kernels_set_threads(n_threads);
    fill_batch(tokens, targets, mask, cfg->model.vocab_size);
    enum layout_use use = is_training ? LAYOUT_TRAIN : LAYOUT_EVALUATE;
    assert_ok(model_prepare(&m, cfg, M, B / M, use, &err), err);
    assert_ok(model_start(&m, 0.02, &err), err);
    const struct gpt *g = &m.runner.gpt;
    struct optimizer_options options = {
        .map = &m.layout.map, .dev = g->dev, .cfg = cfg->optimizer};
    struct batch batch = {.B = B,
                          .S = S,
                          .tokens = tokens,
                          .targets = targets,
                          .loss_mask = mask,
                          .loss_weight = 1.0F / N,
                          .loss_sums = out.loss_sums,
                          .step = 5};
    assert_ok(optimizer_open(&opt, &options, &err), err);
    if (is_training) {
        assert_ok(runner_train(&m.runner, &batch, &err), err);
        assert_ok(runner_finish_grads(&m.runner, &err), err);
        assert_ok(optimizer_norm(&opt, &m.runner.zero.grads, &out.norm, &err), err);
        size_t bytes = (size_t)g->params.table->n_flat * sizeof(float);
        void *grads = tensor_copy(g, g->params.storage[STORE_GRADS], bytes);
        out.grads_hash = hash_bytes(grads, bytes);
        free(grads);
    } else {
        assert_ok(runner_forward(&m.runner, &batch, &err), err);
    }
    optimizer_close(&opt);
    model_close(&m);
    return out;
}

static void test_gpt__threads_do_not_change_a_bit(void **state)
{
    (void)state;
    struct config cfg = small_config(0.1);
    struct run one = run_step(&cfg, 3, 1, true);
    for (int n_threads = 2; n_threads <= 3; n_threads++) {
        struct run many = run_step(&cfg, 3, n_threads, true);
        assert_memory_equal(&one, &many, sizeof one);
    }
}

static void test_gpt__micro_batches_do_not_change_the_losses(void **state)
{
    (void)state;
    struct config cfg = small_config(0.1);
    struct run whole = run_step(&cfg, 6, 2, true);
    for (int64_t M = 1; M <= 3; M++) {
        struct run cut = run_step(&cfg, M, 2, true);
        assert_memory_equal(whole.loss_sums, cut.loss_sums, sizeof cut.loss_sums);
        assert_close(cut.norm, whole.norm, 2e-6 * whole.norm);
    }
}

static void test_gpt__dropout_changes_the_losses_and_a_seed_the_dropout(void **state)
{
    (void)state;
    struct config cfg = small_config(0.1), other = cfg;
    other.model.hidden_dropout_prob = 0;
    struct run both = run_step(&cfg, 6, 2, true);
    struct run less = run_step(&other, 6, 2, true);
    assert_true(both.loss_sums[0] != less.loss_sums[0]);
    other = cfg;
    other.model.embed_drop_rate = 0.2;
    struct run more = run_step(&other, 6, 2, true);
    assert_true(both.loss_sums[0] != more.loss_sums[0]);
    other = cfg;
    other.seed = 78;
    struct run reseeded = run_step(&other, 6, 2, true);
    assert_true(both.loss_sums[0] != reseeded.loss_sums[0]);
}

static void test_gpt__evaluation_is_training_without_dropout(void **state)
{
    (void)state;
    struct config cfg = small_config(0.0), dropped = small_config(0.3);
    struct run trained = run_step(&cfg, 2, 2, true);
    struct run evaluated = run_step(&dropped, 3, 2, false);
    assert_memory_equal(trained.loss_sums, evaluated.loss_sums, sizeof trained.loss_sums);
}

/* The expected loss of fresh weights is ln V + H sigma^2 / 2. */
static void test_gpt__initial_loss_is_as_theory_says(void **state)
{
    (void)state;
    struct config cfg = small_config(0.1);
    cfg.model.vocab_size = 5003;
    cfg.model.hidden_size = 256;
    cfg.model.ffn_hidden_size = 1024;
    struct run run = run_step(&cfg, 6, 2, true);
    double sum = 0;
    for (int b = 0; b < B; b++)
        sum += run.loss_sums[b];
    int64_t n_counted = N - (N + 6) / 7;
    double expected = log(5003.0) + 256 * 0.02 * 0.02 / 2;
    assert_close(sum / (double)n_counted, expected, 0.05);
}

/* -- sampling ------------------------------------------------------------------------ */

static void test_sampler__keeps_what_top_k_and_top_p_allow(void **state)
{
    (void)state;
    // probabilities 0.5, 0.25, 0.15, 0.1 in another order
    const float logits[] = {logf(0.15F), logf(0.5F), logf(0.1F), logf(0.25F)};
    static const struct {
        double temperature, top_p;
        int64_t top_k;
        const char *allowed;
    } cases[] = {
        {0.0, 1.0, 0, "0100"}, {1.0, 1.0, 0, "1111"}, {1.0, 1.0, 2, "0101"},
        {1.0, 0.5, 0, "0100"}, {1.0, 0.6, 0, "0101"}, {1.0, 0.9, 0, "1101"},
        {1.0, 1.0, 1, "0100"}, {1.0, 0.9, 2, "0101"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct sampler s = {.temperature = cases[i].temperature,
                            .top_k = cases[i].top_k,
                            .top_p = cases[i].top_p,
                            .seed = 9};
        struct error err;
        char seen[] = "0000";
        assert_ok(sampler_init(&s, 4, &err), err);
        for (int64_t draw = 0; draw < 400; draw++)
            seen[sampler_next(&s, logits, draw)] = '1';
        assert_string_equal(seen, cases[i].allowed);
        sampler_release(&s);
    }
}

static void test_sampler__does_not_choose_by_what_is_no_number(void **state)
{
    static const float cases[][3] = {
        {NAN, 1, 2}, {1, NAN, 2}, {1, INFINITY, 2}, {-INFINITY, -INFINITY, -INFINITY}};
    (void)state;
    for (int temperature = 0; temperature < 2; temperature++) {
        struct sampler s = {.temperature = temperature, .top_p = 1};
        struct error err;
        assert_ok(sampler_init(&s, 3, &err), err);
        for (size_t i = 0; i < ARRAY_LEN(cases); i++)
            assert_int_equal(sampler_next(&s, cases[i], 0), SAMPLER_NO_NUMBERS);
        assert_int_equal(sampler_next(&s, (float[]){-INFINITY, 3, -INFINITY}, 0), 1);
        sampler_release(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt__threads_do_not_change_a_bit),
        cmocka_unit_test(test_gpt__micro_batches_do_not_change_the_losses),
        cmocka_unit_test(test_gpt__dropout_changes_the_losses_and_a_seed_the_dropout),
        cmocka_unit_test(test_gpt__evaluation_is_training_without_dropout),
        cmocka_unit_test(test_gpt__initial_loss_is_as_theory_says),
        cmocka_unit_test(test_sampler__keeps_what_top_k_and_top_p_allow),
        cmocka_unit_test(test_sampler__does_not_choose_by_what_is_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
