#include "train/rank_log.h"

#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>

#define MB 1e6

/* "embedding, layers 0-5, head" */
static void describe_part(const struct param_part *part, char *text, size_t size)
{
    size_t used =
        (size_t)snprintf(text, size, "%s", part->has_embedding ? "embedding, " : "");
    for (int c = 0; c < part->n_chunks && used < size; c++)
        used += (size_t)snprintf(text + used, size - used, "%slayers %lld-%lld",
                                 c > 0 ? ", " : "", (long long)part->chunks[c].first,
                                 (long long)part->chunks[c].end - 1);
    if (part->has_head && used < size)
        snprintf(text + used, size - used, ", head");
}

void rank_log_begin(const struct train *t)
{
    const struct grid_coord *at = &t->grid.coord;
    const struct grid_shape *shape = &t->grid.shape;
    const struct plan_memory *mem = &t->memory;
    char part[512];
    describe_part(&t->plan.layout.model.part, part, sizeof part);
    log_own("its place: dp %d of %d, pp %d of %d, sharding %d of %d, mp %d of %d; its "
            "part: %s, %.2f M parameters",
            at->dp, shape->dp, at->pp, shape->pp, at->sharding, shape->sharding, at->mp,
            shape->mp, part, (double)t->plan.layout.table.n_elements / MB);
    log_own("predicted memory: %.1f MB, of them parameters %.1f, gradients %.1f, "
            "optimizer %.1f, activations %.1f",
            mem->total / MB, mem->params / MB, mem->grads / MB, mem->optimizer / MB,
            mem->activations / MB);
}

void rank_log_end(const struct train *t)
{
    log_own("after step %lld: measured memory %.1f MB at its peak", (long long)t->step,
            (double)memory_peak_bytes() / MB);
}
