/* Each function names the tensors of its kernel, and calls it. */
#include "device_call.h"

#include "test.h"

/* -- embedding and norm -------------------------------------------------------------- */

static int64_t rows_of(const int32_t *ids, int64_t n)
{
    int32_t most = -1;
    for (int64_t i = 0; i < n; i++)
        most = ids[i] > most ? ids[i] : most;
    return most + 1;
}

static void hosted_embedding_fwd(struct stream *s, float *x, const struct embedding *e)
{
    struct call c = call_open(s);
    struct embedding d = *e;
    struct weight wte = *e->wte, wpe = {0};
    int64_t N = e->B * e->S;
    size_t ids = (size_t)N * sizeof *e->tokens;
    call_writes(&c, &x, N * e->H, DTYPE_F32);
    call_weight(&c, &wte, rows_of(e->tokens, N), e->H, false);
    d.wte = &wte;
    if (e->wpe) {
        wpe = *e->wpe;
        call_weight(&c, &wpe, rows_of(e->positions, N), e->H, false);
        d.wpe = &wpe;
    }
    call_array(&c, &d.tokens, ids);
    call_array(&c, &d.positions, ids);
    call_begin(&c);
    c.k->embedding_fwd(c.s, x, &d);
    call_end(&c);
}

static void hosted_embedding_bwd(struct stream *s, const struct embedding_bwd *e)
{
    struct call c = call_open(s);
    struct embedding_bwd d = *e;
    int64_t N = e->B * e->S;
    size_t ids = (size_t)N * sizeof *e->tokens;
    call_writes(&c, &d.dwte, rows_of(e->tokens, N) * e->H, DTYPE_F32);
    call_writes(&c, &d.dwpe, e->dwpe ? rows_of(e->positions, N) * e->H : 0, DTYPE_F32);
    call_reads(&c, &d.dx, N * e->H, c.dtype);
    call_array(&c, &d.tokens, ids);
    call_array(&c, &d.positions, ids);
    call_begin(&c);
    c.k->embedding_bwd(c.s, &d);
    call_end(&c);
}

static void norm_call(struct stream *s, const struct layernorm *ln, bool is_again)
{
    struct call c = call_open(s);
    struct layernorm d = *ln;
    void (*touches)(struct call *, void *, int64_t, enum dtype) =
        is_again ? call_reads : call_writes;
    call_writes(&c, &d.y, ln->N * ln->C, c.dtype);
    touches(&c, &d.mean, ln->N, DTYPE_F32);
    touches(&c, &d.rstd, ln->N, DTYPE_F32);
    call_reads(&c, &d.x, ln->N * ln->C, c.dtype);
    call_reads(&c, &d.g, ln->C, DTYPE_F32);
    call_reads(&c, &d.b, ln->C, DTYPE_F32);
    call_begin(&c);
    (is_again ? c.k->layernorm_again : c.k->layernorm_fwd)(c.s, &d);
    call_end(&c);
}

static void hosted_layernorm_fwd(struct stream *s, const struct layernorm *ln)
{
    norm_call(s, ln, false);
}

static void hosted_layernorm_again(struct stream *s, const struct layernorm *ln)
{
    norm_call(s, ln, true);
}

static void hosted_layernorm_bwd(struct stream *s, const struct layernorm_bwd *ln)
{
    struct call c = call_open(s);
    struct layernorm_bwd d = *ln;
    int64_t n = ln->N * ln->C;
    call_writes(&c, &d.dx, n, c.dtype);
    call_writes(&c, &d.dg, ln->C, DTYPE_F32);
    call_writes(&c, &d.db, ln->C, DTYPE_F32);
    call_reads(&c, &d.dy, n, c.dtype);
    call_reads(&c, &d.x, n, c.dtype);
    call_reads(&c, &d.g, ln->C, DTYPE_F32);
    call_reads(&c, &d.mean, ln->N, DTYPE_F32);
    call_reads(&c, &d.rstd, ln->N, DTYPE_F32);
    call_writes(&c, &d.partial, kernel_partials(ln->N, 2 * ln->C), DTYPE_F32);
    call_begin(&c);
    c.k->layernorm_bwd(c.s, &d);
    call_end(&c);
}

