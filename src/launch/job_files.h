/*
 * job_files - what a job has on the host of its launcher besides its processes.
 *
 * The directory of the job, in shared memory, holds the pages of the ranks and what Open
 * MPI makes, so that all a job leaves goes with it. The launcher holds a lock on it, which
 * ends with its process: what is not locked is of a launcher that was killed, and is
 * removed by the next job of the user. A keeper, a small process that is deaf to all
 * signals, does so at once unless it was killed, too.
 *
 * The log directory takes workerlog.N of each rank. Rank 0's is copied to standard error as
 * it grows; on a terminal it looks as the log of one process does there
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
    int keeper_fd;          // closed without a word: end the job
    char log_dir[PATH_MAX]; // absolute
    int log_lock;
    int log_fd;       // rank 0's log; -1: it is not there yet
    off_t log_at;     // what of it comes next
    unsigned n_shown; // of the progress that is shown
    bool is_in_line;  // the last line shown has not ended
};

/* One job writes to a log directory at a time; logs of former ones are removed. */
MUST_CHECK int job_files_open(struct job_files *f, const struct launch_options *opt,
                              struct error *err);
void job_files_close(struct job_files *f);
/* Kill all descendants of this process, a subreaper, but the keeper. */
void job_files_kill_processes(const struct job_files *f);

/* LOG_DIR/workerlog.N; a path that does not fit is cut, and then does not open. */
void job_files_log_path(char *buf, size_t size, const char *log_dir, int rank);
/* Copy what is new of the log of the job whose page is `file`. Stops before the reason of a
 * failure, which the launcher tells in its own words. */
void job_files_copy_log(struct job_files *f, const struct beat_file *file);
/* Show a line that did not reach the log; it ends with a newline. */
void job_files_show_line(struct job_files *f, const char *line);
/* Leave out what was not copied: what comes next is of the job started again. */
void job_files_skip_log(struct job_files *f);

/* In a child: hold nothing of the parent's but kept_fd (-1: nothing), which becomes 3, hear
 * no signal. */
void job_files_become_background(const char *name, int kept_fd);

#endif
