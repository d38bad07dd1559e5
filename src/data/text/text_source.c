#include "data/text/text_source.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define WAIT_MILLISECONDS 100
#define WRITER_SECONDS 60.0   // a named pipe is waited for
#define WRITER_TOLD_SECONDS 1 // before it is said to be

const char *text_source_name(const char *path)
{
    return strcmp(path, TEXT_STANDARD_INPUT) == 0 ? "standard input" : path;
}

static bool is_null_device(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 3);
}

/* A terminal ends when its user says so, and the null device at once; no other does. */
static int refuse_device(const struct text_source *s, const struct stat *st,
                         struct error *err)
{
    if (S_ISBLK(st->st_mode) ||
        (S_ISCHR(st->st_mode) && !is_null_device(st) && !isatty(s->fd)))
        return error_set(err, ERROR_INPUT, "'%s' is a device, not a file of text",
                         s->name);
    return 0;
}

int text_source_open(struct text_source *s, const char *path,
                     const struct text_watch *watch, struct error *err)
{
    struct stat st;
    bool is_standard = strcmp(path, TEXT_STANDARD_INPUT) == 0;
    *s = (struct text_source){
        .name = text_source_name(path), .watch = *watch, .open_seconds = clock_seconds()};
    if (!(s->watch.writer_seconds > 0))
        s->watch.writer_seconds = WRITER_SECONDS;
    // without waiting: a named pipe that nobody writes to must not hold up the watch
    s->fd = is_standard ? STDIN_FILENO
                        : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (s->fd < 0 || fstat(s->fd, &st))
        return error_set(err, ERROR_INPUT, "cannot open '%s': %s", s->name,
                         strerror(errno));
    s->is_waiting_for_writer = S_ISFIFO(st.st_mode) && !is_standard;
    return refuse_device(s, &st, err);
}

/* Nobody has opened the named pipe for writing yet. */
static int wait_for_writer(struct text_source *s, struct error *err)
{
    double waited = clock_seconds() - s->open_seconds;
    if (waited >= s->watch.writer_seconds)
        return error_set(err, ERROR_INPUT,
                         "nobody has opened the named pipe '%s' for writing in %.0f s; "
                         "start what writes to it first",
                         s->name, waited);
    if (waited >= WRITER_TOLD_SECONDS && !s->has_told) {
        s->has_told = true;
        log_info("waiting for a writer of the named pipe '%s', for %.0f s at most",
                 s->name, s->watch.writer_seconds);
    }
    return 0;
}

int text_source_read(struct text_source *s, void *buf, size_t size, size_t *n,
                     struct error *err)
{
    struct pollfd polled = {.fd = s->fd, .events = POLLIN};
    for (;;) {
        if (s->watch.tick && s->watch.tick(s->watch.context, err))
            return -1;
        int n_ready = poll(&polled, 1, WAIT_MILLISECONDS);
        if (n_ready < 0 && errno == EINTR)
            continue; // tick() learns whether that asks us to stop
        bool is_ready = n_ready != 0;
        if (!is_ready && !s->is_waiting_for_writer)
            continue;
        ssize_t got = read(s->fd, buf, size);
        if (got == 0 && !is_ready) { // a writer that is silent would read as EAGAIN
            if (wait_for_writer(s, err))
                return -1;
        } else if (got >= 0) {
            *n = (size_t)got;
            s->n_bytes += got;
            s->is_at_end = got == 0;
            s->is_waiting_for_writer = false;
            return 0;
        } else if (errno != EINTR && errno != EAGAIN) {
            return error_set(err, fs_error_kind(errno), "cannot read '%s': %s", s->name,
                             strerror(errno));
        } else if (errno == EAGAIN) {
            s->is_waiting_for_writer = false;
        }
    }
}

void text_source_close(struct text_source *s)
{
    if (s->fd > STDERR_FILENO)
        close(s->fd);
    s->fd = -1;
}