/* -- products ------------------------------------------------------------------------ */

/* Elements of N rows of `used`, `row` apart. */
static int64_t spread(int64_t N, int64_t row, int64_t used)
{
    return N > 0 && used > 0 ? (N - 1) * row + used : 0;
}

static int64_t matrix(int64_t rows, int64_t row, int64_t cols, int64_t col)
{
    return spread(rows, row, spread(cols, col, 1));
}

static void hosted_gemm(struct stream *s, const struct gemm *g)
{
    struct call c = call_open(s);
    struct gemm d = *g;
    call_reads(&c, &d.a, matrix(g->m, g->a_row, g->k, g->a_col), DTYPE_F32);
    call_reads(&c, &d.b, matrix(g->k, g->b_row, g->n, g->b_col), DTYPE_F32);
    call_writes(&c, &d.c, matrix(g->m, g->c_row, g->n, g->c_col), DTYPE_F32);
    call_begin(&c);
    c.k->gemm(c.s, &d);
    call_end(&c);
}

static void hosted_linear_fwd(struct stream *s, const struct linear *l)
{
    struct call c = call_open(s);
    struct linear d = *l;
    struct weight w = *l->w;
    d.w = &w;
    int64_t O = l->w->rows, I = l->w->cols;
    call_weight(&c, &w, O, I, false);
    call_reads(&c, &d.x, l->N * I, c.dtype);
    call_writes(&c, &d.y, l->N * O, l->y_dtype);
    call_reads(&c, &d.bias, O, DTYPE_F32);
    call_writes(&c, &d.act_y, l->N * O, c.dtype);
    call_begin(&c);
    c.k->linear_fwd(c.s, &d);
    call_end(&c);
}

static void hosted_linear_bwd_input(struct stream *s, const struct linear_bwd_input *l)
{
    struct call c = call_open(s);
    struct linear_bwd_input d = *l;
    struct weight w = *l->w;
    d.w = &w;
    int64_t O = l->w->rows, I = l->w->cols;
    call_writes(&c, &d.dx, l->N * I, l->dx_dtype);
    call_reads(&c, &d.dy, spread(l->N, l->dy_row, O), c.dtype);
    call_weight(&c, &w, O, I, false);
    call_begin(&c);
    c.k->linear_bwd_input(c.s, &d);
    call_end(&c);
}

static void hosted_linear_bwd_weight(struct stream *s, const struct linear_bwd_weight *l)
{
    struct call c = call_open(s);
    struct linear_bwd_weight d = *l;
    struct weight dw = *l->dw;
    d.dw = &dw;
    int64_t O = l->dw->rows, I = l->dw->cols;
    call_weight(&c, &dw, O, I, true);
    call_reads(&c, &d.dy, spread(l->N, l->dy_row, O), c.dtype);
    call_reads(&c, &d.x, l->N * I, c.dtype);
    call_begin(&c);
    c.k->linear_bwd_weight(c.s, &d);
    call_end(&c);
}

static void hosted_matvec(struct stream *s, const struct matvec *m)
{
    struct call c = call_open(s);
    struct matvec d = *m;
    struct weight w = *m->w;
    d.w = &w;
    int64_t O = m->w->rows, I = m->w->cols;
    call_writes(&c, &d.y, m->R * O, m->y_dtype);
    call_weight(&c, &w, O, I, false);
    call_reads(&c, &d.x, m->R * I, c.dtype);
    call_reads(&c, &d.b, O, DTYPE_F32);
    call_begin(&c);
    c.k->matvec(c.s, &d);
    call_end(&c);
}

/* -- element-wise and over rows ------------------------------------------------------ */

