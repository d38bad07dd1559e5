/* Values that are lists: dataset.input_dir and dataset.weights, from files, -o and JSON.
 */
#include "test.h"

#include "base/log.h"
#include "config/config.h"

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

static int load(struct config *cfg, const char *text, const char *option,
                struct error *err)
{
    char copy[512];
    char *options[] = {copy};
    snprintf(copy, sizeof copy, "%s", option ? option : "");
    return config_load_text(cfg, "f.yaml", text, strlen(text), options, option != NULL, 1,
                            err);
}

/* The paths with a bar between them. */
static const char *joined(const struct config *cfg)
{
    static char text[1024];
    size_t used = 0;
    text[0] = 0;
    for (int64_t i = 0; i < cfg->dataset.input_dir.n_paths; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? "|" : "",
                                 config_path_at(&cfg->dataset.input_dir, i));
    return text;
}

static void test_paths__are_one_or_a_list(void **state)
{
    (void)state;
    static const struct {
        const char *text, *option, *paths;
    } cases[] = {
        {"", NULL, "./data"},
        {"dataset: {input_dir: }", NULL, "./data"},
        {"dataset: {input_dir: a b/c}", NULL, "a b/c"},
        {"dataset: {input_dir: '[a, b]'}", NULL, "[a, b]"},
        {"dataset: {input_dir: [a]}", NULL, "a"},
        {"dataset: {input_dir: [a, './b,c', \"d[e]\", it's]}", NULL, "a|./b,c|d[e]|it's"},
        {"dataset:\n  input_dir:\n  - /x/y\n  - z # two\n", NULL, "/x/y|z"},
        {"", "dataset.input_dir=one", "one"},
        {"", "dataset.input_dir=a,b", "a,b"},
        {"", "dataset.input_dir=[a]", "a"},
        {"", "input_dir=[a,b]", "a|b"},
        {"", "input_dir=[a, 'b,c' , \"d e\"]", "a|b,c|d e"},
        {"dataset: {input_dir: [a, b]}", "input_dir=", "./data"},
        {"dataset: {input_dir: [a, b, c]}", "input_dir=[d]", "d"},
    };
    for (size_t i = 0; i < LEN(cases); i++) {
        struct config cfg;
        struct error err;
        assert_ok(load(&cfg, cases[i].text, cases[i].option, &err), err);
        assert_string_equal(joined(&cfg), cases[i].paths);
        assert_int_equal(cfg.dataset.weights.n_values, 0);
    }
}

static void test_weights__are_numbers_for_each_path(void **state)
{
    (void)state;
    static const struct {
        const char *text, *option;
    } cases[] = {
        {"dataset: {input_dir: [a, b], weights: [0.7, 3e-1]}", NULL},
        {"dataset: {input_dir: [a, b], weights: '0.7, 0.3'}", NULL},
        {"dataset:\n  weights:\n  - 0.7\n  - 0.3\n  input_dir:\n  - a\n  - b\n", NULL},
        {"dataset: {input_dir: [a, b]}", "dataset.weights=[0.7,0.3]"},
        {"dataset: {input_dir: [a, b], weights: [1, 2]}", "dataset.weights=0.7,0.3"},
    };
    struct config cfg;
    struct error err;
    for (size_t i = 0; i < LEN(cases); i++) {
        assert_ok(load(&cfg, cases[i].text, cases[i].option, &err), err);
        assert_int_equal(cfg.dataset.weights.n_values, 2);
        assert_true(cfg.dataset.weights.values[0] == 0.7);
        assert_true(cfg.dataset.weights.values[1] == 0.3);
    }
    assert_ok(load(&cfg, "dataset: {input_dir: a, weights: 2}", NULL, &err), err);
    assert_int_equal(cfg.dataset.weights.n_values, 1);
    assert_ok(load(&cfg, "dataset: {weights: []}", NULL, &err), err);
    assert_int_equal(cfg.dataset.weights.n_values, 0);
    assert_ok(load(&cfg, "dataset: {input_dir: [a, b], weights: [1, 2]}",
                   "dataset.weights=", &err),
              err);
    assert_int_equal(cfg.dataset.weights.n_values, 0);
}

