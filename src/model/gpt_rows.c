/*
 * What happens between the GEMMs of a block, row by row: norms, dropout, residuals.
 *
 * Without sequence parallelism every process of the group computes all rows and partial
 * sums are all-reduced. With it, a process has the rows of its part of each sequence:
 * partial sums are reduce-scattered, and the input of a GEMM is all-gathered before it.
 * The bytes moved are the same; the memory of what lies between blocks, and its
 * arithmetic, is divided by mp.
 *
 * A "piece" is a run of rows that is contiguous in both views: the whole batch without
 * sequence parallelism, one sample's part with it.
 */
#include "model/gpt_internal.h"

struct piece {
    int64_t own, all; // first row in own rows, and in all rows
    int64_t B, S;     // samples, and rows of each
};

static int64_t n_pieces(const struct gpt *g, const struct batch *batch)
{
    return g->sp == 1 ? 1 : batch->B;
}

static struct piece piece_of(const struct gpt *g, const struct batch *batch, int64_t i)
{
    if (g->sp == 1)
        return (struct piece){0, 0, batch->B, batch->S};
    int64_t S = batch->S / g->sp;
    return (struct piece){i * S, i * batch->S + g->part.mp_rank * S, 1, S};
}

int64_t gpt_own_rows(const struct gpt *g, const struct batch *batch)
{
    return batch->B * (batch->S / g->sp);
}

