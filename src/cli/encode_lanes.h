/*
 * encode_lanes - the ids of a text as text, found by all cores.
 *
 * The text is cut where that changes no id, each core encodes a piece, and the pieces are
 * put out in order: what comes out does not depend on the number of cores.
 */
#ifndef CLI_ENCODE_LANES_H
#define CLI_ENCODE_LANES_H

#include "text/encoder.h"

struct encode_lanes; // opaque

/* The tokenizer is borrowed. */
MUST_CHECK int encode_lanes_open(struct encode_lanes **out, const struct tokenizer *t,
                                 bool with_special, struct error *err);
void encode_lanes_close(struct encode_lanes *lanes); // NULL is fine

/* As encoder_last_cut(). */
size_t encode_lanes_last_cut(const struct encode_lanes *lanes, const char *text,
                             size_t n);

/* Put out the ids of n bytes that end where the text may be cut, a space before each but
 * the first of all. put() returns 0, or -1 with *err. */
MUST_CHECK int encode_lanes_encode(struct encode_lanes *lanes, const char *text, size_t n,
                                   int (*put)(void *context, const char *bytes, size_t n,
                                              struct error *err),
                                   void *context, struct error *err);

#endif
