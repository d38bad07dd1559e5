#include "optim/optimizer.h"

#include <math.h>

static int64_t n_chunks(int64_t n)
{
    return i64_round_up(n, KERNEL_SQUARE_CHUNK) / KERNEL_SQUARE_CHUNK;
}

static void layout(struct optimizer *opt, struct arena *ar,
                   const struct param_table *table)
{
    int64_t most_chunks = 0;
    for (int64_t i = 0; i < table->n_params; i++)
        most_chunks = i64_max(most_chunks, n_chunks(table->params[i].n_elements));
    opt->exp_avg = arena_f32(ar, table->n_flat);
    opt->exp_avg_sq = arena_f32(ar, table->n_flat);
    opt->squares = arena_f64(ar, most_chunks);
    opt->row_squares = arena_f64(ar, table->n_params_whole);
}

size_t optimizer_bytes(const struct param_table *table)
{
    struct optimizer measured;
    struct arena ar;
    arena_measure(&ar);
    layout(&measured, &ar, table);
    return ar.used_bytes;
}

int optimizer_open(struct optimizer *opt, const struct param_table *table,
                   const struct kernels *k, const struct config_optim *cfg,
                   struct error *err)
{
    *opt = (struct optimizer){.k = k, .table = table, .cfg = *cfg};
    if (arena_open(&opt->arena, optimizer_bytes(table), "the optimizer", err))
        return -1;
    layout(opt, &opt->arena, table);
    return 0;
}

void optimizer_close(struct optimizer *opt)
{
    arena_close(&opt->arena);
    *opt = (struct optimizer){0};
}

double *optimizer_row_squares(struct optimizer *opt, const float *grads)
{
    for (int64_t i = 0; i < opt->table->n_params_whole; i++)
        opt->row_squares[i] = 0;
    for (int64_t i = 0; i < opt->table->n_params; i++) {
        const struct param *row = &opt->table->params[i];
        double sum = 0;
        if (!row->is_counted)
            continue;
        opt->k->sum_squares(opt->squares, grads + row->offset, row->n_elements);
        for (int64_t c = 0; c < n_chunks(row->n_elements); c++)
            sum += opt->squares[c];
        opt->row_squares[row->number] = sum;
    }
    return opt->row_squares;
}

double optimizer_norm(const struct optimizer *opt)
{
    double total = 0;
    for (int64_t i = 0; i < opt->table->n_params_whole; i++)
        total += opt->row_squares[i];
    return sqrt(total);
}

void optimizer_step(struct optimizer *opt, float *params, const float *grads,
                    double grad_norm, double lr, int64_t update)
{
    const struct config_optim *cfg = &opt->cfg;
    bool is_clipped = cfg->grad_clip > 0 && grad_norm > cfg->grad_clip;
    struct adamw a = {
        .lr = lr,
        .beta1 = cfg->adam_beta1,
        .beta2 = cfg->adam_beta2,
        .epsilon = cfg->adam_epsilon,
        .bias1 = 1.0 - pow(cfg->adam_beta1, (double)update),
        .bias2 = 1.0 - pow(cfg->adam_beta2, (double)update),
        .grad_scale = is_clipped ? cfg->grad_clip / grad_norm : 1.0,
    };
    for (int64_t i = 0; i < opt->table->n_params; i++) {
        const struct param *row = &opt->table->params[i];
        a.decay = row->has_decay ? cfg->weight_decay : 0.0;
        opt->k->adamw(params + row->offset, grads + row->offset,
                      opt->exp_avg + row->offset, opt->exp_avg_sq + row->offset,
                      row->n_elements, &a);
    }
}
