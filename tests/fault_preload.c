// clang-format off
/*
 * Makes system calls fail, for whatever program it is loaded into (LD_PRELOAD):
 *
 *     FAULT_OP      the call: open, openat, pread, read, stat, fstat, rename, fsync,
 *                   write, pwrite, mkdir, unlink, opendir, close, or any but close
 *     FAULT_SUB     only on paths that hold these characters
 *     FAULT_NTH     the first call of these that fails, from 1
 *     FAULT_COUNT   how many fail
 *     FAULT_ERRNO   the number they fail with
 *     FAULT_UNTIL   none fails once there is a file of this name
 *
 * Calls are counted by process. A call on a descriptor is one on the path that
 * /proc/self/fd has for it. Without FAULT_OP nothing fails.
 */
// clang-format on
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long n_calls;

/* The function that this one stands in front of. */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static long number(const char *variable, long otherwise)
{
    const char *text = getenv(variable);
    return text ? strtol(text, NULL, 10) : otherwise;
}

/* Whether this call is one that fails; errno is set then. */
static bool fails(const char *op, const char *path)
{
    const char *wanted = getenv("FAULT_OP"), *part = getenv("FAULT_SUB");
    if (!wanted || !path || (strcmp(wanted, op) != 0 && strcmp(wanted, "any") != 0) ||
        (part && !strstr(path, part)))
        return false;
    long call = atomic_fetch_add(&n_calls, 1) + 1, first = number("FAULT_NTH", 1);
    if (call < first || call >= first + number("FAULT_COUNT", 1))
        return false;
    const char *end = getenv("FAULT_UNTIL");
    if (end && NEXT(access)(end, F_OK) == 0)
        return false;
    errno = (int)number("FAULT_ERRNO", EIO);
    return true;
}

static bool fails_on(const char *op, int fd)
{
    char link[64], path[PATH_MAX];
    if (!getenv("FAULT_OP"))
        return false;
    int saved = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    errno = saved;
    if (n < 0)
        return false;
    path[n] = 0;
    return fails(op, path);
}

#define OPEN(name)                                                                       \
    int name(const char *path, int flags, ...)                                           \
    {                                                                                    \
        va_list args;                                                                    \
        va_start(args, flags);                                                           \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;          \
        va_end(args);                                                                    \
        return fails("open", path) ? -1 : NEXT(name)(path, flags, mode);                 \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                     \
    int name(int dir, const char *path, int flags, ...)                                  \
    {                                                                                    \
        va_list args;                                                                    \
        va_start(args, flags);                                                           \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;          \
        va_end(args);                                                                    \
        return fails("openat", path) ? -1 : NEXT(name)(dir, path, flags, mode);          \
    }
OPENAT(openat)
OPENAT(openat64)

FILE *fopen(const char *path, const char *mode)
{
    return fails("open", path) ? NULL : NEXT(fopen)(path, mode);
}

ssize_t pread(int fd, void *data, size_t n, off_t at)
{
    return fails_on("pread", fd) ? -1 : NEXT(pread)(fd, data, n, at);
}

ssize_t pread64(int fd, void *data, size_t n, off64_t at)
{
    return fails_on("pread", fd) ? -1 : NEXT(pread64)(fd, data, n, at);
}

ssize_t read(int fd, void *data, size_t n)
{
    return fails_on("read", fd) ? -1 : NEXT(read)(fd, data, n);
}

ssize_t write(int fd, const void *data, size_t n)
{
    return fails_on("write", fd) ? -1 : NEXT(write)(fd, data, n);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    return fails_on("pwrite", fd) ? -1 : NEXT(pwrite)(fd, data, n, at);
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at)
{
    return fails_on("pwrite", fd) ? -1 : NEXT(pwrite64)(fd, data, n, at);
}

int fsync(int fd)
{
    return fails_on("fsync", fd) ? -1 : NEXT(fsync)(fd);
}

int stat(const char *restrict path, struct stat *restrict st)
{
    return fails("stat", path) ? -1 : NEXT(stat)(path, st);
}

int lstat(const char *restrict path, struct stat *restrict st)
{
    return fails("stat", path) ? -1 : NEXT(lstat)(path, st);
}

int access(const char *path, int how)
{
    return fails("stat", path) ? -1 : NEXT(access)(path, how);
}

int fstat(int fd, struct stat *st)
{
    return fails_on("fstat", fd) ? -1 : NEXT(fstat)(fd, st);
}

int rename(const char *from, const char *to)
{
    return fails("rename", from) ? -1 : NEXT(rename)(from, to);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return fails("rename", from) ? -1
                                 : NEXT(renameat2)(from_dir, from, to_dir, to, flags);
}

int mkdir(const char *path, mode_t mode)
{
    return fails("mkdir", path) ? -1 : NEXT(mkdir)(path, mode);
}

int unlink(const char *path)
{
    return fails("unlink", path) ? -1 : NEXT(unlink)(path);
}

int remove(const char *path)
{
    return fails("unlink", path) ? -1 : NEXT(remove)(path);
}

DIR *opendir(const char *path)
{
    return fails("opendir", path) ? NULL : NEXT(opendir)(path);
}

/* The descriptor is closed all the same, as on a file system over a network. */
int close(int fd)
{
    const char *wanted = getenv("FAULT_OP");
    bool is_failing = wanted && strcmp(wanted, "close") == 0 && fails_on("close", fd);
    int reason = errno, rc = NEXT(close)(fd);
    if (is_failing)
        errno = reason;
    return is_failing ? -1 : rc;
}
