#include "parallel/layout.h"

#include "base/log.h"
#include "model/gpt_params.h"

#include <stdio.h>
#include <stdlib.h>

struct grid_shape layout_grid(const struct config *cfg)
{
    const struct config_distributed *d = &cfg->distributed;
    return (struct grid_shape){.dp = (int)d->dp_degree,
                               .pp = (int)d->pp_degree,
                               .sharding = (int)d->sharding.sharding_degree,
                               .mp = (int)d->mp_degree};
}

static struct schedule_shape schedule_of(const struct config *cfg)
{
    return (struct schedule_shape){.pp = cfg->distributed.pp_degree,
                                   .chunks = cfg->distributed.virtual_pp_degree,
                                   .micro_batches = config_update_micro_batches(cfg),
                                   .kind = cfg->distributed.pp_schedule};
}

/* What the head costs, in blocks: its GEMM against those of a block, with its 12 H^2
 * weights, and of attention. */
static int64_t head_blocks(const struct config *cfg)
{
    int64_t block = 12 * cfg->model.hidden_size + cfg->dataset.max_seq_len;
    return (cfg->model.vocab_size + block / 2) / block;
}

static int make_partition(struct partition *p, const struct config *cfg,
                          struct error *err)
{
    const struct config_distributed *d = &cfg->distributed;
    if (partition_init(p, cfg->model.num_layers, d->pp_degree, d->virtual_pp_degree, err))
        return -1;
    if (d->pp_balance && d->virtual_pp_degree > 1)
        return error_set(err, ERROR_INPUT,
                         "Distributed.pp_balance cannot be combined with chunks: use "
                         "virtual_pp_degree 1, or pp_balance False");
    if (d->pp_balance)
        partition_balance(p, head_blocks(cfg));
    return 0;
}

/* A GPU is given a micro-batch's tokens, and the rows of a vocabulary, as one array. */
static int check_arrays(const struct config *cfg, struct error *err)
{
    const int64_t most = (int64_t)(DEVICE_ARRAY_MOST / sizeof(int32_t));
    int64_t tokens = cfg->batch_size.micro_batch_size * cfg->dataset.max_seq_len;
    if (cfg->device == DEVICE_CPU || i64_max(tokens, cfg->model.vocab_size) <= most)
        return 0;
    return error_set(err, ERROR_INPUT,
                     "batch_size.micro_batch_size %lld x dataset.max_seq_len %lld and "
                     "Model.vocab_size %lld: on a GPU each is at most %lld",
                     (long long)cfg->batch_size.micro_batch_size,
                     (long long)cfg->dataset.max_seq_len,
                     (long long)cfg->model.vocab_size, (long long)most);
}

int layout_check(const struct config *cfg, int64_t n_processes, struct error *err)
{
    enum { MOST_PROCESSES = 1 << 20 };
    struct grid_shape shape = layout_grid(cfg);
    struct schedule_shape schedule = schedule_of(cfg);
    struct partition partition;
    int64_t wanted = config_n_processes(cfg);
    if (wanted > MOST_PROCESSES)
        return error_set(
            err, ERROR_INPUT,
            "dp_degree %d x mp_degree %d x pp_degree %d x sharding_degree %d "
            "is more than %d processes: lower one of them",
            shape.dp, shape.mp, shape.pp, shape.sharding, MOST_PROCESSES);
    if (grid_fit(&shape, n_processes > 0 ? n_processes : wanted, err) ||
        make_partition(&partition, cfg, err) || check_arrays(cfg, err))
        return -1;
    return schedule_check(&schedule, err);
}

static int part_of(struct param_part *part, const struct config *cfg,
                   struct grid_coord at, struct error *err)
{
    struct partition partition;
    int chunks = (int)cfg->distributed.virtual_pp_degree;
    if (make_partition(&partition, cfg, err))
        return -1;
    *part =
        (struct param_part){.mp = (int)cfg->distributed.mp_degree,
                            .mp_rank = at.mp,
                            .has_embedding = partition_is_first(&partition, at.pp, 0),
                            .has_head = partition_is_last(&partition, at.pp, chunks - 1),
                            .n_chunks = chunks};
    for (int c = 0; c < chunks; c++)
        partition_range(&partition, at.pp, c, &part->chunks[c].first,
                        &part->chunks[c].end);
    return 0;
}

/* -- one process --------------------------------------------------------------------- */

static enum gpt_recompute recompute_of(const struct config *cfg)
{
    static const enum gpt_recompute of_config[] = {
        [GRANULARITY_FULL] = RECOMPUTE_BLOCK,
        [GRANULARITY_ONLY_ATTN] = RECOMPUTE_ATTENTION,
        [GRANULARITY_CORE_ATTN] = RECOMPUTE_CORE};
    return cfg->use_recompute ? of_config[cfg->recompute_granularity] : RECOMPUTE_NOTHING;
}

