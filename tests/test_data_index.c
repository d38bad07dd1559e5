#include "data/samples/np_random.h"
#include "data/samples/sample_index.h"

#include "data_fixture.h"

enum { N_DOCS = 23 };

static void make_corpus(const char *dir, struct corpus **c)
{
    int64_t lengths[N_DOCS];
    struct error err;
    for (int d = 0; d < N_DOCS; d++)
        lengths[d] = d % 5 == 3 ? 0 : (d * 13) % 17 + 1;
    test_write_dataset(test_path(dir, "a"), DATASET_MEGATRON, lengths, 10, 0);
    test_write_dataset(test_path(dir, "b"), DATASET_FLEETX, lengths + 10, N_DOCS - 10,
                       10);
    assert_ok(corpus_open(c, dir, &err), err);
}

/* The whole corpus as the training part. */
static struct sample_index_options options_of(int64_t S, int64_t n_samples)
{
    return (struct sample_index_options){
        .split = {1, 0, 0}, .seq_len = S, .n_samples = n_samples, .seed = 7};
}

static struct sample_index_options cached_options(const char *cache_dir)
{
    return (struct sample_index_options){.split = {80, 20, 0},
                                         .seq_len = 5,
                                         .n_samples = 30,
                                         .seed = 7,
                                         .cache_dir = cache_dir};
}

/* The twin: writes the whole stream of tokens out and cuts it. */
struct twin {
    int32_t *stream;
    int64_t n_stream;
    int64_t *order; // samples in the order of training
    int64_t n_samples;
};

/* Append the tokens of one epoch, and its samples in their order. */
static void twin_append_epoch(struct twin *t, const struct corpus *c, const int64_t *part,
                              int64_t seed, int64_t S)
{
    struct np_random random;
    int64_t n = part[1] - part[0], first = t->n_samples;
    int64_t *docs = malloc((size_t)(n + 1) * sizeof *docs);
    for (int64_t i = 0; i < n; i++)
        docs[i] = part[0] + i;
    np_random_init(&random, (uint32_t)seed);
    np_random_shuffle(&random, docs, n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < corpus_document_tokens(c, docs[i]); k++)
            t->stream[t->n_stream++] = test_token(docs[i], k);
    free(docs);
    for (; t->n_samples * S + S + 1 <= t->n_stream; t->n_samples++)
        t->order[t->n_samples] = t->n_samples;
    np_random_shuffle(&random, t->order + first, t->n_samples - first);
}

static struct twin twin_make(const struct corpus *c,
                             const struct sample_index_options *opt)
{
    struct twin t = {0};
    struct error err;
    int64_t bounds[4], T = 0, E = 1, S = opt->seq_len;
    assert_ok(split_documents(opt->split, corpus_n_documents(c), bounds, &err), err);
    const int64_t *part = bounds + opt->part;
    for (int64_t d = part[0]; d < part[1]; d++)
        T += corpus_document_tokens(c, d);
    while ((E * T - 1) / S < opt->n_samples)
        E++;
    t.stream = malloc((size_t)(E * T) * sizeof *t.stream);
    t.order = malloc((size_t)(E * T) * sizeof *t.order);
    for (int64_t e = 0; e < E; e++)
        twin_append_epoch(&t, c, part, opt->seed + e, S);
    assert_int_equal(t.n_stream, E * T);
    return t;
}

static void twin_release(struct twin *t)
{
    free(t->stream);
    free(t->order);
}

static void compare_with_twin(const struct corpus *c,
                              const struct sample_index_options *opt)
{
    struct sample_index index;
    struct error err;
    int32_t window[64];
    struct sample sample = {.window = window};
    struct twin t = twin_make(c, opt);
    assert_ok(sample_index_open(&index, c, opt, &err), err);
    assert_int_equal(index.n_samples, t.n_samples);
    assert_true(index.n_samples >= opt->n_samples);
    for (int64_t pos = 0; pos < t.n_samples; pos++) {
        assert_ok(sample_index_read(&index, pos, &sample, &err), err);
        assert_memory_equal(window, t.stream + t.order[pos] * opt->seq_len,
                            (size_t)(opt->seq_len + 1) * sizeof *window);
    }
    twin_release(&t);
    sample_index_close(&index);
}

static void test_sample_index__is_its_brute_force_twin(void **state)
{
    static const int64_t seq_lens[] = {1, 2, 7, 16, 33};
    static const int64_t sample_counts[] = {1, 5, 12, 26, 40, 111};
    struct corpus *c;
    make_corpus(*state, &c);
    for (size_t s = 0; s < ARRAY_LEN(seq_lens); s++)
        for (size_t n = 0; n < ARRAY_LEN(sample_counts); n++)
            for (int part = 0; part < SPLIT_PARTS; part++) {
                struct sample_index_options opt = {.split = {60, 30, 10},
                                                   .part = (enum split_part)part,
                                                   .seq_len = seq_lens[s],
                                                   .n_samples = sample_counts[n],
                                                   .seed = 1024 + part};
                compare_with_twin(c, &opt);
            }
    corpus_close(c);
}

