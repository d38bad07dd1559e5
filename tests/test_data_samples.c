/* Padded samples, and where documents begin in packed ones, against brute-force twins. */
#include "data/samples/loader.h"
#include "data/samples/np_random.h"

#include "data_fixture.h"
#include "whole_order.h"

enum { N_DOCS = 29, MOST_S = 40, EOS = 256 };

/* Documents of 0 to 16 tokens, in two datasets. */
static void write_corpus(const char *dir)
{
    int64_t lengths[N_DOCS];
    for (int d = 0; d < N_DOCS; d++)
        lengths[d] = (d * 5) % 17;
    test_write_dataset(test_path(dir, "a"), DATASET_MEGATRON, lengths, 12, 0);
    test_write_dataset(test_path(dir, "b"), DATASET_FLEETX, lengths + 12, N_DOCS - 12,
                       12);
}

static struct sample_index_options options(enum config_sample_mode mode, int64_t S,
                                           int64_t n_samples)
{
    return (struct sample_index_options){.split = {70, 20, 10},
                                         .seq_len = S,
                                         .n_samples = n_samples,
                                         .seed = 11,
                                         .mode = mode,
                                         .pad = EOS};
}

/* order := the documents of one epoch that have something to predict, shuffled. */
static int64_t twin_epoch(const struct corpus *c, const int64_t *part, int64_t seed,
                          int64_t order[N_DOCS])
{
    struct np_random random;
    int64_t n = 0;
    for (int64_t d = part[0]; d < part[1]; d++)
        if (corpus_document_tokens(c, d) >= 2)
            order[n++] = d;
    np_random_init(&random, (uint32_t)seed);
    np_random_shuffle(&random, order, n);
    return n;
}

/* -- padded ------------------------------------------------------------------------- */

static void check_padded(struct sample_index *index, int64_t pos, int64_t doc)
{
    int32_t window[MOST_S + 1], starts[MOST_S];
    struct sample sample = {.window = window, .document_start = starts};
    struct error err;
    int64_t S = index->epochs.seq_len,
            n = corpus_document_tokens(index->epochs.corpus, doc);
    assert_ok(sample_index_read(index, pos, &sample, &err), err);
    assert_int_equal(sample.n_real, i64_min(n, S + 1));
    for (int64_t s = 0; s <= S; s++)
        assert_int_equal(window[s], s < n ? test_token(doc, s) : EOS);
    for (int64_t s = 0; s < S; s++)
        assert_int_equal(starts[s], 0);
}

static void compare_padded(const struct corpus *c, const struct sample_index_options *opt)
{
    struct sample_index index;
    struct error err;
    int64_t bounds[4], order[N_DOCS], pos = 0, epoch = 0;
    assert_ok(split_documents(opt->split, N_DOCS, bounds, &err), err);
    assert_ok(sample_index_open(&index, c, opt, &err), err);
    for (; pos < index.n_samples; epoch++) {
        int64_t n = twin_epoch(c, bounds + opt->part, opt->seed + epoch, order);
        assert_true(epoch == 0 || pos < opt->n_samples); // no epoch in vain
        assert_int_equal(sample_epochs_before(&index.epochs, epoch), pos);
        for (int64_t i = 0; i < n; i++, pos++) {
            assert_int_equal(sample_epochs_of(&index.epochs, pos), epoch);
            check_padded(&index, pos, order[i]);
        }
    }
    assert_int_equal(index.n_epochs, epoch);
    assert_true(index.n_samples >= opt->n_samples);
    sample_index_close(&index);
}

static void test_padded__is_one_document_a_sample(void **state)
{
    static const int64_t seq_lens[] = {1, 2, 7, 15, 16, MOST_S};
    static const int64_t sample_counts[] = {1, 4, 5, 18, 19, 100};
    struct corpus *c;
    struct error err;
    write_corpus(*state);
    assert_ok(corpus_open(&c, *state, &err), err);
    for (size_t s = 0; s < ARRAY_LEN(seq_lens); s++)
        for (size_t n = 0; n < ARRAY_LEN(sample_counts); n++)
            for (int part = 0; part < SPLIT_PARTS; part++) {
                struct sample_index_options opt =
                    options(SAMPLES_PADDED, seq_lens[s], sample_counts[n]);
                opt.part = (enum split_part)part;
                compare_padded(c, &opt);
            }
    corpus_close(c);
}

static void test_padded__a_part_with_nothing_to_predict_is_refused(void **state)
{
    static const int64_t lengths[] = {1, 0, 1};
    struct corpus *c;
    struct sample_index index;
    struct error err;
    test_write_dataset(test_path(*state, "x"), DATASET_MEGATRON, lengths, 3, 0);
    assert_ok(corpus_open(&c, *state, &err), err);
    struct sample_index_options opt = options(SAMPLES_PADDED, 4, 1);
    memcpy(opt.split, (double[]){1, 0, 0}, sizeof opt.split);
    assert_int_equal(sample_index_open(&index, c, &opt, &err), -1);
    assert_says(err, "3 of 3 documents and no tokens to predict");
    opt.mode = SAMPLES_PACKED; // two tokens are a window of one
    opt.seq_len = 1;
    assert_ok(sample_index_open(&index, c, &opt, &err), err);
    sample_index_close(&index);
    corpus_close(c);
}

