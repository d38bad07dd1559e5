/* One function per struct of arguments, and one table of names. */
#include "device/operands.h"

/* -- kinds of operands --------------------------------------------------------------- */

static void name_operand(struct operands *o, struct operand operand)
{
    if (operand_address(&operand))
        o->visit(o->context, &operand);
}

/* N rows of C elements, `row` apart. */
static void rows(struct operands *o, enum operand_access access, void *pointer, int64_t N,
                 int64_t row, int64_t C, enum dtype dtype)
{
    name_operand(o, (struct operand){.pointer = pointer,
                                     .access = access,
                                     .element = dtype_bytes(dtype),
                                     .rows = N,
                                     .row = row,
                                     .cols = C,
                                     .col = 1,
                                     .n_used = N * C});
}

static void flat(struct operands *o, enum operand_access access, void *pointer, int64_t n,
                 enum dtype dtype)
{
    rows(o, access, pointer, 1, n, n, dtype);
}

static void bytes(struct operands *o, enum operand_access access, void *pointer, size_t n)
{
    name_operand(o, (struct operand){.pointer = pointer,
                                     .access = access,
                                     .element = 1,
                                     .rows = 1,
                                     .row = (int64_t)n,
                                     .cols = (int64_t)n,
                                     .col = 1,
                                     .n_used = (int64_t)n});
}

/* A weight of which n_used elements are touched; `pointer` is that to the weight. */
static void weight(struct operands *o, enum operand_access access, void *pointer,
                   int64_t n_rows, int64_t n_cols, int64_t n_used)
{
    struct weight *const *w = pointer;
    if (!*w)
        return;
    bytes(o, OPERAND_HOST, pointer, sizeof **w);
    name_operand(o, (struct operand){.pointer = &(*w)->data,
                                     .access = access,
                                     .element = dtype_bytes((*w)->dtype),
                                     .rows = n_rows,
                                     .row = n_cols,
                                     .cols = n_cols,
                                     .col = 1,
                                     .n_used = n_used});
}

static enum operand_access sum_access(bool accumulates)
{
    return accumulates ? OPERAND_UPDATED : OPERAND_WRITTEN;
}

static double product_flops(int64_t m, int64_t n, int64_t k)
{
    return 2.0 * (double)m * (double)n * (double)k;
}

/* -- embedding and norm -------------------------------------------------------------- */

/* Rows of a table that has all of these. */
static int64_t rows_named(const int32_t *ids, int64_t n)
{
    int32_t max = -1;
    for (int64_t i = 0; i < n; i++)
        max = ids[i] > max ? ids[i] : max;
    return max + 1;
}

static void embedding_operands(struct operands *o, enum operation op, struct embedding *e)
{
    int64_t N = e->B * e->S;
    (void)op;
    flat(o, OPERAND_WRITTEN, &e->x, N * e->H, DTYPE_F32);
    weight(o, OPERAND_READ, &e->wte, rows_named(e->tokens, N), e->H, N * e->H);
    if (e->wpe)
        weight(o, OPERAND_READ, &e->wpe, rows_named(e->positions, N), e->H, N * e->H);
    bytes(o, OPERAND_HOST, &e->tokens, (size_t)N * sizeof *e->tokens);
    bytes(o, OPERAND_HOST, &e->positions, (size_t)N * sizeof *e->positions);
}

static void embedding_bwd_operands(struct operands *o, enum operation op,
                                   struct embedding_bwd *e)
{
    int64_t N = e->B * e->S;
    struct operand table = {.access = OPERAND_UPDATED,
                            .element = sizeof(float),
                            .row = e->H,
                            .cols = e->H,
                            .col = 1,
                            .n_used = N * e->H};
    (void)op;
    table.pointer = &e->dwte;
    table.rows = rows_named(e->tokens, N);
    name_operand(o, table);
    table.pointer = &e->dwpe;
    table.rows = e->dwpe ? rows_named(e->positions, N) : 0;
    name_operand(o, table);
    flat(o, OPERAND_READ, &e->dx, N * e->H, o->dev->dtype);
    bytes(o, OPERAND_HOST, &e->tokens, (size_t)N * sizeof *e->tokens);
    bytes(o, OPERAND_HOST, &e->positions, (size_t)N * sizeof *e->positions);
}

