/*
 * board_head - the head of a request, checked before anything in it is believed.
 *
 * A header that is there twice, or that has a NUL byte, means one thing here and may mean
 * another to a proxy. And the library keeps a request and the head of its answer in the
 * same memory: where a request leaves no space there, it closes the connection without a
 * word. Such requests are refused, the latter by writing to the socket.
 *
 * Local to the server: of the files that include <microhttpd.h>.
 */
#ifndef BOARD_BOARD_HEAD_H
#define BOARD_BOARD_HEAD_H

#include "base/base.h"

#include <microhttpd.h>

#define BOARD_HEAD_BYTES 16384 // of a request, with what the library needs beside it

/* NULL, or the sentence that refuses the request, with its HTTP status. */
const char *board_head_fault(struct MHD_Connection *connection, int *status);

/* Does the request leave too little space for an answer? */
bool board_head_is_full(struct MHD_Connection *connection);

/* Refuse by writing to the socket, which takes and sends nothing from then on. */
void board_head_refuse(int fd, int status);

#endif
