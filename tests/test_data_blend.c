/* Several inputs: one after the other, and blended by weight. */
#include "data/samples/loader.h"

#include "data_fixture.h"

/* -- whose turn it is --------------------------------------------------------------- */

static void test_blend__is_megatrons(void **state)
{
    (void)state;
    static const struct {
        double weights[3];
        int64_t n;
        const char *choices; // by Megatron's rule, written out in Python
    } cases[] = {
        {{1}, 1, "000000000000000000000000"},
        {{1, 1}, 2, "010101010101010101010101"},
        {{0.7, 0.3}, 2, "010010010001001001000100"},
        {{7e14, 3e14}, 2, "010010010001001001000100"},
        {{3, 1, 2}, 3, "021020021020021020021020"},
        {{1, 10}, 2, "101111111110111111111101"},
        {{5, 3, 2}, 3, "012010201001201020100120"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct blend b;
        struct error err;
        int64_t had[3] = {0};
        assert_ok(blend_init(&b, cases[i].weights, cases[i].n, NULL, &err), err);
        for (int64_t pos = 0; pos < 24; pos++) {
            struct blend_turn turn = blend_at(&b, pos);
            assert_int_equal(turn.dataset, cases[i].choices[pos] - '0');
            assert_int_equal(turn.sample, had[turn.dataset]++);
        }
        blend_release(&b);
    }
}

static void test_blend__counts_on_over_many_blocks(void **state)
{
    (void)state;
    enum { D = 5, N = 10 * BLEND_BLOCK + 17 };
    static const double weights[D] = {0.4, 0.013, 11, 2, 2};
    struct blend b;
    struct error err;
    int64_t had[D] = {0};
    double sum = 0;
    for (int d = 0; d < D; d++)
        sum += weights[d];
    assert_ok(blend_init(&b, weights, D, NULL, &err), err);
    for (int64_t pos = 0; pos < N; pos++) {
        struct blend_turn turn = blend_at(&b, pos);
        assert_int_equal(turn.sample, had[turn.dataset]++);
        for (int d = 0; d < D; d++) // nobody is ever far from its share
            assert_close(had[d], weights[d] / sum * (double)(pos + 1), 2);
    }
    blend_release(&b);
}

static void test_blend__senseless_requests_are_refused(void **state)
{
    (void)state;
    static const double cases[][2] = {
        {1, 0}, {-1, 1}, {(double)NAN, 1}, {(double)INFINITY, 1}, {1.7e308, 1.7e308}};
    struct blend b;
    struct error err;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(blend_init(&b, cases[i], 2, NULL, &err), -1);
        assert_int_equal(err.kind, ERROR_INPUT);
        assert_says(err, "dataset.weights");
    }
}

/* -- inputs ------------------------------------------------------------------------- */

enum { N_A = 20, N_B = 9, N_C = 14, S = 6 };

/* Three datasets a, b, c of different sizes in dir, with documents from 0 on. */
static void write_inputs(const char *dir)
{
    int64_t lengths[N_A + N_B + N_C];
    for (int d = 0; d < N_A + N_B + N_C; d++)
        lengths[d] = (d * 11) % 13 + 1;
    test_write_dataset(test_path(dir, "a"), DATASET_MEGATRON, lengths, N_A, 0);
    test_write_dataset(test_path(dir, "b"), DATASET_FLEETX, lengths + N_A, N_B, N_A);
    test_write_dataset(test_path(dir, "c"), DATASET_MEGATRON, lengths + N_A + N_B, N_C,
                       N_A + N_B);
}

static void add_inputs(struct config *cfg, const char *dir, const char *names)
{
    for (; *names; names++) {
        char name[] = {*names, 0};
        test_add_input(cfg, test_path(dir, name));
    }
}

static void set_weights(struct config *cfg, const double *weights, int64_t n)
{
    cfg->dataset.weights.n_values = n;
    memcpy(cfg->dataset.weights.values, weights, (size_t)n * sizeof *weights);
}

