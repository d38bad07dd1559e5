/*
 * device_call - one call of a kernel with the host's memory on a device with its own: see
 * device_table.h. A caller names the pointers it will pass and what is behind each;
 * call_begin() turns them into addresses of the device, where the same bytes lie then;
 * call_end() waits, and copies back what was written.
 */
#ifndef TESTS_DEVICE_CALL_H
#define TESTS_DEVICE_CALL_H

#include "device_table.h"

#define CALL_TENSORS_MOST 72
#define CALL_ARRAYS_MOST 4

struct call_range { // of the host's memory, with its twin
    char *host;
    size_t bytes;
    bool is_written;
    char *block; // the device's allocation
    size_t block_bytes, slack;
};

struct call {
    struct stream *s; // of the device itself
    const struct kernels *k;
    enum dtype dtype;
    struct call_range ranges[CALL_TENSORS_MOST];
    int n_ranges;
    void *pointers[CALL_TENSORS_MOST]; // where those lie that call_begin() turns
    int n_pointers;
    void *arrays[CALL_ARRAYS_MOST]; // copies, good until the call returns
    size_t array_bytes[CALL_ARRAYS_MOST];
    int n_arrays;
};

struct call call_open(const struct stream *s);

/* `pointer` is the address of a pointer to n elements of a tensor that the kernel reads,
 * or writes, too. NULL pointers stay. */
void call_reads(struct call *c, void *pointer, int64_t n, enum dtype dtype);
void call_writes(struct call *c, void *pointer, int64_t n, enum dtype dtype);
/* That of one with a weight's data. */
void call_weight(struct call *c, struct weight *w, int64_t rows, int64_t cols,
                 bool is_written);
/* `pointer` is the address of one to an array of the host. */
void call_array(struct call *c, void *pointer, size_t bytes);

void call_begin(struct call *c);
void call_end(struct call *c);

#endif
