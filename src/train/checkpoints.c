#include "train/checkpoints.h"

#include "base/beat.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "ckpt/ckpt_find.h"
#include "ckpt/ckpt_read.h"
#include "ckpt/ckpt_saver.h"
#include "ckpt/ckpt_tokenizer.h"
#include "train/config_changes.h"
#include "train/events.h"
#include "train/lr_warn.h"
#include "train/state.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* -- saving -------------------------------------------------------------------------- */

/* Whether there are saves that training goes on after. */
static bool wants_copies(const struct config *cfg)
{
    const struct config_save_load *save = &cfg->save_load;
    return save->async_save && save->save_steps > 0 &&
           (cfg->max_steps == 0 || save->save_steps < cfg->max_steps);
}

size_t checkpoints_copy_bytes(const struct plan *plan, const struct config *cfg)
{
    if (!wants_copies(cfg))
        return 0;
    return ckpt_saver_copy_bytes(&plan->layout.map, plan->layout.at.dp > 0,
                                 update_rule_of(&cfg->optimizer));
}

static const float *view_state(void *context, int kind, const struct ckpt_piece *piece,
                               int64_t first, int64_t n, float *buffer, struct error *err)
{
    struct train *t = context;
    const struct shard_piece *shard = &t->plan.layout.map.pieces[piece->id];
    return state_read(t, kind, shard, first, n, buffer, err) ? NULL : buffer;
}

static void report_save(void *context, const char *path,
                        const struct ckpt_progress *progress, double seconds,
                        const struct error *err)
{
    struct train *t = context;
    if (err) {
        events_save_failed(t, progress->step, err->text);
        return;
    }
    log_info("saved checkpoint '%s' (%.1f s)", path, seconds);
    events_save(t, progress->step, path, seconds);
}

int checkpoints_open(struct train *t, struct error *err)
{
    const struct config_save_load *save = &t->cfg.save_load;
    struct ckpt_saver_options opt = {
        .world = t->grid.world,
        .output_dir = save->output_dir,
        .whole = &t->plan.layout.whole,
        .rule = update_rule_of(&t->cfg.optimizer),
        .map = &t->plan.layout.map,
        .is_replica = t->plan.layout.at.dp > 0,
        .max_file_bytes = save->max_file_bytes,
        .keep = {.last = save->keep_last, .every = save->keep_every},
        .source = {view_state, t},
        .inputs = config_datasets(&t->cfg.dataset),
        .wants_copies = wants_copies(&t->cfg),
        .copies_aside = !layout_offload_dir(&t->cfg),
        .other_bytes = t->memory.total - t->memory.saving,
        .trace = t->job_trace.trace,
        .on_end = report_save,
        .context = t,
    };
    return ckpt_saver_open(&t->saver, &opt, err);
}

static void set_progress(const struct train *t, struct ckpt_progress *p)
{
    *p = (struct ckpt_progress){
        .step = t->step,
        .epoch = train_epoch(t, t->consumed_samples),
        .consumed_samples = t->consumed_samples,
        .scaler = {.scale = t->scaler.is_dynamic ? t->scaler.scale : 0,
                   .good_steps = t->scaler.good_steps,
                   .bad_steps = t->scaler.bad_steps,
                   .n_skipped = t->scaler.n_skipped},
        .config_json = t->config_json,
    };
    input_set_fingerprint(&t->inputs, p->data_fingerprint);
    memcpy(p->run_id, t->run_id, sizeof t->run_id);
    memcpy(p->tokenizer_hash, t->tokenizer_hash, sizeof t->tokenizer_hash);
}

int checkpoints_save(struct train *t, bool is_final, struct error *err)
{
    struct ckpt_progress progress;
    set_progress(t, &progress);
    return ckpt_saver_save(t->saver, &progress, is_final, err);
}

/* -- this run's own ------------------------------------------------------------------ */

/* Give a run that has no name yet one, the same on all ranks. */
static int name_run(struct train *t, struct error *err)
{
    char fingerprint[CORPUS_FINGERPRINT_BYTES];
    // a checkpoint of step 0 is an imported model: no run has begun with it
    if (comm_rank(t->grid.world) == 0 && !t->run_id[0] && t->step == 0) {
        input_set_fingerprint(&t->inputs, fingerprint);
        ckpt_run_id_make(t->run_id, t->cfg.save_load.output_dir, t->config_json,
                         fingerprint);
    }
    return comm_bcast_bytes(t->grid.world, t->run_id, sizeof t->run_id, 0, err);
}

int checkpoints_path(const struct train *t, char path[PATH_MAX], struct error *err)
{
    struct ckpt_name name = ckpt_name_make(train_epoch(t, t->consumed_samples), t->step);
    return fs_join(path, PATH_MAX, t->cfg.save_load.output_dir, name.text, err);
}

