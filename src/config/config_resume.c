#include "config/config_resume.h"

#include "base/log.h"
#include "config/config_json.h"
#include "config/config_print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct resume {
    struct config_target *target;
    const struct config_past *past;
    json_t *root;           // of past->config_json
    struct config *scratch; // to compare values in
    char kept[1024];        // what the log will say
};

/* An empty value with a meaning of its own is a value. */
static bool is_left_out(const struct config_target *target, const struct config_key *key)
{
    const struct config_origin *o = &target->origins.of[key - config_keys];
    return o->source == SOURCE_DEFAULT || (o->is_empty && !key->empty);
}

/* *is_same := the checkpoint has the former default, or is older than the key. */
static int has_former(struct resume *r, const struct config_key *key, bool *is_same,
                      struct error *err)
{
    char then[CONFIG_TEXT_BYTES], former[CONFIG_TEXT_BYTES];
    const json_t *value = config_json_find(r->root, key);
    *is_same = true;
    if (!value)
        return 0;
    if (config_json_set(key, r->scratch, value, err))
        return error_prefix(err, "checkpoint '%s'", r->past->path);
    config_value_text(key, r->scratch, then, sizeof then);
    config_set_default(key, r->scratch, key->former);
    config_value_text(key, r->scratch, former, sizeof former);
    *is_same = strcmp(then, former) == 0;
    return 0;
}

static void keep(struct resume *r, const struct config_key *key)
{
    char today[CONFIG_TEXT_BYTES], former[CONFIG_TEXT_BYTES];
    size_t used = strlen(r->kept);
    struct config *cfg = r->target->cfg;
    config_value_text(key, cfg, today, sizeof today);
    config_set_default(key, cfg, key->former);
    config_value_text(key, cfg, former, sizeof former);
    r->target->origins.of[key - config_keys] =
        (struct config_origin){.source = SOURCE_CHECKPOINT};
    if (strcmp(today, former) != 0 && used < sizeof r->kept - 1)
        snprintf(r->kept + used, sizeof r->kept - used, "%s%s %.*s", used ? ", " : "",
                 key->path, CONFIG_SHOWN_BYTES, former);
}

static int keep_all(struct resume *r, struct error *err)
{
    for (int i = 0; i < config_n_keys; i++) {
        const struct config_key *key = &config_keys[i];
        bool is_same = false, is_model = strncmp(key->path, "Model.", 6) == 0;
        if (!key->former || !is_left_out(r->target, key) ||
            (r->past->is_imported && !is_model))
            continue;
        if (has_former(r, key, &is_same, err))
            return -1;
        if (is_same)
            keep(r, key);
    }
    if (r->kept[0])
        log_info(
            "kept from the checkpoint '%s', because the defaults have changed since: "
            "%s; a key that is written has the value written",
            r->past->path, r->kept);
    return 0;
}

int config_resume(struct config_target *target, config_past_fn *past, struct error *err)
{
    const char *ckpt_dir = target->cfg->save_load.ckpt_dir;
    struct config_past found = {0};
    struct resume r = {.target = target, .past = &found};
    int rc = ckpt_dir[0] ? past(ckpt_dir, &found, err) : 0;
    if (rc || !found.config_json)
        goto done;
    rc = -1;
    r.root = json_loads(found.config_json, 0, NULL);
    r.scratch = calloc(1, sizeof *r.scratch);
    if (r.root && r.scratch)
        rc = keep_all(&r, err);
    else
        error_set(err, ERROR_RUNTIME, "out of memory for the configuration of '%s'",
                  found.path);
done:
    json_decref(r.root);
    free(r.scratch);
    free(found.config_json);
    return rc;
}