static void test_lists__that_are_wrong_name_place_and_element(void **state)
{
    (void)state;
    static const struct {
        const char *text, *option, *sentence;
    } cases[] = {
        {"dataset: {input_dir: []}", NULL,
         "f.yaml:1:22: dataset.input_dir: the list is empty: name at least one path"},
        {"dataset:\n  input_dir: [a, '']\n", NULL,
         "f.yaml:2:18: an element of this list is empty"},
        {"dataset:\n  input_dir: [a, [b]]\n", NULL,
         "f.yaml:2:18: a list holds plain values here"},
        {"dataset:\n  input_dir: [a, {b: c}]\n", NULL,
         "f.yaml:2:18: a list holds plain values here"},
        {"dataset: {input_dir: [a, \"b\\x1fc\"]}", NULL,
         "f.yaml:1:26: a control character in a list"},
        {"dataset: {input_dir: {a: b}}", NULL,
         "f.yaml:1:22: 'dataset.input_dir' takes a path, or a list of paths such as [a, "
         "b], not keys of its own"},
        {"dataset: {input_dir: [a, b], weights: [1, x]}", NULL,
         "f.yaml:1:39: dataset.weights: number 2: 'x' is not"},
        {"dataset: {input_dir: [a, b], weights: [1, 0]}", NULL,
         "f.yaml:1:39: dataset.weights: number 2: 0 is out of range: use a list such as "
         "[1, 3] "
         "of numbers above 0, up to 1e+15"},
        {"dataset: {input_dir: [a, b], weights: [1, 2, 3]}", NULL,
         "f.yaml:1:39: dataset.weights: 3 weights, but input_dir names 2 paths "
         "(f.yaml:1:22): give one for each, or none"},
        {"dataset: {weights: [1, 2]}", NULL,
         "f.yaml:1:20: dataset.weights: 2 weights, but input_dir names 1 path: give"},
        {"", "input_dir=[a,b",
         "-o input_dir=[a,b: this is no list: write [a, b], with quotes"},
        {"", "input_dir=[a]b", "-o input_dir=[a]b: this is no list"},
        {"", "input_dir=[]", "-o input_dir=[]: dataset.input_dir: the list is empty"},
        {"dataset: {input_dir: [a, b]}", "dataset.weights=[1,-2]",
         "-o dataset.weights=[1,-2]: dataset.weights: number 2: -2 is out of range"},
        {"dataset: {mode: fixed}", NULL,
         "f.yaml:1:17: dataset.mode: 'fixed' is unknown: use one of packed, padded"},
        {"device: [cpu]", NULL, "f.yaml:1:9: device: the list 'cpu' is not possible"},
    };
    for (size_t i = 0; i < LEN(cases); i++) {
        struct config cfg;
        struct error err = {.text = ""};
        if (load(&cfg, cases[i].text, cases[i].option, &err) == 0)
            fail_msg("accepted: %s %s", cases[i].text,
                     cases[i].option ? cases[i].option : "");
        assert_int_equal(err.kind, ERROR_INPUT);
        if (strncmp(err.text, cases[i].sentence, strlen(cases[i].sentence)) != 0)
            fail_msg("expected: %s\nfound:    %s", cases[i].sentence, err.text);
    }
}

/* "dataset: {input_dir: [p, p, ...]}" with n paths of n_bytes bytes. */
static char *many_paths(int n, int n_bytes)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    fputs("dataset:\n  input_dir:\n", out);
    for (int i = 0; i < n; i++)
        fprintf(out, "  - %0*d\n", n_bytes, i);
    fclose(out);
    return text;
}

