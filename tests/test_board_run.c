/* A run as its directory shows it: whatever is in its files, and while they change. */
#include "base/fs.h"
#include "board/board.h"
#include "board/run.h"
#include "board/run_facts.h"
#include "board/run_pipeline.h"
#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)1 << 19)
#define WHOLE ((int64_t)1 << 40)

static char buffer[BUFFER_BYTES];

struct fixture {
    char *dir, path[4200];
    struct run run;
};

static void set_up(struct fixture *f)
{
    f->dir = test_make_directory();
    snprintf(f->path, sizeof f->path, "%s/" RUN_FILE_NAME, f->dir);
    run_init(&f->run, f->dir);
}

static void tear_down(struct fixture *f)
{
    struct error err;
    run_release(&f->run);
    assert_ok(fs_remove_tree(f->dir, &err), err);
    free(f->dir);
}

static void append(const struct fixture *f, const char *text, size_t n)
{
    FILE *file = fopen(f->path, "ab");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void say(const struct fixture *f, const char *text)
{
    append(f, text, strlen(text));
}

static void refresh(struct fixture *f)
{
    while (run_refresh(&f->run, buffer, sizeof buffer, WHOLE)) {
    }
}

static void say_steps(const struct fixture *f, int first, int last, double loss)
{
    char line[256];
    for (int i = first; i <= last; i++) {
        snprintf(line, sizeof line,
                 "{\"step\": %d, \"time\": %d.125, \"loss\": %.9g, \"lr\": 1e-05}\n", i,
                 1700000000 + i, loss);
        say(f, line);
    }
}

static double at(const struct fixture *f, int64_t row, enum run_column column)
{
    return run_columns_at(&f->run.steps, row, column);
}

static void test_scan__numbers_are_those_of_strtod(void **state)
{
    static const char *const numbers[] = {"0",
                                          "-0",
                                          "1",
                                          "3.14159265",
                                          "1e-05",
                                          "1.23456789e-14",
                                          "1e22",
                                          "1e23",
                                          "-2.5E3",
                                          "123456789012345678",
                                          "0.1",
                                          "4.9e-324",
                                          "1.7976931348623157e308",
                                          "1700000000.123"};
    struct run_scan scan = {{0}};
    struct run_values values;
    char line[128];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        int n = snprintf(line, sizeof line, "{\"step\": 1, \"loss\":%s}", numbers[i]);
        assert_int_equal(run_scan_line(&scan, line, (size_t)n, &values), RUN_LINE_STEP);
        double want = strtod(numbers[i], NULL);
        assert_memory_equal(&values.at[RUN_LOSS], &want, sizeof want);
    }
}

static void test_scan__odd_lines_are_told_from_bad_ones(void **state)
{
    static const struct {
        const char *line;
        enum run_line kind;
    } cases[] = {
        {"{\"loss\": 2, \"step\": 1}", RUN_LINE_STEP},
        {"  { \"step\" : 1 , \"loss\" : null } ", RUN_LINE_STEP},
        {"{\"step\": 1, \"loss\": NaN}", RUN_LINE_STEP},
        {"{\"st\\u0065p\": 1, \"loss\": 2}",
         RUN_LINE_OTHER}, // the scanner knows no escapes
        {"{\"step\": 1, \"eval_loss\": 2}", RUN_LINE_EVAL},
        {"{\"step\": 1, \"x\": {\"loss\": [1, \"}\"]}}", RUN_LINE_OTHER},
        {"{\"event\": \"start\"}", RUN_LINE_EVENT},
        {"{\"step\": 1, \"ranks\": {}}", RUN_LINE_EVENT},
        {"{\"step\": -1, \"loss\": 2}", RUN_LINE_OTHER},
        {"{}", RUN_LINE_OTHER},
        {"", RUN_LINE_BAD},
        {"{", RUN_LINE_BAD},
        {"{\"step\": 1, \"loss\": 2", RUN_LINE_BAD},
        {"{\"step\": 1 \"loss\": 2}", RUN_LINE_BAD},
        {"{\"step\": 1, \"loss\": 2} x", RUN_LINE_BAD},
        {"{\"step\": 1, \"loss\": 2-}", RUN_LINE_BAD},
        {"{\"step\": 1, \"loss\": \"abc}", RUN_LINE_BAD},
        {"[1, 2]", RUN_LINE_BAD},
        {"<html>", RUN_LINE_BAD},
    };
    struct run_scan scan = {{0}};
    struct run_values values;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (run_scan_line(&scan, cases[i].line, strlen(cases[i].line), &values) !=
            cases[i].kind)
            fail_msg("'%s' is not taken for %d", cases[i].line, (int)cases[i].kind);
}

