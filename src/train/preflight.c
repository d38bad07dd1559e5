/*
 * What can be refused before step 1 is refused here, so that nothing is lost to a run
 * that could not have ended well.
 */
#include "train/train.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/memory.h"
#include "ckpt/ckpt_store.h"
#include "ckpt/ckpt_write.h"
#include "train/fit.h"
#include "train/usage.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MB 1e6

/* -- memory -------------------------------------------------------------------------- */

static int check_memory(const struct train *t, struct error *err)
{
    const struct plan_memory *mem = &t->memory;
    int n_local = comm_local_size(t->grid.world);
    double available = (double)memory_available_bytes() / (double)n_local;
    double needed = fit_needed(mem, n_local) - mem->program; // which it has already
    if (needed <= available)
        return 0;
    return fit_refuse(mem, comm_rank(t->grid.world), needed, available, &t->cfg, &t->data,
                      n_local, err);
}

/* -- disk ---------------------------------------------------------------------------- */

static int64_t planned_saves(const struct config *cfg)
{
    int64_t every = cfg->save_load.save_steps;
    if (every > 0)
        return (cfg->max_steps + every - 1) / every;
    return every == 0 ? 1 : 0;
}

static int check_disk(const struct train *t, struct error *err)
{
    const char *dir = t->cfg.save_load.output_dir;
    uint64_t free_bytes;
    if (fs_free_bytes(dir, &free_bytes, err))
        return -1;
    uint64_t each = ckpt_bytes(&t->plan.layout.whole, update_rule_of(&t->cfg.optimizer));
    // a new checkpoint is complete before an old one goes
    uint64_t least = each * (uint64_t)i64_min(2, planned_saves(&t->cfg));
    if (free_bytes < least)
        return error_set(err, ERROR_RUNTIME,
                         "not enough room in save_load.output_dir '%s': a checkpoint "
                         "takes %.1f MB, %.1f MB are needed and %.1f MB are free; free "
                         "some or choose another output_dir",
                         dir, (double)each / 1e6, (double)least / 1e6,
                         (double)free_bytes / 1e6);
    return 0;
}

static int check_writable(const char *dir, struct error *err)
{
    char probe[CONFIG_PATH_BYTES + 64];
    if (fs_make_directories(dir, err))
        return error_prefix(err, "save_load.output_dir '%s' cannot be used", dir);
    snprintf(probe, sizeof probe, "%s/.write-probe-%d", dir, (int)getpid());
    if (fs_write_atomic(probe, "", 0, err))
        return error_prefix(err, "save_load.output_dir '%s' cannot be written", dir);
    return fs_remove_tree(probe, err);
}

static void warn_of_older_run(const struct config_save_load *save)
{
    int64_t newest = ckpt_newest_step(save->output_dir);
    if (newest >= 0 && save->ckpt_dir[0] == 0)
        log_warning("output_dir '%s' holds checkpoints of an earlier run, up to step "
                    "%lld; this run starts from scratch and replaces those of its own "
                    "steps. To continue that run set save_load.ckpt_dir=%s",
                    save->output_dir, (long long)newest, save->output_dir);
}

/* Room for what is offloaded, by all processes of this machine. */
static int check_offload(const struct train *t, struct error *err)
{
    const char *dir = layout_offload_dir(&t->cfg);
    uint64_t free_bytes;
    double needed = t->memory.offloaded * (double)comm_local_size(t->grid.world);
    if (!dir)
        return 0;
    if (fs_make_directories(dir, err))
        return error_prefix(err, "save_load.offload_dir '%s' cannot be used", dir);
    if (fs_free_bytes(dir, &free_bytes, err))
        return -1;
    if (needed > (double)free_bytes)
        return error_set(err, ERROR_RUNTIME,
                         "not enough room in save_load.offload_dir '%s': the processes "
                         "of this machine keep %.1f MB there and %.1f MB are free; free "
                         "some or choose another offload_dir",
                         dir, needed / MB, (double)free_bytes / MB);
    return 0;
}

static int check_all(struct train *t, struct error *err)
{
    const struct config_save_load *save = &t->cfg.save_load;
    if (check_memory(t, err) || check_offload(t, err))
        return -1;
    if (comm_rank(t->grid.world) > 0)
        return 0;
    if (check_writable(save->output_dir, err) || check_disk(t, err))
        return -1;
    warn_of_older_run(save);
    return 0;
}

int train_preflight(struct train *t, struct error *err)
{
    t->memory = plan_memory(&t->plan, &t->cfg, &t->data);
    if (usage_report_predicted(t, err))
        return -1;
    return comm_agree(t->grid.world, check_all(t, err), err);
}
