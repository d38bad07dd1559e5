#include "measure.h"

#include "device/kernel_sets.h"

#include <errno.h>
#include <getopt.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define COPY_MAX_BYTES ((size_t)256 << 20) // far beyond every cache
#define LINE_BYTES ((size_t)64)
#define SKIP_STATUS 77 // nothing can be measured here, through no fault of anyone
#define HUGE_BYTES ((size_t)2 << 20)

/* -- options ------------------------------------------------------------------------- */

static void usage(const char *program, const struct measure_option *options)
{
    fprintf(stderr, "usage: %s", program);
    for (; options->name; options++)
        fprintf(stderr, " --%s %s", options->name, options->word ? "WORD" : "N");
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
        if (options[which].word)
            *options[which].word = optarg;
        else
            *options[which].value = count_of(argv[0], options[which].name, optarg);
    }
    if (optind != argc)
        usage(argv[0], options);
}

/* -- memory and time ----------------------------------------------------------------- */

/* Huge pages where there is enough for them, as the program's own tensors have. */
static void *memory_of(size_t bytes)
{
    size_t unit = bytes < HUGE_BYTES ? LINE_BYTES : HUGE_BYTES;
    bytes = (bytes + unit - 1) / unit * unit;
    void *memory = aligned_alloc(unit, bytes);
    if (!memory) {
        fprintf(stderr, "not enough memory for %zu bytes\n", bytes);
        exit(3);
    }
    if (unit == HUGE_BYTES)
        madvise(memory, bytes, MADV_HUGEPAGE); // a wish
    return memory;
}

void *measure_elements(enum dtype dtype, int64_t n)
{
    size_t size = dtype_bytes(dtype);
    char *x = memory_of((size_t)n * size);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) {
        float value = (float)(i % 17 - 8) * 0.01f;
        dtype_store(x + (size_t)i * size, &value, dtype, 1);
    }
    return x;
}

float *measure_floats(int64_t n)
{
    return measure_elements(DTYPE_F32, n);
}

double measure_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* -- what is measured ---------------------------------------------------------------- */

enum dtype measure_dtype(const char *name)
{
    static const enum dtype all[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!name || !strcmp(dtype_name(all[i]), name))
            return all[i];
    fprintf(stderr, "there is no type '%s'\n", name);
    exit(2);
}

struct device *measure_device(enum dtype dtype, const char *kernels, int64_t n_threads)
{
    enum kernel_set set = KERNEL_SET_AUTO;
    struct error err;
    if (kernels && kernel_set_parse(&set, kernels, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(2);
    }
    if (kernels_use(set, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(SKIP_STATUS);
    }
    kernels_set_threads((int)n_threads);
    if (kernels_start(&err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(3);
    }
    return device_cpu(dtype);
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
