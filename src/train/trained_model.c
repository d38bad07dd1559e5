#include "train/trained_model.h"

#include "base/beat.h"
#include "base/log.h"
#include "ckpt/ckpt_find.h"
#include "ckpt/ckpt_read.h"

#include <stdlib.h>
#include <string.h>

/* -- the configuration --------------------------------------------------------------- */

#define MICRO_BATCHES_A_STAGE                                                            \
    8 // of a pass: stages are idle for less than an eighth of it

static int check_degrees(const struct trained_options *opt, struct error *err)
{
    enum { MOST = 1 << 20 };
    if (opt->dp_degree >= 0 && opt->dp_degree <= MOST && opt->mp_degree >= 1 &&
        opt->mp_degree <= MOST && opt->pp_degree >= 1 && opt->pp_degree <= MOST)
        return 0;
    return error_set(err, ERROR_INPUT,
                     "dp_degree %lld, mp_degree %lld and pp_degree %lld: a degree is at "
                     "least 1 and at most %d",
                     (long long)opt->dp_degree, (long long)opt->mp_degree,
                     (long long)opt->pp_degree, MOST);
}

/* The grid that the options mean on so many processes; 0: as many as they ask for. */
static int choose_grid(struct grid_shape *shape, const struct trained_options *opt,
                       int64_t n_processes, struct error *err)
{
    if (check_degrees(opt, err))
        return -1;
    *shape = (struct grid_shape){.dp = (int)opt->dp_degree,
                                 .pp = (int)opt->pp_degree,
                                 .sharding = 1,
                                 .mp = (int)opt->mp_degree};
    if (n_processes == 0 && shape->dp == 0)
        shape->dp = 1;
    return grid_fit(shape, n_processes > 0 ? n_processes : grid_size(shape), err);
}

static void set_layout(struct config *cfg, const struct grid_shape *shape, int64_t M)
{
    struct config_distributed *d = &cfg->distributed;
    struct config_batch *b = &cfg->batch_size;
    int64_t n_micro = shape->pp > 1 ? MICRO_BATCHES_A_STAGE * shape->pp : 1;
    *d = (struct config_distributed){
        .dp_degree = shape->dp,
        .mp_degree = shape->mp,
        .pp_degree = shape->pp,
        .virtual_pp_degree = 1,
        .pp_schedule = SCHEDULE_1F1B,
        .pp_balance = d->pp_balance,
        .tensor_mode = d->tensor_mode,
        .tensor_shape = {M, cfg->dataset.max_seq_len, cfg->model.hidden_size},
        .sharding = {.sharding_degree = 1, .sharding_stage = 1}};
    *b = (struct config_batch){.global_batch_size = M * n_micro * shape->dp,
                               .local_batch_size = M * n_micro,
                               .micro_batch_size = M,
                               .num_micro_batches = n_micro,
                               .gradient_accumulation = 1};
}

/* *cfg := that of the checkpoint at `path`, changed to what the options say. */
static int make_config(struct config *cfg, const char *json, const char *path,
                       const struct trained_options *opt, const struct grid_shape *shape,
                       struct error *err)
{
    if (config_from_json(cfg, json, err))
        return error_prefix(err, "checkpoint '%s'", path);
    int64_t P = cfg->model.max_position_embeddings;
    if (opt->max_seq_len > P)
        return error_set(err, ERROR_INPUT,
                         "max_seq_len %lld is more than the %lld positions of "
                         "checkpoint '%s'",
                         (long long)opt->max_seq_len, (long long)P, path);
    if (opt->max_seq_len > 0)
        cfg->dataset.max_seq_len = opt->max_seq_len;
    if (opt->use == LAYOUT_DECODE)
        cfg->dataset.max_seq_len = P;
    cfg->device = opt->device;
    set_layout(cfg, shape, opt->micro_batch_size);
    if (config_check_whole(cfg, "configuration", err) || layout_check(cfg, 0, err))
        return error_prefix(err, "this layout does not suit the model of checkpoint '%s'",
                            path);
    return 0;
}

