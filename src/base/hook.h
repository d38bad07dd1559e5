/*
 * hook - a command of the user's that is run when something happens (key on_event).
 *
 * The command is the user's own text for /bin/sh; what happened is in its environment,
 * never in that text: TREFOIL_EVENT, and TREFOIL_EVENT_... for each detail. It gets
 * nothing else of this process: no descriptor, no variable by which a launcher would take
 * it for a rank, no signal of the terminal. The first HOOK_OUTPUT_BYTES that it prints are
 * copied to our standard error by a thread; the rest is read and dropped, so that the
 * command never waits for a reader.
 *
 * Nobody waits for it: hook_run() starts it, or keeps the event until the command before
 * has ended. hook_poll() looks. A command that takes longer than HOOK_SECONDS is killed
 * with all that it started in its session; that, and one that fails, is a warning. At the
 * end hook_finish() waits, for no longer than that and that of the last event.
 */
#ifndef BASE_HOOK_H
#define BASE_HOOK_H

#include "base/base.h"

#include <sys/types.h>

#define HOOK_SECONDS 30.0
#define HOOK_WAITING_MOST 4 // events; more of them are told of and left out
#define HOOK_EVENT_BYTES 8192
#define HOOK_OUTPUT_BYTES 65536
#define HOOK_KILLED_MOST 8 // that are looked for until they are gone

struct hook_event { // "NAME=value", each with its NUL
    size_t n_bytes;
    int n_variables;
    char bytes[HOOK_EVENT_BYTES];
};

struct hook {
    const char *command;        // borrowed; NULL: none
    pid_t pid;                  // of the one that runs; 0: none
    double started, ended;      // clock_seconds()
    char what[32];              // it was started for
    struct hook_output *output; // of the last one; NULL: none
    bool is_cut_told;
    int n_killed;
    pid_t killed[HOOK_KILLED_MOST]; // but perhaps not gone yet
    int n_waiting;
    struct hook_event waiting[HOOK_WAITING_MOST]; // in order
};

/* An event of this name. */
void hook_event_begin(struct hook_event *e, const char *name);
/* TREFOIL_EVENT_key=value; a value that does not fit is cut. */
void hook_event_set(struct hook_event *e, const char *key, const char *format, ...)
    PRINTF_LIKE(3, 4);

/* command "" or NULL: all of this does nothing. */
void hook_init(struct hook *h, const char *command);
void hook_run(struct hook *h, const struct hook_event *e);
void hook_poll(struct hook *h);
/* Wait for the command that runs and for the last event; others that wait are left out. */
void hook_finish(struct hook *h);

#endif
