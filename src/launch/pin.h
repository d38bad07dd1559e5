/*
 * pin - a rank's share of the processors of its machine.
 *
 * The processors this process may use, neighbours together (by package, core, thread),
 * are cut into as many equal runs as there are ranks on the machine.
 */
#ifndef LAUNCH_PIN_H
#define LAUNCH_PIN_H

#include "base/base.h"

/* Keep this process on the processors of local rank `local_rank` of `local_size`. Nothing
 * happens when there are more ranks than processors, or the system refuses: where threads
 * run does not change results. */
void pin_process(int local_rank, int local_size);

/* The choice itself: which of n processors, in order, are whose. *first and the returned
 * number; 0 when there are not enough. */
int pin_share(int n_processors, int local_rank, int local_size, int *first);

#endif
