/*
 * The order of samples, made table by table and dealt block by block, is that of a list
 * of the whole run: for all parts, modes, sizes, from wherever a run goes on. And what it
 * takes: by the samples of an epoch, not by the length of the run.
 */
#include "data/samples/loader.h"

#include "data_fixture.h"
#include "whole_order.h"

#include <dirent.h>
#include <sys/file.h>
#include <sys/wait.h>

enum { N_DOCS = 31, MOST_S = 160 };

static struct corpus *make_corpus(const char *dir)
{
    int64_t lengths[N_DOCS];
    struct corpus *c;
    struct error err;
    for (int d = 0; d < N_DOCS; d++)
        lengths[d] = d % 6 == 2 ? 0 : (d * 17) % 23 + 1;
    test_write_dataset(test_path(dir, "a"), DATASET_MEGATRON, lengths, 12, 0);
    test_write_dataset(test_path(dir, "b"), DATASET_FLEETX, lengths + 12, N_DOCS - 12,
                       12);
    assert_ok(corpus_open(&c, dir, &err), err);
    return c;
}

static void check_position(struct sample_index *index, const struct whole_order *w,
                           int64_t pos)
{
    int32_t window[MOST_S + 1], expected[MOST_S + 1];
    struct sample sample = {.window = window};
    struct error err;
    assert_ok(sample_index_read(index, pos, &sample, &err), err);
    int64_t n = whole_window(w, &index->epochs, pos, expected);
    assert_int_equal(sample.n_real, n);
    assert_memory_equal(window, expected, (size_t)n * sizeof *window);
}

/* All of it in order, and then a beginning at every ninth place. */
static void compare(const struct corpus *c, const struct sample_index_options *opt)
{
    struct sample_index index;
    struct error err;
    assert_ok(sample_index_open(&index, c, opt, &err), err);
    struct whole_order w = whole_order_make(&index.epochs, opt->n_samples);
    assert_int_equal(index.n_samples, w.n_samples);
    assert_int_equal(index.n_epochs, w.n_epochs);
    for (int64_t pos = 0; pos < w.n_samples; pos++)
        check_position(&index, &w, pos);
    sample_index_close(&index);
    for (int64_t first = w.n_samples - 1; first > 0; first -= 9) {
        assert_ok(sample_index_open(&index, c, opt, &err), err);
        for (int64_t pos = first; pos < i64_min(first + 3, w.n_samples); pos++)
            check_position(&index, &w, pos);
        sample_index_close(&index);
    }
    whole_order_release(&w);
}

static void test_order__is_that_of_the_whole_run(void **state)
{
    static const int64_t seq_lens[] = {1, 5, 16, MOST_S}; // the last above an epoch
    static const int64_t table_samples[] = {1, 40, 0};
    struct corpus *c = make_corpus(*state);
    for (size_t s = 0; s < ARRAY_LEN(seq_lens); s++)
        for (size_t t = 0; t < ARRAY_LEN(table_samples); t++)
            for (int part = 0; part < SPLIT_PARTS; part++)
                for (int mode = SAMPLES_PACKED; mode <= SAMPLES_PADDED; mode++) {
                    struct sample_index_options opt = {.split = {50, 30, 20},
                                                       .part = (enum split_part)part,
                                                       .seq_len = seq_lens[s],
                                                       .n_samples = 90,
                                                       .seed = 1234 + part,
                                                       .mode =
                                                           (enum config_sample_mode)mode,
                                                       .table_samples = table_samples[t]};
                    compare(c, &opt);
                }
    corpus_close(c);
}

/* -- what it takes ------------------------------------------------------------------ */

static void test_order__of_a_long_run_takes_what_an_epoch_does(void **state)
{
    struct corpus *c = make_corpus(*state);
    struct sample_index index;
    struct error err;
    int32_t window[9];
    struct sample sample = {.window = window};
    struct sample_index_options opt = {
        .split = {1, 0, 0}, .seq_len = 8, .n_samples = 64000000, .seed = 3};
    assert_ok(sample_index_open(&index, c, &opt, &err), err);
    assert_true(sample_index_bytes(&index) < 4e6);
    static const int64_t places[] = {63999999, 0, 31234567, (int64_t)1 << 45};
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        assert_ok(sample_index_read(&index, places[i], &sample, &err), err);
    assert_true((double)index.table.map.n_bytes < 1.01 * sample_index_bytes(&index) / 2);
    assert_true((double)index.table.map.n_bytes > 0.9 * sample_index_bytes(&index) / 2);
    assert_int_equal(sample_index_read(&index, INT64_MAX / 2, &sample, &err), -1);
    assert_says(err, "past counting");
    sample_index_close(&index);
    corpus_close(c);
}

