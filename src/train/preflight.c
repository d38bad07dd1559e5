/*
 * What can be refused before step 1 is refused here, so that nothing is lost to a run
 * that could not have ended well.
 */
#include "train/train.h"

#include "base/fs.h"
#include "base/log.h"
#include "ckpt/ckpt.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define GB 1e9
#define MB 1e6

/* -- memory -------------------------------------------------------------------------- */

/* A number of bytes from a file that holds just that; UINT64_MAX if it says otherwise. */
static uint64_t read_limit(const char *path)
{
    unsigned long long bytes;
    FILE *file = fopen(path, "re");
    if (!file)
        return UINT64_MAX;
    int n = fscanf(file, "%llu", &bytes); // "max" reads as no number: no limit
    fclose(file);
    return n == 1 ? bytes : UINT64_MAX;
}

static uint64_t available_in_machine(void)
{
    char line[256];
    unsigned long long kb = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    if (!file)
        return UINT64_MAX;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &kb) == 1)
            break;
    fclose(file);
    return kb ? kb * 1024 : UINT64_MAX;
}

/* Memory this process can still get: of the machine, its control group, its limits. */
static uint64_t available_bytes(void)
{
    static const char *const limit_files[] = {
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    };
    uint64_t least = available_in_machine();
    for (size_t i = 0; i < ARRAY_LEN(limit_files); i++) {
        uint64_t limit = read_limit(limit_files[i]);
        least = limit < least ? limit : least;
    }
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur < least)
        least = limit.rlim_cur;
    return least;
}

static int check_memory(const struct train *t, struct error *err)
{
    struct gpt_memory mem;
    struct gpt_options opt;
    struct param_table table;
    const struct config *cfg = &t->cfg;
    if (train_model_options(t, &opt, err) || gpt_measure(&mem, cfg, &opt, err) ||
        param_table_init_part(&table, &cfg->model, &opt.part, err))
        return -1;
    size_t optimizer = optimizer_bytes(&table);
    double total = (double)mem.params + (double)mem.grads + (double)optimizer +
                   (double)mem.activations + (double)mem.scratch;
    log_info(
        "%.2f M parameters in this process; memory: %.1f MB parameters, %.1f MB "
        "gradients, %.1f MB optimizer, %.1f MB activations, %.1f MB scratch, %.1f MB "
        "in all",
        (double)table.n_elements / MB, (double)mem.params / MB, (double)mem.grads / MB,
        (double)optimizer / MB, (double)mem.activations / MB, (double)mem.scratch / MB,
        total / MB);
    param_table_release(&table);
    // processes of one machine share its memory, and ask for it at the same time
    double available = (double)available_bytes() / (double)comm_local_size(t->grid.world);
    if (total > available)
        return error_set(
            err, ERROR_RUNTIME,
            "not enough memory: the run needs %.2f GB and %.2f GB are available; "
            "activations take %.2f GB with batch_size.micro_batch_size %lld (lower it, "
            "or "
            "dataset.max_seq_len), parameters with gradients and optimizer %.2f GB "
            "(lower Model.num_layers or Model.hidden_size)",
            total / GB, available / GB, (double)mem.activations / GB,
            (long long)cfg->batch_size.micro_batch_size,
            (double)(mem.params + mem.grads + optimizer) / GB);
    return 0;
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
    struct param_table table;
    const char *dir = t->cfg.save_load.output_dir;
    uint64_t free_bytes;
    if (fs_free_bytes(dir, &free_bytes, err) ||
        param_table_init(&table, &t->cfg.model, err))
        return -1;
    uint64_t each = ckpt_bytes(&table);
    param_table_release(&table);
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

int train_preflight(const struct train *t, struct error *err)
{
    const struct config_save_load *save = &t->cfg.save_load;
    if (check_memory(t, err))
        return -1;
    if (comm_rank(t->grid.world) > 0)
        return 0;
    if (check_writable(save->output_dir, err) || check_disk(t, err))
        return -1;
    warn_of_older_run(save);
    return 0;
}
