#include "model/gpt_rate.h"

#include "base/clock.h"

#include <math.h>

#define PAIR_SECONDS 3e-3     // that two products take at least, if the model's do
#define MEASURE_SECONDS 25e-3 // and all rounds together
#define PAIR_FLOPS 2e7        // fewer take that long only when something is in the way
#define TRIES 3               // of every size: other programs may be in the way of one
#define FIRST_SIDE 64         // rows and columns that are tried first
#define FILL_BYTE 0x3c        // a small number in every type

struct products { // x (rows, inner) by w (columns, inner), and back
    struct device *dev;
    void *x, *y, *w;
    size_t x_bytes, y_bytes, w_bytes;
};

static void *get_memory(struct device *dev, int64_t rows, int64_t columns, size_t *bytes)
{
    *bytes = (size_t)rows * (size_t)columns * dtype_bytes(dev->dtype);
    void *memory = dev->ops->alloc(dev, *bytes);
    if (memory)
        device_fill(device_stream(dev, STREAM_COMPUTE), memory, FILL_BYTE, *bytes);
    return memory;
}

static void products_close(struct products *p)
{
    if (p->x)
        device_free(p->dev, p->x, p->x_bytes);
    if (p->y)
        device_free(p->dev, p->y, p->y_bytes);
    if (p->w)
        device_free(p->dev, p->w, p->w_bytes);
}

static int products_open(struct products *p, struct device *dev, const struct gpt_rate *r,
                         struct error *err)
{
    *p = (struct products){.dev = dev};
    p->x = get_memory(dev, r->rows, r->inner, &p->x_bytes);
    p->y = get_memory(dev, r->rows, r->columns, &p->y_bytes);
    p->w = get_memory(dev, r->columns, r->inner, &p->w_bytes);
    if (p->x && p->y && p->w)
        return 0;
    products_close(p);
    return error_set(err, ERROR_RUNTIME,
                     "out of memory for a product of %lld x %lld x %lld",
                     (long long)r->rows, (long long)r->inner, (long long)r->columns);
}

/* Seconds of the product forward and the one back by its input. */
static double products_time(const struct products *p, const struct gpt_rate *r)
{
    struct stream *s = device_stream(p->dev, STREAM_COMPUTE);
    enum dtype dtype = p->dev->dtype;
    struct weight w = {
        .data = p->w, .dtype = dtype, .rows = r->columns, .cols = r->inner};
    struct linear forward = {
        .w = &w, .x = p->x, .y = p->y, .y_dtype = dtype, .N = r->rows};
    struct linear_bwd_input back = {.dx = p->x,
                                    .dx_dtype = dtype,
                                    .dy = p->y,
                                    .dy_row = r->columns,
                                    .w = &w,
                                    .N = r->rows};
    double start = clock_seconds();
    p->dev->k->linear_fwd(s, &forward);
    p->dev->k->linear_bwd_input(s, &back);
    device_synchronize(s);
    return clock_seconds() - start;
}

static double pair_flops(const struct gpt_rate *r)
{
    return 4.0 * (double)r->rows * (double)r->columns * (double)r->inner;
}

/* Larger and larger products up to the model's own, until one takes long enough to be
 * timed; the best of all, since whatever else runs here only makes them slower. */
int gpt_rate_measure(struct gpt_rate *r, int64_t rows, int64_t inner, int64_t columns,
                     struct device *dev, struct error *err)
{
    double start = clock_seconds();
    *r = (struct gpt_rate){.rows = i64_min(rows, FIRST_SIDE),
                           .inner = inner,
                           .columns = i64_min(columns, FIRST_SIDE)};
    for (;;) {
        struct products p;
        if (products_open(&p, dev, r, err))
            return -1;
        double seconds = products_time(&p, r);
        bool is_whole = r->rows == rows && r->columns == columns;
        for (int i = 1; i < TRIES; i++)
            seconds = fmin(seconds, products_time(&p, r));
        bool is_long = seconds >= PAIR_SECONDS && pair_flops(r) >= PAIR_FLOPS;
        bool is_enough = is_long || is_whole;
        while (is_enough && clock_seconds() - start < MEASURE_SECONDS)
            seconds = fmin(seconds, products_time(&p, r));
        products_close(&p);
        r->flops = fmax(r->flops, pair_flops(r) / seconds);
        if (is_enough)
            return 0;
        bool wants_rows = r->rows <= r->columns || r->columns == columns;
        if (wants_rows && r->rows < rows)
            r->rows = i64_min(2 * r->rows, rows);
        else
            r->columns = i64_min(2 * r->columns, columns);
    }
}
