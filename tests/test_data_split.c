/*
 * dataset.split_by document: the part of a document follows from its tokens alone, and the
 * samples of a part are those of its documents.
 */
#include "data/formats/npz.h"
#include "data/samples/document_hash.h"
#include "data/samples/sample_stream.h"

#include "data_fixture.h"
#include "whole_order.h"

#include <xxhash.h>

enum { N_DOCS = 300, MOST_TOKENS = 23 };

static const double weights[SPLIT_PARTS] = {70, 20, 10};

/* -- documents ----------------------------------------------------------------------- */

/* Equal for d and d + 50, so there are duplicates. */
static int64_t length_of(int64_t d)
{
    return d % 50 * 7 % MOST_TOKENS;
}

static int32_t token_of(int64_t d, int64_t i)
{
    return test_token(d % 50, i);
}

/* What another program would compute. */
static enum split_part expected_part(int64_t d)
{
    uint8_t bytes[4 * MOST_TOKENS];
    for (int64_t i = 0; i < length_of(d); i++)
        disk_put_u32(bytes + 4 * i, (uint32_t)token_of(d, i));
    double u =
        (double)(XXH64(bytes, (size_t)length_of(d) * 4, 0) / 2048) / 9007199254740992.;
    return u < 0.7 ? SPLIT_TRAIN : u < 0.9 ? SPLIT_VALID : SPLIT_TEST;
}

/* Documents order[0..n) as a dataset; vocab_size decides the type of its tokens. */
static void write_documents(const char *prefix, enum dataset_format format,
                            int64_t vocab_size, const int64_t *order, int64_t n)
{
    struct dataset_writer *w;
    struct error err;
    struct dataset_meta meta = {
        .tokenizer = "bytes", .vocab_size = 257, .eos_token_id = 256};
    assert_ok(dataset_writer_open(&w, prefix, format, vocab_size, &err), err);
    for (int64_t k = 0; k < n; k++) {
        for (int64_t i = 0; i < length_of(order[k]); i++) {
            int32_t token = token_of(order[k], i);
            assert_ok(dataset_writer_append(w, &token, 1, &err), err);
        }
        assert_ok(dataset_writer_end_document(w, &err), err);
    }
    assert_ok(dataset_writer_commit(w, &meta, &err), err);
    dataset_writer_close(w);
}

static int copy_bytes(void *context, uint64_t at, uint8_t *data, size_t n,
                      struct error *err)
{
    (void)err;
    memcpy(data, (const uint8_t *)context + at, n);
    return 0;
}

/* The same in FleetX's older format, with tokens of 8 bytes. */
static void write_old(const char *path, const int64_t *order, int64_t n)
{
    static uint8_t ids[8 * N_DOCS * MOST_TOKENS], lens[4 * N_DOCS];
    struct error err;
    int64_t n_tokens = 0;
    for (int64_t k = 0; k < n; k++) {
        disk_put_u32(lens + 4 * k, (uint32_t)length_of(order[k]));
        for (int64_t i = 0; i < length_of(order[k]); i++)
            disk_put_u64(ids + 8 * n_tokens++, (uint64_t)token_of(order[k], i));
    }
    const struct npz_array arrays[] = {{"ids", DISK_I64, n_tokens, copy_bytes, ids},
                                       {"lens", DISK_I32, n, copy_bytes, lens}};
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_ok(npz_write(fd, path, arrays, 2, &err), err);
    close(fd);
}

/* order := all documents, in another order for each seed. */
static void make_order(int64_t order[N_DOCS], uint32_t seed)
{
    struct np_random random;
    for (int64_t d = 0; d < N_DOCS; d++)
        order[d] = d;
    if (seed == 0)
        return;
    np_random_init(&random, seed);
    np_random_shuffle(&random, order, N_DOCS);
}

static struct corpus *open_corpus(const char *dir)
{
    struct corpus *c;
    struct error err;
    int64_t order[N_DOCS];
    make_order(order, 0);
    write_documents(test_path(dir, "a"), DATASET_MEGATRON, 257, order, N_DOCS);
    assert_ok(corpus_open(&c, dir, &err), err);
    return c;
}

