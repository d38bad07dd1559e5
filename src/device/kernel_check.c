/* A kernel runs on its own copy of a scene; then all of the copy has to be what the other
 * table's kernel made of its own, bit for bit or nearly. */
#include "device/kernel_check.h"

#include "device/kernel_scene.h"

#include <math.h>
#include <stdlib.h>

static int no_memory(struct error *err)
{
    return error_set(err, ERROR_RUNTIME, "not enough memory to compare kernels");
}

int kernel_check_count(void)
{
    return n_scene_kernels;
}

int kernel_check(const struct kernels *k, const struct kernels *judge, enum dtype dtype,
                 const char **different, struct error *err)
{
    struct scene judged = {0}, right = {0};
    struct device over_k, over_judge;
    uint8_t *numbers = calloc(1, SCENE_BYTES);
    int rc = -1;
    *different = NULL;
    device_cpu_over(&over_k, k, dtype);
    device_cpu_over(&over_judge, judge, dtype);
    if (!numbers) {
        no_memory(err);
        goto done;
    }
    if (scene_open(&judged, &over_k, err) || scene_open(&right, &over_judge, err))
        goto done;
    scene_numbers(numbers, dtype);
    for (int i = 0; i < n_scene_kernels && !*different; i++) {
        scene_run(&judged, numbers, &scene_kernels[i]);
        scene_run(&right, numbers, &scene_kernels[i]);
        if (memcmp(judged.result, right.result, SCENE_BYTES) != 0 ||
            memcmp((const char *)judged.squares, (const char *)right.squares,
                   sizeof right.squares) != 0)
            *different = scene_kernels[i].name;
    }
    rc = 0;
done:
    scene_close(&judged);
    scene_close(&right);
    free(numbers);
    return rc;
}

/* -- a device of its own ------------------------------------------------------------- */

/* Relative to |want| and the mean of its array, so that what cancels is judged by what it
 * was made of. NaN against a number is infinite. */
static double apart(double got, double want, double mean)
{
    if (got == want || (isnan(got) && isnan(want)))
        return 0;
    double difference = fabs(got - want) / (fabs(want) + mean);
    return isfinite(difference) ? difference : HUGE_VAL;
}

static double array_apart(const uint8_t *got, const uint8_t *want, enum dtype dtype)
{
    double mean = 0, largest = 0;
    size_t element = dtype_bytes(dtype);
    float g, w;
    for (size_t i = 0; i < SCENE_ELEMENTS; i++) {
        dtype_load(&w, want + i * element, dtype, 1);
        mean += fabs((double)w) / SCENE_ELEMENTS;
    }
    for (size_t i = 0; i < SCENE_ELEMENTS; i++) {
        if (memcmp(got + i * element, want + i * element, element) == 0)
            continue;
        dtype_load(&g, got + i * element, dtype, 1);
        dtype_load(&w, want + i * element, dtype, 1);
        largest = fmax(largest, apart((double)g, (double)w, mean));
    }
    return largest;
}

static double scenes_apart(const struct scene *got, const struct scene *want)
{
    double largest = 0;
    for (size_t i = 0; i < SCENE_SQUARE_SUMS; i++)
        largest = fmax(largest, apart(got->squares[i], want->squares[i], 0));
    for (size_t a = 0; a < SCENE_ARRAYS; a++) {
        const uint8_t *g = got->result + a * SCENE_ARRAY_BYTES,
                      *w = want->result + a * SCENE_ARRAY_BYTES;
        if (memcmp(g, w, SCENE_ARRAY_BYTES) != 0)
            largest = fmax(largest,
                           array_apart(g, w, a < SCENE_FLOATS ? DTYPE_F32 : got->dtype));
    }
    return largest;
}

/* What other orders of sums, and a rounding that falls on the other side, may change: a
 * few units of the type. */
static double allowed_apart(bool is_exact, enum dtype dtype)
{
    if (is_exact)
        return 0;
    return dtype == DTYPE_F32 ? 2e-5 : dtype == DTYPE_F16 ? 4 * 0x1p-10 : 4 * 0x1p-7;
}

int kernel_check_device(struct device *dev, const struct kernels *judge,
                        kernel_check_fn *tell, void *context, struct error *err)
{
    struct scene judged = {0}, right = {0};
    struct device over_judge;
    uint8_t *numbers = calloc(1, SCENE_BYTES);
    int rc = -1;
    device_cpu_over(&over_judge, judge, dev->dtype);
    if (!numbers) {
        no_memory(err);
        goto done;
    }
    if (scene_open(&judged, dev, err) || scene_open(&right, &over_judge, err))
        goto done;
    scene_numbers(numbers, dev->dtype);
    for (int i = 0; i < n_scene_kernels; i++) {
        scene_run(&judged, numbers, &scene_kernels[i]);
        scene_run(&right, numbers, &scene_kernels[i]);
        if (device_check(dev, err))
            goto done;
        tell(context, scene_kernels[i].name, scenes_apart(&judged, &right),
             allowed_apart(scene_kernels[i].is_exact, dev->dtype));
    }
    rc = 0;
done:
    scene_close(&judged);
    scene_close(&right);
    free(numbers);
    return rc;
}
