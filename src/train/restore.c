/* Where a run starts: initial weights, or the newest checkpoint that is whole. */
#include "train/train.h"

#include "base/beat.h"
#include "base/clock.h"
#include "base/log.h"
#include "ckpt/ckpt_find.h"
#include "ckpt/ckpt_read.h"
#include "train/own_checkpoints.h"
#include "train/state.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* -- what changed ------------------------------------------------------------------- */

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

static void log_config_changes(json_t *then, const char *now_json)
{
    json_t *now = json_loads(now_json, 0, NULL);
    if (now)
        log_changes("", then, now);
    json_decref(now);
}

/* Refuse another model by the keys that would make it this one. What the checkpoint does
 * not record is left to the tensors themselves. */
static int check_model(const json_t *then_config, const char *now_json, const char *path,
                       struct error *err)
{
    static const char *const keys[] = {"vocab_size",      "hidden_size",
                                       "num_layers",      "num_attention_heads",
                                       "ffn_hidden_size", "max_position_embeddings"};
    json_t *now_config = json_loads(now_json, 0, NULL);
    const json_t *then = json_object_get(then_config, "Model");
    const json_t *now = json_object_get(now_config, "Model");
    char list[512] = "";
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const json_t *old = json_object_get(then, keys[i]);
        const json_t *value = json_object_get(now, keys[i]);
        size_t used = strlen(list);
        if (json_is_integer(old) && json_is_integer(value) && !json_equal(old, value))
            snprintf(list + used, sizeof list - used, "%sModel.%s: %lld (it is %lld)",
                     used ? ", " : "", keys[i], (long long)json_integer_value(old),
                     (long long)json_integer_value(value));
    }
    json_decref(now_config);
    if (!list[0])
        return 0;
    return error_set(err, ERROR_INPUT,
                     "checkpoint '%s' is of another model than the configuration "
                     "describes; to go on from it, set %s",
                     path, list);
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

/* -- one checkpoint ------------------------------------------------------------------ */

static int take(void *context, int kind, const struct ckpt_piece *piece, int64_t first,
                int64_t n, const float *x, struct error *err)
{
    struct train *t = context;
    const struct shard_piece *shard = &t->plan.layout.map.pieces[piece->id];
    int rc;
    if (!layout_offload_dir(&t->cfg))
        return state_write(t, kind, shard, first, n, x, err);
#pragma omp critical(restore_offloaded)
    rc = state_write(t, kind, shard, first, n, x, err);
    return rc;
}

static int read_part(struct train *t, struct ckpt_reader *reader, struct error *err)
{
    struct ckpt_part part = {.n_pieces = 0};
    struct ckpt_sink sink = {take, t};
    int rc = ckpt_reader_check(reader, &t->plan.layout.whole, t->optimizer.rule,
                               N_CKPT_SETS, err);
    if (rc == 0)
        rc = ckpt_part_init(&part, &t->plan.layout.map, false, err);
    if (rc == 0)
        rc = ckpt_reader_read(reader, N_CKPT_SETS, &part, &sink, err);
    ckpt_part_release(&part);
    return rc;
}

static void take_progress(struct train *t, const struct ckpt_progress *p)
{
    memcpy(t->run_id, p->run_id, sizeof t->run_id);
    t->step = t->first_step = p->step;
    t->consumed_samples = p->consumed_samples;
    t->scaler.n_skipped = p->scaler.n_skipped;
    if (t->scaler.is_dynamic && p->scaler.scale > 0) {
        t->scaler.scale = p->scaler.scale;
        t->scaler.good_steps = p->scaler.good_steps;
        t->scaler.bad_steps = p->scaler.bad_steps;
    }
}

static void warn_of_other_data(const struct train *t, const struct ckpt_progress *p)
{
    char fingerprint[CORPUS_FINGERPRINT_BYTES];
    input_set_fingerprint(&t->inputs, fingerprint);
    if (p->data_fingerprint[0] && strcmp(p->data_fingerprint, fingerprint) != 0 &&
        comm_rank(t->grid.world) == 0)
        log_warning("the dataset is not the one of the checkpoint (it was %s, is %s): "
                    "samples are drawn from the new one, from number %lld on",
                    p->data_fingerprint, fingerprint, (long long)p->consumed_samples);
}

struct restore {
    struct train *t;
    struct ckpt_reader reader; // of the checkpoint that is tried
};

static int load(void *context, const char *path, bool *is_damaged, struct error *err)
{
    struct restore *r = context;
    ckpt_reader_close(&r->reader);
    int rc = ckpt_reader_open(&r->reader, path, N_CKPT_SETS, err);
    if (rc == 0 && ckpt_check_name(path, &r->reader.manifest.progress, err)) {
        r->reader.is_damaged = true;
        rc = -1;
    }
    // stages share next to nothing; other ranks find in the cache what one of them read
    if (rc == 0 && comm_size(r->t->grid.pipe) == comm_size(r->t->grid.world))
        ckpt_reader_bypass_cache(&r->reader);
    if (rc == 0)
        rc = check_model(r->reader.manifest.config, r->t->config_json, path, err);
    if (rc == 0)
        rc = read_part(r->t, &r->reader, err);
    *is_damaged = r->reader.is_damaged;
    return rc;
}

/* Put a damaged checkpoint out of the way. */
static void set_aside(void *context, const char *path, const struct error *why)
{
    char aside[PATH_MAX + 32];
    struct error err;
    (void)context;
    if (ckpt_set_aside(path, aside, sizeof aside, &err))
        log_warning("skipped the checkpoint '%s': %s. It could not be set aside: %s",
                    path, why->text, err.text);
    else
        log_warning("skipped the checkpoint '%s': %s. It was set aside as '%s'", path,
                    why->text, aside);
}

static int resume(struct restore *r, struct error *err)
{
    struct train *t = r->t;
    struct ckpt_load_newest what = {.context = r, .load = load, .skip = set_aside};
    const struct ckpt_manifest *manifest = &r->reader.manifest;
    const char *path = t->resumed_from;
    double start = clock_seconds();
    if (ckpt_load_newest(&what, t->grid.world, t->cfg.save_load.ckpt_dir, t->resumed_from,
                         err))
        return -1;
    log_config_changes(manifest->config, t->config_json);
    warn_of_other_data(t, &manifest->progress);
    take_progress(t, &manifest->progress);
    log_info("resumed from '%s': step %lld, %lld samples seen (%.2f s)", path,
             (long long)t->step, (long long)t->consumed_samples, clock_seconds() - start);
    if (own_checkpoints_name_run(t, err))
        return -1;
    if (comm_rank(t->grid.world) == 0)
        own_checkpoints_warn_of_others(t);
    return check_position(t, path, err);
}

int train_restore(struct train *t, struct error *err)
{
    struct restore r = {.t = t};
    if (t->cfg.save_load.ckpt_dir[0] == 0)
        return own_checkpoints_name_run(t, err) ? -1 : state_init(t, err);
    enum beat_phase before = beat_enter(BEAT_LOAD);
    int rc = resume(&r, err);
    ckpt_reader_close(&r.reader);
    if (rc == 0)
        rc = state_written(t, err);
    beat_enter(before);
    return rc;
}
