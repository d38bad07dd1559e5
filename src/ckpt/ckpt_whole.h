/* ckpt_whole - a whole model in flat buffers, as a part that happens to be all of it. */
#ifndef CKPT_CKPT_WHOLE_H
#define CKPT_CKPT_WHOLE_H

#include "ckpt/ckpt.h"
#include "ckpt/ckpt_part.h"

struct ckpt_whole {
    struct shard_map map;
    struct ckpt_part part;
    const struct ckpt_state *state; // borrowed
};

MUST_CHECK int ckpt_whole_init(struct ckpt_whole *w, const struct ckpt_state *state,
                               struct error *err);
void ckpt_whole_release(struct ckpt_whole *w); // one of zeros is fine

struct ckpt_source ckpt_whole_source(struct ckpt_whole *w);
struct ckpt_sink ckpt_whole_sink(struct ckpt_whole *w);

#endif
