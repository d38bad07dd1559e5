#include "train/metrics.h"

#include "base/beat.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/memory.h"
#include "train/sinks.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILE_BYTES ((size_t)1 << 32)
#define UNWRITTEN_BYTES_MOST ((size_t)1 << 20)
#define LINE_BYTES 65536 // of an object
#define HEAD_BYTES 64    // of it, where "step" and "event" are
#define PROGRESS_TENTHS 10

/* -- the file ------------------------------------------------------------------------ */

/* Of a line of ours, which ends with a newline; -1: it is not ours. */
static int64_t step_of(const char *line, size_t n)
{
    static const char head[] = "{\"step\": ";
    size_t n_head = sizeof head - 1;
    if (n <= n_head || memcmp(line, head, n_head) != 0 || !isdigit(line[n_head]))
        return -1;
    return strtoll(line + n_head, NULL, 10);
}

/* Whether the line is about a process of the run rather than about its training: that it
 * started, failed or ended is true of the past wherever the training goes on from. */
static bool is_history(const char *line, size_t n)
{
    static const char *const events[] = {"start", "stall", "failure", "stopped", "end"};
    char mark[64];
    for (size_t i = 0; i < ARRAY_LEN(events); i++) {
        int n_mark = snprintf(mark, sizeof mark, ", \"event\": \"%s\",", events[i]);
        if (memmem(line, n < HEAD_BYTES ? n : HEAD_BYTES, mark, (size_t)n_mark))
            return true;
    }
    return false;
}

/* Drop the lines of steps after `last_step`, and a last one that a crash cut short; the
 * length of what is left of `text`. Lines that are not ours stay, and are counted. */
static size_t drop_lines_after(char *text, size_t n, int64_t last_step,
                               int64_t *n_foreign)
{
    char *end, *kept = text;
    for (char *line = text; (end = memchr(line, '\n', (size_t)(text + n - line)));
         line = end + 1) {
        int64_t step = step_of(line, (size_t)(end - line));
        *n_foreign += step < 0;
        if (step > last_step && !is_history(line, (size_t)(end - line)))
            continue;
        memmove(kept, line, (size_t)(end + 1 - line));
        kept += end + 1 - line;
    }
    return (size_t)(kept - text);
}

static int keep_lines(const char *path, int64_t last_step, struct error *err)
{
    char *text;
    size_t n;
    int64_t n_foreign = 0;
    if (fs_read_regular(path, MAX_FILE_BYTES, &text, &n, err))
        return -1;
    n = drop_lines_after(text, n, last_step, &n_foreign);
    if (n_foreign)
        log_warning("'%s' holds %lld lines that no step wrote: they stay as they are",
                    path, (long long)n_foreign);
    int rc = fs_write_atomic(path, text, n, err);
    free(text);
    return rc;
}

static int set_aside(const char *path, struct error *err)
{
    char previous[1200];
    snprintf(previous, sizeof previous, "%s.previous", path);
    return fs_rename(path, previous, err);
}

/* All lines that the file lacks, or none of them; -1 with errno. A launcher may append a
 * line of its own when a rank dies: so it is the file that knows where its end is. */
static int write_lines(struct metrics *m)
{
    off_t before = lseek(m->fd, 0, SEEK_END);
    if (before < 0)
        return -1;
    if (fs_write_exact(m->fd, m->unwritten, m->n_unwritten)) {
        int reason = errno;
        int unused = ftruncate(m->fd, before); // lines are whole or not there
        (void)unused;
        errno = reason;
        return -1;
    }
    m->n_unwritten = 0;
    return 0;
}

static int add_line(struct metrics *m, const char *line, size_t n, struct error *err)
{
    bool is_first = m->n_unwritten == 0;
    if (m->n_unwritten + n > UNWRITTEN_BYTES_MOST) {
        write_lines(m);
        if (m->n_unwritten > 0)
            return error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", m->path,
                             strerror(errno));
    }
    memcpy(m->unwritten + m->n_unwritten, line, n);
    m->n_unwritten += n;
    if (write_lines(m) && is_first)
        log_warning("cannot write '%s': %s; what is to be written there is kept until "
                    "it can be",
                    m->path, strerror(errno));
    return 0;
}

int metrics_tell(struct metrics *m, const struct record *r, struct error *err)
{
    char line[LINE_BYTES];
    int64_t n = record_json(r, line, sizeof line);
    if (m->sinks)
        sinks_take(m->sinks, r);
    if (n < 0)
        return error_set(err, ERROR_RUNTIME, "a line of '%s' is longer than %d bytes",
                         m->path, LINE_BYTES);
    return add_line(m, line, (size_t)n, err);
}