static void layernorm_operands(struct operands *o, enum operation op,
                               struct layernorm *ln)
{
    enum operand_access statistics =
        op == OP_layernorm_fwd ? OPERAND_WRITTEN : OPERAND_READ;
    flat(o, OPERAND_WRITTEN, &ln->y, ln->N * ln->C, o->dev->dtype);
    flat(o, statistics, &ln->mean, ln->N, DTYPE_F32);
    flat(o, statistics, &ln->rstd, ln->N, DTYPE_F32);
    flat(o, OPERAND_READ, &ln->x, ln->N * ln->C, o->dev->dtype);
    flat(o, OPERAND_READ, &ln->g, ln->C, DTYPE_F32);
    flat(o, OPERAND_READ, &ln->b, ln->C, DTYPE_F32);
}

static void layernorm_bwd_operands(struct operands *o, enum operation op,
                                   struct layernorm_bwd *ln)
{
    int64_t n = ln->N * ln->C, n_partials = kernel_partials(ln->N, 2 * ln->C);
    (void)op;
    flat(o, OPERAND_UPDATED, &ln->dx, n, o->dev->dtype);
    flat(o, OPERAND_UPDATED, &ln->dg, ln->C, DTYPE_F32);
    flat(o, OPERAND_UPDATED, &ln->db, ln->C, DTYPE_F32);
    flat(o, OPERAND_READ, &ln->dy, n, o->dev->dtype);
    flat(o, OPERAND_READ, &ln->x, n, o->dev->dtype);
    flat(o, OPERAND_READ, &ln->g, ln->C, DTYPE_F32);
    flat(o, OPERAND_READ, &ln->mean, ln->N, DTYPE_F32);
    flat(o, OPERAND_READ, &ln->rstd, ln->N, DTYPE_F32);
    flat(o, OPERAND_SCRATCH, &ln->partial, n_partials, DTYPE_F32);
}

/* -- products ------------------------------------------------------------------------ */

static void matrix(struct operands *o, enum operand_access access, void *pointer,
                   int64_t n_rows, int64_t row, int64_t n_cols, int64_t col)
{
    name_operand(o, (struct operand){.pointer = pointer,
                                     .access = access,
                                     .element = sizeof(float),
                                     .rows = n_rows,
                                     .row = row,
                                     .cols = n_cols,
                                     .col = col,
                                     .n_used = n_rows * n_cols});
}

static void gemm_operands(struct operands *o, enum operation op, struct gemm *g)
{
    (void)op;
    matrix(o, OPERAND_READ, &g->a, g->m, g->a_row, g->k, g->a_col);
    matrix(o, OPERAND_READ, &g->b, g->k, g->b_row, g->n, g->b_col);
    matrix(o, sum_access(g->accumulate), &g->c, g->m, g->c_row, g->n, g->c_col);
    o->flops = product_flops(g->m, g->n, g->k);
}

static void linear_operands(struct operands *o, enum operation op, struct linear *l)
{
    int64_t O = l->w->rows, I = l->w->cols;
    (void)op;
    weight(o, OPERAND_READ, &l->w, O, I, O * I);
    flat(o, OPERAND_READ, &l->x, l->N * I, o->dev->dtype);
    flat(o, OPERAND_WRITTEN, &l->y, l->N * O, l->y_dtype);
    flat(o, OPERAND_READ, &l->bias, O, DTYPE_F32);
    flat(o, OPERAND_WRITTEN, &l->act_y, l->N * O, o->dev->dtype);
    o->flops = product_flops(l->N, O, I);
}

static void linear_bwd_input_operands(struct operands *o, enum operation op,
                                      struct linear_bwd_input *l)
{
    int64_t O = l->w->rows, I = l->w->cols;
    (void)op;
    flat(o, OPERAND_WRITTEN, &l->dx, l->N * I, l->dx_dtype);
    rows(o, OPERAND_READ, &l->dy, l->N, l->dy_row, O, o->dev->dtype);
    weight(o, OPERAND_READ, &l->w, O, I, O * I);
    o->flops = product_flops(l->N, O, I);
}

static void linear_bwd_weight_operands(struct operands *o, enum operation op,
                                       struct linear_bwd_weight *l)
{
    int64_t O = l->dw->rows, I = l->dw->cols;
    (void)op;
    weight(o, sum_access(l->accumulate), &l->dw, O, I, O * I);
    rows(o, OPERAND_READ, &l->dy, l->N, l->dy_row, O, o->dev->dtype);
    flat(o, OPERAND_READ, &l->x, l->N * I, o->dev->dtype);
    o->flops = product_flops(l->N, O, I);
}

