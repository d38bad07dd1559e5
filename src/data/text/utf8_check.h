/*
 * utf8_check - is a text UTF-8, piece by piece as it is read?
 *
 * Strictly: no overlong forms, no surrogates; and no NUL, which no text has and which
 * UTF-16 and binary files are full of.
 */
#ifndef DATA_TEXT_UTF8_CHECK_H
#define DATA_TEXT_UTF8_CHECK_H

#include "base/base.h"

struct utf8_check { // zero-initialised: nothing was read yet
    char held[4];   // the beginning of a character that goes on in the next piece
    size_t n_held;
    int64_t n_bytes; // that are known to be good
};

/* Take the next n bytes; false when one of them is bad: then c->n_bytes is its place. */
bool utf8_check_take(struct utf8_check *c, const char *bytes, size_t n);
/* There are no more; false when the text ends inside a character. */
bool utf8_check_end(const struct utf8_check *c);

/* The first of n bytes that does not begin a whole character, or is NUL; n: none. */
size_t utf8_find_bad(const char *bytes, size_t n);

#endif
