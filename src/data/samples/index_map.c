/*
 * A file that is being made and the file that it becomes are one inode: a process that
 * waited for the lock finds by the name whether it was made meanwhile.
 *
 * Room is reserved before a byte is written through the mapping: on a full disk that
 * would be a signal, not an error.
 */
#include "data/samples/index_map.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SHARED_DIR "/dev/shm"
#define TELL_AFTER_SECONDS 10 // that another process makes what this one waits for
// Making takes seconds: who has not finished by then is stopped, or on a lost host.
#define GIVE_UP_AFTER_SECONDS 120

struct home { // where a file may lie
    const char *dir;
    const char *kind;
    mode_t mode;
    bool is_own; // files of other users are none of ours
};

/* -- one that is there -----------------------------------------------------------------
 */

/* NULL when it is mapped, or why not. */
static const char *map_file(struct index_map *map, int fd, const struct cache_key *key,
                            int64_t n_bytes)
{
    int64_t n;
    uint8_t header[INDEX_HEADER_BYTES];
    if (fs_pread_exact(fd, header, sizeof header, 0))
        return "its header cannot be read";
    const char *why = index_header_get(header, key, n_bytes, &n);
    if (why)
        return why;
    void *base = mmap(NULL, (size_t)n_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return "there is no memory for it";
    const int64_t *values = (const int64_t *)base + INDEX_HEADER_BYTES / sizeof *values;
    if (!index_header_fits(header, values, n)) {
        munmap(base, (size_t)n_bytes);
        return "its checksum is wrong";
    }
    map->base = base;
    map->n_bytes = (size_t)n_bytes;
    map->values = values;
    map->n_values = n;
    map->fd = fd;
    return NULL;
}

static bool map_existing(struct index_map *map, const char *path, const struct home *home,
                         const struct cache_key *key)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    // without the lock only the protection from pruning is lost, so nobody waits for it
    while (flock(fd, LOCK_SH | LOCK_NB) && errno == EINTR)
        ;
    bool is_gone = fstat(fd, &st) || st.st_nlink == 0 || !S_ISREG(st.st_mode) ||
                   (home->is_own && st.st_uid != geteuid());
    const char *why = is_gone ? NULL : map_file(map, fd, key, st.st_size);
    if (why)
        log_warning("the cached index '%s' is not used, because %s; it is built again",
                    path, why);
    if (is_gone || why) {
        close(fd);
        return false;
    }
    (void)!futimens(fd, NULL); // the last use, by which files are kept
    return true;
}

/* -- one that is made ------------------------------------------------------------------
 */

/* Make it in the open and locked file; -1 with a reason in *err. */
static int make_in_file(struct index_map *map, int fd, const struct cache_key *key,
                        const struct index_maker *maker, int64_t n, struct error *err)
{
    size_t n_bytes = INDEX_HEADER_BYTES + (size_t)n * 8;
    int reason = ftruncate(fd, 0) ? errno : posix_fallocate(fd, 0, (off_t)n_bytes);
    void *base = reason ? MAP_FAILED
                        : mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return error_set(err, ERROR_RUNTIME, "%s", strerror(reason ? reason : errno));
    int64_t *values = (int64_t *)base + INDEX_HEADER_BYTES / sizeof *values;
    maker->fill(maker->context, values);
    index_header_put(base, key, values, n);
    mprotect(base, n_bytes, PROT_READ);
    map->base = base;
    map->n_bytes = n_bytes;
    map->values = values;
    map->n_values = n;
    map->fd = fd;
    return 0;
}

static bool is_file(int fd, const char *path)
{
    struct stat open_one, named;
    return fstat(fd, &open_one) == 0 && lstat(path, &named) == 0 &&
           open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

/* Lock the file, or learn that it is `path` no more. Whoever made it keeps a lock for as
 * long as it is used: waiting for that one would have no end. -1 with errno, EWOULDBLOCK
 * when somebody else has had it for too long. */
static int lock_or_lose(int fd, const char *path)
{
    static const struct timespec nap = {.tv_nsec = 2000000};
    double since = clock_seconds();
    bool is_told = false;
    while (flock(fd, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -1;
        if (!is_file(fd, path))
            return 0;
        if (!is_told && clock_seconds() - since > TELL_AFTER_SECONDS) {
            is_told = true;
            log_warning("waiting for the process that is making '%s'; if it hangs, end "
                        "it; after %d s this process makes its own",
                        path, GIVE_UP_AFTER_SECONDS);
        }
        if (clock_seconds() - since > GIVE_UP_AFTER_SECONDS) {
            errno = EWOULDBLOCK;
            return -1;
        }
        nanosleep(&nap, NULL);
    }
    return 0;
}

/* The file `path`, made by whoever has its lock, and locked; -1 with *err. */
static int lock_new(const char *path, const struct home *home, struct error *err)
{
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                      home->mode);
        if (fd < 0 || lock_or_lose(fd, path)) {
            bool is_late = fd >= 0 && errno == EWOULDBLOCK;
            error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", path,
                      is_late ? "another process is making it and does not finish"
                              : strerror(errno));
            if (fd >= 0)
                close(fd);
            return -1;
        }
        if (is_file(fd, path))
            return fd;
        close(fd); // it was renamed or removed while we waited
    }
}

