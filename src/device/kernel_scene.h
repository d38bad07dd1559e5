/*
 * kernel_scene - every kernel once, on memory of a device that holds the same numbers for
 * each: what kernel_check.h compares.
 *
 * A scene has arrays of floats and arrays of the model's type. Sizes are odd, and sums
 * longer than the blocks that kernels add them by. All that a kernel leaves is in `result`
 * and `squares` then; scratch is not.
 */
#ifndef DEVICE_KERNEL_SCENE_H
#define DEVICE_KERNEL_SCENE_H

#include "device/device.h"

#define SCENE_FLOATS 8 // arrays; behind them those of the model's type
#define SCENE_ARRAYS 16
#define SCENE_ELEMENTS 28000                           // of an array
#define SCENE_ARRAY_BYTES ((size_t)SCENE_ELEMENTS * 4) // of float, the widest type
#define SCENE_BYTES (SCENE_ARRAYS * SCENE_ARRAY_BYTES)
#define SCENE_TOKENS 42
#define SCENE_KEYS 150
#define SCENE_SQUARE_SUMS 3

struct scene {
    struct device *dev;
    struct stream *s;
    const struct kernels *k;
    enum dtype dtype;
    uint8_t *memory;
    float *f[SCENE_FLOATS];               // between -1 and 1; the last not below 0
    void *t[SCENE_ARRAYS - SCENE_FLOATS]; // likewise, of the model's type
    float *scratch;
    uint8_t *result;                   // the host's copy of the memory
    double squares[SCENE_SQUARE_SUMS]; // results that are the host's anyway
    int32_t tokens[SCENE_TOKENS], positions[SCENE_TOKENS], first_keys[SCENE_KEYS];
    float mask[SCENE_TOKENS];
};

/* On a device that is open, for its type. */
MUST_CHECK int scene_open(struct scene *c, struct device *dev, struct error *err);
void scene_close(struct scene *c);

/* The numbers that every kernel begins with: SCENE_BYTES. */
void scene_numbers(uint8_t *numbers, enum dtype dtype);

struct scene_kernel {
    const char *name;
    void (*run)(struct scene *c);
    bool is_exact; // one rounding per element, or none, whoever computes it
};
extern const struct scene_kernel scene_kernels[];
extern const int n_scene_kernels;

/* Run a kernel on the numbers. */
void scene_run(struct scene *c, const uint8_t *numbers,
               const struct scene_kernel *kernel);

#endif