static void read_window(struct sample_stream *stream, int64_t pos, int32_t window[S + 1])
{
    struct sample sample = {.window = window};
    struct error err;
    assert_ok(sample_stream_read(stream, pos, &sample, &err), err);
}

static void test_inputs__without_weights_are_one_corpus_in_their_order(void **state)
{
    static struct config cfg;
    struct input_set set;
    struct error err;
    char fingerprint[CORPUS_FINGERPRINT_BYTES], expected[CORPUS_FINGERPRINT_BYTES];
    write_inputs(*state);
    struct corpus *directory;
    assert_ok(corpus_open(&directory, *state, &err), err);
    corpus_fingerprint(directory, expected);
    test_data_config(&cfg, S);
    add_inputs(&cfg, *state, "abc");
    assert_ok(input_set_open(&set, &cfg, &err), err);
    assert_int_equal(set.n_corpora, 1);
    corpus_fingerprint(set.corpora[0], fingerprint);
    assert_string_equal(fingerprint, expected);
    input_set_close(&set);

    test_data_config(&cfg, S); // the other way round
    add_inputs(&cfg, *state, "ca");
    assert_ok(input_set_open(&set, &cfg, &err), err);
    assert_int_equal(corpus_n_documents(set.corpora[0]), N_C + N_A);
    for (int64_t doc = 0; doc < N_C + N_A; doc++) {
        int32_t token;
        assert_ok(corpus_read(set.corpora[0], doc, 0, 1, &token, &err), err);
        int64_t name = doc < N_C ? N_A + N_B + doc : doc - N_C;
        assert_int_equal(token, test_token(name, 0));
    }
    input_set_close(&set);
    corpus_close(directory);
}

static void test_inputs__the_same_dataset_twice_is_refused(void **state)
{
    static struct config cfg;
    struct input_set set;
    struct error err;
    write_inputs(*state);
    test_data_config(&cfg, S);
    add_inputs(&cfg, *state, "a");
    test_add_input(&cfg, *state); // has a in it
    assert_int_equal(input_set_open(&set, &cfg, &err), -1);
    assert_says(err, "both mean the dataset");
    assert_says(err, "/a.bin");
    set_weights(&cfg, (double[]){1, 2}, 2);
    assert_int_equal(input_set_open(&set, &cfg, &err), -1);
    assert_says(err, "dataset.weights");
}

static void test_inputs__a_missing_one_is_named(void **state)
{
    static struct config cfg;
    struct input_set set;
    struct error err;
    write_inputs(*state);
    test_data_config(&cfg, S);
    add_inputs(&cfg, *state, "ax");
    assert_int_equal(input_set_open(&set, &cfg, &err), -1);
    assert_says(err, "/x' is no directory and no dataset");
}

static void test_inputs__must_agree_on_the_end_of_a_document(void **state)
{
    static const char other[] = "{\"tokenizer\": \"bytes\", \"vocab_size\": 257, "
                                "\"eos_token_id\": 5, \"documents\": %d, "
                                "\"tokens\": %lld}";
    static struct config cfg;
    struct input_set set;
    struct error err;
    char text[256];
    write_inputs(*state);
    test_data_config(&cfg, S);
    add_inputs(&cfg, *state, "ab");
    set_weights(&cfg, (double[]){1, 1}, 2);
    assert_ok(input_set_open(&set, &cfg, &err), err);
    assert_int_equal(set.eos, 256);
    int n = snprintf(text, sizeof text, other, N_B,
                     (long long)corpus_n_tokens(set.corpora[1]));
    input_set_close(&set);
    test_write_file(test_path(*state, "b.meta.json"), text, (size_t)n);
    assert_int_equal(input_set_open(&set, &cfg, &err), -1);
    assert_says(err, "256 by the .meta.json of");
    assert_says(err, "but 5 by that of");
}