static void hosted_bias_grad(struct stream *s, float *db, const void *dy, float *partial,
                             int64_t N, int64_t C)
{
    struct call c = call_open(s);
    call_writes(&c, &db, C, DTYPE_F32);
    call_reads(&c, &dy, N * C, c.dtype);
    call_writes(&c, &partial, kernel_partials(N, C), DTYPE_F32);
    call_begin(&c);
    c.k->bias_grad(c.s, db, dy, partial, N, C);
    call_end(&c);
}

static void hosted_add_partials(struct stream *s, float *out, const float *partial,
                                int64_t N, int64_t stride, int64_t C)
{
    struct call c = call_open(s);
    int64_t n_chunks = (N + KERNEL_ROW_CHUNK - 1) / KERNEL_ROW_CHUNK;
    call_writes(&c, &out, C, DTYPE_F32);
    call_reads(&c, &partial, spread(n_chunks, stride, C), DTYPE_F32);
    call_begin(&c);
    c.k->add_partials(c.s, out, partial, N, stride, C);
    call_end(&c);
}

static void hosted_activation_fwd(struct stream *s, const struct activation_fwd *a)
{
    struct call c = call_open(s);
    struct activation_fwd d = *a;
    call_writes(&c, &d.y, a->N * a->C, c.dtype);
    call_reads(&c, &d.x, a->N * a->C, c.dtype);
    call_reads(&c, &d.b, a->C, DTYPE_F32);
    call_begin(&c);
    c.k->activation_fwd(c.s, &d);
    call_end(&c);
}

static void hosted_activation_bwd(struct stream *s, const struct activation_bwd *a)
{
    struct call c = call_open(s);
    struct activation_bwd d = *a;
    int64_t n = a->N * a->C;
    call_writes(&c, &d.dx, n, c.dtype);
    call_writes(&c, &d.y, n, c.dtype);
    call_writes(&c, &d.db, a->C, DTYPE_F32);
    call_reads(&c, &d.dy, n, c.dtype);
    call_reads(&c, &d.x, n, c.dtype);
    call_reads(&c, &d.b, a->C, DTYPE_F32);
    call_writes(&c, &d.partial, kernel_partials(a->N, a->C), DTYPE_F32);
    call_begin(&c);
    c.k->activation_bwd(c.s, &d);
    call_end(&c);
}

static void hosted_residual(struct stream *s, const struct residual *r)
{
    struct call c = call_open(s);
    struct residual d = *r;
    int64_t n = r->B * r->S * r->C;
    call_writes(&c, &d.y, n, c.dtype);
    call_reads(&c, &d.res, n, c.dtype);
    call_reads(&c, &d.x, n, DTYPE_F32);
    call_reads(&c, &d.b, r->C, DTYPE_F32);
    call_begin(&c);
    c.k->bias_dropout_residual(c.s, &d);
    call_end(&c);
}

static void hosted_dropout_fwd(struct stream *s, void *y, const float *x, int64_t B,
                               int64_t S, int64_t C, const struct dropout *drop)
{
    struct call c = call_open(s);
    call_writes(&c, &y, B * S * C, c.dtype);
    call_reads(&c, &x, B * S * C, DTYPE_F32);
    call_begin(&c);
    c.k->dropout_fwd(c.s, y, x, B, S, C, drop);
    call_end(&c);
}

static const void *hosted_dropout_bwd(struct stream *s, void *dx, const void *dy,
                                      int64_t B, int64_t S, int64_t C,
                                      const struct dropout *drop)
{
    struct call c = call_open(s);
    void *to = dx;
    const void *from = dy;
    call_writes(&c, &to, B * S * C, c.dtype);
    call_reads(&c, &from, B * S * C, c.dtype);
    call_begin(&c);
    const void *found = c.k->dropout_bwd(c.s, to, from, B, S, C, drop);
    assert_true(found == to || found == from);
    call_end(&c);
    return found == from ? dy : dx;
}

/* -- attention ----------------------------------------------------------------------- */