static void matvec_operands(struct operands *o, enum operation op, struct matvec *m)
{
    int64_t O = m->w->rows, I = m->w->cols;
    (void)op;
    flat(o, OPERAND_WRITTEN, &m->y, m->R * O, m->y_dtype);
    weight(o, OPERAND_READ, &m->w, O, I, O * I);
    flat(o, OPERAND_READ, &m->x, m->R * I, o->dev->dtype);
    flat(o, OPERAND_READ, &m->b, O, DTYPE_F32);
    o->flops = product_flops(m->R, O, I);
}

/* -- element-wise and over rows ------------------------------------------------------ */

static void bias_grad_operands(struct operands *o, enum operation op, struct bias_grad *b)
{
    (void)op;
    flat(o, OPERAND_UPDATED, &b->db, b->C, DTYPE_F32);
    flat(o, OPERAND_READ, &b->dy, b->N * b->C, o->dev->dtype);
    flat(o, OPERAND_SCRATCH, &b->partial, kernel_partials(b->N, b->C), DTYPE_F32);
}

static void add_partials_operands(struct operands *o, enum operation op,
                                  struct add_partials *p)
{
    (void)op;
    flat(o, OPERAND_UPDATED, &p->out, p->C, DTYPE_F32);
    rows(o, OPERAND_READ, &p->partial, kernel_partials(p->N, 1), p->stride, p->C,
         DTYPE_F32);
}

static void activation_fwd_operands(struct operands *o, enum operation op,
                                    struct activation_fwd *a)
{
    (void)op;
    flat(o, OPERAND_WRITTEN, &a->y, a->N * a->C, o->dev->dtype);
    flat(o, OPERAND_READ, &a->x, a->N * a->C, o->dev->dtype);
    flat(o, OPERAND_READ, &a->b, a->C, DTYPE_F32);
}

static void activation_bwd_operands(struct operands *o, enum operation op,
                                    struct activation_bwd *a)
{
    int64_t n = a->N * a->C;
    (void)op;
    flat(o, OPERAND_WRITTEN, &a->dx, n, o->dev->dtype);
    flat(o, OPERAND_WRITTEN, &a->y, n, o->dev->dtype);
    flat(o, OPERAND_UPDATED, &a->db, a->C, DTYPE_F32);
    flat(o, OPERAND_READ, &a->dy, n, o->dev->dtype);
    flat(o, OPERAND_READ, &a->x, n, o->dev->dtype);
    flat(o, OPERAND_READ, &a->b, a->C, DTYPE_F32);
    flat(o, OPERAND_SCRATCH, &a->partial, kernel_partials(a->N, a->C), DTYPE_F32);
}

static void residual_operands(struct operands *o, enum operation op, struct residual *r)
{
    int64_t n = r->B * r->S * r->C;
    (void)op;
    flat(o, OPERAND_WRITTEN, &r->y, n, o->dev->dtype);
    flat(o, OPERAND_READ, &r->res, n, o->dev->dtype);
    flat(o, OPERAND_READ, &r->x, n, DTYPE_F32);
    flat(o, OPERAND_READ, &r->b, r->C, DTYPE_F32);
}

static void dropped_operands(struct operands *o, enum operation op, struct dropped *d)
{
    int64_t n = d->B * d->S * d->C;
    flat(o, OPERAND_WRITTEN, &d->y, n, o->dev->dtype);
    flat(o, OPERAND_READ, &d->x, n, op == OP_dropout_fwd ? DTYPE_F32 : o->dev->dtype);
}

/* -- attention ----------------------------------------------------------------------- */

/* Operations of `n` products over the causal half of S x S. */
static double attention_flops(const struct attention *at, double n)
{
    return n * (double)(at->B * at->A * at->D) * (double)(at->S * at->S);
}

static void attention_inputs(struct operands *o, struct attention *at)
{
    int64_t N = at->B * at->S;
    enum dtype dtype = o->dev->dtype;
    rows(o, OPERAND_READ, &at->q, N, at->q_row, at->A * at->D, dtype);
    rows(o, OPERAND_READ, &at->k, N, at->kv_row, at->A_kv * at->D, dtype);
    rows(o, OPERAND_READ, &at->v, N, at->kv_row, at->A_kv * at->D, dtype);
    bytes(o, OPERAND_HOST, &at->first_key, (size_t)N * sizeof *at->first_key);
    bytes(o, OPERAND_HOST, &at->key_end, (size_t)at->B * sizeof *at->key_end);
}

