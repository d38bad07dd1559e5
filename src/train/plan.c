#include "train/plan.h"

#include "base/memory.h"
#include "base/thread.h"
#include "data/samples/loader.h"
#include "parallel/layout.h"
#include "parallel/pipeline.h"
#include "train/checkpoints.h"

#include <math.h>

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
                                   .offload_dir = layout_offload_dir(cfg),
                                   .is_in_host = layout_offloads_to_host(cfg)};
    p->optimizer.params_are_in_host =
        p->layout.zero.is_in_host || p->layout.zero.offload_dir;
    return 0;
}

void plan_release(struct plan *p)
{
    layout_release(&p->layout);
    *p = (struct plan){0};
}

/* -- data ---------------------------------------------------------------------------- */

struct plan_data plan_data_of(const struct config *cfg, const struct input_set *set,
                              const struct sample_stream *train,
                              const struct sample_stream *valid)
{
    struct plan_data d = {.order = sample_stream_bytes(train)};
    double making = sample_stream_making_bytes(train);
    int64_t n_loaders = valid ? 2 : 1; // an evaluation has its own
    if (valid) {
        d.order += sample_stream_bytes(valid);
        making = fmax(making, sample_stream_making_bytes(valid));
    }
    d.order += making + (double)input_set_hash_bytes(set);
    d.lengths = (double)input_set_bytes(set) + sample_stream_list_bytes(train) +
                (valid ? sample_stream_list_bytes(valid) : 0);
    d.batches =
        (double)n_loaders * (double)loader_bytes(config_update_samples(cfg), train);
    return d;
}

int plan_data_samples(int64_t *n_samples, const struct config *cfg,
                      const struct input_set *set, struct error *err)
{
    struct sample_stream probe;
    if (cfg->max_steps > 0) {
        if (__builtin_mul_overflow(cfg->batch_size.global_batch_size, cfg->max_steps,
                                   n_samples))
            *n_samples = INT64_MAX; // which the stream refuses
        return 0;
    }
    if (sample_stream_open(&probe, set, SPLIT_TRAIN, 1, err))
        return -1;
    *n_samples = sample_stream_epoch_start(&probe, cfg->num_train_epochs);
    sample_stream_close(&probe);
    return 0;
}

static int find_in(struct plan_data *d, const struct config *cfg,
                   const struct input_set *set, struct error *err)
{
    struct sample_stream train = {0}, valid = {0};
    int64_t n, n_valid = cfg->batch_size.global_batch_size * cfg->eval_iters;
    bool has_valid = config_evaluates(cfg);
    int rc = -1;
    if (plan_data_samples(&n, cfg, set, err) ||
        sample_stream_open(&train, set, SPLIT_TRAIN, i64_max(n, 1), err))
        return -1;
    if (has_valid && sample_stream_open(&valid, set, SPLIT_VALID, n_valid, err))
        goto done;
    *d = plan_data_of(cfg, set, &train, has_valid ? &valid : NULL);
    rc = 0;
done:
    sample_stream_close(&train);
    sample_stream_close(&valid);
    return rc;
}

int plan_data_find(struct plan_data *d, const struct config *cfg, struct error *err)
{
    struct input_set set;
    *d = (struct plan_data){0};
    int rc = input_set_open_unread(&set, cfg, err);
    if (rc == 0) {
        rc = find_in(d, cfg, &set, err);
        input_set_close(&set);
    }
    return rc;
}

/* -- memory -------------------------------------------------------------------------- */

/* Groups whose reductions need staging memory: over mp of activations, over data ranks of
 * gradients, between the ends of a pipeline of the tied embedding. */
static double staging_bytes(const struct plan *p, const struct zero_memory *zero)
{
    const struct grid_shape *s = &p->layout.shape;
    bool is_tied = s->pp > 1 &&
                   (p->layout.model.part.has_embedding || p->layout.model.part.has_head);
    int64_t message = p->layout.n_message * (int64_t)sizeof(float);
    int64_t grads = p->layout.table.n_bytes[STORE_GRADS];
    size_t total = comm_group_bytes(s->mp, message);
    total += comm_group_bytes(s->dp * s->sharding, (int64_t)zero->longest);
    return (double)(total + comm_group_bytes(is_tied ? 2 : 1, grads));
}

static int largest_group(const struct grid_shape *s)
{
    int data = s->dp * s->sharding, model = s->mp > s->pp ? s->mp : s->pp;
    return data > model ? data : model;
}

/* Pinned memory for tensors of a GPU that pass through the host. */
static double pinned_bytes(const struct plan *p)
{
    enum { MESSAGES = N_PAYLOADS * (SCHEDULE_SEND_SLOTS + SCHEDULE_RECV_SLOTS) };
    const struct grid_shape *s = &p->layout.shape;
    size_t total = comm_pinned_bytes(s->mp) + comm_pinned_bytes(s->dp * s->sharding);
    total += comm_pinned_bytes(s->sharding);
    if (s->sharding > 1)
        total += comm_pinned_bytes(s->dp);
    if (s->pp > 1)
        total += comm_pinned_bytes(2) + comm_message_pinned_bytes(MESSAGES);
    return (double)total;
}

