#include "train/usage.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/memory.h"
#include "ckpt/ckpt_store.h"
#include "ckpt/ckpt_write.h"
#include "data/text/text_dataset.h"
#include "parallel/layout.h"
#include "train/fit.h"
#include "train/lr_warn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MB 1e6
#define LINE_BYTES 256

/* -- the table ----------------------------------------------------------------------- */

struct column {
    const char *name;
    size_t member;
    int width;
};

struct table { // of a kind of memory
    const char *name;
    const struct column *columns;
    size_t n_columns;
    bool is_gpu; // it has no measured peak, and no part on disk
};

static const struct column processor_columns[] = {
    {"parameters", offsetof(struct plan_memory, params), 10},
    {"gradients", offsetof(struct plan_memory, grads), 9},
    {"optimizer", offsetof(struct plan_memory, optimizer), 9},
    {"activations", offsetof(struct plan_memory, activations), 11},
    {"comm", offsetof(struct plan_memory, comm), 8},
    {"scratch", offsetof(struct plan_memory, scratch), 8},
    {"saving", offsetof(struct plan_memory, saving), 8},
    {"data", offsetof(struct plan_memory, data), 8},
    {"program", offsetof(struct plan_memory, program), 7},
    {"total", offsetof(struct plan_memory, total), 9},
};

static const struct column gpu_columns[] = {
    {"parameters", offsetof(struct plan_memory, params), 10},
    {"gradients", offsetof(struct plan_memory, grads), 9},
    {"optimizer", offsetof(struct plan_memory, optimizer), 9},
    {"activations", offsetof(struct plan_memory, activations), 11},
    {"comm", offsetof(struct plan_memory, comm), 8},
    {"scratch", offsetof(struct plan_memory, scratch), 8},
    {"workspace", offsetof(struct plan_memory, workspace), 9},
    {"total", offsetof(struct plan_memory, on_gpu), 9},
};

static const struct column machine_columns[] = {
    {"offloaded", offsetof(struct plan_memory, state), 9},
    {"pinned", offsetof(struct plan_memory, tables), 8},
    {"staging", offsetof(struct plan_memory, staging), 8},
    {"saving", offsetof(struct plan_memory, saving), 8},
    {"data", offsetof(struct plan_memory, data), 8},
    {"program", offsetof(struct plan_memory, program), 7},
    {"total", offsetof(struct plan_memory, total), 9},
};

static const struct column emulating_columns[] = {
    {"emulated", offsetof(struct plan_memory, emulated), 8},
    {"offloaded", offsetof(struct plan_memory, state), 9},
    {"pinned", offsetof(struct plan_memory, tables), 8},
    {"staging", offsetof(struct plan_memory, staging), 8},
    {"saving", offsetof(struct plan_memory, saving), 8},
    {"data", offsetof(struct plan_memory, data), 8},
    {"program", offsetof(struct plan_memory, program), 7},
    {"total", offsetof(struct plan_memory, in_machine), 9},
};

static const struct table processor_table = {"MB", processor_columns,
                                             ARRAY_LEN(processor_columns), false};
static const struct table gpu_table = {"GPU, MB", gpu_columns, ARRAY_LEN(gpu_columns),
                                       true};
static const struct table machine_table = {"host, MB", machine_columns,
                                           ARRAY_LEN(machine_columns), false};
static const struct table emulating_table = {"host, MB", emulating_columns,
                                             ARRAY_LEN(emulating_columns), false};

typedef void print_fn(const char *line);

static void to_log(const char *line)
{
    log_info("%s", line);
}

static void to_stdout(const char *line)
{
    puts(line);
}

static double cell(const struct plan_memory *row, const struct column *c)
{
    double value;
    memcpy(&value, (const char *)row + c->member, sizeof value);
    return value / MB;
}

static void print_head(print_fn *print, const struct table *t, bool has_peak)
{
    char line[LINE_BYTES];
    int used = snprintf(line, sizeof line, "%-10s", t->name);
    for (size_t i = 0; i < t->n_columns; i++)
        used += snprintf(line + used, sizeof line - (size_t)used, " %*s",
                         t->columns[i].width, t->columns[i].name);
    snprintf(line + used, sizeof line - (size_t)used, "%s", has_peak ? "  measured" : "");
    print(line);
}

