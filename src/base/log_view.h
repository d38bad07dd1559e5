/*
 * log_view - how a line of the log is shown on a terminal.
 *
 * In colour, unless NO_COLOR is set or TERM is unset or "dumb". On a narrow terminal
 * lines have no date and no level (but for warnings and errors), and one that is wider
 * than the terminal loses, one after the other, the fields of a step or an evaluation
 * that a reader misses least: the whole of it is in the log of a rank, in a pipe and on a
 * wide terminal, and its numbers are in metrics.jsonl. Sentences are never cut.
 *
 * Everything here is async-signal-safe but log_view_of(), which reads the environment.
 */
#ifndef BASE_LOG_VIEW_H
#define BASE_LOG_VIEW_H

#include "base/base.h"

struct log_view {
    bool is_terminal;
    int columns;        // 0: not a terminal, or not known
    bool is_coloured;   // a terminal that shows colours
    bool is_redrawable; // a terminal on which a line can be written again
};

/* For what is written to descriptor `fd`. COLUMNS decides before the terminal's own word,
 * as elsewhere. */
struct log_view log_view_of(int fd);

/* What log_view_line() may add to a line. */
#define LOG_VIEW_MORE_BYTES 16
/* `shown` := the line of n bytes, its newline included, as it is shown; the length. A
 * line that is not one of log.h stays as it is. */
size_t log_view_line(const struct log_view *view, const char *line, size_t n,
                     char *shown);

/* The names of enum log_level, and what pads them to equal width. */
extern const char *const log_view_levels[];
const char *log_view_padding(int level);

#endif
