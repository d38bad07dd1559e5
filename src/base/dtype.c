#include "base/dtype.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [DTYPE_F32] = {"float32", 4},
    [DTYPE_F16] = {"float16", 2},
    [DTYPE_BF16] = {"bfloat16", 2},
};

size_t dtype_bytes(enum dtype dtype)
{
    return dtypes[dtype].bytes;
}

const char *dtype_name(enum dtype dtype)
{
    return dtypes[dtype].name;
}

void dtype_load(float *y, const void *x, enum dtype dtype, int64_t n)
{
    const uint16_t *half = x;
    switch (dtype) {
    case DTYPE_F32:
        memcpy(y, x, (size_t)n * sizeof *y);
        break;
    case DTYPE_F16:
        for (int64_t i = 0; i < n; i++)
            y[i] = f16_to_f32(half[i]);
        break;
    case DTYPE_BF16:
        for (int64_t i = 0; i < n; i++)
            y[i] = bf16_to_f32(half[i]);
        break;
    }
}

void dtype_store(void *y, const float *x, enum dtype dtype, int64_t n)
{
    uint16_t *half = y;
    switch (dtype) {
    case DTYPE_F32:
        memcpy(y, x, (size_t)n * sizeof *x);
        break;
    case DTYPE_F16:
        for (int64_t i = 0; i < n; i++)
            half[i] = f32_to_f16(x[i]);
        break;
    case DTYPE_BF16:
        for (int64_t i = 0; i < n; i++)
            half[i] = f32_to_bf16(x[i]);
        break;
    }
}
