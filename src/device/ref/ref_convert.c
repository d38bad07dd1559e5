/* Storage types, one element at a time. */
#include "device/device.h"
#include "device/ref/ref.h"

float ref_element(const void *x, enum dtype dtype, int64_t i)
{
    switch (dtype) {
    case DTYPE_F32:
        return ((const float *)x)[i];
    case DTYPE_F16:
        return f16_to_f32(((const uint16_t *)x)[i]);
    case DTYPE_BF16:
        return bf16_to_f32(((const uint16_t *)x)[i]);
    }
    CHECK(false, "dtype %d", (int)dtype);
}

void ref_set_element(void *y, enum dtype dtype, int64_t i, float value)
{
    switch (dtype) {
    case DTYPE_F32:
        ((float *)y)[i] = value;
        break;
    case DTYPE_F16:
        ((uint16_t *)y)[i] = f32_to_f16(value);
        break;
    case DTYPE_BF16:
        ((uint16_t *)y)[i] = f32_to_bf16(value);
        break;
    }
}

void ref_load(struct stream *s, float *y, const void *x, enum dtype dtype, int64_t n)
{
    ref_load_matrix(s, y, x, dtype, 1, n, n);
}

void ref_store(struct stream *s, void *y, const float *x, enum dtype dtype, int64_t n)
{
    ref_store_matrix(s, y, x, dtype, false, 1, n, n);
}

void ref_store_rounded(struct stream *s, void *y, float *x, enum dtype dtype, int64_t n)
{
    ref_store(s, y, x, dtype, n);
    ref_load(s, x, y, dtype, n);
}

void ref_store_add(struct stream *s, void *y, const float *x, enum dtype dtype, int64_t n)
{
    ref_store_matrix(s, y, x, dtype, true, 1, n, n);
}

void ref_add_stored(struct stream *s, void *y, const void *x, enum dtype dtype, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        ref_set_element(y, dtype, i, ref_element(y, dtype, i) + ref_element(x, dtype, i));
}

void ref_load_matrix(struct stream *s, float *y, const void *x, enum dtype dtype,
                     int64_t rows, int64_t cols, int64_t x_stride)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            y[r * cols + c] = ref_element(x, dtype, r * x_stride + c);
}

void ref_store_matrix(struct stream *s, void *y, const float *x, enum dtype dtype,
                      bool accumulate, int64_t rows, int64_t cols, int64_t y_stride)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            int64_t at = r * y_stride + c;
            float before = accumulate ? ref_element(y, dtype, at) : 0.0F;
            float value = x[r * cols + c];
            ref_set_element(y, dtype, at, accumulate ? before + value : value);
        }
}

float *ref_stash_work(struct stream *s, void *stash, float *scratch)
{
    return s->dev->dtype == DTYPE_F32 ? stash : scratch;
}

void ref_stash_store(struct stream *s, void *stash, float *x, int64_t n)
{
    if (x != stash)
        ref_store_rounded(s, stash, x, s->dev->dtype, n);
}

const float *ref_stash_load(struct stream *s, const void *stash, float *scratch,
                            int64_t n)
{
    if (s->dev->dtype == DTYPE_F32)
        return stash;
    ref_load(s, scratch, stash, s->dev->dtype, n);
    return scratch;
}

void ref_stash_columns(struct stream *s, float *y, const void *stash, int64_t first,
                       int64_t rows, int64_t cols, int64_t stride)
{
    for (int64_t i = 0; i < rows * cols; i++)
        y[i] = ref_element(stash, s->dev->dtype, first + i / cols * stride + i % cols);
}
