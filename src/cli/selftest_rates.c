/*
 * How fast the device is by itself: copies, products and attention at the sizes of real
 * models. A measurement repeats what it measures until it has taken a while, and waits for
 * the device once, at the end; one repetition before that is not counted.
 */
#include "base/clock.h"
#include "cli/selftest_device.h"

#include <stdio.h>
#include <stdlib.h>

#define SECONDS 0.3 // a measurement takes at least

struct measured {
    struct device *dev;
    struct stream *s;
    void (*run)(struct measured *m);
    void *context;
};

static double seconds_of(struct measured *m, bool is_emulated)
{
    double start, taken;
    int64_t n = 0;
    m->run(m);
    device_synchronize(m->s);
    start = clock_seconds();
    do {
        for (int64_t i = 0, more = i64_max(1, n); i < more; i++, n++)
            m->run(m);
        device_synchronize(m->s);
        taken = clock_seconds() - start;
    } while (taken < SECONDS && !is_emulated);
    return taken / (double)n;
}

static int no_memory(struct error *err)
{
    return error_set(err, ERROR_RUNTIME, "not enough memory to measure");
}

static void figure(struct device_test *t, const char *section, const char *what,
                   double value, const char *unit)
{
    bool has_type = section[0] != 'b';
    device_report_row(
        &t->report,
        &(struct device_row){.section = section,
                             .what = what,
                             .type = has_type ? dtype_name(t->dev->dtype) : NULL,
                             .value = value,
                             .unit = unit,
                             .note = t->is_emulated ? "emulated: says nothing of a GPU"
                                                    : NULL});
}

/* -- copies -------------------------------------------------------------------------- */

struct copies {
    void *to, *from;
    size_t bytes;
    enum copy_kind kind;
};

static void run_copy(struct measured *m)
{
    const struct copies *c = m->context;
    device_copy(m->s, c->to, c->from, c->bytes, c->kind);
}

int selftest_bandwidth(struct device_test *t, struct error *err)
{
    struct device *dev = t->dev;
    size_t bytes = t->is_emulated ? (size_t)1 << 16 : (size_t)1 << 28;
    void *a = dev->ops->alloc(dev, bytes), *b = dev->ops->alloc(dev, bytes);
    void *host = dev->ops->alloc_host(dev, bytes);
    struct copies copies[] = {{b, a, bytes, COPY_ON_DEVICE},
                              {a, host, bytes, COPY_TO_DEVICE},
                              {host, a, bytes, COPY_TO_HOST}};
    static const char *const names[] = {"on the device, read and written",
                                        "pinned memory to the device",
                                        "device to pinned memory"};
    int rc = a && b && host ? 0 : no_memory(err);
    for (size_t i = 0; i < ARRAY_LEN(copies) && rc == 0; i++) {
        struct measured m = {.dev = dev,
                             .s = device_stream(dev, STREAM_COPY),
                             .run = run_copy,
                             .context = &copies[i]};
        double moved = (double)bytes * (copies[i].kind == COPY_ON_DEVICE ? 2 : 1);
        double seconds = seconds_of(&m, t->is_emulated);
        rc = device_check(dev, err);
        if (rc == 0)
            figure(t, "bandwidth", names[i], moved / seconds / 1e9, "GB/s");
    }
    if (a)
        device_free(dev, a, bytes);
    if (b)
        device_free(dev, b, bytes);
    if (host)
        dev->ops->free_host(dev, host, bytes);
    return rc;
}

/* -- products ------------------------------------------------------------------------ */

enum product { FORWARD, BY_INPUT, BY_WEIGHT };

struct products { // those of one block of a model: qkv, projection, the two of the MLP
    int64_t N, H;
    void *x, *y;
    void *w; // (4H, H) elements, for each of them
    enum product kind;
};

static void run_products(struct measured *m)
{
    const struct products *p = m->context;
    const struct kernels *k = m->dev->k;
    enum dtype t = m->dev->dtype;
    const int64_t shapes[][2] = {
        {3 * p->H, p->H}, {p->H, p->H}, {4 * p->H, p->H}, {p->H, 4 * p->H}};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct weight w = {.data = p->w,
                           .dtype = t,
                           .rows = shapes[i][0],
                           .cols = shapes[i][1],
                           .version = 1};
        if (p->kind == FORWARD)
            k->linear_fwd(
                m->s,
                &(struct linear){.w = &w, .x = p->x, .y = p->y, .y_dtype = t, .N = p->N});
        else if (p->kind == BY_INPUT)
            k->linear_bwd_input(m->s, &(struct linear_bwd_input){.dx = p->x,
                                                                 .dx_dtype = t,
                                                                 .dy = p->y,
                                                                 .dy_row = w.rows,
                                                                 .w = &w,
                                                                 .N = p->N});
        else
            k->linear_bwd_weight(
                m->s, &(struct linear_bwd_weight){
                          .dw = &w, .dy = p->y, .dy_row = w.rows, .x = p->x, .N = p->N});
    }
}

