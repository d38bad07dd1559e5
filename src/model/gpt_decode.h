/*
 * gpt_decode - a model used to continue text: one token at a time with a KV cache.
 *
 * The cache of a layer is the (P, 3, A, D) query-key-value matrix that forward makes for
 * a prompt, so the prompt runs through the training kernels in one go and every later
 * token adds one row.
 */
#ifndef MODEL_GPT_DECODE_H
#define MODEL_GPT_DECODE_H

#include "model/gpt.h"

struct gpt_decoder {
    struct gpt *gpt;  // borrowed; opened with B = 1 and without gradients
    int64_t n_past;   // tokens in the cache
    float *cache;     // (L, S, 3, A, D)
    float *x, *x_mid; // (H)
    float *att, *out; // (H)
    float *wide;      // (F)
    float *scores;    // (A, S)
    float *logits;    // (V)
    struct arena arena;
};

MUST_CHECK int gpt_decoder_open(struct gpt_decoder *dec, struct gpt *gpt,
                                struct error *err);
void gpt_decoder_close(struct gpt_decoder *dec);
/* Forget all tokens. */
void gpt_decoder_reset(struct gpt_decoder *dec);

/* Append n >= 1 tokens; n_past + n must not pass the model's S. Returns the logits (V)
 * of what follows the last one, valid until the next call. */
const float *gpt_decoder_feed(struct gpt_decoder *dec, const int32_t *tokens, int64_t n);

#endif
