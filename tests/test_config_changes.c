/* The log of a run that continues with other values than the checkpoint's. */
#include "test.h"

#include "base/fs.h"
#include "config/config.h"
#include "train/config_changes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

/* The log of the comparison of the two texts, malloc'ed. */
static char *logged(const char *then, const char *now)
{
    char *log = NULL, path[] = "/tmp/trefoil-log-XXXXXX";
    size_t n = 0;
    struct error err;
    json_t *checkpoint = json_loads(then, 0, NULL);
    int fd = mkstemp(path), kept = dup(STDERR_FILENO);
    assert_true(checkpoint && fd >= 0 && kept >= 0);
    fflush(stderr);
    dup2(fd, STDERR_FILENO);
    config_changes_log(checkpoint, now, true);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(fd);
    close(kept);
    assert_ok(fs_read_all(path, 1 << 20, &log, &n, &err), err);
    unlink(path);
    json_decref(checkpoint);
    return log;
}

static char *effective(const char *option)
{
    struct config cfg;
    struct error err;
    char copy[200];
    char *options[] = {copy};
    snprintf(copy, sizeof copy, "%s", option);
    assert_ok(config_load_text(&cfg, "f.yaml", "", 0, options, 1, 1, &err), err);
    return config_to_json(&cfg);
}

/* A key that the checkpoint lacks counts as it was in version 2.0.0. */
static void test_changes__of_keys_newer_than_the_checkpoint(void **state)
{
    (void)state;
    static const struct {
        const char *option, *then, *line; // NULL: nothing is logged
    } cases[] = {
        {"Model.activation=gelu", "{\"Model\": {\"num_layers\": 24}}",
         "WARNING] - changed since the checkpoint: Model.activation was \"gelu_tanh\", "
         "is "
         "\"gelu\": the weights were trained for another function"},
        {"Model.activation=gelu", "{\"Model\": {\"activation\": \"gelu\"}}", NULL},
        {"Model.activation=gelu_tanh", "{\"Model\": {\"num_layers\": 24}}", NULL},
        {"Optimizer.decay=all", "{}", "Optimizer.decay was \"matrices\", is \"all\"\n"},
        {"dataset.drop_last=True", "{}", "dataset.drop_last was false, is true\n"},
        {"dataset.split_by=document", "{}",
         "WARNING] - changed since the checkpoint: dataset.split_by was \"contiguous\", "
         "is \"document\": text that was held out"},
        {"Model.embed_drop_rate=0.5", "{\"Model\": {\"hidden_dropout_prob\": 0.1}}",
         "Model.embed_drop_rate was 0.1, is 0.5\n"},
        {"Model.embed_drop_rate=0.5", "{\"Model\": {\"hidden_dropout_prob\": 0.5}}",
         "hidden_dropout_prob was 0.5"},
        {"global_batch_size=64", "{}", NULL}, // derived when left out: not known
        // sections that are none, of a damaged checkpoint
        {"gradient_accumulation=2",
         "{\"batch_size\": 3, \"Optimizer\": {\"lr\": []}, \"Model\": \"\"}",
         "gradient_accumulation was 1, is 2\n"},
    };
    for (size_t i = 0; i < LEN(cases); i++) {
        char *now = effective(cases[i].option), leaf[64] = "";
        char *log = logged(cases[i].then, now);
        sscanf(cases[i].option, "%63[^=]", leaf);
        if (cases[i].line && !strstr(log, cases[i].line))
            fail_msg("%s: expected: %s\nfound: %s", cases[i].option, cases[i].line, log);
        if (!cases[i].line && strstr(log, leaf))
            fail_msg("%s is logged: %s", leaf, log);
        free(log);
        free(now);
    }
}

static void test_changes__none_are_logged_for_the_same_configuration(void **state)
{
    (void)state;
    char *now = effective("dataset.split=80,18,2"), *log = logged(now, now);
    assert_string_equal(log, "");
    free(log);
    free(now);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes__of_keys_newer_than_the_checkpoint),
        cmocka_unit_test(test_changes__none_are_logged_for_the_same_configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
