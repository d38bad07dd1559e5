/*
 * error - what a function that can fail says when it does.
 *
 * Every function that can fail because of the world (files, memory, input) returns 0,
 * or -1 with one finished sentence in `*err`: what failed, the subject in quotes, the
 * cause, and the remedy where there is one. `*err` is filled only on failure.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "base/base.h"

#include <stdarg.h>

enum error_kind {
    ERROR_INPUT,      // bad usage, configuration or input file: exit code 2
    ERROR_RUNTIME,    // the machine failed us (disk, memory, peers): exit code 3
    ERROR_DIVERGED,   // the training itself failed, and would again: exit code 3
    ERROR_CRASH_LOOP, // a job died as often as it was started again: exit code 4
    ERROR_STOPPED,    // stopped on request, can be resumed: exit code 75
    ERROR_UNSAVED,    // stopped on request, nothing was saved: exit code 3
};

struct error {
    enum error_kind kind;
    char text[2048];
};

/* Fill *err; always returns -1, so that a caller can `return error_set(...)`. */
int error_set(struct error *err, enum error_kind kind, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

/* Put "prefix: " before the sentence already in *err; always returns -1. */
int error_prefix(struct error *err, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* The exit code of a process that ends with this error. */
int error_exit_code(const struct error *err);

#endif
