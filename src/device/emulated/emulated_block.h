/*
 * emulated_block - a launch of a kernel: blocks of threads on the host.
 *
 * The threads of a block are fibers of one thread of the system. Each runs until it has to
 * wait for others; then one of those that can go on is chosen, by default at random, so
 * that whatever relies on an order that no barrier makes goes wrong sooner or later. The
 * same seed gives the same orders. Blocks run in an order of their own, on several
 * threads of the system where there are many.
 *
 * Told, and the end of the program: a barrier that some threads of a block do not come to,
 * a shuffle that a lane of the warp is missing in, threads that meet in different lines.
 */
#ifndef DEVICE_EMULATED_EMULATED_BLOCK_H
#define DEVICE_EMULATED_EMULATED_BLOCK_H

#include "device/emulated/emulated_dialect.h"
#include "device/gpu/gpu_runtime.h"

#define BLOCK_MOST_THREADS 1024
#define BLOCK_WARP 32

enum thread_order { ORDER_RANDOM, ORDER_FORWARD, ORDER_REVERSE };

/* The order of threads and blocks from now on. */
void block_order(enum thread_order order, uint64_t seed);

/* Run the kernel, all of it. */
void block_launch(const struct gpu_launch *l);

/* -- for what is done by a warp ------------------------------------------------------ */

/* What the lanes of a warp meet for. `ready` is called by the last of them that comes,
 * with what each came with; then all go on. */
struct warp_meeting {
    const char *what; // "__shfl_sync"
    void (*ready)(void *lanes[BLOCK_WARP]);
    bool orders_memory; // what a lane wrote before is seen by the others
};
void block_meet_warp(const struct warp_meeting *m, void *lane, int line);

/* Copies that this thread has under way, see emulated_warp.c. */
struct async_copy {
    char *to;
    const char *from;
    int64_t group;
};
struct async_copies {
    struct async_copy *at;
    int n, room;
    int64_t group; // that is being made
};
struct async_copies *block_copies(void);

/* "kernel gpu_x, block (1, 0, 0), thread 33" of the caller, for messages. */
const char *block_words(void);

#endif
