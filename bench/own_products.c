#include "own_products.h"

#include "measure.h"

#include <stdlib.h>

void product_memory_open(struct product_memory *p, enum dtype dtype,
                         const struct product *shape)
{
    *p = (struct product_memory){
        .dtype = dtype,
        .a = measure_elements(dtype, shape->m * shape->k),
        .b = measure_elements(dtype, shape->k * shape->n),
        .c = measure_elements(dtype, shape->m * shape->n),
    };
}

void product_memory_close(struct product_memory *p)
{
    free(p->a);
    free(p->b);
    free(p->c);
}

double product_flops(const struct product *shape)
{
    return 2.0 * (double)shape->m * (double)shape->n * (double)shape->k;
}

static void gemm_once(struct device *dev, const struct product *shape,
                      const struct product_memory *p)
{
    int64_t m = shape->m, n = shape->n, k = shape->k;
    bool is_a_turned = shape->form == PRODUCT_BY_WEIGHT;
    bool is_b_turned = shape->form == PRODUCT_FORWARD;
    struct gemm g = {.m = m,
                     .n = n,
                     .k = k,
                     .a = p->a,
                     .a_row = is_a_turned ? 1 : k,
                     .a_col = is_a_turned ? m : 1,
                     .b = p->b,
                     .b_row = is_b_turned ? 1 : n,
                     .b_col = is_b_turned ? k : 1,
                     .c = p->c,
                     .c_row = n,
                     .c_col = 1};
    dev->k->gemm(device_stream(dev, STREAM_COMPUTE), &g);
}

/* The weight counts as a new one every time: a step packs it once. */
static void linear_once(struct device *dev, const struct product *shape,
                        const struct product_memory *p)
{
    static uint64_t version;
    struct stream *s = device_stream(dev, STREAM_COMPUTE);
    bool is_forward = shape->form == PRODUCT_FORWARD;
    struct weight w = {.data = p->b,
                       .dtype = p->dtype,
                       .rows = is_forward ? shape->n : shape->k,
                       .cols = is_forward ? shape->k : shape->n,
                       .version = ++version};
    struct weight dw = {
        .data = p->c, .dtype = p->dtype, .rows = shape->m, .cols = shape->n};
    struct linear forward = {
        .w = &w, .x = p->a, .y = p->c, .y_dtype = p->dtype, .N = shape->m};
    struct linear_bwd_input by_input = {.dx = p->c,
                                        .dx_dtype = p->dtype,
                                        .dy = p->a,
                                        .dy_row = shape->k,
                                        .w = &w,
                                        .N = shape->m};
    struct linear_bwd_weight by_weight = {
        .dw = &dw, .dy = p->a, .dy_row = shape->m, .x = p->b, .N = shape->k};
    switch (shape->form) {
    case PRODUCT_FORWARD:
        dev->k->linear_fwd(s, &forward);
        break;
    case PRODUCT_BY_INPUT:
        dev->k->linear_bwd_input(s, &by_input);
        break;
    case PRODUCT_BY_WEIGHT:
        dev->k->linear_bwd_weight(s, &by_weight);
        break;
    }
}

void own_product(struct device *dev, const struct product *shape,
                 const struct product_memory *p)
{
    if (p->dtype == DTYPE_F32)
        gemm_once(dev, shape, p);
    else
        linear_once(dev, shape, p);
}

double own_product_rate(struct device *dev, const struct product *shape, int64_t n)
{
    struct product_memory memory;
    double best = 0;
    product_memory_open(&memory, dev->dtype, shape);
    for (int64_t i = 0; i < n; i++) {
        double start = measure_seconds();
        own_product(dev, shape, &memory);
        double seconds = measure_seconds() - start;
        best = i == 0 || seconds < best ? seconds : best;
    }
    product_memory_close(&memory);
    return product_flops(shape) / best;
}
