#include "data/index_cache.h"

#include "base/fs.h"
#include "base/log.h"
#include "data/disk_int.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define HEADER_BYTES 56
#define VERSION 1
#define CHUNK 8192 // integers written at once

static const char magic[8] = "TREFIDX";

int cache_key_init(struct cache_key *key, struct error *err)
{
    key->state = XXH3_createState();
    if (!key->state)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    XXH3_128bits_reset(key->state);
    cache_key_mix_i64(key, VERSION);
    return 0;
}

void cache_key_release(struct cache_key *key)
{
    XXH3_freeState(key->state);
    key->state = NULL;
}

void cache_key_mix_array(struct cache_key *key, const int64_t *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint8_t bytes[8];
        disk_put_u64(bytes, (uint64_t)values[i]);
        XXH3_128bits_update(key->state, bytes, sizeof bytes);
    }
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

static int make_path(char path[PATH_MAX], const char *dir, const char *kind,
                     const struct cache_key *key, const char *suffix)
{
    char hex[33];
    cache_key_hex(key, hex);
    return snprintf(path, PATH_MAX, "%s/%s-%s%s", dir, kind, hex, suffix) >= PATH_MAX ? -1
                                                                                      : 0;
}

/* The hash of the integers as they lie in the file. */
static void payload_hash(const int64_t *values, int64_t n, uint8_t hash[16])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(values, (size_t)n * 8));
    memcpy(hash, canonical.digest, 16);
}

/* NULL, or why the open file cannot be used; *values is the array as stored. */
static const char *load_file(int fd, const uint8_t digest[16], int64_t **values,
                             int64_t *n)
{
    struct stat st;
    uint8_t header[HEADER_BYTES], hash[16];
    if (fstat(fd, &st) || fs_pread_exact(fd, header, sizeof header, 0))
        return "its header cannot be read";
    if (memcmp(header, magic, sizeof magic) != 0 || disk_get_u64(header + 8) != VERSION)
        return "it is no index of this version";
    if (memcmp(header + 24, digest, 16) != 0)
        return "it belongs to other data";
    uint64_t count = disk_get_u64(header + 16);
    if (((uint64_t)st.st_size - HEADER_BYTES) % 8 != 0 ||
        count != ((uint64_t)st.st_size - HEADER_BYTES) / 8)
        return "its size is wrong";
    *values = malloc((size_t)count * 8 + 1);
    if (!*values)
        return "there is no memory for it";
    *n = (int64_t)count;
    if (fs_pread_exact(fd, *values, (size_t)count * 8, HEADER_BYTES))
        return "it cannot be read";
    payload_hash(*values, *n, hash);
    return memcmp(hash, header + 40, 16) == 0 ? NULL : "its checksum is wrong";
}

void index_cache_load(const char *dir, const char *kind, const struct cache_key *key,
                      int64_t **values, int64_t *n)
{
    char path[PATH_MAX];
    uint8_t digest[16];
    *values = NULL;
    *n = 0;
    if (make_path(path, dir, kind, key, ""))
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    key_digest(key, digest);
    const char *why = load_file(fd, digest, values, n);
    close(fd);
    if (why) {
        log_warning("the cached index '%s' is not used, because %s; it is built again",
                    path, why);
        free(*values);
        *values = NULL;
        *n = 0;
        return;
    }
    for (int64_t i = 0; i < *n; i++)
        (*values)[i] = (int64_t)le64toh((uint64_t)(*values)[i]);
}

static int write_file(int fd, const uint8_t digest[16], const int64_t *values, int64_t n)
{
    uint8_t header[HEADER_BYTES], *raw = malloc(CHUNK * 8);
    XXH3_state_t *state = XXH3_createState();
    XXH128_canonical_t canonical;
    int rc = -1;
    if (!raw || !state)
        goto done;
    XXH3_128bits_reset(state);
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t part = i64_min(CHUNK, n - i);
        for (int64_t k = 0; k < part; k++)
            disk_put_u64(raw + 8 * k, (uint64_t)values[i + k]);
        XXH3_128bits_update(state, raw, (size_t)part * 8);
        if (fs_pwrite_exact(fd, raw, (size_t)part * 8, HEADER_BYTES + 8 * i))
            goto done;
    }
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    memcpy(header, magic, sizeof magic);
    disk_put_u64(header + 8, VERSION);
    disk_put_u64(header + 16, (uint64_t)n);
    memcpy(header + 24, digest, 16);
    memcpy(header + 40, canonical.digest, 16);
    rc = fs_pwrite_exact(fd, header, sizeof header, 0) || fsync(fd) ? -1 : 0;
done:
    free(raw);
    XXH3_freeState(state);
    return rc;
}

void index_cache_store(const char *dir, const char *kind, const struct cache_key *key,
                       const int64_t *values, int64_t n)
{
    char path[PATH_MAX], tmp[PATH_MAX];
    uint8_t digest[16];
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
    key_digest(key, digest);
    bool is_written = write_file(fd, digest, values, n) == 0 && fchmod(fd, 0644) == 0;
    if (!is_written)
        error_set(&err, ERROR_RUNTIME, "cannot write '%s': %s", tmp, strerror(errno));
    close(fd);
    if (!is_written || fs_rename(tmp, path, &err)) {
        unlink(tmp);
        log_info("the index is not cached: %s", err.text);
    }
}
