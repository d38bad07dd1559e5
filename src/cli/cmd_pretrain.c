/*
 * trefoil pretrain - one process trains; a layout of several is started by mpirun, by
 * srun, by `trefoil launch`, or, when nobody did, by this command itself.
 */
#include "base/log.h"
#include "base/stop.h"
#include "cli/cmd.h"
#include "cli/pretrain_options.h"
#include "cli/print_check.h"
#include "cli/resume_point.h"
#include "cli/self_launch.h"
#include "comm/comm.h"
#include "config/config.h"
#include "launch/worker.h"
#include "train/layout.h"
#include "train/room.h"
#include "train/train.h"
#include "train/usage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pretrain {
    struct pretrain_options options;
    char **argv; // all words of the command
    struct config cfg;
    char **job_argv; // those for the processes of a job that may be started again
    struct resume_point resume_point;
    struct launch_resume resume;
};

/* For a job that is started here. */
static int plan_restarts(struct pretrain *p, struct self_launch_plan *job,
                         struct error *err)
{
    p->job_argv = pretrain_options_job_words(p->argv);
    if (!p->job_argv)
        return error_set(err, ERROR_RUNTIME, "out of memory for a command line");
    if (resume_point_init(&p->resume_point, &p->cfg, p->job_argv, err))
        return -1;
    p->resume = resume_point_for_launch(&p->resume_point);
    job->max_restarts = p->options.max_restarts;
    job->resume = &p->resume;
    return 0;
}

static int plan(void *context, int64_t n_processes, struct self_launch_plan *job,
                struct error *err)
{
    struct pretrain *p = context;
    const struct config *cfg = &p->cfg;
    if (pretrain_options_load(&p->options, &p->cfg, n_processes > 0 ? n_processes : 1,
                              err) ||
        pretrain_options_check_layout(&p->options, cfg, n_processes, err))
        return -1;
    int64_t n_wanted = config_n_processes(cfg);
    if (n_processes == 0 && n_wanted > 1 &&
        room_check(n_wanted, p->options.is_oversubscribed, cfg, err))
        return -1;
    if (p->options.max_restarts != 0 && n_processes > 0)
        return error_set(err, ERROR_INPUT,
                         "trefoil pretrain: --max_restarts is for who starts the job: "
                         "give it to trefoil launch, before pretrain");
    if (p->options.max_restarts != 0 && plan_restarts(p, job, err))
        return -1;
    if (n_processes == 0 && n_wanted == 1 && p->options.max_restarts == 0)
        stop_watch(STOP_ALONE); // from here on a signal gets an answer
    job->n_processes = n_wanted;
    job->is_oversubscribed = p->options.is_oversubscribed;
    job->num_threads = cfg->num_threads;
    job->hang_timeout = cfg->hang_timeout;
    snprintf(job->log_dir, sizeof job->log_dir, "%s/log", cfg->save_load.output_dir);
    job->log_dir_key = "save_load.output_dir";
    return 0;
}

static int run(void *context, struct comm *world, struct error *err)
{
    const struct pretrain *p = context;
    return train_run(&p->cfg, world, err);
}

/* Under mpirun every process comes here: one prints, for the layout of all. */
static int dry_run(struct pretrain *p, struct error *err)
{
    struct comm_launch launch = comm_launch_info();
    if (pretrain_options_load(&p->options, &p->cfg, launch.size, err) ||
        layout_check(&p->cfg, launch.size > 1 ? launch.size : 0, err) ||
        (launch.rank == 0 && usage_dry_run(&p->cfg, err)))
        return -1;
    return print_check("the memory table", err);
}

static int fail(const struct error *err)
{
    log_error("%s", err->text);
    return error_exit_code(err);
}

static int pretrain(struct pretrain *p)
{
    const struct self_launch command = {
        .argv = p->argv, .context = p, .plan = plan, .run = run};
    struct error err;
    if (!p->options.is_dry) {
        if (worker_is_rank() || comm_is_launched())
            stop_watch(STOP_RANK); // as early as the others may be asked to stop
        return self_launch(&command);
    }
    return dry_run(p, &err) ? fail(&err) : 0;
}

int cmd_pretrain(int argc, char **argv)
{
    struct pretrain p = {.argv = argv};
    struct error err;
    int rc = pretrain_options_parse(&p.options, argc, argv, &err);
    int code = rc == 0 ? pretrain(&p) : rc < 0 ? fail(&err) : 0;
    resume_point_release(&p.resume_point);
    free(p.job_argv);
    pretrain_options_release(&p.options);
    return code;
}