static void test_padded__absurd_requests_are_errors(void **state)
{
    struct corpus *c;
    struct sample_index index;
    struct error err;
    write_corpus(*state);
    assert_ok(corpus_open(&c, *state, &err), err);
    struct sample_index_options opt = options(SAMPLES_PADDED, 4, INT64_MAX - 3);
    assert_int_equal(sample_index_open(&index, c, &opt, &err), -1);
    assert_says(err, "max_steps");
    opt.n_samples = 1;
    assert_ok(sample_index_open(&index, c, &opt, &err), err);
    assert_true(sample_epochs_before(&index.epochs, INT64_MAX / 2) == INT64_MAX);
    sample_index_close(&index);
    corpus_close(c);
}

/* -- where documents begin ---------------------------------------------------------- */

/* begins[i] := where in the stream the document of its token i starts. */
static int64_t twin_begins(const struct corpus *c, const struct whole_order *w,
                           int64_t *begins)
{
    int64_t n = 0;
    for (int64_t e = 0; e < w->n_documents; e++) {
        int64_t first = n, length = corpus_document_tokens(c, w->documents[e]);
        for (; n < first + length; n++)
            begins[n] = first;
    }
    return n;
}

static void compare_starts(const struct corpus *c, int64_t S)
{
    struct sample_index index;
    struct error err;
    int32_t window[MOST_S + 1], starts[MOST_S + 1];
    struct sample sample = {.window = window, .document_start = starts};
    struct sample_index_options opt = options(SAMPLES_PACKED, S, 60);
    assert_ok(sample_index_open(&index, c, &opt, &err), err);
    struct whole_order w = whole_order_make(&index.epochs, 60);
    size_t n_stream = (size_t)(index.n_epochs * index.epochs.n_tokens);
    int64_t *begins = malloc(n_stream * sizeof *begins);
    assert_int_equal(twin_begins(c, &w, begins), n_stream);
    for (int64_t pos = 0; pos < index.n_samples; pos++) {
        int64_t first = w.shuffle[pos] * S;
        starts[S] = -7;
        assert_ok(sample_index_read(&index, pos, &sample, &err), err);
        assert_int_equal(sample.n_real, S + 1);
        for (int64_t s = 0; s < S; s++)
            assert_int_equal(starts[s], i64_max(0, begins[first + s] - first));
        assert_int_equal(starts[S], -7); // the target's, which has no place
    }
    free(begins);
    whole_order_release(&w);
    sample_index_close(&index);
}

static void test_document_start__is_where_the_index_says(void **state)
{
    struct corpus *c;
    struct error err;
    write_corpus(*state);
    assert_ok(corpus_open(&c, *state, &err), err);
    for (int64_t S = 1; S <= MOST_S; S++)
        compare_starts(c, S);
    corpus_close(c);
}

/* -- as batches --------------------------------------------------------------------- */

/* Static in each test: when an assertion fails, the reader thread lives on and uses it.
 */
struct run {
    struct config cfg;
    struct input_set inputs;
    struct sample_stream stream;
    struct loader *loader;
};

static void run_open(struct run *r, const char *dir, int64_t n_samples,
                     const struct loader_options *opt)
{
    struct error err;
    write_corpus(dir);
    test_add_input(&r->cfg, dir);
    assert_ok(input_set_open(&r->inputs, &r->cfg, &err), err);
    assert_ok(sample_stream_open(&r->stream, &r->inputs, SPLIT_TRAIN, n_samples, &err),
              err);
    assert_ok(loader_open(&r->loader, &r->stream, opt, &err), err);
}

static void run_close(struct run *r)
{
    loader_close(r->loader);
    sample_stream_close(&r->stream);
    input_set_close(&r->inputs);
}

static void test_loader__padding_does_not_count(void **state)
{
    enum { S = 10, G = 4, N_STEPS = 9 };
    static struct run r;
    struct loader_options opt = {
        .global_batch = G, .local_batch = G / 2, .data_rank = 1, .n_data_ranks = 2};
    test_data_config(&r.cfg, S);
    r.cfg.dataset.mode = SAMPLES_PADDED;
    r.cfg.dataset.reset_attention_mask = true; // holds anyway
    run_open(&r, *state, G * N_STEPS, &opt);
    struct whole_order w = whole_order_make(&r.stream.indexes[0].epochs, G * N_STEPS);
    for (int64_t step = 0; step < N_STEPS; step++) {
        struct batch b;
        struct error err;
        int64_t n_counted = 0;
        assert_ok(loader_next(r.loader, &b, &err), err);
        assert_null(b.document_start);
        for (int64_t i = 0; i < b.B; i++) {
            int64_t pos = step * G + b.first_sample + i;
            int64_t doc = w.documents[pos];
            int64_t n = corpus_document_tokens(r.inputs.corpora[0], doc);
            for (int64_t s = 0; s < S; s++) {
                bool counts = s + 1 < n;
                assert_int_equal(b.tokens[i * S + s], s < n ? test_token(doc, s) : EOS);
                assert_int_equal(b.targets[i * S + s],
                                 counts ? test_token(doc, s + 1) : EOS);
                assert_true(b.loss_mask[i * S + s] == (counts ? 1.0f : 0.0f));
                n_counted += counts;
            }
        }
        assert_int_equal(b.n_counted, n_counted);
    }
    whole_order_release(&w);
    run_close(&r);
}