bool checkpoints_before(const struct train *t, int64_t step, char path[PATH_MAX])
{
    if (ckpt_find_own(t->cfg.save_load.output_dir, t->run_id, step, path))
        return true;
    if (!t->resumed_from[0] || t->first_step >= step)
        return false;
    memcpy(path, t->resumed_from, PATH_MAX);
    return true;
}

/* -- the tokenizer ------------------------------------------------------------------- */

/* The tokenizer of the data, the same on all ranks; "" where it is not known. Data whose tokenizer
 * is gone can be trained on: the first save warns that it is not kept. */
static int find_tokenizer(struct train *t, struct error *err)
{
    struct error ignored;
    bool is_wanted = t->cfg.save_load.save_steps >= 0 || t->cfg.save_load.ckpt_dir[0] ||
                     t->cfg.eval_prompts.n_paths > 0;
    if (is_wanted && comm_rank(t->grid.world) == 0 &&
        ckpt_tokenizer_hash_of(config_datasets(&t->cfg.dataset), t->tokenizer_hash,
                               &ignored))
        t->tokenizer_hash[0] = 0;
    return comm_bcast_bytes(t->grid.world, t->tokenizer_hash, sizeof t->tokenizer_hash, 0,
                            err);
}

/* Is ckpt_dir the output_dir, or in it? */
static bool continues_here(const struct config_save_load *save)
{
    char parent[PATH_MAX];
    struct stat out, from, above;
    if (!save->ckpt_dir[0] || stat(save->output_dir, &out) ||
        stat(save->ckpt_dir, &from) ||
        snprintf(parent, sizeof parent, "%s/..", save->ckpt_dir) >= (int)sizeof parent ||
        stat(parent, &above))
        return false;
    return (from.st_dev == out.st_dev && from.st_ino == out.st_ino) ||
           (above.st_dev == out.st_dev && above.st_ino == out.st_ino);
}

/* Checkpoints without a hash must not be paired with the tokenizer of another run. */
static int clear_tokenizer(const struct train *t, struct error *err)
{
    const struct config_save_load *save = &t->cfg.save_load;
    bool is_wanted = save->save_steps >= 0 || t->cfg.eval_prompts.n_paths > 0;
    int rc = 0;
    if (comm_rank(t->grid.world) == 0 && is_wanted && !t->tokenizer_hash[0] &&
        !continues_here(save))
        rc = ckpt_tokenizer_clear(save->output_dir, t->run_id, err);
    return comm_agree(t->grid.world, rc, err);
}

/* The ids of the data must mean to the model what they meant when it was trained. An
 * imported model may be given another vocabulary, and learn it. */
static int check_tokenizer(const struct train *t, const struct ckpt_progress *p,
                           const char *path, struct error *err)
{
    char text[1600];
    if (!p->tokenizer_hash[0] || !t->tokenizer_hash[0] ||
        strcmp(p->tokenizer_hash, t->tokenizer_hash) == 0)
        return 0;
    snprintf(text, sizeof text,
             "checkpoint '%s' was trained with another tokenizer (hash %s) than the data "
             "in dataset.input_dir was prepared with (hash %s)",
             path, p->tokenizer_hash, t->tokenizer_hash);
    if (p->step > 0)
        return error_set(err, ERROR_INPUT,
                         "%s; prepare the data with the checkpoint's, or leave "
                         "save_load.ckpt_dir empty to start from scratch",
                         text);
    if (comm_rank(t->grid.world) == 0)
        log_warning("%s: the imported model learns the new tokens from scratch", text);
    return 0;
}

/* -- loading: what changed ----------------------------------------------------------- */

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

static int write_loaded(void *context, int kind, const struct ckpt_piece *piece,
                        int64_t first, int64_t n, const float *x, struct error *err)
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

static void take_progress(struct train *t, const struct ckpt_progress *p)
{
    memcpy(t->run_id, p->run_id, sizeof t->run_id);
    if (!t->tokenizer_hash[0]) // the data does not say
        memcpy(t->tokenizer_hash, p->tokenizer_hash, sizeof t->tokenizer_hash);
    t->step = t->first_step = p->step;
    t->consumed_samples = p->consumed_samples;
    t->scaler.n_skipped = p->scaler.n_skipped;
    if (t->scaler.is_dynamic && p->scaler.scale > 0) {
        t->scaler.scale = p->scaler.scale;
        t->scaler.good_steps = p->scaler.good_steps;
        t->scaler.bad_steps = p->scaler.bad_steps;
    }
}

/* By document and with the same weights, a document that is the same stays in its part. */
static bool keeps_parts(const struct train *t, const json_t *then, json_t *now)
{
    const json_t *dataset = json_object_get(then, "dataset");
    const char *by = json_string_value(json_object_get(dataset, "split_by"));
    json_t *split = json_object_get(json_object_get(now, "dataset"), "split");
    return t->cfg.dataset.split_by == SPLIT_BY_DOCUMENT && by &&
           strcmp(by, "document") == 0 &&
           json_equal(json_object_get(dataset, "split"), split);
}

