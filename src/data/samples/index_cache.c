#include "data/samples/index_cache.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "data/formats/disk_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define VERSION 2
#define HEADER_BYTES 56
#define HEX_DIGITS 32
#define ABANDONED_SECONDS 3600 // the age of an unfinished file that nobody works on
#define SHARED_DIR "/dev/shm"
#define REPORT_AFTER_SECONDS 10 // that another process makes what this one waits for
// Making takes seconds: a process that has not finished by then is stopped or lost.
#define GIVE_UP_AFTER_SECONDS 120

static const char magic[8] = "TREFIDX";

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "integers are hashed and mapped as they lie in files");

/* -- keys ---------------------------------------------------------------------------- */

int cache_key_init(struct cache_key *key, struct error *err)
{
    key->state = XXH3_createState();
    if (!key->state)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    XXH3_128bits_reset(key->state);
    cache_key_mix_i64(key, 1); // for good: checkpoints hold fingerprints made so
    return 0;
}

void cache_key_release(struct cache_key *key)
{
    XXH3_freeState(key->state);
    key->state = NULL;
}

void cache_key_mix_array(struct cache_key *key, const int64_t *values, int64_t n)
{
    XXH3_128bits_update(key->state, values, (size_t)n * sizeof *values);
}

void cache_key_mix_i64(struct cache_key *key, int64_t value)
{
    cache_key_mix_array(key, &value, 1);
}

void cache_key_mix_f64(struct cache_key *key, double value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    cache_key_mix_i64(key, bits);
}

/* The length first, so that "ab" "c" and "a" "bc" are two different keys. */
void cache_key_mix_string(struct cache_key *key, const char *text)
{
    cache_key_mix_i64(key, (int64_t)strlen(text));
    XXH3_128bits_update(key->state, text, strlen(text));
}

static void key_digest(const struct cache_key *key, uint8_t digest[16])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(key->state));
    memcpy(digest, canonical.digest, 16);
}

void cache_key_hex(const struct cache_key *key, char hex[33])
{
    uint8_t digest[16];
    key_digest(key, digest);
    for (int i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

static int make_path(char path[INDEX_PATH_BYTES], const char *dir, const char *kind,
                     const struct cache_key *key, const char *suffix)
{
    char hex[HEX_DIGITS + 1];
    cache_key_hex(key, hex);
    int n = snprintf(path, INDEX_PATH_BYTES, "%s/%s-%s%s", dir, kind, hex, suffix);
    return n >= INDEX_PATH_BYTES ? -1 : 0;
}

/* -- headers ------------------------------------------------------------------------- */

static void payload_hash(const int64_t *values, int64_t n, uint8_t hash[16])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(values, (size_t)n * 8));
    memcpy(hash, canonical.digest, 16);
}

static void put_header(uint8_t header[HEADER_BYTES], const struct cache_key *key,
                       const int64_t *values, int64_t n)
{
    memcpy(header, magic, sizeof magic);
    disk_put_u64(header + 8, VERSION);
    disk_put_u64(header + 16, (uint64_t)n);
    key_digest(key, header + 24);
    payload_hash(values, n, header + 40);
}

static const char *check_header(const uint8_t header[HEADER_BYTES],
                                const struct cache_key *key, int64_t n_bytes, int64_t *n)
{
    uint8_t digest[16];
    key_digest(key, digest);
    if (n_bytes < HEADER_BYTES)
        return "its header cannot be read";
    if (memcmp(header, magic, sizeof magic) != 0 || disk_get_u64(header + 8) != VERSION)
        return "it is no index of this version";
    if (memcmp(header + 24, digest, 16) != 0)
        return "it belongs to other data";
    *n = (n_bytes - HEADER_BYTES) / 8;
    if ((n_bytes - HEADER_BYTES) % 8 != 0 || disk_get_u64(header + 16) != (uint64_t)*n)
        return "its size is wrong";
    return NULL;
}

static bool has_payload(const uint8_t header[HEADER_BYTES], const int64_t *values,
                        int64_t n)
{
    uint8_t hash[16];
    payload_hash(values, n, hash);
    return memcmp(hash, header + 40, 16) == 0;
}

/* -- how many there are -------------------------------------------------------------- */

struct kept_file {
    const char *name;
    time_t used;   // last
    bool is_whole; // else it has a suffix: somebody was writing it
};

static bool is_of_kind(struct kept_file *file, const char *name, const char *kind)
{
    size_t n = strlen(kind);
    if (strncmp(name, kind, n) != 0 || name[n] != '-' ||
        strspn(name + n + 1, "0123456789abcdef") != HEX_DIGITS)
        return false;
    const char *suffix = name + n + 1 + HEX_DIGITS;
    *file = (struct kept_file){.name = name, .is_whole = suffix[0] == 0};
    return suffix[0] == 0 || suffix[0] == '.';
}

static int latest_first(const void *a, const void *b)
{
    const struct kept_file *x = a, *y = b;
    return (x->used < y->used) - (x->used > y->used);
}

