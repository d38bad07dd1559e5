#include "board/run.h"

#include "base/clock.h"
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* -- the run ------------------------------------------------------------------------- */

static void set_name(struct run *run)
{
    const char *end = run->dir + strlen(run->dir);
    while (end > run->dir + 1 && end[-1] == '/')
        end--;
    const char *start = end;
    while (start > run->dir && start[-1] != '/')
        start--;
    snprintf(run->name, sizeof run->name, "%.*s", (int)(end - start), start);
    if (!run->name[0] || strcmp(run->name, ".") == 0)
        snprintf(run->name, sizeof run->name, "%.255s", run->dir);
}

void run_init(struct run *run, const char *dir)
{
    *run = (struct run){
        .steps = {.first = RUN_N_AXES, .n_floats = RUN_N_STEP_COLUMNS - RUN_N_AXES},
        .evals = {.first = RUN_EVAL_LOSS, .n_floats = 1},
        .line_step = RUN_NONE};
    snprintf(run->dir, sizeof run->dir, "%s", dir);
    set_name(run);
    run_events_init(&run->events);
}

void run_release(struct run *run)
{
    run_columns_release(&run->steps);
    run_columns_release(&run->evals);
    run_events_release(&run->events);
    run_config_release(&run->config);
    board_text_release(&run->traced.drawing);
}

bool run_is_directory(const char *dir)
{
    static const char *const names[] = {RUN_FILE_NAME, RUN_CONFIG_NAME, CKPT_LOCK_NAME};
    char path[PATH_MAX];
    struct error ignored;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (fs_join(path, sizeof path, dir, names[i], &ignored) == 0 && fs_exists(path))
            return true;
    return false;
}

/* -- lines --------------------------------------------------------------------------- */

/* A run of an older version, or a line without its tokens: by the tokens of a step. */
static void fill_tokens(const struct run *run, struct run_values *values)
{
    double each = run_start_number(&run->events, "tokens_per_step");
    if (isnan(each))
        each = run_config_number(&run->config, "batch_size.global_batch_size") *
               run_config_number(&run->config, "dataset.max_seq_len");
    if (isnan(values->at[RUN_TOKENS]))
        values->at[RUN_TOKENS] = values->at[RUN_STEP] * each;
}

/* What an evaluation does not say itself: it happened at the last logged step. */
static void fill_axes(const struct run *run, struct run_values *values)
{
    int64_t n = run->steps.n_rows;
    for (int i = RUN_TOKENS; n > 0 && i < RUN_N_AXES; i++)
        if (isnan(values->at[i]))
            values->at[i] = run_columns_at(&run->steps, n - 1, (enum run_column)i);
}

static void skip_line(struct run_file *file, int64_t *count)
{
    ++*count;
    if (file->first_skipped == 0)
        file->first_skipped = file->n_lines;
}

/* A start says from which step it goes on: later ones of before are not its own. */
static void cut_at_start(struct run *run, const json_t *start_before, double step)
{
    if (run->events.start == start_before || !(step >= 0))
        return;
    run_columns_cut(&run->steps, step + 1);
    run_columns_cut(&run->evals, step + 1);
}

static void take_line(struct run *run, const char *line, size_t n)
{
    struct run_values values;
    struct run_file *file = &run->file;
    int rc = 0;
    file->n_lines++;
    enum run_line kind = run_scan_line(&run->scan, line, n, &values);
    const json_t *start = run->events.start;
    switch (kind) {
    case RUN_LINE_STEP:
        fill_tokens(run, &values);
        run_columns_cut(&run->evals, values.at[RUN_STEP]);
        rc = run_columns_add(&run->steps, &values);
        break;
    case RUN_LINE_EVAL:
        fill_axes(run, &values);
        rc = run_columns_add(&run->evals, &values);
        break;
    case RUN_LINE_EVENT:
        if (!run_events_add(&run->events, line, n))
            skip_line(file, &file->n_bad);
        cut_at_start(run, start, values.at[RUN_STEP]);
        break;
    case RUN_LINE_BAD:
        skip_line(file, &file->n_bad);
        return;
    case RUN_LINE_OTHER:
        break;
    }
    run->is_out_of_memory = run->is_out_of_memory || rc != 0;
    if (isfinite(values.at[RUN_TIME]))
        run->last_time = values.at[RUN_TIME];
    if (isfinite(values.at[RUN_STEP]))
        run->line_step = values.at[RUN_STEP];
}

/* -- the file ------------------------------------------------------------------------ */

static void forget(struct run *run)
{
    run_columns_reset(&run->steps);
    run_columns_reset(&run->evals);
    run_events_release(&run->events);
    run->file = (struct run_file){0};
    run->last_time = 0;
    run->line_step = RUN_NONE;
    run->is_out_of_memory = false;
}

static void remember_end(struct run_file *file, const char *end, int64_t n)
{
    file->n_before = i64_min(n, (int64_t)sizeof file->before);
    memcpy(file->before, end - file->n_before, (size_t)file->n_before);
}

