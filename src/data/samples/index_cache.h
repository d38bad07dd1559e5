/*
 * index_cache - results that are costly to compute, kept in files between runs.
 *
 * A file holds an array of integers. Its name is a hash of everything the result depends
 * on, so there is nothing to invalidate: other inputs, other name. It is written under a
 * temporary name and renamed, so several processes may build the same one at once: the
 * last rename wins, with equal content. Of each kind a few files are kept, the latest;
 * who uses one for longer than it takes to read it holds a shared flock() on it, and then
 * it stays.
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

struct cache_key { // what goes into the name; everything mixed in must be mixed in order
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

/* *values := the array kept under (kind, key) in `dir`, malloc'ed; or NULL when there is
 * none or it is damaged, which is logged. */
void index_cache_load(const char *dir, const char *kind, const struct cache_key *key,
                      int64_t **values, int64_t *n);

/* Keep the array, and at most `n_keep` of its kind. That it cannot be kept is said in the
 * log and changes no result. */
void index_cache_store(const char *dir, const char *kind, const struct cache_key *key,
                       const int64_t *values, int64_t n, int n_keep);

/* -- for data/index_map.c --------------------------------------------------------------
 */

#define INDEX_HEADER_BYTES 56

/* The header of n integers at `values`, as they lie in a file. */
void index_header_put(uint8_t header[INDEX_HEADER_BYTES], const struct cache_key *key,
                      const int64_t *values, int64_t n);
/* NULL, and *n; or why a file of `n_bytes` that begins so cannot be used. */
const char *index_header_get(const uint8_t header[INDEX_HEADER_BYTES],
                             const struct cache_key *key, int64_t n_bytes, int64_t *n);
/* Whether these are the integers that the header was made for. */
bool index_header_fits(const uint8_t header[INDEX_HEADER_BYTES], const int64_t *values,
                       int64_t n);

/* The path of (kind, key) in `dir`; -1 when it is too long. */
MUST_CHECK int index_cache_path(char path[INDEX_PATH_BYTES], const char *dir,
                                const char *kind, const struct cache_key *key,
                                const char *suffix);
/* Remove the files of a kind that nobody uses: all but the latest n_keep, those of other
 * versions, and what was left by a process that died. */
void index_cache_prune(const char *dir, const char *kind, int n_keep);

#endif
