#include "data/samples/loader.h"

#include "data_fixture.h"

enum { N_DOCS = 40, S = 9, GLOBAL = 6, N_STEPS = 11 };

/* Static in each test: when an assertion fails, the reader thread lives on and uses it.
 */
struct fixture {
    struct config cfg;
    struct input_set inputs;
    struct sample_stream stream;
};

static void fixture_open(struct fixture *f, const char *dir, int64_t n_samples)
{
    int64_t lengths[N_DOCS];
    struct error err;
    for (int d = 0; d < N_DOCS; d++)
        lengths[d] = (d * 13) % 17 + 1;
    test_write_dataset(test_path(dir, "x"), DATASET_MEGATRON, lengths, N_DOCS, 0);
    test_data_config(&f->cfg, S);
    test_add_input(&f->cfg, dir);
    assert_ok(input_set_open(&f->inputs, &f->cfg, &err), err);
    assert_ok(sample_stream_open(&f->stream, &f->inputs, SPLIT_TRAIN, n_samples, &err),
              err);
}

static void fixture_close(struct fixture *f)
{
    sample_stream_close(&f->stream);
    input_set_close(&f->inputs);
}

static struct loader_options options(int rank, int n_ranks, int64_t first_step)
{
    return (struct loader_options){.global_batch = GLOBAL,
                                   .local_batch = GLOBAL / n_ranks,
                                   .data_rank = rank,
                                   .n_data_ranks = n_ranks,
                                   .first_step = first_step};
}

static void check_sample(struct fixture *f, const struct batch *b, int64_t i)
{
    int32_t window[S + 1];
    struct sample sample = {.window = window};
    struct error err;
    int64_t pos = (b->step * GLOBAL + b->first_sample + i) % f->stream.n_samples;
    assert_ok(sample_stream_read(&f->stream, pos, &sample, &err), err);
    assert_memory_equal(b->tokens + i * S, window, S * sizeof *window);
    assert_memory_equal(b->targets + i * S, window + 1, S * sizeof *window);
}

static void test_loader__any_number_of_ranks_reads_the_same_global_batches(void **state)
{
    static const int rank_counts[] = {1, 2, 3, 6};
    static struct fixture f;
    fixture_open(&f, *state, N_STEPS * GLOBAL);
    for (size_t k = 0; k < ARRAY_LEN(rank_counts); k++)
        for (int rank = 0; rank < rank_counts[k]; rank++) {
            struct loader *l;
            struct batch b;
            struct error err;
            struct loader_options opt = options(rank, rank_counts[k], 0);
            assert_ok(loader_open(&l, &f.stream, &opt, &err), err);
            for (int64_t step = 0; step < N_STEPS; step++) {
                assert_ok(loader_next(l, &b, &err), err);
                assert_int_equal(b.step, step);
                assert_int_equal(b.B, GLOBAL / rank_counts[k]);
                assert_int_equal(b.first_sample, rank * b.B);
                assert_int_equal(b.n_counted, b.B * S);
                assert_null(b.document_start);
                for (int64_t i = 0; i < b.B; i++)
                    check_sample(&f, &b, i);
            }
            loader_close(l);
        }
    fixture_close(&f);
}

static void test_loader__starts_at_any_step(void **state)
{
    static struct fixture f;
    fixture_open(&f, *state, N_STEPS * GLOBAL);
    for (int64_t first = 0; first < N_STEPS; first++) {
        struct loader *l;
        struct batch b;
        struct error err;
        struct loader_options opt = options(1, 3, first);
        assert_ok(loader_open(&l, &f.stream, &opt, &err), err);
        for (int64_t step = first; step < N_STEPS; step++) {
            assert_ok(loader_next(l, &b, &err), err);
            assert_int_equal(b.step, step);
            check_sample(&f, &b, 0);
        }
        loader_close(l);
    }
    fixture_close(&f);
}

static void test_loader__wraps_for_evaluation(void **state)
{
    static struct fixture f;
    struct loader *l;
    struct batch b;
    struct error err;
    fixture_open(&f, *state, 8);
    struct loader_options opt = options(1, 2, 0);
    opt.wraps = true;
    assert_ok(loader_open(&l, &f.stream, &opt, &err), err);
    for (int64_t step = 0; step < 50; step++) {
        assert_ok(loader_next(l, &b, &err), err);
        for (int64_t i = 0; i < b.B; i++)
            check_sample(&f, &b, i);
    }
    loader_close(l);
    fixture_close(&f);
}

