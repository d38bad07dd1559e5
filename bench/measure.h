/*
 * measure - what the speed programs share: options that are counts, memory that is there,
 * a clock, and a copy by all threads.
 *
 * For programs: what goes wrong is printed and ends the process, with 2 for bad usage and
 * 3 for a lack of memory.
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stddef.h>
#include <stdint.h>

struct measure_option { // --name N
    const char *name;   // NULL ends a list
    int64_t *value;     // left alone when the option is not given; else 1 or more
};

#define MEASURE_MAX_OPTIONS 16

void measure_parse(int argc, char **argv, const struct measure_option *options);

/* n floats, not all the same, first touched by the threads that a static schedule gives
 * them to. The caller frees them. */
float *measure_floats(int64_t n);

double measure_seconds(void); // differences are durations

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
