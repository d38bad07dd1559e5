/*
 * gguf_export - a checkpoint as one GGUF file of a GPT-2 with its tokenizer, for
 * llama.cpp and what is built on it.
 *
 * Norms, biases and the position embedding are float32 whatever was asked for, as
 * llama.cpp's own converter has them. The head is the word embedding, so there is no
 * output.weight.
 */
#ifndef HUB_GGUF_EXPORT_H
#define HUB_GGUF_EXPORT_H

#include "hub/gguf_write.h"
#include "hub/hf_source.h"
#include "text/tokenizer.h"

/* dtype: DTYPE_F32 or DTYPE_F16, of matrices. `output` must not exist; it appears
 * complete or not at all. */
MUST_CHECK int gguf_export(struct hf_source *src, const struct tokenizer *tokenizer,
                           enum dtype dtype, const char *output, struct error *err);

/* Add the tokenizer as a "gpt2" one to the pairs, with V tokens: those that it does not
 * have stand for nothing. What a GGUF cannot say is refused. */
MUST_CHECK int gguf_add_tokenizer(struct gguf_header *h, const struct tokenizer *t,
                                  int64_t V, struct error *err);

#endif
