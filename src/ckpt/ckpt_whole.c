#include "ckpt/ckpt_whole.h"

#include <string.h>

int ckpt_whole_init(struct ckpt_whole *w, const struct ckpt_state *state,
                    struct error *err)
{
    *w = (struct ckpt_whole){.state = state};
    if (shard_map_init(&w->map, state->table, 1, 0, err))
        return -1;
    return ckpt_part_init(&w->part, &w->map, true, err);
}

void ckpt_whole_release(struct ckpt_whole *w)
{
    ckpt_part_release(&w->part);
    shard_map_release(&w->map);
}

static float *place(const struct ckpt_whole *w, int kind, const struct ckpt_piece *piece,
                    int64_t first)
{
    return w->state->flat[kind] + piece->row->offset + piece->first + first;
}

static const float *view(void *context, int kind, const struct ckpt_piece *piece,
                         int64_t first, int64_t n, float *room, struct error *err)
{
    (void)n;
    (void)room;
    (void)err;
    return place(context, kind, piece, first);
}

static int take(void *context, int kind, const struct ckpt_piece *piece, int64_t first,
                int64_t n, const float *x, struct error *err)
{
    (void)err;
    memcpy(place(context, kind, piece, first), x, (size_t)n * sizeof *x);
    return 0;
}

struct ckpt_source ckpt_whole_source(struct ckpt_whole *w)
{
    return (struct ckpt_source){view, w};
}

struct ckpt_sink ckpt_whole_sink(struct ckpt_whole *w)
{
    return (struct ckpt_sink){take, w};
}
