#include "kernel_clock.h"

#include "base/clock.h"
#include "device/device.h"

#include <stdio.h>
#include <string.h>

#define MAX_ENTRIES 64

struct entry {
    char name[48];
    int64_t calls;
    double seconds, flops, bytes;
};

/* A function of the table has no room for a context, so the clock is one for all. */
static struct {
    const struct kernels *k;
    struct entry entries[MAX_ENTRIES];
    int n;
    bool is_stopped;
} all;

static struct entry *entry_of(const char *name)
{
    for (int i = 0; i < all.n; i++)
        if (strcmp(all.entries[i].name, name) == 0)
            return &all.entries[i];
    struct entry *e = &all.entries[all.n < MAX_ENTRIES - 1 ? all.n++ : MAX_ENTRIES - 1];
    snprintf(e->name, sizeof e->name, "%s", name);
    return e;
}

static void add(const char *name, double start, double flops, double bytes)
{
    if (all.is_stopped)
        return;
    struct entry *e = entry_of(name);
    e->seconds += clock_seconds() - start;
    e->calls++;
    e->flops += flops;
    e->bytes += bytes;
}

/* Bytes of n elements of the device's type. */
static double typed(const struct stream *s, int64_t n)
{
    return (double)n * (double)dtype_bytes(s->dev->dtype);
}

static double floats(int64_t n)
{
    return (double)n * (double)sizeof(float);
}

/* Whether the parameters are another array than the master weights. */
static bool is_rounded(const struct update *u)
{
    return u->param && u->param != u->master;
}

