#include "test.h"

#include "train/record.h"

#include <jansson.h>

static struct record made(void)
{
    static const double bytes[] = {7, 8};
    static const double seconds[] = {0.5, (double)INFINITY, 0.1};
    struct record r;
    record_begin(&r, 12);
    r.time = 1700000000.5;
    record_real(&r, "loss", 1.0 / 3);
    record_real(&r, "norm", (double)NAN);
    record_bool(&r, "skipped", false);
    record_text(&r, "path", "a\"b\\c\n\x01\xff\xc3\xa4");
    record_group(&r, "ranks");
    record_reals(&r, "seconds", seconds, 3);
    record_reals(&r, "bytes", bytes, 2);
    record_group_end(&r);
    record_group(&r, "none");
    record_group_end(&r);
    record_reals(&r, "empty", bytes, 0);
    record_i64(&r, "tokens", INT64_C(1) << 60);
    return r;
}

static void test_record__is_one_line_of_json(void **state)
{
    (void)state;
    struct record r = made();
    char line[1024];
    int64_t n = record_json(&r, line, sizeof line);
    assert_string_equal(line,
                        "{\"step\": 12, \"loss\": 0.333333333, "
                        "\"norm\": null, \"skipped\": false, "
                        "\"path\": \"a\\\"b\\\\c\\n\\u0001?\xc3\xa4\", "
                        "\"ranks\": {\"seconds\": [0.5, null, 0.1], \"bytes\": [7, 8]}, "
                        "\"none\": {}, \"empty\": [], \"tokens\": 1152921504606846976, "
                        "\"time\": 1700000000.500}\n");
    assert_int_equal(n, strlen(line));
    json_t *value = json_loads(line, 0, NULL);
    assert_non_null(value);
    json_decref(value);
}

static void test_record__that_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct record r = made();
    char line[1024];
    int64_t n = record_json(&r, line, sizeof line);
    for (int64_t size = 0; size <= n; size++)
        assert_int_equal(record_json(&r, line, (size_t)size), -1);
    assert_int_equal(record_json(&r, line, (size_t)n + 1), n);
}

static void test_record__fields_are_found_outside_of_groups(void **state)
{
    (void)state;
    struct record r = made();
    assert_null(record_find(&r, "seconds"));
    assert_null(record_find(&r, "nothing"));
    assert_non_null(record_find(&r, "ranks"));
    assert_true(record_find(&r, "tokens")->value.integer == INT64_C(1) << 60);
    assert_int_equal(record_find_text(&r, "path")[0], 'a');
    assert_null(record_find_text(&r, "tokens"));
}

static void test_record__numbers_are_read_as_they_are_written(void **state)
{
    (void)state;
    assert_true(record_as_read(1.0 / 3) == 0.333333333);
    assert_true(record_as_read(2.5) == 2.5);
    assert_true(isnan(record_as_read((double)NAN)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_record__is_one_line_of_json),
        cmocka_unit_test(test_record__that_does_not_fit_is_refused),
        cmocka_unit_test(test_record__fields_are_found_outside_of_groups),
        cmocka_unit_test(test_record__numbers_are_read_as_they_are_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