static void test_run__grows_with_its_file(void **state)
{
    struct fixture f;
    (void)state;
    set_up(&f);
    refresh(&f);
    assert_int_equal(f.run.steps.n_rows, 0);
    say_steps(&f, 1, 20000, 2.5);
    refresh(&f);
    assert_int_equal(f.run.steps.n_rows, 20000);
    uint64_t version = f.run.version;
    refresh(&f);
    assert_int_equal(f.run.version, version);
    say(&f, "{\"step\": 20001, \"lo"); // half a line is waited for
    refresh(&f);
    assert_int_equal(f.run.steps.n_rows, 20000);
    say(&f, "ss\": 1.25}\n");
    refresh(&f);
    assert_int_equal(f.run.steps.n_rows, 20001);
    assert_close(at(&f, 20000, RUN_LOSS), 1.25, 0);
    assert_close(at(&f, 19999, RUN_TIME), 1700020000.125, 0);
    assert_int_equal(f.run.file.n_bad, 0);
    tear_down(&f);
}

static void test_run__later_lines_replace_what_a_resumed_run_repeats(void **state)
{
    struct fixture f;
    (void)state;
    set_up(&f);
    say_steps(&f, 1, 9000, 3);
    say(&f, "{\"step\": 9000, \"eval_loss\": 3}\n");
    say_steps(&f, 5001, 5003, 2);
    refresh(&f);
    assert_int_equal(f.run.steps.n_rows, 5003);
    assert_close(at(&f, 4999, RUN_LOSS), 3, 0);
    assert_close(at(&f, 5000, RUN_LOSS), 2, 0);
    assert_int_equal(f.run.evals.n_rows, 0);
    say(&f,
        "{\"step\": 4000, \"time\": 1, \"event\": \"start\", \"resumed_from\": 4000}\n");
    refresh(&f);
    assert_int_equal(f.run.steps.n_rows, 4000);
    tear_down(&f);
}

static void test_run__a_file_that_is_replaced_or_cut_is_read_again(void **state)
{
    struct fixture f;
    struct error err;
    static const char text[] = "{\"step\": 1, \"loss\": 7}\n";
    (void)state;
    set_up(&f);
    say_steps(&f, 1, 50, 3);
    refresh(&f);
    assert_ok(fs_write_atomic(f.path, text, sizeof text - 1, &err), err);
    refresh(&f);
    assert_int_equal(f.run.steps.n_rows, 1);
    assert_close(at(&f, 0, RUN_LOSS), 7, 0);
    assert_int_equal(truncate(f.path, 0), 0);
    refresh(&f);
    assert_int_equal(f.run.steps.n_rows, 0);
    say_steps(&f, 1, 50, 3);
    refresh(&f);
    assert_int_equal(f.run.steps.n_rows, 50);
    assert_int_equal(truncate(f.path, 0), 0); // and written again, longer, in between
    say_steps(&f, 1, 60, 4);
    refresh(&f);
    assert_int_equal(f.run.steps.n_rows, 60);
    assert_close(at(&f, 0, RUN_LOSS), 4, 0);
    assert_int_equal(unlink(f.path), 0);
    refresh(&f);
    assert_int_equal(f.run.steps.n_rows, 0);
    tear_down(&f);
}