/* An existing file is continued if it can be, and otherwise renamed. */
static int clear_the_way(const char *path, int64_t first_step, struct error *err)
{
    enum fs_type type;
    struct stat link;
    if (fs_look(path, &type, err))
        return -1;
    if (type == FS_FILE && first_step > 0)
        return keep_lines(path, first_step, err);
    if (type == FS_NOTHING && lstat(path, &link)) // nor a link that leads nowhere
        return 0;
    if (set_aside(path, err))
        return -1;
    if (type != FS_FILE)
        log_warning("'%s' was there and is no file; it is '%s.previous' now", path, path);
    return 0;
}

int metrics_open(struct metrics *m, const char *output_dir, int64_t first_step,
                 struct error *err)
{
    if (fs_join(m->path, sizeof m->path, output_dir, "metrics.jsonl", err))
        return -1;
    if (clear_the_way(m->path, first_step, err))
        return -1;
    m->first_step = first_step;
    m->unwritten = malloc(UNWRITTEN_BYTES_MOST);
    if (!m->unwritten)
        return error_set(err, ERROR_RUNTIME, "out of memory for '%s'", m->path);
    m->fd = open(m->path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    m->is_open = m->fd >= 0;
    if (!m->is_open)
        return error_set(err, ERROR_RUNTIME, "cannot open '%s': %s", m->path,
                         strerror(errno));
    return 0;
}

void metrics_close(struct metrics *m)
{
    log_status_clear();
    if (m->n_unwritten > 0 && write_lines(m))
        log_warning("the last lines of '%s' are lost: %s", m->path, strerror(errno));
    if (m->is_open)
        close(m->fd);
    free(m->unwritten);
    *m = (struct metrics){0};
}

/* -- steps --------------------------------------------------------------------------- */

/* "h:mm:ss left", by the mean time of the steps since the first; "" without any. */
static void time_left(const struct metrics *m, int64_t step, char *text, size_t size)
{
    int64_t done = step - m->first_step - 1;
    text[0] = 0;
    if (done < 1)
        return;
    double each = (clock_seconds() - m->first_seconds) / (double)done;
    int64_t left = (int64_t)(each * (double)(m->max_steps - step) + 0.5);
    snprintf(text, size, ", %lld:%02lld:%02lld left", (long long)(left / 3600),
             (long long)(left / 60 % 60), (long long)(left % 60));
}

/* Log lines stay, so there is one per tenth of the run, and none in a short run. */
static bool is_tenth(const struct metrics *m, int64_t step)
{
    return m->max_steps >= 2 * PROGRESS_TENTHS && step < m->max_steps &&
           step * PROGRESS_TENTHS / m->max_steps >
               (step - 1) * PROGRESS_TENTHS / m->max_steps;
}

static void show_bar(const struct metrics *m, const struct metrics_step *s,
                     const char *left)
{
    static const char marks[] = "####################", gaps[] = "                    ";
    char text[256];
    int percent = (int)(100 * s->step / m->max_steps);
    int n = percent * (int)(sizeof marks - 1) / 100;
    snprintf(text, sizeof text,
             "[Epoch %lld / Train] %3d%%|%.*s%s| %lld/%lld%s, loss %.4f, %.0f tokens/s",
             (long long)s->epoch, percent, n, marks, gaps + n, (long long)s->step,
             (long long)m->max_steps, left, s->loss,
             (double)m->tokens_per_step / s->step_seconds);
    log_status("%s", text);
    beat_show_progress(text);
}

/* A bar on the terminal of this process or of its launcher, or lines. */
static void show_progress(const struct metrics *m, const struct metrics_step *s)
{
    char left[64];
    bool is_seen = log_is_terminal() || beat_is_shown();
    time_left(m, s->step, left, sizeof left);
    if (is_seen && m->has_bar)
        show_bar(m, s, left);
    if (!is_seen && m->has_progress_lines && is_tenth(m, s->step))
        log_info("progress: %lld%%, step %lld/%lld, epoch %lld%s",
                 (long long)(100 * s->step / m->max_steps), (long long)s->step,
                 (long long)m->max_steps, (long long)s->epoch, left);
}

/* How far the run is, how fast against what the machine can, and where the time goes. */
static void add_speed(struct record *r, struct metrics *m, const struct metrics_step *s,
                      double batch_cost)
{
    static const char *const keys[] = {[SHARE_COMPUTE] = "share_compute",
                                       [SHARE_WAITING] = "share_waiting",
                                       [SHARE_READER] = "share_reader",
                                       [SHARE_OPTIMIZER] = "share_optimizer"};
    double speed = m->step_flops / batch_cost; // above the rate: others ran beside that
    m->product_flops = speed > m->product_flops ? speed : m->product_flops;
    double samples = (double)s->consumed_samples / (double)m->samples_per_step;
    record_i64(r, "tokens",
               s->consumed_samples / m->samples_per_step * m->tokens_per_step);
    record_real(r, "flops", samples * m->step_flops);
    record_real(r, "mfu", speed / m->product_flops);
    for (int i = 0; i < N_SHARES; i++)
        record_real(r, keys[i], s->shares[i]);
}

static int report_step(struct metrics *m, const struct metrics_step *s, struct error *err)
{
    double steps = (double)m->n_steps;
    double reader_cost = m->reader_seconds / steps, batch_cost = m->step_seconds / steps;
    double ips_total = (double)m->tokens_per_step / batch_cost;
    double ips = ips_total / (double)m->n_processes;
    log_info("global step %lld, epoch: %lld, batch: %lld, loss: %.9f, "
             "avg_reader_cost: %.5f sec, avg_batch_cost: %.5f sec, speed: %.2f step/s, "
             "ips_total: %.0f tokens/s, ips: %.0f tokens/s, learning rate: %.5e",
             (long long)s->step, (long long)s->epoch, (long long)s->batch, s->loss,
             reader_cost, batch_cost, 1.0 / batch_cost, ips_total, ips, s->lr);
    struct record r;
    record_begin(&r, s->step);
    record_i64(&r, "epoch", s->epoch);
    record_i64(&r, "batch", s->batch);
    record_real(&r, "loss", s->loss);
    record_real(&r, "grad_norm", s->grad_norm);
    record_real(&r, "lr", s->lr);
    record_real(&r, "loss_scale", s->loss_scale);
    record_bool(&r, "skipped", s->is_skipped);
    record_real(&r, "reader_cost", reader_cost);
    record_real(&r, "batch_cost", batch_cost);
    record_real(&r, "ips_total", ips_total);
    record_real(&r, "ips", ips);
    record_i64(&r, "consumed_samples", s->consumed_samples);
    record_i64(&r, "peak_memory_bytes", (int64_t)memory_peak_bytes());
    if (s->device_memory_bytes > 0) {
        record_i64(&r, "device_memory_bytes", s->device_memory_bytes);
        record_i64(&r, "device_waits", s->device_waits);
    }
    add_speed(&r, m, s, batch_cost);
    m->reader_seconds = m->step_seconds = 0;
    m->n_steps = 0;
    return metrics_tell(m, &r, err);
}

int metrics_step(struct metrics *m, const struct metrics_step *s, bool is_last,
                 struct error *err)
{
    m->reader_seconds += s->reader_seconds;
    m->step_seconds += s->step_seconds;
    m->n_steps++;
    if (m->epoch.n_steps++ == 0)
        m->epoch.first_step = s->step;
    m->epoch.loss_sum += s->loss;
    m->epoch.seconds += s->step_seconds;
    if (s->step == m->first_step + 1)
        m->first_seconds = clock_seconds();
    int rc = 0;
    if (s->step % m->logging_freq == 0 || is_last)
        rc = report_step(m, s, err);
    show_progress(m, s);
    return rc;
}

int metrics_eval(struct metrics *m, int64_t step, int64_t epoch, int64_t n_batches,
                 double loss, double seconds, struct error *err)
{
    double cost = seconds / (double)n_batches;
    m->eval_loss = loss;
    log_info("[eval] step %lld, epoch: %lld, batch: %lld, loss: %.9f, "
             "avg_eval_cost: %.5f sec, speed: %.2f step/s",
             (long long)step, (long long)epoch, (long long)n_batches, loss, cost,
             1.0 / cost);
    struct record r;
    record_begin(&r, step);
    record_i64(&r, "epoch", epoch);
    record_i64(&r, "eval_batches", n_batches);
    record_real(&r, "eval_loss", loss);
    record_real(&r, "eval_cost", cost);
    return metrics_tell(m, &r, err);
}

/* -- epochs -------------------------------------------------------------------------- */

void metrics_epoch(struct metrics *m, int64_t epoch, bool is_whole)
{
    char since[64] = "";
    double n = (double)m->epoch.n_steps;
    if (!is_whole)
        snprintf(since, sizeof since, " | since step %lld",
                 (long long)m->epoch.first_step);
    log_info("[Epoch %lld / Train]: Loss = %.5g | Throughput = %.5g%s", (long long)epoch,
             m->epoch.loss_sum / n, n * (double)m->samples_per_step / m->epoch.seconds,
             since);
    m->epoch.n_steps = 0;
    m->epoch.loss_sum = m->epoch.seconds = 0;
}

void metrics_epoch_test(const struct metrics *m, int64_t epoch)
{
    log_info("[Epoch %lld / Test]: Loss = %.5g", (long long)epoch, m->eval_loss);
}
