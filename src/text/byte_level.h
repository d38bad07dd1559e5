/*
 * byte_level - GPT-2's way to write any bytes as printable text.
 *
 * Vocabulary files hold text, tokens are bytes: so each byte has a symbol. 0x21-0x7E,
 * 0xA1-0xAC and 0xAE-0xFF stand for themselves (as code points), the other 68 in
 * ascending order for U+0100, U+0101, ...: a space is U+0120.
 */
#ifndef TEXT_BYTE_LEVEL_H
#define TEXT_BYTE_LEVEL_H

#include "base/base.h"

#define BYTE_LEVEL_SYMBOL_BYTES 2 // the most that a symbol takes in UTF-8

/* The code point that stands for a byte. */
uint32_t byte_level_symbol(uint8_t byte);

/* The place of a byte among all, ordered by their symbols: its id in GPT-2. */
int32_t byte_level_place(uint8_t byte);

/* Write n bytes as symbols; `out` has room for 2 n. Returns the number written. */
size_t byte_level_spell(const char *bytes, size_t n, char *out);

/* The way back: `out` has room for n. False when the text has a character that stands for
 * no byte. `out` may be `text`. */
bool byte_level_read(const char *text, size_t n, char *out, size_t *n_out);

#endif
