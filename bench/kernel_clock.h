/*
 * kernel_clock - a table of kernels that measures itself: every function of another
 * table, with the time, the calls and the work of each added up. Products are told apart
 * by their shape.
 */
#ifndef BENCH_KERNEL_CLOCK_H
#define BENCH_KERNEL_CLOCK_H

#include "device/kernels.h"

/* The table over `k`, which may be that table already. */
const struct kernels *kernel_clock_table(const struct kernels *k);

/* Forget what was measured. */
void kernel_clock_reset(void);

/* Add up no more. */
void kernel_clock_stop(void);

/* [{"name", "calls", "seconds", "flops", "bytes"}, ...] of n_steps steps, a step's share;
 * see operation_work(). */
void kernel_clock_print(int64_t n_steps);

#endif