static void attention_results(struct operands *o, struct attention *at,
                              enum operand_access access)
{
    int64_t N = at->B * at->S;
    flat(o, access, &at->out, N * at->A * at->D, o->dev->dtype);
    flat(o, access, &at->lse, N * at->A, DTYPE_F32);
}

static void attention_operands(struct operands *o, enum operation op,
                               struct attention *at)
{
    (void)op;
    attention_inputs(o, at);
    attention_results(o, at, OPERAND_WRITTEN);
    o->flops = attention_flops(at, 2);
}

static void attention_bwd_operands(struct operands *o, enum operation op,
                                   struct attention_bwd *at)
{
    const struct attention *f = &at->fwd;
    enum dtype dtype = o->dev->dtype;
    int64_t N = f->B * f->S;
    int64_t n_scratch = device_attention_scratch(o->dev, f->S, f->A, f->A_kv, f->D);
    (void)op;
    attention_inputs(o, &at->fwd);
    attention_results(o, &at->fwd, OPERAND_READ);
    flat(o, OPERAND_READ, &at->dout, N * f->A * f->D, dtype);
    rows(o, OPERAND_WRITTEN, &at->dq, N, f->q_row, f->A * f->D, dtype);
    rows(o, OPERAND_WRITTEN, &at->dk, N, f->kv_row, f->A_kv * f->D, dtype);
    rows(o, OPERAND_WRITTEN, &at->dv, N, f->kv_row, f->A_kv * f->D, dtype);
    flat(o, OPERAND_SCRATCH, &at->delta, N * f->A, DTYPE_F32);
    flat(o, OPERAND_SCRATCH, &at->scratch, n_scratch, DTYPE_F32);
    o->flops = attention_flops(f, 4);
}

static void attention_decode_operands(struct operands *o, enum operation op,
                                      struct attention_decode *at)
{
    enum dtype dtype = o->dev->dtype;
    (void)op;
    flat(o, OPERAND_WRITTEN, &at->out, at->A * at->D, dtype);
    flat(o, OPERAND_READ, &at->q, at->A * at->D, dtype);
    rows(o, OPERAND_READ, &at->keys, at->n_keys, at->kv_row, at->A_kv * at->D, dtype);
    rows(o, OPERAND_READ, &at->values, at->n_keys, at->kv_row, at->A_kv * at->D, dtype);
    flat(o, OPERAND_SCRATCH, &at->scores, at->A * at->n_keys, DTYPE_F32);
    o->flops = 4.0 * (double)(at->A * at->D) * (double)at->n_keys;
}

/* -- the loss ------------------------------------------------------------------------ */

static void xent_operands(struct operands *o, enum operation op, struct xent *x)
{
    bool is_exp = op == OP_xent_exp;
    size_t row_bytes = (size_t)x->R * sizeof(float);
    flat(o, is_exp || op == OP_xent_grad ? OPERAND_UPDATED : OPERAND_READ, &x->logits,
         x->R * x->V, DTYPE_F32);
    flat(o, op == OP_xent_max ? OPERAND_WRITTEN : OPERAND_READ, &x->row_max, x->R,
         DTYPE_F32);
    flat(o, is_exp ? OPERAND_WRITTEN : OPERAND_READ, &x->row_sum, x->R, DTYPE_F32);
    flat(o, is_exp ? OPERAND_WRITTEN : OPERAND_READ, &x->target_logit, x->R, DTYPE_F32);
    bytes(o, OPERAND_HOST, &x->targets, row_bytes);
    bytes(o, OPERAND_HOST, &x->mask, row_bytes);
    if (op == OP_xent_top)
        bytes(o, OPERAND_WRITTEN, &x->column, row_bytes);
}

/* -- flat ranges --------------------------------------------------------------------- */

static void reduction_operands(struct operands *o, enum operation op, struct reduction *r)
{
    (void)op;
    flat(o, OPERAND_WRITTEN, &r->x, r->n, r->dtype);
    bytes(o, OPERAND_HOST, &r->parts, (size_t)r->n_parts * sizeof *r->parts);
    for (int p = 0; p < r->n_parts; p++)
        flat(o, OPERAND_READ, (void *)(uintptr_t)&r->parts[p], r->n, r->dtype);
}

