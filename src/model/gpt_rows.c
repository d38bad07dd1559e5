/*
 * What happens between the products of a block, row by row: norms, dropout, residuals.
 *
 * Without sequence parallelism every process of the group computes all rows and partial
 * sums are summed everywhere (all-reduce). With it, a process has the rows of its part of
 * each sequence: partial sums are summed to where they belong (reduce-scatter), and what
 * a product needs is brought together before it (all-gather). The bytes moved are the
 * same; the memory of what lies between blocks, and its arithmetic, is divided by mp.
 *
 * A "piece" is a run of rows that is contiguous in both views: the whole batch without
 * sequence parallelism, one sample's part with it.
 */
#include "model/gpt_internal.h"

struct piece {
    int64_t own, all; // first row in own rows, and in all rows
    int64_t B, S;     // samples, and rows of each
};

static int64_t n_pieces(const struct gpt *g, const struct gpt_batch *batch)
{
    return g->sp == 1 ? 1 : batch->B;
}

static struct piece piece_of(const struct gpt *g, const struct gpt_batch *batch,
                             int64_t i)
{
    if (g->sp == 1)
        return (struct piece){0, 0, batch->B, batch->S};
    int64_t S = batch->S / g->sp;
    return (struct piece){i * S, i * batch->S + g->part.mp_rank * S, 1, S};
}

int64_t gpt_own_rows(const struct gpt *g, const struct gpt_batch *batch)
{
    return batch->B * (batch->S / g->sp);
}

/* The dropout of a piece: its sample and its first row. */
static struct dropout piece_dropout(const struct gpt *g, const struct gpt_batch *batch,
                                    int64_t i, const struct dropout *drop)
{
    struct dropout of_piece = *drop;
    if (g->sp > 1) {
        of_piece.first_sample += (uint32_t)i;
        of_piece.first_row = (uint32_t)(g->part.mp_rank * (batch->S / g->sp));
    }
    return of_piece;
}

/* Where each process's rows of one sample begin, in elements. */
static const int64_t *sample_bounds(struct gpt *g, const struct gpt_batch *batch)
{
    int64_t *bounds = g->scratch.bounds;
    for (int r = 0; r <= g->sp; r++)
        bounds[r] = r * (batch->S / g->sp) * g->dims.H;
    return bounds;
}

/* x (all rows): own rows become their sums over the group. */
static void sum_rows(struct gpt *g, const struct gpt_batch *batch, float *x)
{
    struct error err;
    int64_t each = batch->S * g->dims.H;
    if (g->sp == 1) {
        gpt_sum_over_model(g, x, batch->B * each);
        return;
    }
    const int64_t *bounds = sample_bounds(g, batch);
    for (int64_t b = 0; b < batch->B; b++)
        if (comm_reduce_scatter_f32(g->model_group, x + b * each, bounds, &err))
            gpt_lost_peer(g, &err);
}

/* x (all rows): the rows of the others become what they hold. */
static void gather_rows(struct gpt *g, const struct gpt_batch *batch, float *x)
{
    struct error err;
    int64_t each = batch->S * g->dims.H;
    if (g->sp == 1)
        return;
    const int64_t *bounds = sample_bounds(g, batch);
    for (int64_t b = 0; b < batch->B; b++)
        if (comm_allgather_f32(g->model_group, x + b * each, bounds, &err))
            gpt_lost_peer(g, &err);
}

void gpt_norm_fwd(struct gpt *g, const struct gpt_batch *batch, float *y, float *mean,
                  float *rstd, const float *x, const float *gain, const float *bias)
{
    int64_t H = g->dims.H;
    for (int64_t i = 0; i < n_pieces(g, batch); i++) {
        struct piece p = piece_of(g, batch, i);
        g->k->layernorm_fwd(g->s, &(struct layernorm){.y = y + p.all * H,
                                                      .mean = mean + p.own,
                                                      .rstd = rstd + p.own,
                                                      .x = x + p.own * H,
                                                      .g = gain,
                                                      .b = bias,
                                                      .N = p.B * p.S,
                                                      .C = H});
    }
    gather_rows(g, batch, y);
}