static void warn_of_other_data(const struct train *t, const struct ckpt_manifest *then)
{
    char fingerprint[CORPUS_FINGERPRINT_BYTES];
    const struct ckpt_progress *p = &then->progress;
    input_set_fingerprint(&t->inputs, fingerprint);
    if (!p->data_fingerprint[0] || strcmp(p->data_fingerprint, fingerprint) == 0 ||
        comm_rank(t->grid.world) != 0)
        return;
    json_t *now = json_loads(t->config_json, 0, NULL);
    log_warning(
        "the dataset is not the one of the checkpoint (it was %s, is %s): "
        "samples are drawn from the new one, from number %lld on, and %s",
        p->data_fingerprint, fingerprint, (long long)p->consumed_samples,
        keeps_parts(t, then->config, now)
            ? "documents whose tokens are the same stay in their part "
              "(dataset.split_by document)"
            : "text that was held out for validation before may now be trained on");
    json_decref(now);
}

/* With other whole batches, an epoch has other samples: the place in it is another. */
static void warn_of_other_epochs(const struct train *t, const json_t *then)
{
    const json_t *dataset = json_object_get(then, "dataset");
    const json_t *batch = json_object_get(then, "batch_size");
    int64_t G = t->cfg.batch_size.global_batch_size;
    bool had_whole = json_is_true(json_object_get(dataset, "drop_last"));
    bool has_whole = t->cfg.dataset.drop_last;
    bool is_same_batch =
        json_integer_value(json_object_get(batch, "global_batch_size")) == G;
    bool is_same = had_whole == has_whole && (is_same_batch || !has_whole);
    if (is_same || comm_rank(t->grid.world) > 0 || t->consumed_samples == 0)
        return;
    log_warning("an epoch has other samples than before the checkpoint "
                "(dataset.drop_last, batch_size.global_batch_size): the run continues "
                "in epoch %lld, of which samples may come twice or not at all",
                (long long)train_epoch(t, t->consumed_samples));
}

struct restore {
    struct train *t;
    struct ckpt_reader reader; // of the checkpoint that is tried
};

static int load_checkpoint(void *context, const char *path, bool *is_damaged,
                           struct error *err)
{
    struct restore *r = context;
    ckpt_reader_close(&r->reader);
    int rc = ckpt_reader_open_named(&r->reader, path, N_CKPT_SETS, err);
    // stages share next to nothing; other ranks find in the cache what one of them read
    if (rc == 0 && comm_size(r->t->grid.pipe) == comm_size(r->t->grid.world))
        ckpt_reader_bypass_cache(&r->reader);
    if (rc == 0)
        rc = check_model(r->reader.manifest.config, r->t->config_json, path, err);
    if (rc == 0)
        rc = check_tokenizer(r->t, &r->reader.manifest.progress, path, err);
    if (rc == 0)
        rc = ckpt_reader_load(&r->reader, &r->t->plan.layout.whole, r->t->optimizer.rule,
                              &r->t->plan.layout.map,
                              &(struct ckpt_sink){write_loaded, r->t}, err);
    *is_damaged = r->reader.is_damaged;
    return rc;
}

static int resume(struct restore *r, struct error *err)
{
    struct train *t = r->t;
    struct ckpt_load_newest what = {
        .context = r, .load = load_checkpoint, .sets_aside = true};
    const struct ckpt_manifest *manifest = &r->reader.manifest;
    const char *path = t->resumed_from;
    double start = clock_seconds();
    if (ckpt_load_newest(&what, t->grid.world, t->cfg.save_load.ckpt_dir, t->resumed_from,
                         err))
        return -1;
    if (comm_rank(t->grid.world) == 0)
        config_changes_log(manifest->config, t->config_json, manifest->progress.step > 0);
    warn_of_other_data(t, manifest);
    take_progress(t, &manifest->progress);
    warn_of_other_epochs(t, manifest->config);
    if (t->step > 0) // an imported model's checkpoint has no rates of a run
        lr_log_change(&t->cfg, manifest->config, t->step);
    log_info("resumed from '%s': step %lld, %lld samples seen (%.2f s)", path,
             (long long)t->step, (long long)t->consumed_samples, clock_seconds() - start);
    if (name_run(t, err) || clear_tokenizer(t, err))
        return -1;
    if (comm_rank(t->grid.world) == 0)
        ckpt_warn_of_other_runs(t->cfg.save_load.output_dir, t->run_id);
    return check_position(t, path, err);
}

int checkpoints_restore(struct train *t, struct error *err)
{
    struct restore r = {.t = t};
    if (find_tokenizer(t, err))
        return -1;
    if (t->cfg.save_load.ckpt_dir[0] == 0)
        return name_run(t, err) || clear_tokenizer(t, err) ? -1 : state_init(t, err);
    enum beat_phase before = beat_enter(BEAT_LOAD);
    int rc = resume(&r, err);
    ckpt_reader_close(&r.reader);
    if (rc == 0)
        rc = state_written(t, err);
    beat_enter(before);
    return rc;
}
