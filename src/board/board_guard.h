/*
 * board_guard - who may ask the board, by what a request says of itself.
 *
 * A page of another site can make a browser ask a server of its user's own machine, under
 * a name of that site that leads to 127.0.0.1 (DNS rebinding). So the name that was asked
 * for must be an address, localhost, or, where the board listens to others, this
 * machine's own name.
 *
 * Any user of this machine can connect to 127.0.0.1, and so can anybody where the board
 * listens to others. So a token is needed on every address.
 */
#ifndef BOARD_BOARD_GUARD_H
#define BOARD_BOARD_GUARD_H

#include "base/base.h"
#include "base/error.h"
#include "board/board_token.h"

#define BOARD_PARAMETERS_MOST 64 // in the address of a request

struct board_guard {
    bool is_local;                 // listens to this machine alone
    char token[BOARD_TOKEN_BYTES]; // "": none is asked for
    char host[256];                // this machine's name
    char full_name[256];           // with its domain; "": not known, or not needed
};

/* For a board that listens on `address`, an IPv4 or IPv6 one. `token` "": none is asked
 * for. */
MUST_CHECK int board_guard_init(struct board_guard *guard, const char *address,
                                const char *token, struct error *err);

/* May a request with this header Host be answered? NULL, where there is none: no. */
bool board_guard_knows_host(const struct board_guard *guard, const char *host);

/* May the address of a request be taken apart, "/path?name=value&..." as it was sent? 0,
 * or the HTTP status of its refusal: 414, too many parameters; 400, a NUL byte, which
 * would hide what follows it; 404, an escape in the path, which no path here needs. */
int board_guard_uri_status(const char *uri);

/* Is it the token? In a time that does not depend on how much of it is right. */
bool board_guard_knows_token(const struct board_guard *guard, const char *token);

#endif