static void attention_tensors(struct call *c, struct attention *d)
{
    int64_t N = d->B * d->S;
    call_reads(c, &d->q, spread(N, d->q_row, d->A * d->D), c->dtype);
    call_reads(c, &d->k, spread(N, d->kv_row, d->A_kv * d->D), c->dtype);
    call_reads(c, &d->v, spread(N, d->kv_row, d->A_kv * d->D), c->dtype);
    call_array(c, &d->first_key, (size_t)N * sizeof *d->first_key);
    call_array(c, &d->key_end, (size_t)d->B * sizeof *d->key_end);
}

static void hosted_attention_fwd(struct stream *s, const struct attention *a)
{
    struct call c = call_open(s);
    struct attention d = *a;
    int64_t N = a->B * a->S;
    attention_tensors(&c, &d);
    call_writes(&c, &d.out, N * a->A * a->D, c.dtype);
    call_writes(&c, &d.lse, N * a->A, DTYPE_F32);
    call_begin(&c);
    c.k->attention_fwd(c.s, &d);
    call_end(&c);
}

static void hosted_attention_bwd(struct stream *s, const struct attention_bwd *a)
{
    struct call c = call_open(s);
    struct attention_bwd d = *a;
    const struct attention *f = &a->fwd;
    int64_t N = f->B * f->S, A = f->A, D = f->D;
    attention_tensors(&c, &d.fwd);
    call_reads(&c, &d.fwd.out, N * A * D, c.dtype);
    call_reads(&c, &d.fwd.lse, N * A, DTYPE_F32);
    call_reads(&c, &d.dout, N * A * D, c.dtype);
    call_writes(&c, &d.dq, spread(N, f->q_row, A * D), c.dtype);
    call_writes(&c, &d.dk, spread(N, f->kv_row, f->A_kv * D), c.dtype);
    call_writes(&c, &d.dv, spread(N, f->kv_row, f->A_kv * D), c.dtype);
    call_writes(&c, &d.delta, N * A, DTYPE_F32);
    int64_t n_scratch = device_attention_scratch(c.s->dev, f->S, A, f->A_kv, D);
    if (n_scratch == 0)
        d.scratch = NULL; // there is none to use
    call_writes(&c, &d.scratch, n_scratch, DTYPE_F32);
    call_begin(&c);
    c.k->attention_bwd(c.s, &d);
    call_end(&c);
}

static void hosted_attention_decode(struct stream *s, const struct attention_decode *a)
{
    struct call c = call_open(s);
    struct attention_decode d = *a;
    call_writes(&c, &d.out, a->A * a->D, c.dtype);
    call_reads(&c, &d.q, a->A * a->D, c.dtype);
    call_reads(&c, &d.keys, spread(a->n_keys, a->kv_row, a->A_kv * a->D), c.dtype);
    call_reads(&c, &d.values, spread(a->n_keys, a->kv_row, a->A_kv * a->D), c.dtype);
    call_writes(&c, &d.scores, a->A * a->n_keys, DTYPE_F32);
    call_begin(&c);
    c.k->attention_decode(c.s, &d);
    call_end(&c);
}

/* -- the loss ------------------------------------------------------------------------ */

/* Which of its tensors a pass writes. */
enum { LOGITS = 1, ROW_MAX = 2, SUMS = 4 };

static void xent_begin(struct call *c, struct xent *x, int written)
{
    void (*touches[])(struct call *, void *, int64_t, enum dtype) = {call_reads,
                                                                     call_writes};
    touches[(written & LOGITS) != 0](c, &x->logits, x->R * x->V, DTYPE_F32);
    touches[(written & ROW_MAX) != 0](c, &x->row_max, x->R, DTYPE_F32);
    touches[(written & SUMS) != 0](c, &x->row_sum, x->R, DTYPE_F32);
    touches[(written & SUMS) != 0](c, &x->target_logit, x->R, DTYPE_F32);
    call_array(c, &x->targets, (size_t)x->R * sizeof *x->targets);
    call_array(c, &x->mask, (size_t)x->R * sizeof *x->mask);
    call_begin(c);
}

