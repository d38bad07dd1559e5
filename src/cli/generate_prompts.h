/*
 * generate_prompts - what `trefoil generate` is asked to continue: as it was given, and
 * this data rank's share of it as tokens.
 */
#ifndef CLI_GENERATE_PROMPTS_H
#define CLI_GENERATE_PROMPTS_H

#include "base/base.h"
#include "base/error.h"
#include "data/text/text_list.h"
#include "model/gpt_generate.h"
#include "text/tokenizer.h"

struct generate_prompts { // zero-initialised is empty
    /* One of these is given, by the user. */
    const char *text, *ids, *path;
    const char *encoding;  // of the file at `path` (data/text_encoding.h); NULL: UTF-8
    struct text_list list; // of the file at `path`
    int64_t n_prompts;     // of all data ranks

    struct gpt_text *texts; // (n_texts) prompt data_rank + i * data_size is texts[i]
    int64_t n_texts;
};

/* Find the prompts; with a path, read the file. To be released after a failure too. */
MUST_CHECK int generate_prompts_open(struct generate_prompts *p, struct error *err);
void generate_prompts_release(struct generate_prompts *p);

/* Prompt i as it was given. */
const char *generate_prompts_at(const struct generate_prompts *p, int64_t i, size_t *n);

/* Fill p->texts with every data_size-th prompt from number data_rank on. `tokenizer` is
 * NULL for ids, which must be below `vocab_size`. An empty text becomes the token that
 * ends a document, `eos`, since that may stand before one. */
MUST_CHECK int generate_prompts_encode(struct generate_prompts *p, int64_t data_rank,
                                       int64_t data_size,
                                       const struct tokenizer *tokenizer, int32_t eos,
                                       int64_t vocab_size, struct error *err);

#endif
