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

/* Give the first thread's stack the addresses that commands need before kernels start (see
 * product_start()). A stack grows as it is used, and where `ulimit -v` does not allow that,
 * the process ends by a signal: this refuses first. Without effect where `ulimit -s` is
 * below that size. */
MUST_CHECK int process_reserve_stack(struct error *err);

/* In a child, before it becomes another program: the signals that process_begin() ignores
 * are deadly again. Async-signal-safe. */
void process_restore_signals(void);

#endif
