#include "data/samples/index_cache.h"

#include "base/fs.h"
#include "base/log.h"
#include "data/formats/disk_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define VERSION 2
#define HEX_DIGITS 32
#define ABANDONED_SECONDS 3600 // the age of an unfinished file that nobody works on

static const char magic[8] = "TREFIDX";

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "integers are hashed and mapped as they lie in files");

/* -- keys ------------------------------------------------------------------------------
 */

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

int index_cache_path(char path[INDEX_PATH_BYTES], const char *dir, const char *kind,
                     const struct cache_key *key, const char *suffix)
{
    char hex[HEX_DIGITS + 1];
    cache_key_hex(key, hex);
    int n = snprintf(path, INDEX_PATH_BYTES, "%s/%s-%s%s", dir, kind, hex, suffix);
    return n >= INDEX_PATH_BYTES ? -1 : 0;
}

/* -- headers ---------------------------------------------------------------------------
 */

static void payload_hash(const int64_t *values, int64_t n, uint8_t hash[16])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(values, (size_t)n * 8));
    memcpy(hash, canonical.digest, 16);
}

void index_header_put(uint8_t header[INDEX_HEADER_BYTES], const struct cache_key *key,
                      const int64_t *values, int64_t n)
{
    memcpy(header, magic, sizeof magic);
    disk_put_u64(header + 8, VERSION);
    disk_put_u64(header + 16, (uint64_t)n);
    key_digest(key, header + 24);
    payload_hash(values, n, header + 40);
}

const char *index_header_get(const uint8_t header[INDEX_HEADER_BYTES],
                             const struct cache_key *key, int64_t n_bytes, int64_t *n)
{
    uint8_t digest[16];
    key_digest(key, digest);
    if (n_bytes < INDEX_HEADER_BYTES)
        return "its header cannot be read";
    if (memcmp(header, magic, sizeof magic) != 0 || disk_get_u64(header + 8) != VERSION)
        return "it is no index of this version";
    if (memcmp(header + 24, digest, 16) != 0)
        return "it belongs to other data";
    *n = (n_bytes - INDEX_HEADER_BYTES) / 8;
    if ((n_bytes - INDEX_HEADER_BYTES) % 8 != 0 ||
        disk_get_u64(header + 16) != (uint64_t)*n)
        return "its size is wrong";
    return NULL;
}

bool index_header_fits(const uint8_t header[INDEX_HEADER_BYTES], const int64_t *values,
                       int64_t n)
{
    uint8_t hash[16];
    payload_hash(values, n, hash);
    return memcmp(hash, header + 40, 16) == 0;
}

/* -- whole arrays ----------------------------------------------------------------------
 */

/* NULL, or why the open file cannot be used; *values is the array as stored. */
static const char *load_file(int fd, const struct cache_key *key, int64_t **values,
                             int64_t *n)
{
    struct stat st;
    uint8_t header[INDEX_HEADER_BYTES];
    if (fstat(fd, &st) || fs_pread_exact(fd, header, sizeof header, 0))
        return "its header cannot be read";
    const char *why = index_header_get(header, key, st.st_size, n);
    if (why)
        return why;
    *values = malloc((size_t)*n * 8 + 1);
    if (!*values)
        return "there is no memory for it";
    if (fs_pread_exact(fd, *values, (size_t)*n * 8, INDEX_HEADER_BYTES))
        return "it cannot be read";
    return index_header_fits(header, *values, *n) ? NULL : "its checksum is wrong";
}

void index_cache_load(const char *dir, const char *kind, const struct cache_key *key,
                      int64_t **values, int64_t *n)
{
    char path[INDEX_PATH_BYTES];
    *values = NULL;
    *n = 0;
    if (index_cache_path(path, dir, kind, key, ""))
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
    uint8_t header[INDEX_HEADER_BYTES];
    struct error err;
    if (index_cache_path(path, dir, kind, key, "") ||
        index_cache_path(tmp, dir, kind, key, ".XXXXXX"))
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
    index_header_put(header, key, values, n);
    bool is_written =
        fs_pwrite_exact(fd, header, sizeof header, 0) == 0 &&
        fs_pwrite_exact(fd, values, (size_t)n * 8, INDEX_HEADER_BYTES) == 0 &&
        fsync(fd) == 0 && fchmod(fd, 0644) == 0;
    if (!is_written)
        error_set(&err, ERROR_RUNTIME, "cannot write '%s': %s", tmp, strerror(errno));
    close(fd);
    if (!is_written || fs_rename(tmp, path, &err)) {
        unlink(tmp);
        log_info("the index is not cached: %s", err.text);
        return;
    }
    index_cache_prune(dir, kind, n_keep);
}

/* -- how many there are ----------------------------------------------------------------
 */

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

void index_cache_prune(const char *dir, const char *kind, int n_keep)
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
