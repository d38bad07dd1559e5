/*
 * gpt_generate - continue many texts with one model, as many at a time as a decoder has
 * slots: a text that ends frees its slot for the next at once.
 *
 * What follows a text depends on the model, the sampler and the text's number alone: the
 * same bits with any number of slots, in whatever slot, whatever the other texts are.
 * When a slot is full, the newest half of its text is read again as a new prompt.
 *
 * The processes that share a model each hold all of its texts and do the same in the same
 * order. One of them samples and broadcasts the token to the others.
 */
#ifndef MODEL_GPT_GENERATE_H
#define MODEL_GPT_GENERATE_H

#include "model/gpt_decode.h"
#include "model/sampler.h"

struct gpt_text {
    int64_t index;   // among all texts: what is drawn depends on it; below 2^31
    int32_t *tokens; // the prompt, then what follows it; malloc'ed, grows
    int64_t n_tokens, capacity;
    int64_t n_prompt; // of these, at least one
    bool is_ended;    // by the token that ends a document, which is not kept
};

struct gpt_generate {
    struct gpt_decoder *decoder;
    struct sampler *sampler;
    struct comm *replica; // all processes that share the model
    int sampling_rank;    // in it, of the one that draws: it has the head
    int64_t max_tokens;   // after a prompt; at least one, at most INT32_MAX
    int32_t eos;          // ends a document; -1: nothing does
    void *context;
    /* A token follows the text; and nothing more does. Either may be NULL; a failure ends
     * the generation. */
    int (*on_token)(void *context, const struct gpt_text *text, int32_t id,
                    struct error *err);
    int (*on_end)(void *context, const struct gpt_text *text, struct error *err);
};

/* Texts are begun in their order. After a failure other processes may be waiting for this
 * one. [collective over gen->replica] */
MUST_CHECK int gpt_generate(const struct gpt_generate *gen, struct gpt_text *texts,
                            int64_t n_texts, struct error *err);

#endif