static void hosted_xent_max(struct stream *s, const struct xent *x)
{
    struct call c = call_open(s);
    struct xent d = *x;
    xent_begin(&c, &d, ROW_MAX);
    c.k->xent_max(c.s, &d);
    call_end(&c);
}

static void hosted_xent_exp(struct stream *s, const struct xent *x)
{
    struct call c = call_open(s);
    struct xent d = *x;
    xent_begin(&c, &d, LOGITS | SUMS);
    c.k->xent_exp(c.s, &d);
    call_end(&c);
}

static void hosted_xent_grad(struct stream *s, const struct xent *x)
{
    struct call c = call_open(s);
    struct xent d = *x;
    xent_begin(&c, &d, LOGITS);
    c.k->xent_grad(c.s, &d);
    call_end(&c);
}

static void hosted_xent_top(struct stream *s, int32_t *column, const struct xent *x)
{
    struct call c = call_open(s);
    struct xent d = *x;
    call_writes(&c, &column, x->R, DTYPE_F32); // as many bytes
    xent_begin(&c, &d, 0);
    c.k->xent_top(c.s, column, &d);
    call_end(&c);
}

/* -- flat ranges --------------------------------------------------------------------- */

static void hosted_reduce(struct stream *s, const struct reduction *r)
{
    struct call c = call_open(s);
    struct reduction d = *r;
    const void *parts[64];
    assert_in_range(r->n_parts, 1, ARRAY_LEN(parts));
    call_writes(&c, &d.x, r->n, r->dtype);
    for (int i = 0; i < r->n_parts; i++) {
        parts[i] = r->parts[i];
        call_reads(&c, &parts[i], r->n, r->dtype);
    }
    call_begin(&c);
    d.parts = parts;
    call_array(&c, &d.parts, (size_t)r->n_parts * sizeof *parts);
    c.k->reduce(c.s, &d);
    call_end(&c);
}

static void hosted_adamw(struct stream *s, const struct update *u, const struct adamw *a)
{
    struct call c = call_open(s);
    struct update d = *u;
    call_writes(&c, &d.master, u->n, DTYPE_F32);
    call_writes(&c, &d.param, u->n, u->param_dtype);
    call_reads(&c, &d.grad, u->n, u->grad_dtype);
    call_writes(&c, &d.exp_avg, u->n, DTYPE_F32);
    call_writes(&c, &d.exp_avg_sq, u->n, DTYPE_F32);
    call_begin(&c);
    c.k->adamw(c.s, &d, a);
    call_end(&c);
}

static void hosted_sum_squares(struct stream *s, double *partial, const void *x,
                               enum dtype dtype, int64_t n)
{
    struct call c = call_open(s);
    call_reads(&c, &x, n, dtype);
    call_begin(&c);
    c.k->sum_squares(c.s, partial, x, dtype, n);
    call_end(&c);
}

static void hosted_load(struct stream *s, float *y, const void *x, enum dtype dtype,
                        int64_t n)
{
    struct call c = call_open(s);
    call_writes(&c, &y, n, DTYPE_F32);
    call_reads(&c, &x, n, dtype);
    call_begin(&c);
    c.k->load(c.s, y, x, dtype, n);
    call_end(&c);
}

typedef void store_kernel(struct stream *s, void *y, const float *x, enum dtype dtype,
                          int64_t n);

static void store_call(struct stream *s, void *y, const float *x, enum dtype dtype,
                       int64_t n, bool is_added)
{
    struct call c = call_open(s);
    store_kernel *store = is_added ? c.k->store_add : c.k->store;
    call_writes(&c, &y, n, dtype);
    call_reads(&c, &x, n, DTYPE_F32);
    call_begin(&c);
    store(c.s, y, x, dtype, n);
    call_end(&c);
}

