#include "train/events.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/stop.h"
#include "parallel/layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LAYERS_EVERY 10                 // logged steps
#define LONG_RUN_SECONDS (14 * 86400.0) // from here on a run is worth a warning
#define FILE_PATH_BYTES (CONFIG_PATH_BYTES + 64)
#define SAMPLE_BYTES 4096 // of a sampled text that are told

static bool is_reporter(const struct train *t)
{
    return comm_rank(t->grid.world) == 0 && t->metrics.is_open;
}

static void begin(struct record *r, int64_t step, const char *event)
{
    record_begin(r, step);
    record_text(r, "event", event);
}

static void tell(struct train *t, const struct record *r)
{
    struct error err;
    if (metrics_tell(&t->metrics, r, &err))
        log_warning("%s", err.text);
}

/* -- before the first step ----------------------------------------------------------- */

int events_write_config(const struct train *t, struct error *err)
{
    char path[FILE_PATH_BYTES], *text = NULL;
    size_t n = 0;
    if (comm_rank(t->grid.world) > 0)
        return 0;
    if (fs_join(path, sizeof path, t->cfg.save_load.output_dir, "config.yaml", err))
        return -1;
    FILE *out = open_memstream(&text, &n);
    if (out)
        config_print(&t->cfg, out);
    int rc = -1;
    if (!out || fclose(out) || !text)
        error_set(err, ERROR_RUNTIME, "out of memory for '%s'", path);
    else
        rc = fs_write_atomic(path, text, n, err);
    free(text);
    return rc;
}

/* "3.2 days", in the unit that suits. */
static void describe_time(double seconds, char *text, size_t size)
{
    static const struct {
        double seconds;
        const char *name;
    } units[] = {{86400 * 7, "weeks"}, {86400, "days"}, {3600, "hours"},
                 {60, "minutes"},      {1, "s"},        {1e-3, "ms"}};
    size_t i = 0;
    while (i + 1 < ARRAY_LEN(units) && seconds < 2 * units[i].seconds)
        i++;
    snprintf(text, size, "%.3g %s", seconds / units[i].seconds, units[i].name);
}

/* Passes over the training data, those before this process included. */
static double epochs_of_run(const struct train *t)
{
    double G = (double)t->cfg.batch_size.global_batch_size;
    double each = (double)sample_stream_epoch_start(&t->train_samples, 1);
    return each > 0 ? (double)t->cfg.max_steps * G / each : 0;
}

static void log_ahead(const struct train *t)
{
    const struct config *cfg = &t->cfg;
    const struct rate *r = &t->rate;
    const struct gpt_rate *p = &r->product;
    char step[32], left[32];
    double each = rate_step_seconds(r, cfg);
    double seconds = each * (double)(cfg->max_steps - t->step);
    describe_time(each, step, sizeof step);
    describe_time(seconds, left, sizeof left);
    log_info("products of %lld x %lld x %lld run at %.4g GFLOP/s on all ranks; mfu is "
             "the model's FLOP/s over that: each token takes 6 (L (4 H^2 + 2 H F) + V H) "
             "+ 6 L H (S + 1) = %.4g MFLOP, with L %lld, H %lld, F %lld, V %lld, S %lld",
             (long long)p->rows, (long long)p->inner, (long long)p->columns,
             r->flops_all / 1e9,
             t->metrics.step_flops / (double)t->metrics.tokens_per_step / 1e6,
             (long long)cfg->model.num_layers, (long long)cfg->model.hidden_size,
             (long long)cfg->model.ffn_hidden_size, (long long)cfg->model.vocab_size,
             (long long)cfg->dataset.max_seq_len);
    log_info("ahead: steps %lld to %lld of %lld tokens each, %.4g epochs and %.4g tokens "
             "in all; by that rate about %s per step, %s left",
             (long long)t->step + 1, (long long)cfg->max_steps,
             (long long)t->metrics.tokens_per_step, epochs_of_run(t),
             (double)cfg->max_steps * (double)t->metrics.tokens_per_step, step, left);
    if (seconds >= LONG_RUN_SECONDS)
        log_warning("this run would take about %s on this machine: lower max_steps (it "
                    "is %lld), take a smaller model (Model.num_layers, "
                    "Model.hidden_size) or more processes",
                    left, (long long)cfg->max_steps);
}

