/*
 * board_streams - pages that are open, told of changes by server-sent events.
 *
 * A page that has all there is waits inside the library without costing anything, until
 * board_streams_tick() has something new for it. Local to the server: of the files that
 * include <microhttpd.h>.
 */
#ifndef BOARD_BOARD_STREAMS_H
#define BOARD_BOARD_STREAMS_H

#include "base/base.h"
#include "board/board.h"

#include <microhttpd.h>
#include <pthread.h>

#define BOARD_STREAMS_MOST 48

struct board_stream;

struct board_streams {
    struct board *board;
    pthread_mutex_t mutex;
    struct board_stream *streams[BOARD_STREAMS_MOST];
    int64_t n_streams;
    struct board_text event; // the newest: "data: {...}\n\n"
    uint64_t n_events;       // so far
    uint64_t version;        // of the board, when the event was made
    double made, told;       // clock_seconds() of the last look, and of the last event
    bool is_ending;
};

void board_streams_init(struct board_streams *s, struct board *b);
/* All streams end; before the daemon is stopped. */
void board_streams_end(struct board_streams *s);
/* After the daemon was stopped. */
void board_streams_release(struct board_streams *s);

/* A response that goes on as long as the page is open; NULL: there are too many. */
struct MHD_Response *board_streams_response(struct board_streams *s,
                                            struct MHD_Connection *connection);

/* About once a second: wake the pages for which there is something new. */
void board_streams_tick(struct board_streams *s);

#endif
