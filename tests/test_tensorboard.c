/*
 * Records byte by byte: those of an independent writer, in hex. What TensorBoard itself
 * reads of a run is tests/interop's.
 */
#include "test.h"

#include "base/fs.h"
#include "base/log.h"
#include "train/tensorboard.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define WALL 1700000000.0
#define STEP_BYTES 48 // of a record with one loss

static void assert_record(struct event_record *e, const char *hex)
{
    assert_true(event_end(e));
    char text[1024];
    assert_true(e->n * 2 < sizeof text);
    for (size_t i = 0; i < e->n; i++)
        snprintf(text + 2 * i, 3, "%02x", e->bytes[i]);
    assert_string_equal(text, hex);
}

static void test_event__sums_are_crc32c(void **state)
{
    (void)state;
    struct event_record e;
    struct error err;
    static const char *const text = "\x1a\x11"
                                    "CRC test, one two";
    assert_ok(event_open(&e, &err), err);
    assert_int_equal(event_sum(&e, text, strlen(text)), 0x5794D08A);
    event_close(&e);
}

static void test_event__records_are_those_of_the_format(void **state)
{
    (void)state;
    struct event_record e;
    struct error err;
    assert_ok(event_open(&e, &err), err);
    event_begin(&e, WALL + 0.5, 0);
    event_version(&e);
    assert_record(&e, "1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e"
                      "743a322b353110");
    event_begin(&e, WALL + 1, 1000);
    event_scalar(&e, "train/loss", 2.5F);
    assert_record(&e, "2100000000000000017becf60900004040fc54d94110e8072a130a110a0a747261"
                      "696e2f6c6f73731500002040e747b5b9");
    event_begin(&e, WALL + 2, 1000);
    event_text(&e, "sample", "hi", 2);
    assert_record(&e, "3200000000000000241956ec0900008040fc54d94110e8072a240a220a0673616d"
                      "706c654a0a0a060a04746578742002420c080712041202080142026869"
                      "6fe8dd3f");
    event_begin(&e, WALL + 3, 1000);
    event_histogram(&e, "w", (struct event_bucket[]){{-1, 0, 3}, {0, 1, 5}}, 2);
    assert_record(&e, "6500000000000000ebd05a69090000c040fc54d94110e8072a570a550a01774a10"
                      "0a0c0a0a686973746f6772616d732002423e0802120812020802120208032230"
                      "000000000000f0bf0000000000000000000000000000084000000000000000"
                      "00000000000000f03f0000000000001440471425b8");
    event_begin(&e, WALL + 0.5, 0);
    struct event_hparams list = event_hparams_begin(&e, WALL + 0.5);
    event_hparam_number(&e, "lr", 0.001);
    event_hparams_end(&e, &list);
    assert_record(&e, "60000000000000002821c6da0900002040fc54d9412a550a530a1c5f6870617261"
                      "6d735f2f73657373696f6e5f73746172745f696e666f4a2b0a270a076870617261"
                      "6d73121c1a1a0a0f0a026c72120911fca9f1d24d62503f2900002040fc54d94120"
                      "024206080112021200eca6c0b3");
    event_close(&e);
}

static void test_event__lengths_above_127_have_two_bytes(void **state)
{
    (void)state;
    struct event_record e;
    struct error err;
    char text[300];
    memset(text, 'x', sizeof text);
    assert_ok(event_open(&e, &err), err);
    event_begin(&e, WALL, 0);
    event_text(&e, "t", text, sizeof text);
    assert_true(event_end(&e));
    static const uint8_t head[] = {0x2a, 0xcc, 0x02, 0x0a, 0xc9, 0x02};
    assert_memory_equal(e.bytes + EVENT_HEAD_BYTES + 9, head, sizeof head);
    event_close(&e);
}

