/*
 * self_launch - a command that runs on one process or on several.
 *
 * A command says what it needs (plan) and what one process of it does (run). Who starts
 * the processes is settled here: mpirun, srun or `trefoil launch`, whose job is joined;
 * or, when nobody did and more than one is needed, this very program, which starts
 * itself on this machine and stays with the job to its end; or nobody, for one process.
 *
 * Layer: base, comm, kernels, launch <- cli.
 */
#ifndef CLI_SELF_LAUNCH_H
#define CLI_SELF_LAUNCH_H

#include "base/base.h"
#include "base/error.h"
#include "base/kernel_set.h"
#include "comm/comm.h"
#include "launch/launch.h"

#include <limits.h>

struct self_launch_plan { // filled by the command; zeros before
    int64_t n_processes;  // that it needs; not read when there are several already
    int64_t num_threads;  // of each process; 0: its share of the processors
    enum kernel_set cpu_kernels;
    double hang_timeout;     // seconds without progress that end a job; 0: the default
                             // rule of launch/host_watch.h
    char log_dir[PATH_MAX];  // of a job started here; "": one in the system's temporary
                             // directory, which goes with the job
    const char *log_dir_key; // what the user sets to choose another; NULL: cannot
    bool is_oversubscribed;  // of a job started here: more ranks than are sensible
    int64_t max_restarts;    // of a job started here, also of one process
    struct resume_point *resume; // how it goes on then; borrowed
    pid_t (*tell)(void *context,
                  const struct launch_news *news); // as launch_options has it
    void *tell_context;
    bool has_output; // rank 0's standard output is the command's: what it prints
                     // is a result, and comes out there as it is printed
};

struct self_launch {
    char **argv; // all words of the command, from its name on, NULL-terminated
    void *context;
    /* Read and check what can be refused before any process is started or joined.
     * n_processes is what there is; 0: as many as will be wanted. (local) */
    int (*plan)(void *context, int64_t n_processes, struct self_launch_plan *plan,
                struct error *err);
    /* The work of one process; closes all groups that it opens. [collective] */
    int (*run)(void *context, struct comm *world, struct error *err);
};

/* Runs the command; failures are logged. Returns the exit code for main(). */
int self_launch(const struct self_launch *command);
/* Log why a job ended, or did not start; the exit code. */
int self_launch_fail(const struct error *err);

#endif
