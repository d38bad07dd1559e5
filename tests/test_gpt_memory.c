/* Stashes in the memory of gradients that are not there yet: less of it, the same bits.
 */
#include "gpt_fixture.h"

enum { STEPS = 2 };

/* ffn 160: every matrix ends where the next one begins. 150: there are gaps, which must
 * stay zero. */
static struct config config_with(int64_t ffn)
{
    struct config cfg = small_config(0.1);
    cfg.model.ffn_hidden_size = ffn;
    return cfg;
}

struct result {
    double loss_sums[STEPS][MICRO];
    char *grads; // all bytes of the storage, gaps too
    size_t n;
};

/* A step of one micro-batch; its gradients' memory may hold stashes, or not. */
static void prepare_one(struct model *m, const struct config *cfg, bool may_share)
{
    struct error err;
    assert_ok(model_prepare(m, cfg, MICRO, 1, LAYOUT_TRAIN, &err), err);
    assert_true(m->layout.model.has_one_micro_batch);
    m->layout.model.has_one_micro_batch = may_share;
}

/* Steps with nothing cleaned up between them, and an evaluation. */
static struct result train(struct model *m)
{
    struct result r = {.grads = NULL};
    struct text t = make_text(101, 64);
    const struct gpt *g = &m->runner.gpt;
    struct error err;
    start(m);
    for (int i = 0; i < STEPS; i++) {
        struct batch batch = micro_batch(&t, 0, r.loss_sums[i]);
        double ignored[MICRO];
        batch.step = i;
        assert_ok(runner_train(&m->runner, &batch, &err), err);
        assert_ok(runner_finish_grads(&m->runner, &err), err);
        batch.loss_sums = ignored;
        if (i == 0)
            assert_ok(runner_forward(&m->runner, &batch, &err), err);
    }
    r.n = (size_t)g->params.table->n_bytes[STORE_GRADS];
    r.grads = tensor_copy(g, g->params.storage[STORE_GRADS], r.n);
    return r;
}

static size_t activation_bytes(const struct model *m)
{
    return gpt_measure(&m->cfg, &m->layout.model).activations;
}

static void compare(int64_t ffn, enum dtype dtype, enum gpt_recompute recompute)
{
    struct config cfg = config_with(ffn);
    struct result r[2];
    size_t bytes[2];
    cfg.mix_precision.dtype = dtype;
    for (int i = 0; i < 2; i++) {
        struct model m;
        prepare_one(&m, &cfg, i == 1);
        m.layout.model.recompute = recompute;
        bytes[i] = activation_bytes(&m);
        r[i] = train(&m);
        model_close(&m);
    }
    if (ffn % 32 == 0)
        assert_true(bytes[1] < bytes[0]);
    else
        assert_int_equal(bytes[1], bytes[0]);
    assert_memory_equal(r[0].loss_sums, r[1].loss_sums, sizeof r[0].loss_sums);
    assert_memory_equal(r[0].grads, r[1].grads, r[0].n);
    free(r[0].grads);
    free(r[1].grads);
}

static void test_memory__of_gradients_holds_stashes_and_no_bit_changes(void **state)
{
    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(all_types); t++)
        for (int r = RECOMPUTE_NOTHING; r <= RECOMPUTE_BLOCK; r++) {
            compare(160, all_types[t], (enum gpt_recompute)r);
            compare(150, all_types[t], (enum gpt_recompute)r);
        }
}

/* What blocks stash fills the gradients of all blocks before the last one, but for less
 * than an array; the last one's have what the head reads. */
static void test_memory__that_is_saved_is_that_of_gradients(void **state)
{
    struct config cfg = config_with(160);
    struct model kept, shared;
    (void)state;
    prepare_one(&kept, &cfg, false);
    prepare_one(&shared, &cfg, true);
    const struct param_table *table = &kept.layout.table;
    int64_t block;
    param_table_layer_bytes(table, STORE_GRADS, param_table_layer(table, LAYER_BLOCK, 0),
                            &block);
    size_t array = MICRO * S * 40 * sizeof(float);
    size_t saved = activation_bytes(&kept) - activation_bytes(&shared);
    size_t before = (L - 1) * (size_t)block;
    assert_in_range(saved, before, before + array);
    model_close(&kept);
    model_close(&shared);
}

/* Gradients that are sums over micro-batches or chunks in flight are not free. */
static void test_memory__of_sums_is_left_alone(void **state)
{
    struct config cfg = config_with(160);
    struct model m;
    (void)state;
    prepare_one(&m, &cfg, false);
    struct gpt_options *opt = &m.layout.model;
    size_t kept = activation_bytes(&m);
    opt->n_stashes = 2;
    opt->has_one_micro_batch = true;
    assert_true(activation_bytes(&m) > kept * 19 / 10);
    opt->n_stashes = 1;
    opt->grads_are_owned = true;
    assert_int_equal(activation_bytes(&m), kept);
    model_close(&m);
}

/* The lookup's gradient lies in scratch, however small a stage's share of heads and inner
 * units is. */
static void test_memory__of_the_lookup_is_that_of_scratch(void **state)
{
    struct config cfg = config_with(160);
    struct model m;
    (void)state;
    cfg.mix_precision.dtype = DTYPE_BF16;
    cfg.model.vocab_size = 2000;
    prepare_one(&m, &cfg, true);
    struct gpt_options *opt = &m.layout.model;
    opt->part.has_head = false;
    for (int mp = 1; mp <= 8; mp *= 8) {
        size_t scratch[2];
        opt->part.mp = mp;
        for (int i = 0; i < 2; i++) {
            opt->has_one_micro_batch = i == 1;
            scratch[i] = gpt_measure(&m.cfg, opt).scratch;
        }
        size_t own = MICRO * S * 40 * sizeof(float);
        assert_int_equal(scratch[0] - scratch[1], own);
    }
    model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory__of_gradients_holds_stashes_and_no_bit_changes),
        cmocka_unit_test(test_memory__that_is_saved_is_that_of_gradients),
        cmocka_unit_test(test_memory__of_sums_is_left_alone),
        cmocka_unit_test(test_memory__of_the_lookup_is_that_of_scratch),
    };
    kernels_set_threads(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
