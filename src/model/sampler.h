/*
 * sampler - the choice of the next token from its logits.
 *
 * temperature 0 takes the likeliest (the lowest id among equals). Otherwise: softmax of
 * logits / temperature; keep the top_k likeliest (0: all); of these, the fewest whose
 * probabilities reach top_p (at least one); draw one of what is left.
 */
#ifndef MODEL_SAMPLER_H
#define MODEL_SAMPLER_H

#include "base/base.h"
#include "base/error.h"

struct sampler_candidate {
    double weight; // exp of the shifted, scaled logit
    int32_t id;
};

struct sampler {
    double temperature; // >= 0
    int64_t top_k;      // >= 0
    double top_p;       // in (0, 1]
    uint64_t seed;
    struct sampler_candidate *candidates; // (V)
    int64_t V;
};

/* Options are set by the caller before; V is the number of logits to choose from. */
MUST_CHECK int sampler_init(struct sampler *s, int64_t V, struct error *err);
void sampler_release(struct sampler *s);

#define SAMPLER_NO_NUMBERS (-1)

/* The id of draw number `draw`; a pure function of the logits, the seed and `draw`.
 * SAMPLER_NO_NUMBERS when a logit is none, or the largest of them infinite. */
int32_t sampler_next(struct sampler *s, const float *logits, int64_t draw);

#endif
