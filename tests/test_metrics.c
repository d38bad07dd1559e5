#include "test.h"

#include "base/fs.h"
#include "base/log.h"
#include "train/metrics.h"

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static struct metrics open_in(const char *dir, int64_t first_step)
{
    struct metrics m = {.logging_freq = 1,
                        .max_steps = 100,
                        .tokens_per_step = 8,
                        .samples_per_step = 2,
                        .n_processes = 1};
    struct error err;
    assert_ok(metrics_open(&m, dir, first_step, &err), err);
    return m;
}

static void add_step(struct metrics *m, int64_t step)
{
    struct metrics_step s = {
        .step = step, .loss = 2.5, .grad_norm = (double)NAN, .step_seconds = 0.25};
    struct error err;
    assert_ok(metrics_step(m, &s, false, &err), err);
}

static void add_event(struct metrics *m, int64_t step, const char *event,
                      const char *reason)
{
    struct record r;
    struct error err;
    record_begin(&r, step);
    record_text(&r, "event", event);
    record_text(&r, "error", reason);
    assert_ok(metrics_tell(m, &r, &err), err);
}

/* The lines of the file as objects; every one must be JSON. */
static int read_lines(const char *dir, json_t *lines[], int most)
{
    char path[4096], *text;
    size_t n;
    int n_lines = 0;
    struct error err;
    assert_ok(fs_join(path, sizeof path, dir, "metrics.jsonl", &err), err);
    assert_ok(fs_read_all(path, 1 << 20, &text, &n, &err), err);
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        assert_true(n_lines < most);
        lines[n_lines] = json_loadb(line, (size_t)(end - line), 0, NULL);
        assert_non_null(lines[n_lines]);
        n_lines++;
    }
    assert_true(n == 0 || text[n - 1] == '\n');
    free(text);
    return n_lines;
}

static void release_lines(json_t *lines[], int n)
{
    for (int i = 0; i < n; i++)
        json_decref(lines[i]);
}

static int64_t step_of(const json_t *line)
{
    return json_integer_value(json_object_get(line, "step"));
}

static void remove_directory(char *dir)
{
    struct error err;
    assert_ok(fs_remove_tree(dir, &err), err);
    free(dir);
}

/* -- events -------------------------------------------------------------------------- */

static void test_metrics__a_failed_save_is_an_event_with_its_reason(void **state)
{
    (void)state;
    static const char reason[] = "cannot save 'a\"b\\c'\n\x01: disk full";
    char *dir = test_make_directory();
    json_t *lines[8];
    struct metrics m = open_in(dir, 0);
    add_step(&m, 1);
    add_event(&m, 1, "save_failed", reason);
    add_event(&m, 1, "save_failed", "'/\xff\xfe': no UTF-8");
    add_step(&m, 2);
    metrics_close(&m);

    assert_int_equal(read_lines(dir, lines, 8), 4);
    assert_int_equal(step_of(lines[1]), 1);
    assert_string_equal(json_string_value(json_object_get(lines[1], "event")),
                        "save_failed");
    assert_string_equal(json_string_value(json_object_get(lines[1], "error")), reason);
    assert_string_equal(json_string_value(json_object_get(lines[2], "error")),
                        "'/\?\?': no UTF-8");
    assert_null(json_object_get(lines[1], "loss"));
    assert_int_equal(step_of(lines[3]), 2);
    release_lines(lines, 4);
    remove_directory(dir);
}

static void test_metrics__a_resumed_run_keeps_events_up_to_its_step(void **state)
{
    (void)state;
    char *dir = test_make_directory();
    json_t *lines[8];
    struct metrics m = open_in(dir, 0);
    add_step(&m, 1);
    add_event(&m, 1, "save_failed", "disk full");
    add_step(&m, 2);
    add_step(&m, 3);
    metrics_close(&m);
    m = open_in(dir, 2);
    add_step(&m, 3);
    metrics_close(&m);
    int n = read_lines(dir, lines, 8);
    assert_int_equal(n, 4);
    assert_non_null(json_object_get(lines[1], "event"));
    assert_int_equal(step_of(lines[3]), 3);
    release_lines(lines, n);
    remove_directory(dir);
}

static void test_metrics__a_resumed_run_keeps_what_became_of_processes(void **state)
{
    (void)state;
    static const char *const kept[] = {"start", "stall", "failure", "stopped", "end"};
    static const char *const dropped[] = {"save", "skipped", "sample", "save_failed"};
    char *dir = test_make_directory();
    json_t *lines[16];
    struct metrics m = open_in(dir, 0);
    for (int i = 0; i < 5; i++)
        add_event(&m, 7, kept[i], "why");
    for (int i = 0; i < 4; i++)
        add_event(&m, 7, dropped[i], "\", \"event\": \"start\", \"");
    metrics_close(&m);
    m = open_in(dir, 2);
    metrics_close(&m);
    int n = read_lines(dir, lines, 16);
    assert_int_equal(n, 5);
    for (int i = 0; i < n; i++)
        assert_string_equal(json_string_value(json_object_get(lines[i], "event")),
                            kept[i]);
    release_lines(lines, n);
    remove_directory(dir);
}

