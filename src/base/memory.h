/*
 * memory - what this process has of the machine's memory, and what it could still get.
 *
 * All numbers are the kernel's, in bytes. Where the kernel does not say (no /proc), what
 * is used reads as 0 and what is available as UINT64_MAX: nothing known to forbid it.
 */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include "base/base.h"

/* The most memory this process ever had at once, of its own, of files and shared. */
uint64_t memory_peak_bytes(void);
/* What it has now. The kernel counts pages by processor and adds them up late: the number
 * may be off by a few hundred pages. */
uint64_t memory_resident_bytes(void);

/* What it could still get: of the machine, of its control group and those above it, of
 * the limit on its address space. Other processes may take it first. */
uint64_t memory_available_bytes(void);

/* The same without the limit on addresses, by the files below `root` instead of "/":
 * proc/meminfo, proc/self/cgroup, sys/fs/cgroup. */
uint64_t memory_available_under(const char *root);

/* How many processes the kernel has killed for lack of memory, in this process's control
 * group since it was made; where groups do not count, on the whole machine since its
 * start. UINT64_MAX: not known. */
uint64_t memory_oom_kills(void);
/* On the whole machine since its start, or UINT64_MAX. */
uint64_t memory_oom_kills_of_machine(void);
/* The first from the files below `root`; proc/vmstat has the count for the whole
 * machine. */
uint64_t memory_oom_kills_under(const char *root);

#endif
