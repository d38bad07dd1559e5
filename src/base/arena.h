/*
 * arena - memory in one piece, laid out by a function that can also just measure.
 *
 * A layout function takes an arena and calls arena_* for each buffer. Run on a measuring
 * arena it only counts; run on one opened with that many bytes it places. So sizes are
 * written once, and nothing is allocated after start-up.
 *
 * Memory is zero when fresh, aligned to 64 bytes, and touched by nobody: the thread that
 * first writes a page decides on which NUMA node it lies.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/base.h"
#include "base/error.h"

#define ARENA_ALIGN 64

struct arena {
    uint8_t *base; // NULL while measuring
    size_t used_bytes;
    size_t capacity_bytes;
    struct arena *tables; // where arena_table() places; NULL: here
    size_t table_bytes;   // of used_bytes, for tables
};

/* An arena that only counts: every arena_* call returns NULL. */
void arena_measure(struct arena *ar);

/* Map `bytes` of memory. `what` names the memory in the error. arena_close() unmaps. */
MUST_CHECK int arena_open(struct arena *ar, size_t bytes, const char *what,
                          struct error *err);
/* The same for memory of which a part may never be used: it has small pages, so that only
 * what is touched is resident. arena_use_huge_pages() ends that for what is not yet
 * touched. */
MUST_CHECK int arena_open_sparse(struct arena *ar, size_t bytes, const char *what,
                                 struct error *err);
void arena_use_huge_pages(struct arena *ar);
void arena_close(struct arena *ar);

/* A part of borrowed memory; base NULL: it is only measured. Not to be closed. */
struct arena arena_over(void *base, size_t bytes);
/* n more bytes are within the capacity, also of a part that is only measured. */
bool arena_has_room(const struct arena *ar, size_t n);

/* The next `n` elements. A request past the capacity is our bug and aborts. */
void *arena_bytes(struct arena *ar, size_t n);
/* The same for what the host reads and writes itself, in an arena of a device's memory:
 * tables of pointers and of numbers. They go to `tables`, where there is one. */
void *arena_table(struct arena *ar, size_t n);
float *arena_f32(struct arena *ar, int64_t n);
int32_t *arena_i32(struct arena *ar, int64_t n);

#endif