static void test_sample_index__epoch_facts_follow_from_the_lengths(void **state)
{
    struct corpus *c;
    struct sample_index index;
    struct error err;
    make_corpus(*state, &c);
    int64_t T = corpus_n_tokens(c);
    struct sample_index_options opt = options_of(4, 3 * T / 4);
    assert_ok(sample_index_open(&index, c, &opt, &err), err);
    assert_int_equal(index.epochs.n_tokens, T);
    assert_int_equal(sample_epochs_before(&index.epochs, 0), 0);
    assert_int_equal(sample_epochs_before(&index.epochs, 2), (2 * T - 1) / 4);
    for (int64_t pos = 0, epoch = 0; pos < index.n_samples; pos++) {
        while (pos >= sample_epochs_before(&index.epochs, epoch + 1))
            epoch++;
        assert_int_equal(sample_epochs_of(&index.epochs, pos), epoch);
    }
    assert_int_equal(index.n_epochs, (3 * T / 4 * 4 + 1 + T - 1) / T);
    assert_int_equal(index.epochs.n_documents, N_DOCS);
    sample_index_close(&index);
    opt.seq_len = 10 * T; // less than one window an epoch
    opt.n_samples = 1;
    assert_ok(sample_index_open(&index, c, &opt, &err), err);
    assert_int_equal(sample_epochs_of(&index.epochs, 0), 10);
    assert_int_equal(index.n_epochs, 11);
    sample_index_close(&index);
    corpus_close(c);
}

/* A run that is prolonged must go on as if it had been that long from the start. */
static void test_sample_index__more_samples_do_not_change_the_first_ones(void **state)
{
    struct corpus *c;
    struct sample_index few, many;
    struct error err;
    int32_t a[8], b[8];
    struct sample of_few = {.window = a}, of_many = {.window = b};
    make_corpus(*state, &c);
    struct sample_index_options opt = options_of(7, 5);
    assert_ok(sample_index_open(&few, c, &opt, &err), err);
    opt.n_samples = 300;
    assert_ok(sample_index_open(&many, c, &opt, &err), err);
    assert_true(many.n_epochs > few.n_epochs);
    for (int64_t pos = 0; pos < few.n_samples; pos++) {
        assert_ok(sample_index_read(&few, pos, &of_few, &err), err);
        assert_ok(sample_index_read(&many, pos, &of_many, &err), err);
        assert_memory_equal(a, b, sizeof a);
    }
    sample_index_close(&few);
    sample_index_close(&many);
    corpus_close(c);
}

static void test_sample_index__an_empty_part_is_refused_with_the_remedy(void **state)
{
    struct corpus *c;
    struct sample_index index;
    struct error err;
    make_corpus(*state, &c);
    struct sample_index_options opt = options_of(4, 10);
    memcpy(opt.split, (double[]){949, 50, 1}, sizeof opt.split);
    opt.part = SPLIT_TEST;
    assert_int_equal(sample_index_open(&index, c, &opt, &err), -1);
    assert_says(err, "the test part");
    assert_says(err, "0 of 23 documents");
    assert_says(err, "eval_freq");
    assert_int_equal(err.kind, ERROR_INPUT);
    corpus_close(c);
}

static void test_sample_index__absurd_requests_are_errors(void **state)
{
    struct corpus *c;
    struct sample_index index;
    struct error err;
    make_corpus(*state, &c);
    struct sample_index_options opt = options_of(1024, INT64_MAX / 512);
    assert_int_equal(sample_index_open(&index, c, &opt, &err), -1);
    assert_says(err, "max_steps");
    opt.n_samples = 1;
    opt.seed = (int64_t)1 << 32;
    assert_int_equal(sample_index_open(&index, c, &opt, &err), -1);
    assert_says(err, "seed");
    corpus_close(c);
}

/* -- the cache ---------------------------------------------------------------------- */

static bool reads_from_cache(const struct corpus *c,
                             const struct sample_index_options *opt)
{
    struct sample_index index;
    struct error err;
    int32_t window[64];
    struct sample sample = {.window = window};
    assert_ok(sample_index_open(&index, c, opt, &err), err);
    assert_ok(sample_index_read(&index, 0, &sample, &err), err);
    bool is_cached = index.table.map.was_there;
    sample_index_close(&index);
    return is_cached;
}

static bool opens_from_cache(const char *dir, const struct sample_index_options *opt)
{
    struct corpus *c;
    struct error err;
    assert_ok(corpus_open(&c, dir, &err), err);
    bool is_cached = reads_from_cache(c, opt);
    compare_with_twin(c, opt);
    corpus_close(c);
    return is_cached;
}

static bool pads_from_cache(const char *dir, const struct sample_index_options *opt)
{
    struct corpus *c;
    struct error err;
    assert_ok(corpus_open(&c, dir, &err), err);
    bool is_cached = reads_from_cache(c, opt);
    corpus_close(c);
    return is_cached;
}