static int count_files(const char *dir, const char *prefix)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        n += strncmp(e->d_name, prefix, strlen(prefix)) == 0;
    if (d)
        closedir(d);
    return n;
}

static void test_order__leaves_a_few_files_and_none_unfinished(void **state)
{
    struct corpus *c = make_corpus(*state);
    struct sample_index one, other;
    struct error err;
    int32_t window[9];
    struct sample sample = {.window = window};
    struct sample_index_options opt = {.split = {1, 0, 0},
                                       .seq_len = 8,
                                       .n_samples = 2000,
                                       .seed = 3,
                                       .table_samples = 1};
    char cache[512], used[PATH_MAX];
    snprintf(cache, sizeof cache, "%s", test_path(*state, ".trefoil_cache"));
    assert_ok(sample_index_open(&one, c, &opt, &err), err);
    assert_ok(sample_index_read(&one, 0, &sample, &err), err); // in use all the time
    snprintf(used, sizeof used, "%s", one.table.map.path);
    test_write_file(test_path(cache, "train-0123456789abcdef0123456789abcdef"), "old", 3);
    assert_ok(sample_index_open(&other, c, &opt, &err), err);
    for (int64_t pos = 0; pos < 2000; pos++)
        assert_ok(sample_index_read(&other, pos, &sample, &err), err);
    sample_index_close(&other);
    assert_true(fs_exists(used));
    assert_false(fs_exists(test_path(cache, "train-0123456789abcdef0123456789abcdef")));
    int n = count_files(cache, "train-");
    assert_true(n >= 2 && n <= 12);
    sample_index_close(&one);
    corpus_close(c);
}

/* Several processes that begin at once: one makes the table, all map that. */
static void test_order__is_shared_by_the_processes_of_a_machine(void **state)
{
    enum { N = 4 };
    struct corpus *c = make_corpus(*state);
    struct sample_index_options opt = {
        .split = {1, 0, 0}, .seq_len = 8, .n_samples = 60, .seed = 3};
    pid_t children[N];
    for (int i = 0; i < N; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            struct sample_index index;
            struct error err;
            int32_t window[9];
            struct sample sample = {.window = window};
            bool is_good = sample_index_open(&index, c, &opt, &err) == 0 &&
                           sample_index_read(&index, 7, &sample, &err) == 0 &&
                           index.table.map.path[0] != 0;
            _exit(is_good ? 0 : 1);
        }
        assert_true(children[i] > 0);
    }
    for (int i = 0; i < N; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(count_files(test_path(*state, ".trefoil_cache"), "train-"), 1);
    corpus_close(c);
}

static void test_order__without_a_cache_is_shared_memory_that_goes(void **state)
{
    struct corpus *c = make_corpus(*state);
    struct sample_index one, other;
    struct error err;
    int32_t window[9];
    struct sample sample = {.window = window};
    test_write_file(test_path(*state, "taken"), "x", 1);
    struct sample_index_options opt = {.split = {1, 0, 0},
                                       .seq_len = 8,
                                       .n_samples = 60,
                                       .seed = 3,
                                       .cache_dir = test_path(*state, "taken")};
    assert_ok(sample_index_open(&one, c, &opt, &err), err);
    assert_ok(sample_index_open(&other, c, &opt, &err), err);
    assert_ok(sample_index_read(&one, 0, &sample, &err), err);
    assert_ok(sample_index_read(&other, 0, &sample, &err), err);
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", one.table.map.path);
    if (path[0]) { // else there is no /dev/shm, and each has its own
        assert_string_equal(other.table.map.path, path);
        assert_true(other.table.map.was_there);
    }
    sample_index_close(&one);
    assert_true(path[0] == 0 || fs_exists(path));
    assert_ok(sample_index_read(&other, 1, &sample, &err), err);
    sample_index_close(&other);
    assert_false(path[0] != 0 && fs_exists(path));
    corpus_close(c);
}

