/*
 * A product and what follows it, in panels of rows: the pass over a panel finds it in the
 * last cache, however many rows there are. BLIS packs B once a panel, so panels are high;
 * a product of one panel costs just what the product and the pass cost apart.
 */
#include "device/cpu/cpu.h"

#define PANEL_ROWS 1024

/* Rows first .. first + PANEL_ROWS of the product, as far as there are. */
static struct gemm panel_of(const struct gemm *g, int64_t first)
{
    struct gemm panel = *g;
    panel.m = i64_min(PANEL_ROWS, g->m - first);
    panel.a += first * g->a_row;
    panel.c += first * g->c_row;
    return panel;
}

void K(linear)(struct stream *s, const struct linear *l)
{
    const struct gemm *g = &l->product;
    for (int64_t first = 0; first < g->m; first += PANEL_ROWS) {
        struct gemm panel = panel_of(g, first);
        gemm_blis(s, &panel);
        struct activation_fwd pass = {.act = l->act,
                                      .y = l->y ? l->y + first * g->n : NULL,
                                      .x = panel.c,
                                      .b = l->bias,
                                      .N = panel.m,
                                      .C = panel.n};
        if (l->act == ACTIVATION_NONE)
            K(bias_add)(s, panel.c, l->bias, panel.m, panel.n);
        else
            K(activation_fwd)(s, &pass);
    }
}
