/*
 * The order of a safe replacement is: write a sibling, fsync it, rename it over, fsync
 * the directory. The last step is what makes the rename itself survive power loss.
 */
#include "base/fs.h"

#include "base/beat.h"
#include "base/clock.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

int fs_write_exact(int fd, const void *data, size_t n)
{
    const char *p = data;
    while (n > 0) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -1;
        p += done;
        n -= (size_t)done;
    }
    return 0;
}

int fs_pwrite_exact(int fd, const void *data, size_t n, off_t offset)
{
    const char *p = data;
    while (n > 0) {
        ssize_t done = pwrite(fd, p, n, offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -1;
        p += done;
        n -= (size_t)done;
        offset += done;
    }
    return 0;
}

/* ENODATA is the end of a file here. A disk that cannot read a sector says it too, where
 * nothing stands between us and it: that is an error of the disk. */
static int short_read_errno(ssize_t done)
{
    if (done == 0)
        return ENODATA;
    return errno == ENODATA ? EIO : errno;
}

int fs_pread_exact(int fd, void *data, size_t n, off_t offset)
{
    char *p = data;
    while (n > 0) {
        ssize_t done = pread(fd, p, n, offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            errno = short_read_errno(done);
        if (done <= 0)
            return -1;
        p += done;
        n -= (size_t)done;
        offset += done;
    }
    return 0;
}

void *fs_pread_direct(int fd, void *buffer, size_t n, off_t offset)
{
    size_t skip = (size_t)offset % FS_DIRECT_UNIT, have = 0;
    off_t begin = offset - (off_t)skip;
    while (have < skip + n) {
        // a count that is no whole unit is the end of the file
        size_t rest = skip + n - have;
        size_t ask = (rest + FS_DIRECT_UNIT - 1) / FS_DIRECT_UNIT * FS_DIRECT_UNIT;
        ssize_t done = pread(fd, (char *)buffer + have, ask, begin + (off_t)have);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0) {
            errno = short_read_errno(done);
            return NULL;
        }
        have += (size_t)done;
        if (have < skip + n && (done == 0 || (size_t)done % FS_DIRECT_UNIT)) {
            errno = ENODATA;
            return NULL;
        }
    }
    return (char *)buffer + skip;
}

bool fs_is_cached(int fd)
{
    enum { SAMPLES = 256 };
    const int64_t page = sysconf(_SC_PAGESIZE);
    struct stat st;
    int n_cached = 0;
    if (fstat(fd, &st) || st.st_size == 0)
        return false;
    char *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return false;
    int64_t n_pages = (st.st_size + page - 1) / page;
    for (int64_t i = 0; i < SAMPLES; i++) {
        unsigned char is_in = 0;
        char *sample = map + i * n_pages / SAMPLES * page;
        n_cached += mincore(sample, (size_t)page, &is_in) == 0 && (is_in & 1);
    }
    munmap(map, (size_t)st.st_size);
    return n_cached > SAMPLES / 2;
}

/* Until a pipe has bytes or has lost its last writer; -1 with ETIME after `seconds`. */
static int wait_for_bytes(int fd, double seconds)
{
    enum { TICK_MS = 100 };
    static const double quiet_seconds = 2;
    double begin = clock_seconds();
    bool is_reported = false;
    for (;;) {
        double waited = clock_seconds() - begin;
        if (poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, TICK_MS) > 0)
            return 0;
        if (waited >= seconds) {
            errno = ETIME;
            return -1;
        }
        if (waited >= quiet_seconds && !is_reported) {
            log_info("waiting for a writer of a named pipe, for %.0f s at most", seconds);
            is_reported = true;
        }
    }
}

/* Read until the end of file: pipes and /dev/stdin have no size to ask for. */
static int read_until_end(int fd, size_t max_bytes, double pipe_seconds, char **data,
                          size_t *n)
{
    size_t capacity = 65536, used = 0;
    char *buf = malloc(capacity);
    while (buf) {
        if (pipe_seconds > 0 && wait_for_bytes(fd, pipe_seconds))
            break;
        ssize_t got = read(fd, buf + used, capacity - used - 1);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got < 0)
            break;
        used += (size_t)got;
        if (used > max_bytes) {
            errno = EFBIG;
            break;
        }
        if (got == 0) {
            buf[used] = 0;
            *data = buf;
            *n = used;
            return 0;
        }
        if (used + 1 == capacity) {
            char *larger = realloc(buf, capacity * 2);
            if (!larger)
                break;
            capacity *= 2;
            buf = larger;
        }
    }
    free(buf);
    return -1;
}

enum error_kind fs_error_kind(int reason)
{
    static const int of_path[] = {ENOENT, ENOTDIR, EISDIR, ELOOP,  ENAMETOOLONG,
                                  ENXIO,  ENODEV,  EFBIG,  ENODATA};
    for (size_t i = 0; i < ARRAY_LEN(of_path); i++)
        if (reason == of_path[i])
            return ERROR_INPUT;
    return ERROR_RUNTIME;
}