/* "dp2 x mp2" */
static void describe_layout(const struct grid_shape *shape, char *text, size_t size)
{
    const struct {
        const char *name;
        int degree;
    } axes[] = {{"dp", shape->dp},
                {"pp", shape->pp},
                {"sharding", shape->sharding},
                {"mp", shape->mp}};
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < ARRAY_LEN(axes); i++)
        if (axes[i].degree > 1)
            used += (size_t)snprintf(text + used, size - used, "%s%s%d",
                                     used ? " x " : "", axes[i].name, axes[i].degree);
    if (used == 0)
        snprintf(text, size, "dp1");
}

/* plan (ranks, 2): bytes of the machine's memory and of a GPU's. */
static void tell_start(struct train *t, const double *plan)
{
    const struct config *cfg = &t->cfg;
    struct record r;
    char layout[128];
    int64_t world = comm_size(t->grid.world);
    double bytes[SHARES_MOST_ENTRIES];
    int64_t each = shares_condense(plan, world, 2, false, bytes);
    describe_layout(&t->grid.shape, layout, sizeof layout);
    begin(&r, t->step, "start");
    record_i64(&r, "steps_total", cfg->max_steps);
    record_i64(&r, "tokens_per_step", t->metrics.tokens_per_step);
    record_real(&r, "flops_per_step", t->metrics.step_flops);
    record_i64(&r, "world", world);
    record_text(&r, "layout", layout);
    record_text(&r, "host", comm_host(t->grid.world));
    record_text(&r, "version", TREFOIL_VERSION);
    record_text(&r, "kernels", t->plan.layout.model.dev->k->name);
    record_text(&r, "dtype", dtype_name(cfg->mix_precision.dtype));
    record_i64(&r, "threads", kernels_threads());
    record_real(&r, "product_flops", t->rate.flops_all);
    record_text(&r, "device", t->dev->name);
    record_reals(&r, "plan_bytes", bytes, (world + each - 1) / each);
    if (!device_is_host(t->dev)) {
        shares_condense(plan + 1, world, 2, false, bytes);
        record_reals(&r, "device_plan_bytes", bytes, (world + each - 1) / each);
    }
    if (each > 1)
        record_i64(&r, "ranks_per_entry", each);
    if (t->resumed_from[0])
        record_text(&r, "resumed_from", t->resumed_from);
    else
        record_null(&r, "resumed_from");
    record_i64(&r, "restarts", comm_launch_info().n_restarts);
    record_i64(&r, "pid", getpid());
    tell(t, &r);
}

int events_start(struct train *t, struct error *err)
{
    struct comm *world = t->grid.world;
    int64_t n = comm_size(world);
    double mine[] = {t->memory.total, t->memory.on_gpu};
    double *plan = calloc((size_t)n, sizeof mine);
    int64_t *bounds = calloc((size_t)n + 1, sizeof *bounds);
    int rc = plan && bounds ? 0
                            : error_set(err, ERROR_RUNTIME,
                                        "out of memory for %lld ranks", (long long)n);
    rc = comm_agree(world, rc, err);
    for (int64_t r = 0; r <= n && rc == 0 && bounds; r++)
        bounds[r] = r * (int64_t)sizeof mine;
    if (rc == 0)
        rc = comm_gather_bytes(world, mine, plan, bounds, 0, err);
    if (rc == 0 && plan && is_reporter(t)) {
        if (t->step < t->cfg.max_steps)
            log_ahead(t);
        tell_start(t, plan);
    }
    free(plan);
    free(bounds);
    return rc;
}

/* -- in between ---------------------------------------------------------------------- */

