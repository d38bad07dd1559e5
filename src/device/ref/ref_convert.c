/* Storage types, one element at a time. */
#include "device/ref/ref.h"

/* By memcpy: a row of logits becomes one of 16-bit gradients where it lies. */

float ref_element(const void *x, enum dtype dtype, int64_t i)
{
    float value;
    uint16_t half;
    if (dtype == DTYPE_F32) {
        memcpy(&value, (const char *)x + i * (int64_t)sizeof value, sizeof value);
        return value;
    }
    memcpy(&half, (const char *)x + i * (int64_t)sizeof half, sizeof half);
    return dtype == DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

void ref_set_element(void *y, enum dtype dtype, int64_t i, float value)
{
    uint16_t half;
    if (dtype == DTYPE_F32) {
        memcpy((char *)y + i * (int64_t)sizeof value, &value, sizeof value);
        return;
    }
    half = dtype == DTYPE_F16 ? f32_to_f16(value) : f32_to_bf16(value);
    memcpy((char *)y + i * (int64_t)sizeof half, &half, sizeof half);
}

double ref_get(const struct stream *s, const void *x, int64_t i)
{
    return (double)ref_element(x, s->dev->dtype, i);
}

void ref_set(const struct stream *s, void *y, int64_t i, double value)
{
    ref_set_element(y, s->dev->dtype, i, (float)value);
}

double ref_rounded(const struct stream *s, double value)
{
    float stored;
    if (s->dev->dtype == DTYPE_F32)
        return value;
    ref_set(s, &stored, 0, value);
    return ref_get(s, &stored, 0);
}

void ref_load(struct stream *s, const struct convert *a)
{
    float *y = a->y;
    for (int64_t i = 0; i < a->n; i++)
        y[i] = ref_element(a->x, a->dtype, i);
}

void ref_store(struct stream *s, const struct convert *a)
{
    const float *x = a->x;
    for (int64_t i = 0; i < a->n; i++)
        ref_set_element(a->y, a->dtype, i, x[i]);
}

static void add_element(const struct convert *a, int64_t i, float x)
{
    ref_set_element(a->y, a->dtype, i, ref_element(a->y, a->dtype, i) + x);
}

void ref_store_add(struct stream *s, const struct convert *a)
{
    const float *x = a->x;
    for (int64_t i = 0; i < a->n; i++)
        add_element(a, i, x[i]);
}

void ref_add_stored(struct stream *s, const struct convert *a)
{
    for (int64_t i = 0; i < a->n; i++)
        add_element(a, i, ref_element(a->x, a->dtype, i));
}
