/*
 * Gradients of a bfloat16 model that are sums over micro-batches: as near to those of one
 * micro-batch as its rounding, since they are added up in float32 unless the configuration
 * says otherwise.
 */
#include "model_fixture.h"
#include "test.h"

#include <math.h>

enum { SAMPLES = 64, LENGTH = 12, TOKENS = SAMPLES * LENGTH, VOCAB = 67 };

static struct config bf16_config(enum config_truth fp32_grads)
{
    return (struct config){
        .model = {.vocab_size = VOCAB,
                  .hidden_size = 32,
                  .num_layers = 2,
                  .num_attention_heads = 2,
                  .ffn_hidden_size = 128,
                  .hidden_dropout_prob = 0.1,
                  .embed_drop_rate = 0.1,
                  .attention_probs_dropout_prob = 0.1,
                  .norm_epsilon = 1e-5,
                  .max_position_embeddings = LENGTH},
        .dataset = {.max_seq_len = LENGTH},
        .mix_precision = {.dtype = DTYPE_BF16, .fp32_grads = fp32_grads},
        .seed = 5,
    };
}

struct sums {
    double losses[SAMPLES];
    double *grads; // (n) of all parameters, as the table counts elements
    int64_t n;
    enum dtype dtype; // of a matrix's gradient
};

static void widen_grads(struct sums *sums, const struct gpt *g)
{
    const struct param_table *table = g->params.table;
    char *stored = tensor_copy(g, g->params.storage[STORE_GRADS],
                               (size_t)table->n_bytes[STORE_GRADS]);
    float *x = calloc((size_t)table->n_flat, sizeof *x);
    sums->n = table->n_flat;
    sums->grads = calloc((size_t)sums->n, sizeof *sums->grads);
    assert_true(x && sums->grads);
    for (int64_t i = 0; i < table->n_params; i++) {
        const struct param *row = &table->params[i];
        dtype_load(x + row->offset, stored + row->in[STORE_GRADS].at,
                   row->in[STORE_GRADS].dtype, row->n_elements);
        if (row->grad == GRAD_OVERWRITTEN)
            sums->dtype = row->in[STORE_GRADS].dtype;
    }
    for (int64_t i = 0; i < sums->n; i++)
        sums->grads[i] = (double)x[i];
    free(x);
    free(stored);
}

/* A step of n_micro micro-batches. */
static struct sums train(int64_t n_micro, enum config_truth fp32_grads)
{
    static int32_t tokens[TOKENS], targets[TOKENS];
    static float mask[TOKENS];
    struct philox_key key = philox_key(3, PHILOX_SAMPLE_TOKEN, 0);
    struct config cfg = bf16_config(fp32_grads);
    struct sums sums = {.grads = NULL};
    struct model m;
    struct error err;
    for (int64_t i = 0; i < TOKENS; i++) {
        tokens[i] = (int32_t)(philox_uniform(key, (uint64_t)i, 0) * VOCAB);
        targets[i] = (int32_t)(philox_uniform(key, (uint64_t)i, 1) * VOCAB);
        mask[i] = 1;
    }
    assert_ok(model_prepare(&m, &cfg, SAMPLES / n_micro, n_micro, LAYOUT_TRAIN, &err),
              err);
    assert_ok(model_start(&m, 0.05, &err), err);
    struct batch batch = {.B = SAMPLES,
                          .S = LENGTH,
                          .tokens = tokens,
                          .targets = targets,
                          .loss_mask = mask,
                          .loss_weight = 1.0F / TOKENS,
                          .loss_sums = sums.losses,
                          .step = 1};
    assert_ok(runner_train(&m.runner, &batch, &err), err);
    assert_ok(runner_finish_grads(&m.runner, &err), err);
    widen_grads(&sums, &m.runner.gpt);
    model_close(&m);
    return sums;
}

/* |b - a| / |a|. */
static double distance(const struct sums *a, const struct sums *b)
{
    double apart = 0, size = 0;
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++) {
        apart += (a->grads[i] - b->grads[i]) * (a->grads[i] - b->grads[i]);
        size += a->grads[i] * a->grads[i];
    }
    return sqrt(apart / size);
}

static void test_micro__sixty_four_of_one_sample_are_near_one_of_sixty_four(void **state)
{
    (void)state;
    struct sums one = train(1, TRUTH_EMPTY), exact = train(1, TRUTH_TRUE);
    struct sums many = train(SAMPLES, TRUTH_EMPTY), told = train(SAMPLES, TRUTH_TRUE);
    struct sums narrow = train(SAMPLES, TRUTH_FALSE);
    assert_int_equal(one.dtype, DTYPE_BF16);
    assert_int_equal(many.dtype, DTYPE_F32);
    assert_int_equal(narrow.dtype, DTYPE_BF16);
    // a sample's loss is its own
    assert_memory_equal(one.losses, many.losses, sizeof one.losses);
    assert_memory_equal(many.grads, told.grads, (size_t)many.n * sizeof *many.grads);
    double of_many = distance(&exact, &many), of_narrow = distance(&exact, &narrow);
    double of_one = distance(&exact, &one), apart = distance(&one, &many);
    print_message("to float32 sums of one micro-batch: one %.2e, 64 %.2e, 64 in bfloat16 "
                  "%.2e\n",
                  of_one, of_many, of_narrow);
    assert_true(of_many < 1e-5);   // other orders of the same sums
    assert_true(of_one < 2e-3);    // one rounding to 8 bits
    assert_true(apart < 2e-3);     // likewise
    assert_true(of_narrow > 4e-3); // 64 of them
    free(one.grads);
    free(exact.grads);
    free(many.grads);
    free(told.grads);
    free(narrow.grads);
}

/* float16 has three bits more; its default stays what it was. */
static void test_micro__left_empty_only_means_float32_sums_in_bfloat16(void **state)
{
    (void)state;
    struct config cfg = bf16_config(TRUTH_EMPTY);
    cfg.batch_size.num_micro_batches = 1;
    assert_false(config_has_fp32_grads(&cfg));
    cfg.batch_size.num_micro_batches = 2;
    assert_true(config_has_fp32_grads(&cfg));
    cfg.mix_precision.dtype = DTYPE_F16;
    assert_false(config_has_fp32_grads(&cfg));
    cfg.mix_precision.fp32_grads = TRUTH_TRUE;
    assert_true(config_has_fp32_grads(&cfg));
    cfg.mix_precision.dtype = DTYPE_BF16;
    cfg.mix_precision.fp32_grads = TRUTH_FALSE;
    assert_false(config_has_fp32_grads(&cfg));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_micro__sixty_four_of_one_sample_are_near_one_of_sixty_four),
        cmocka_unit_test(test_micro__left_empty_only_means_float32_sums_in_bfloat16),
    };
    kernels_set_threads(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
