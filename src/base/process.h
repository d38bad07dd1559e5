/*
 * process - what main() does before anything else, and what a child needs undone.
 */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include "base/base.h"
#include "base/error.h"

/* Descriptors 0 to 2 are open from here on, on /dev/null where they were closed, so that
 * no file of ours ever gets one of these numbers and with it the log. (What is printed to
 * a standard output that was closed still fails.) A write to a pipe that nobody reads any
 * more, or beyond `ulimit -f`, fails instead of ending the process. SIGHUP is what nohup,
 * or whoever started the program, made it: UCX, below MPICH, takes it before main()
 * begins. */
void process_begin(void);

/* Raise the limit of the stacks of this process and its threads to PROCESS_STACK_BYTES,
 * or to the hard limit. Fails when that is too little for any command, or when
 * `ulimit -v` leaves no addresses for it. Call it before the first thread. */
MUST_CHECK int process_prepare_stack(struct error *err);
#define PROCESS_STACK_BYTES ((size_t)8 << 20)

/* *err for a fork() or a start of threads that failed with `reason`: "cannot start WHAT: ..." with the limit
 * that may be the cause. Always returns -1. */
int process_fork_failed(struct error *err, const char *what, int reason);

/* In a child, before it becomes another program: the signals that process_begin() ignores
 * are deadly again. Async-signal-safe. */
void process_restore_signals(void);

#endif
