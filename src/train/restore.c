/*
 * Checkpoints as the run sees them: where it starts, and what it leaves behind.
 */
#include "train/train.h"

#include "base/log.h"
#include "ckpt/ckpt.h"
#include "train/whole.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static struct ckpt_state state_of(const struct train *t, struct whole *w)
{
    return (struct ckpt_state){
        .step = t->step,
        .epoch = train_epoch(t, t->consumed_samples),
        .consumed_samples = t->consumed_samples,
        .config_json = t->config_json,
        .table = &w->table,
        .params = w->params,
        .exp_avg = w->exp_avg,
        .exp_avg_sq = w->exp_avg_sq,
    };
}

static int write_checkpoint(struct train *t, struct whole *w, struct error *err)
{
    char path[CONFIG_PATH_BYTES + 128];
    struct ckpt_state state = state_of(t, w);
    if (ckpt_save(t->cfg.save_load.output_dir, &state, t->cfg.save_load.keep_last, path,
                  sizeof path, err))
        return -1;
    log_info("saved checkpoint '%s'", path);
    return 0;
}

int train_save(struct train *t, struct error *err)
{
    struct whole w = {0};
    double start = trace_begin(t->job_trace.trace);
    bool is_writer = comm_rank(t->grid.world) == 0;
    int rc = is_writer ? whole_open(&w, t, err) : 0;
    rc = comm_agree(t->grid.world, rc, err);
    if (rc == 0)
        rc = comm_agree(t->grid.world, whole_gather(&w, t, err), err);
    if (rc == 0) {
        rc = is_writer ? write_checkpoint(t, &w, err) : 0;
        rc = comm_agree(t->grid.world, rc, err);
    }
    whole_close(&w);
    trace_end(t->job_trace.trace, start, &(struct trace_span){.name = "save"});
    return rc;
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

static int load(struct train *t, const char *path, struct whole *w, struct error *err)
{
    struct ckpt_info info;
    struct ckpt_state state = state_of(t, w);
    if (ckpt_read_info(path, &info, err))
        return -1;
    int rc = ckpt_load(path, &state, err);
    if (rc == 0) {
        log_config_changes(info.config_json, t->config_json);
        whole_take_part(w, t);
        t->step = t->first_step = state.step;
        t->consumed_samples = state.consumed_samples;
        log_info("resumed from '%s': step %lld, %lld samples seen", path,
                 (long long)t->step, (long long)t->consumed_samples);
        rc = check_position(t, path, err);
    }
    ckpt_info_release(&info);
    return rc;
}

/* Rank 0 decides which checkpoint it is: the others might look at another moment. */
static int choose(struct train *t, char *path, size_t size, struct error *err)
{
    int rc = 0;
    memset(path, 0, size);
    if (comm_rank(t->grid.world) == 0)
        rc = ckpt_resolve(t->cfg.save_load.ckpt_dir, path, size, err);
    if (comm_agree(t->grid.world, rc, err))
        return -1;
    return comm_bcast_bytes(t->grid.world, path, (int64_t)size, 0, err);
}

int train_restore(struct train *t, struct error *err)
{
    char path[CONFIG_PATH_BYTES + 128];
    struct whole w;
    if (t->cfg.save_load.ckpt_dir[0] == 0) {
        gpt_init_params(&t->gpt, t->cfg.model.initializer_range);
        return 0;
    }
    if (choose(t, path, sizeof path, err))
        return -1;
    int rc = whole_open(&w, t, err);
    if (rc == 0) {
        rc = load(t, path, &w, err);
        whole_close(&w);
    }
    return comm_agree(t->grid.world, rc, err);
}