static void print_row(print_fn *print, const struct table *t, const char *name,
                      const struct plan_memory *row, const double *peak)
{
    char line[LINE_BYTES];
    int used = snprintf(line, sizeof line, "%-10s", name);
    for (size_t i = 0; i < t->n_columns; i++)
        used += snprintf(line + used, sizeof line - (size_t)used, " %*.1f",
                         t->columns[i].width, cell(row, &t->columns[i]));
    if (peak)
        used += snprintf(line + used, sizeof line - (size_t)used, " %9.1f (%+.1f%%)",
                         *peak / MB, 100.0 * (*peak / row->in_machine - 1.0));
    if (row->offloaded > 0 && !t->is_gpu)
        snprintf(line + used, sizeof line - (size_t)used, "  and %.1f on disk",
                 row->offloaded / MB);
    print(line);
}

static bool are_alike(const struct table *t, const struct plan_memory *a,
                      const struct plan_memory *b)
{
    for (size_t i = 0; i + 2 < t->n_columns; i++) // up to program and total
        if (cell(a, &t->columns[i]) != cell(b, &t->columns[i]))
            return false;
    return a->offloaded == b->offloaded;
}

/* Many ranks: neighbours that are alike share a row. */
static void print_rows(print_fn *print, const struct table *t,
                       const struct plan_memory *rows, const double *peaks, int n)
{
    enum { MOST_ROWS = 16 };
    print_head(print, t, peaks != NULL);
    for (int i = 0, end; i < n; i = end) {
        char name[32];
        end = i + 1;
        while (n > MOST_ROWS && !peaks && end < n && are_alike(t, &rows[i], &rows[end]))
            end++;
        if (end == i + 1)
            snprintf(name, sizeof name, "rank %d", i);
        else
            snprintf(name, sizeof name, "%d-%d", i, end - 1);
        print_row(print, t, name, &rows[i], peaks ? &peaks[i] : NULL);
    }
}

/* What the plan cannot know, of a GPU that is one. */
static void print_reserve(print_fn *print, const struct plan_memory *row)
{
    char line[LINE_BYTES];
    if (row->emulated > 0)
        return;
    snprintf(line, sizeof line,
             "beside that, a GPU needs about %.0f MB for CUDA's context and kernels, and "
             "%.0f MB for NCCL",
             PLAN_CONTEXT_BYTES / MB, row->nccl / MB);
    print(line);
}

static void print_table(print_fn *print, const struct plan_memory *rows,
                        const double *peaks, int n)
{
    if (rows[0].on_gpu > 0) {
        print_rows(print, &gpu_table, rows, NULL, n);
        print_reserve(print, &rows[0]);
        print_rows(print, rows[0].emulated > 0 ? &emulating_table : &machine_table, rows,
                   peaks, n);
    } else {
        print_rows(print, &processor_table, rows, peaks, n);
    }
}

static void print_shared(print_fn *print, double shared, int n)
{
    char line[LINE_BYTES];
    if (n == 1 || shared == 0)
        return;
    snprintf(line, sizeof line,
             "%.1f MB of data, the order of samples, are there once for all processes of "
             "a machine",
             shared / MB);
    print(line);
}

/* -- before ------------------------------------------------------------------------- */

int usage_dry_run(const struct config *cfg, struct error *err)
{
    struct grid_shape shape = layout_grid(cfg);
    int n = (int)grid_size(&shape);
    struct plan_memory *rows = calloc((size_t)n, sizeof *rows);
    struct plan_data data;
    struct error why;
    int rc = rows ? 0 : error_set(err, ERROR_RUNTIME, "out of memory for %d rows", n);
    if (plan_data_find(&data, cfg, &why) && !text_dataset_is_coming(&cfg->dataset))
        log_info("the table is without the data's lengths and order: %s", why.text);
    for (int rank = 0; rows && rank < n && rc == 0; rank++) {
        struct plan plan;
        rc = plan_init(&plan, cfg, grid_coord_of(&shape, rank), err);
        if (rc == 0) {
            rows[rank] = plan_memory(&plan, cfg, &data);
            plan_release(&plan);
        }
    }
    if (rc == 0 && rows) {
        print_table(to_stdout, rows, NULL, n);
        print_shared(to_stdout, data.order, n);
        if (cfg->max_steps > 0) // else the number of steps is known when the run starts
            lr_warn(cfg, 0);
    }
    free(rows);
    return rc;
}

