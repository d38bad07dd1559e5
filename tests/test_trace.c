/* The trace of one process: what is recorded, and that its text is a Chrome trace. */
#include "base/trace.h"
#include "test.h"

#include "base/clock.h"

#include <jansson.h>

static const struct trace_clock same_clock;

/* A span that began `ago` seconds before now, on a track. */
static void record(struct trace *trace, const char *name, double ago,
                   enum trace_track track)
{
    trace_end(trace, clock_seconds() - ago,
              &(struct trace_span){.name = name, .track = track});
}

/* The elements of the file that the texts of n traces make; json_decref() the root. */
static json_t *load(struct trace **traces, int n, const struct trace_clock *clock,
                    json_t **events)
{
    struct error err;
    size_t used = 0;
    char *file = malloc(TRACE_FRAME_BYTES);
    for (int i = 0; i < n; i++) {
        char *text, name[32];
        size_t n_text;
        snprintf(name, sizeof name, "rank %d", i);
        assert_ok(trace_render(traces[i], i, name, clock, &text, &n_text, &err), err);
        file = realloc(file, used + n_text + TRACE_FRAME_BYTES);
        assert_non_null(file);
        memcpy(file + TRACE_TEXT_AT + used, text, n_text);
        used += n_text;
        free(text);
    }
    json_error_t where;
    json_t *root =
        json_loadb(file, trace_frame(file, used), JSON_REJECT_DUPLICATES, &where);
    if (!root)
        fail_msg("line %d: %s", where.line, where.text);
    *events = json_object_get(root, "traceEvents");
    assert_true(json_is_array(*events));
    free(file);
    return root;
}

static json_t *find(json_t *events, int pid, const char *name)
{
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event)
    {
        if (json_integer_value(json_object_get(event, "pid")) == pid &&
            strcmp(json_string_value(json_object_get(event, "name")), name) == 0)
            return event;
    }
    fail_msg("no '%s' of process %d", name, pid);
    return NULL;
}

static double number(json_t *event, const char *key)
{
    json_t *value = json_object_get(event, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void test_render__is_one_json_file_of_all_processes(void **state)
{
    (void)state;
    struct error err;
    struct trace *traces[2];
    json_t *events;
    for (int i = 0; i < 2; i++) {
        assert_ok(trace_open(&traces[i], 10, &err), err);
        record(traces[i], i == 0 ? "first" : "second", 0, TRACE_COMPUTE);
    }
    json_t *root = load(traces, 2, &same_clock, &events);
    json_t *name = json_object_get(find(events, 1, "process_name"), "args");
    assert_string_equal(json_string_value(json_object_get(name, "name")), "rank 1");
    find(events, 0, "first");
    json_t *second = find(events, 1, "second");
    assert_string_equal(json_string_value(json_object_get(second, "ph")), "X");
    assert_string_equal(json_string_value(json_object_get(second, "cat")), "compute");
    json_decref(root);
    trace_close(traces[0]);
    trace_close(traces[1]);
}

static void test_render__of_nothing_is_json_too(void **state)
{
    (void)state;
    struct error err;
    struct trace *trace;
    json_t *events;
    json_t *root = load(NULL, 0, &same_clock, &events);
    assert_int_equal(json_array_size(events), 0);
    json_decref(root);
    assert_ok(trace_open(&trace, 10, &err), err);
    root = load(&trace, 1, &same_clock, &events);
    assert_true(json_array_size(events) > 0); // its name
    json_decref(root);
    trace_close(trace);
}

static void test_render__tells_numbers_group_and_times(void **state)
{
    (void)state;
    struct error err;
    struct trace *trace;
    json_t *events;
    assert_ok(trace_open(&trace, 10, &err), err);
    double now = clock_seconds();
    trace_end(trace, now - 2,
              &(struct trace_span){.name = "send",
                                   .group = "pipe",
                                   .track = TRACE_COMM,
                                   .args = {{"bytes", 1LL << 40}, {"peer", 3}}});
    struct trace_clock clock = {.zero = now - 5};
    json_t *root = load(&trace, 1, &clock, &events);
    json_t *send = find(events, 0, "send"), *args = json_object_get(send, "args");
    assert_string_equal(json_string_value(json_object_get(args, "group")), "pipe");
    assert_int_equal(json_integer_value(json_object_get(args, "bytes")), 1LL << 40);
    assert_int_equal(json_integer_value(json_object_get(args, "peer")), 3);
    assert_close(number(send, "ts"), 3e6, 1); // microseconds after zero
    assert_true(number(send, "dur") >= 2e6);
    assert_int_equal((int)number(send, "tid"), 1);
    json_decref(root);
    trace_close(trace);
}

static void test_render__overlapping_operations_have_lanes(void **state)
{
    (void)state;
    struct error err;
    struct trace *trace;
    json_t *events;
    assert_ok(trace_open(&trace, 10, &err), err);
    record(trace, "early", 9, TRACE_COMM); // all three are in flight at the end
    record(trace, "later", 8, TRACE_COMM);
    record(trace, "last", 7, TRACE_COMM);
    record(trace, "compute", 9, TRACE_COMPUTE);
    json_t *root = load(&trace, 1, &same_clock, &events);
    assert_int_equal((int)number(find(events, 0, "compute"), "tid"), 0);
    assert_int_equal((int)number(find(events, 0, "early"), "tid"), 1);
    assert_int_equal((int)number(find(events, 0, "later"), "tid"), 2);
    assert_int_equal((int)number(find(events, 0, "last"), "tid"), 3);
    json_decref(root);
    trace_close(trace);
}

static void test_record__counts_what_does_not_fit(void **state)
{
    (void)state;
    struct error err;
    struct trace *trace;
    json_t *events;
    assert_ok(trace_open(&trace, 3, &err), err);
    for (int i = 0; i < 8; i++)
        record(trace, i < 3 ? "kept" : "dropped", 0, TRACE_COMPUTE);
    assert_int_equal(trace_n_spans(trace), 3);
    assert_int_equal(trace_n_dropped(trace), 5);
    json_t *root = load(&trace, 1, &same_clock, &events);
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event) assert_string_not_equal(
        json_string_value(json_object_get(event, "name")), "dropped");
    json_decref(root);
    trace_close(trace);
}

static void test_record__into_no_trace_does_nothing(void **state)
{
    (void)state;
    assert_true(trace_begin(NULL) == 0);
    record(NULL, "nothing", 0, TRACE_COMPUTE);
    trace_close(NULL);
}

static void test_clock__differences_grow_evenly(void **state)
{
    (void)state;
    struct trace_clock clock = {{100, 200}, {10, 12}, 50};
    assert_close(trace_clock_map(&clock, 100), 40, 1e-12);
    assert_close(trace_clock_map(&clock, 150), 89, 1e-12);
    assert_close(trace_clock_map(&clock, 200), 138, 1e-12);
    struct trace_clock one_moment = {{100, 100}, {10, 12}, 0};
    assert_close(trace_clock_map(&one_moment, 100), 90, 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_render__is_one_json_file_of_all_processes),
        cmocka_unit_test(test_render__of_nothing_is_json_too),
        cmocka_unit_test(test_render__tells_numbers_group_and_times),
        cmocka_unit_test(test_render__overlapping_operations_have_lanes),
        cmocka_unit_test(test_record__counts_what_does_not_fit),
        cmocka_unit_test(test_record__into_no_trace_does_nothing),
        cmocka_unit_test(test_clock__differences_grow_evenly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