static void test_run__long_and_bad_lines_are_left_out_and_told(void **state)
{
    struct fixture f;
    struct run_facts facts;
    char *huge = malloc(3 * BUFFER_BYTES);
    (void)state;
    assert_non_null(huge);
    set_up(&f);
    say_steps(&f, 1, 2, 3);
    memset(huge, 'x', 3 * BUFFER_BYTES);
    memcpy(huge, "{\"step\": 3, \"loss\": \"", 21);
    append(&f, huge, 3 * BUFFER_BYTES);
    refresh(&f);
    assert_true(f.run.file.is_skipping);
    append(&f, huge, RUN_LINE_BYTES_MOST);
    say(&f, "\"}\n");
    memset(huge, 'y', BUFFER_BYTES);
    append(&f, huge, RUN_LINE_BYTES_MOST + 5); // too long, and yet in one piece
    say(&f, "\n");
    append(&f, "{\"step\": 4, \"loss\": 1\0}\n", 24);
    append(&f, "\0\0\0\n", 4);
    say(&f, "{\"step\": 5, \"loss\": 2, \"name\": \"<script>\"}\n");
    refresh(&f);
    assert_int_equal(f.run.steps.n_rows, 3);
    assert_close(at(&f, 2, RUN_STEP), 5, 0);
    assert_int_equal(f.run.file.n_long, 2);
    assert_int_equal(f.run.file.n_bad, 2);
    assert_int_equal(f.run.file.first_skipped, 3);
    run_facts_of(&f.run, 1700000000, &facts);
    assert_non_null(strstr(facts.note, "2 lines are no JSON and left out"));
    assert_non_null(strstr(facts.note, "2 lines are too long and left out"));
    assert_non_null(strstr(facts.note, "line 3 of"));
    free(huge);
    tear_down(&f);
}

static void test_run__what_is_no_file_is_left_alone(void **state)
{
    struct fixture f;
    struct run_facts facts;
    (void)state;
    set_up(&f);
    assert_int_equal(mkfifo(f.path, 0600), 0);
    refresh(&f);
    run_facts_of(&f.run, 1, &facts);
    assert_int_equal(facts.state, RUN_UNREADABLE);
    assert_int_equal(unlink(f.path), 0);
    assert_int_equal(symlink("/etc/hostname", f.path), 0);
    refresh(&f);
    run_facts_of(&f.run, 1, &facts);
    assert_int_equal(facts.state, RUN_UNREADABLE);
    tear_down(&f);
}

static void test_series__keeps_the_extremes_of_every_bucket(void **state)
{
    struct fixture f;
    struct run_series s;
    char line[128];
    (void)state;
    set_up(&f);
    for (int i = 1; i <= 30000; i++) {
        snprintf(line, sizeof line, "{\"step\": %d, \"loss\": %s, \"tokens\": %d}\n", i,
                 i == 12345 ? "99"
                 : i == 700 ? "null"
                            : "2",
                 10 * i);
        say(&f, line);
    }
    refresh(&f);
    assert_int_equal(
        run_columns_series(&f.run.steps, RUN_LOSS, RUN_TOKENS, -1e9, 1e9, 100, &s), 0);
    assert_int_equal(s.n_points, 30000);
    assert_int_equal(s.n_buckets, 100);
    int64_t n_high = 0;
    double n_all = 0;
    for (int64_t i = 0; i < s.n_buckets; i++) {
        n_high += s.buckets[i].max > 50;
        n_all += (double)s.buckets[i].n;
        assert_close(s.buckets[i].min, 2, 0);
        assert_true(i == 0 || s.buckets[i].x > s.buckets[i - 1].x);
    }
    assert_int_equal(n_high, 1);
    assert_close(n_all, 29999, 0);
    run_series_release(&s);
    assert_int_equal(
        run_columns_series(&f.run.steps, RUN_LOSS, RUN_STEP, 699, 701, 100, &s), 0);
    assert_int_equal(s.n_buckets, 3); // as they are
    assert_int_equal(s.buckets[1].n, 0);
    run_series_release(&s);
    tear_down(&f);
}

static void judge(struct fixture *f, struct run_facts *facts)
{
    refresh(f);
    run_facts_of(&f->run, 1700000100, facts);
}

