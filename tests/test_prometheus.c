/* What an independent parser makes of the text of a real run is tests/interop's. */
#include "test.h"

#include "base/fs.h"
#include "base/log.h"
#include "train/prometheus.h"

static void test_prometheus__samples_of_a_name_stand_together(void **state)
{
    (void)state;
    static const double seconds[] = {0.5, (double)NAN, 2};
    struct prometheus_run runs[2] = {prometheus_run_of("a\"b\\c\n\xff"),
                                     prometheus_run_of("two")};
    char text[4096];
    runs[0].version = "1";
    runs[0].step = 3;
    runs[1].step = 4;
    runs[1].tokens = 12345678901.0;
    runs[0].n_ranks = 3;
    runs[0].rank_seconds = seconds;
    size_t n = prometheus_text(runs, 2, text, sizeof text);
#define RUN "run=\"a\\\"b\\\\c\\n?\""
    assert_string_equal(
        text, "# HELP trefoil_info What runs: always 1.\n# TYPE trefoil_info gauge\n"
              "trefoil_info{" RUN ",version=\"1\",layout=\"\"} 1\n"
              "trefoil_info{run=\"two\",version=\"\",layout=\"\"} 1\n"
              "# HELP trefoil_step Updates that are done.\n# TYPE trefoil_step gauge\n"
              "trefoil_step{" RUN "} 3\ntrefoil_step{run=\"two\"} 4\n"
              "# HELP trefoil_tokens_total Tokens trained on so far.\n"
              "# TYPE trefoil_tokens_total counter\n"
              "trefoil_tokens_total{run=\"two\"} 12345678901\n"
              "# HELP trefoil_step_seconds Time of a step, by rank.\n"
              "# TYPE trefoil_step_seconds gauge\n"
              "trefoil_step_seconds{" RUN ",rank=\"0\"} 0.5\n"
              "trefoil_step_seconds{" RUN ",rank=\"2\"} 2\n");
    assert_int_equal(n, strlen(text));
}

static void test_prometheus__text_that_does_not_fit_is_measured(void **state)
{
    (void)state;
    struct prometheus_run run = prometheus_run_of("x");
    char text[4096], cut[64];
    run.loss = 2.5;
    size_t n = prometheus_text(&run, 1, text, sizeof text);
    for (size_t size = 1; size <= sizeof cut; size++) {
        assert_int_equal(prometheus_text(&run, 1, cut, size), n);
        assert_memory_equal(cut, text, size - 1);
        assert_int_equal(cut[size - 1], 0);
    }
    assert_int_equal(prometheus_text(&run, 1, NULL, 0), n);
    assert_int_equal(prometheus_text(NULL, 0, text, sizeof text), 0);
}

static void test_prometheus__file_is_replaced_at_events(void **state)
{
    (void)state;
    static struct prometheus_file f;
    struct record r;
    struct error err;
    char *dir = test_make_directory(), path[4096], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/run.prom", dir);
    assert_ok(prometheus_open(&f, path, dir, &err), err);
    static const char *const events[] = {"start", "end"};
    for (int i = 0; i < 2; i++) {
        record_begin(&r, i);
        record_text(&r, "event", events[i]);
        prometheus_take(&f, &r);
        assert_ok(fs_read_all(path, 1 << 20, &text, &n, &err), err);
        char *running = strstr(text, "\ntrefoil_running{");
        assert_non_null(running);
        assert_non_null(strstr(running, i == 0 ? "} 1\n" : "} 0\n"));
        free(text);
    }
    prometheus_close(&f);
    assert_ok(fs_remove_tree(dir, &err), err);
    free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prometheus__samples_of_a_name_stand_together),
        cmocka_unit_test(test_prometheus__text_that_does_not_fit_is_measured),
        cmocka_unit_test(test_prometheus__file_is_replaced_at_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