static int measure_products(struct device_test *t, int model, struct error *err)
{
    static const char *const names[] = {"forward", "by input", "by weight"};
    const struct device_model *d = &t->models[model];
    struct device *dev = t->dev;
    int64_t N = d->B * d->S, H = d->H;
    size_t rows_bytes = (size_t)(N * 4 * H) * dtype_bytes(dev->dtype);
    size_t w_bytes = (size_t)(4 * H * H) * dtype_bytes(dev->dtype);
    struct products p = {.N = N,
                         .H = H,
                         .x = device_numbers(dev, N * 4 * H, dev->dtype),
                         .y = device_numbers(dev, N * 4 * H, dev->dtype),
                         .w = device_numbers(dev, 4 * H * H, dev->dtype)};
    int rc = p.x && p.y && p.w ? 0 : no_memory(err);
    for (p.kind = FORWARD; p.kind <= BY_WEIGHT && rc == 0; p.kind++) {
        struct measured m = {.dev = dev,
                             .s = device_stream(dev, STREAM_COMPUTE),
                             .run = run_products,
                             .context = &p};
        double rate = 24.0 * (double)(N * H) * (double)H / seconds_of(&m, t->is_emulated);
        char what[64];
        rc = device_check(dev, err);
        snprintf(what, sizeof what, "%s, %lld tokens of %s", names[p.kind], (long long)N,
                 d->name);
        if (rc == 0)
            figure(t, "products", what, rate / 1e12, "TFLOP/s");
        if (p.kind == FORWARD)
            t->product_rate[model][dev->dtype] = rate;
    }
    if (p.x)
        device_free(dev, p.x, rows_bytes);
    if (p.y)
        device_free(dev, p.y, rows_bytes);
    if (p.w)
        device_free(dev, p.w, w_bytes);
    return rc;
}

/* -- attention ----------------------------------------------------------------------- */

struct attentions {
    struct attention_bwd at;
    bool is_backward;
};

static void run_attention(struct measured *m)
{
    const struct attentions *a = m->context;
    if (a->is_backward)
        m->dev->k->attention_bwd(m->s, &a->at);
    else
        m->dev->k->attention_fwd(m->s, &a->at.fwd);
}

/* Half of S x S is seen; two products of it forward, five backward. */
static int measure_attention(struct device_test *t, const struct device_model *d,
                             double rate, struct error *err)
{
    struct device *dev = t->dev;
    enum dtype type = dev->dtype;
    int64_t D = d->H / d->A, N = d->B * d->S, H = d->H;
    size_t each = dtype_bytes(type), qkv_bytes = (size_t)(3 * N * H) * each;
    size_t out_bytes = (size_t)(N * H) * each,
           row_bytes = (size_t)(N * d->A) * sizeof(float);
    char *qkv = device_numbers(dev, 3 * N * H, type),
         *dqkv = dev->ops->alloc(dev, qkv_bytes);
    char *out = dev->ops->alloc(dev, out_bytes), *dout = device_numbers(dev, N * H, type);
    float *lse = dev->ops->alloc(dev, row_bytes),
          *delta = dev->ops->alloc(dev, row_bytes);
    struct attentions a = {
        .at = {.fwd = {.B = d->B,
                       .S = d->S,
                       .A = d->A,
                       .A_kv = d->A,
                       .D = D,
                       .q_row = 3 * H,
                       .kv_row = 3 * H,
                       .out = out,
                       .lse = lse,
                       .drop = rate > 0
                                   ? dropout_init(rate, 7, PHILOX_DROP_ATTENTION, 0, 1, 0)
                                   : dropout_none()},
               .dout = dout,
               .delta = delta}};
    int rc = qkv && dqkv && out && dout && lse && delta ? 0 : no_memory(err);
    for (int backward = 0; backward < 2 && rc == 0; backward++) {
        struct measured m = {.dev = dev,
                             .s = device_stream(dev, STREAM_COMPUTE),
                             .run = run_attention,
                             .context = &a};
        char what[64];
        a.is_backward = backward;
        a.at.fwd.q = qkv;
        a.at.fwd.k = qkv + (size_t)H * each;
        a.at.fwd.v = qkv + (size_t)(2 * H) * each;
        a.at.dq = dqkv;
        a.at.dk = dqkv + (size_t)H * each;
        a.at.dv = dqkv + (size_t)(2 * H) * each;
        double flops = (backward ? 5.0 : 2.0) * (double)(N * d->S) * (double)H;
        double speed = flops / seconds_of(&m, t->is_emulated);
        rc = device_check(dev, err);
        snprintf(what, sizeof what, "%s, %s%s", backward ? "backward" : "forward",
                 d->name, rate > 0 ? ", dropout" : "");
        if (rc == 0)
            figure(t, "attention", what, speed / 1e12, "TFLOP/s");
    }
    void *const memory[] = {qkv, dqkv, out, dout, lse, delta};
    const size_t bytes[] = {qkv_bytes, qkv_bytes, out_bytes,
                            out_bytes, row_bytes, row_bytes};
    for (size_t i = 0; i < ARRAY_LEN(memory); i++)
        if (memory[i])
            device_free(dev, memory[i], bytes[i]);
    return rc;
}

int selftest_rates(struct device_test *t, struct error *err)
{
    for (int i = 0; t->models[i].name; i++)
        if (measure_products(t, i, err) || measure_attention(t, &t->models[i], 0, err) ||
            measure_attention(t, &t->models[i], 0.1, err))
            return -1;
    return 0;
}
