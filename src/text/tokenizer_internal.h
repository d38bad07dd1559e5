/*
 * tokenizer_internal - what a tokenizer is made of, for the files that load, use and save
 * one.
 *
 * A loader fills the vocabulary, the merges and the three switches from text in memory,
 * then calls tokenizer_finish(). Its errors do not name the tokenizer: the caller does.
 */
#ifndef TEXT_TOKENIZER_INTERNAL_H
#define TEXT_TOKENIZER_INTERNAL_H

#include "text/merge_table.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

#define TOKENIZER_EOS_TEXT "<|endoftext|>"
#define TOKENIZER_FILE_MOST_BYTES ((size_t)1 << 30)
#define TOKENIZER_GPT2_PATTERN                                                           \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

struct tokenizer {
    char *name;
    struct vocab vocab;
    struct merge_table merges;
    bool is_cut_into_words; // GPT-2's; otherwise a text is one word
    bool adds_prefix_space; // to a text that does not start with one
    bool takes_whole_words; // a word that is a token is that token, merges or not
    /* -- set by tokenizer_finish() -- */
    int32_t byte_ids[256]; // -1: the byte has no token
    int32_t *added;        // ids of added tokens, the longest first
    int64_t n_added;
    int32_t eos; // -1: none
};

/* An empty tokenizer; tokenizer_close() frees it. */
MUST_CHECK int tokenizer_new(struct tokenizer **out, const char *name, struct error *err);

/* The facts that follow from the others. */
MUST_CHECK int tokenizer_finish(struct tokenizer *t, struct error *err);

/* -- loaders: n bytes of text each --------------------------------------------------- */

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

/* -- shared by loaders --------------------------------------------------------------- */

/* Append the merge of two tokens spelled in symbols; what they become is a token too. */
MUST_CHECK int tokenizer_add_merge(struct tokenizer *t, const char *left, size_t n_left,
                                   const char *right, size_t n_right, struct error *err);
/* The same of "left right". */
MUST_CHECK int tokenizer_add_merge_line(struct tokenizer *t, const char *line, size_t n,
                                        struct error *err);

/* For files that do not say how a text is cut: that every text token can be found inside
 * a word of GPT-2's, as it must have been learned. */
MUST_CHECK int tokenizer_check_words(const struct tokenizer *t, struct error *err);

#endif
