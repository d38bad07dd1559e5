/*
 * emulated_memory - device memory that the host cannot touch, and pinned memory.
 *
 * Device memory is closed, so that whoever touches it gets a sentence, a stack and his
 * end, except while an operation of the device runs: between emulated_memory_open() and
 * emulated_memory_close(). Every allocation ends where a page begins that is always closed, and
 * begins after one: by 256 bytes exactly.
 *
 * Threads: any.
 */
#ifndef DEVICE_EMULATED_EMULATED_MEMORY_H
#define DEVICE_EMULATED_EMULATED_MEMORY_H

#include "base/base.h"

struct emulated_range {
    char *first;
    size_t bytes; // as asked for
};

void emulated_memory_limit(size_t bytes); // of all device memory

void emulated_memory_open(void);
void emulated_memory_close(void);

/* The allocation of device memory that lies at this address; bytes 0: none. And of pinned
 * memory. */
struct emulated_range emulated_memory_device_at(const void *memory);
struct emulated_range emulated_memory_pinned_at(const void *memory);

/* From now on a fault is told. And one on this thread that its stack has no room to be
 * told on: until the thread gives back what this returns, which may be NULL. */
void emulated_memory_watch(void);
void *emulated_memory_watch_thread(void);
void emulated_memory_leave_thread(void *watch);

#endif
