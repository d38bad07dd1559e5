#include "measure.h"

#include <errno.h>
#include <getopt.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COPY_MAX_BYTES ((size_t)256 << 20) // far beyond every cache
#define LINE_BYTES ((size_t)64)

/* -- options ------------------------------------------------------------------------- */

static void usage(const char *program, const struct measure_option *options)
{
    fprintf(stderr, "usage: %s", program);
    for (; options->name; options++)
        fprintf(stderr, " --%s N", options->name);
    fprintf(stderr, "\n");
    exit(2);
}

static int64_t count_of(const char *program, const char *option, const char *text)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < 1 || value > INT32_MAX) {
        fprintf(stderr, "%s: --%s takes a number from 1 to %d, not '%s'\n", program,
                option, INT32_MAX, text);
        exit(2);
    }
    return value;
}

void measure_parse(int argc, char **argv, const struct measure_option *options)
{
    struct option known[MEASURE_MAX_OPTIONS + 1] = {0};
    for (int i = 0; options[i].name && i < MEASURE_MAX_OPTIONS; i++)
        known[i] = (struct option){options[i].name, required_argument, NULL, 0};

    int which = 0, c;
    while ((c = getopt_long(argc, argv, "", known, &which)) != -1) {
        if (c != 0)
            usage(argv[0], options);
        *options[which].value = count_of(argv[0], options[which].name, optarg);
    }
    if (optind != argc)
        usage(argv[0], options);
}

/* -- memory and time ----------------------------------------------------------------- */

float *measure_floats(int64_t n)
{
    size_t bytes = ((size_t)n * sizeof(float) + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    float *x = aligned_alloc(LINE_BYTES, bytes);
    if (!x) {
        fprintf(stderr, "not enough memory for %lld floats\n", (long long)n);
        exit(3);
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(i % 17 - 8) * 0.01f;
    return x;
}

double measure_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* -- copies -------------------------------------------------------------------------- */

void measure_copy_open(struct measure_copy *c, int64_t n)
{
    size_t bytes = (size_t)n * sizeof(float);
    bytes = bytes < COPY_MAX_BYTES ? bytes : COPY_MAX_BYTES;
    int64_t n_floats = (int64_t)(bytes / sizeof(float));
    *c = (struct measure_copy){
        .to = measure_floats(n_floats), .from = measure_floats(n_floats), .bytes = bytes};
}

void measure_copy_once(struct measure_copy *c)
{
    char *to = (char *)c->to;
    const char *from = (const char *)c->from;
    double start = measure_seconds();
#pragma omp parallel
    {
        size_t n = (size_t)omp_get_num_threads(), i = (size_t)omp_get_thread_num();
        size_t share = c->bytes / n / LINE_BYTES * LINE_BYTES;
        size_t begin = share * i, end = i + 1 == n ? c->bytes : begin + share;
        memcpy(to + begin, from + begin, end - begin);
    }
    double rate = 2.0 * (double)c->bytes / (measure_seconds() - start);
    c->best = rate > c->best ? rate : c->best;
}

void measure_copy_close(struct measure_copy *c)
{
    free(c->to);
    free(c->from);
}
