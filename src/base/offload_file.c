/*
 * Without a name there is nothing to clean up: the kernel frees the space with the last
 * descriptor, also of a process that was killed. A file system that knows no nameless
 * files gets one with a name that is removed at once; a kill in the instant between
 * leaves an empty file.
 */
#include "base/offload_file.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#define MB 1e6

/* -- opening ------------------------------------------------------------------------- */

/* A directory in memory would hold the array in the memory it was to leave. */
static int check_is_on_disk(const struct offload_options *opt, struct error *err)
{
    struct statfs st;
    if (statfs(opt->dir, &st))
        return error_set(err, ERROR_RUNTIME, "cannot use %s '%s': %s", opt->dir_key,
                         opt->dir, strerror(errno));
    if (st.f_type == TMPFS_MAGIC || st.f_type == RAMFS_MAGIC ||
        st.f_type == HUGETLBFS_MAGIC)
        return error_set(err, ERROR_INPUT,
                         "%s '%s' is in memory (a tmpfs or the like), so that what is "
                         "offloaded to it would free none; name a directory on a disk",
                         opt->dir_key, opt->dir);
    return 0;
}

static int refuse_space(const struct offload_options *opt, uint64_t free_bytes,
                        struct error *err)
{
    return error_set(err, ERROR_RUNTIME,
                     "not enough room for %s in %s '%s': %.1f MB are needed and %.1f MB "
                     "are free; free some or name a directory on another disk",
                     opt->what, opt->dir_key, opt->dir, (double)opt->n_bytes / MB,
                     (double)free_bytes / MB);
}

/* What can be refused without touching the disk. Past this the size is known to be that
 * of a possible file, so that it can be rounded up without overflow. */
static int check_space(const struct offload_options *opt, struct error *err)
{
    uint64_t free_bytes;
    struct rlimit most;
    if (fs_free_bytes(opt->dir, &free_bytes, err))
        return -1;
    if (opt->n_bytes > free_bytes || opt->n_bytes > INT64_MAX / 2)
        return refuse_space(opt, free_bytes, err);
    // to exceed it would not only fail but also end the process with a signal
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY &&
        opt->n_bytes + OFFLOAD_FILE_UNIT > most.rlim_cur)
        return error_set(err, ERROR_RUNTIME,
                         "cannot make a file of %.1f MB for %s in %s '%s': files are "
                         "limited to %.1f MB; raise the limit (ulimit -f)",
                         (double)opt->n_bytes / MB, opt->what, opt->dir_key, opt->dir,
                         (double)most.rlim_cur / MB);
    return 0;
}

static int make_nameless(const struct offload_options *opt, int *fd, struct error *err)
{
    char path[PATH_MAX];
    *fd = open(opt->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (*fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
        if (fs_join(path, sizeof path, opt->dir, ".trefoil-offload-XXXXXX", err))
            return -1;
        *fd = mkostemp(path, O_CLOEXEC);
        if (*fd >= 0)
            unlink(path);
    }
    if (*fd < 0)
        return error_set(err, ERROR_RUNTIME, "cannot make a file for %s in %s '%s': %s",
                         opt->what, opt->dir_key, opt->dir, strerror(errno));
    return 0;
}

/* Closes the file when there is no space, before asking how much there is: part of the
 * space may already be in it. */
static int reserve_space(struct offload_file *f, const struct offload_options *opt,
                         struct error *err)
{
    int failure;
    uint64_t free_bytes;
    do {
        failure = posix_fallocate(f->fd, 0, (off_t)f->n_bytes);
    } while (failure == EINTR);
    if (failure == 0)
        return 0;
    offload_file_close(f);
    if ((failure == ENOSPC || failure == EDQUOT) &&
        fs_free_bytes(opt->dir, &free_bytes, err) == 0)
        return refuse_space(opt, free_bytes, err);
    return error_set(err, ERROR_RUNTIME, "cannot reserve %.1f MB for %s in %s '%s': %s",
                     (double)f->n_bytes / MB, opt->what, opt->dir_key, opt->dir,
                     strerror(failure));
}

/* Some file systems refuse the flag, others each read: so one read is tried. */
static bool try_direct(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT))
        return false;
    void *probe = mmap(NULL, OFFLOAD_FILE_UNIT, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool works =
        probe != MAP_FAILED && fs_pread_exact(fd, probe, OFFLOAD_FILE_UNIT, 0) == 0;
    if (probe != MAP_FAILED)
        munmap(probe, OFFLOAD_FILE_UNIT);
    if (!works)
        fcntl(fd, F_SETFL, flags);
    return works;
}

int offload_file_open(struct offload_file *f, const struct offload_options *opt,
                      struct error *err)
{
    *f = (struct offload_file){.fd = -1};
    if (check_is_on_disk(opt, err) || check_space(opt, err))
        return -1;
    f->n_bytes = (size_t)i64_round_up((int64_t)opt->n_bytes, (int64_t)OFFLOAD_FILE_UNIT);
    if (f->n_bytes == 0)
        return 0;
    if (make_nameless(opt, &f->fd, err) || reserve_space(f, opt, err))
        return -1;
    f->is_direct = !opt->is_cached && try_direct(f->fd);
    if (!f->is_direct) // the kernel's own read-ahead would fill the cache with the next
        posix_fadvise(f->fd, 0, 0, POSIX_FADV_RANDOM);
    return 0;
}

void offload_file_close(struct offload_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

/* -- moving -------------------------------------------------------------------------- */

int offload_file_read(const struct offload_file *f, void *data, size_t n, size_t at)
{
    if (fs_pread_exact(f->fd, data, n, (off_t)at))
        return -1;
    if (!f->is_direct)
        posix_fadvise(f->fd, (off_t)at, (off_t)n, POSIX_FADV_DONTNEED);
    return 0;
}

int offload_file_write(const struct offload_file *f, const void *data, size_t n,
                       size_t at)
{
    if (fs_pwrite_exact(f->fd, data, n, (off_t)at))
        return -1;
    if (f->is_direct)
        return 0;
    // the cache drops only what is written; waiting also reveals disk errors
    if (sync_file_range(f->fd, (off_t)at, (off_t)n,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                            SYNC_FILE_RANGE_WAIT_AFTER) &&
        (errno != ENOSYS || fdatasync(f->fd)))
        return -1;
    posix_fadvise(f->fd, (off_t)at, (off_t)n, POSIX_FADV_DONTNEED);
    return 0;
}
