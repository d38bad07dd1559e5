/* utf8 - one character at a time, strictly: no overlong forms, no surrogates. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include "base/base.h"

#define UTF8_MOST_BYTES 4

static inline bool utf8_is_tail(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

/* The number of bytes of the character that the n > 0 bytes start with, and its code
 * point; 0 when they start with none. */
static inline size_t utf8_decode(const char *text, size_t n, uint32_t *code)
{
    const uint8_t *b = (const uint8_t *)text;
    if (b[0] < 0x80) {
        *code = b[0];
        return 1;
    }
    if (b[0] < 0xC2)
        return 0;
    if (b[0] < 0xE0) {
        if (n < 2 || !utf8_is_tail(b[1]))
            return 0;
        *code = (uint32_t)(b[0] & 0x1F) << 6 | (b[1] & 0x3F);
        return 2;
    }
    if (b[0] < 0xF0) {
        if (n < 3 || !utf8_is_tail(b[1]) || !utf8_is_tail(b[2]))
            return 0;
        *code =
            (uint32_t)(b[0] & 0x0F) << 12 | (uint32_t)(b[1] & 0x3F) << 6 | (b[2] & 0x3F);
        return *code < 0x800 || (*code >= 0xD800 && *code < 0xE000) ? 0 : 3;
    }
    if (n < 4 || !utf8_is_tail(b[1]) || !utf8_is_tail(b[2]) || !utf8_is_tail(b[3]))
        return 0;
    *code = (uint32_t)(b[0] & 0x07) << 18 | (uint32_t)(b[1] & 0x3F) << 12 |
            (uint32_t)(b[2] & 0x3F) << 6 | (b[3] & 0x3F);
    return b[0] > 0xF4 || *code < 0x10000 || *code > 0x10FFFF ? 0 : 4;
}

/* Write the character and return its number of bytes. */
static inline size_t utf8_encode(uint32_t code, char out[UTF8_MOST_BYTES])
{
    uint8_t *b = (uint8_t *)out;
    if (code < 0x80) {
        b[0] = (uint8_t)code;
        return 1;
    }
    if (code < 0x800) {
        b[0] = (uint8_t)(0xC0 | code >> 6);
        b[1] = (uint8_t)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        b[0] = (uint8_t)(0xE0 | code >> 12);
        b[1] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
        b[2] = (uint8_t)(0x80 | (code & 0x3F));
        return 3;
    }
    b[0] = (uint8_t)(0xF0 | code >> 18);
    b[1] = (uint8_t)(0x80 | (code >> 12 & 0x3F));
    b[2] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
    b[3] = (uint8_t)(0x80 | (code & 0x3F));
    return 4;
}

/* -- a whole text -------------------------------------------------------------------- */

/* Is a text UTF-8, chunk by chunk as it is read? Strictly, and without NUL, which no text
 * has and which UTF-16 and binary files are full of. */
struct utf8_check { // zero-initialised: nothing was read yet
    char held[4];   // the beginning of a character that goes on in the next chunk
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
