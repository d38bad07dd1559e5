/*
 * index_cache - results that are costly to compute, cached in files between runs.
 *
 * A file holds an array of integers. Its name is a hash of everything the result depends
 * on, so there is nothing to invalidate: other inputs, other name. It is written under a
 * temporary name and renamed, so several processes may build the same one at once: the
 * last rename wins, with equal content. Of each kind the few latest files are kept; a
 * process that uses one for longer than a read holds a shared flock() on it, which also
 * keeps it.
 *
 *      0  8 bytes   "TREFIDX\0"            24  16 bytes  the key
 *      8  u64       version 2              40  16 bytes  XXH3 of the integers
 *     16  u64       number of integers     56  i64[...]  the integers
 */
#ifndef DATA_SAMPLES_INDEX_CACHE_H
#define DATA_SAMPLES_INDEX_CACHE_H

#include "base/base.h"
#include "base/error.h"

#include <limits.h>

#define INDEX_PATH_BYTES PATH_MAX

struct XXH3_state_s;

struct cache_key { // a running hash, which depends on the order of what is mixed in
    struct XXH3_state_s *state;
};

MUST_CHECK int cache_key_init(struct cache_key *key, struct error *err);
void cache_key_release(struct cache_key *key);
void cache_key_mix_i64(struct cache_key *key, int64_t value);
void cache_key_mix_f64(struct cache_key *key, double value);
void cache_key_mix_string(struct cache_key *key, const char *text);
void cache_key_mix_array(struct cache_key *key, const int64_t *values, int64_t n);
/* The hash of what was mixed in so far, as 32 hexadecimal digits. */
void cache_key_hex(const struct cache_key *key, char hex[33]);

/* *values := the array cached under (kind, key) in `dir`, malloc'ed; or NULL when there
 * is none or it is damaged, which is logged. */
void index_cache_load(const char *dir, const char *kind, const struct cache_key *key,
                      int64_t **values, int64_t *n);

/* Cache the array, keeping at most `n_keep` of its kind. A failure is logged and changes
 * no result. */
void index_cache_store(const char *dir, const char *kind, const struct cache_key *key,
                       const int64_t *values, int64_t n, int n_keep);

/* -- an array that all processes of a machine share ---------------------------------- */

/*
 * Made by one of them. It is a mapped file of the cache: resident once per machine, and
 * reclaimable by the system. Where the cache cannot be written it is a file in /dev/shm,
 * removed by its last user; and where that is impossible too, each process has its own.
 *
 * The first process makes it, in the file NAME.new under an exclusive flock(), and
 * renames it; others wait for the lock and map the result. A mapped file has a shared
 * flock().
 *
 * Threads: any number, each with its own index_map.
 */
struct index_place {
    const char *dir; // of the cache
    const char *kind;
    const struct cache_key *key;
    int n_keep;    // files of this kind in the cache, those in use besides
    bool is_quiet; // say nothing of a cache that cannot be written
};

struct index_maker { // of an array that is not there yet
    void *context;
    int (*measure)(void *context, int64_t *n_values, struct error *err);
    void (*fill)(void *context, int64_t *values); // zeros before
};

struct index_map { // read-only for everybody but index_cache.c
    const int64_t *values;
    int64_t n_values;
    bool was_there;                // it did not have to be made now
    char path[INDEX_PATH_BYTES];   // "": of this process alone
    char shared[INDEX_PATH_BYTES]; // the same in /dev/shm, else ""
    void *base;
    size_t n_bytes;
    int fd; // -1: none
};

/* A file that is damaged is made anew, with a warning. */
MUST_CHECK int index_map_open(struct index_map *map, const struct index_place *place,
                              const struct index_maker *maker, struct error *err);
/* Integers [at, at + n), by a read from the file: where it was truncated or its disk
 * fails, that returns -1, while a load from `values` would be a fatal signal. */
MUST_CHECK int index_map_read(const struct index_map *map, int64_t at, int64_t n,
                              int64_t *values);
void index_map_close(struct index_map *map); // one of zeros is fine

#endif