static void test_inputs__an_end_outside_of_the_vocabulary_is_refused(void **state)
{
    static struct config cfg;
    struct input_set set;
    struct error err;
    write_inputs(*state);
    test_data_config(&cfg, S);
    add_inputs(&cfg, *state, "a");
    cfg.model.vocab_size = 256; // above all tokens, but not above eos
    assert_int_equal(input_set_open(&set, &cfg, &err), -1);
    assert_says(err, "at least 257");
}

static void test_inputs__of_a_blend_have_a_fingerprint_of_their_own(void **state)
{
    static const double weights[][2] = {{1, 2}, {2, 1}};
    static struct config cfg;
    char hex[3][CORPUS_FINGERPRINT_BYTES];
    struct input_set set;
    struct error err;
    write_inputs(*state);
    for (int i = 0; i < 3; i++) {
        test_data_config(&cfg, S);
        add_inputs(&cfg, *state, "ab");
        if (i > 0)
            set_weights(&cfg, weights[i - 1], 2);
        assert_ok(input_set_open(&set, &cfg, &err), err);
        input_set_fingerprint(&set, hex[i]);
        assert_int_equal(strlen(hex[i]), CORPUS_FINGERPRINT_BYTES - 1);
        input_set_close(&set);
    }
    assert_string_not_equal(hex[0], hex[1]);
    assert_string_not_equal(hex[1], hex[2]);
}

/* -- the blended stream ------------------------------------------------------------- */

/* Sample k of a part is sample k of that input alone, through all its epochs. */
static void check_alone(struct sample_stream *stream, const struct config *cfg,
                        const char *dir, const char *names)
{
    int32_t window[S + 1], expected[S + 1];
    struct error err;
    for (int64_t i = 0; names[i]; i++) {
        static struct config cfg_alone;
        struct input_set set;
        struct sample_stream alone;
        char name[] = {names[i], 0};
        int64_t n = 0;
        test_data_config(&cfg_alone, S);
        cfg_alone.dataset.mode = cfg->dataset.mode;
        add_inputs(&cfg_alone, dir, name);
        assert_ok(input_set_open(&set, &cfg_alone, &err), err);
        assert_ok(sample_stream_open(&alone, &set, SPLIT_TRAIN, stream->n_samples, &err),
                  err);
        for (int64_t pos = 0; pos < stream->n_samples; pos++) {
            if (blend_at(&stream->blend, pos).dataset != i)
                continue;
            read_window(stream, pos, window);
            read_window(&alone, n++, expected);
            assert_memory_equal(window, expected, sizeof window);
        }
        assert_true(n > sample_stream_epoch_start(&alone, 1)); // went round
        sample_stream_close(&alone);
        input_set_close(&set);
    }
}

static void test_stream__draws_from_each_input_as_if_it_were_alone(void **state)
{
    static struct config cfg;
    write_inputs(*state);
    for (int mode = SAMPLES_PACKED; mode <= SAMPLES_PADDED; mode++) {
        struct input_set set;
        struct sample_stream few, many;
        struct error err;
        int32_t a[S + 1], b[S + 1];
        test_data_config(&cfg, S);
        cfg.dataset.mode = (enum config_sample_mode)mode;
        add_inputs(&cfg, *state, "abc");
        set_weights(&cfg, (double[]){5, 3, 2}, 3);
        assert_ok(input_set_open(&set, &cfg, &err), err);
        assert_int_equal(set.n_corpora, 3);
        assert_ok(sample_stream_open(&few, &set, SPLIT_TRAIN, 50, &err), err);
        assert_ok(sample_stream_open(&many, &set, SPLIT_TRAIN, 400, &err), err);
        check_alone(&many, &cfg, *state, "abc");
        for (int64_t pos = 0; pos < few.n_samples; pos++) { // prolonged, nothing moves
            read_window(&few, pos, a);
            read_window(&many, pos, b);
            assert_memory_equal(a, b, sizeof a);
        }
        sample_stream_close(&few);
        sample_stream_close(&many);
        input_set_close(&set);
    }
}