/* The dropout of a piece: its sample and its first row. */
static struct dropout piece_dropout(const struct gpt *g, const struct batch *batch,
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
static const int64_t *sample_bounds(struct gpt *g, const struct batch *batch)
{
    int64_t *bounds = g->scratch.bounds;
    for (int r = 0; r <= g->sp; r++)
        bounds[r] = r * (batch->S / g->sp) * g->dims.H;
    return bounds;
}

/* x (all rows): reduce-scatter; own rows become their sums over the group. */
static void sum_rows(struct gpt *g, const struct batch *batch, float *x)
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

/* x (all rows): all-gather; the rows of the others become what they hold. */
static void gather_rows(struct gpt *g, const struct batch *batch, void *x)
{
    struct error err;
    int64_t each = batch->S * g->dims.H;
    if (g->sp == 1)
        return;
    const int64_t *bounds = sample_bounds(g, batch);
    for (int64_t b = 0; b < batch->B; b++)
        if (comm_allgather(g->model_group, gpt_at(g, x, b * each), gpt_bytes(g, 1),
                           bounds, &err))
            gpt_lost_peer(g, &err);
}

/* Rows of one piece. */
static struct layernorm norm_of(const struct gpt *g, const struct gpt_norm *norm,
                                const struct piece *p, void *y, const void *x)
{
    int64_t H = g->dims.H;
    return (struct layernorm){.y = gpt_at(g, y, p->all * H),
                              .mean = norm->mean + p->own,
                              .rstd = norm->rstd + p->own,
                              .x = gpt_at_const(g, x, p->own * H),
                              .g = norm->gain,
                              .b = norm->bias,
                              .N = p->B * p->S,
                              .C = H,
                              .epsilon = g->norm_epsilon};
}

void gpt_norm_fwd(struct gpt *g, const struct batch *batch, const struct gpt_norm *norm,
                  void *y, const void *x)
{
    for (int64_t i = 0; i < n_pieces(g, batch); i++) {
        struct piece p = piece_of(g, batch, i);
        struct layernorm ln = norm_of(g, norm, &p, y, x);
        g->k->layernorm_fwd(g->s, &ln);
    }
    gather_rows(g, batch, y);
}

void gpt_norm_again(struct gpt *g, const struct batch *batch, const struct gpt_norm *norm,
                    void *y, const void *x)
{
    for (int64_t i = 0; i < n_pieces(g, batch); i++) {
        struct piece p = piece_of(g, batch, i);
        struct layernorm ln = norm_of(g, norm, &p, y, x);
        g->k->layernorm_again(g->s, &ln);
    }
    gather_rows(g, batch, y);
}

int64_t gpt_norm_partials(const struct gpt *g)
{
    const struct gpt_dims *d = &g->dims;
    return g->sp == 1 ? kernel_partials(d->N, 2 * d->H)
                      : d->B * kernel_partials(d->S / g->sp, 2 * d->H);
}

struct gpt_norm_grad gpt_norm_grad(const struct gpt *g)
{
    if (g->part.mp > 1)
        return (struct gpt_norm_grad){g->scratch.hidden, DTYPE_F32};
    return (struct gpt_norm_grad){g->scratch.norm, g->dtype};
}

/* The gradient of a norm's output, summed over the group, for n elements from `at` on: as
 * the model's type. */
static const void *summed_grad(const struct gpt *g, int64_t at, int64_t n)
{
    struct gpt_norm_grad grad = gpt_norm_grad(g);
    if (grad.dtype == g->dtype)
        return gpt_at(g, grad.dy, at);
    void *rounded = gpt_at(g, g->scratch.norm, at);
    g->k->store(g->s,
                &(struct convert){rounded, (const float *)grad.dy + at, g->dtype, n});
    return rounded;
}

void gpt_norm_bwd(struct gpt *g, const struct batch *batch, const struct gpt_norm *norm,
                  void *dx, const void *x)
{
    int64_t H = g->dims.H;
    if (g->part.mp > 1)
        sum_rows(g, batch, g->scratch.hidden);
    for (int64_t i = 0; i < n_pieces(g, batch); i++) {
        struct piece p = piece_of(g, batch, i);
        int64_t N = p.B * p.S;
        g->k->layernorm_bwd(g->s,
                            &(struct layernorm_bwd){
                                .dx = gpt_at(g, dx, p.own * H),
                                .dy = summed_grad(g, p.all * H, N * H),
                                .x = gpt_at_const(g, x, p.own * H),
                                .g = norm->gain,
                                .mean = norm->mean + p.own,
                                .rstd = norm->rstd + p.own,
                                .partial = norm->partial + i * kernel_partials(N, 2 * H),
                                .N = N,
                                .C = H});
    }
}

void gpt_norm_grads(struct gpt *g, const struct batch *batch, const struct gpt_norm *norm)
{
    int64_t H = g->dims.H;
    for (int64_t i = 0; i < n_pieces(g, batch); i++) {
        struct piece p = piece_of(g, batch, i);
        int64_t N = p.B * p.S;
        const float *partial = norm->partial + i * kernel_partials(N, 2 * H);
        g->k->add_partials(g->s,
                           &(struct add_partials){norm->dgain, partial, N, 2 * H, H});
        g->k->add_partials(g->s,
                           &(struct add_partials){norm->dbias, partial + H, N, 2 * H, H});
    }
    // with sequence parallelism they are sums over own rows only
    if (g->sp > 1 && gpt_completes_grads(g, batch)) {
        gpt_sum_over_model(g, norm->dgain, H);
        gpt_sum_over_model(g, norm->dbias, H);
    }
}

void gpt_residual(struct gpt *g, const struct batch *batch, void *y, const void *res,
                  float *x, const float *bias, const struct dropout *drop)
{
    int64_t H = g->dims.H;
    sum_rows(g, batch, x);
    for (int64_t i = 0; i < n_pieces(g, batch); i++) {
        struct piece p = piece_of(g, batch, i);
        g->k->bias_dropout_residual(
            g->s, &(struct residual){.y = gpt_at(g, y, p.own * H),
                                     .res = gpt_at_const(g, res, p.own * H),
                                     .x = x + p.all * H,
                                     .b = bias,
                                     .B = p.B,
                                     .S = p.S,
                                     .C = H,
                                     .drop = piece_dropout(g, batch, i, drop)});
    }
}

const void *gpt_dropout_bwd(struct gpt *g, const struct batch *batch, void *all,
                            const void *dy, const struct dropout *drop)
{
    int64_t H = g->dims.H;
    if (g->sp == 1 && dropout_is_none(drop))
        return dy;
    if (g->sp == 1) {
        g->k->dropout_bwd(g->s, &(struct dropped){all, dy, batch->B, batch->S, H, *drop});
        return all;
    }
    for (int64_t i = 0; i < batch->B; i++) {
        struct piece p = piece_of(g, batch, i);
        struct dropped d = {.y = gpt_at(g, all, p.all * H),
                            .x = gpt_at_const(g, dy, p.own * H),
                            .B = p.B,
                            .S = p.S,
                            .C = H,
                            .drop = piece_dropout(g, batch, i, drop)};
        if (dropout_is_none(drop))
            gpt_copy(g, d.y, d.x, p.S * H);
        else
            g->k->dropout_bwd(g->s, &d);
    }
    gather_rows(g, batch, all);
    return all;
}

void gpt_scatter(struct gpt *g, const struct batch *batch, void *y, float *x,
                 const struct dropout *drop)
{
    int64_t H = g->dims.H;
    sum_rows(g, batch, x);
    for (int64_t i = 0; i < n_pieces(g, batch); i++) {
        struct piece p = piece_of(g, batch, i);
        g->k->dropout_fwd(g->s,
                          &(struct dropped){.y = gpt_at(g, y, p.own * H),
                                            .x = x + p.all * H,
                                            .B = p.B,
                                            .S = p.S,
                                            .C = H,
                                            .drop = piece_dropout(g, batch, i, drop)});
    }
}
