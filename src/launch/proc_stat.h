/*
 * proc_stat - what /proc tells about processes of this machine.
 */
#ifndef LAUNCH_PROC_STAT_H
#define LAUNCH_PROC_STAT_H

#include "base/base.h"

#include <sys/types.h>

#define PROC_STATE 3 // numbers of fields as proc(5) counts them
#define PROC_PARENT 4
#define PROC_MAJOR_FAULTS 12
#define PROC_START_TICKS 22
#define PROC_EXIT_CODE 52

/* A field of /proc/PID/stat; 0 where there is no such process. The state is a letter. */
uint64_t proc_stat_field(pid_t pid, int field);

/* The state of a process: R, S, T, D, Z, ...; 0: there is none. D when any of its threads
 * is in an uninterruptible sleep. */
char proc_stat_state(pid_t pid);

/* Kilobytes of it that are swapped out, and that are in memory. */
void proc_stat_swap(pid_t pid, uint64_t *swapped_kb, uint64_t *resident_kb);

/* The value of a variable in the environment it began with into `value`; false: it has
 * none, or it may not be read. `name` ends in '='. */
bool proc_stat_environment(pid_t pid, const char *name, char *value, size_t size);

#endif