static void check_parts(const struct corpus *c, const int64_t *order)
{
    const struct split_options opt = {.weights = {70, 20, 10}, .by = SPLIT_BY_DOCUMENT};
    int64_t n_documents = 0, counted[SPLIT_PARTS];
    struct error err;
    assert_ok(split_count_tokens(c, &opt, counted, &err), err);
    for (int part = 0; part < SPLIT_PARTS; part++) {
        struct split s;
        int64_t n_tokens = 0;
        assert_ok(split_open(&s, c, &opt, (enum split_part)part, &err), err);
        for (int64_t k = 0; k < N_DOCS; k++) {
            bool is_expected = expected_part(order[k]) == (enum split_part)part;
            assert_int_equal(split_contains(&s, k), is_expected);
            n_tokens += is_expected ? length_of(order[k]) : 0;
        }
        assert_false(split_contains(&s, -1));
        assert_false(split_contains(&s, N_DOCS));
        assert_false(split_contains(&s, INT64_MAX));
        for (int64_t r = 0; r < s.n_ranges; r++)
            assert_true(s.ranges[r].first < s.ranges[r].end &&
                        (r == 0 || s.ranges[r - 1].end < s.ranges[r].first));
        assert_int_equal(s.n_tokens, n_tokens);
        assert_int_equal(counted[part], n_tokens);
        n_documents += s.n_documents;
        split_close(&s);
    }
    assert_int_equal(n_documents, N_DOCS);
}

/* -- the rule ------------------------------------------------------------------------ */

static void test_split__hashes_are_those_of_xxhash(void **state)
{
    // computed with xxhash for Python: xxh64(numpy.array(ids, '<u4').tobytes())
    static const uint64_t expected[] = {0xb5148cb100a911fc, 0xef46db3751d8e999,
                                        0xf0b963dbae8c736e, 0xc595f90f231fe040,
                                        0xc926d5bc7c221fb4};
    static const int32_t ids[] = {1, 2, 3, 65535, 0, 65536};
    static const int64_t ends[] = {3, 3, 5, 6};
    struct dataset_writer *w;
    struct dataset_meta meta = {
        .tokenizer = "bytes", .vocab_size = 70000, .eos_token_id = 256};
    struct error err;
    struct corpus *c;
    uint64_t hashes[5];
    assert_ok(
        dataset_writer_open(&w, test_path(*state, "a"), DATASET_MEGATRON, 70000, &err),
        err);
    for (int64_t d = 0, at = 0; d < 4; at = ends[d++]) {
        assert_ok(dataset_writer_append(w, ids + at, ends[d] - at, &err), err);
        assert_ok(dataset_writer_end_document(w, &err), err);
    }
    for (int32_t id = 0; id < 20000; id++) // longer than what is read at once
        assert_ok(dataset_writer_append(w, &id, 1, &err), err);
    assert_ok(dataset_writer_end_document(w, &err), err);
    assert_ok(dataset_writer_commit(w, &meta, &err), err);
    dataset_writer_close(w);
    assert_ok(corpus_open(&c, *state, &err), err);
    assert_ok(document_hash_range(c, 0, 5, hashes, &err), err);
    assert_memory_equal(hashes, expected, sizeof hashes);
    assert_ok(document_hash_range(c, 2, 4, hashes, &err), err);
    assert_memory_equal(hashes, expected + 2, 2 * sizeof *hashes);
    corpus_close(c);
}

