/*
 * log_tail - rank 0's log, copied to standard error as it grows; on a terminal it looks
 * as the log of one process does there (base/log_view.h), with its progress below.
 */
#ifndef LAUNCH_LOG_TAIL_H
#define LAUNCH_LOG_TAIL_H

#include "base/base.h"
#include "base/beat.h"

#include <sys/types.h>

struct log_tail {
    const char *log_dir; // borrowed
    int fd;              // -1: the file is not there yet
    off_t at;            // what comes next
    unsigned n_shown;    // of the progress that is shown
    bool is_in_line;     // the last line shown has not ended
};

/* Copy what is new of the job whose page is `file`. Stops before the reason of a failure,
 * which the launcher tells in its own words. */
void log_tail_copy(struct log_tail *tail, const struct beat_file *file);
/* Show a line that did not reach the file; it ends with a newline. */
void log_tail_show(struct log_tail *tail, const char *line);
/* Leave out what was not copied: what comes next is of the job started again. */
void log_tail_skip(struct log_tail *tail);
void log_tail_close(struct log_tail *tail);

#endif
