/*
 * gpt_decode - a model used to continue texts: several at a time, each in a slot that
 * caches the keys and values of its tokens.
 *
 * A prompt runs through training's forward in one go. Later tokens advance any slots
 * together, one row each, so that every matrix is read once for all of them. The bits of
 * a row depend on its own slot alone: not on which others advance with it, nor on the
 * number of stages of a pipeline.
 *
 * Works on any part of a model: with tensor parallelism a slot caches the keys and values
 * of its own heads; in a pipeline rows come from the stage before and go to the next. All
 * processes that share a model make the same calls in the same order, with the same
 * arguments; those with the head have the logits. As in gpt.h nothing can fail after
 * opening, but for a lost peer, which ends the job.
 */
#ifndef MODEL_GPT_DECODE_H
#define MODEL_GPT_DECODE_H

#include "model/gpt.h"

struct gpt_decoder {
    struct gpt *gpt;                  // borrowed; see gpt_decoder_open()
    struct comm *pipe;                // the stages of the model in order; borrowed
    int64_t n_slots;                  // R: rows of what follows
    int64_t V;                        // of the whole model; 0 without the head
    int64_t *n_past;                  // (R) tokens that a slot has cached
    void *cache;                      // (R, layers here, S, 2, A, D) keys and values
    float *scores;                    // (A, S)
    float *logits;                    // for each part of the vocabulary: (rows, its V)
    int64_t n_logit_rows;             // of the last call
    float *logit_row;                 // (V) one row of them, the host's
    int64_t *bounds;                  // (mp + 1) of these parts, for each row
    int64_t *gathered;                // (mp + 1) the same for all rows
    struct arena arena, arena_tables; // of the device, and the host's
};

/* `gpt` has B = 1, no gradients, one chunk of blocks, no sequence parallelism; its S is
 * what a slot can hold, and the most slots there can be (dec->n_slots). `pipe` is not
 * used where the whole model is in one stage, and may be NULL there. */
MUST_CHECK int gpt_decoder_open(struct gpt_decoder *dec, struct gpt *gpt, int64_t n_slots,
                                struct comm *pipe, struct error *err);
void gpt_decoder_close(struct gpt_decoder *dec);

/* The slot drops its cache and reads n tokens, 1 <= n <= S. */
void gpt_decoder_prompt(struct gpt_decoder *dec, int64_t slot, const int32_t *tokens,
                        int64_t n);
/* One token more for each of n different slots, none of them empty or full. */
void gpt_decoder_step(struct gpt_decoder *dec, const int64_t *slots,
                      const int32_t *tokens, int64_t n);
/* The logits (V) of what follows row `row` of the last call (a prompt has one row), valid
 * until the next call of any of these; NULL in a process without the head. */
const float *gpt_decoder_logits(struct gpt_decoder *dec, int64_t row);

#endif
