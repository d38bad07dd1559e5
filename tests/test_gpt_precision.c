/*
 * The model in 16 bits against the float32 one; what is recomputed against what is kept,
 * to the last bit.
 */
#include "gpt_fixture.h"

/* -- 16 bits against 32 ------------------------------------------------------------- */

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
        t.mask[n] = 0;
    struct gpt_options wide = {.dtype = DTYPE_F16, .grad_dtype = DTYPE_F32};
    struct gpt_options narrow = {.dtype = DTYPE_F16, .grad_dtype = DTYPE_F16};
    struct outcome a = run_step(&cfg, &t, &wide), b = run_step(&cfg, &t, &narrow);
    assert_memory_equal(a.loss_sums, b.loss_sums, sizeof a.loss_sums);
    for (int64_t i = 0; i < a.table.n_params; i++) {
        const struct param *row = &a.table.params[i];
        bool is_typed = row->grad == GRAD_OVERWRITTEN;
        for (int64_t e = row->offset; e < row->offset + row->n_elements; e++) {
            float x = is_typed ? f16_to_f32(f32_to_f16(a.grads[e])) : a.grads[e];
            assert_close(b.grads[e], x, 0);
        }
    }
    outcome_release(&a);
    outcome_release(&b);
}

/* -- recomputation ------------------------------------------------------------------ */

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

static void test_gpt__all_weight_halves_of_backward_may_come_last(void **state)
{
    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(all_types) * 2; t++) {
        struct config cfg = small_config(t % 2 ? 0.1 : 0);
        struct text text = make_text(101, 64);
        struct gpt_options opt = {.dtype = all_types[t / 2],
                                  .grad_dtype = all_types[t / 2]};
        struct outcome both = run_step(&cfg, &text, &opt);
        opt.splits_backward = true;
        for (int r = RECOMPUTE_NOTHING; r <= RECOMPUTE_BLOCK; r++) {
            opt.recompute = (enum gpt_recompute)r;
            opt.part = r % 2 ? two_chunks() : param_part_whole(L);
            struct outcome out = run_step(&cfg, &text, &opt);
            assert_same(&both, &out);
            outcome_release(&out);
        }
        outcome_release(&both);
    }
}

/* With one micro-batch in flight. */
static size_t activation_bytes(const struct gpt_options *change)
{
    struct config cfg = small_config(0.1);
    struct model m;
    prepare(&m, &cfg, change);
    m.layout.model.n_stashes = 1;
    struct gpt_memory mem = gpt_measure(&cfg, &m.layout.model);
    model_close(&m);
    return mem.activations;
}

static void test_gpt__recomputing_saves_what_it_says(void **state)
{
    (void)state;
    static const bool all[L] = {true, true, true, true};
    for (size_t t = 0; t < ARRAY_LEN(all_types); t++) {
        struct gpt_options opt = {.dtype = all_types[t], .grad_dtype = all_types[t]};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt__16_bit_losses_and_gradients_are_near_the_float32_ones),
        cmocka_unit_test(test_gpt__16_bit_gradients_are_the_float32_ones_rounded),
        cmocka_unit_test(test_gpt__recomputing_does_not_change_a_bit),
        cmocka_unit_test(test_gpt__all_weight_halves_of_backward_may_come_last),
        cmocka_unit_test(test_gpt__chunks_of_a_pipeline_do_not_change_a_bit),
        cmocka_unit_test(test_gpt__recomputing_saves_what_it_says),
    };
    kernels_set_threads(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
