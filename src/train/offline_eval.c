#include "train/offline_eval.h"

#include "base/log.h"

#include <math.h>
#include <stdlib.h>

struct evaluation {
    struct gpt *g;
    const struct eval_stream *stream;
    int64_t S, B, stride;
    int32_t *read;             // (S + 1) a window as it is read
    int32_t *tokens, *targets; // (B, S)
    float *weights;            // (B, S)
    double *sums;              // (n_windows)
    int64_t *bounds;           // (processes + 1) of the windows of each
    int64_t n_windows;
};

int64_t offline_eval_windows(int64_t n_tokens, int64_t S, int64_t stride)
{
    int64_t rest = n_tokens - 1 - S; // targets after the first window's
    return 1 + (rest > 0 ? (rest + stride - 1) / stride : 0);
}

static int check_token(const struct evaluation *ev, int64_t at, int32_t id,
                       struct error *err)
{
    if (id >= 0 && id < ev->g->dims.V)
        return 0;
    return error_set(
        err, ERROR_INPUT,
        "'%s': token %lld is %ld, outside of the model's vocabulary of %lld; "
        "it was made with another tokenizer",
        ev->stream->name, (long long)at, (long)id, (long long)ev->g->dims.V);
}

/* Row b of the batch := window w. What lies past the stream is token 0, which counts for
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
        ev->weights[at] = is_there && s >= scored ? 1.0F : 0.0F;
    }
    return 0;
}

/* The windows of this process. */
static int run(struct evaluation *ev, const struct comm *world, struct error *err)
{
    int64_t first = ev->bounds[comm_rank(world)], end = ev->bounds[comm_rank(world) + 1];
    for (int64_t w = first; w < end; w += ev->B) {
        int64_t B = i64_min(ev->B, end - w);
        for (int64_t b = 0; b < B; b++)
            if (fill(ev, b, w + b, err))
                return -1;
        struct gpt_batch batch = {.B = B,
                                  .S = ev->S,
                                  .tokens = ev->tokens,
                                  .targets = ev->targets,
                                  .weights = ev->weights};
        gpt_forward(ev->g, &batch, ev->sums + w);
        if (comm_rank(world) == 0)
            log_status("evaluated %lld of %lld windows", (long long)(w + B - first),
                       (long long)(end - first));
    }
    log_status_clear();
    return 0;
}

static int take_room(struct evaluation *ev, const struct comm *world, struct error *err)
{
    size_t n = (size_t)(ev->B * ev->S);
    if (ev->stream->n_tokens < 2) {
        error_set(err, ERROR_INPUT, "'%s' has %lld tokens; a loss needs at least two",
                  ev->stream->name, (long long)ev->stream->n_tokens);
        return -1;
    }
    ev->n_windows = offline_eval_windows(ev->stream->n_tokens, ev->S, ev->stride);
    ev->read = malloc((size_t)(ev->S + 1) * sizeof *ev->read);
    ev->tokens = malloc(n * sizeof *ev->tokens);
    ev->targets = malloc(n * sizeof *ev->targets);
    ev->weights = malloc(n * sizeof *ev->weights);
    ev->sums = calloc((size_t)ev->n_windows, sizeof *ev->sums);
    ev->bounds = calloc((size_t)comm_size(world) + 1, sizeof *ev->bounds);
    if (!ev->read || !ev->tokens || !ev->targets || !ev->weights || !ev->sums ||
        !ev->bounds) {
        error_set(err, ERROR_RUNTIME, "out of memory for the sums of %lld windows",
                  (long long)ev->n_windows);
        return -1;
    }
    comm_even_bounds(ev->n_windows, comm_size(world), ev->bounds);
    return 0;
}

static void release(struct evaluation *ev)
{
    free(ev->read);
    free(ev->tokens);
    free(ev->targets);
    free(ev->weights);
    free(ev->sums);
    free(ev->bounds);
}

int offline_eval(struct eval_result *result, struct gpt *g, int64_t stride,
                 const struct eval_stream *stream, struct comm *world, struct error *err)
{
    struct evaluation ev = {
        .g = g, .stream = stream, .S = g->dims.S, .B = g->dims.B, .stride = stride};
    double sum = 0;
    int rc = take_room(&ev, world, err);
    if (rc == 0)
        rc = run(&ev, world, err);
    rc = comm_agree(world, rc, err);
    if (rc == 0)
        rc = comm_allgather(world, ev.sums, sizeof *ev.sums, ev.bounds, err);
    if (rc)
        goto done;
    for (int64_t w = 0; w < ev.n_windows; w++)
        sum += ev.sums[w];
    *result = (struct eval_result){.loss = sum / (double)(stream->n_tokens - 1),
                                   .n_scored = stream->n_tokens - 1,
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
