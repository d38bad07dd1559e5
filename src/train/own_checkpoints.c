#include "train/own_checkpoints.h"

#include "base/fs.h"
#include "base/log.h"
#include "ckpt/ckpt_store.h"

#include <string.h>

int own_checkpoints_name_run(struct train *t, struct error *err)
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

void own_checkpoints_warn_of_others(const struct train *t)
{
    const char *dir = t->cfg.save_load.output_dir;
    struct ckpt_list list;
    struct error ignored;
    if (ckpt_scan(dir, &list, &ignored))
        return;
    for (int64_t i = 0; i < list.n_names; i++) {
        struct ckpt_progress progress;
        if (ckpt_check(dir, &list.names[i], &progress, &ignored) ||
            progress.step == 0 || // an imported model: no run's
            strcmp(progress.run_id, t->run_id) == 0)
            continue;
        log_warning("output_dir '%s' holds checkpoints of another run too, '%s' for one; "
                    "they stay, unless this run saves the same step. To continue this "
                    "run later, name its checkpoint and not the directory",
                    dir, list.names[i].text);
        break;
    }
    ckpt_list_release(&list);
}

int own_checkpoints_path(const struct train *t, char path[PATH_MAX], struct error *err)
{
    struct ckpt_name name = ckpt_name_make(train_epoch(t, t->consumed_samples), t->step);
    return fs_join(path, PATH_MAX, t->cfg.save_load.output_dir, name.text, err);
}

bool own_checkpoints_before(const struct train *t, int64_t step, char path[PATH_MAX])
{
    const char *dir = t->cfg.save_load.output_dir;
    struct ckpt_list list;
    struct error ignored;
    bool is_found = false;
    if (ckpt_scan(dir, &list, &ignored))
        return false;
    for (int64_t i = 0; i < list.n_names && !is_found; i++) {
        struct ckpt_progress progress;
        is_found = list.names[i].step < step &&
                   ckpt_check(dir, &list.names[i], &progress, &ignored) == 0 &&
                   strcmp(progress.run_id, t->run_id) == 0 &&
                   fs_join(path, PATH_MAX, dir, list.names[i].text, &ignored) == 0;
    }
    ckpt_list_release(&list);
    if (is_found || !t->resumed_from[0] || t->first_step >= step)
        return is_found;
    memcpy(path, t->resumed_from, PATH_MAX);
    return true;
}
