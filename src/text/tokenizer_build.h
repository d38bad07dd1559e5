/*
 * tokenizer_build - what a tokenizer is made of, and how one is put together.
 *
 * Who makes one fills the vocabulary, the merges and the three switches, then calls
 * tokenizer_finish(). Errors do not name the tokenizer: the caller does.
 */
#ifndef TEXT_TOKENIZER_BUILD_H
#define TEXT_TOKENIZER_BUILD_H

#include "text/bpe.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

#define TOKENIZER_EOS_TEXT "<|endoftext|>"

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

/* Append the merge of two tokens spelled in symbols; what they become is a token too. */
MUST_CHECK int tokenizer_add_merge(struct tokenizer *t, const char *left, size_t n_left,
                                   const char *right, size_t n_right, struct error *err);
/* The same of "left right". */
MUST_CHECK int tokenizer_add_merge_line(struct tokenizer *t, const char *line, size_t n,
                                        struct error *err);
/* The token that ends a document, special. */
MUST_CHECK int tokenizer_add_eos(struct tokenizer *t, int64_t id, struct error *err);

/* For files that do not say how a text is cut: that every text token can be found inside
 * a word of GPT-2's, as it must have been learned. */
MUST_CHECK int tokenizer_check_words(const struct tokenizer *t, struct error *err);

/* The facts that follow from the others. */
MUST_CHECK int tokenizer_finish(struct tokenizer *t, struct error *err);

#endif
