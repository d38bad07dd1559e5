#include "train/plan.h"

#include "base/memory.h"
#include "parallel/layout.h"
#include "parallel/pipeline.h"
#include "train/checkpoints.h"

#include <stdlib.h>

int plan_init(struct plan *p, const struct config *cfg, struct grid_coord at,
              struct error *err)
{
    if (layout_init(&p->layout, cfg, at, LAYOUT_TRAIN, err))
        return -1;
    p->optimizer =
        (struct optimizer_options){.map = &p->layout.map,
                                   .dev = p->layout.model.dev,
                                   .cfg = cfg->optimizer,
                                   .has_master = p->layout.model.dtype != DTYPE_F32,
                                   .offload_dir = layout_offload_dir(cfg)};
    return 0;
}

void plan_release(struct plan *p)
{
    layout_release(&p->layout);
    *p = (struct plan){0};
}

/* -- memory -------------------------------------------------------------------------- */

/* Groups whose sums need staging memory; sums over mp are of a message at most. */
static double staging_bytes(const struct plan *p)
{
    const struct grid_shape *s = &p->layout.shape;
    bool is_tied = s->pp > 1 &&
                   (p->layout.model.part.has_embedding || p->layout.model.part.has_head);
    int64_t message = p->layout.n_message * (int64_t)sizeof(float);
    double total = (double)i64_min((int64_t)comm_group_bytes(s->mp), message);
    total += (double)comm_group_bytes(s->dp * s->sharding);
    return total + (double)comm_group_bytes(is_tied ? 2 : 1);
}

/* What a process of this program has when it starts to train, seen here: its libraries,
 * MPI's, the products' packed panels. */
static double program_bytes(const struct plan *p, const struct plan_data *data)
{
    const double alone = 10.5e6, in_a_job = 22.4e6, for_a_peer = 1e6;
    double now = (double)memory_resident_bytes() - data->lengths; // of a run: has them
    int64_t n = i64_min(grid_size(&p->layout.shape), 4);
    double usual = n > 1 ? in_a_job + for_a_peer * (double)n : alone;
    return now > usual ? now : usual;
}

/* A copy of the state, and what its writing takes, seen here. */
static double saving_bytes(const struct plan *p, const struct config *cfg)
{
    const double writing = 2e6;
    double copy = (double)checkpoints_copy_bytes(p, cfg);
    return copy > 0 ? copy + writing : 0;
}

struct plan_memory plan_memory(const struct plan *p, const struct config *cfg,
                               const struct plan_data *data)
{
    static const struct plan_data unknown;
    if (!data)
        data = &unknown;
    struct gpt_memory model = gpt_measure(cfg, &p->layout.model);
    struct zero_memory zero = zero_measure(&p->layout.zero);
    struct optimizer_memory optimizer = optimizer_measure(&p->optimizer);
    size_t messages =
        pipeline_bytes(p->layout.shape.pp, p->layout.n_message, p->layout.model.dtype);
    struct plan_memory mem = {
        .params = (double)(model.params + zero.params),
        .grads = (double)(model.grads + zero.grads),
        .optimizer = (double)optimizer.resident,
        .activations = (double)model.activations,
        .comm = (double)(messages + zero.buckets) + staging_bytes(p),
        .scratch = (double)model.scratch,
        .saving = saving_bytes(p, cfg),
        .data = data->lengths + data->batches + data->order,
        .program = program_bytes(p, data),
        .shared = data->order,
        .offloaded = (double)(zero.offloaded + optimizer.offloaded),
    };
    mem.total = mem.params + mem.grads + mem.optimizer + mem.activations + mem.comm +
                mem.scratch + mem.saving + mem.data + mem.program;
    return mem;
}