static void test_event__that_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct event_record e;
    struct error err;
    char *text = calloc(1, EVENT_BYTES_MOST);
    assert_non_null(text);
    assert_ok(event_open(&e, &err), err);
    // around the limit, where the text fits and its lengths do not
    for (size_t n = EVENT_BYTES_MOST - 80; n < EVENT_BYTES_MOST; n++) {
        event_begin(&e, WALL, 1);
        event_text(&e, "t", text, n);
        bool fits = event_end(&e);
        assert_true(!fits || e.n <= EVENT_BYTES_MOST);
        assert_true(n > EVENT_BYTES_MOST - 78 || fits);
        assert_true(n < EVENT_BYTES_MOST - 40 || !fits);
    }
    event_begin(&e, WALL, 1);
    event_scalar(&e, "after", 1);
    assert_true(event_end(&e));
    event_close(&e);
    free(text);
}

/* -- histograms ---------------------------------------------------------------------- */

static void test_buckets__count_every_finite_value_once(void **state)
{
    (void)state;
    struct event_bucket rows[TENSORBOARD_BUCKETS];
    const double values[] = {3, 1, 2, 3, (double)NAN, 1.00001};
    assert_int_equal(tensorboard_buckets(rows, values, 6), TENSORBOARD_BUCKETS);
    double sum = 0;
    for (int i = 0; i < TENSORBOARD_BUCKETS; i++) {
        sum += rows[i].count;
        assert_true(rows[i].left < rows[i].right);
    }
    assert_true(sum == 5);
    assert_true(rows[0].left == 1 && rows[0].count == 2);
    assert_true(rows[29].right == 3 && rows[29].count == 2);
}

static void test_buckets__of_equal_values_and_of_none(void **state)
{
    (void)state;
    struct event_bucket rows[TENSORBOARD_BUCKETS];
    const double values[] = {2, 2, (double)INFINITY};
    assert_int_equal(tensorboard_buckets(rows, values, 3), 1);
    assert_true(rows[0].left == 1.5 && rows[0].right == 2.5 && rows[0].count == 2);
    assert_int_equal(tensorboard_buckets(rows, values + 2, 1), 0);
    assert_int_equal(tensorboard_buckets(rows, values, 0), 0);
}

/* -- files --------------------------------------------------------------------------- */

static int64_t bytes_of(const char *path)
{
    struct stat st;
    return stat(path, &st) ? -1 : (int64_t)st.st_size;
}

/* A run in `dir` from `first_step` that takes one step; its file. */
static void run_one_step(const char *dir, int64_t first_step, char path[PATH_MAX])
{
    struct tensorboard tb;
    struct record r;
    struct error err;
    assert_ok(tensorboard_open(&tb, dir, first_step, "{\"a\": {\"b\": 1}}", &err), err);
    snprintf(path, PATH_MAX, "%s", tb.file.path);
    record_begin(&r, first_step + 1);
    record_real(&r, "loss", 2.5);
    tensorboard_take(&tb, &r);
    assert_int_equal(tb.file.n_bytes, bytes_of(path));
    tensorboard_close(&tb);
}

static int64_t count_files(const char *dir, const char *name)
{
    struct fs_names names = {0};
    struct error err;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (fs_exists(path))
        assert_ok(fs_list(path, &names, &err), err);
    int64_t n = names.n_names;
    fs_names_release(&names);
    return n;
}

static void test_tensorboard__files_of_a_resumed_run_sort_in_order(void **state)
{
    (void)state;
    struct error err;
    char *dir = test_make_directory(), path[3][PATH_MAX];
    for (int i = 0; i < 3; i++)
        run_one_step(dir, i, path[i]);
    assert_true(strcmp(path[0], path[1]) < 0 && strcmp(path[1], path[2]) < 0);
    assert_int_equal(count_files(dir, "tensorboard"), 3);
    assert_int_equal(count_files(dir, "tensorboard.previous"), 0);
    assert_ok(fs_remove_tree(dir, &err), err);
    free(dir);
}

