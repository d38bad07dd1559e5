/*
 * index_map - an array of integers that all processes of a machine share, made by one.
 *
 * It is a file of the index cache (data/index_cache.h), mapped: memory that is there once
 * for all, and that the system may take back. Where the cache cannot be written it is a
 * file in /dev/shm, which goes with its last user; and where that is impossible too, each
 * process has its own.
 *
 * Who is first makes it, in the file NAME.new under an exclusive flock(), and renames it;
 * others wait for the lock and map the result. Who maps one holds a shared flock().
 *
 * Threads: any number, each with its own index_map.
 */
#ifndef DATA_SAMPLES_INDEX_MAP_H
#define DATA_SAMPLES_INDEX_MAP_H

#include "base/base.h"
#include "base/error.h"
#include "data/samples/index_cache.h"

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

struct index_map { // read-only for everybody but index_map.c
    const int64_t *values;
    int64_t n_values;
    bool was_there;                // nobody had to make it now
    char path[INDEX_PATH_BYTES];   // "": of this process alone
    char shared[INDEX_PATH_BYTES]; // the same in /dev/shm, else ""
    void *base;
    size_t n_bytes;
    int fd; // -1: none
};

/* A file that is damaged is made anew, with a warning. */
MUST_CHECK int index_map_open(struct index_map *map, const struct index_place *place,
                              const struct index_maker *maker, struct error *err);
/* Integers [at, at + n). A file is read, not loaded from: one that somebody cuts or whose
 * disk fails is -1 here, and a deadly signal in a load from `values`. */
MUST_CHECK int index_map_read(const struct index_map *map, int64_t at, int64_t n,
                              int64_t *values);
void index_map_close(struct index_map *map); // one of zeros is fine

#endif