static void test_paths__have_limits_that_are_said(void **state)
{
    (void)state;
    static const struct {
        int n, n_bytes;
        const char *says; // NULL: it is accepted
    } cases[] = {
        {CONFIG_LIST_MOST, CONFIG_LIST_BYTES / CONFIG_LIST_MOST - 1, NULL},
        {CONFIG_LIST_MOST + 1, 4, "path 257: the list is too long"},
        {CONFIG_LIST_MOST, CONFIG_LIST_BYTES / CONFIG_LIST_MOST, "the list is too long"},
        {2, CONFIG_PATH_BYTES - 1, NULL},
        {2, CONFIG_PATH_BYTES, "path 1: 1024 bytes are too long"},
        {100, CONFIG_PATH_BYTES - 1, "this list is too long for any key"},
    };
    for (size_t i = 0; i < LEN(cases); i++) {
        struct config cfg;
        struct error err = {.text = ""};
        char *text = many_paths(cases[i].n, cases[i].n_bytes);
        int rc = load(&cfg, text, NULL, &err);
        free(text);
        if (!cases[i].says) {
            assert_ok(rc, err);
            assert_int_equal(cfg.dataset.input_dir.n_paths, cases[i].n);
            assert_int_equal(
                strlen(config_path_at(&cfg.dataset.input_dir, cases[i].n - 1)),
                cases[i].n_bytes);
            continue;
        }
        assert_int_equal(rc, -1);
        if (!strstr(err.text, cases[i].says))
            fail_msg("'%s' expected in: %s", cases[i].says, err.text);
    }
}

static void test_lists__print_and_json_come_back_the_same(void **state)
{
    (void)state;
    char *longest =
        many_paths(CONFIG_LIST_MOST, CONFIG_LIST_BYTES / CONFIG_LIST_MOST - 1);
    const char *const cases[] = {
        "dataset: {input_dir: ['it''s, [x]', \"h\u00e9re: #\"], weights: [0.1, 1e14]}",
        "dataset: {input_dir: 'one, [two]', mode: padded}",
        longest,
    };
    for (size_t i = 0; i < LEN(cases); i++) {
        struct config cfg, printed, from_json;
        struct error err;
        char *text = NULL;
        size_t n = 0;
        assert_ok(load(&cfg, cases[i], NULL, &err), err);
        FILE *out = open_memstream(&text, &n);
        config_print(&cfg, out);
        fclose(out);
        assert_ok(load(&printed, text, NULL, &err), err);
        assert_memory_equal(&cfg.dataset, &printed.dataset, sizeof cfg.dataset);
        char *json = config_to_json(&cfg);
        assert_ok(config_from_json(&from_json, json, &err), err);
        assert_memory_equal(&cfg.dataset, &from_json.dataset, sizeof cfg.dataset);
        free(json);
        free(text);
    }
    free(longest);
}

static void test_json__of_one_path_is_a_string(void **state)
{
    (void)state;
    struct config cfg;
    struct error err;
    assert_ok(load(&cfg, "dataset: {input_dir: [a]}", NULL, &err), err);
    char *json = config_to_json(&cfg);
    assert_non_null(strstr(json, "\"input_dir\": \"a\""));
    free(json);
    assert_ok(load(&cfg, "dataset: {input_dir: [a, b]}", NULL, &err), err);
    json = config_to_json(&cfg);
    char *at = strstr(json, "\"a\"");
    assert_non_null(at);
    memcpy(at, "[7]", 3);
    assert_int_equal(config_from_json(&cfg, json, &err), -1);
    assert_non_null(strstr(err.text, "dataset.input_dir: neither a number"));
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths__are_one_or_a_list),
        cmocka_unit_test(test_weights__are_numbers_for_each_path),
        cmocka_unit_test(test_lists__that_are_wrong_name_place_and_element),
        cmocka_unit_test(test_paths__have_limits_that_are_said),
        cmocka_unit_test(test_lists__print_and_json_come_back_the_same),
        cmocka_unit_test(test_json__of_one_path_is_a_string),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
