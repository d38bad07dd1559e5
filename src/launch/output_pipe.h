/*
 * output_pipe - what rank 0 of a job prints, on the standard output of the process that
 * started the job: a named pipe, and a thread that copies from it.
 *
 * Both are on one machine. The name reaches the ranks through the environment. A reader
 * of that standard output who goes away stops the job, as it would stop one process.
 */
#ifndef LAUNCH_OUTPUT_PIPE_H
#define LAUNCH_OUTPUT_PIPE_H

#include "base/base.h"
#include "base/error.h"

#include <limits.h>
#include <pthread.h>

struct output_pipe {
    char path[PATH_MAX];
    int fd;   // both ends, so that it is never without a writer
    int over; // an event: nobody writes any more
    int write_errno;
    pthread_t thread;
};

/* Make the pipe in `dir` and begin to copy; the next job is told of it. The pipe must
 * stay where it is until it is closed. */
MUST_CHECK int output_pipe_open(struct output_pipe *pipe, const char *dir,
                                struct error *err);
/* After the job: copy the rest. -1: not everything could be written. */
MUST_CHECK int output_pipe_close(struct output_pipe *pipe, struct error *err);

/* In rank 0, after worker_start(): print there, if the job was started with a pipe. */
MUST_CHECK int output_pipe_join(struct error *err);

#endif