/* all[r] := rank r's n_bytes, on rank 0. */
static int gather_rows(struct train *t, const void *mine, size_t n_bytes, void *all,
                       struct error *err)
{
    int size = comm_size(t->grid.world);
    int64_t *bounds = calloc((size_t)size + 1, sizeof *bounds);
    int rc = bounds && all ? 0
                           : error_set(err, ERROR_RUNTIME,
                                       "out of memory for the report of %d ranks", size);
    rc = comm_agree(t->grid.world, rc, err);
    for (int r = 0; r <= size && rc == 0 && bounds; r++)
        bounds[r] = r * (int64_t)n_bytes;
    if (rc == 0)
        rc = comm_gather_bytes(t->grid.world, mine, all, bounds, 0, err);
    free(bounds);
    return rc;
}

static int usage_report_predicted(struct train *t, struct error *err)
{
    int size = comm_size(t->grid.world);
    struct plan_memory *all = calloc((size_t)size, sizeof *all);
    int rc = gather_rows(t, &t->memory, sizeof *all, all, err);
    if (rc == 0 && all && comm_rank(t->grid.world) == 0) {
        log_info("%.2f M parameters in rank 0; predicted memory:",
                 (double)t->plan.layout.table.n_elements / MB);
        print_table(to_log, all, NULL, size);
        print_shared(to_log, t->memory.shared, size);
    }
    free(all);
    return rc;
}

/* -- after -------------------------------------------------------------------------- */

static double sent_bytes(const struct comm *group, enum comm_kind kind)
{
    return (double)comm_volume(group).sent_bytes[kind];
}

double usage_gathered_bytes(const struct train *t)
{
    return sent_bytes(t->grid.sharding, COMM_ALLGATHER) +
           sent_bytes(t->grid.dp, COMM_ALLGATHER);
}

/* What rank 0 sent in a step, in bytes and, for what concerns parameters and gradients,
 * in sizes of all its parameters. */
static void log_volume(const struct train *t)
{
    const struct grid *g = &t->grid;
    double steps = (double)(t->step - t->first_step);
    double params = (double)t->plan.layout.table.n_bytes[STORE_PARAMS];
    double sums =
        sent_bytes(g->data, COMM_ALLREDUCE) + sent_bytes(g->data, COMM_REDUCE_SCATTER);
    double gathers = usage_gathered_bytes(t) - t->gathered_at_start;
    double model = 0;
    for (int kind = 0; kind < COMM_N_KINDS; kind++)
        model += sent_bytes(g->model, (enum comm_kind)kind);
    log_info("sent by rank 0 in a step: %.1f MB to sum gradients and %.1f MB to gather "
             "parameters over %d data ranks, together %.2f x its parameters; %.1f MB "
             "within layers, %.1f MB between stages",
             sums / steps / MB, gathers / steps / MB, g->data_size,
             (sums + gathers) / steps / params, model / steps / MB,
             sent_bytes(g->pipe, COMM_P2P) / steps / MB);
}

int usage_report_measured(struct train *t, struct error *err)
{
    int size = comm_size(t->grid.world);
    double peak = (double)memory_peak_bytes();
    struct plan_memory *rows = calloc((size_t)size, sizeof *rows);
    double *peaks = calloc((size_t)size, sizeof *peaks);
    int rc = gather_rows(t, &t->memory, sizeof *rows, rows, err);
    if (rc == 0)
        rc = gather_rows(t, &peak, sizeof *peaks, peaks, err);
    if (rc == 0 && rows && comm_rank(t->grid.world) == 0) {
        log_info("memory, predicted and the measured peak:");
        print_table(to_log, rows, peaks, size);
        if (size > 1)
            log_volume(t);
    }
    free(rows);
    free(peaks);
    return rc;
}

/* -- what each rank says in its own log ---------------------------------------------- */

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

void usage_log_begin(const struct train *t)
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
    if (mem->on_gpu > 0)
        log_own("predicted memory beside the GPU: %.1f MB", mem->total / MB);
    log_own("predicted memory%s: %.1f MB, of them parameters %.1f, gradients %.1f, "
            "optimizer %.1f, activations %.1f",
            mem->on_gpu > 0 ? " of the GPU" : "",
            (mem->on_gpu > 0 ? mem->on_gpu : mem->total) / MB, mem->params / MB,
            mem->grads / MB, mem->optimizer / MB, mem->activations / MB);
}

void usage_log_end(const struct train *t)
{
    log_own("after step %lld: measured memory %.1f MB at its peak", (long long)t->step,
            (double)memory_peak_bytes() / MB);
}

/* -- before step 1 ------------------------------------------------------------------- */

/* What can be refused is refused here, before time is lost. */

/* What is left of an open GPU, which has its context, and what it has taken of the plan
 * already; memory of messages between GPUs comes later. */