int fs_read_all_within(const char *path, size_t max_bytes, double seconds, char **data,
                       size_t *n, struct error *err)
{
    struct stat st = {.st_mode = 0};
    int rc = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe may have no writer
    if (fd < 0)
        return error_set(err, fs_error_kind(errno), "cannot open '%s': %s", path,
                         strerror(errno));
    bool is_known = fstat(fd, &st) == 0, is_pipe = is_known && S_ISFIFO(st.st_mode);
    if (is_known && S_ISDIR(st.st_mode)) {
        error_set(err, ERROR_INPUT, "cannot read '%s': it is a directory", path);
        goto done;
    }
    if (S_ISREG(st.st_mode) && (uint64_t)st.st_size > max_bytes) {
        error_set(err, ERROR_INPUT, "cannot read '%s': it has %lld bytes, more than %zu",
                  path, (long long)st.st_size, max_bytes);
        goto done;
    }
    if (!is_pipe)
        fcntl(fd, F_SETFL, 0); // a terminal or another device is waited for
    if (read_until_end(fd, max_bytes, is_pipe ? seconds : 0, data, n)) {
        if (errno == ETIME)
            error_set(
                err, ERROR_INPUT,
                "nothing was written to the pipe '%s' in %.0f s; start what writes to "
                "it first",
                path, seconds);
        else
            error_set(err, fs_error_kind(errno), "cannot read '%s': %s", path,
                      errno == EFBIG ? "it is too large" : strerror(errno));
        goto done;
    }
    rc = 0;
done:
    close(fd);
    return rc;
}

int fs_read_all(const char *path, size_t max_bytes, char **data, size_t *n,
                struct error *err)
{
    return fs_read_all_within(path, max_bytes, FS_PIPE_SECONDS, data, n, err);
}

int fs_read_regular(const char *path, size_t max_bytes, char **data, size_t *n,
                    struct error *err)
{
    enum fs_type type;
    if (fs_look(path, &type, err))
        return -1;
    if (type == FS_DIRECTORY || type == FS_OTHER)
        return error_set(err, ERROR_INPUT, "cannot read '%s': it is not a file", path);
    return fs_read_all(path, max_bytes, data, n, err);
}

static int sync_parent(const char *path, struct error *err)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash)
        return fs_sync_directory(".", err);
    snprintf(parent, sizeof parent, "%.*s", (int)(slash == path ? 1 : slash - path),
             path);
    return fs_sync_directory(parent, err);
}

int fs_create(const char *path, int flags, mode_t mode)
{
    int how = flags | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(path, how, mode);
    if (fd < 0 && errno == EEXIST && (unlink(path) == 0 || errno == ENOENT))
        fd = open(path, how, mode);
    return fd;
}

int fs_write_atomic(const char *path, const void *data, size_t n, struct error *err)
{
    char tmp[PATH_MAX];
    int fd = -1, rc = -1;

    if (snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp)
        return error_set(err, ERROR_RUNTIME, "path too long: '%s'", path);
    fd = fs_create(tmp, O_WRONLY, 0644);
    if (fd < 0) {
        error_set(err, ERROR_RUNTIME, "cannot create '%s': %s", tmp, strerror(errno));
        goto done;
    }
    if (fs_write_exact(fd, data, n) || fsync(fd)) {
        error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", tmp, strerror(errno));
        goto done;
    }
    if (fs_rename(tmp, path, err))
        goto done;
    rc = 0;
done:
    if (fd >= 0)
        close(fd);
    if (rc && fd >= 0)
        unlink(tmp);
    return rc;
}

bool fs_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool fs_is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int fs_is_same_file(const char *path, int fd)
{
    struct stat open_one, named;
    if (fstat(fd, &open_one))
        return -1;
    if (lstat(path, &named))
        return fs_error_kind(errno) == ERROR_INPUT ? 0 : -1;
    return open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

int fs_look(const char *path, enum fs_type *type, struct error *err)
{
    struct stat st = {.st_mode = 0};
    *type = FS_NOTHING;
    if (stat(path, &st)) {
        enum error_kind kind = fs_error_kind(errno);
        return kind == ERROR_INPUT ? 0
                                   : error_set(err, kind, "cannot look at '%s': %s", path,
                                               strerror(errno));
    }
    *type = S_ISDIR(st.st_mode) ? FS_DIRECTORY : S_ISREG(st.st_mode) ? FS_FILE : FS_OTHER;
    return 0;
}

int fs_make_directories(const char *path, struct error *err)
{
    char part[PATH_MAX];
    size_t n = strlen(path);
    if (n >= sizeof part)
        return error_set(err, ERROR_RUNTIME, "path too long: '%s'", path);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != 0)
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0777) && errno != EEXIST)
            return error_set(err, ERROR_RUNTIME, "cannot create directory '%s': %s", part,
                             strerror(errno));
    }
    if (!fs_is_directory(path))
        return error_set(err, ERROR_RUNTIME,
                         "cannot create directory '%s': a file of that name is there",
                         path);
    return 0;
}

