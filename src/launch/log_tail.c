#include "launch/log_tail.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/log_view.h"
#include "launch/rank_status.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COPY_BYTES ((size_t)16384)

_Static_assert(sizeof((struct log_tail *)0)->progress == RANK_PROGRESS_BYTES,
               "what rank 0 writes is what is read");

void log_tail_open(struct log_tail *tail, const char *log_dir)
{
    char path[4096];
    *tail = (struct log_tail){.log_dir = log_dir, .fd = -1, .progress_fd = -1};
    rank_progress_path(path, sizeof path, log_dir);
    unlink(path); // of one that was killed
    if (log_is_terminal())
        tail->progress_fd =
            open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
}

/* Lines push the progress out of the way, so it is shown again after them. */
static void show_progress(struct log_tail *tail, bool has_lines)
{
    char text[RANK_PROGRESS_BYTES];
    if (tail->progress_fd < 0 ||
        pread(tail->progress_fd, text, sizeof text, 0) != sizeof text)
        return;
    text[sizeof text - 1] = 0;
    if (!has_lines && strcmp(text, tail->progress) == 0)
        return;
    memcpy(tail->progress, text, sizeof text);
    log_status("%s", text);
}

/* How much of n bytes at `at` may be shown. Asked after the bytes were read: a rank
 * records where its failure begins before it writes it. */
static size_t n_showable(const struct log_tail *tail, size_t n)
{
    struct rank_status status;
    if (!rank_status_read(tail->log_dir, 0, &status) || status.state != RANK_FAILED)
        return n;
    int64_t left = status.log_bytes - (int64_t)tail->at;
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

void log_tail_copy(struct log_tail *tail)
{
    char path[4096], buf[COPY_BYTES];
    struct log_view view = log_view_of(STDERR_FILENO);
    bool has_lines = false;
    ssize_t n;
    if (tail->fd < 0) {
        rank_log_path(path, sizeof path, tail->log_dir, 0);
        tail->fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    while (tail->fd >= 0 && (n = pread(tail->fd, buf, sizeof buf, tail->at)) > 0) {
        size_t shown = n_showable(tail, (size_t)n);
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
    show_progress(tail, has_lines);
}

void log_tail_show(struct log_tail *tail, const char *line)
{
    struct log_view view = log_view_of(STDERR_FILENO);
    size_t n = strlen(line);
    char *shown = malloc(n + LOG_VIEW_MORE_BYTES);
    log_status_clear();
    if (tail->is_in_line)
        put("\n", 1);
    if (shown)
        put(shown, log_view_line(&view, line, n, shown));
    else
        put(line, n);
    free(shown);
    tail->is_in_line = false;
}

void log_tail_skip(struct log_tail *tail)
{
    off_t end = tail->fd >= 0 ? lseek(tail->fd, 0, SEEK_END) : 0;
    if (end > tail->at)
        tail->at = end;
}

void log_tail_close(struct log_tail *tail)
{
    char path[4096];
    if (tail->progress_fd >= 0) {
        log_status_clear();
        rank_progress_path(path, sizeof path, tail->log_dir);
        unlink(path);
        close(tail->progress_fd);
        tail->progress_fd = -1;
    }
    if (tail->fd >= 0)
        close(tail->fd);
    tail->fd = -1;
}
