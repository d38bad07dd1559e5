/*
 * job_files - what a job has on the host of its launcher besides its processes.
 *
 * The directory of the job, in shared memory, holds the pages of the ranks and what Open
 * MPI makes, so that all a job leaves goes with it. The launcher holds a lock on it, which
 * ends with its process: what is not locked is of a launcher that was killed, and is
 * removed by the next job of the user. A keeper, a small process that is deaf to all
 * signals, does so at once unless it was killed, too.
 *
 * The log directory takes workerlog.N of each rank. Rank 0's lines come by mpiexec as well
 * and go to standard error; on a terminal they look as those of one process do there
 * (base/log_view.h), with its progress below.
 */
#ifndef LAUNCH_JOB_FILES_H
#define LAUNCH_JOB_FILES_H

#include "base/base.h"
#include "base/beat.h"
#include "base/error.h"
#include "launch/mpiexec.h"

#include <limits.h>
#include <sys/types.h>

struct job_files {
    char dir[PATH_MAX]; // of the job
    int dir_fd;         // holds its lock; -1: there is none
    pid_t keeper;
    int keeper_fd;          // closed while the keeper lives: the launcher is gone
    char log_dir[PATH_MAX]; // absolute
    int log_lock;
    unsigned n_shown; // of the progress that is shown
};

/* One job writes to a log directory at a time; logs of former ones are removed. */
MUST_CHECK int job_files_open(struct job_files *f, const struct launch_options *opt,
                              struct error *err);
void job_files_close(struct job_files *f);
/* Kill all descendants of this process, a subreaper, but the keeper and the child `spared`
 * (0: none). */
void job_files_kill_processes(const struct job_files *f, pid_t spared);

/* LOG_DIR/workerlog.N; a path that does not fit is cut, and then does not open. */
void job_files_log_path(char *buf, size_t size, const char *log_dir, int rank);
/* Show a line of rank 0's log, and its progress below. */
void job_files_show_line(struct job_files *f, const char *line);
void job_files_show_progress(struct job_files *f, const struct beat_file *file);

/* In a child: hold nothing of the parent's but kept_fd (-1: nothing), which becomes 3, hear
 * no signal. */
void job_files_become_background(const char *name, int kept_fd);

#endif
