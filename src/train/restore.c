/*
 * Where a run starts: initial weights, or the newest checkpoint that is whole. Every rank
 * reads its own part; one that is damaged for one rank is damaged for all, and the next
 * older one is tried.
 */
#include "train/train.h"

#include "base/log.h"
#include "ckpt/ckpt_read.h"
#include "ckpt/ckpt_scan.h"
#include "train/state.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES (CONFIG_PATH_BYTES + 128)

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

static int take(void *context, enum ckpt_kind kind, const struct ckpt_piece *piece,
                int64_t first, int64_t n, const float *x, struct error *err)
{
    static const enum state_kind kinds[N_CKPT_KINDS] = {
        [CKPT_PARAM] = STATE_PARAM,
        [CKPT_EXP_AVG] = STATE_EXP_AVG,
        [CKPT_EXP_AVG_SQ] = STATE_EXP_AVG_SQ,
    };
    struct train *t = context;
    return state_write(t, kinds[kind], &t->plan.map.pieces[piece->id], first, n, x, err);
}

static int read_part(struct train *t, struct ckpt_reader *reader, struct error *err)
{
    struct param_table whole;
    struct ckpt_part part = {.n_pieces = 0};
    struct ckpt_sink sink = {take, t};
    if (param_table_init(&whole, &t->cfg.model, err))
        return -1;
    int rc = ckpt_reader_check(reader, &whole, N_CKPT_SETS, err);
    if (rc == 0)
        rc = ckpt_part_init(&part, &t->plan.map, false, err);
    if (rc == 0)
        rc = ckpt_reader_read(reader, N_CKPT_SETS, &part, &sink, err);
    ckpt_part_release(&part);
    param_table_release(&whole);
    return rc;
}

static void take_progress(struct train *t, const struct ckpt_progress *p)
{
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

/* Load it on all ranks, or on none. *is_damaged: another one may be better. */
static int load(struct train *t, const char *path, bool *is_damaged, struct error *err)
{
    struct ckpt_reader reader;
    int rc = ckpt_reader_open(&reader, path, N_CKPT_SETS, err);
    if (rc == 0 && ckpt_check_name(path, &reader.manifest.progress, err)) {
        reader.is_damaged = true;
        rc = -1;
    }
    if (rc == 0)
        rc = read_part(t, &reader, err);
    // a rank that failed for another reason decides: the next one would fail it too
    int64_t failures[] = {rc && reader.is_damaged, rc && !reader.is_damaged};
    struct error mpi_err;
    if (comm_max_i64(t->grid.world, failures, ARRAY_LEN(failures), &mpi_err)) {
        *err = mpi_err;
        rc = -1;
    } else {
        rc = comm_agree(t->grid.world, rc, err);
        *is_damaged = failures[0] && !failures[1];
    }
    if (rc == 0) {
        log_config_changes(reader.manifest.config, t->config_json);
        warn_of_other_data(t, &reader.manifest.progress);
        take_progress(t, &reader.manifest.progress);
        log_info("resumed from '%s': step %lld, %lld samples seen", path,
                 (long long)t->step, (long long)t->consumed_samples);
    }
    ckpt_reader_close(&reader);
    return rc;
}

/* -- which one ----------------------------------------------------------------------- */

/* Rank 0 decides which checkpoint is tried: the others might look at another moment. An
 * empty path: there are no more. */
static int next_path(struct train *t, struct ckpt_candidates *candidates,
                     char path[PATH_BYTES], struct error *err)
{
    memset(path, 0, PATH_BYTES);
    if (comm_rank(t->grid.world) == 0 &&
        !ckpt_candidates_next(candidates, path, PATH_BYTES))
        path[0] = 0;
    return comm_bcast_bytes(t->grid.world, path, PATH_BYTES, 0, err);
}

/* Rank 0 puts a damaged checkpoint out of the way. One that was named by itself stays. */
static void set_aside(const struct ckpt_candidates *candidates, const char *path,
                      const struct error *why)
{
    char aside[PATH_BYTES + 32];
    struct error err;
    if (candidates->list.n_names == 0)
        return;
    if (ckpt_set_aside(path, aside, sizeof aside, &err))
        log_warning("skipped the checkpoint '%s': %s. It could not be set aside: %s",
                    path, why->text, err.text);
    else
        log_warning("skipped the checkpoint '%s': %s. It was set aside as '%s'", path,
                    why->text, aside);
}

static int load_newest(struct train *t, struct ckpt_candidates *candidates,
                       struct error *err)
{
    char path[PATH_BYTES];
    struct error newest = {.text = ""}, why;
    bool is_first = comm_rank(t->grid.world) == 0, is_damaged = false;
    for (int n_tried = 0;; n_tried++) {
        if (next_path(t, candidates, path, err))
            return -1;
        if (path[0] == 0)
            break;
        if (load(t, path, &is_damaged, &why) == 0)
            return check_position(t, path, err);
        if (!is_damaged) {
            *err = why;
            return -1;
        }
        if (n_tried == 0)
            newest = why;
        if (is_first)
            set_aside(candidates, path, &why);
    }
    int rc = is_first ? ckpt_candidates_none(candidates, &newest, err) : 0;
    return comm_agree(t->grid.world, rc, err);
}

int train_restore(struct train *t, struct error *err)
{
    struct ckpt_candidates candidates = {.n_tried = 0};
    int rc = 0;
    if (t->cfg.save_load.ckpt_dir[0] == 0)
        return state_init(t, err);
    if (comm_rank(t->grid.world) == 0)
        rc = ckpt_candidates_open(&candidates, t->cfg.save_load.ckpt_dir, err);
    rc = comm_agree(t->grid.world, rc, err);
    if (rc == 0)
        rc = load_newest(t, &candidates, err);
    ckpt_candidates_release(&candidates);
    return rc ? -1 : state_written(t, err);
}
