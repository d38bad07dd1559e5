/*
 * bench_adamw - how near the optimizer's update comes to the speed of memory.
 *
 *   bench_adamw [--elements N] [--rounds R] [--threads T]
 *
 * Updates N float32 parameters (GPT-2 124M's without any given) with the kernel of the
 * training step and copies a buffer with all threads, in turns; the best of each counts.
 * An update reads parameter, gradient and both moments and writes all but the gradient:
 * 28 bytes an element. Prints one JSON object.
 */
#include "measure.h"

#include "device/device.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#define BYTES_AN_ELEMENT (7 * (double)sizeof(float))

struct bench {
    int64_t elements, rounds, threads;
    float *grad;
    struct adamw update;
};

static void open_update(struct bench *b)
{
    struct device *dev = device_cpu(DTYPE_F32);
    float *param = measure_floats(b->elements), *exp_avg = measure_floats(b->elements);
    float *exp_avg_sq = measure_floats(b->elements);
    b->grad = measure_floats(b->elements);
    dev->k->fill(
        device_stream(dev, STREAM_COMPUTE),
        &(struct fill){exp_avg_sq, 1e-4f, b->elements}); // a mean of squares has no sign
    const struct adamw_rule rule = {.lr = 1e-5,
                                    .beta1 = 0.9,
                                    .beta2 = 0.999,
                                    .epsilon = 1e-8,
                                    .decay = 0.01,
                                    .bias1 = 0.1,
                                    .bias2 = 0.001,
                                    .grad_scale = 0.5};
    b->update = (struct adamw){.rule = rule,
                               .master = param,
                               .param = param,
                               .param_dtype = DTYPE_F32,
                               .grad = b->grad,
                               .grad_dtype = DTYPE_F32,
                               .exp_avg = exp_avg,
                               .exp_avg_sq = exp_avg_sq,
                               .n = b->elements};
}

static void close_update(struct bench *b)
{
    free(b->update.master);
    free(b->grad);
    free(b->update.exp_avg);
    free(b->update.exp_avg_sq);
}

static double update_seconds(const struct bench *b)
{
    struct device *dev = device_cpu(DTYPE_F32);
    double start = measure_seconds();
    dev->k->adamw(device_stream(dev, STREAM_COMPUTE), &b->update);
    return measure_seconds() - start;
}

static void report(const struct bench *b, double seconds, double copy)
{
    double rate = BYTES_AN_ELEMENT * (double)b->elements / seconds;
    printf("{\"seconds\": %.6f, \"gb_per_s\": %.2f, \"copy_gb_per_s\": %.2f, "
           "\"share_of_copy\": %.4f, \"elements\": %lld, \"threads\": %lld}\n",
           seconds, rate * 1e-9, copy * 1e-9, rate / copy, (long long)b->elements,
           (long long)b->threads);
}

int main(int argc, char **argv)
{
    struct bench b = {.elements = 124475904, .rounds = 7, .threads = omp_get_num_procs()};
    const struct measure_option options[] = {{"elements", &b.elements, NULL},
                                             {"rounds", &b.rounds, NULL},
                                             {"threads", &b.threads, NULL},
                                             {NULL, NULL, NULL}};
    struct measure_copy copy;
    double best = 0;
    measure_parse(argc, argv, options);
    measure_device(DTYPE_F32, NULL, b.threads);
    open_update(&b);
    measure_copy_open(&copy, b.elements);
    for (int64_t r = 0; r < b.rounds; r++) {
        double seconds = update_seconds(&b);
        best = r == 0 || seconds < best ? seconds : best;
        measure_copy_once(&copy);
    }
    report(&b, best, copy.best);
    measure_copy_close(&copy);
    close_update(&b);
    return 0;
}
