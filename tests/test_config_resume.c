/* Keys that were left out, in a run that continues from a checkpoint: config_keys.h has
 * the rule. */
#include "test.h"

#include "base/log.h"
#include "config/config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

/* What a checkpoint of version 2.0.0 has, where no rate was given. */
#define OLD_RATES                                                                        \
    "{\"Optimizer\": {\"lr\": {\"decay_steps\": 360000, \"warmup_rate\": 0.01, "         \
    "\"max_lr\": 1e-05, \"min_lr\": 5e-05}}}"

static const char *past_json; // of the checkpoint; NULL: there is none
static bool is_imported;

static int find_past(const char *ckpt_dir, struct config_past *past, struct error *err)
{
    assert_string_equal(ckpt_dir, "old");
    if (past_json && strcmp(past_json, "unreadable") == 0)
        return error_set(err, ERROR_RUNTIME, "cannot read");
    *past = (struct config_past){.config_json = past_json ? strdup(past_json) : NULL,
                                 .is_imported = is_imported,
                                 .path = "old/epoch_0_step_9"};
    return 0;
}

static int load(struct config *cfg, const char *text, const char *option,
                struct error *err)
{
    static const struct config_sources sources = {.past = find_past};
    char path[] = "/tmp/trefoil_resume_XXXXXX", copy[256];
    char ckpt_dir[] = "save_load.ckpt_dir=old", *options[] = {copy, ckpt_dir};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    snprintf(copy, sizeof copy, "%s", option);
    int rc = config_load_run(cfg, path, options, LEN(options), 1, &sources, err);
    unlink(path);
    return rc;
}

struct want {
    const char *text, *option, *json;
    int64_t decay_steps;
    double max_lr, min_lr;
};

static void check(const struct want *w)
{
    struct config cfg;
    struct error err;
    past_json = w->json;
    assert_ok(load(&cfg, w->text, w->option, &err), err);
    assert_int_equal(cfg.optimizer.lr.decay_steps, w->decay_steps);
    assert_true(cfg.optimizer.lr.max_lr == w->max_lr);
    assert_true(cfg.optimizer.lr.min_lr == w->min_lr);
}

static void test_resume__keeps_former_defaults_of_keys_left_out(void **state)
{
    (void)state;
    static const struct want cases[] = {
        {"", "max_steps=30", OLD_RATES, 360000, 1e-5, 5e-5},
        {"", "max_steps=30", NULL, 30, 0.4 / 1024, 0.0000390625},
        // an empty value is none
        {"Optimizer: {lr: {max_lr: , decay_steps: }}", "max_steps=30", OLD_RATES, 360000,
         1e-5, 5e-5},
        // a written value counts
        {"Optimizer: {lr: {max_lr: 0.5}}", "max_steps=30", OLD_RATES, 360000, 0.5, 5e-5},
        {"", "decay_steps=0", OLD_RATES, 500000, 1e-5, 5e-5},
        {"", "min_lr=0", OLD_RATES, 360000, 1e-5, 0},
        // the checkpoint's run had written a value, or had today's default
        {"", "max_steps=30",
         "{\"Optimizer\": {\"lr\": {\"decay_steps\": 20, \"max_lr\": 0.25, "
         "\"min_lr\": 5e-05}}}",
         30, 0.4 / 1024, 5e-5},
        // a checkpoint that is older than the keys
        {"", "max_steps=30", "{\"Optimizer\": {}}", 360000, 1e-5, 5e-5},
        {"", "max_steps=30", "{}", 360000, 1e-5, 5e-5},
        // epochs decide: the same
        {"num_train_epochs: 2", "seed=1", OLD_RATES, 360000, 1e-5, 5e-5},
        {"num_train_epochs: 2", "seed=1", NULL, 0, 0.4 / 1024, 0.0000390625},
    };
    for (size_t i = 0; i < LEN(cases); i++)
        check(&cases[i]);
}

/* What such a run saves has the kept values; it keeps them again. */
static void test_resume__keeps_them_in_the_next_run_too(void **state)
{
    (void)state;
    struct config cfg, again;
    struct error err;
    past_json = OLD_RATES;
    assert_ok(load(&cfg, "", "max_steps=30", &err), err);
    char *json = config_to_json(&cfg);
    past_json = json;
    assert_ok(load(&again, "", "max_steps=30", &err), err);
    char *json_again = config_to_json(&again);
    assert_string_equal(json, json_again);
    free(json);
    free(json_again);
}

static void test_resume__takes_no_rates_from_an_imported_model(void **state)
{
    (void)state;
    is_imported = true;
    check(&(struct want){"", "max_steps=30", OLD_RATES, 30, 0.4 / 1024, 0.0000390625});
    is_imported = false;
}

static void test_resume__fails_where_the_checkpoint_cannot_be_read(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "unreadable", "{\"Optimizer\": {\"lr\": {\"max_lr\": \"fast\"}}}"};
    static const char *const words[] = {"cannot read",
                                        "checkpoint 'old/epoch_0_step_9': configuration "
                                        "JSON: Optimizer.lr.max_lr"};
    for (size_t i = 0; i < LEN(wrong); i++) {
        struct config cfg;
        struct error err;
        past_json = wrong[i];
        assert_int_equal(load(&cfg, "", "max_steps=30", &err), -1);
        assert_non_null(strstr(err.text, words[i]));
    }
}

static void test_json__a_missing_key_has_its_former_default(void **state)
{
    (void)state;
    struct config cfg, old;
    struct error err;
    char *none[] = {NULL};
    assert_ok(config_load_text(&cfg, "f.yaml", "", 0, none, 0, 1, &err), err);
    char *json = config_to_json(&cfg);
    char *at = strstr(json, "\"max_lr\"");
    assert_non_null(at);
    char *end = strchr(at, '\n');
    memmove(at, end, strlen(end) + 1); // the line of the key
    assert_ok(config_from_json(&old, json, &err), err);
    assert_true(old.optimizer.lr.max_lr == 1e-5);
    assert_true(old.optimizer.lr.min_lr == cfg.optimizer.lr.min_lr);
    free(json);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume__keeps_former_defaults_of_keys_left_out),
        cmocka_unit_test(test_resume__keeps_them_in_the_next_run_too),
        cmocka_unit_test(test_resume__takes_no_rates_from_an_imported_model),
        cmocka_unit_test(test_resume__fails_where_the_checkpoint_cannot_be_read),
        cmocka_unit_test(test_json__a_missing_key_has_its_former_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
