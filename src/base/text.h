/* text - words as people type them. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>

#define TEXT_DISTANCE_MOST 255 // of words too long to be compared

/* The number of single-letter edits between two words, letters compared without case. */
int text_distance(const char *a, const char *b);

bool text_ends_with(const char *text, const char *suffix);

#endif