/* Map the file of `home`, made now if need be. -1 with *err: it is not possible here. */
static int open_at(struct index_map *map, const struct home *home,
                   const struct index_place *place, const struct index_maker *maker,
                   int64_t *n, struct error *err)
{
    char tmp[INDEX_PATH_BYTES];
    if (index_cache_path(map->path, home->dir, home->kind, place->key, "") ||
        index_cache_path(tmp, home->dir, home->kind, place->key, ".new"))
        return error_set(err, ERROR_RUNTIME, "path too long: '%s'", home->dir);
    map->was_there = map_existing(map, map->path, home, place->key);
    if (map->was_there)
        return 0;
    if (fs_make_directories(home->dir, err))
        return -1;
    int fd = lock_new(tmp, home, err);
    if (fd < 0)
        return -1;
    if (map_existing(map, map->path, home, place->key)) { // made while we waited
        map->was_there = true;
        unlink(tmp);
        close(fd);
        return 0;
    }
    int rc = *n > 0 ? 0 : maker->measure(maker->context, n, err);
    if (rc == 0)
        rc = make_in_file(map, fd, place->key, maker, *n, err);
    if (rc == 0 && rename(tmp, map->path))
        rc = error_set(err, ERROR_RUNTIME, "%s", strerror(errno));
    if (rc) {
        unlink(tmp);
        close(fd);
        if (map->base)
            munmap(map->base, map->n_bytes);
        *map = (struct index_map){.fd = -1};
        return error_prefix(err, "cannot write '%s'", tmp);
    }
    (void)!fchmod(fd, home->mode);
    (void)!flock(fd, LOCK_SH);
    return 0;
}

/* Memory of this process alone. */
static int open_private(struct index_map *map, const struct index_place *place,
                        const struct index_maker *maker, int64_t *n, struct error *err)
{
    *map = (struct index_map){.fd = -1};
    if (*n == 0 && maker->measure(maker->context, n, err))
        return -1;
    size_t n_bytes = (size_t)i64_max(*n, 1) * 8;
    void *base =
        mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return error_set(err, ERROR_RUNTIME,
                         "no memory for the index of the %s samples, which needs %lld MB",
                         place->kind, (long long)(n_bytes / 1000000));
    maker->fill(maker->context, base);
    map->base = base;
    map->n_bytes = n_bytes;
    map->values = base;
    map->n_values = *n;
    return 0;
}

/* -- opening and closing ----------------------------------------------------------------
 */

int index_map_open(struct index_map *map, const struct index_place *place,
                   const struct index_maker *maker, struct error *err)
{
    char shared_kind[64];
    int64_t n = 0; // not measured yet
    snprintf(shared_kind, sizeof shared_kind, "trefoil-%u-%s", (unsigned)geteuid(),
             place->kind);
    const struct home cache = {place->dir, place->kind, 0644, false};
    const struct home shared = {SHARED_DIR, shared_kind, 0600, true};
    *map = (struct index_map){.fd = -1};
    index_cache_prune(shared.dir, shared.kind, 0); // what killed runs left in memory
    if (open_at(map, &cache, place, maker, &n, err) == 0) {
        if (!map->was_there)
            index_cache_prune(cache.dir, cache.kind, place->n_keep);
        return 0;
    }
    if (!place->is_quiet)
        log_info("the index is not cached: %s", err->text);
    if (open_at(map, &shared, place, maker, &n, err) == 0) {
        memcpy(map->shared, map->path, sizeof map->shared);
        return 0;
    }
    return open_private(map, place, maker, &n, err);
}

int index_map_read(const struct index_map *map, int64_t at, int64_t n, int64_t *values)
{
    if (at < 0 || n < 0 || at > map->n_values - n)
        return -1;
    if (map->fd >= 0)
        return fs_pread_exact(map->fd, values, (size_t)n * 8,
                              INDEX_HEADER_BYTES + (off_t)at * 8);
    memcpy(values, map->values + at, (size_t)n * 8);
    return 0;
}

void index_map_close(struct index_map *map)
{
    if (!map->base)
        return;
    munmap(map->base, map->n_bytes);
    if (map->shared[0] && flock(map->fd, LOCK_EX | LOCK_NB) == 0 &&
        is_file(map->fd, map->shared))
        unlink(map->shared); // the last one
    if (map->fd >= 0)
        close(map->fd);
    *map = (struct index_map){.fd = -1};
}
