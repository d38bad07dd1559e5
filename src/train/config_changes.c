#include "train/config_changes.h"

#include "base/log.h"
#include "config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOVES_TEXT                                                                       \
    "text that was held out for validation may be trained on from here on, and text "    \
    "that was trained on may be evaluated: evaluation losses become too low"
#define MOVES_POSITION                                                                   \
    "training samples are drawn in another order from here on, so that some text is "    \
    "seen twice in this epoch and some not at all, and evaluation takes other samples"

#define CHANGES_MODEL "the weights were trained for another function, so the loss rises"

static const struct {
    const char *path;
    const char *consequence;
    bool is_of_samples; // no consequence for a model that has seen none in this run
} consequences[] = {
    {"dataset.split", MOVES_TEXT, true},
    {"dataset.split_by", MOVES_TEXT, true},
    {"dataset.weights", MOVES_TEXT, true},
    {"seed", MOVES_POSITION, true},
    {"dataset.mode", MOVES_POSITION, true},
    {"dataset.max_seq_len", MOVES_POSITION, true},
    {"Model.activation", CHANGES_MODEL, false},
    {"Model.norm_epsilon", CHANGES_MODEL, false},
};

/* With as few digits as the numbers need; malloc'ed. */
static char *value_text(json_t *value)
{
    char *text = NULL;
    bool is_exact = false;
    for (size_t digits = 15; digits <= 17 && !is_exact; digits++) {
        free(text);
        text = json_dumps(value,
                          JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(digits));
        json_t *back = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
        is_exact = json_equal(back, value);
        json_decref(back);
    }
    return text;
}

static void log_change(const char *path, json_t *then, json_t *now, bool has_samples)
{
    const char *consequence = NULL;
    if (!then || json_equal(then, now))
        return;
    for (size_t i = 0; i < ARRAY_LEN(consequences); i++)
        if ((has_samples || !consequences[i].is_of_samples) &&
            strcmp(consequences[i].path, path) == 0)
            consequence = consequences[i].consequence;
    char *a = value_text(then);
    char *b = value_text(now);
    if (consequence)
        log_warning("changed since the checkpoint: %s was %s, is %s: %s; to prevent "
                    "that, set %s to its former value",
                    path, a, b, consequence, path);
    else
        log_info("changed since the checkpoint: %s was %s, is %s", path, a, b);
    free(a);
    free(b);
}

/* Each leaf of `now`, by its dotted path. */
static void log_changes(const char *path, json_t *then, json_t *now, bool has_samples)
{
    const char *key;
    json_t *value;
    json_object_foreach(now, key, value)
    {
        char child[256];
        json_t *old = json_object_get(then, key);
        snprintf(child, sizeof child, "%s%s%s", path, *path ? "." : "", key);
        if (json_is_object(value))
            log_changes(child, old, value, has_samples);
        else
            log_change(child, old, value, has_samples);
    }
}

/* A key that the checkpoint lacks has the value of version 2.0.0. */
static json_t *complete(json_t *then)
{
    char *text = json_dumps(then, JSON_REAL_PRECISION(17));
    char *whole = text ? config_complete_json(text) : NULL;
    json_t *completed = whole ? json_loads(whole, 0, NULL) : NULL;
    free(whole);
    free(text);
    return completed;
}

void config_changes_log(json_t *then, const char *now_json, bool has_samples)
{
    json_t *now = json_loads(now_json, 0, NULL), *completed = complete(then);
    if (now)
        log_changes("", completed, now, has_samples);
    json_decref(completed);
    json_decref(now);
}
