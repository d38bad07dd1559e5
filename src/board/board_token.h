/*
 * board_token - the secret that a reader of the board must know.
 *
 * One file per user holds it, so that every board of this user, and every restart, has
 * the same token: bookmarks and Prometheus keep working. Run directories are only read,
 * may belong to others and are copied, so the token is not kept there.
 */
#ifndef BOARD_BOARD_TOKEN_H
#define BOARD_BOARD_TOKEN_H

#include "base/base.h"
#include "base/error.h"

#define BOARD_TOKEN_LEAST 16 // characters of a token
#define BOARD_TOKEN_BYTES 129
#define BOARD_TOKEN_NAME "trefoil/board.token"

/* A new token of 128 random bits. */
MUST_CHECK int board_token_make(char token[BOARD_TOKEN_BYTES], struct error *err);

/* Copy a token that is given; `place` names its origin in an error. Only characters that
 * an address and a cookie can hold unchanged are allowed. */
MUST_CHECK int board_token_take(char token[BOARD_TOKEN_BYTES], const char *given,
                                const char *place, struct error *err);

/* The user's file: $XDG_STATE_HOME/trefoil/board.token, or ~/.local/state/trefoil/
 * board.token. */
MUST_CHECK int board_token_path(char *path, size_t size, struct error *err);

/* Create the file, with mode 0600 and a new token in it, and its directories. A file that
 * is there already stays as it is. */
MUST_CHECK int board_token_create(const char *path, struct error *err);

/* Read the token from a file. The file must belong to this user or to root, and must not
 * be accessible to anybody else. */
MUST_CHECK int board_token_read(const char *path, char token[BOARD_TOKEN_BYTES],
                                struct error *err);

#endif