static void test_stream__an_epoch_is_the_epochs_of_all_inputs(void **state)
{
    static struct config cfg;
    struct input_set set;
    struct sample_stream stream;
    struct error err;
    write_inputs(*state);
    test_data_config(&cfg, S);
    add_inputs(&cfg, *state, "ab");
    set_weights(&cfg, (double[]){1, 1e-6}, 2); // the second never has its turn
    assert_ok(input_set_open(&set, &cfg, &err), err);
    assert_ok(sample_stream_open(&stream, &set, SPLIT_TRAIN, 300, &err), err);
    for (int64_t epoch = 0; epoch < 5; epoch++)
        assert_int_equal(sample_stream_epoch_start(&stream, epoch),
                         sample_epochs_before(&stream.indexes[0].epochs, epoch) +
                             sample_epochs_before(&stream.indexes[1].epochs, epoch));
    for (int64_t pos = 0, epoch = 0; pos < 300; pos++) {
        while (pos >= sample_stream_epoch_start(&stream, epoch + 1))
            epoch++;
        assert_int_equal(sample_stream_epoch_of(&stream, pos), epoch);
    }
    assert_true(sample_stream_epoch_start(&stream, INT64_MAX / 4) == INT64_MAX);
    sample_stream_close(&stream);
    input_set_close(&set);
}

static void test_stream__an_empty_part_of_one_input_is_refused_by_name(void **state)
{
    static struct config cfg;
    struct input_set set;
    struct sample_stream stream;
    struct error err;
    write_inputs(*state);
    test_data_config(&cfg, S);
    memcpy(cfg.dataset.split, (double[]){95, 5, 0}, sizeof cfg.dataset.split);
    add_inputs(&cfg, *state, "ab");
    set_weights(&cfg, (double[]){1, 1}, 2);
    assert_ok(input_set_open(&set, &cfg, &err), err);
    assert_int_equal(sample_stream_open(&stream, &set, SPLIT_VALID, 10, &err), -1);
    assert_says(err, "the valid part of");
    assert_says(err, "/b' is empty");
    input_set_close(&set);
}

/* Any rank of any layout, from any step on, reads the same global batches. */
static void test_stream__loaders_share_it_and_resume_in_it(void **state)
{
    enum { G = 6, N_STEPS = 12 };
    static struct config cfg;
    static struct input_set set;
    static struct sample_stream stream;
    struct error err;
    write_inputs(*state);
    test_data_config(&cfg, S);
    add_inputs(&cfg, *state, "abc");
    set_weights(&cfg, (double[]){1, 2, 3}, 3);
    assert_ok(input_set_open(&set, &cfg, &err), err);
    assert_ok(sample_stream_open(&stream, &set, SPLIT_TRAIN, G * N_STEPS, &err), err);
    for (int n_ranks = 1; n_ranks <= 3; n_ranks++)
        for (int rank = 0; rank < n_ranks; rank++) {
            struct loader *l;
            struct batch b;
            struct loader_options opt = {.global_batch = G,
                                         .local_batch = G / n_ranks,
                                         .data_rank = rank,
                                         .n_data_ranks = n_ranks,
                                         .first_step = 3 * rank};
            assert_ok(loader_open(&l, &stream, &opt, &err), err);
            for (int64_t step = 3 * rank; step < N_STEPS; step++) {
                int32_t window[S + 1];
                assert_ok(loader_next(l, &b, &err), err);
                for (int64_t i = 0; i < b.B; i++) {
                    read_window(&stream, step * G + rank * (G / n_ranks) + i, window);
                    assert_memory_equal(b.tokens + i * S, window, S * sizeof *window);
                }
            }
            loader_close(l);
        }
    sample_stream_close(&stream);
    input_set_close(&set);
}

/* -- whole batches only -------------------------------------------------------------- */

/* Epoch by epoch, the stream has the first samples of what `all` has, as many as make
 * whole batches of the smallest epoch, the first. */
