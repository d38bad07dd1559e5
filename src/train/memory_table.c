#include "train/memory_table.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

#define MB 1e6

static void log_row(const char *name, const struct plan_memory *m, const double *peak)
{
    char measured[64] = "";
    if (peak)
        snprintf(measured, sizeof measured, " %11.1f %+7.1f%%", *peak / MB,
                 100.0 * (*peak / m->total - 1.0));
    char offloaded[64] = "";
    if (m->offloaded > 0)
        snprintf(offloaded, sizeof offloaded, "  + %.1f on disk", m->offloaded / MB);
    log_info("%-9s %10.1f %10.1f %10.1f %11.1f %10.1f %10.1f %9.1f %11.1f%s%s", name,
             m->params / MB, m->grads / MB, m->optimizer / MB, m->activations / MB,
             m->comm / MB, m->scratch / MB, m->program / MB, m->total / MB, measured,
             offloaded);
}

static bool are_equal(const struct plan_memory *a, const struct plan_memory *b)
{
    struct plan_memory x = *a, y = *b;
    x.total -= x.program; // differs a little from process to process
    y.total -= y.program;
    return x.params == y.params && x.grads == y.grads && x.optimizer == y.optimizer &&
           x.activations == y.activations && x.comm == y.comm && x.scratch == y.scratch &&
           x.offloaded == y.offloaded;
}

void memory_table_log(const struct plan_memory *rows, const double *peak, int n)
{
    enum { MOST_ROWS = 64 }; // above, equal neighbours share a row
    log_info("%-9s %10s %10s %10s %11s %10s %10s %9s %11s%s", "MB", "parameters",
             "gradients", "optimizer", "activations", "comm", "scratch", "program",
             peak ? "predicted" : "total", peak ? "    measured" : "");
    for (int i = 0; i < n;) {
        char name[32];
        int end = i + 1;
        while (n > MOST_ROWS && end < n && are_equal(&rows[i], &rows[end]))
            end++;
        if (end == i + 1)
            snprintf(name, sizeof name, "rank %d", i);
        else
            snprintf(name, sizeof name, "%d-%d", i, end - 1);
        log_row(name, &rows[i], peak ? &peak[i] : NULL);
        i = end;
    }
}
