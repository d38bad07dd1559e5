/*
 * board_text - text that grows, and JSON in it.
 *
 * A text of zeros is empty. Memory that cannot be had makes the text `is_broken`: what is
 * added from then on is dropped, and whoever hands the text out looks once, at the end.
 */
#ifndef BOARD_BOARD_TEXT_H
#define BOARD_BOARD_TEXT_H

#include "base/base.h"

struct board_text {
    char *bytes; // not terminated
    int64_t n, capacity;
    bool is_broken;
};

void board_text_release(struct board_text *t);
/* Empty again, keeps its memory. */
void board_text_reset(struct board_text *t);

void board_text_add(struct board_text *t, const char *bytes, size_t n);
void board_text_put(struct board_text *t, const char *text);
void board_text_print(struct board_text *t, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* -- JSON ---------------------------------------------------------------------------- */

/* n bytes as a JSON string: whatever they hold it is UTF-8 and text, also inside a
 * <script> of HTML. What is not UTF-8 becomes U+FFFD. */
void board_text_string(struct board_text *t, const char *bytes, size_t n);
/* With 9 digits, enough for a float; null where JSON has no number. */
void board_text_number(struct board_text *t, double x);
/* The same with 15 digits. */
void board_text_long_number(struct board_text *t, double x);

/* "key": before a value, after a comma where the last byte is not that of an opening. */
void board_text_key(struct board_text *t, const char *key);
/* The comma of an element, likewise. */
void board_text_comma(struct board_text *t);

#endif
