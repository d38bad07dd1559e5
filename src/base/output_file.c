#include "base/output_file.h"

#include "base/clock.h"
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static bool is_link(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

/* The descriptor that /dev/stdout, /dev/fd/2 and the like stand for; -1: `path` is not
 * one of them. Opening the path instead would begin a second time at the start of a file.
 */
static int standard_descriptor(const char *path)
{
    struct stat named, open_one;
    if (!is_link(path) || stat(path, &named))
        return -1;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
        if (fstat(fd, &open_one) == 0 && open_one.st_dev == named.st_dev &&
            open_one.st_ino == named.st_ino)
            return fd;
    return -1;
}

bool output_file_is_stream(const char *path)
{
    struct stat st;
    if (standard_descriptor(path) >= 0)
        return true;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

/* Without waiting for ever, as for the reader of a pipe; -1 with errno. */
static int open_stream(const char *path)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    double end = clock_seconds() + OUTPUT_FILE_READER_SECONDS;
    int fd;
    while ((fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) < 0 &&
           errno == ENXIO && clock_seconds() < end)
        nanosleep(&pause, NULL);
    int flags = fd >= 0 ? fcntl(fd, F_GETFL) : -1;
    if (flags >= 0)
        fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    return fd;
}

static int write_and_close(int fd, const char *path, const void *data, size_t n,
                           struct error *err)
{
    int rc = fs_write_exact(fd, data, n);
    if (rc)
        error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", path, strerror(errno));
    if (close(fd) && rc == 0)
        rc =
            error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", path, strerror(errno));
    return rc;
}

static int write_stream(const char *path, const void *data, size_t n, struct error *err)
{
    int standard = standard_descriptor(path);
    fflush(stdout); // what was printed before comes before
    int fd = standard >= 0 ? dup(standard) : open_stream(path);
    if (fd < 0)
        return error_set(err, ERROR_RUNTIME, "cannot open '%s': %s", path,
                         errno == ENXIO ? "nobody reads from it" : strerror(errno));
    return write_and_close(fd, path, data, n, err);
}

/* A signal that ends the process comes before or after: no half of a file is left. */
static int replace(const char *path, const void *data, size_t n, struct error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = fs_write_atomic(path, data, n, err);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

/* Where a link leads there may be nothing yet. */
static int write_through_link(const char *path, const void *data, size_t n,
                              struct error *err)
{
    char target[PATH_MAX];
    if (realpath(path, target))
        return replace(target, data, n, err);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return error_set(err, ERROR_RUNTIME, "cannot create '%s': %s", path,
                         strerror(errno));
    return write_and_close(fd, path, data, n, err);
}

int output_file_write(const char *path, const void *data, size_t n, struct error *err)
{
    if (output_file_is_stream(path))
        return write_stream(path, data, n, err);
    if (is_link(path))
        return write_through_link(path, data, n, err);
    return replace(path, data, n, err);
}
