/*
 * index_cache - results that are costly to compute, kept in files between runs.
 *
 * A file holds an array of integers. Its name is a hash of everything the result depends
 * on, so there is nothing to invalidate: other inputs, other name. It is written under a
 * temporary name and renamed, so several processes may build the same one at once: the
 * last rename wins, with equal content.
 *
 *     0  8 bytes  "TREFIDX\0"     16  u64  number of integers    40  16 bytes  hash
 * (XXH3) 8  u64      version 1       24  16 bytes  the key          56  i64[...]  the
 * integers
 */
#ifndef DATA_INDEX_CACHE_H
#define DATA_INDEX_CACHE_H

#include "base/base.h"
#include "base/error.h"

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

/* Keep the array. That it cannot be kept is said in the log and changes no result. */
void index_cache_store(const char *dir, const char *kind, const struct cache_key *key,
                       const int64_t *values, int64_t n);

#endif