static void test_health__is_told_from_the_losses(void **state)
{
    struct fixture f;
    struct run_facts facts;
    (void)state;
    set_up(&f);
    say_steps(&f, 1, 5, 9);
    judge(&f, &facts);
    assert_int_equal(facts.health, RUN_HEALTH_UNKNOWN);
    for (int i = 6; i <= 100; i++)
        say_steps(&f, i, i, 9 - 0.05 * i);
    judge(&f, &facts);
    assert_int_equal(facts.health, RUN_HEALTHY);
    say_steps(&f, 101, 101, 30);
    say_steps(&f, 102, 105, 4);
    judge(&f, &facts);
    assert_int_equal(facts.health, RUN_SPIKING);
    assert_non_null(strstr(facts.health_text, "at step 101"));
    say_steps(&f, 106, 1000, 4);
    judge(&f, &facts);
    assert_int_equal(facts.health, RUN_FLAT);
    say_steps(&f, 1001, 1100, 12);
    judge(&f, &facts);
    assert_int_equal(facts.health, RUN_DIVERGED);
    say(&f, "{\"step\": 1101, \"loss\": null}\n");
    judge(&f, &facts);
    assert_int_equal(facts.health, RUN_DIVERGED);
    assert_non_null(strstr(facts.health_text, "not a finite number"));
    tear_down(&f);
}

static void test_facts__say_what_limits_a_run(void **state)
{
    struct fixture f;
    struct run_facts facts;
    (void)state;
    set_up(&f);
    say(&f,
        "{\"step\": 1, \"loss\": 1, \"share_reader\": 0.4, \"share_compute\": 0.5}\n");
    judge(&f, &facts);
    assert_non_null(strstr(facts.limit, "Reading data: 40 %"));
    say(&f,
        "{\"step\": 1, \"loss\": 1, \"share_waiting\": 0.5, \"share_reader\": 0.1}\n");
    say(&f, "{\"step\": 1, \"ranks\": {\"step_seconds\": [1, 1, 1], \"wait_seconds\": "
            "[0.5, 0.1, 0.6]}}\n");
    judge(&f, &facts);
    assert_non_null(strstr(facts.limit, "50 % of each step's time; rank 1 "));
    say(&f, "{\"step\": 1, \"loss\": 1, \"share_compute\": 0.9, \"mfu\": 0.6}\n");
    judge(&f, &facts);
    assert_non_null(strstr(facts.limit, "Arithmetic: 90 %"));
    assert_non_null(strstr(facts.limit, "60 %"));
    tear_down(&f);
}

static void test_facts__tell_how_a_run_ended(void **state)
{
    static const struct {
        const char *line;
        enum run_state state;
    } cases[] = {
        {"{\"step\": 2, \"event\": \"end\"}\n", RUN_FINISHED},
        {"{\"step\": 2, \"event\": \"stopped\", \"signal\": \"SIGINT\"}\n", RUN_STOPPED},
        {"{\"step\": 2, \"event\": \"failure\", \"error\": \"<b>no disk\"}\n", RUN_DEAD},
        {"{\"step\": 2, \"event\": \"start\", \"steps_total\": 2}\n", RUN_FINISHED},
        {"{\"step\": 2, \"event\": \"start\", \"steps_total\": 9}\n", RUN_STOPPED},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct fixture f;
        struct run_facts facts;
        set_up(&f);
        judge(&f, &facts);
        assert_int_equal(facts.state, RUN_EMPTY);
        say_steps(&f, 1, 2, 3);
        say(&f, cases[i].line);
        judge(&f, &facts);
        assert_int_equal(facts.state, cases[i].state);
        tear_down(&f);
    }
}