bool layout_offloads_to_host(const struct config *cfg)
{
    return cfg->distributed.sharding.sharding_offload && cfg->device != DEVICE_CPU &&
           !cfg->save_load.offload_dir[0];
}

const char *layout_offload_dir(const struct config *cfg)
{
    if (!cfg->distributed.sharding.sharding_offload || layout_offloads_to_host(cfg))
        return NULL;
    return cfg->save_load.offload_dir[0] ? cfg->save_load.offload_dir
                                         : cfg->save_load.output_dir;
}

/* Stashes that the schedule of this stage has in flight at most. */
static int count_stashes(const struct layout *l, int *n_stashes, struct error *err)
{
    struct schedule schedule;
    if (schedule_init(&schedule, &l->schedule, l->at.pp, err))
        return -1;
    *n_stashes = schedule_max_in_flight(&schedule, SCHEDULE_ALL_CHUNKS);
    schedule_release(&schedule);
    return 0;
}

static int list_kept_layers(struct layout *l, const struct config *cfg, struct error *err)
{
    const struct config_numbers *kept = &cfg->no_recompute_layers;
    l->keeps_all = calloc((size_t)cfg->model.num_layers, sizeof *l->keeps_all);
    if (!l->keeps_all)
        return error_set(err, ERROR_RUNTIME, "out of memory for a list of %lld layers",
                         (long long)cfg->model.num_layers);
    for (int64_t i = 0; i < kept->n_values; i++)
        l->keeps_all[(int64_t)kept->values[i]] = true;
    l->model.keeps_all = l->keeps_all;
    return 0;
}

static int set_training(struct layout *l, const struct config *cfg, struct error *err)
{
    enum { FUSED_BYTES = 64 << 20 };
    const struct config_sharding *sharding = &cfg->distributed.sharding;
    struct gpt_options *model = &l->model;
    int stage = sharding->sharding_degree > 1 ? (int)sharding->sharding_stage : 0;
    l->zero.stage = stage;
    l->zero.fused_bytes = cfg->tensor_fusion ? FUSED_BYTES : 0;
    l->zero.offload_dir = stage == 3 ? layout_offload_dir(cfg) : NULL;
    l->zero.is_in_host = stage == 3 && layout_offloads_to_host(cfg);
    model->has_grads = true;
    model->sequence_parallel = cfg->distributed.sequence_parallel;
    model->grad_dtype = config_has_fp32_grads(cfg) ? DTYPE_F32 : model->dtype;
    model->recompute = recompute_of(cfg);
    model->params_are_owned = stage >= 3;
    model->grads_are_owned = stage >= 2;
    model->n_step_tokens = config_update_samples(cfg) * cfg->dataset.max_seq_len;
    model->has_one_micro_batch = config_update_micro_batches(cfg) == 1;
    model->fuses_bias = cfg->fused_linear;
    if (list_kept_layers(l, cfg, err))
        return -1;
    return count_stashes(l, &model->n_stashes, err);
}

int layout_init(struct layout *l, const struct config *cfg, struct grid_coord at,
                enum layout_use use, struct error *err)
{
    *l = (struct layout){
        .shape = layout_grid(cfg), .at = at, .schedule = schedule_of(cfg)};
    enum dtype dtype = use == LAYOUT_EVALUATE ? DTYPE_F32 : cfg->mix_precision.dtype;
    l->model = (struct gpt_options){
        .dev = device_of(cfg->device, dtype),
        .B = cfg->batch_size.micro_batch_size,
        .n_stashes = 1,
        .dtype = dtype,
    };
    if (part_of(&l->model.part, cfg, at, err) ||
        (use == LAYOUT_TRAIN && set_training(l, cfg, err)) ||
        gpt_param_table(&l->table, &cfg->model, &l->model.part, err) ||
        gpt_param_table(&l->whole, &cfg->model, NULL, err))
        goto fail;
    l->model.table = &l->table;
    param_table_set_types(&l->table, l->model.dtype, l->model.grad_dtype);
    if (shard_map_init(&l->map, &l->table, l->shape.sharding, at.sharding, err))
        goto fail;
    l->zero.map = &l->map;
    l->zero.dev = l->model.dev;
    int64_t parts = l->model.sequence_parallel ? l->shape.mp : 1;
    l->n_message =
        l->model.B * (cfg->dataset.max_seq_len / parts) * cfg->model.hidden_size;
    return 0;
fail:
    layout_release(l);
    return -1;
}

