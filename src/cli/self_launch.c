#include "cli/self_launch.h"

#include "base/beat.h"
#include "base/log.h"
#include "base/thread.h"
#include "device/kernel_sets.h"
#include "launch/launch.h"
#include "launch/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ENV_PLANNED "TREFOIL_PLANNED" // in the ranks of a job started here

#define HANG_TIMEOUT_MOST 1e6 // as in the table of keys

int self_launch_fail(const struct error *err)
{
    if (err->kind == ERROR_STOPPED)
        log_warning("%s", err->text);
    else
        log_error("%s", err->text);
    return error_exit_code(err);
}

static int make_plan(const struct self_launch *command, int64_t n_processes,
                     struct self_launch_plan *plan, struct error *err)
{
    if (command->plan(command->context, n_processes, plan, err))
        return -1;
    if (plan->hang_timeout >= 0 && plan->hang_timeout <= HANG_TIMEOUT_MOST)
        return kernels_use(plan->cpu_kernels, err);
    return error_set(err, ERROR_INPUT,
                     "--hang_timeout is %g; it must lie in 0..%g seconds",
                     plan->hang_timeout, HANG_TIMEOUT_MOST);
}

/* The processors of a machine are shared by the processes on it: by who started this one,
 * or by fair shares. */
static void set_threads(int64_t num_threads, const struct comm *world)
{
    int n = thread_processors();
    bool is_bound = n < (int)sysconf(_SC_NPROCESSORS_ONLN);
    int fair = (int)i64_max(1, n / comm_local_size(world));
    int own = worker_threads() > 0 ? worker_threads() : is_bound ? n : fair;
    if (num_threads > own && comm_rank(world) == 0)
        log_warning("num_threads is %lld, and the share of each process here is %d "
                    "processors: threads will wait for each other, and a step may take "
                    "many times as long. Leave num_threads 0 to use what there is",
                    (long long)num_threads, own);
    if (num_threads > 0)
        kernels_set_threads((int)num_threads);
    else if (worker_threads() > 0)
        kernels_set_threads(worker_threads());
    else if (comm_size(world) > 1 && !getenv("OMP_NUM_THREADS"))
        kernels_set_threads(n / comm_local_size(world));
}

static int run_here(const struct self_launch *command,
                    const struct self_launch_plan *plan, struct error *err)
{
    struct comm *world;
    beat_set_hang_timeout(plan->hang_timeout);
    if (comm_world_open(&world, err))
        return -1;
    comm_on_abort(world, worker_report_failure);
    set_threads(plan->num_threads, world);
    beat_remove_name(); // all ranks of this host have their slots
    int rc = comm_agree(world, kernels_start(err), err);
    if (rc == 0)
        rc = command->run(command->context, world, err);
    fflush(stdout);
    beat_outcome(rc ? error_exit_code(err) : 0);
    comm_world_close(world);
    return rc;
}

/* One of the processes of a job. */
static int run_rank(const struct self_launch *command, struct error *err)
{
    struct self_launch_plan plan = {0};
    struct comm_launch launch = comm_launch_info();
    enum log_level level = launch.rank > 0 ? LOG_WARNING : LOG_INFO;
    if (worker_start(err))
        return -1;
    // what there is to warn of was told by the process that planned this job
    log_set_level(getenv(ENV_PLANNED) ? LOG_ERROR : level);
    int rc = make_plan(command, launch.size, &plan, err);
    log_set_level(level); // rank 0 speaks for all
    return rc ? -1 : run_here(command, &plan, err);
}

/* Start the processes that are needed: what they do is run_rank(). */
static int run_job(const struct self_launch *command, const struct self_launch_plan *plan,
                   struct error *err)
{
    struct launch_options opt = {.n_ranks = plan->n_processes,
                                 .log_dir = plan->log_dir[0] ? plan->log_dir : NULL,
                                 .log_dir_key = plan->log_dir_key,
                                 .is_log_temporary = !plan->log_dir[0],
                                 .is_oversubscribed = plan->is_oversubscribed,
                                 .has_output = plan->has_output,
                                 .max_restarts = plan->max_restarts,
                                 .resume = plan->resume,
                                 .tell = plan->tell,
                                 .tell_context = plan->tell_context};
    setenv(ENV_PLANNED, "1", 1);
    return launch_run(&opt, command->argv, err) ? -1 : 0;
}

int self_launch(const struct self_launch *command)
{
    struct self_launch_plan plan = {0};
    struct error err;
    if (comm_is_launched() || comm_launch_info().is_ours)
        return worker_finish(run_rank(command, &err), &err);
    if (make_plan(command, 0, &plan, &err))
        return self_launch_fail(&err);
    bool is_job = plan.n_processes > 1 || plan.max_restarts != 0;
    int rc = is_job ? run_job(command, &plan, &err) : run_here(command, &plan, &err);
    return rc ? self_launch_fail(&err) : 0;
}