static void check_whole_batches(struct sample_stream *stream, struct sample_stream *all,
                                int64_t G)
{
    int32_t window[S + 1], expected[S + 1];
    int64_t used = sample_stream_epoch_start(all, 1) / G * G;
    assert_true(used > 0);
    for (int64_t epoch = 0; epoch < 7; epoch++) {
        assert_int_equal(sample_stream_epoch_start(stream, epoch), epoch * used);
        int64_t start = sample_stream_epoch_start(all, epoch);
        for (int64_t i = 0; i < used; i++) {
            assert_int_equal(sample_stream_epoch_of(stream, epoch * used + i), epoch);
            read_window(stream, epoch * used + i, window);
            read_window(all, start + i, expected);
            assert_memory_equal(window, expected, sizeof window);
        }
    }
    assert_true(sample_stream_epoch_start(stream, INT64_MAX / 4) == INT64_MAX);
}

static void test_drop_last__every_epoch_has_the_same_whole_batches(void **state)
{
    static struct config cfg, whole;
    struct input_set set, set_of_all;
    struct sample_stream stream, all;
    struct error err;
    write_inputs(*state);
    for (int is_blend = 0; is_blend <= 1; is_blend++)
        for (int is_padded = 0; is_padded <= 1; is_padded++) {
            test_data_config(&cfg, S);
            add_inputs(&cfg, *state, "abc");
            if (is_blend)
                set_weights(&cfg, (double[]){1, 2, 3}, 3);
            cfg.dataset.mode = is_padded ? SAMPLES_PADDED : SAMPLES_PACKED;
            cfg.batch_size.global_batch_size = 8;
            whole = cfg;
            whole.dataset.drop_last = true;
            assert_ok(input_set_open(&set_of_all, &cfg, &err), err);
            assert_ok(input_set_open(&set, &whole, &err), err);
            assert_ok(sample_stream_open(&all, &set_of_all, SPLIT_TRAIN, 400, &err), err);
            assert_ok(sample_stream_open(&stream, &set, SPLIT_TRAIN, 200, &err), err);
            check_whole_batches(&stream, &all, 8);
            sample_stream_close(&stream);
            sample_stream_close(&all);
            input_set_close(&set);
            input_set_close(&set_of_all);
        }
}

static void test_drop_last__an_epoch_below_one_batch_is_refused(void **state)
{
    static struct config cfg;
    struct input_set set;
    struct sample_stream stream;
    struct error err;
    write_inputs(*state);
    test_data_config(&cfg, S);
    add_inputs(&cfg, *state, "b");
    cfg.dataset.mode = SAMPLES_PADDED;
    cfg.dataset.drop_last = true;
    cfg.batch_size.global_batch_size = 1000;
    assert_ok(input_set_open(&set, &cfg, &err), err);
    assert_int_equal(sample_stream_open(&stream, &set, SPLIT_TRAIN, 1, &err), -1);
    assert_int_equal(err.kind, ERROR_INPUT);
    assert_says(err, "fewer than one global batch of 1000");
    input_set_close(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blend__is_megatrons),
        cmocka_unit_test(test_blend__counts_on_over_many_blocks),
        cmocka_unit_test(test_blend__senseless_requests_are_refused),
        data_test(test_inputs__without_weights_are_one_corpus_in_their_order),
        data_test(test_inputs__the_same_dataset_twice_is_refused),
        data_test(test_inputs__a_missing_one_is_named),
        data_test(test_inputs__must_agree_on_the_end_of_a_document),
        data_test(test_inputs__an_end_outside_of_the_vocabulary_is_refused),
        data_test(test_inputs__of_a_blend_have_a_fingerprint_of_their_own),
        data_test(test_stream__draws_from_each_input_as_if_it_were_alone),
        data_test(test_stream__an_epoch_is_the_epochs_of_all_inputs),
        data_test(test_stream__an_empty_part_of_one_input_is_refused_by_name),
        data_test(test_stream__loaders_share_it_and_resume_in_it),
        data_test(test_drop_last__every_epoch_has_the_same_whole_batches),
        data_test(test_drop_last__an_epoch_below_one_batch_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
