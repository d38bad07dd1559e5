#include "kernel_clock.h"

#include "base/clock.h"
#include "device/operands.h"

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

/* Products are told apart by their shape, and those that add a bias by that. */
static void name_product(char name[48], const char *kind, int64_t m, int64_t n, int64_t k)
{
    snprintf(name, 48, "%s %lld x %lld x %lld", kind, (long long)m, (long long)n,
             (long long)k);
}

static void name_call(char name[48], enum operation op, const void *args)
{
    const struct linear *fwd = args;
    const struct linear_bwd_input *by_input = args;
    const struct linear_bwd_weight *by_weight = args;
    if (op == OP_linear_fwd)
        name_product(name,
                     !fwd->bias                    ? "product"
                     : fwd->act == ACTIVATION_NONE ? "linear_bias"
                                                   : "linear_bias_gelu",
                     fwd->N, fwd->w->rows, fwd->w->cols);
    else if (op == OP_linear_bwd_input)
        name_product(name, "product", by_input->N, by_input->w->cols, by_input->w->rows);
    else if (op == OP_linear_bwd_weight)
        name_product(name, "product", by_weight->dw->rows, by_weight->dw->cols,
                     by_weight->N);
    else
        snprintf(name, 48, "%s", operation_name(op));
}

static void timed(struct stream *s, enum operation op, const void *args)
{
    char name[48];
    double start = clock_seconds();
    operation_run(all.k, op, s, args);
    double seconds = clock_seconds() - start;
    if (all.is_stopped)
        return;
    struct operation_work work = operation_work(op, args, s->dev);
    name_call(name, op, args);
    struct entry *e = entry_of(name);
    e->seconds += seconds;
    e->calls++;
    e->flops += work.flops;
    e->bytes += work.bytes;
}

#define TIMED(name, args)                                                                \
    static void timed_##name(struct stream *s, const struct args *a)                     \
    {                                                                                    \
        timed(s, OP_##name, a);                                                          \
    }
OPERATIONS(TIMED)

#define ENTRY(name, args) .name = timed_##name,
const struct kernels *kernel_clock_table(const struct kernels *k)
{
    static struct kernels table = {OPERATIONS(ENTRY)};
    if (k == &table)
        return &table;
    all.k = k;
    table.name = k->name;
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