static void test_loader__eod_mask_leaves_out_positions_after_eos(void **state)
{
    static struct fixture f;
    struct loader *l;
    struct batch b;
    struct error err;
    fixture_open(&f, *state, N_STEPS * GLOBAL);
    struct loader_options opt = options(0, 1, 0);
    opt.eod_mask_loss = true;
    opt.eos = test_token(3, 1);
    int64_t n_masked = 0;
    assert_ok(loader_open(&l, &f.stream, &opt, &err), err);
    for (int64_t step = 0; step < N_STEPS; step++) {
        int64_t n_counted = 0;
        assert_ok(loader_next(l, &b, &err), err);
        for (int64_t i = 0; i < b.B * S; i++) {
            bool counts = b.tokens[i] != opt.eos;
            assert_true(b.loss_mask[i] == (counts ? 1.0f : 0.0f));
            n_counted += counts;
        }
        assert_int_equal(b.n_counted, n_counted);
        n_masked += b.B * S - n_counted;
    }
    assert_true(n_masked > 0);
    loader_close(l);
    fixture_close(&f);
}

static void test_loader__a_read_error_appears_at_its_step(void **state)
{
    static struct fixture f;
    struct loader *l;
    struct batch b;
    struct error err;
    fixture_open(&f, *state, N_STEPS * GLOBAL);
    assert_int_equal(truncate(test_path(*state, "x.bin"), 100), 0);
    struct loader_options opt = options(0, 1, 0);
    assert_ok(loader_open(&l, &f.stream, &opt, &err), err);
    int64_t n_good = 0;
    while (n_good < N_STEPS && loader_next(l, &b, &err) == 0)
        n_good++;
    assert_true(n_good < N_STEPS);
    assert_says(err, "cut short while in use");
    char expected[32];
    snprintf(expected, sizeof expected, "step %lld,", (long long)n_good);
    assert_says(err, expected);
    memset(&err, 0, sizeof err);
    assert_int_equal(loader_next(l, &b, &err), -1); // and again
    assert_says(err, expected);
    loader_close(l);
    fixture_close(&f);
}

/* Numbers that only a damaged checkpoint has. */
static void test_loader__absurd_steps_are_errors(void **state)
{
    static const int64_t first_steps[] = {((int64_t)1 << 62) / GLOBAL, INT64_MAX / 2,
                                          INT64_MAX - 1};
    static struct fixture f;
    fixture_open(&f, *state, N_STEPS * GLOBAL);
    for (size_t i = 0; i < ARRAY_LEN(first_steps); i++) {
        struct loader *l;
        struct batch b;
        struct error err;
        struct loader_options opt = options(1, 2, first_steps[i]);
        assert_ok(loader_open(&l, &f.stream, &opt, &err), err);
        assert_int_equal(loader_next(l, &b, &err), -1);
        assert_says(err, "past counting");
        loader_close(l);
    }
    assert_true(sample_stream_epoch_of(&f.stream, (int64_t)1 << 62) > 0);
    fixture_close(&f);
}

/* A run may be given smaller batches and more steps than it was planned with. */
static void test_loader__goes_on_past_what_was_asked_for(void **state)
{
    static struct fixture f;
    fixture_open(&f, *state, GLOBAL);
    struct loader *l;
    struct batch b;
    struct error err;
    struct loader_options opt = options(0, 1, 3);
    assert_ok(loader_open(&l, &f.stream, &opt, &err), err);
    for (int i = 0; i < 100; i++)
        assert_ok(loader_next(l, &b, &err), err);
    loader_close(l);
    fixture_close(&f);
}

static void test_loader__closes_in_any_state(void **state)
{
    static struct fixture f;
    fixture_open(&f, *state, N_STEPS * GLOBAL);
    for (int n_read = 0; n_read <= N_STEPS; n_read++)
        for (int repeat = 0; repeat < 20; repeat++) {
            struct loader *l;
            struct batch b;
            struct error err;
            struct loader_options opt = options(0, 1, 0);
            assert_ok(loader_open(&l, &f.stream, &opt, &err), err);
            for (int i = 0; i < n_read; i++)
                assert_ok(loader_next(l, &b, &err), err);
            loader_close(l);
        }
    loader_close(NULL);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_loader__any_number_of_ranks_reads_the_same_global_batches),
        data_test(test_loader__starts_at_any_step),
        data_test(test_loader__wraps_for_evaluation),
        data_test(test_loader__eod_mask_leaves_out_positions_after_eos),
        data_test(test_loader__a_read_error_appears_at_its_step),
        data_test(test_loader__absurd_steps_are_errors),
        data_test(test_loader__goes_on_past_what_was_asked_for),
        data_test(test_loader__closes_in_any_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
