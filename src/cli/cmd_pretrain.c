/*
 * trefoil pretrain - one process trains; a layout of several is started by mpirun, by
 * srun, by `trefoil launch`, or, when nobody did, by this command itself.
 */
#include "base/log.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "comm/comm.h"
#include "config/config.h"
#include "launch/launch.h"
#include "launch/worker.h"
#include "train/layout.h"
#include "train/train.h"
#include "train/usage.h"

#include <stdio.h>
#include <stdlib.h>

struct pretrain {
    const char *path;
    struct option_list overrides;
    bool is_dry;
    char **argv; // all words of the command
};

static int load(const struct pretrain *p, struct config *cfg, int64_t n_processes,
                struct error *err)
{
    return config_load_for(cfg, p->path, p->overrides.values, p->overrides.n_values,
                           n_processes, err);
}

/* The processors of a machine are shared by the processes on it. */
static void set_threads(const struct config *cfg, const struct comm *world)
{
    if (cfg->num_threads > 0)
        kernels_set_threads((int)cfg->num_threads);
    else if (worker_threads() > 0)
        kernels_set_threads(worker_threads());
    else if (comm_size(world) > 1 && !getenv("OMP_NUM_THREADS"))
        kernels_set_threads(kernels_processors() / comm_local_size(world));
}

static int train_here(const struct config *cfg, struct error *err)
{
    struct comm *world;
    if (comm_world_open(&world, err))
        return -1;
    set_threads(cfg, world);
    int rc = train_run(cfg, world, err);
    comm_world_close(world);
    return rc;
}

/* One of the processes of a job. */
static int run_rank(const struct pretrain *p, struct error *err)
{
    struct config cfg;
    struct comm_launch launch = comm_launch_info();
    if (worker_start(err))
        return -1;
    if (launch.rank > 0)
        log_set_level(LOG_WARNING); // rank 0 speaks for all
    if (load(p, &cfg, launch.size, err) || layout_check(&cfg, launch.size, err))
        return -1;
    return train_here(&cfg, err);
}

/* Start the job that the layout needs: what its ranks do is run_rank(). */
static int run_job(const struct pretrain *p, const struct config *cfg, struct error *err)
{
    char log_dir[CONFIG_PATH_BYTES + 8];
    snprintf(log_dir, sizeof log_dir, "%s/log", cfg->save_load.output_dir);
    struct launch_options opt = {.n_ranks = config_n_processes(cfg), .log_dir = log_dir};
    return launch_run(&opt, p->argv, err);
}

static int fail(const struct error *err)
{
    if (err->kind == ERROR_STOPPED)
        log_warning("%s", err->text);
    else
        log_error("%s", err->text);
    return error_exit_code(err);
}

static int pretrain(const struct pretrain *p)
{
    struct config cfg;
    struct error err;
    if (comm_is_launched() && !p->is_dry) {
        int rc = run_rank(p, &err);
        return worker_finish(rc, &err);
    }
    if (load(p, &cfg, 1, &err) || layout_check(&cfg, 0, &err))
        return fail(&err);
    if (p->is_dry)
        return usage_dry_run(&cfg, &err) ? fail(&err) : 0;
    bool is_job = config_n_processes(&cfg) > 1;
    return (is_job ? run_job(p, &cfg, &err) : train_here(&cfg, &err)) ? fail(&err) : 0;
}

int cmd_pretrain(int argc, char **argv)
{
    struct pretrain p = {.argv = argv};
    const struct option_spec options[] = {
        {"config", 'c', OPTION_TEXT, &p.path, true, "FILE", "The YAML configuration."},
        {"override", 'o', OPTION_LIST, &p.overrides, false, "KEY=VALUE",
         "Set a key after the file, e.g. -o max_steps=100; may be repeated."},
        {"dry_run", 0, OPTION_FLAG, &p.is_dry, false, NULL,
         "Print the memory that each process would take, and end."},
    };
    const struct command cmd = {
        "trefoil pretrain",
        "Train a GPT model as a YAML configuration says. A layout of several processes "
        "is started by itself, or joined under mpirun, srun or trefoil launch.",
        options, ARRAY_LEN(options)};
    struct error err;
    int rc = options_parse(&cmd, argc, argv, &err);
    int code = rc == 0 ? pretrain(&p) : rc < 0 ? fail(&err) : 0;
    options_list_release(&p.overrides);
    return code;
}
