/*
 * log - lines for people, in PaddleFleetX's log format, so that its tools read them:
 *
 *     [2022-07-27 12:42:46,601] [    INFO] - text
 *
 * Lines go to standard error, as they are unless that is a terminal: there they are shown
 * as log_view.h says. A status line (progress) is redrawn in place on a terminal and
 * never shown elsewhere; log lines push it out of the way. A line that cannot be written,
 * because the reader of a pipe is gone or a disk is full, is dropped. Threads: any; a
 * line is written whole.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/base.h"

enum log_level { LOG_INFO, LOG_WARNING, LOG_ERROR };

void log_line(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);

#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_warning(...) log_line(LOG_WARNING, __VA_ARGS__)
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)

/* A line of this rank alone, whatever the level: shown once log_is_own() was called, where
 * its log is a file of its own. Rank 0, whose lines are seen, says such things for all. */
void log_own(const char *fmt, ...) PRINTF_LIKE(1, 2);
void log_is_own(void);

/* The words, as one line, from a signal handler: async-signal-safe. Dropped where it
 * would have to wait. */
void log_from_handler(enum log_level level, const char *const *words, size_t n_words);
#define LOG_NUMBER_BYTES 24
/* `value`, which is not negative, as text; async-signal-safe. */
void log_number(char text[LOG_NUMBER_BYTES], int64_t value);

/* Show `fmt` as the status line; a no-op when standard error is not a terminal. */
void log_status(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Remove the status line; must precede any other output to the terminal. */
void log_status_clear(void);
/* Standard error is a terminal on which a status line can be redrawn. */
bool log_is_terminal(void);

/* All lines, also those that standard error does not take (a log on a full disk), go to
 * descriptor `fd` as well, each behind `mark`, which is borrowed; -1: nowhere. */
void log_set_copy(int fd, const char *mark);

/* Hide lines below `level` (tests use it to stay quiet); what it was before. */
enum log_level log_set_level(enum log_level level);

#endif
