/*
 * board_server - the board over HTTP, by libmicrohttpd.
 *
 * One thread of the library answers; the caller's thread reads the runs, tells the pages
 * that are open when something has changed, and ends connections that do nothing. What
 * clients can make the server hold is bounded: connections, the bytes of a request, the
 * time that one takes, and pages that are told of changes.
 *
 * Layer: board, board_page, board_guard <- board_server <- cli.
 */
#ifndef BOARD_BOARD_SERVER_H
#define BOARD_BOARD_SERVER_H

#include "base/base.h"
#include "base/error.h"
#include "board/board.h"
#include "board/board_guard.h"

#define BOARD_PORT 6060
#define BOARD_PLACE_BYTES 256
#define BOARD_PORTS_TRIED 20 // from BOARD_PORT on, where no port is asked for

struct board_server_options {
    const char *address; // to listen on
    int64_t port;        // 0: any; -1: BOARD_PORT, or the next that is free
    const char *token;   // "": none is asked for
    /* Where readers find the token, as a refusal ends: "in ~/x". Everybody can read this. */
    const char *token_place;
};

struct board_server; // opaque

/* Whether this program has a server: it can be built without (-DBOARD=OFF). */
bool board_server_is_there(void);

/* Listen and answer. The board is borrowed. */
MUST_CHECK int board_server_open(struct board_server **server, struct board *b,
                                 const struct board_server_options *options,
                                 struct error *err);
void board_server_close(struct board_server *server);

/* Where it listens, and the guard with its token; borrowed. */
int board_server_port(const struct board_server *server);
const struct board_guard *board_server_guard(const struct board_server *server);

/* About once a second: tell what has changed, end what does nothing. */
void board_server_tick(struct board_server *server);

#endif