void events_save(struct train *t, int64_t step, const char *path, double seconds)
{
    struct record r;
    if (!is_reporter(t))
        return;
    begin(&r, step, "save");
    record_text(&r, "path", path);
    record_real(&r, "seconds", seconds);
    tell(t, &r);
}

void events_save_failed(struct train *t, int64_t step, const char *reason)
{
    struct record r;
    if (!is_reporter(t))
        return;
    begin(&r, step, "save_failed");
    record_text(&r, "error", reason);
    tell(t, &r);
}

void events_skipped(struct train *t, int64_t step, double scale)
{
    struct record r;
    if (!is_reporter(t))
        return;
    begin(&r, step, "skipped");
    record_real(&r, "loss_scale", scale);
    tell(t, &r);
}

/* The text is cut to what a line surely holds, at the beginning of a character. */
static void cut_text(char *text)
{
    size_t n = SAMPLE_BYTES;
    if (strlen(text) <= n)
        return;
    while (n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80)
        n--;
    text[n] = 0;
}

void events_sample(struct train *t, int64_t i)
{
    struct record r;
    if (!is_reporter(t))
        return;
    char *text = prompts_text(&t->prompts, i);
    if (!text) {
        log_warning("out of memory for a sampled text");
        return;
    }
    cut_text(text);
    begin(&r, t->step, "sample");
    record_text(&r, "prompt", config_path_at(&t->cfg.eval_prompts, i));
    record_text(&r, "text", text);
    tell(t, &r);
    free(text);
}

void events_ranks(struct train *t)
{
    const struct shares_ranks *all = t->shares.ranks;
    struct record r;
    if (!is_reporter(t))
        return;
    record_begin(&r, t->step);
    record_group(&r, "ranks");
    record_reals(&r, "step_seconds", all->step_seconds, all->n_entries);
    record_reals(&r, "wait_seconds", all->wait_seconds, all->n_entries);
    record_reals(&r, "resident_bytes", all->resident_bytes, all->n_entries);
    record_group_end(&r);
    if (all->ranks_per_entry > 1)
        record_i64(&r, "ranks_per_entry", all->ranks_per_entry);
    tell(t, &r);
}

void events_layers(struct train *t, const struct metrics_step *step)
{
    struct record r;
    bool is_due = t->step == t->first_step + 1 || t->step == t->cfg.max_steps ||
                  t->step % (LAYERS_EVERY * t->cfg.logging_freq) == 0;
    if (!is_reporter(t) || !t->cfg.tensorboard || !is_due || step->is_skipped)
        return;
    int64_t n =
        optimizer_layer_norms(&t->optimizer, t->cfg.model.num_layers, t->layer_norms);
    for (int64_t i = 0; i < n; i++)
        t->layer_norms[i] /= step->loss_scale;
    begin(&r, t->step, "layers");
    record_reals(&r, "grad_norms", t->layer_norms, n);
    if (n > 0)
        tell(t, &r);
}

/* -- the end ------------------------------------------------------------------------- */

/* An agreement heads a reason with the rank it is of (comm_agree()). */
static int rank_of(const struct train *t, const struct error *err)
{
    int rank;
    const char *head = strstr(err->text, "rank ");
    if (comm_size(t->grid.world) == 1)
        return 0;
    return head && sscanf(head, "rank %d on ", &rank) == 1 ? rank : -1;
}

void events_end(struct train *t, int rc, int signal, const struct error *err)
{
    struct record r;
    bool is_stopped = rc && (err->kind == ERROR_STOPPED || err->kind == ERROR_UNSAVED);
    if (!is_reporter(t))
        return;
    begin(&r, t->step, rc == 0 ? "end" : is_stopped ? "stopped" : "failure");
    if (is_stopped)
        record_text(&r, "signal", stop_signal_name(signal));
    if (rc && !is_stopped) {
        int rank = rank_of(t, err);
        if (rank >= 0)
            record_i64(&r, "rank", rank);
        else
            record_null(&r, "rank");
        record_bool(&r, "diverged", err->kind == ERROR_DIVERGED);
    }
    if (rc)
        record_text(&r, "error", err->text);
    tell(t, &r);
}