static void hosted_store(struct stream *s, void *y, const float *x, enum dtype dtype,
                         int64_t n)
{
    store_call(s, y, x, dtype, n, false);
}

static void hosted_store_add(struct stream *s, void *y, const float *x, enum dtype dtype,
                             int64_t n)
{
    store_call(s, y, x, dtype, n, true);
}

static void hosted_add_stored(struct stream *s, void *y, const void *x, enum dtype dtype,
                              int64_t n)
{
    struct call c = call_open(s);
    call_writes(&c, &y, n, dtype);
    call_reads(&c, &x, n, dtype);
    call_begin(&c);
    c.k->add_stored(c.s, y, x, dtype, n);
    call_end(&c);
}

static void floats_call(struct stream *s, float *x, const float *y, int64_t n,
                        bool is_added)
{
    struct call c = call_open(s);
    call_writes(&c, &x, n, DTYPE_F32);
    call_reads(&c, &y, n, DTYPE_F32);
    call_begin(&c);
    (is_added ? c.k->add : c.k->copy)(c.s, x, y, n);
    call_end(&c);
}

static void hosted_copy(struct stream *s, float *x, const float *y, int64_t n)
{
    floats_call(s, x, y, n, false);
}

static void hosted_add(struct stream *s, float *x, const float *y, int64_t n)
{
    floats_call(s, x, y, n, true);
}

static void hosted_add_rows(struct stream *s, float *x, const float *y,
                            const int32_t *rows, int64_t n, int64_t C)
{
    struct call c = call_open(s);
    call_writes(&c, &x, rows_of(rows, n) * C, DTYPE_F32);
    call_reads(&c, &y, n * C, DTYPE_F32);
    call_array(&c, &rows, (size_t)n * sizeof *rows);
    call_begin(&c);
    c.k->add_rows(c.s, x, y, rows, n, C);
    call_end(&c);
}

static void hosted_fill(struct stream *s, float *x, float value, int64_t n)
{
    struct call c = call_open(s);
    call_writes(&c, &x, n, DTYPE_F32);
    call_begin(&c);
    c.k->fill(c.s, x, value, n);
    call_end(&c);
}

const struct kernels *device_table(void)
{
    static const struct kernels table = {
        .name = "of the device",
        .embedding_fwd = hosted_embedding_fwd,
        .embedding_bwd = hosted_embedding_bwd,
        .layernorm_fwd = hosted_layernorm_fwd,
        .layernorm_again = hosted_layernorm_again,
        .layernorm_bwd = hosted_layernorm_bwd,
        .gemm = hosted_gemm,
        .linear_fwd = hosted_linear_fwd,
        .linear_bwd_input = hosted_linear_bwd_input,
        .linear_bwd_weight = hosted_linear_bwd_weight,
        .matvec = hosted_matvec,
        .bias_grad = hosted_bias_grad,
        .add_partials = hosted_add_partials,
        .activation_fwd = hosted_activation_fwd,
        .activation_bwd = hosted_activation_bwd,
        .bias_dropout_residual = hosted_residual,
        .dropout_fwd = hosted_dropout_fwd,
        .dropout_bwd = hosted_dropout_bwd,
        .attention_fwd = hosted_attention_fwd,
        .attention_bwd = hosted_attention_bwd,
        .attention_decode = hosted_attention_decode,
        .xent_max = hosted_xent_max,
        .xent_exp = hosted_xent_exp,
        .xent_grad = hosted_xent_grad,
        .xent_top = hosted_xent_top,
        .reduce = hosted_reduce,
        .adamw = hosted_adamw,
        .sum_squares = hosted_sum_squares,
        .load = hosted_load,
        .store = hosted_store,
        .store_add = hosted_store_add,
        .add_stored = hosted_add_stored,
        .copy = hosted_copy,
        .add = hosted_add,
        .add_rows = hosted_add_rows,
        .fill = hosted_fill,
    };
    return &table;
}
