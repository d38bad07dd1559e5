/*
 * batch - samples of tokens: one struct from the loader to the model.
 *
 * The loader fills in what is in the files: tokens, targets, what counts, where documents
 * begin. The step adds what a token's loss weighs and where losses go; the runner cuts it
 * into micro-batches, which are batches too. All arrays are (B, S), borrowed from whoever
 * filled them in.
 *
 * Padding is at the end of a sample, and attention is causal: no token of a document sees
 * padding. Where the losses at padding count, key_end hides it from padding's own queries;
 * elsewhere there is no mask, and loss_mask leaves out what padding computes.
 */
#ifndef BASE_BATCH_H
#define BASE_BATCH_H

#include "base/base.h"

/* How the head draws tokens instead of taking the likeliest ones: by the maximum of
 * logits / temperature with noise of Gumbel's distribution, which draws by the softmax of
 * logits / temperature. The noise is a function of what stands here, the sample's number
 * and the token's id, so what is drawn does not depend on who has which logits. */
struct batch_draw {
    uint64_t seed;
    int64_t step;  // of the run
    int64_t token; // number of the token that is drawn, below 2^24
    double temperature;
    int64_t n_ids; // those from here on are never drawn
    float *row;    // (V) scratch, the host's
};

struct batch {
    int64_t B, S;
    const int32_t *tokens;
    const int32_t *targets;        // the token after each
    const float *loss_mask;        // 1: the token's loss counts; 0: it does not
    const int32_t *document_start; // where in its sample the document of each token
                                   // begins, which is the first key it sees and has
                                   // position 0; NULL: at 0
    const int32_t *key_end;        // (B) no query sees tokens from here on; NULL: S
    int64_t n_counted;             // ones in loss_mask; the loader's
    int64_t first_sample;          // index in the global batch of sample 0, for dropout
    int64_t step;                  // for dropout

    float loss_weight; // in the gradient, of a token that counts
    double *loss_sums; // (B) filled by the head, see gpt_finish_losses(): the losses of a
                       // sample's tokens that count, summed in double
    int32_t *likeliest; // filled by the head where tokens count: the token of the largest
                        // logit, the lowest of equal ones, -1 if none is a number. NULL:
                        // not wanted
    const struct batch_draw *draw; // `likeliest` is drawn; NULL: it is not

    bool is_training; // dropout on, gradients wanted
    bool accumulate;  // of micro-batches: not the first of this step
    bool is_last;     // of micro-batches: the last of this step
};

#endif