static void test_facts__a_process_that_is_gone_is_dead_at_once(void **state)
{
    struct fixture f;
    struct run_facts facts;
    struct error err;
    struct ckpt_lock lock;
    char path[4200], note[1025] = {0};
    (void)state;
    set_up(&f);
    say_steps(&f, 1, 2, 3);
    assert_ok(ckpt_lock_open(&lock, f.dir, 60, &err), err);
    snprintf(path, sizeof path, "%s/" CKPT_LOCK_NAME, f.dir);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_true(fread(note, 1, 1024, file) > 0);
    fclose(file);
    judge(&f, &facts);
    assert_int_equal(facts.state, RUN_TRAINING);
    ckpt_lock_close(&lock);
    judge(&f, &facts);
    assert_int_equal(facts.state, RUN_STOPPED);
    assert_ok(fs_write_atomic(path, note, strlen(note), &err),
              err); // as a kill leaves it
    judge(&f, &facts);
    assert_int_equal(facts.state, RUN_DEAD);
    tear_down(&f);
}

static void test_events__are_bounded_however_many_there_are(void **state)
{
    struct fixture f;
    struct board_text out = {0};
    char line[256];
    (void)state;
    set_up(&f);
    for (int i = 0; i < 3000; i++) {
        snprintf(line, sizeof line,
                 "{\"step\": %d, \"ranks\": {\"step_seconds\": [1, %d]}}\n", i, i);
        say(&f, line);
        snprintf(line, sizeof line,
                 "{\"step\": %d, \"event\": \"save\", \"path\": \"p\"}\n", i);
        say(&f, line);
    }
    refresh(&f);
    assert_int_equal(f.run.events.events.n, RUN_EVENTS_MOST);
    assert_true(f.run.events.n_moments <= RUN_RANKS_MOST);
    assert_true(f.run.events.n_moments >= RUN_RANKS_MOST / 2);
    assert_close(f.run.events.moments[0].step, 0, 0);
    assert_close(f.run.events.last_save_step, 2999, 0);
    run_ranks_write(&f.run.events, 10, &out);
    json_t *root = json_loadb(out.bytes, (size_t)out.n, 0, NULL);
    assert_non_null(root);
    assert_int_equal(json_array_size(json_object_get(root, "steps")), 10);
    json_decref(root);
    board_text_release(&out);
    tear_down(&f);
}

static void test_config__is_shown_key_by_key(void **state)
{
    struct fixture f;
    struct error err;
    char path[4200];
    static const char yaml[] = "PreTraining:\n  max_steps: 20\n  dataset:\n    split: "
                               "[90, 10]\n  Model:\n    name: '<img src=x>'\n";
    struct board_text out = {0};
    (void)state;
    set_up(&f);
    snprintf(path, sizeof path, "%s/" RUN_CONFIG_NAME, f.dir);
    assert_ok(fs_write_atomic(path, yaml, sizeof yaml - 1, &err), err);
    refresh(&f);
    assert_close(run_config_number(&f.run.config, "max_steps"), 20, 0);
    assert_string_equal(run_config_value(&f.run.config, "dataset.split"), "90,10");
    run_config_write(&f.run.config, &out);
    board_text_add(&out, "", 1);
    assert_null(strchr(out.bytes, '<'));
    assert_non_null(strstr(out.bytes, "[\"Model.name\",\"\\u003cimg src=x\\u003e\"]"));
    board_text_release(&out);
    assert_ok(fs_write_atomic(path, "a: [", 4, &err), err);
    refresh(&f);
    assert_int_equal(f.run.config.n_lines, 0);
    assert_true(f.run.config.problem[0] != 0);
    tear_down(&f);
}