void gpt_norm_again(struct gpt *g, const struct gpt_batch *batch, float *y,
                    const float *x, float *mean, float *rstd, const float *gain,
                    const float *bias)
{
    int64_t H = g->dims.H;
    for (int64_t i = 0; i < n_pieces(g, batch); i++) {
        struct piece p = piece_of(g, batch, i);
        g->k->layernorm_again(g->s, &(struct layernorm){.y = y + p.all * H,
                                                        .mean = mean + p.own,
                                                        .rstd = rstd + p.own,
                                                        .x = x + p.own * H,
                                                        .g = gain,
                                                        .b = bias,
                                                        .N = p.B * p.S,
                                                        .C = H});
    }
    gather_rows(g, batch, y);
}

void gpt_norm_bwd(struct gpt *g, const struct gpt_batch *batch, float *dx, float *dgain,
                  float *dbias, float *dy, const float *x, const float *gain,
                  const float *mean, const float *rstd)
{
    int64_t H = g->dims.H;
    sum_rows(g, batch, dy);
    for (int64_t i = 0; i < n_pieces(g, batch); i++) {
        struct piece p = piece_of(g, batch, i);
        g->k->layernorm_bwd(g->s, &(struct layernorm_bwd){.dx = dx + p.own * H,
                                                          .dg = dgain,
                                                          .db = dbias,
                                                          .dy = dy + p.all * H,
                                                          .x = x + p.own * H,
                                                          .g = gain,
                                                          .mean = mean + p.own,
                                                          .rstd = rstd + p.own,
                                                          .partial = g->scratch.partial,
                                                          .N = p.B * p.S,
                                                          .C = H});
    }
}

void gpt_residual(struct gpt *g, const struct gpt_batch *batch, float *y,
                  const float *res, float *x, const float *bias,
                  const struct dropout *drop)
{
    int64_t H = g->dims.H;
    sum_rows(g, batch, x);
    for (int64_t i = 0; i < n_pieces(g, batch); i++) {
        struct piece p = piece_of(g, batch, i);
        g->k->bias_dropout_residual(
            g->s, &(struct residual){.y = y + p.own * H,
                                     .res = res + p.own * H,
                                     .x = x + p.all * H,
                                     .b = bias,
                                     .B = p.B,
                                     .S = p.S,
                                     .C = H,
                                     .drop = piece_dropout(g, batch, i, drop)});
    }
}

const float *gpt_dropout_bwd(struct gpt *g, const struct gpt_batch *batch, float *all,
                             const float *dy, const struct dropout *drop)
{
    int64_t H = g->dims.H;
    if (g->sp == 1)
        return g->k->dropout_bwd(g->s, all, dy, batch->B, batch->S, H, drop);
    for (int64_t i = 0; i < batch->B; i++) {
        struct piece p = piece_of(g, batch, i);
        struct dropout of_piece = piece_dropout(g, batch, i, drop);
        const float *d = g->k->dropout_bwd(g->s, all + p.all * H, dy + p.own * H, p.B,
                                           p.S, H, &of_piece);
        if (d != all + p.all * H)
            g->k->copy(g->s, all + p.all * H, d, p.S * H);
    }
    gather_rows(g, batch, all);
    return all;
}

void gpt_scatter(struct gpt *g, const struct gpt_batch *batch, float *y, float *x,
                 const struct dropout *drop)
{
    int64_t H = g->dims.H;
    sum_rows(g, batch, x);
    for (int64_t i = 0; i < n_pieces(g, batch); i++) {
        struct piece p = piece_of(g, batch, i);
        struct dropout of_piece = piece_dropout(g, batch, i, drop);
        const float *d =
            g->k->dropout_bwd(g->s, y + p.own * H, x + p.all * H, p.B, p.S, H, &of_piece);
        if (d != y + p.own * H)
            g->k->copy(g->s, y + p.own * H, d, p.B * p.S * H);
    }
}
