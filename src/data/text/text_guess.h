/*
 * text_guess - what a file is that is no UTF-8 text, by its bytes alone, so that a
 * refusal can name it and say what to do. Guesses are never acted upon.
 */
#ifndef DATA_TEXT_TEXT_GUESS_H
#define DATA_TEXT_TEXT_GUESS_H

#include "base/base.h"

/* What the file is that begins with these n bytes, and what to do about it ("a PDF
 * document; take its text out first, ..."), or NULL. Some marks could begin a text as
 * well: they count where is_text, whether the bytes are one, is false. */
const char *text_guess_file(const char *start, size_t n, bool is_text);

/* iconv's name of the encoding that n bytes of text look like, or NULL. They begin where
 * a character does, and are not UTF-8. */
const char *text_guess_encoding(const char *bytes, size_t n);

/* The name of an encoding in which text is ASCII, and so UTF-8 too, but for its switches
 * of character sets; NULL: there are none. *at is the place of the first. */
const char *text_guess_switching(const char *bytes, size_t n, size_t *at);

#endif
