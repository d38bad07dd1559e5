/*
 * cloze_eval - how often a model gets the last word of a text right, as LAMBADA asks.
 *
 * A text without its last word is the context. The word counts as right when, given all
 * tokens before it, each of its tokens is the likeliest one. The word is taken as a space
 * and its letters, as it stands in the text; white space around the context is dropped.
 *
 * Since the right tokens before a token are all it is given, one pass forward over
 * context and word tells; texts of about the same length go together.
 */
#ifndef TRAIN_CLOZE_EVAL_H
#define TRAIN_CLOZE_EVAL_H

#include "base/base.h"
#include "base/error.h"
#include "data/text/text_documents.h"
#include "parallel/runner.h"
#include "text/tokenizer.h"

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