int trained_model_check(const struct trained_options *opt, int64_t n_processes,
                        int64_t *n_wanted, struct error *err)
{
    struct config cfg;
    struct grid_shape shape;
    struct ckpt_info info;
    char path[PATH_MAX];
    if (choose_grid(&shape, opt, n_processes, err) ||
        ckpt_find_info(opt->ckpt, &info, path, err))
        return -1;
    int rc = make_config(&cfg, info.config_json, path, opt, &shape, err);
    ckpt_info_release(&info);
    *n_wanted = grid_size(&shape);
    if (rc == 0 && n_processes == 0)
        rc = device_available(opt->device,
                              opt->use == LAYOUT_EVALUATE ? DTYPE_F32
                                                          : cfg.mix_precision.dtype,
                              (int)*n_wanted, err);
    return rc;
}

/* -- one checkpoint ------------------------------------------------------------------ */

struct opening {
    struct trained_model *m;
    const struct trained_options *opt;
};

static int store_params(void *context, int kind, const struct ckpt_piece *piece,
                        int64_t first, int64_t n, const float *x, struct error *err)
{
    struct trained_model *m = context;
    (void)kind;
    return zero_write_params(&m->runner.zero, &m->layout.map.pieces[piece->id], first, n,
                             x, err);
}

static int open_device(struct trained_model *m, enum layout_use use, struct error *err)
{
    struct device_request request = {.local_rank = comm_local_rank(m->grid.world),
                                     .n_local = comm_local_size(m->grid.world),
                                     .allow_tf32 = m->cfg.mix_precision.allow_tf32};
    struct device *before = m->dev; // of a checkpoint that was damaged
    if (layout_init(&m->layout, &m->cfg, m->grid.coord, use, err) ||
        device_open(m->layout.model.dev, &request, err))
        return -1;
    m->dev = m->layout.model.dev;
    if (before)
        device_close(before);
    return 0;
}

static void close_part(struct trained_model *m)
{
    runner_close(&m->runner);
    layout_release(&m->layout);
}

static int configure(struct opening *o, const struct ckpt_manifest *manifest,
                     const char *path, struct error *err)
{
    struct trained_model *m = o->m;
    char *json = json_dumps(manifest->config, 0);
    if (!json)
        return error_set(err, ERROR_RUNTIME,
                         "out of memory for the configuration in '%s'", path);
    m->step = manifest->progress.step;
    memcpy(m->tokenizer_hash, manifest->progress.tokenizer_hash, TOKENIZER_HASH_BYTES);
    int rc = make_config(&m->cfg, json, path, o->opt, &m->grid.shape, err);
    free(json);
    return rc;
}

static int load_trained(void *context, const char *path, bool *is_damaged,
                        struct error *err)
{
    struct opening *o = context;
    struct trained_model *m = o->m;
    struct ckpt_reader reader;
    close_part(m); // of a checkpoint that was damaged
    int rc = ckpt_reader_open_named(&reader, path, CKPT_MODEL + 1, err);
    if (rc == 0)
        rc = configure(o, &reader.manifest, path, err);
    if (rc == 0)
        rc = open_device(m, o->opt->use, err);
    bool is_ready = rc == 0;
    if (o->opt->device != DEVICE_CPU) // ranks open their devices together, or none does
        rc = comm_agree(m->grid.world, rc, err);
    *is_damaged = reader.is_damaged || (is_ready && rc); // another rank knows better
    if (rc == 0)
        rc = runner_open(&m->runner, &m->layout, &m->cfg, &m->grid, err);
    if (rc == 0)
        rc = ckpt_reader_load(&reader, &m->layout.whole, NULL, &m->layout.map,
                              &(struct ckpt_sink){store_params, m}, err);
    *is_damaged = *is_damaged || reader.is_damaged;
    ckpt_reader_close(&reader);
    return rc;
}

/* -- the whole ----------------------------------------------------------------------- */

int trained_model_open(struct trained_model *m, const struct trained_options *opt,
                       struct comm *world, struct error *err)
{
    struct opening o = {.m = m, .opt = opt};
    struct ckpt_load_newest what = {.context = &o, .load = load_trained};
    struct grid_shape shape;
    *m = (struct trained_model){.step = 0};
    if (choose_grid(&shape, opt, comm_size(world), err) ||
        grid_open(&m->grid, world, &shape, err))
        return -1;
    beat_enter(BEAT_LOAD);
    int rc = ckpt_load_newest(&what, world, opt->ckpt, m->path, err);
    beat_enter(BEAT_EVALUATE); // or generate: what it was opened for
    return rc;
}

void trained_model_close(struct trained_model *m)
{
    beat_enter(BEAT_END);
    close_part(m);
    grid_close(&m->grid);
    if (m->dev)
        device_close(m->dev);
}