static void test_metrics__a_step_says_how_far_and_how_fast(void **state)
{
    (void)state;
    char *dir = test_make_directory();
    json_t *lines[2];
    struct error err;
    struct metrics m = open_in(dir, 0);
    m.step_flops = 1000;
    m.product_flops = 8000;
    struct metrics_step s = {.step = 3,
                             .step_seconds = 0.25,
                             .consumed_samples = 6,
                             .shares = {[SHARE_COMPUTE] = 0.5, [SHARE_WAITING] = 0.25}};
    assert_ok(metrics_step(&m, &s, false, &err), err);
    metrics_close(&m);
    assert_int_equal(read_lines(dir, lines, 2), 1);
    json_t *line = lines[0];
    assert_int_equal(json_integer_value(json_object_get(line, "tokens")), 24);
    assert_close(json_number_value(json_object_get(line, "flops")), 3000, 0);
    assert_close(json_number_value(json_object_get(line, "mfu")), 0.5, 0);
    assert_close(json_number_value(json_object_get(line, "share_compute")), 0.5, 0);
    assert_close(json_number_value(json_object_get(line, "share_waiting")), 0.25, 0);
    assert_close(json_number_value(json_object_get(line, "share_optimizer")), 0, 0);
    assert_true(json_number_value(json_object_get(line, "time")) > 1.7e9);
    release_lines(lines, 1);
    remove_directory(dir);
}

static void test_metrics__what_is_no_file_goes_aside(void **state)
{
    (void)state;
    static const char *const kinds[] = {"directory", "pipe", "loop", "dangling"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (int64_t first_step = 0; first_step <= 2; first_step += 2) {
            char *dir = test_make_directory();
            char path[4096];
            snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
            int rc = i == 0   ? mkdir(path, 0777)
                     : i == 1 ? mkfifo(path, 0666)
                              : symlink(i == 2 ? "metrics.jsonl" : "nowhere", path);
            assert_int_equal(rc, 0);
            struct metrics m = open_in(dir, first_step);
            add_step(&m, first_step + 1);
            metrics_close(&m);
            json_t *lines[2];
            assert_int_equal(read_lines(dir, lines, 2), 1);
            release_lines(lines, 1);
            remove_directory(dir);
        }
}

static void test_metrics__a_resumed_run_drops_only_lines_of_its_own(void **state)
{
    (void)state;
    static const char before[] =
        "{\"step\": 1}\nmine\0\n\n{\"step\": 3}\n{\"step\": 2}\n{\"st";
    static const char after[] = "{\"step\": 1}\nmine\0\n\n{\"step\": 2}\n";
    char *dir = test_make_directory(), path[4096], *text;
    size_t n;
    struct error err;
    assert_ok(fs_join(path, sizeof path, dir, "metrics.jsonl", &err), err);
    assert_ok(fs_write_atomic(path, before, sizeof before - 1, &err), err);
    struct metrics m = open_in(dir, 2);
    metrics_close(&m);
    assert_ok(fs_read_all(path, 4096, &text, &n, &err), err);
    assert_int_equal(n, sizeof after - 1);
    assert_memory_equal(text, after, n);
    free(text);
    remove_directory(dir);
}

/* -- a full disk --------------------------------------------------------------------- */

/* Files may not grow beyond n_bytes: what a full disk looks like to a writer. */
static void limit_files(rlim_t n_bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = n_bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static off_t file_bytes(const struct metrics *m)
{
    struct stat st;
    assert_int_equal(fstat(m->fd, &st), 0);
    return st.st_size;
}

static void test_metrics__lines_outlast_a_full_disk(void **state)
{
    (void)state;
    char *dir = test_make_directory();
    json_t *lines[32];
    struct rlimit before;
    getrlimit(RLIMIT_FSIZE, &before);
    struct metrics m = open_in(dir, 0);
    add_step(&m, 1);
    limit_files((rlim_t)file_bytes(&m) + 100); // part of a line fits, which must not stay
    for (int step = 2; step <= 9; step++)
        add_step(&m, step);
    int n = read_lines(dir, lines, 32);
    assert_int_equal(n, 1);
    release_lines(lines, n);

    limit_files(before.rlim_cur);
    add_step(&m, 10);
    metrics_close(&m);
    n = read_lines(dir, lines, 32);
    assert_int_equal(n, 10);
    for (int i = 0; i < n; i++)
        assert_int_equal(step_of(lines[i]), i + 1);
    release_lines(lines, n);
    remove_directory(dir);
}

static void test_metrics__too_much_for_a_full_disk_is_an_error(void **state)
{
    (void)state;
    char *dir = test_make_directory();
    struct metrics_step s = {.step = 1, .loss = 2.5, .step_seconds = 0.25};
    struct error err = {.text = ""};
    struct rlimit before;
    getrlimit(RLIMIT_FSIZE, &before);
    struct metrics m = open_in(dir, 0);
    limit_files(10);
    int n_steps = 0;
    while (n_steps < 100000 && metrics_step(&m, &s, false, &err) == 0)
        n_steps++;
    limit_files(before.rlim_cur);
    assert_in_range(n_steps, 1000, 20000);
    assert_non_null(strstr(err.text, "metrics.jsonl': File too large"));
    metrics_close(&m);
    remove_directory(dir);
}

static void test_metrics__one_that_was_never_opened_is_closed(void **state)
{
    (void)state;
    struct metrics m = {.logging_freq = 1};
    int before = fcntl(STDIN_FILENO, F_GETFD);
    metrics_close(&m);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), before); // descriptor 0 is not its own
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics__a_failed_save_is_an_event_with_its_reason),
        cmocka_unit_test(test_metrics__a_resumed_run_keeps_events_up_to_its_step),
        cmocka_unit_test(test_metrics__a_resumed_run_keeps_what_became_of_processes),
        cmocka_unit_test(test_metrics__a_step_says_how_far_and_how_fast),
        cmocka_unit_test(test_metrics__what_is_no_file_goes_aside),
        cmocka_unit_test(test_metrics__a_resumed_run_drops_only_lines_of_its_own),
        cmocka_unit_test(test_metrics__lines_outlast_a_full_disk),
        cmocka_unit_test(test_metrics__too_much_for_a_full_disk_is_an_error),
        cmocka_unit_test(test_metrics__one_that_was_never_opened_is_closed),
    };
    signal(SIGXFSZ, SIG_IGN);
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
