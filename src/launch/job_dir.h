/*
 * job_dir - the directory of a job on the host of its launcher, in shared memory: it holds
 * the pages of the ranks, the pipe of rank 0's output, and what Open MPI makes. So all that
 * a job leaves goes with it.
 *
 * The launcher holds a lock on it, which ends with its process: what is not locked is of a
 * launcher that was killed, and is removed by the next job of the user. A keeper, a small
 * process that is deaf to all signals, does so at once unless it was killed, too.
 */
#ifndef LAUNCH_JOB_DIR_H
#define LAUNCH_JOB_DIR_H

#include "base/base.h"
#include "base/error.h"

#include <limits.h>
#include <sys/types.h>

struct job_dir {
    char path[PATH_MAX];
    int fd; // holds the lock; -1: there is none
    pid_t keeper;
    int keeper_fd; // closed without a word: end the job
};

/* Remove those of jobs that are dead, and make one. */
MUST_CHECK int job_dir_open(struct job_dir *dir, struct error *err);
/* Removes it; one that was not opened, too. */
void job_dir_close(struct job_dir *dir);

/* Kill all descendants of this process, a subreaper, but the keeper. */
void job_dir_kill_processes(const struct job_dir *dir);

#endif