/* A kernel whose work is so many bytes read and written. */
#define TIMED(name, bytes, parameters, arguments)                                        \
    static void timed_##name parameters                                                  \
    {                                                                                    \
        double start = clock_seconds();                                                  \
        all.k->name arguments;                                                           \
        add(#name, start, 0, bytes);                                                     \
    }

TIMED(embedding_fwd, floats(2 * e->B * e->S * e->H),
      (struct stream * s, float *x, const struct embedding *e), (s, x, e))
TIMED(embedding_bwd, typed(s, e->B * e->S * e->H) + floats(4 * e->B * e->S * e->H),
      (struct stream * s, const struct embedding_bwd *e), (s, e))
TIMED(layernorm_fwd, typed(s, 2 * ln->N * ln->C),
      (struct stream * s, const struct layernorm *ln), (s, ln))
TIMED(layernorm_again, typed(s, 2 * ln->N * ln->C),
      (struct stream * s, const struct layernorm *ln), (s, ln))
TIMED(layernorm_bwd, typed(s, 4 * ln->N * ln->C),
      (struct stream * s, const struct layernorm_bwd *ln), (s, ln))
TIMED(bias_grad, typed(s, N *C),
      (struct stream * s, float *db, const void *dy, float *partial, int64_t N,
       int64_t C),
      (s, db, dy, partial, N, C))
TIMED(activation_fwd, typed(s, 2 * a->N * a->C),
      (struct stream * s, const struct activation_fwd *a), (s, a))
TIMED(activation_bwd, typed(s, (a->y ? 4 : 3) * a->N * a->C),
      (struct stream * s, const struct activation_bwd *a), (s, a))
TIMED(bias_dropout_residual,
      typed(s, 2 * r->B * r->S * r->C) + floats(r->B * r->S * r->C),
      (struct stream * s, const struct residual *r), (s, r))
TIMED(dropout_fwd, typed(s, B *S *C) + floats(B * S * C),
      (struct stream * s, void *y, const float *x, int64_t B, int64_t S, int64_t C,
       const struct dropout *drop),
      (s, y, x, B, S, C, drop))
TIMED(xent_max, floats(x->R * x->V), (struct stream * s, const struct xent *x), (s, x))
TIMED(xent_exp, floats(2 * x->R * x->V), (struct stream * s, const struct xent *x),
      (s, x))
TIMED(xent_grad, floats(x->R * x->V) + typed(s, x->R * x->V),
      (struct stream * s, const struct xent *x), (s, x))
TIMED(adamw,
      floats(6 * u->n) + (double)u->n * ((double)dtype_bytes(u->grad_dtype) +
                                         (is_rounded(u) ? 2.0 : 0.0)),
      (struct stream * s, const struct update *u, const struct adamw *a), (s, u, a))
TIMED(sum_squares, (double)n *(double)dtype_bytes(dtype),
      (struct stream * s, double *partial, const void *x, enum dtype dtype, int64_t n),
      (s, partial, x, dtype, n))
TIMED(load, floats(n) + (double)n * (double)dtype_bytes(dtype),
      (struct stream * s, float *y, const void *x, enum dtype dtype, int64_t n),
      (s, y, x, dtype, n))
TIMED(store, floats(n) + (double)n * (double)dtype_bytes(dtype),
      (struct stream * s, void *y, const float *x, enum dtype dtype, int64_t n),
      (s, y, x, dtype, n))
TIMED(store_add, floats(n) + 2.0 * (double)n * (double)dtype_bytes(dtype),
      (struct stream * s, void *y, const float *x, enum dtype dtype, int64_t n),
      (s, y, x, dtype, n))
TIMED(add_stored, 3.0 * (double)n * (double)dtype_bytes(dtype),
      (struct stream * s, void *y, const void *x, enum dtype dtype, int64_t n),
      (s, y, x, dtype, n))
TIMED(copy, floats(2 * n), (struct stream * s, float *x, const float *y, int64_t n),
      (s, x, y, n))
TIMED(add, floats(3 * n), (struct stream * s, float *x, const float *y, int64_t n),
      (s, x, y, n))
TIMED(fill, floats(n), (struct stream * s, float *x, float value, int64_t n),
      (s, x, value, n))

static const void *timed_dropout_bwd(struct stream *s, void *dx, const void *dy,
                                     int64_t B, int64_t S, int64_t C,
                                     const struct dropout *drop)
{
    double start = clock_seconds();
    const void *d = all.k->dropout_bwd(s, dx, dy, B, S, C, drop);
    add("dropout_bwd", start, 0, d == dy ? 0 : typed(s, 2 * B * S * C));
    return d;
}

/* A product of m x n x k, of operands of the device's type. */
static void add_product(const struct stream *s, const char *kind, int64_t m, int64_t n,
                        int64_t k, enum dtype result, bool adds, double start)
{
    char name[48];
    snprintf(name, sizeof name, "%s %lld x %lld x %lld", kind, (long long)m, (long long)n,
             (long long)k);
    add(name, start, 2.0 * (double)m * (double)n * (double)k,
        typed(s, m * k + k * n) +
            (double)(m * n) * (double)dtype_bytes(result) * (adds ? 2 : 1));
}

static void timed_linear_fwd(struct stream *s, const struct linear *l)
{
    double start = clock_seconds();
    const char *kind = !l->bias                    ? "product"
                       : l->act == ACTIVATION_NONE ? "linear_bias"
                                                   : "linear_bias_gelu";
    all.k->linear_fwd(s, l);
    add_product(s, kind, l->N, l->w->rows, l->w->cols, l->y_dtype, false, start);
}

static void timed_linear_bwd_input(struct stream *s, const struct linear_bwd_input *l)
{
    double start = clock_seconds();
    all.k->linear_bwd_input(s, l);
    add_product(s, "product", l->N, l->w->cols, l->w->rows, l->dx_dtype, false, start);
}

static void timed_linear_bwd_weight(struct stream *s, const struct linear_bwd_weight *l)
{
    double start = clock_seconds();
    all.k->linear_bwd_weight(s, l);
    add_product(s, "product", l->dw->rows, l->dw->cols, l->N, l->dw->dtype, l->accumulate,
                start);
}

/* Operations of `products` products over the causal half of S x S. */
static double attention_flops(const struct attention *at, double products)
{
    return products * (double)(at->B * at->A * at->D) * (double)(at->S * at->S);
}

static void timed_attention_fwd(struct stream *s, const struct attention *at)
{
    double start = clock_seconds();
    all.k->attention_fwd(s, at);
    add("attention_fwd", start, attention_flops(at, 2),
        typed(s, 4 * at->B * at->S * at->A * at->D));
}

static void timed_attention_bwd(struct stream *s, const struct attention_bwd *at)
{
    double start = clock_seconds();
    all.k->attention_bwd(s, at);
    add("attention_bwd", start, attention_flops(&at->fwd, 4),
        typed(s, 8 * at->fwd.B * at->fwd.S * at->fwd.A * at->fwd.D));
}

const struct kernels *kernel_clock_table(const struct kernels *k)
{
    static struct kernels table;
    if (k == &table)
        return &table;
    all.k = k;
    table = *k;
    table.embedding_fwd = timed_embedding_fwd;
    table.embedding_bwd = timed_embedding_bwd;
    table.layernorm_fwd = timed_layernorm_fwd;
    table.layernorm_again = timed_layernorm_again;
    table.layernorm_bwd = timed_layernorm_bwd;
    table.linear_fwd = timed_linear_fwd;
    table.linear_bwd_input = timed_linear_bwd_input;
    table.linear_bwd_weight = timed_linear_bwd_weight;
    table.bias_grad = timed_bias_grad;
    table.activation_fwd = timed_activation_fwd;
    table.activation_bwd = timed_activation_bwd;
    table.bias_dropout_residual = timed_bias_dropout_residual;
    table.dropout_fwd = timed_dropout_fwd;
    table.dropout_bwd = timed_dropout_bwd;
    table.attention_fwd = timed_attention_fwd;
    table.attention_bwd = timed_attention_bwd;
    table.xent_max = timed_xent_max;
    table.xent_exp = timed_xent_exp;
    table.xent_grad = timed_xent_grad;
    table.adamw = timed_adamw;
    table.sum_squares = timed_sum_squares;
    table.load = timed_load;
    table.store = timed_store;
    table.store_add = timed_store_add;
    table.add_stored = timed_add_stored;
    table.copy = timed_copy;
    table.add = timed_add;
    table.fill = timed_fill;
    return &table;
}

void kernel_clock_stop(void)
{
    all.is_stopped = true;
}

void kernel_clock_reset(void)
{
    all.n = 0;
    memset(all.entries, 0, sizeof all.entries);
}

void kernel_clock_print(int64_t n_steps)
{
    double n = (double)n_steps;
    printf("[");
    for (int i = 0; i < all.n; i++) {
        const struct entry *e = &all.entries[i];
        printf("%s{\"name\": \"%s\", \"calls\": %.0f, \"seconds\": %.6f, "
               "\"flops\": %.0f, \"bytes\": %.0f}",
               i ? ", " : "", e->name, (double)e->calls / n, e->seconds / n, e->flops / n,
               e->bytes / n);
    }
    printf("]");
}
