#include "launch/log_tail.h"

#include "base/fs.h"
#include "launch/rank_status.h"

#include <fcntl.h>
#include <unistd.h>

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

void log_tail_copy(struct log_tail *tail)
{
    char path[4096], buf[16384];
    ssize_t n;
    if (tail->fd < 0) {
        rank_log_path(path, sizeof path, tail->log_dir, 0);
        tail->fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    while (tail->fd >= 0 && (n = pread(tail->fd, buf, sizeof buf, tail->at)) > 0) {
        size_t shown = n_showable(tail, (size_t)n);
        if (shown == 0)
            return;
        int unused = fs_write_exact(STDERR_FILENO, buf, shown);
        (void)unused; // a terminal that is gone does not end the job
        tail->at += (off_t)shown;
    }
}

void log_tail_skip(struct log_tail *tail)
{
    off_t end = tail->fd >= 0 ? lseek(tail->fd, 0, SEEK_END) : 0;
    if (end > tail->at)
        tail->at = end;
}

void log_tail_close(struct log_tail *tail)
{
    if (tail->fd >= 0)
        close(tail->fd);
    tail->fd = -1;
}
