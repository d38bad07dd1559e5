/*
 * Threads take blocks of consecutive documents. Each document is read in pieces of a fixed
 * size, so memory depends on the number of threads only.
 */
#include "data/samples/document_hash.h"

#include "base/beat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define HASH_SEED 0         // part of the rule
#define PIECE_TOKENS 16384  // read at once
#define BLOCK_DOCUMENTS 256 // of a thread's turn
#define FILES_KEPT 256      // in the cache
#define LONG_SECONDS 1.0    // worth a line in the log

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tokens are hashed as they are in memory");

/* -- hashing ------------------------------------------------------------------------- */

struct hasher { // of one thread
    XXH64_state_t *state;
    int32_t *tokens; // (PIECE_TOKENS)
};

static int hasher_init(struct hasher *h, struct error *err)
{
    h->state = XXH64_createState();
    h->tokens = malloc(PIECE_TOKENS * sizeof *h->tokens);
    if (!h->state || !h->tokens)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    return 0;
}

static void hasher_release(struct hasher *h)
{
    XXH64_freeState(h->state);
    free(h->tokens);
}

static int hash_document(struct hasher *h, const struct corpus *c, int64_t doc,
                         uint64_t *hash, struct error *err)
{
    int64_t n_tokens = corpus_document_tokens(c, doc);
    XXH64_reset(h->state, HASH_SEED);
    for (int64_t at = 0; at < n_tokens; at += PIECE_TOKENS) {
        int64_t n = i64_min(PIECE_TOKENS, n_tokens - at);
        if (corpus_read(c, doc, at, n, h->tokens, err))
            return -1;
        XXH64_update(h->state, h->tokens, (size_t)n * sizeof *h->tokens);
        beat_aside();
    }
    *hash = XXH64_digest(h->state);
    return 0;
}

static int hash_block(struct hasher *h, const struct corpus *c, int64_t first,
                      int64_t end, uint64_t *hashes, struct error *err)
{
    for (int64_t doc = first; doc < end; doc++)
        if (hash_document(h, c, doc, &hashes[doc - first], err))
            return -1;
    return 0;
}

int document_hash_range(const struct corpus *c, int64_t first, int64_t end,
                        uint64_t *hashes, struct error *err)
{
    int64_t n_blocks = (end - first + BLOCK_DOCUMENTS - 1) / BLOCK_DOCUMENTS;
    int64_t failed_block = INT64_MAX; // the first one, whatever the number of threads
#pragma omp parallel num_threads(thread_team_size())
    {
        struct hasher h = {0};
        struct error memory_error = {0};
        int has_memory = hasher_init(&h, &memory_error) == 0;
#pragma omp for schedule(dynamic)
        for (int64_t b = 0; b < n_blocks; b++) {
            struct error why = memory_error;
            int64_t from = first + b * BLOCK_DOCUMENTS, first_failure;
#pragma omp atomic read
            first_failure = failed_block;
            if (first_failure < b)
                continue;
            int rc = has_memory
                         ? hash_block(&h, c, from, i64_min(from + BLOCK_DOCUMENTS, end),
                                      hashes + (from - first), &why)
                         : -1;
#pragma omp critical(document_hash_failure)
            if (rc && b < failed_block) {
#pragma omp atomic write
                failed_block = b;
                *err = why;
            }
        }
        hasher_release(&h);
    }
    return failed_block < INT64_MAX ? -1 : 0;
}

/* -- the cache ----------------------------------------------------------------------- */

struct hashes_making {
    const struct corpus *corpus;
    uint64_t *hashes;
};

/* Hashes here, because filling the map cannot fail. */
static int measure_hashes(void *context, int64_t *n_values, struct error *err)
{
    struct hashes_making *m = context;
    int64_t n = corpus_n_documents(m->corpus);
    double start = clock_seconds();
    free(m->hashes); // of an attempt that failed
    m->hashes = malloc((size_t)n * sizeof *m->hashes + 1);
    if (!m->hashes)
        return error_set(err, ERROR_RUNTIME, "no memory for the hashes of %lld documents",
                         (long long)n);
    log_status("hashing the documents of '%s'", corpus_input(m->corpus));
    int rc = document_hash_range(m->corpus, 0, n, m->hashes, err);
    log_status_clear();
    if (rc == 0 && clock_seconds() - start > LONG_SECONDS)
        log_info("hashed the %lld documents of '%s' in %.1f s", (long long)n,
                 corpus_input(m->corpus), clock_seconds() - start);
    *n_values = rc ? 0 : n; // 0: the next attempt hashes again
    return rc;
}

static void fill_hashes(void *context, int64_t *values)
{
    const struct hashes_making *m = context;
    memcpy(values, m->hashes, (size_t)corpus_n_documents(m->corpus) * sizeof *values);
}

int document_hash_open(struct index_map *map, const struct corpus *c,
                       const char *cache_dir, struct error *err)
{
    struct cache_key key;
    struct hashes_making m = {.corpus = c};
    const struct index_maker maker = {
        .context = &m, .measure = measure_hashes, .fill = fill_hashes};
    *map = (struct index_map){.fd = -1};
    if (cache_key_init(&key, err))
        return -1;
    corpus_mix_key(c, &key);
    const struct index_place place = {
        .dir = cache_dir && cache_dir[0] ? cache_dir : corpus_default_cache_dir(c),
        .kind = "hashes",
        .key = &key,
        .n_keep = FILES_KEPT};
    int rc = index_map_open(map, &place, &maker, err);
    free(m.hashes); // the map has a copy
    cache_key_release(&key);
    if (rc == 0 && map->n_values != corpus_n_documents(c)) {
        rc = error_set(err, ERROR_RUNTIME,
                       "the cached hashes '%s' are those of other data; remove the file",
                       map->path);
        index_map_close(map);
    }
    return rc;
}
