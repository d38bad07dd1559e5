/*
 * Checkpoints as the run sees them: where it starts, and what it leaves behind.
 */
#include "train/train.h"

#include "base/log.h"
#include "ckpt/ckpt.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static struct ckpt_state state_of(struct train *t)
{
    return (struct ckpt_state){
        .step = t->step,
        .epoch = train_epoch(t, t->consumed_samples),
        .consumed_samples = t->consumed_samples,
        .config_json = t->config_json,
        .table = &t->gpt.table,
        .params = t->gpt.params,
        .exp_avg = t->optimizer.exp_avg,
        .exp_avg_sq = t->optimizer.exp_avg_sq,
    };
}

int train_save(struct train *t, struct error *err)
{
    char path[CONFIG_PATH_BYTES + 128];
    struct ckpt_state state = state_of(t);
    if (ckpt_save(t->cfg.save_load.output_dir, &state, t->cfg.save_load.keep_last, path,
                  sizeof path, err))
        return -1;
    log_info("saved checkpoint '%s'", path);
    return 0;
}

/* Log each leaf of `now` that differs in `then`, by its dotted path. */
static void log_changes(const char *path, json_t *then, json_t *now)
{
    const char *key;
    json_t *value;
    json_object_foreach(now, key, value)
    {
        char child[256];
        json_t *old = json_object_get(then, key);
        snprintf(child, sizeof child, "%s%s%s", path, *path ? "." : "", key);
        if (json_is_object(value)) {
            log_changes(child, old, value);
        } else if (old && !json_equal(old, value)) {
            char *a = json_dumps(old, JSON_ENCODE_ANY | JSON_COMPACT);
            char *b = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
            log_info("changed since the checkpoint: %s was %s, is %s", child, a, b);
            free(a);
            free(b);
        }
    }
}

static void log_config_changes(const char *then_json, const char *now_json)
{
    json_t *then = json_loads(then_json, 0, NULL), *now = json_loads(now_json, 0, NULL);
    if (then && now)
        log_changes("", then, now);
    json_decref(then);
    json_decref(now);
}

/* The loader counts in global batches: the samples seen so far must be whole ones. */
static int check_position(const struct train *t, const char *path, struct error *err)
{
    int64_t G = t->cfg.batch_size.global_batch_size;
    if (t->consumed_samples % G == 0)
        return 0;
    return error_set(err, ERROR_INPUT,
                     "checkpoint '%s' has seen %lld samples, which is no multiple of "
                     "batch_size.global_batch_size %lld; use one that divides it",
                     path, (long long)t->consumed_samples, (long long)G);
}

static int load(struct train *t, const char *path, struct error *err)
{
    struct ckpt_info info;
    struct ckpt_state state = state_of(t);
    if (ckpt_read_info(path, &info, err))
        return -1;
    int rc = ckpt_load(path, &state, err);
    if (rc == 0) {
        log_config_changes(info.config_json, t->config_json);
        t->step = t->first_step = state.step;
        t->consumed_samples = state.consumed_samples;
        log_info("resumed from '%s': step %lld, %lld samples seen", path,
                 (long long)t->step, (long long)t->consumed_samples);
        rc = check_position(t, path, err);
    }
    ckpt_info_release(&info);
    return rc;
}

int train_restore(struct train *t, struct error *err)
{
    char path[CONFIG_PATH_BYTES + 128];
    if (t->cfg.save_load.ckpt_dir[0] == 0) {
        gpt_init_params(&t->gpt, t->cfg.model.initializer_range);
        return 0;
    }
    if (ckpt_resolve(t->cfg.save_load.ckpt_dir, path, sizeof path, err))
        return -1;
    return load(t, path, err);
}
