#include "data/formats/out_file.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUF_BYTES (1 << 18)

/* Hold the temporary file for ourselves and empty it. A process that finished between our
 * open and our lock has renamed it: then what we hold is its result, not a left-over. */
static int lock_and_empty(struct out_file *f, struct error *err)
{
    bool is_held = flock(f->fd, LOCK_EX | LOCK_NB) == 0;
    int is_same = is_held ? fs_is_same_file(f->tmp_path, f->fd) : 0;
    if (is_same < 0 || (!is_held && errno != EWOULDBLOCK))
        return error_set(err, ERROR_RUNTIME, "cannot lock '%s': %s", f->tmp_path,
                         strerror(errno));
    if (!is_same)
        return error_set(err, ERROR_RUNTIME,
                         "'%s' is being written by another process; wait for it or "
                         "choose another output",
                         f->tmp_path);
    if (ftruncate(f->fd, 0))
        return error_set(err, ERROR_RUNTIME, "cannot empty '%s': %s", f->tmp_path,
                         strerror(errno));
    return 0;
}

/* A link stays a link: the file that it names is replaced. Out of memory: NULL. */
static int name_files(struct out_file *f, const char *prefix, const char *suffix,
                      struct error *err)
{
    char path[PATH_MAX], target[PATH_MAX];
    if (snprintf(path, sizeof path, "%s%s", prefix, suffix) >= (int)sizeof path)
        return error_set(err, ERROR_INPUT, "path too long: '%.200s...'", prefix);
    if (fs_is_stream(path))
        return error_set(err, ERROR_INPUT,
                         "cannot replace '%s': it is not a file; remove it or choose "
                         "another output",
                         path);
    f->path = strdup(realpath(path, target) ? target : path);
    if (!f->path || asprintf(&f->tmp_path, "%s.tmp", f->path) < 0)
        f->tmp_path = NULL;
    return 0;
}

/* Open the temporary file, a left-over or a new one. What is no file of its own name
 * alone, a link of either kind, was not left by us: it goes, and what it leads to is not
 * touched. */
static int open_temporary(const char *path)
{
    const int flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
    struct stat st;
    int fd = open(path, flags | O_CREAT, 0644);
    bool is_ours =
        fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink <= 1;
    if (is_ours || (fd < 0 && errno != ELOOP && errno != ENXIO))
        return fd;
    if (fd >= 0)
        close(fd);
    return fs_create(path, O_RDWR, 0644);
}

int out_file_open(struct out_file *f, const char *prefix, const char *suffix,
                  struct error *err)
{
    int rc = -1;
    *f = (struct out_file){.fd = -1};
    f->buf = malloc(BUF_BYTES);
    if (name_files(f, prefix, suffix, err))
        goto done;
    if (!f->buf || !f->path || !f->tmp_path) {
        error_set(err, ERROR_RUNTIME, "out of memory");
        goto done;
    }
    f->fd = open_temporary(f->tmp_path);
    if (f->fd < 0) {
        error_set(err, ERROR_RUNTIME, "cannot create '%s': %s", f->tmp_path,
                  strerror(errno));
        goto done;
    }
    if (lock_and_empty(f, err)) {
        close(f->fd); // it is not ours: leave it
        f->fd = -1;
        goto done;
    }
    rc = 0;
done:
    if (rc)
        out_file_close(f);
    return rc;
}

int out_file_flush(struct out_file *f, struct error *err)
{
    if (fs_pwrite_exact(f->fd, f->buf, f->used, (off_t)(f->n_bytes - f->used)))
        return error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", f->tmp_path,
                         strerror(errno));
    f->used = 0;
    return 0;
}

int out_file_write(struct out_file *f, const void *data, size_t n, struct error *err)
{
    const uint8_t *from = data;
    while (n > 0) {
        size_t n_now = BUF_BYTES - f->used < n ? BUF_BYTES - f->used : n;
        memcpy(f->buf + f->used, from, n_now);
        f->used += n_now;
        f->n_bytes += n_now;
        from += n_now;
        n -= n_now;
        if (f->used == BUF_BYTES && out_file_flush(f, err))
            return -1;
    }
    return 0;
}

int out_file_sync(struct out_file *f, struct error *err)
{
    if (out_file_flush(f, err))
        return -1;
    if (fsync(f->fd))
        return error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", f->tmp_path,
                         strerror(errno));
    return 0;
}

int out_file_commit(struct out_file *f, struct error *err)
{
    if (out_file_sync(f, err) || fs_rename(f->tmp_path, f->path, err))
        return -1;
    close(f->fd);
    f->fd = -1;
    return 0;
}

void out_file_close(struct out_file *f)
{
    if (f->tmp_path && f->fd >= 0) {
        unlink(f->tmp_path);
        close(f->fd);
    }
    free(f->path);
    free(f->tmp_path);
    free(f->buf);
    *f = (struct out_file){.fd = -1};
}
