#include "launch/log_tail.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/log_view.h"
#include "launch/worker.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COPY_BYTES ((size_t)16384)

/* Lines push the progress out of the way, so it is shown again after them. */
static void show_progress(struct log_tail *tail, const struct beat_file *file,
                          bool has_lines)
{
    unsigned n_shown = atomic_load(&file->n_shown);
    if (n_shown == 0 || n_shown % 2 != 0 || (n_shown == tail->n_shown && !has_lines))
        return;
    tail->n_shown = n_shown;
    log_status("%.*s", BEAT_PROGRESS_BYTES - 1, file->progress);
}

/* How much of n bytes may be shown. Asked after the bytes were read: a rank records where
 * its failure begins before it writes it. */
static size_t n_showable(const struct log_tail *tail, const struct beat_slot *slot,
                         size_t n)
{
    if (atomic_load(&slot->state) != BEAT_FAILED)
        return n;
    int64_t left = atomic_load(&slot->log_bytes) - (int64_t)tail->at;
    return left < 0 ? 0 : (size_t)i64_min(left, (int64_t)n);
}

static void put(const char *text, size_t n)
{
    int unused = fs_write_exact(STDERR_FILENO, text, n);
    (void)unused; // a terminal that is gone does not end the job
}

/* Show the whole lines among n bytes as on the terminal of one process; how many bytes
 * they are. A line that is longer than all that is looked at is shown as it is. */
static size_t show_lines(const struct log_view *view, const char *text, size_t n)
{
    char shown[COPY_BYTES + LOG_VIEW_MORE_BYTES];
    size_t at = 0;
    for (const char *end; (end = memchr(text + at, '\n', n - at));) {
        size_t n_line = (size_t)(end + 1 - (text + at));
        put(shown, log_view_line(view, text + at, n_line, shown));
        at += n_line;
    }
    if (at == 0 && n == COPY_BYTES) {
        put(text, n);
        at = n;
    }
    return at;
}

void log_tail_copy(struct log_tail *tail, const struct beat_file *file)
{
    char path[4096], buf[COPY_BYTES];
    struct log_view view = log_view_of(STDERR_FILENO);
    bool has_lines = false;
    ssize_t n;
    if (tail->fd < 0) {
        worker_log_path(path, sizeof path, tail->log_dir, 0);
        tail->fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    while (tail->fd >= 0 && (n = pread(tail->fd, buf, sizeof buf, tail->at)) > 0) {
        size_t shown = n_showable(tail, &file->slots[0], (size_t)n);
        if (shown == 0)
            return;
        log_status_clear();
        has_lines = true;
        if (view.is_terminal)
            shown = show_lines(&view, buf, shown);
        else
            put(buf, shown);
        tail->is_in_line = shown > 0 && buf[shown - 1] != '\n';
        if (shown == 0)
            return; // the rest of the line is to come
        tail->at += (off_t)shown;
    }
    show_progress(tail, file, has_lines);
}

void log_tail_show(struct log_tail *tail, const char *line)
{
    struct log_view view = log_view_of(STDERR_FILENO);
    char shown[COPY_BYTES + LOG_VIEW_MORE_BYTES];
    size_t n = strnlen(line, COPY_BYTES);
    log_status_clear();
    if (tail->is_in_line)
        put("\n", 1);
    put(shown, log_view_line(&view, line, n, shown));
    tail->is_in_line = false;
}

void log_tail_skip(struct log_tail *tail)
{
    off_t end = tail->fd >= 0 ? lseek(tail->fd, 0, SEEK_END) : 0;
    tail->at = end > tail->at ? end : tail->at;
}

void log_tail_close(struct log_tail *tail)
{
    log_status_clear();
    if (tail->fd >= 0)
        close(tail->fd);
    tail->fd = -1;
}