static void test_tensorboard__a_fresh_run_sets_older_files_aside(void **state)
{
    (void)state;
    struct error err;
    char *dir = test_make_directory(), path[PATH_MAX], other[PATH_MAX];
    run_one_step(dir, 0, path);
    run_one_step(dir, 1, path);
    snprintf(other, sizeof other, "%s/tensorboard/notes.txt", dir);
    assert_ok(fs_write_atomic(other, "x", 1, &err), err);
    run_one_step(dir, 0, path);
    assert_int_equal(count_files(dir, "tensorboard"), 2); // its own and the notes
    assert_int_equal(count_files(dir, "tensorboard.previous"), 2);
    run_one_step(dir, 0, path);
    assert_int_equal(count_files(dir, "tensorboard.previous"), 1);
    assert_int_equal(bytes_of(other), 1);
    assert_ok(fs_remove_tree(dir, &err), err);
    free(dir);
}

static void test_tensorboard__torn_tails_are_cut(void **state)
{
    (void)state;
    struct error err;
    enum log_level level = log_set_level(LOG_ERROR);
    char *dir = test_make_directory(), path[PATH_MAX], next[PATH_MAX], *text;
    size_t n;
    run_one_step(dir, 0, path);
    assert_ok(fs_read_all(path, 1 << 20, &text, &n, &err), err);
    size_t last = STEP_BYTES;
    for (size_t cut = 1; cut <= last; cut++) {
        assert_ok(fs_write_atomic(path, text, n - cut, &err), err);
        run_one_step(dir, 1, next);
        assert_int_equal(bytes_of(path), n - last);
        assert_int_equal(unlink(next), 0);
    }
    char *longer = calloc(1, n + 4096); // zeros, after a loss of power
    assert_non_null(longer);
    memcpy(longer, text, n);
    assert_ok(fs_write_atomic(path, longer, n + 4096, &err), err);
    run_one_step(dir, 1, next);
    assert_int_equal(bytes_of(path), n);
    assert_int_equal(unlink(next), 0);
    longer[60] ^= 1; // a wrong record before good ones: nothing is thrown away
    assert_ok(fs_write_atomic(path, longer, n, &err), err);
    run_one_step(dir, 1, next);
    assert_int_equal(bytes_of(path), n);
    free(longer);
    free(text);
    assert_ok(fs_remove_tree(dir, &err), err);
    free(dir);
    log_set_level(level);
}

static void test_tensorboard__keeps_what_the_disk_does_not_take(void **state)
{
    (void)state;
    struct tensorboard tb;
    struct record r;
    struct error err;
    struct rlimit limit, old;
    enum log_level level = log_set_level(LOG_ERROR);
    char *dir = test_make_directory(), path[PATH_MAX];
    signal(SIGXFSZ, SIG_IGN);
    assert_ok(tensorboard_open(&tb, dir, 0, "{}", &err), err);
    snprintf(path, sizeof path, "%s", tb.file.path);
    int64_t before = tb.file.n_bytes;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    limit.rlim_cur = (rlim_t)before + 10; // takes a part of a record
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int64_t step = 1; step <= 3; step++) {
        record_begin(&r, step);
        record_real(&r, "loss", 2.5);
        tensorboard_take(&tb, &r);
        assert_int_equal(bytes_of(path), before);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    record_begin(&r, 4);
    record_real(&r, "loss", 2.5);
    tensorboard_take(&tb, &r);
    assert_int_equal(bytes_of(path), before + 4 * STEP_BYTES);
    tensorboard_close(&tb);
    assert_ok(fs_remove_tree(dir, &err), err);
    free(dir);
    log_set_level(level);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_event__sums_are_crc32c),
        cmocka_unit_test(test_event__records_are_those_of_the_format),
        cmocka_unit_test(test_event__lengths_above_127_have_two_bytes),
        cmocka_unit_test(test_event__that_does_not_fit_is_refused),
        cmocka_unit_test(test_buckets__count_every_finite_value_once),
        cmocka_unit_test(test_buckets__of_equal_values_and_of_none),
        cmocka_unit_test(test_tensorboard__files_of_a_resumed_run_sort_in_order),
        cmocka_unit_test(test_tensorboard__a_fresh_run_sets_older_files_aside),
        cmocka_unit_test(test_tensorboard__torn_tails_are_cut),
        cmocka_unit_test(test_tensorboard__keeps_what_the_disk_does_not_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
