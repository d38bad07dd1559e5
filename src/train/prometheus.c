#include "train/prometheus.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_BYTES ((size_t)1 << 20) // of a file: the longest paths in all its lines
#define WRITE_EVERY 5.0              // seconds: collectors look every 15 or more

/* -- the text ------------------------------------------------------------------------ */

#define AT(member) offsetof(struct prometheus_run, member)
// clang-format off
static const struct {
    const char *name, *type, *help;
    size_t at; // of a double
} families[] = {
    {"trefoil_running", "gauge", "1 while the run trains, 0 when it has ended.", AT(running)},
    {"trefoil_step", "gauge", "Updates that are done.", AT(step)},
    {"trefoil_steps", "gauge", "Updates that the run is to do.", AT(steps_total)},
    {"trefoil_tokens_total", "counter", "Tokens trained on so far.", AT(tokens)},
    {"trefoil_flops_total", "counter", "Floating point operations of the model so far.", AT(flops)},
    {"trefoil_loss", "gauge", "Loss of the last logged step.", AT(loss)},
    {"trefoil_eval_loss", "gauge", "Loss of the last evaluation.", AT(eval_loss)},
    {"trefoil_grad_norm", "gauge", "Norm of the gradients of the last logged step.", AT(grad_norm)},
    {"trefoil_learning_rate", "gauge", "Learning rate.", AT(learning_rate)},
    {"trefoil_loss_scale", "gauge", "Scale of the loss in float16.", AT(loss_scale)},
    {"trefoil_step_duration_seconds", "gauge", "Time of a step, mean since the logged one before.", AT(step_seconds)},
    {"trefoil_tokens_per_second", "gauge", "Tokens trained on per second, all ranks.", AT(tokens_per_second)},
    {"trefoil_mfu_ratio", "gauge", "Operations of the model per second over the measured product rate.", AT(mfu)},
    {"trefoil_share_compute_ratio", "gauge", "Share of a step's time: computing.", AT(share_compute)},
    {"trefoil_share_waiting_ratio", "gauge", "Share of a step's time: waiting for other ranks.", AT(share_waiting)},
    {"trefoil_share_reader_ratio", "gauge", "Share of a step's time: reading data.", AT(share_reader)},
    {"trefoil_share_optimizer_ratio", "gauge", "Share of a step's time: updating weights.", AT(share_optimizer)},
    {"trefoil_last_update_timestamp_seconds", "gauge", "When the run last reported.", AT(last_update)},
    {"trefoil_last_checkpoint_timestamp_seconds", "gauge", "When the last checkpoint was complete.", AT(last_checkpoint)},
    {"trefoil_restarts_total", "counter", "Restarts of the job.", AT(restarts)},
};
static const struct {
    const char *name, *help;
    size_t at; // of a pointer to doubles
} rank_families[] = {
    {"trefoil_step_seconds", "Time of a step, by rank.", AT(rank_seconds)},
    {"trefoil_wait_seconds", "Time of a step spent waiting for other ranks, by rank.", AT(rank_wait)},
    {"trefoil_resident_bytes", "Memory of the process, by rank.", AT(rank_resident)},
};
// clang-format on

struct text_out {
    char *out;
    size_t n, size;
};

PRINTF_LIKE(2, 3) static void put(struct text_out *to, const char *format, ...)
{
    va_list args;
    bool fits = to->n < to->size;
    va_start(args, format);
    int n = vsnprintf(fits ? to->out + to->n : NULL, fits ? to->size - to->n : 0, format,
                      args);
    va_end(args);
    to->n += n > 0 ? (size_t)n : 0;
}

/* What is no UTF-8, as a path may be, is shown by question marks. */
static void put_label(struct text_out *to, const char *key, const char *value)
{
    uint32_t code;
    size_t n, left = strlen(value);
    put(to, "%s=\"", key);
    for (; left > 0; value += n, left -= n) {
        n = utf8_decode(value, left, &code);
        if (n == 0)
            put(to, "?");
        else if (code == '\n')
            put(to, "\\n");
        else
            put(to, "%s%.*s", code == '"' || code == '\\' ? "\\" : "", (int)n, value);
        n += n == 0;
    }
    put(to, "\"");
}