static void test_split__thresholds_are_fractions_of_the_weights(void **state)
{
    static const struct {
        double weights[SPLIT_PARTS];
        uint64_t hash;
        enum split_part part;
    } cases[] = {
        {{1, 0, 0}, UINT64_MAX, SPLIT_TRAIN},
        {{0, 3, 0}, 0, SPLIT_VALID},
        {{0, 3, 0}, UINT64_MAX, SPLIT_VALID},
        {{0, 0, 1}, 0, SPLIT_TEST},
        {{1, 1, 0}, 0x7fffffffffffffff, SPLIT_TRAIN},
        {{1, 1, 0}, 0x8000000000000000, SPLIT_VALID},
        {{2, 1, 1}, 0xbfffffffffffffff, SPLIT_VALID},
        {{2, 1, 1}, 0xc000000000000000, SPLIT_TEST},
        {{1, 0, 1}, 0x7fffffffffffffff, SPLIT_TRAIN},
        {{1, 0, 1}, 0x8000000000000000, SPLIT_TEST},
        {{949, 50, 1}, 0xffbe76c8b4395000, SPLIT_VALID},
        {{949, 50, 1}, 0xffbe76c8b4396000, SPLIT_TEST},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(split_part_of(cases[i].weights, cases[i].hash), cases[i].part);
}

static void test_split__depends_on_no_order_format_or_file(void **state)
{
    enum { N_FORMS = 5 };
    const char *dir = *state;
    struct error err;
    int64_t order[N_DOCS];
    for (uint32_t form = 0; form < N_FORMS; form++) {
        struct corpus *c;
        char own[256];
        assert_true(snprintf(own, sizeof own, "%s/%u", dir, form) < (int)sizeof own);
        assert_ok(fs_make_directories(own, &err), err);
        make_order(order, form);
        if (form == 1) { // tokens of 4 bytes
            write_documents(test_path(own, "x"), DATASET_MEGATRON, 100000, order, N_DOCS);
        } else if (form == 2) {
            write_documents(test_path(own, "x"), DATASET_FLEETX, 257, order, N_DOCS);
        } else if (form == 3) {
            write_old(test_path(own, "x_ids.npz"), order, N_DOCS);
        } else { // two files in one directory
            write_documents(test_path(own, "a"), DATASET_MEGATRON, 257, order, 100);
            write_documents(test_path(own, "b"), DATASET_FLEETX, 257, order + 100,
                            N_DOCS - 100);
        }
        assert_ok(corpus_open(&c, own, &err), err);
        check_parts(c, order); // by what the documents contain
        check_parts(c, order); // from the cache
        corpus_close(c);
    }
}

/* -- samples ------------------------------------------------------------------------- */

static void check_samples(const struct corpus *c, const struct sample_index_options *opt)
{
    struct sample_index index;
    struct error err;
    int32_t window[64], expected[64];
    struct sample sample = {.window = window};
    assert_ok(sample_index_open(&index, c, opt, &err), err);
    struct whole_order w = whole_order_make(&index.epochs, opt->n_samples);
    for (int64_t i = 0; i < w.n_documents; i++)
        assert_int_equal(expected_part(w.documents[i]), opt->part);
    assert_int_equal(index.n_samples, w.n_samples);
    for (int64_t pos = 0; pos < w.n_samples; pos++) {
        assert_ok(sample_index_read(&index, pos, &sample, &err), err);
        int64_t n = whole_window(&w, &index.epochs, pos, expected);
        assert_memory_equal(window, expected, (size_t)n * sizeof *window);
    }
    whole_order_release(&w);
    sample_index_close(&index);
}

static void test_split__samples_are_those_of_the_part(void **state)
{
    struct corpus *c = open_corpus(*state);
    for (int mode = SAMPLES_PACKED; mode <= SAMPLES_PADDED; mode++)
        for (int part = 0; part < SPLIT_PARTS; part++) {
            struct sample_index_options opt = {.split = {70, 20, 10},
                                               .split_by = SPLIT_BY_DOCUMENT,
                                               .part = (enum split_part)part,
                                               .seq_len = 12,
                                               .n_samples = 700,
                                               .seed = 5,
                                               .mode = (enum config_sample_mode)mode};
            check_samples(c, &opt);
        }
    corpus_close(c);
}

static void test_split__every_corpus_of_a_blend_has_its_own(void **state)
{
    struct config cfg;
    struct error err;
    struct input_set set;
    struct sample_stream stream;
    int64_t order[N_DOCS];
    make_order(order, 3);
    write_documents(test_path(*state, "a"), DATASET_MEGATRON, 257, order, 100);
    write_documents(test_path(*state, "b"), DATASET_FLEETX, 257, order + 100,
                    N_DOCS - 100);
    test_data_config(&cfg, 8);
    test_add_input(&cfg, test_path(*state, "a"));
    test_add_input(&cfg, test_path(*state, "b"));
    memcpy(cfg.dataset.split, weights, sizeof weights);
    cfg.dataset.split_by = SPLIT_BY_DOCUMENT;
    cfg.dataset.reset_attention_mask = true;
    cfg.dataset.weights.n_values = 2;
    cfg.dataset.weights.values[0] = 1;
    cfg.dataset.weights.values[1] = 3;
    assert_ok(input_set_open(&set, &cfg, &err), err);
    assert_ok(sample_stream_open(&stream, &set, SPLIT_VALID, 50, &err), err);
    for (int64_t i = 0; i < 2; i++)
        for (int64_t k = 0; k < (i ? N_DOCS - 100 : 100); k++)
            assert_int_equal(split_contains(&stream.indexes[i].epochs.split, k),
                             expected_part(order[100 * i + k]) == SPLIT_VALID);
    assert_true(sample_stream_list_bytes(&stream) > 0);
    sample_stream_close(&stream);
    input_set_close(&set);
}

/* Also where the cache cannot be written. */
static void test_split__a_set_keeps_its_hashes_for_other_processes(void **state)
{
    struct config cfg;
    struct error err;
    struct input_set one, other;
    struct sample_stream stream;
    corpus_close(open_corpus(*state));
    test_write_file(test_path(*state, "taken"), "x", 1);
    test_data_config(&cfg, 8);
    test_add_input(&cfg, test_path(*state, "a"));
    memcpy(cfg.dataset.split, weights, sizeof weights);
    snprintf(cfg.dataset.cache_dir, sizeof cfg.dataset.cache_dir, "%s",
             test_path(*state, "taken"));
    assert_ok(input_set_open(&one, &cfg, &err), err);
    assert_int_equal(input_set_hash_bytes(&one), 0);
    input_set_close(&one);
    cfg.dataset.split_by = SPLIT_BY_DOCUMENT;
    assert_ok(input_set_open(&one, &cfg, &err), err);
    assert_ok(input_set_open(&other, &cfg, &err), err);
    assert_false(one.hashes[0].was_there);
    assert_true(other.hashes[0].was_there);
    assert_int_equal(input_set_hash_bytes(&other), 8 * N_DOCS);
    input_set_close(&one);
    assert_ok(sample_stream_open(&stream, &other, SPLIT_TEST, 50, &err), err);
    for (int64_t d = 0; d < N_DOCS; d++)
        assert_int_equal(split_contains(&stream.indexes[0].epochs.split, d),
                         expected_part(d) == SPLIT_TEST);
    sample_stream_close(&stream);
    input_set_close(&other);
}

static void test_split__an_empty_part_is_refused_with_the_remedy(void **state)
{
    static const int64_t order[] = {1, 2, 3};
    struct corpus *c;
    struct error err;
    struct sample_index index;
    write_documents(test_path(*state, "x"), DATASET_MEGATRON, 257, order, 3);
    assert_ok(corpus_open(&c, *state, &err), err);
    struct sample_index_options opt = {.split = {1e9, 1, 0},
                                       .split_by = SPLIT_BY_DOCUMENT,
                                       .part = SPLIT_VALID,
                                       .seq_len = 4,
                                       .n_samples = 1};
    assert_int_equal(sample_index_open(&index, c, &opt, &err), -1);
    assert_int_equal(err.kind, ERROR_INPUT);
    assert_says(err, "the valid part of");
    assert_says(err, "dataset.split_by document it gets 0 of 3 documents");
    assert_says(err, "set dataset.split_by to contiguous, give it a larger weight");
    corpus_close(c);
}

/* -- the cache ----------------------------------------------------------------------- */

static bool is_cached(const struct corpus *c, const struct sample_index_options *opt)
{
    struct sample_index index;
    struct error err;
    int32_t window[64];
    struct sample sample = {.window = window};
    assert_ok(sample_index_open(&index, c, opt, &err), err);
    assert_ok(sample_index_read(&index, 0, &sample, &err), err);
    bool was_there = index.table.map.was_there;
    sample_index_close(&index);
    return was_there;
}

static void test_split__tables_of_the_two_rules_are_apart(void **state)
{
    struct corpus *c = open_corpus(*state);
    struct sample_index_options opt = {.split = {70, 20, 10},
                                       .seq_len = 6,
                                       .n_samples = 20,
                                       .seed = 1,
                                       .table_samples = 1};
    assert_false(is_cached(c, &opt));
    opt.split_by = SPLIT_BY_DOCUMENT;
    assert_false(is_cached(c, &opt));
    assert_true(is_cached(c, &opt));
    opt.split_by = SPLIT_CONTIGUOUS;
    assert_true(is_cached(c, &opt));
    corpus_close(c);
}

/* Opens the hashes; whether they were there, and whether they are these. */
static bool maps_hashes(const struct corpus *c, const char *cache_dir,
                        const uint64_t *expected)
{
    struct index_map map;
    struct error err;
    assert_ok(document_hash_open(&map, c, cache_dir, &err), err);
    assert_int_equal(map.n_values, N_DOCS);
    assert_memory_equal(map.values, expected, N_DOCS * sizeof *expected);
    bool was_there = map.was_there;
    index_map_close(&map);
    return was_there;
}

static void test_split__documents_are_hashed_once(void **state)
{
    struct corpus *c = open_corpus(*state);
    struct index_map map;
    struct error err;
    uint64_t hashes[N_DOCS];
    char path[PATH_MAX];
    const char *cache = test_path(*state, "cache");
    assert_ok(document_hash_range(c, 0, N_DOCS, hashes, &err), err);
    assert_false(maps_hashes(c, cache, hashes));
    assert_true(maps_hashes(c, cache, hashes));
    // a damaged file is made again
    assert_ok(document_hash_open(&map, c, cache, &err), err);
    snprintf(path, sizeof path, "%s", map.path);
    index_map_close(&map);
    test_flip(path, 100);
    assert_false(maps_hashes(c, cache, hashes));
    assert_int_equal(truncate(path, 60), 0);
    assert_false(maps_hashes(c, cache, hashes));
    // where the cache cannot be written they are made for this process
    test_write_file(test_path(*state, "taken"), "x", 1);
    assert_false(maps_hashes(c, test_path(*state, "taken"), hashes));
    corpus_close(c);
}

static void test_split__tokens_that_cannot_be_read_are_an_error(void **state)
{
    struct corpus *c = open_corpus(*state);
    struct split_options opt = {.weights = {70, 20, 10}, .by = SPLIT_BY_DOCUMENT};
    struct split s;
    struct error err;
    int64_t n_tokens[SPLIT_PARTS];
    assert_int_equal(truncate(test_path(*state, "a.bin"), 100), 0);
    assert_int_equal(split_open(&s, c, &opt, SPLIT_TRAIN, &err), -1);
    assert_says(err, "a.bin' at byte");
    assert_says(err, "was cut short while in use");
    assert_int_equal(split_count_tokens(c, &opt, n_tokens, &err), -1);
    corpus_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_split__hashes_are_those_of_xxhash),
        data_test(test_split__thresholds_are_fractions_of_the_weights),
        data_test(test_split__depends_on_no_order_format_or_file),
        data_test(test_split__samples_are_those_of_the_part),
        data_test(test_split__every_corpus_of_a_blend_has_its_own),
        data_test(test_split__a_set_keeps_its_hashes_for_other_processes),
        data_test(test_split__an_empty_part_is_refused_with_the_remedy),
        data_test(test_split__tables_of_the_two_rules_are_apart),
        data_test(test_split__documents_are_hashed_once),
        data_test(test_split__tokens_that_cannot_be_read_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
