/*
 * prompts - what the model makes of fixed texts (eval_prompts) at every evaluation, so
 * that its progress can be read.
 *
 * Each token takes a pass forward over all texts as they are so far, by the very runner
 * that trains: so it works on every layout, with whatever is split, sharded or offloaded,
 * and needs no second copy of the weights. All data ranks do the same. The tokens are
 * drawn inside the head (struct batch_draw) with a temperature of 0.8: they depend on the
 * weights, seed, step and the number of the prompt alone.
 *
 * A prompt of more than half of max_seq_len loses its beginning; a text ends with the
 * token that ends a document, after eval_prompt_tokens, or where max_seq_len does.
 */
#ifndef TRAIN_PROMPTS_H
#define TRAIN_PROMPTS_H

#include "comm/grid.h"
#include "config/config.h"
#include "parallel/runner.h"
#include "text/tokenizer.h"

struct prompts {                 // zero-initialised: none
    int64_t n;                   // texts
    int64_t S;                   // tokens that a text may have
    int64_t S_unit;              // passes have a multiple of it
    int64_t n_most;              // tokens after a prompt
    int64_t eos, n_ids;          // of the tokenizer; eos -1: nothing ends a document
    struct comm *replica;        // the ranks that share a model; borrowed
    int drawing_rank;            // in it: one with the head
    int64_t *n_prompt;           // (n) tokens of each; owned, as all that follows
    int64_t *n_now;              // (n) with what was drawn so far
    int32_t *tokens;             // (n, S)
    int32_t *next;               // (n) the tokens drawn last; -1: none
    int32_t *pass, *drawn;       // (n, S)
    int32_t *targets;            // (n, S) zeros
    float *loss_mask, *row;      // (n, S), (V)
    double *loss_sums;           // (n)
    struct tokenizer *tokenizer; // on rank 0
};

/* Encode the prompts of *cfg with the tokenizer of this hash ("": unknown); refused, on
 * all ranks, when the tokenizer of the data is not known. prompts_close() takes a half-opened one. [collective] */
MUST_CHECK int prompts_open(struct prompts *p, const struct config *cfg,
                            const char *tokenizer_hash, const struct grid *grid,
                            struct error *err);
void prompts_close(struct prompts *p);

/* Continue all of them with the weights of step `step`. [collective] */
MUST_CHECK int prompts_draw(struct prompts *p, struct runner *r, uint64_t seed,
                            int64_t step, struct error *err);
/* What was drawn for prompt i, on rank 0; malloc'ed, NULL: there is no memory. */
char *prompts_text(const struct prompts *p, int64_t i);

#endif