void layout_release(struct layout *l)
{
    shard_map_release(&l->map);
    param_table_release(&l->table);
    param_table_release(&l->whole);
    free(l->keeps_all);
    *l = (struct layout){0};
}

/* -- the log ------------------------------------------------------------------------- */

static void log_embedding(const struct config_model *m, int64_t item)
{
    log_info(
        "%lld: EmbeddingPipe(vocab_size=%lld, hidden_size=%lld, "
        "hidden_dropout_prob=%g, max_position_embeddings=%lld, type_vocab_size=%lld, "
        "initializer_range=%g)",
        (long long)item, (long long)m->vocab_size, (long long)m->hidden_size,
        m->embed_drop_rate, (long long)m->max_position_embeddings,
        (long long)m->type_vocab_size, m->initializer_range);
}

static void log_block(const struct config *cfg, int64_t item)
{
    const struct config_model *m = &cfg->model;
    log_info("%lld: TransformerDecoderLayer(d_model=%lld, nhead=%lld, "
             "dim_feedforward=%lld, dropout=%g, activation=gelu, attn_dropout=%g, "
             "act_dropout=%g, weight_attr=<Normal(mean=0.0, std=%g)>, "
             "bias_attr=None, num_partitions=%lld)",
             (long long)item, (long long)m->hidden_size,
             (long long)m->num_attention_heads, (long long)m->ffn_hidden_size,
             m->hidden_dropout_prob, m->attention_probs_dropout_prob,
             m->hidden_dropout_prob, m->initializer_range,
             (long long)cfg->distributed.mp_degree);
}

/* Items of the model's list, the first of which is `item`: embedding, blocks, final norm,
 * head. */
static void log_items(const struct config *cfg, const struct partition *p, int stage,
                      int chunk, int64_t item)
{
    const struct config_model *m = &cfg->model;
    int64_t first, end;
    partition_range(p, stage, chunk, &first, &end);
    if (partition_is_first(p, stage, chunk))
        log_embedding(m, item++);
    for (int64_t i = first; i < end; i++)
        log_block(cfg, item++);
    if (!partition_is_last(p, stage, chunk))
        return;
    log_info("%lld: LayerNorm(normalized_shape=%lld)", (long long)item,
             (long long)m->hidden_size);
    log_embedding(m, item + 1);
}

static void log_boundaries(const int64_t *boundaries, int64_t n)
{
    char text[1024];
    size_t used = 0;
    for (int64_t i = 0; i < n && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld",
                                 i > 0 ? ", " : "", (long long)boundaries[i]);
    log_info("segment result:%s", text);
}

/* "segment result" and what it means, as PaddleFleetX prints it; but for global_rank,
 * which is 0 there in every line. */
static void log_segments(const struct config *cfg, const struct partition *p,
                         const int64_t *boundaries, int64_t n)
{
    struct grid_shape shape = layout_grid(cfg);
    if (cfg->use_recompute)
        log_info("Start Recompute for ");
    log_info("start segment network..");
    log_boundaries(boundaries, n);
    for (int64_t i = 0; i + 1 < n; i++) {
        int stage = (int)(i % p->pp);
        log_info("stage=%d, global_rank=%d ,layer_number=%lld", stage,
                 grid_rank_of(&shape, (struct grid_coord){.pp = stage}),
                 (long long)(boundaries[i + 1] - boundaries[i]));
        log_items(cfg, p, stage, (int)(i / p->pp), boundaries[i]);
    }
    log_info("loss: GPTPretrainingCriterionPipe");
}

/* The same as Colossal-AI prints it. */
static void log_chunks(const struct config *cfg, const struct partition *p, int64_t n)
{
    struct grid_shape shape = layout_grid(cfg);
    for (int64_t i = 0; i + 1 < n; i++) {
        int stage = (int)(i % p->pp), chunk = (int)(i / p->pp);
        int64_t first, end;
        partition_range(p, stage, chunk, &first, &end);
        log_info("Rank%d build layer %lld-%lld, %lld/%lld layers",
                 grid_rank_of(&shape, (struct grid_coord){.pp = stage}), (long long)first,
                 (long long)end, (long long)(end - first),
                 (long long)cfg->model.num_layers);
    }
}

void layout_log(const struct config *cfg)
{
    struct partition p;
    struct error err;
    if (cfg->distributed.pp_degree == 1 || make_partition(&p, cfg, &err))
        return;
    int64_t n = partition_n_boundaries(&p);
    int64_t *boundaries = malloc((size_t)n * sizeof *boundaries);
    if (!boundaries)
        return;
    partition_boundaries(&p, boundaries);
    log_segments(cfg, &p, boundaries, n);
    log_chunks(cfg, &p, n);
    free(boundaries);
}