static void adamw_operands(struct operands *o, enum operation op, struct adamw *u)
{
    (void)op;
    flat(o, OPERAND_UPDATED, &u->master, u->n, DTYPE_F32);
    flat(o, OPERAND_UPDATED, &u->exp_avg, u->n, DTYPE_F32);
    flat(o, OPERAND_UPDATED, &u->exp_avg_sq, u->n, DTYPE_F32);
    flat(o, OPERAND_READ, &u->grad, u->n, u->grad_dtype);
    if (u->param != u->master)
        flat(o, OPERAND_WRITTEN, &u->param, u->n, u->param_dtype);
}

static void sum_squares_operands(struct operands *o, enum operation op,
                                 struct sum_squares *q)
{
    int64_t n_chunks = i64_round_up(q->n, KERNEL_SQUARE_CHUNK) / KERNEL_SQUARE_CHUNK;
    (void)op;
    bytes(o, OPERAND_RESULT, &q->partial, (size_t)n_chunks * sizeof *q->partial);
    flat(o, OPERAND_READ, &q->x, q->n, q->dtype);
}

static void convert_operands(struct operands *o, enum operation op, struct convert *c)
{
    bool is_sum = op == OP_store_add || op == OP_add_stored;
    bool reads_stored = op == OP_load || op == OP_add_stored;
    flat(o, sum_access(is_sum), &c->y, c->n, op == OP_load ? DTYPE_F32 : c->dtype);
    flat(o, OPERAND_READ, &c->x, c->n, reads_stored ? c->dtype : DTYPE_F32);
}

static void floats_operands(struct operands *o, enum operation op, struct floats *f)
{
    flat(o, sum_access(op == OP_add), &f->y, f->n, DTYPE_F32);
    flat(o, OPERAND_READ, &f->x, f->n, DTYPE_F32);
}

static void add_rows_operands(struct operands *o, enum operation op, struct add_rows *r)
{
    (void)op;
    name_operand(o, (struct operand){.pointer = &r->y,
                                     .access = OPERAND_UPDATED,
                                     .element = sizeof(float),
                                     .rows = rows_named(r->rows, r->n),
                                     .row = r->C,
                                     .cols = r->C,
                                     .col = 1,
                                     .n_used = r->n * r->C});
    flat(o, OPERAND_READ, &r->x, r->n * r->C, DTYPE_F32);
    bytes(o, OPERAND_HOST, &r->rows, (size_t)r->n * sizeof *r->rows);
}

static void fill_operands(struct operands *o, enum operation op, struct fill *f)
{
    (void)op;
    flat(o, OPERAND_WRITTEN, &f->y, f->n, DTYPE_F32);
}

/* -- all of them --------------------------------------------------------------------- */

void operands_of(enum operation op, void *args, struct operands *o)
{
    o->flops = 0;
#define OPERANDS(name, args_)                                                            \
    if (op == OP_##name)                                                                 \
        args_##_operands(o, op, args);
    OPERATIONS(OPERANDS)
#undef OPERANDS
}

static void add_bytes(void *context, const struct operand *o)
{
    double *sum = context, n = (double)o->n_used * (double)o->element;
    if (o->access == OPERAND_READ || o->access == OPERAND_WRITTEN)
        *sum += n;
    else if (o->access == OPERAND_UPDATED)
        *sum += 2 * n;
}

struct operation_work operation_work(enum operation op, const void *args,
                                     const struct device *dev)
{
    double n_bytes = 0;
    struct operands o = {.visit = add_bytes, .context = &n_bytes, .dev = dev};
    operands_of(op, (void *)(uintptr_t)args, &o); // add_bytes() writes no argument
    return (struct operation_work){n_bytes, o.flops};
}

/* -- operations by number ------------------------------------------------------------ */

const char *operation_name(enum operation op)
{
    static const char *const names[] = {
#define OPERATION_NAME(name, args) #name,
        OPERATIONS(OPERATION_NAME)
#undef OPERATION_NAME
    };
    return names[op];
}

void operation_run(const struct kernels *k, enum operation op, struct stream *s,
                   const void *args)
{
    switch (op) {
#define RUN(name, args_)                                                                 \
    case OP_##name:                                                                      \
        k->name(s, args);                                                                \
        break;
        OPERATIONS(RUN)
#undef RUN
    case N_OPERATIONS:
        break;
    }
}
