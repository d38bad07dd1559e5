/*
 * evaluation - what a model knows: its loss on a stream of tokens, and how often it gets
 * the last word of a text right. Both are passes forward of a runner, and the same bits
 * for any number of data ranks and pipeline stages and any batch size.
 */
#ifndef TRAIN_EVALUATION_H
#define TRAIN_EVALUATION_H

#include "data/text/text_documents.h"
#include "parallel/runner.h"
#include "text/tokenizer.h"

/* -- the loss on a stream, by a sliding window --------------------------------------- */

/*
 * A window is S tokens, and S targets one later. Window 0 scores all its targets; each
 * later one begins `stride` tokens further and scores its last `stride`, so that they
 * have at least S - stride tokens before them. Every token but the first is scored once.
 * With stride S windows do not overlap. Windows are dealt to the data ranks of a job, and
 * their sums are added in the order of the stream.
 */

struct eval_stream {  // tokens, wherever they are
    const char *name; // for errors
    int64_t n_tokens;
    int (*read)(void *context, int64_t first, int64_t n, int32_t *tokens,
                struct error *err);
    void *context;
};

struct eval_result {
    double loss; // mean nats per token
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

/* -- the last word of a text (LAMBADA) ----------------------------------------------- */

/*
 * A text without its last word is the context. The word counts as right when, given all
 * tokens before it, each of its tokens is the likeliest one. The word is taken as a space
 * and its letters, as it stands in the text; white space around the context is dropped.
 *
 * Since each token is predicted from the right tokens before it, one forward pass over
 * context and word decides; texts of similar length are batched.
 */

/* How many of the texts end with the word the model expects, over all data ranks. A
 * context longer than the model's is cut at its beginning. [collective] */
MUST_CHECK int cloze_eval(int64_t *n_correct, struct runner *r,
                          const struct tokenizer *tokenizer, const struct text_list *list,
                          struct error *err);

/* The last word of the n bytes, and the bytes before it without white space around:
 * false when there is no word, or none before it. Lengths in bytes. */
bool cloze_split(const char *text, size_t n, size_t *context_first, size_t *context_n,
                 size_t *word_first, size_t *word_n);

#endif