static double gpu_available(const struct train *t)
{
    double left =
        (double)device_memory_left(t->dev) + (double)device_own_bytes(t->dev->kind);
    double all = (double)t->dev->facts->memory_bytes;
    return (left < all ? left : all) - t->memory.nccl;
}

static int check_memory(const struct train *t, struct error *err)
{
    const struct plan_memory *mem = &t->memory;
    int n_local = comm_local_size(t->grid.world);
    double available = (double)memory_available_bytes() / (double)n_local;
    double needed = fit_needed(mem, n_local) - mem->program; // which it has already
    if (!device_is_host(t->dev) &&
        fit_check_gpu(mem, comm_rank(t->grid.world), gpu_available(t), &t->cfg, &t->data,
                      n_local, err))
        return -1;
    if (needed <= available)
        return 0;
    return fit_refuse(mem, comm_rank(t->grid.world), needed, available, &t->cfg, &t->data,
                      n_local, err);
}

static int64_t planned_saves(const struct config *cfg)
{
    int64_t every = cfg->save_load.save_steps;
    if (every > 0)
        return (cfg->max_steps + every - 1) / every;
    return every == 0 ? 1 : 0;
}

static int check_disk(const struct train *t, struct error *err)
{
    const char *dir = t->cfg.save_load.output_dir;
    uint64_t free_bytes;
    if (fs_free_bytes(dir, &free_bytes, err))
        return -1;
    uint64_t each = ckpt_bytes(&t->plan.layout.whole, update_rule_of(&t->cfg.optimizer));
    // a new checkpoint is complete before an old one goes
    uint64_t least = each * (uint64_t)i64_min(2, planned_saves(&t->cfg));
    if (free_bytes < least)
        return error_set(err, ERROR_RUNTIME,
                         "not enough room in save_load.output_dir '%s': a checkpoint "
                         "takes %.1f MB, %.1f MB are needed and %.1f MB are free; free "
                         "some or choose another output_dir",
                         dir, (double)each / 1e6, (double)least / 1e6,
                         (double)free_bytes / 1e6);
    return 0;
}

static int check_writable(const char *dir, struct error *err)
{
    char probe[CONFIG_PATH_BYTES + 64];
    if (fs_make_directories(dir, err))
        return error_prefix(err, "save_load.output_dir '%s' cannot be used", dir);
    snprintf(probe, sizeof probe, "%s/.write-probe-%d", dir, (int)getpid());
    if (fs_write_atomic(probe, "", 0, err))
        return error_prefix(err, "save_load.output_dir '%s' cannot be written", dir);
    return fs_remove_tree(probe, err);
}

static void warn_of_older_run(const struct config_save_load *save)
{
    int64_t newest = ckpt_newest_step(save->output_dir);
    if (newest >= 0 && save->ckpt_dir[0] == 0)
        log_warning("output_dir '%s' holds checkpoints of an earlier run, up to step "
                    "%lld; this run starts from scratch and replaces those of its own "
                    "steps. To continue that run set save_load.ckpt_dir=%s",
                    save->output_dir, (long long)newest, save->output_dir);
}

/* Disk space for what all processes of this machine offload. */
static int check_offload(const struct train *t, struct error *err)
{
    const char *dir = layout_offload_dir(&t->cfg);
    uint64_t free_bytes;
    double needed = t->memory.offloaded * (double)comm_local_size(t->grid.world);
    if (!dir)
        return 0;
    if (fs_make_directories(dir, err))
        return error_prefix(err, "save_load.offload_dir '%s' cannot be used", dir);
    if (fs_free_bytes(dir, &free_bytes, err))
        return -1;
    if (needed > (double)free_bytes)
        return error_set(err, ERROR_RUNTIME,
                         "not enough room in save_load.offload_dir '%s': the processes "
                         "of this machine keep %.1f MB there and %.1f MB are free; free "
                         "some or choose another offload_dir",
                         dir, needed / MB, (double)free_bytes / MB);
    return 0;
}

static int check_machine(struct train *t, struct error *err)
{
    const struct config_save_load *save = &t->cfg.save_load;
    if (check_memory(t, err) || check_offload(t, err))
        return -1;
    if (comm_rank(t->grid.world) > 0)
        return 0;
    if (check_writable(save->output_dir, err) || check_disk(t, err))
        return -1;
    warn_of_older_run(save);
    return 0;
}

int usage_preflight(struct train *t, struct error *err)
{
    t->memory = plan_memory(&t->plan, &t->cfg, &t->data);
    if (usage_report_predicted(t, err))
        return -1;
    return comm_agree(t->grid.world, check_machine(t, err), err);
}
