#include "train/offline_eval.h"

#include "base/log.h"

#include <math.h>
#include <stdlib.h>

struct evaluation {
    struct runner *r;
    const struct eval_stream *stream;
    int64_t S, V, stride;
    int64_t n_pass;            // windows of one pass
    int32_t *read;             // (S + 1) a window as it is read
    int32_t *tokens, *targets; // (n_pass, S)
    float *loss_mask;          // (n_pass, S)
    double *sums;              // (n_windows)
    int64_t *bounds;           // (data ranks + 1) of the windows of each
    int64_t n_windows;
};

int64_t offline_eval_windows(int64_t n_tokens, int64_t S, int64_t stride)
{
    int64_t rest = n_tokens - 1 - S; // targets after the first window's
    return 1 + (rest > 0 ? (rest + stride - 1) / stride : 0);
}

/* -- windows ------------------------------------------------------------------------- */

static int check_token(const struct evaluation *ev, int64_t at, int32_t id,
                       struct error *err)
{
    if (id >= 0 && id < ev->V)
        return 0;
    return error_set(
        err, ERROR_INPUT,
        "'%s': token %lld is %ld, outside of the model's vocabulary of %lld; "
        "it was made with another tokenizer",
        ev->stream->name, (long long)at, (long)id, (long long)ev->V);
}

/* Row b of the pass := window w. What lies past the stream is token 0, which counts for
 * nothing and, attention being causal, is seen by nothing that counts. */
static int fill(struct evaluation *ev, int64_t b, int64_t w, struct error *err)
{
    int64_t S = ev->S, first = w * ev->stride;
    int64_t n = i64_min(S + 1, ev->stream->n_tokens - first);
    int64_t scored = w == 0 ? 0 : S - ev->stride;
    if (ev->stream->read(ev->stream->context, first, n, ev->read, err))
        return -1;
    for (int64_t i = 0; i < n; i++)
        if (check_token(ev, first + i, ev->read[i], err))
            return -1;
    for (int64_t s = 0; s < S; s++) {
        int64_t at = b * S + s;
        bool is_there = s + 1 < n;
        ev->tokens[at] = s < n ? ev->read[s] : 0;
        ev->targets[at] = is_there ? ev->read[s + 1] : 0;
        ev->loss_mask[at] = is_there && s >= scored ? 1.0F : 0.0F;
    }
    return 0;
}

/* Windows [w, w + n). All ranks that share a model read them; *is_failed is true on all
 * of them when one could not, which alone returns -1. */
static int fill_pass(struct evaluation *ev, int64_t w, int64_t n, bool *is_failed,
                     struct error *err)
{
    int rc = 0;
    for (int64_t b = 0; b < n && rc == 0; b++)
        rc = fill(ev, b, w + b, err);
    int64_t any = rc != 0;
    if (comm_max_i64(ev->r->grid->replica, &any, 1, err))
        rc = -1;
    *is_failed = rc || any;
    return rc;
}

/* The windows of this data rank. A rank stops with 0 when another one failed. */
static int run(struct evaluation *ev, struct error *err)
{
    const struct grid *grid = ev->r->grid;
    int64_t first = ev->bounds[grid->data_rank], end = ev->bounds[grid->data_rank + 1];
    int rc = 0;
    bool is_failed = false;
    for (int64_t w = first; w < end && rc == 0; w += ev->n_pass) {
        struct batch batch = {.B = i64_min(ev->n_pass, end - w),
                              .S = ev->S,
                              .tokens = ev->tokens,
                              .targets = ev->targets,
                              .loss_mask = ev->loss_mask,
                              .first_sample = w,
                              .loss_sums = ev->sums + w};
        rc = fill_pass(ev, w, batch.B, &is_failed, err);
        if (is_failed)
            break;
        rc = runner_forward(ev->r, &batch, err);
        if (comm_rank(grid->world) == 0)
            log_status("evaluated %lld of %lld windows", (long long)(w + batch.B - first),
                       (long long)(end - first));
    }
    log_status_clear();
    return rc;
}

/* -- memory -------------------------------------------------------------------------- */

static int take_room(struct evaluation *ev, struct error *err)
{
    size_t n = (size_t)(ev->n_pass * ev->S);
    int n_ranks = ev->r->grid->data_size;
    if (ev->stream->n_tokens < 2) {
        error_set(err, ERROR_INPUT, "'%s' has %lld tokens; a loss needs at least two",
                  ev->stream->name, (long long)ev->stream->n_tokens);
        return -1;
    }
    ev->n_windows = offline_eval_windows(ev->stream->n_tokens, ev->S, ev->stride);
    ev->read = malloc((size_t)(ev->S + 1) * sizeof *ev->read);
    ev->tokens = malloc(n * sizeof *ev->tokens);
    ev->targets = malloc(n * sizeof *ev->targets);
    ev->loss_mask = malloc(n * sizeof *ev->loss_mask);
    ev->sums = calloc((size_t)ev->n_windows, sizeof *ev->sums);
    ev->bounds = calloc((size_t)n_ranks + 1, sizeof *ev->bounds);
    if (!ev->read || !ev->tokens || !ev->targets || !ev->loss_mask || !ev->sums ||
        !ev->bounds) {
        error_set(err, ERROR_RUNTIME, "out of memory for the sums of %lld windows",
                  (long long)ev->n_windows);
        return -1;
    }
    comm_even_bounds(ev->n_windows, n_ranks, ev->bounds);
    return 0;
}

static void release(struct evaluation *ev)
{
    free(ev->read);
    free(ev->tokens);
    free(ev->targets);
    free(ev->loss_mask);
    free(ev->sums);
    free(ev->bounds);
}

/* -- the whole ----------------------------------------------------------------------- */

int offline_eval(struct eval_result *result, struct runner *r, int64_t vocab_size,
                 int64_t stride, const struct eval_stream *stream, struct error *err)
{
    struct evaluation ev = {.r = r,
                            .stream = stream,
                            .S = r->gpt.dims.S,
                            .V = vocab_size,
                            .stride = stride,
                            .n_pass = runner_full_pass(r)};
    struct comm *world = r->grid->world;
    int64_t n_scored = stream->n_tokens - 1;
    double sum = 0;
    int rc = take_room(&ev, err);
    if (comm_agree(world, rc, err))
        rc = -1;
    if (rc == 0)
        rc = comm_agree(world, run(&ev, err), err);
    if (rc == 0)
        rc = runner_sum_losses(r, ev.sums, ev.n_windows, &sum, err);
    if (rc)
        goto done;
    *result = (struct eval_result){.loss = runner_mean_loss(sum, n_scored),
                                   .n_scored = n_scored,
                                   .n_windows = ev.n_windows};
    if (!isfinite(result->loss))
        rc = error_set(err, ERROR_RUNTIME,
                       "the loss on '%s' is %g: the model gives no numbers; was its "
                       "training ended by an overflow?",
                       stream->name, result->loss);
done:
    release(&ev);
    return rc;
}