#ifdef __SANITIZE_ADDRESS__
#define SHADOW_BYTES 300e6 // what AddressSanitizer keeps, of freed memory most
#else
#define SHADOW_BYTES 0.0
#endif

/* What a process has when it starts to train: its libraries, MPI's, the buffers of GEMMs.
 * Measured, with Debian 12's libraries and Open MPI 4.1: a process alone, one in a job,
 * and what each peer on its machine adds, up to a few. A process that already has more
 * counts what it has. */
static double program_bytes(const struct plan *p, const struct config *cfg,
                            const struct plan_data *data)
{
    enum { FEW_PEERS = 4 };
    const double alone = 7.9e6, in_a_job = 20.4e6, for_a_peer = 0.6e6;
    double now = (double)memory_resident_bytes() - data->lengths; // of a run: has them
    int64_t n = grid_size(&p->layout.shape), few = i64_min(n, FEW_PEERS);
    int64_t share = i64_max(1, thread_processors() / n);
    int64_t n_threads = cfg->num_threads > 0 ? cfg->num_threads : share;
    double usual = n > 1 ? in_a_job + for_a_peer * (double)few : alone;
    usual += (double)kernels_bytes((int)n_threads) + SHADOW_BYTES;
    return now > usual ? now : usual;
}

/* A copy of the state, and what the thread that writes it takes: its stack, its buffers
 * of a file and of sums; measured too. */
static double saving_bytes(const struct plan *p, const struct config *cfg)
{
    const double writing = 2e6;
    double copy = (double)checkpoints_copy_bytes(p, cfg);
    return copy > 0 ? copy + writing : 0;
}

/* Room for NCCL's buffers, of a few channels to each peer of each group, up to what it
 * shares among many. Not measured. */
static double nccl_bytes(enum device_kind kind, const struct grid_shape *s)
{
    enum { EDGES = 4, TIED = 1, PEERS_MOST = 32 };
    const double for_a_peer = 16e6;
    int n_peers = s->mp - 1 + s->dp * s->sharding - 1 + s->sharding - 1;
    n_peers += s->sharding > 1 ? s->dp - 1 : 0;
    n_peers += s->pp > 1 ? EDGES + TIED : 0;
    return kind == DEVICE_GPU ? for_a_peer * (double)i64_min(n_peers, PEERS_MOST) : 0;
}

/* What of it is not a GPU's: tables, what is pinned, offloaded state, staged messages. */
static void move_to_host(struct plan_memory *mem, const struct plan *p,
                         const struct gpt_memory *model, const struct zero_memory *zero,
                         const struct optimizer_memory *optimizer)
{
    enum device_kind kind = p->layout.model.dev->kind;
    bool is_params = p->layout.zero.is_in_host; // else windows of what is on disk
    mem->params -= is_params ? (double)zero->host : 0;
    mem->comm -= staging_bytes(p, zero) + (is_params ? 0 : (double)zero->host);
    mem->optimizer -= (double)optimizer->host;
    mem->scratch -= (double)model->tables;
    mem->state = (double)(zero->host + optimizer->host);
    mem->tables = (double)(model->tables + model->pinned + device_host_bytes(kind));
    mem->staging = staging_bytes(p, zero) + pinned_bytes(p);
    mem->workspace = (double)device_own_bytes(kind);
    mem->workspace += (double)comm_peers_bytes(largest_group(&p->layout.shape));
    mem->nccl = nccl_bytes(kind, &p->layout.shape);
    mem->on_gpu = mem->params + mem->grads + mem->optimizer + mem->activations +
                  mem->comm + mem->scratch + mem->workspace;
    mem->emulated = kind == DEVICE_EMULATED ? mem->on_gpu : 0;
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
        .comm = (double)(messages + zero.buckets) + staging_bytes(p, &zero),
        .scratch = (double)model.scratch,
        .saving = saving_bytes(p, cfg),
        .data = data->lengths + data->batches + data->order,
        .program = program_bytes(p, cfg, data),
        .shared = data->order,
        .offloaded = (double)(zero.offloaded + optimizer.offloaded),
    };
    double tensors =
        mem.params + mem.grads + mem.optimizer + mem.activations + mem.comm + mem.scratch;
    if (!device_is_host(p->layout.model.dev)) {
        move_to_host(&mem, p, &model, &zero, &optimizer);
        tensors = mem.state + mem.tables + mem.staging;
    }
    mem.total = tensors + mem.saving + mem.data + mem.program;
    mem.in_machine = mem.total + mem.emulated;
    return mem;
}