int fs_sync_directory(const char *path, struct error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return error_set(err, ERROR_RUNTIME, "cannot open directory '%s': %s", path,
                         strerror(errno));
    int rc = fsync(fd);
    if (rc)
        error_set(err, ERROR_RUNTIME, "cannot sync directory '%s': %s", path,
                  strerror(errno));
    close(fd);
    return rc;
}

int fs_rename(const char *from, const char *to, struct error *err)
{
    if (rename(from, to))
        return error_set(err, ERROR_RUNTIME, "cannot rename '%s' to '%s': %s", from, to,
                         strerror(errno));
    return sync_parent(to, err);
}

int fs_remove_tree(const char *path, struct error *err)
{
    struct stat st;
    struct fs_names list;
    int rc = 0;
    if (lstat(path, &st))
        return errno == ENOENT ? 0
                               : error_set(err, ERROR_RUNTIME, "cannot look at '%s': %s",
                                           path, strerror(errno));
    if (S_ISDIR(st.st_mode)) {
        if (fs_list(path, &list, err))
            return -1;
        for (int64_t i = 0; i < list.n_names && rc == 0; i++) {
            char child[PATH_MAX];
            rc = fs_join(child, sizeof child, path, list.names[i], err);
            if (rc == 0)
                rc = fs_remove_tree(child, err);
            beat_aside();
        }
        fs_names_release(&list);
        if (rc)
            return -1;
    }
    if (remove(path))
        return error_set(err, ERROR_RUNTIME, "cannot remove '%s': %s", path,
                         strerror(errno));
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int append_name(struct fs_names *list, const char *name)
{
    char **larger =
        realloc(list->names, (size_t)(list->n_names + 1) * sizeof *list->names);
    if (!larger)
        return -1;
    list->names = larger;
    char *copy = strdup(name);
    if (!copy)
        return -1;
    list->names[list->n_names++] = copy;
    return 0;
}

int fs_list(const char *path, struct fs_names *list, struct error *err)
{
    *list = (struct fs_names){0};
    DIR *dir = opendir(path);
    if (!dir)
        return error_set(err, fs_error_kind(errno), "cannot open directory '%s': %s",
                         path, strerror(errno));
    const struct dirent *entry;
    errno = 0;
    while ((entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (append_name(list, entry->d_name)) {
            errno = ENOMEM;
            break;
        }
    }
    int read_errno = errno;
    closedir(dir);
    if (read_errno) {
        fs_names_release(list);
        return error_set(err, ERROR_RUNTIME, "cannot list directory '%s': %s", path,
                         strerror(read_errno));
    }
    if (list->n_names > 1)
        qsort(list->names, (size_t)list->n_names, sizeof *list->names, compare_names);
    return 0;
}

void fs_names_release(struct fs_names *list)
{
    for (int64_t i = 0; i < list->n_names; i++)
        free(list->names[i]);
    free(list->names);
    *list = (struct fs_names){0};
}

int fs_join(char *buf, size_t size, const char *dir, const char *name, struct error *err)
{
    size_t n_dir = strlen(dir), n_name = strlen(name);
    bool has_slash = n_dir > 0 && dir[n_dir - 1] == '/';
    if (n_dir + n_name + 2 > size)
        return error_set(err, ERROR_INPUT, "path too long: '%s/%s'", dir, name);
    memcpy(buf, dir, n_dir);
    if (!has_slash)
        buf[n_dir++] = '/';
    memcpy(buf + n_dir, name, n_name + 1);
    return 0;
}

int fs_free_bytes(const char *path, uint64_t *bytes, struct error *err)
{
    struct statvfs st;
    if (statvfs(path, &st))
        return error_set(err, ERROR_RUNTIME, "cannot ask for free space at '%s': %s",
                         path, strerror(errno));
    *bytes = (uint64_t)st.f_bavail * (uint64_t)st.f_frsize;
    return 0;
}

/* -- output that the user names ------------------------------------------------------ */

static bool is_link(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

/* The descriptor that /dev/stdout, /dev/fd/2 and the like stand for; -1: `path` is not
 * one of them. Opening the path instead would begin a second time at the start of a
 * file. */
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

bool fs_is_stream(const char *path)
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
    double end = clock_seconds() + FS_READER_SECONDS;
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
static int replace_output(const char *path, const void *data, size_t n, struct error *err)
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
        return replace_output(target, data, n, err);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return error_set(err, ERROR_RUNTIME, "cannot create '%s': %s", path,
                         strerror(errno));
    return write_and_close(fd, path, data, n, err);
}

int fs_write_output(const char *path, const void *data, size_t n, struct error *err)
{
    if (fs_is_stream(path))
        return write_stream(path, data, n, err);
    if (is_link(path))
        return write_through_link(path, data, n, err);
    return replace_output(path, data, n, err);
}