/* Whether the file still holds what was read last: it may have been rewritten in place. */
static bool is_same_text(const struct run_file *file, int fd)
{
    char now[sizeof file->before];
    size_t n = (size_t)file->n_before;
    return n == 0 || (fs_pread_exact(fd, now, n, file->offset - (int64_t)n) == 0 &&
                      memcmp(now, file->before, n) == 0);
}

/* Take in the lines of the n bytes at file->offset; the number of bytes that are done
 * with. `is_full`: the buffer has no room for more of a line. */
static int64_t take_lines(struct run *run, const char *bytes, int64_t n, bool is_full)
{
    struct run_file *file = &run->file;
    const char *line = bytes, *stop = bytes + n, *end;
    while ((end = memchr(line, '\n', (size_t)(stop - line)))) {
        if (file->is_skipping || end - line > RUN_LINE_BYTES_MOST) {
            file->n_lines++;
            skip_line(file, &file->n_long);
        } else if (end > line) {
            take_line(run, line, (size_t)(end - line));
        } else {
            file->n_lines++; // blank
        }
        file->is_skipping = false;
        line = end + 1;
    }
    if (line < stop && (file->is_skipping || (is_full && line == bytes))) {
        file->is_skipping = true;
        line = stop;
    }
    return line - bytes;
}

static bool read_more(struct run *run, int fd, char *buffer, size_t buffer_bytes,
                      int64_t n_most)
{
    struct run_file *file = &run->file;
    for (int64_t n_read = 0; file->offset < file->n_bytes;) {
        if (n_read >= n_most)
            return true;
        ssize_t n;
        do
            n = pread(fd, buffer, buffer_bytes, file->offset);
        while (n < 0 && errno == EINTR);
        if (n < 0) {
            file->is_broken = true;
            snprintf(file->problem, sizeof file->problem,
                     RUN_FILE_NAME " cannot be read: %s", strerror(errno));
        }
        if (n <= 0)
            return false;
        int64_t n_done = take_lines(run, buffer, n, (size_t)n == buffer_bytes);
        file->is_partial = n_done == 0;
        if (n_done == 0)
            return false;
        remember_end(file, buffer + n_done, n_done);
        file->offset += n_done;
        n_read += n_done;
        run->version++;
    }
    return false;
}

static void set_problem(struct run *run, const char *problem)
{
    if (!run->file.is_broken || strcmp(run->file.problem, problem) != 0)
        run->version++;
    run->file.is_broken = true;
    snprintf(run->file.problem, sizeof run->file.problem, "%s", problem);
}

static bool refresh_file(struct run *run, char *buffer, size_t buffer_bytes,
                         int64_t n_most)
{
    char path[PATH_MAX], problem[256];
    struct run_file *file = &run->file;
    struct error err;
    struct stat now;
    if (fs_join(path, sizeof path, run->dir, RUN_FILE_NAME, &err) || lstat(path, &now)) {
        if (file->n_bytes > 0) { // it was removed: a fresh run begins
            forget(run);
            run->version++;
        }
        return false;
    }
    if (!S_ISREG(now.st_mode)) {
        set_problem(run, RUN_FILE_NAME " is no file: it is left alone");
        return false;
    }
    int64_t changed_ns = (int64_t)now.st_mtim.tv_sec * 1000000000 + now.st_mtim.tv_nsec;
    bool is_same = now.st_ino == file->inode && now.st_dev == file->device;
    if (is_same && now.st_size == file->n_bytes && changed_ns == file->changed_ns &&
        (file->offset >= file->n_bytes || file->is_partial || file->is_broken))
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        snprintf(problem, sizeof problem, RUN_FILE_NAME " cannot be opened: %s",
                 strerror(errno));
        set_problem(run, problem);
        return false;
    }
    if (!is_same || now.st_size < file->offset || !is_same_text(file, fd)) {
        forget(run);
        run->version++;
    }
    file->is_broken = file->is_partial = false;
    file->inode = now.st_ino;
    file->device = now.st_dev;
    file->n_bytes = now.st_size;
    file->changed_ns = changed_ns;
    bool has_more = read_more(run, fd, buffer, buffer_bytes, n_most);
    close(fd);
    if (run->last_time <= 0 && run->file.n_lines > 0)
        run->last_time = (double)now.st_mtim.tv_sec;
    return has_more;
}

bool run_refresh(struct run *run, char *buffer, size_t buffer_bytes, int64_t n_most)
{
    struct ckpt_lock_view lock;
    CHECK(buffer_bytes >= RUN_LINE_BYTES_MOST, "a buffer of %zu bytes", buffer_bytes);
    if (run_config_refresh(&run->config, run->dir))
        run->version++;
    ckpt_lock_look(run->dir, &lock);
    if (lock.beat != run->lock.beat || lock.pid != run->lock.pid)
        run->beat_changed = clock_seconds();
    if (lock.state != run->lock.state || lock.pid != run->lock.pid)
        run->version++;
    run->lock = lock;
    return refresh_file(run, buffer, buffer_bytes, n_most);
}