static void test_loader__padding_counts_with_pad_loss(void **state)
{
    enum { S = 10, G = 4, N_STEPS = 9 };
    static struct run r;
    struct loader_options opt = {
        .global_batch = G, .local_batch = G / 2, .data_rank = 1, .n_data_ranks = 2};
    int64_t n_short = 0;
    test_data_config(&r.cfg, S);
    r.cfg.dataset.mode = SAMPLES_PADDED;
    r.cfg.dataset.pad_loss = true;
    run_open(&r, *state, G * N_STEPS, &opt);
    assert_int_equal(r.stream.padded_len, S); // some document is longer
    struct whole_order w = whole_order_make(&r.stream.indexes[0].epochs, G * N_STEPS);
    for (int64_t step = 0; step < N_STEPS; step++) {
        struct batch b;
        struct error err;
        assert_ok(loader_next(r.loader, &b, &err), err);
        for (int64_t i = 0; i < b.B; i++) {
            int64_t doc = w.documents[step * G + b.first_sample + i];
            int64_t n = corpus_document_tokens(r.inputs.corpora[0], doc);
            assert_int_equal(b.key_end[i], n > 0 ? i64_min(n, S) : S);
            n_short += n < S;
            for (int64_t s = 0; s < S; s++) {
                assert_int_equal(b.targets[i * S + s],
                                 s + 1 < n ? test_token(doc, s + 1) : EOS);
                assert_true(b.loss_mask[i * S + s] == (s + 1 < S ? 1.0f : 0.0f));
            }
        }
        assert_int_equal(b.n_counted, b.B * (S - 1));
    }
    assert_true(n_short > 0);
    whole_order_release(&w);
    run_close(&r);
}

static void test_loader__pads_with_zero_when_no_end_is_known(void **state)
{
    enum { S = 20 };
    static struct run r;
    struct batch b;
    struct error err;
    struct loader_options opt = {.global_batch = 1, .local_batch = 1, .n_data_ranks = 1};
    test_data_config(&r.cfg, S);
    r.cfg.dataset.mode = SAMPLES_PADDED;
    write_corpus(*state);
    assert_int_equal(unlink(test_path(*state, "a.meta.json")), 0);
    char prefix[PATH_MAX];
    snprintf(prefix, sizeof prefix, "%s", test_path(*state, "a"));
    test_add_input(&r.cfg, prefix);
    assert_ok(input_set_open(&r.inputs, &r.cfg, &err), err);
    assert_int_equal(r.inputs.eos, -1);
    assert_ok(sample_stream_open(&r.stream, &r.inputs, SPLIT_TRAIN, 1, &err), err);
    assert_ok(loader_open(&r.loader, &r.stream, &opt, &err), err);
    assert_ok(loader_next(r.loader, &b, &err), err);
    assert_true(b.n_counted < S);
    for (int64_t s = b.n_counted + 1; s < S; s++)
        assert_int_equal(b.tokens[s], 0);
    run_close(&r);
}

static void test_loader__says_where_documents_begin_when_asked(void **state)
{
    enum { S = 13, G = 6, N_STEPS = 7 };
    static struct run r;
    struct loader_options opt = {
        .global_batch = G, .local_batch = G / 3, .data_rank = 2, .n_data_ranks = 3};
    int64_t n_borders = 0;
    test_data_config(&r.cfg, S);
    r.cfg.dataset.reset_attention_mask = true;
    run_open(&r, *state, G * N_STEPS, &opt);
    for (int64_t step = 0; step < N_STEPS; step++) {
        struct batch b;
        struct error err;
        assert_ok(loader_next(r.loader, &b, &err), err);
        assert_int_equal(b.n_counted, b.B * S);
        for (int64_t i = 0; i < b.B; i++) {
            int32_t window[S + 1], starts[S];
            struct sample sample = {.window = window, .document_start = starts};
            int64_t pos = step * G + b.first_sample + i;
            assert_ok(sample_stream_read(&r.stream, pos, &sample, &err), err);
            assert_memory_equal(b.document_start + i * S, starts, sizeof starts);
            n_borders += starts[S - 1] > 0;
        }
    }
    assert_true(n_borders > 0);
    run_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_padded__is_one_document_a_sample),
        data_test(test_padded__a_part_with_nothing_to_predict_is_refused),
        data_test(test_padded__absurd_requests_are_errors),
        data_test(test_document_start__is_where_the_index_says),
        data_test(test_loader__padding_does_not_count),
        data_test(test_loader__padding_counts_with_pad_loss),
        data_test(test_loader__pads_with_zero_when_no_end_is_known),
        data_test(test_loader__says_where_documents_begin_when_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