/* -- a blend ------------------------------------------------------------------------ */

enum { D = 3, N_TURNS = 3 * BLEND_BLOCK + 77 };
static const double weights[D] = {0.5, 1.7, 0.013};

/* All turns at once, by the rule. */
static void whole_turns(struct blend_turn *turns)
{
    int64_t had[D] = {0};
    double sum = 0;
    for (int d = 0; d < D; d++)
        sum += weights[d];
    for (int64_t i = 0; i < N_TURNS; i++) {
        int64_t best = 0;
        double most = -(double)INFINITY;
        for (int64_t d = 0; d < D; d++) {
            volatile double due = weights[d] / sum * (i > 0 ? (double)i : 1.0);
            volatile double behind = due - (double)had[d];
            if (behind > most) {
                most = behind;
                best = d;
            }
        }
        turns[i] = (struct blend_turn){best, had[best]++};
    }
}

static void assert_turn(struct blend *b, const struct blend_turn *turns, int64_t pos)
{
    struct blend_turn turn = blend_at(b, pos);
    assert_int_equal(turn.dataset, turns[pos].dataset);
    assert_int_equal(turn.sample, turns[pos].sample);
}

/* Counts kept every block, so that there are some. */
static struct blend open_blend(const char *dir)
{
    struct blend b;
    struct error err;
    assert_ok(blend_init(&b, weights, D, dir, &err), err);
    if (b.n_kept == 1)
        b.keep_every = BLEND_BLOCK;
    return b;
}

static void test_blend__is_dealt_from_anywhere(void **state)
{
    static struct blend_turn turns[N_TURNS];
    whole_turns(turns);
    for (int has_cache = 0; has_cache < 2; has_cache++) {
        struct blend b = open_blend(has_cache ? *state : NULL);
        for (int64_t pos = 0; pos < N_TURNS; pos++)
            assert_turn(&b, turns, pos);
        assert_int_equal(b.n_kept, 1 + N_TURNS / BLEND_BLOCK);
        for (int64_t pos = N_TURNS - 1; pos > 0; pos -= 501) // backwards
            assert_turn(&b, turns, pos);
        blend_release(&b);
        for (int64_t pos = 0; pos < N_TURNS; pos += 1777) { // begun there
            b = open_blend(has_cache ? *state : NULL);
            assert_turn(&b, turns, pos);
            assert_turn(&b, turns, i64_min(pos + 1, N_TURNS - 1));
            for (int64_t d = 0; d < D; d++)
                assert_true(b.had[d] <= blend_most(&b, d, b.n_dealt));
            blend_release(&b);
        }
    }
}

/* What a run has dealt is there for the next one. */
static void test_blend__keeps_its_counts(void **state)
{
    struct blend first, next;
    struct error err;
    assert_ok(blend_init(&first, weights, D, *state, &err), err);
    blend_at(&first, 2 * first.keep_every + 5);
    assert_int_equal(first.n_kept, 3);
    assert_ok(blend_init(&next, weights, D, *state, &err), err);
    assert_int_equal(next.n_kept, 3);
    assert_memory_equal(next.kept, first.kept, 3 * D * sizeof *next.kept);
    struct blend_turn a = blend_at(&first, 2 * first.keep_every + 100);
    struct blend_turn b = blend_at(&next, 2 * first.keep_every + 100);
    assert_int_equal(a.dataset, b.dataset);
    assert_int_equal(a.sample, b.sample);
    blend_release(&first);
    blend_release(&next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_order__is_that_of_the_whole_run),
        data_test(test_order__of_a_long_run_takes_what_an_epoch_does),
        data_test(test_order__leaves_a_few_files_and_none_unfinished),
        data_test(test_order__is_shared_by_the_processes_of_a_machine),
        data_test(test_order__without_a_cache_is_shared_memory_that_goes),
        data_test(test_blend__is_dealt_from_anywhere),
        data_test(test_blend__keeps_its_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