static void test_index_cache__is_used_only_for_equal_inputs(void **state)
{
    struct corpus *c;
    const char *dir = *state;
    make_corpus(dir, &c);
    corpus_close(c);
    struct sample_index_options opt = cached_options(NULL);
    assert_false(opens_from_cache(dir, &opt));
    assert_true(opens_from_cache(dir, &opt));

    struct sample_index_options other = opt;
    other.seed = 8;
    assert_false(opens_from_cache(dir, &other));
    other = opt;
    other.split[0] = 81;
    assert_false(opens_from_cache(dir, &other));
    other = opt;
    other.part = SPLIT_VALID;
    assert_false(opens_from_cache(dir, &other));
    other = opt;
    other.mode = SAMPLES_PADDED;
    assert_false(pads_from_cache(dir, &other));
    other.seq_len = 6; // documents are cut when they are read
    assert_true(pads_from_cache(dir, &other));
    other = opt;
    other.seq_len = 6;
    assert_false(opens_from_cache(dir, &other));
    other = opt;
    other.n_samples = 10000; // more epochs have other tables, too
    assert_true(opens_from_cache(dir, &other));
    assert_true(opens_from_cache(dir, &opt));

    struct timespec times[2] = {{0, UTIME_NOW}, {12345, 678}}; // the same bytes, touched
    assert_int_equal(utimensat(AT_FDCWD, test_path(dir, "a.bin"), times, 0), 0);
    assert_false(opens_from_cache(dir, &opt));
    assert_true(opens_from_cache(dir, &opt));
}

/* The one file in the cache directory. */
static const char *only_cached_file(const char *cache_dir)
{
    static char path[2 * PATH_MAX];
    struct fs_names names;
    struct error err;
    assert_ok(fs_list(cache_dir, &names, &err), err);
    assert_int_equal(names.n_names, 1);
    snprintf(path, sizeof path, "%s/%s", cache_dir, names.names[0]);
    fs_names_release(&names);
    return path;
}

static void test_index_cache__a_file_that_is_cut_in_use_is_told_of(void **state)
{
    static const char changed[] = "was changed while it was in use; remove it";
    struct corpus *c;
    struct error err;
    struct sample_index index;
    int32_t window[64];
    struct sample out = {.window = window};
    const char *dir = *state;
    make_corpus(dir, &c);
    struct sample_index_options opt = cached_options(NULL);
    assert_ok(sample_index_open(&index, c, &opt, &err), err);
    assert_ok(sample_index_read(&index, 0, &out, &err), err);
    assert_int_equal(truncate(index.table.map.path, 0), 0);
    assert_int_equal(sample_index_read(&index, 0, &out, &err), -1);
    assert_int_equal(err.kind, ERROR_RUNTIME);
    assert_non_null(strstr(err.text, changed));
    assert_non_null(strstr(err.text, index.table.map.path));
    sample_index_close(&index);
    corpus_close(c);
}

static void test_index_cache__a_damaged_file_is_built_again(void **state)
{
    struct corpus *c;
    const char *dir = *state;
    make_corpus(dir, &c);
    corpus_close(c);
    char cache_dir[PATH_MAX];
    snprintf(cache_dir, sizeof cache_dir, "%s/cache/deeper", dir);
    struct sample_index_options opt = cached_options(cache_dir);
    assert_false(opens_from_cache(dir, &opt));
    const char *path = only_cached_file(cache_dir);
    int64_t size = test_file_bytes(path);
    static const int64_t offsets[] = {0, 8, 16, 24, 40, 56, 200};
    for (size_t i = 0; i < ARRAY_LEN(offsets); i++) {
        assert_true(opens_from_cache(dir, &opt));
        test_flip(path, offsets[i]);
        assert_false(opens_from_cache(dir, &opt));
        assert_int_equal(test_file_bytes(only_cached_file(cache_dir)), size);
    }
    static const int64_t cuts[] = {0, 10, 56, 57, 64};
    for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
        assert_int_equal(truncate(path, cuts[i]), 0);
        assert_false(opens_from_cache(dir, &opt));
        assert_true(opens_from_cache(dir, &opt));
    }
}

static void test_index_cache__without_a_place_it_is_built_in_memory(void **state)
{
    struct corpus *c;
    const char *dir = *state;
    make_corpus(dir, &c);
    corpus_close(c);
    test_write_file(test_path(dir, "taken"), "x",
                    1); // a file where a directory should be
    struct sample_index_options opt = cached_options(test_path(dir, "taken"));
    assert_false(opens_from_cache(dir, &opt));
    assert_false(opens_from_cache(dir, &opt));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_sample_index__is_its_brute_force_twin),
        data_test(test_sample_index__epoch_facts_follow_from_the_lengths),
        data_test(test_sample_index__more_samples_do_not_change_the_first_ones),
        data_test(test_sample_index__an_empty_part_is_refused_with_the_remedy),
        data_test(test_sample_index__absurd_requests_are_errors),
        data_test(test_index_cache__is_used_only_for_equal_inputs),
        data_test(test_index_cache__a_file_that_is_cut_in_use_is_told_of),
        data_test(test_index_cache__a_damaged_file_is_built_again),
        data_test(test_index_cache__without_a_place_it_is_built_in_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
