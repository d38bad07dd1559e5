/*
 * char_class - letter, number, white space or none of them, for every code point.
 *
 * Letters and numbers are what PCRE2 knows as \p{L} and \p{N}. White space is the 25 code
 * points of Unicode's White_Space, written out, because PCRE2's \s has U+180E as well and
 * the reference implementations have not.
 *
 * Classes are asked of PCRE2 a block of 256 code points at a time, when the first of the
 * block is met. Threads: one at a time.
 */
#ifndef TEXT_CHAR_CLASS_H
#define TEXT_CHAR_CLASS_H

#include "base/base.h"
#include "base/error.h"

enum char_class {
    CHAR_UNKNOWN, // not asked yet
    CHAR_LETTER,
    CHAR_NUMBER,
    CHAR_SPACE,
    CHAR_OTHER,
};

struct char_classes; // opaque

MUST_CHECK int char_classes_open(struct char_classes **out, struct error *err);
void char_classes_close(struct char_classes *classes); // NULL is fine

/* The class of a code point below 0x110000 that is no surrogate. */
enum char_class char_class_of(struct char_classes *classes, uint32_t code);

#endif