static void put_head(struct text_out *to, const char *name, const char *type,
                     const char *help)
{
    put(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static double number_at(const struct prometheus_run *run, size_t at)
{
    double value;
    memcpy(&value, (const char *)run + at, sizeof value);
    return value;
}

static const double *ranks_at(const struct prometheus_run *run, size_t at)
{
    const double *values;
    memcpy(&values, (const char *)run + at, sizeof values);
    return values;
}

static void put_family(struct text_out *to, const struct prometheus_run *runs, int n_runs,
                       size_t f)
{
    bool has_head = false;
    for (int i = 0; i < n_runs; i++) {
        double value = number_at(&runs[i], families[f].at);
        if (!isfinite(value))
            continue;
        if (!has_head)
            put_head(to, families[f].name, families[f].type, families[f].help);
        has_head = true;
        put(to, "%s{", families[f].name);
        put_label(to, "run", runs[i].name);
        put(to, "} %.17g\n", value);
    }
}

static void put_rank_family(struct text_out *to, const struct prometheus_run *runs,
                            int n_runs, size_t f)
{
    bool has_head = false;
    for (int i = 0; i < n_runs; i++) {
        const double *values = ranks_at(&runs[i], rank_families[f].at);
        for (int64_t r = 0; values && r < runs[i].n_ranks; r++) {
            if (!isfinite(values[r]))
                continue;
            if (!has_head)
                put_head(to, rank_families[f].name, "gauge", rank_families[f].help);
            has_head = true;
            put(to, "%s{", rank_families[f].name);
            put_label(to, "run", runs[i].name);
            put(to, ",rank=\"%lld\"} %.17g\n", (long long)r, values[r]);
        }
    }
}

static void put_info(struct text_out *to, const struct prometheus_run *runs, int n_runs)
{
    put_head(to, "trefoil_info", "gauge", "What runs: always 1.");
    for (int i = 0; i < n_runs; i++) {
        put(to, "trefoil_info{");
        put_label(to, "run", runs[i].name);
        put(to, ",");
        put_label(to, "version", runs[i].version ? runs[i].version : "");
        put(to, ",");
        put_label(to, "layout", runs[i].layout ? runs[i].layout : "");
        put(to, "} 1\n");
    }
}

struct prometheus_run prometheus_run_of(const char *name)
{
    struct prometheus_run run = {.name = name};
    double unknown = (double)NAN;
    for (size_t f = 0; f < ARRAY_LEN(families); f++)
        memcpy((char *)&run + families[f].at, &unknown, sizeof unknown);
    return run;
}

size_t prometheus_text(const struct prometheus_run *runs, int n_runs, char *out,
                       size_t size)
{
    struct text_out to = {.out = out, .size = size};
    if (n_runs > 0)
        put_info(&to, runs, n_runs);
    for (size_t f = 0; f < ARRAY_LEN(families); f++)
        put_family(&to, runs, n_runs, f);
    for (size_t f = 0; f < ARRAY_LEN(rank_families); f++)
        put_rank_family(&to, runs, n_runs, f);
    if (size > 0)
        out[to.n < size ? to.n : size - 1] = 0;
    return to.n;
}

/* -- the file ------------------------------------------------------------------------ */

int prometheus_open(struct prometheus_file *f, const char *path, const char *output_dir,
                    struct error *err)
{
    *f = (struct prometheus_file){.text = malloc(TEXT_BYTES)};
    if (!f->text)
        return error_set(err, ERROR_RUNTIME, "out of memory for '%s'", path);
    if ((size_t)snprintf(f->path, sizeof f->path, "%s", path) >= sizeof f->path ||
        (size_t)snprintf(f->aside, sizeof f->aside, "%s.tmp", path) >= sizeof f->aside)
        return error_set(err, ERROR_INPUT, "path too long: '%s'", path);
    // runs of different directories have different names, wherever they were started
    if (!realpath(output_dir, f->name))
        snprintf(f->name, sizeof f->name, "%s", output_dir);
    f->run = prometheus_run_of(f->name);
    f->run.running = 1;
    return 0;
}

void prometheus_close(struct prometheus_file *f)
{
    free(f->text);
    f->text = NULL;
}

/* Not synchronised with the disk, as for what must survive: that takes long, and after a
 * crash of the machine the run is over. */
static int replace_file(const struct prometheus_file *f, size_t n)
{
    int fd = fs_create(f->aside, O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0)
        return -1;
    int rc = fs_write_exact(fd, f->text, n);
    if (close(fd) || rc || rename(f->aside, f->path)) {
        int reason = errno;
        unlink(f->aside);
        errno = reason;
        return -1;
    }
    return 0;
}

static void write_file(struct prometheus_file *f)
{
    size_t n = prometheus_text(&f->run, 1, f->text, TEXT_BYTES);
    f->written = clock_seconds();
    bool failed = n >= TEXT_BYTES || replace_file(f, n);
    if (failed && !f->is_failing)
        log_warning("cannot write '%s' (prometheus_file): %s; it is tried again and "
                    "again",
                    f->path, n >= TEXT_BYTES ? "the text is too long" : strerror(errno));
    f->is_failing = failed;
}

static void take_number(const struct record *r, const char *key, double *value)
{
    const struct record_field *f = record_find(r, key);
    if (f && (f->type == RECORD_REAL || f->type == RECORD_INT))
        *value = f->type == RECORD_INT ? (double)f->value.integer
                                       : record_as_read(f->value.real);
    else if (f && f->type == RECORD_NULL)
        *value = (double)NAN;
}

static void take_numbers(struct prometheus_run *run, const struct record *r)
{
    const struct {
        const char *key;
        double *value;
    } numbers[] = {
        {"steps_total", &run->steps_total},
        {"tokens", &run->tokens},
        {"flops", &run->flops},
        {"loss", &run->loss},
        {"eval_loss", &run->eval_loss},
        {"grad_norm", &run->grad_norm},
        {"lr", &run->learning_rate},
        {"loss_scale", &run->loss_scale},
        {"batch_cost", &run->step_seconds},
        {"ips_total", &run->tokens_per_second},
        {"mfu", &run->mfu},
        {"share_compute", &run->share_compute},
        {"share_waiting", &run->share_waiting},
        {"share_reader", &run->share_reader},
        {"share_optimizer", &run->share_optimizer},
        {"restarts", &run->restarts},
    };
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        take_number(r, numbers[i].key, numbers[i].value);
}

/* The fields of the group "ranks". */
static void take_ranks(struct prometheus_file *f, const struct record *r)
{
    static const char *const keys[] = {"step_seconds", "wait_seconds", "resident_bytes"};
    const double **places[] = {&f->run.rank_seconds, &f->run.rank_wait,
                               &f->run.rank_resident};
    const struct record_field *field = record_find(r, "ranks");
    if (!field || field->type != RECORD_GROUP)
        return;
    for (field++; field->type == RECORD_REALS; field++)
        for (size_t k = 0; k < ARRAY_LEN(keys); k++)
            if (strcmp(field->key, keys[k]) == 0) {
                f->run.n_ranks = i64_min(field->n, PROMETHEUS_RANKS_MOST);
                memcpy(f->rank_values[k], field->value.reals,
                       (size_t)f->run.n_ranks * sizeof(double));
                *places[k] = f->rank_values[k];
            }
}

static void take_start(struct prometheus_file *f, const struct record *r)
{
    const char *version = record_find_text(r, "version");
    const char *layout = record_find_text(r, "layout");
    snprintf(f->version, sizeof f->version, "%s", version ? version : "");
    snprintf(f->layout, sizeof f->layout, "%s", layout ? layout : "");
    f->run.version = f->version;
    f->run.layout = f->layout;
}

void prometheus_take(struct prometheus_file *f, const struct record *r)
{
    static const char *const ends[] = {"end", "stopped", "failure"};
    const char *event = record_find_text(r, "event");
    take_numbers(&f->run, r);
    take_ranks(f, r);
    f->run.last_update = r->time;
    // a checkpoint may be complete some steps after its own
    f->run.step = fmax(isfinite(f->run.step) ? f->run.step : 0, (double)r->step);
    if (event && strcmp(event, "start") == 0)
        take_start(f, r);
    if (event && strcmp(event, "save") == 0)
        f->run.last_checkpoint = r->time;
    for (size_t i = 0; event && i < ARRAY_LEN(ends); i++)
        if (strcmp(event, ends[i]) == 0)
            f->run.running = 0;
    if (event || f->written <= 0 || clock_seconds() - f->written >= WRITE_EVERY)
        write_file(f);
}
