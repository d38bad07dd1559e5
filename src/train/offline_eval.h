/*
 * offline_eval - the loss of a model on one stream of tokens, by a sliding window.
 *
 * A window is S tokens, and S targets one later. Window 0 scores all its targets; each
 * later one begins `stride` tokens further and scores its last `stride`, so that they
 * have at least S - stride tokens before them. Every token but the first is scored once.
 * With stride S windows do not overlap.
 *
 * Windows are dealt to the data ranks of a job, and their sums are added in the order of
 * the stream: the result is the same bits for any number of data ranks and pipeline
 * stages and any batch size.
 */
#ifndef TRAIN_OFFLINE_EVAL_H
#define TRAIN_OFFLINE_EVAL_H

#include "base/base.h"
#include "base/error.h"
#include "parallel/runner.h"

struct eval_stream {  // tokens, wherever they are
    const char *name; // for errors
    int64_t n_tokens;
    int (*read)(void *context, int64_t first, int64_t n, int32_t *tokens,
                struct error *err);
    void *context;
};

struct eval_result {
    double loss; // mean nats a token
    int64_t n_scored;
    int64_t n_windows;
};

/* The windows that n_tokens tokens have. */
int64_t offline_eval_windows(int64_t n_tokens, int64_t S, int64_t stride);

/* A window is as long as the model's longest. 1 <= stride <= S. A stream of fewer than
 * two tokens, and tokens outside of the model's vocabulary of vocab_size, are refused.
 * [collective] */
MUST_CHECK int offline_eval(struct eval_result *result, struct runner *r,
                            int64_t vocab_size, int64_t stride,
                            const struct eval_stream *stream, struct error *err);

#endif
