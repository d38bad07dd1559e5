/*
 * word_split - GPT-2's cut of a text into words, inside which tokens are merged.
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * A byte that belongs to no valid UTF-8 character is a character of the third kind, one
 * that is neither letter, number nor white space: a text is cut where the reference cuts
 * it with each such byte replaced by U+FFFD, but the bytes stay what they are.
 *
 * Words are contiguous and cover the text. Threads: one at a time per splitter.
 */
#ifndef TEXT_WORD_SPLIT_H
#define TEXT_WORD_SPLIT_H

#include "base/base.h"
#include "base/error.h"

struct word_splitter; // opaque

MUST_CHECK int word_splitter_open(struct word_splitter **out, struct error *err);
void word_splitter_close(struct word_splitter *s); // NULL is fine

/* The number of bytes, above 0, of the first word of the n > 0 bytes, which are all that
 * is left of the text. */
size_t word_split_next(struct word_splitter *s, const char *text, size_t n);

/* Can the bytes be found inside one word? They can if they are no valid UTF-8: a token
 * may end within a character. */
bool word_split_is_inside(struct word_splitter *s, const char *bytes, size_t n);

/* The last place in the n bytes where the text can be cut in two that give the same
 * words, whatever follows: before white space that follows something else. 0: none. */
size_t word_split_last_cut(const char *text, size_t n);

#endif
