/*
 * emulated_streams - what is enqueued on the streams of the emulated device, and when it
 * runs: late.
 *
 * Nothing runs where it is enqueued. It runs when the host synchronises, asks for an event
 * or has enqueued very much, on the thread of the system that does; one operation at a
 * time. Which stream is next is chosen so that whatever was not ordered by streams and
 * events goes wrong: by a policy, see emulated_options.h.
 *
 * Threads: any; the host's threads may enqueue and synchronise at the same time.
 */
#ifndef DEVICE_EMULATED_EMULATED_STREAMS_H
#define DEVICE_EMULATED_EMULATED_STREAMS_H

#include "device/gpu/gpu_runtime.h"

enum stream_policy {
    STREAMS_RANDOM, // one of those that can go on, some operations at a time
    STREAMS_EAGER,  // everything as soon as it can
    STREAMS_LATE,   // only what is waited for
    STREAMS_PREFER, // one stream as far as it can, then the others
};

void streams_policy(enum stream_policy policy, uint64_t seed, enum stream_name preferred);

/* Enqueue an operation whose arguments, a struct and what it has a variable number of, are
 * copied. `run` returns false while it has not done all it has to: it is called again
 * then, and other streams go on meanwhile. It runs with device memory open, and never
 * waits itself. */
void streams_enqueue(enum stream_name s, bool (*run)(void *args), const void *args,
                     size_t bytes, const void *more, size_t more_bytes);
/* The same for a message: MPI belongs to the thread that called gpu_start(), and it alone
 * runs these. */
void emulated_enqueue(enum stream_name s, bool (*run)(void *args), const void *args,
                      size_t bytes);
void emulated_count_message(size_t bytes); // that was sent or received
void emulated_count_gemm(void);

/* The host waits, until everything or what was enqueued on a stream is done. */
void streams_drain(void);
void streams_synchronize(enum stream_name s);
void streams_begin(void); // on the thread that messages are for

#endif
