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

/* Steps of one micro-batch with nothing cleaned up between them, and an evaluation. */
static struct result train(const struct config *cfg, const struct gpt_options *opt)
{
    struct result r = {.grads = NULL};
    struct text t = make_text(101, 64);
    struct gpt g;
    struct error err;
    assert_ok(gpt_open_part(&g, cfg, opt, &err), err);
    gpt_init_params(&g, 0.05);
    for (int i = 0; i < STEPS; i++) {
        struct batch batch = micro_batch(&t, 0, r.loss_sums[i]);
        double ignored[MICRO];
        batch.step = i;
        batch.is_last = true;
        gpt_forward(&g, &batch);
        gpt_backward(&g, &batch);
        gpt_finish_grads(&g);
        if (i == 0) {
            batch.is_training = false;
            batch.loss_sums = ignored;
            gpt_forward(&g, &batch);
        }
    }
    r.n = (size_t)g.params.table->n_bytes[STORE_GRADS];
    r.grads = malloc(r.n);
    assert_non_null(r.grads);
    memcpy(r.grads, g.params.storage[STORE_GRADS], r.n);
    gpt_close(&g);
    return r;
}

static size_t activation_bytes(const struct config *cfg, const struct gpt_options *opt)
{
    struct gpt_memory mem;
    struct error err;
    assert_ok(gpt_measure(&mem, cfg, opt, &err), err);
    return mem.activations;
}

static struct gpt_options one_stash(struct comm *alone, bool has_one_micro_batch)
{
    struct gpt_options opt = options_of(alone);
    opt.n_stashes = 1;
    opt.has_one_micro_batch = has_one_micro_batch;
    return opt;
}

static void compare(struct comm *alone, int64_t ffn, enum dtype dtype,
                    enum gpt_recompute recompute)
{
    struct config cfg = config_with(ffn);
    struct result r[2];
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        struct gpt_options opt = one_stash(alone, i == 1);
        opt.dtype = opt.grad_dtype = dtype;
        opt.recompute = recompute;
        bytes[i] = activation_bytes(&cfg, &opt);
        r[i] = train(&cfg, &opt);
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
    for (size_t t = 0; t < ARRAY_LEN(all_types); t++)
        for (int r = RECOMPUTE_NOTHING; r <= RECOMPUTE_BLOCK; r++) {
            compare(*state, 160, all_types[t], (enum gpt_recompute)r);
            compare(*state, 150, all_types[t], (enum gpt_recompute)r);
        }
}

/* What a block stashes shrinks by the matrices of the block before it, the first one's
 * stays: here stashes are larger than matrices, and most of an array's size is lost. */
static void test_memory__that_is_saved_is_at_most_that_of_matrices(void **state)
{
    struct config cfg = config_with(160);
    struct gpt_options kept = one_stash(*state, false), shared = one_stash(*state, true);
    size_t matrices = (4 * 40 * 40 + 2 * 40 * 160) * sizeof(float);
    size_t largest = MICRO * S * 160 * sizeof(float);
    size_t saved = activation_bytes(&cfg, &kept) - activation_bytes(&cfg, &shared);
    assert_in_range(saved, (L - 1) * (matrices - largest), (L - 1) * matrices);
}

/* Gradients that are sums over micro-batches or chunks in flight are not free. */
static void test_memory__of_sums_is_left_alone(void **state)
{
    struct config cfg = config_with(160);
    struct gpt_options opt = one_stash(*state, false);
    size_t kept = activation_bytes(&cfg, &opt);
    opt.n_stashes = 2;
    opt.has_one_micro_batch = true;
    assert_true(activation_bytes(&cfg, &opt) > kept * 19 / 10);
    opt.n_stashes = 1;
    opt.grads_are_owned = true;
    assert_int_equal(activation_bytes(&cfg, &opt), kept);
}

static int open_alone(void **state)
{
    struct error err;
    struct comm *alone;
    assert_ok(comm_world_open(&alone, &err), err);
    *state = alone;
    return 0;
}

static int close_alone(void **state)
{
    comm_world_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory__of_gradients_holds_stashes_and_no_bit_changes),
        cmocka_unit_test(test_memory__that_is_saved_is_at_most_that_of_matrices),
        cmocka_unit_test(test_memory__of_sums_is_left_alone),
    };
    kernels_set_threads(1);
    return cmocka_run_group_tests(tests, open_alone, close_alone);
}
