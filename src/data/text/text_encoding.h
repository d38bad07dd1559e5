/*
 * text_encoding - texts that are not UTF-8, turned into it by the C library's iconv.
 *
 * Names of encodings are iconv's, plus "bytes": the bytes of a file as they are. NULL,
 * as well as UTF-8 itself, means that a text must be UTF-8.
 */
#ifndef DATA_TEXT_TEXT_ENCODING_H
#define DATA_TEXT_TEXT_ENCODING_H

#include "base/base.h"
#include "base/error.h"

#define TEXT_ENCODING_BYTES "bytes"

enum text_encoding_kind { TEXT_IS_UTF8, TEXT_IS_BYTES, TEXT_IS_CONVERTED };

enum text_encoding_kind text_encoding_kind_of(const char *encoding);

struct text_decoder; // opaque

/* A name that iconv does not know is refused. `file` is borrowed, for errors. */
MUST_CHECK int text_decoder_open(struct text_decoder **out, const char *encoding,
                                 const char *file, struct error *err);
void text_decoder_close(struct text_decoder *d); // NULL is fine

/* Where the decoder wants more of the text, and how much. */
char *text_decoder_buffer(struct text_decoder *d, size_t *size);
/* n bytes were put there; 0: the text ends. Bytes that are not of the encoding are an
 * error that names their place. */
MUST_CHECK int text_decoder_put(struct text_decoder *d, size_t n, struct error *err);
/* Move at most `size` bytes of UTF-8 to buf: how many; 0: it wants more of the text. */
size_t text_decoder_get(struct text_decoder *d, char *buf, size_t size);

/* Refuse a name that could not be opened, before anything is read. */
MUST_CHECK int text_encoding_check(const char *encoding, struct error *err);

/* -- what else a file is ------------------------------------------------------------- */

/* By its bytes alone, so that a refusal can name it and say what to do. Guesses are never
 * acted upon. */

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
