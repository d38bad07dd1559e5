/*
 * measure - what the speed programs share: options that are counts or words, memory that
 * is there, a clock, and a copy by all threads.
 *
 * For programs: what goes wrong is printed and ends the process, with 2 for bad usage and
 * 3 for a lack of memory.
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "device/device.h"

struct measure_option { // --name N, or --name WORD
    const char *name;   // NULL ends a list
    int64_t *value;     // left alone when the option is not given; else 1 or more
    const char **word;  // not NULL: where the word goes in place of a value
};

#define MEASURE_MAX_OPTIONS 16

void measure_parse(int argc, char **argv, const struct measure_option *options);

/* n floats, not all the same, first touched by the threads that a static schedule gives
 * them to. The caller frees them. */
float *measure_floats(int64_t n);

/* n elements of `dtype`, likewise. */
void *measure_elements(enum dtype dtype, int64_t n);

double measure_seconds(void); // differences are durations

/* The type of that name, such as "bfloat16"; NULL: float32. */
enum dtype measure_dtype(const char *name);
/* The processor, opened for that type, with the set of kernels of that name (NULL: the
 * best) on so many threads, ready for products. Ends the process with status 77 where the
 * processor cannot run the set. */
struct device *measure_device(enum dtype dtype, const char *kernels, int64_t n_threads);

/* Copies of as many bytes as n floats have, but no more than fit in a fixed, large
 * buffer; all threads copy. */
struct measure_copy {
    float *to, *from;
    size_t bytes;
    double best; // bytes a second so far, read and written counted
};
void measure_copy_open(struct measure_copy *c, int64_t n);
void measure_copy_once(struct measure_copy *c);
void measure_copy_close(struct measure_copy *c);

#endif
