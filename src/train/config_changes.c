#include "train/config_changes.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOVES_TEXT                                                                       \
    "text that was held out for validation may be trained on from here on, and text "    \
    "that "                                                                              \
    "was trained on may be evaluated: evaluation losses become too low"
#define MOVES_POSITION                                                                   \
    "training samples are drawn in another order from here on, so that some text is "    \
    "seen "                                                                              \
    "twice in this epoch and some not at all, and evaluation takes other samples"

static const struct {
    const char *path;
    const char *without; // its value, as JSON, where an older checkpoint has none
    const char *consequence;
} consequences[] = {
    {"dataset.split", NULL, MOVES_TEXT},
    {"dataset.split_by", "\"contiguous\"", MOVES_TEXT},
    {"dataset.weights", NULL, MOVES_TEXT},
    {"seed", NULL, MOVES_POSITION},
    {"dataset.mode", NULL, MOVES_POSITION},
    {"dataset.max_seq_len", NULL, MOVES_POSITION},
};

static void log_change(const char *path, json_t *then, json_t *now, bool has_samples)
{
    json_t *assumed = NULL;
    const char *consequence = NULL;
    for (size_t i = 0; i < ARRAY_LEN(consequences); i++) {
        if (!has_samples || strcmp(consequences[i].path, path) != 0)
            continue;
        consequence = consequences[i].consequence;
        if (!then && consequences[i].without)
            then = assumed = json_loads(consequences[i].without, JSON_DECODE_ANY, NULL);
    }
    if (then && !json_equal(then, now)) {
        char *a = json_dumps(then, JSON_ENCODE_ANY | JSON_COMPACT);
        char *b = json_dumps(now, JSON_ENCODE_ANY | JSON_COMPACT);
        if (consequence)
            log_warning("changed since the checkpoint: %s was %s, is %s: %s; to prevent "
                        "that, set %s to its former value",
                        path, a, b, consequence, path);
        else
            log_info("changed since the checkpoint: %s was %s, is %s", path, a, b);
        free(a);
        free(b);
    }
    json_decref(assumed);
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

void config_changes_log(json_t *then, const char *now_json, bool has_samples)
{
    json_t *now = json_loads(now_json, 0, NULL);
    if (now)
        log_changes("", then, now, has_samples);
    json_decref(now);
}
