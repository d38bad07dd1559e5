/*
 * print_check - what a command prints as its result arrives, or the command fails: a full
 * disk or a reader that has gone away is told, never taken for success.
 */
#ifndef CLI_PRINT_CHECK_H
#define CLI_PRINT_CHECK_H

#include "base/base.h"
#include "base/error.h"

/* After printing to standard output: has everything been written so far? `what` is what
 * was printed, "the report", or "to standard output". */
MUST_CHECK int print_check(const char *what, struct error *err);

/* For main(), as the last use of standard output. */
MUST_CHECK int print_close(struct error *err);

#endif
