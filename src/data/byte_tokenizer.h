/*
 * byte_tokenizer - one token a byte: ids 0..255 are the byte values, 256 ends a document.
 *
 * Any bytes are text to it, valid UTF-8 or not, and decode(encode(x)) is x.
 */
#ifndef DATA_BYTE_TOKENIZER_H
#define DATA_BYTE_TOKENIZER_H

#include "base/base.h"

#define BYTE_TOKENIZER_NAME "bytes"
#define BYTE_TOKENIZER_EOS 256
#define BYTE_TOKENIZER_VOCAB_SIZE 257

/* tokens[0..n) := the n bytes of `text`. */
void byte_tokenizer_encode(const char *text, size_t n, int32_t *tokens);

/* Write the bytes of the n tokens to `text` (room for n bytes; no NUL is added) and
 * return how many there are. Ids that are no byte (eos, padding of the vocabulary) give
 * none. */
size_t byte_tokenizer_decode(const int32_t *tokens, int64_t n, char *text);

#endif
