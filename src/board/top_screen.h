/*
 * top_screen - the first screen of the board as text, for people with a terminal only.
 */
#ifndef BOARD_TOP_SCREEN_H
#define BOARD_TOP_SCREEN_H

#include "base/base.h"
#include "board/board.h"

struct top_screen {
    int columns; // 0: lines are as long as they are
    int rows;    // 0: as many as there are
    bool is_coloured;
    bool has_blocks; // the terminal shows Unicode
};

/* All runs, lines that end with a newline. Nothing in a run's files reaches the terminal
 * but text: no control characters. */
void top_screen_write(const struct top_screen *screen, struct board *b,
                      struct board_text *out);

#endif