/* One step of two stages, of which the second takes `micros` microseconds. */
static void write_trace(const struct fixture *f, int micros)
{
    char path[4200], text[2048];
    snprintf(path, sizeof path, "%s/trace.json", f->dir);
    int n = snprintf(text, sizeof text,
                     "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                     "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":"
                     "{\"name\":\"rank 0 (dp 0 pp 0 mp 0)\"}},\n"
                     "{\"name\":\"forward\",\"ph\":\"X\",\"pid\":0,\"tid\":0,"
                     "\"ts\":1000000,\"dur\":500000,\"args\":{\"micro\":0}},\n"
                     "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":"
                     "{\"name\":\"rank 1 (dp 0 pp 1 mp 0)\"}},\n"
                     "{\"name\":\"step\",\"ph\":\"X\",\"pid\":1,\"tid\":0,\"ts\":0,"
                     "\"dur\":1000000,\"args\":{\"step\":7}},\n"
                     "{\"name\":\"backward\",\"ph\":\"X\",\"pid\":1,\"tid\":0,"
                     "\"ts\":1500000,\"dur\":%d,\"args\":{\"micro\":0}}\n]}\n",
                     micros);
    FILE *file = fopen(path, "wb"); // in place: the same file
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, (size_t)n, file), n);
    assert_int_equal(fclose(file), 0);
}

/* When the last box of the run's pipeline ends; -1: no step was traced. */
static double pipeline_end(struct fixture *f)
{
    struct board_text out = {0};
    run_pipeline_refresh(&f->run);
    run_pipeline_write(&f->run, &out);
    json_t *root = json_loadb(out.bytes, (size_t)out.n, 0, NULL);
    assert_non_null(root);
    const json_t *boxes = json_object_get(root, "boxes");
    const json_t *last = json_array_get(boxes, json_array_size(boxes) - 1);
    double end = json_is_true(json_object_get(root, "traced"))
                     ? json_number_value(json_object_get(last, "end"))
                     : -1;
    json_decref(root);
    board_text_release(&out);
    return end;
}

static void test_pipeline__a_trace_is_read_when_it_has_changed(void **state)
{
    static const char yaml[] = "PreTraining:\n  trace: elsewhere/trace.json\n";
    const struct timespec first[2] = {{1000, 0}, {1000, 0}};
    const struct timespec later[2] = {{1000, 0}, {1000, 1}};
    struct fixture f;
    struct error err;
    char path[4200];
    (void)state;
    set_up(&f);
    snprintf(path, sizeof path, "%s/" RUN_CONFIG_NAME, f.dir);
    assert_ok(fs_write_atomic(path, yaml, sizeof yaml - 1, &err), err);
    refresh(&f);
    assert_close(pipeline_end(&f), -1, 0);
    snprintf(path, sizeof path, "%s/trace.json", f.dir);
    write_trace(&f, 250000);
    assert_int_equal(utimensat(AT_FDCWD, path, first, 0), 0);
    assert_close(pipeline_end(&f), 0.75, 1e-9);
    write_trace(&f, 750000); // as many bytes, and as it seems not written since
    assert_int_equal(utimensat(AT_FDCWD, path, first, 0), 0);
    assert_close(pipeline_end(&f), 0.75, 1e-9);
    assert_int_equal(utimensat(AT_FDCWD, path, later, 0), 0);
    assert_close(pipeline_end(&f), 1.25, 1e-9);
    assert_int_equal(unlink(path), 0);
    assert_close(pipeline_end(&f), -1, 0);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scan__numbers_are_those_of_strtod),
        cmocka_unit_test(test_scan__odd_lines_are_told_from_bad_ones),
        cmocka_unit_test(test_run__grows_with_its_file),
        cmocka_unit_test(test_run__later_lines_replace_what_a_resumed_run_repeats),
        cmocka_unit_test(test_run__a_file_that_is_replaced_or_cut_is_read_again),
        cmocka_unit_test(test_run__long_and_bad_lines_are_left_out_and_told),
        cmocka_unit_test(test_run__what_is_no_file_is_left_alone),
        cmocka_unit_test(test_series__keeps_the_extremes_of_every_bucket),
        cmocka_unit_test(test_health__is_told_from_the_losses),
        cmocka_unit_test(test_facts__say_what_limits_a_run),
        cmocka_unit_test(test_facts__tell_how_a_run_ended),
        cmocka_unit_test(test_facts__a_process_that_is_gone_is_dead_at_once),
        cmocka_unit_test(test_events__are_bounded_however_many_there_are),
        cmocka_unit_test(test_config__is_shown_key_by_key),
        cmocka_unit_test(test_pipeline__a_trace_is_read_when_it_has_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
