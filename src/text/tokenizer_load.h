/*
 * tokenizer_load - tokenizers out of the text of their files, n bytes each.
 *
 * `t` is new (tokenizer_new()) and finished here. Errors do not name the file: the caller
 * does.
 */
#ifndef TEXT_TOKENIZER_LOAD_H
#define TEXT_TOKENIZER_LOAD_H

#include "text/tokenizer_build.h"

/* Hugging Face's tokenizer.json. */
MUST_CHECK int tokenizer_load_json(struct tokenizer *t, const char *text, size_t n,
                                   struct error *err);

/* vocab.json (encoder.json) and merges.txt (vocab.bpe). */
MUST_CHECK int tokenizer_load_pair(struct tokenizer *t, const char *vocab, size_t n_vocab,
                                   const char *merges, size_t n_merges,
                                   struct error *err);

/* tiktoken's ranks. */
MUST_CHECK int tokenizer_load_ranks(struct tokenizer *t, const char *text, size_t n,
                                    struct error *err);

/* No file: the bytes and an end of document. */
MUST_CHECK int tokenizer_load_bytes(struct tokenizer *t, struct error *err);

#endif
