/*
 * encoder - the ids of a text, by a tokenizer (tokenizer.h says what is promised).
 *
 * Threads: one at a time per encoder, any number of encoders per tokenizer.
 */
#ifndef TEXT_ENCODER_H
#define TEXT_ENCODER_H

#include "text/tokenizer.h"

struct token_list { // grows as needed; zero-initialised is empty
    int32_t *ids;
    int64_t n, capacity;
};
void token_list_release(struct token_list *list);
MUST_CHECK int token_list_append(struct token_list *list, const int32_t *ids, int64_t n,
                                 struct error *err);

struct encoder; // a thread's own caches

MUST_CHECK int encoder_open(struct encoder **out, const struct tokenizer *t,
                            struct error *err);
void encoder_close(struct encoder *e); // NULL is fine

/* Append the ids of the n bytes at `text` to *list. Special tokens in the text are
 * ordinary text, as training data must be, unless with_special. */
MUST_CHECK int encoder_encode(struct encoder *e, const char *text, size_t n,
                              bool with_special, struct token_list *list,
                              struct error *err);

/* For texts that come in chunks: the last place in the n bytes where the text may be cut,
 * so that its two halves, encoded one after the other, give the ids of the whole,
 * whatever follows. 0: none is known, and more of the text is needed. */
size_t encoder_last_cut(const struct encoder *e, const char *text, size_t n,
                        bool with_special);

#endif
