/*
 * stop - SIGINT and SIGTERM ask the run to end after the step it is in.
 *
 * The first signal is a request. The second ends the process at once, as if nobody had
 * asked for signals: the last checkpoint is intact in any case.
 */
#ifndef TRAIN_STOP_H
#define TRAIN_STOP_H

#include <stdbool.h>

void stop_watch(void);
bool stop_is_wanted(void);
/* The name of the signal that asked, for the log. */
const char *stop_signal_name(void);

#endif
