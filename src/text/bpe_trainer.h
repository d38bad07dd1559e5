/*
 * bpe_trainer - learns the merges of a byte-level BPE from text.
 *
 * Text is cut into words as GPT-2 cuts it. All words are bytes at first; then, again and
 * again, the pair of neighbours that is most frequent becomes a token. Of pairs that are
 * equally frequent, the one with the lower left id does, then the one with the lower
 * right id: so the tokens follow from the text alone, in whatever order it is added.
 *
 * Ids: 0 to 255 are the bytes in the order of GPT-2, then the merges in their order, and
 * the last is "<|endoftext|>".
 *
 * Memory grows with the distinct words, not with the text. Threads: one at a time.
 */
#ifndef TEXT_BPE_TRAINER_H
#define TEXT_BPE_TRAINER_H

#include "text/tokenizer.h"

#define BPE_TRAINER_LEAST_VOCAB 257 // the bytes and the end of a document

struct bpe_trainer; // opaque

MUST_CHECK int bpe_trainer_open(struct bpe_trainer **out, struct error *err);
void bpe_trainer_close(struct bpe_trainer *tr); // NULL is fine

/* Count the words of a text. No word goes on in the text that is added next: one that
 * comes in chunks is cut where word_split_last_cut() says. */
MUST_CHECK int bpe_trainer_add(struct bpe_trainer *tr, const char *text, size_t n,
                               struct error *err);
int64_t bpe_trainer_n_words(const struct bpe_trainer *tr); // distinct ones

/* The tokenizer of `vocab_size` ids, or fewer where no pair is left that occurs
 * min_count > 0 times. tokenizer_close() frees it. */
MUST_CHECK int bpe_trainer_learn(const struct bpe_trainer *tr, int64_t vocab_size,
                                 int64_t min_count, const char *name,
                                 struct tokenizer **out, struct error *err);

#endif