static bool is_of_this_version(int fd)
{
    uint8_t start[16];
    return fs_pread_exact(fd, start, sizeof start, 0) == 0 &&
           memcmp(start, magic, sizeof magic) == 0 && disk_get_u64(start + 8) == VERSION;
}

/* Remove a file that is not wanted, or of no use to this version, unless it is in use. */
static void remove_unused(const char *dir, const struct kept_file *file, bool is_wanted)
{
    char path[INDEX_PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/%s", dir, file->name) >= (int)sizeof path)
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    bool is_useful = is_wanted && (!file->is_whole || is_of_this_version(fd));
    if (!is_useful && flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlink(path);
    close(fd);
}

static int64_t list_kind(struct kept_file *files, const struct fs_names *names,
                         const char *dir, const char *kind)
{
    int64_t n = 0;
    for (int64_t i = 0; i < names->n_names; i++) {
        char path[INDEX_PATH_BYTES];
        struct stat st;
        if (!is_of_kind(&files[n], names->names[i], kind) ||
            snprintf(path, sizeof path, "%s/%s", dir, names->names[i]) >=
                (int)sizeof path ||
            lstat(path, &st) || !S_ISREG(st.st_mode))
            continue;
        files[n++].used = st.st_mtime;
    }
    return n;
}

static void prune_kind(const char *dir, const char *kind, int n_keep)
{
    struct fs_names names;
    struct error err;
    if (fs_list(dir, &names, &err))
        return;
    struct kept_file *files = calloc((size_t)names.n_names + 1, sizeof *files);
    int64_t n = files ? list_kind(files, &names, dir, kind) : 0;
    if (n > 1)
        qsort(files, (size_t)n, sizeof *files, latest_first);
    int n_whole = 0;
    for (int64_t i = 0; i < n; i++) {
        bool is_wanted = files[i].is_whole
                             ? n_whole++ < n_keep
                             : time(NULL) - files[i].used < ABANDONED_SECONDS;
        remove_unused(dir, &files[i], is_wanted);
    }
    free(files);
    fs_names_release(&names);
}

/* -- whole arrays -------------------------------------------------------------------- */

/* NULL, or why the open file cannot be used; *values is the array as stored. */
static const char *load_file(int fd, const struct cache_key *key, int64_t **values,
                             int64_t *n)
{
    struct stat st;
    uint8_t header[HEADER_BYTES];
    if (fstat(fd, &st) || fs_pread_exact(fd, header, sizeof header, 0))
        return "its header cannot be read";
    const char *why = check_header(header, key, st.st_size, n);
    if (why)
        return why;
    *values = malloc((size_t)*n * 8 + 1);
    if (!*values)
        return "there is no memory for it";
    if (fs_pread_exact(fd, *values, (size_t)*n * 8, HEADER_BYTES))
        return "it cannot be read";
    return has_payload(header, *values, *n) ? NULL : "its checksum is wrong";
}

void index_cache_load(const char *dir, const char *kind, const struct cache_key *key,
                      int64_t **values, int64_t *n)
{
    char path[INDEX_PATH_BYTES];
    *values = NULL;
    *n = 0;
    if (make_path(path, dir, kind, key, ""))
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    const char *why = load_file(fd, key, values, n);
    close(fd);
    if (why) {
        log_warning("the cached index '%s' is not used, because %s; it is built again",
                    path, why);
        free(*values);
        *values = NULL;
        *n = 0;
    }
}

void index_cache_store(const char *dir, const char *kind, const struct cache_key *key,
                       const int64_t *values, int64_t n, int n_keep)
{
    char path[INDEX_PATH_BYTES], tmp[INDEX_PATH_BYTES];
    uint8_t header[HEADER_BYTES];
    struct error err;
    if (make_path(path, dir, kind, key, "") || make_path(tmp, dir, kind, key, ".XXXXXX"))
        return;
    if (fs_make_directories(dir, &err)) {
        log_info("the index is not cached: %s", err.text);
        return;
    }
    int fd = mkostemp(tmp, O_CLOEXEC);
    if (fd < 0) {
        log_info("the index is not cached: cannot write to '%s': %s", dir,
                 strerror(errno));
        return;
    }
    put_header(header, key, values, n);
    bool is_written = fs_pwrite_exact(fd, header, sizeof header, 0) == 0 &&
                      fs_pwrite_exact(fd, values, (size_t)n * 8, HEADER_BYTES) == 0 &&
                      fsync(fd) == 0 && fchmod(fd, 0644) == 0;
    if (!is_written)
        error_set(&err, ERROR_RUNTIME, "cannot write '%s': %s", tmp, strerror(errno));
    close(fd);
    if (!is_written || fs_rename(tmp, path, &err)) {
        unlink(tmp);
        log_info("the index is not cached: %s", err.text);
        return;
    }
    prune_kind(dir, kind, n_keep);
}

/* -- shared arrays ------------------------------------------------------------------- */

/*
 * A file that is being made and the file that it becomes are one inode: a process that
 * waited for the lock finds by the name whether it was made meanwhile.
 *
 * Disk space is reserved before a byte is written through the mapping: on a full disk
 * that would be a signal, not an error.
 */
struct map_home { // where a file may lie
    const char *dir;
    const char *kind;
    mode_t mode;
    bool is_own; // ignore files of other users
};

/* NULL when it is mapped, or why not. */
static const char *map_file(struct index_map *map, int fd, const struct cache_key *key,
                            int64_t n_bytes)
{
    int64_t n;
    uint8_t header[HEADER_BYTES];
    if (fs_pread_exact(fd, header, sizeof header, 0))
        return "its header cannot be read";
    const char *why = check_header(header, key, n_bytes, &n);
    if (why)
        return why;
    void *base = mmap(NULL, (size_t)n_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return "there is no memory for it";
    const int64_t *values = (const int64_t *)base + HEADER_BYTES / sizeof *values;
    if (!has_payload(header, values, n)) {
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

static bool map_existing(struct index_map *map, const char *path,
                         const struct map_home *home, const struct cache_key *key)
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

/* Make it in the open and locked file; -1 with a reason in *err. */
static int make_in_file(struct index_map *map, int fd, const struct cache_key *key,
                        const struct index_maker *maker, int64_t n, struct error *err)
{
    size_t n_bytes = HEADER_BYTES + (size_t)n * 8;
    int reason = ftruncate(fd, 0) ? errno : posix_fallocate(fd, 0, (off_t)n_bytes);
    void *base = reason ? MAP_FAILED
                        : mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return error_set(err, ERROR_RUNTIME, "%s", strerror(reason ? reason : errno));
    int64_t *values = (int64_t *)base + HEADER_BYTES / sizeof *values;
    maker->fill(maker->context, values);
    put_header(base, key, values, n);
    mprotect(base, n_bytes, PROT_READ);
    map->base = base;
    map->n_bytes = n_bytes;
    map->values = values;
    map->n_values = n;
    map->fd = fd;
    return 0;
}

/* Lock the file, or learn that it is `path` no more. Whoever made it keeps a lock for as
 * long as it is used: waiting for that one would have no end. -1 with errno, EWOULDBLOCK
 * when somebody else has had it for too long. */
static int lock_or_lose(int fd, const char *path)
{
    static const struct timespec nap = {.tv_nsec = 2000000};
    double since = clock_seconds();
    bool is_reported = false;
    while (flock(fd, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -1;
        int is_same = fs_is_same_file(path, fd);
        if (is_same <= 0)
            return is_same;
        if (!is_reported && clock_seconds() - since > REPORT_AFTER_SECONDS) {
            is_reported = true;
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
static int lock_new(const char *path, const struct map_home *home, struct error *err)
{
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                      home->mode);
        bool has_lock = fd >= 0 && lock_or_lose(fd, path) == 0;
        int is_same = has_lock ? fs_is_same_file(path, fd) : -1;
        if (is_same > 0)
            return fd;
        if (is_same < 0) {
            bool is_late = fd >= 0 && errno == EWOULDBLOCK;
            error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", path,
                      is_late ? "another process is making it and does not finish"
                              : strerror(errno));
        }
        if (fd >= 0)
            close(fd);
        if (is_same < 0)
            return -1; // else it was renamed or removed while we waited
    }
}

/* Map the file of `home`, made now if need be. -1 with *err: it is not possible here. */
static int open_at(struct index_map *map, const struct map_home *home,
                   const struct index_place *place, const struct index_maker *maker,
                   int64_t *n, struct error *err)
{
    char tmp[INDEX_PATH_BYTES];
    if (make_path(map->path, home->dir, home->kind, place->key, "") ||
        make_path(tmp, home->dir, home->kind, place->key, ".new"))
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

int index_map_open(struct index_map *map, const struct index_place *place,
                   const struct index_maker *maker, struct error *err)
{
    char shared_kind[64];
    int64_t n = 0; // not measured yet
    snprintf(shared_kind, sizeof shared_kind, "trefoil-%u-%s", (unsigned)geteuid(),
             place->kind);
    const struct map_home cache = {place->dir, place->kind, 0644, false};
    const struct map_home shared = {SHARED_DIR, shared_kind, 0600, true};
    *map = (struct index_map){.fd = -1};
    prune_kind(shared.dir, shared.kind, 0); // what killed runs left in memory
    if (open_at(map, &cache, place, maker, &n, err) == 0) {
        if (!map->was_there)
            prune_kind(cache.dir, cache.kind, place->n_keep);
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
                              HEADER_BYTES + (off_t)at * 8);
    memcpy(values, map->values + at, (size_t)n * 8);
    return 0;
}

void index_map_close(struct index_map *map)
{
    if (!map->base)
        return;
    munmap(map->base, map->n_bytes);
    if (map->shared[0] && flock(map->fd, LOCK_EX | LOCK_NB) == 0 &&
        fs_is_same_file(map->shared, map->fd) > 0)
        unlink(map->shared); // the last one
    if (map->fd >= 0)
        close(map->fd);
    *map = (struct index_map){.fd = -1};
}
