#include "train/plan.h"

#include "base/memory.h"
#include "parallel/pipeline.h"
#include "train/layout.h"
#include "train/save.h"

#include <stdlib.h>

static enum gpt_recompute recompute_of(const struct config *cfg)
{
    static const enum gpt_recompute of_config[] = {
        [GRANULARITY_FULL] = RECOMPUTE_BLOCK,
        [GRANULARITY_ONLY_ATTN] = RECOMPUTE_ATTENTION,
        [GRANULARITY_CORE_ATTN] = RECOMPUTE_CORE};
    return cfg->use_recompute ? of_config[cfg->recompute_granularity] : RECOMPUTE_NOTHING;
}

const char *plan_offload_dir(const struct config *cfg)
{
    if (!cfg->distributed.sharding.sharding_offload)
        return NULL;
    return cfg->save_load.offload_dir[0] ? cfg->save_load.offload_dir
                                         : cfg->save_load.output_dir;
}

/* Stashes that the schedule of this stage has in flight at most. */
static int count_stashes(const struct plan *p, const struct config *cfg, int *n_stashes,
                         struct error *err)
{
    struct schedule schedule;
    struct schedule_shape shape = layout_schedule(cfg);
    if (schedule_init(&schedule, &shape, p->at.pp, err))
        return -1;
    *n_stashes = schedule_max_in_flight(&schedule, SCHEDULE_ALL_CHUNKS);
    schedule_release(&schedule);
    return 0;
}

static int list_kept_layers(struct plan *p, const struct config *cfg, struct error *err)
{
    const struct config_numbers *kept = &cfg->no_recompute_layers;
    p->keeps_all = calloc((size_t)cfg->model.num_layers, sizeof *p->keeps_all);
    if (!p->keeps_all)
        return error_set(err, ERROR_RUNTIME, "out of memory for a list of %lld layers",
                         (long long)cfg->model.num_layers);
    for (int64_t i = 0; i < kept->n_values; i++)
        p->keeps_all[(int64_t)kept->values[i]] = true;
    p->model.keeps_all = p->keeps_all;
    return 0;
}

static int plan_model(struct plan *p, const struct config *cfg, struct error *err)
{
    const struct config_batch *b = &cfg->batch_size;
    enum dtype dtype = cfg->mix_precision.dtype;
    int stage = p->zero.stage;
    p->model = (struct gpt_options){
        .B = b->micro_batch_size,
        .has_grads = true,
        .sequence_parallel = cfg->distributed.sequence_parallel,
        .dtype = dtype,
        .grad_dtype = cfg->mix_precision.fp32_grads ? DTYPE_F32 : dtype,
        .recompute = recompute_of(cfg),
        .params_are_brought = stage >= 3,
        .grads_are_brought = stage >= 2,
        .n_step_tokens = b->local_batch_size * cfg->dataset.max_seq_len,
        .has_one_micro_batch = b->num_micro_batches == 1,
        .fuses_bias = cfg->fused_linear,
    };
    if (list_kept_layers(p, cfg, err) || layout_part(&p->model.part, cfg, p->at, err))
        return -1;
    return count_stashes(p, cfg, &p->model.n_stashes, err);
}

int plan_init(struct plan *p, const struct config *cfg, struct grid_coord at,
              struct error *err)
{
    enum { FUSED_BYTES = 64 << 20 };
    const struct config_sharding *sharding = &cfg->distributed.sharding;
    bool is_shared = sharding->sharding_degree > 1;
    *p = (struct plan){.shape = layout_grid(cfg), .at = at};
    p->zero = (struct zero_options){
        .stage = is_shared ? (int)sharding->sharding_stage : 0,
        .fused_bytes = cfg->tensor_fusion ? FUSED_BYTES : 0,
    };
    if (p->zero.stage == 3)
        p->zero.offload_dir = plan_offload_dir(cfg);
    if (plan_model(p, cfg, err) ||
        param_table_init_part(&p->table, &cfg->model, &p->model.part, err))
        goto fail;
    param_table_set_types(&p->table, p->model.dtype, p->model.grad_dtype);
    if (shard_map_init(&p->map, &p->table, p->shape.sharding, at.sharding, err))
        goto fail;
    p->zero.map = &p->map;
    p->optimizer = (struct optimizer_options){.map = &p->map,
                                              .k = kernels_best(),
                                              .cfg = cfg->optimizer,
                                              .has_master = p->model.dtype != DTYPE_F32,
                                              .offload_dir = plan_offload_dir(cfg)};
    int64_t parts = p->model.sequence_parallel ? p->shape.mp : 1;
    p->n_message =
        p->model.B * (cfg->dataset.max_seq_len / parts) * cfg->model.hidden_size;
    return 0;
fail:
    plan_release(p);
    return -1;
}

void plan_release(struct plan *p)
{
    shard_map_release(&p->map);
    param_table_release(&p->table);
    free(p->keeps_all);
    *p = (struct plan){0};
}

/* -- memory -------------------------------------------------------------------------- */

/* Groups whose sums need staging memory; sums over mp are of a message at most. */
static double staging_bytes(const struct plan *p)
{
    const struct grid_shape *s = &p->shape;
    bool is_tied = s->pp > 1 && (p->model.part.has_embedding || p->model.part.has_head);
    int64_t message = p->n_message * (int64_t)sizeof(float);
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
    int64_t n = i64_min(grid_size(&p->shape), 4);
    double usual = n > 1 ? in_a_job + for_a_peer * (double)n : alone;
    return now > usual ? now : usual;
}

/* A copy of the state, and what its writing takes, seen here. */
static double saving_bytes(const struct plan *p, const struct config *cfg)
{
    const double writing = 2e6;
    double copy = (double)train_save_bytes(p, cfg);
    return copy > 0 ? copy + writing : 0;
}

int plan_memory(struct plan_memory *mem, const struct plan *p, const struct config *cfg,
                const struct plan_data *data, struct error *err)
{
    static const struct plan_data unknown;
    struct gpt_memory model;
    if (!data)
        data = &unknown;
    if (gpt_measure(&model, cfg, &p->model, err))
        return -1;
    struct zero_memory zero = zero_measure(&p->zero, cfg->model.num_layers);
    struct optimizer_memory optimizer = optimizer_measure(&p->optimizer);
    size_t messages = pipeline_bytes(p->shape.pp, p->n_message, p->model.dtype);
    *mem = (struct plan_memory){
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
    mem->total = mem->params + mem->grads + mem->optimizer + mem->activations +
                 mem->comm + mem->scratch + mem->saving + mem->data + mem->program;
    return 0;
}
