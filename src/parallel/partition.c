/*
 * One formula: n blocks over pp stages, stage s has n / pp of them, and one more if it is
 * among the last n % pp. Chunk c applies it to its own L / chunks blocks. A balanced
 * partition applies it to the blocks and what the head is worth.
 */
#include "parallel/partition.h"

#include <stdio.h>

#define MAX_BLOCKS 1000000 // far above any model; keeps every number below in range

/* -- checks -------------------------------------------------------------------------- */

/* Write the numbers of chunks that suit L and pp, e.g. "1, 2 or 4"; the eight smallest,
 * if there are more. One chunk always does. */
static void list_chunks_that_fit(int64_t L, int64_t pp, char *text, size_t size)
{
    enum { MOST = 8 };
    int64_t fits[MOST] = {1};
    int n = 1;
    for (int64_t chunks = 2; chunks <= L / pp && n < MOST; chunks++)
        if (L % chunks == 0)
            fits[n++] = chunks;
    size_t used = 0;
    for (int i = 0; i < n && used < size; i++) {
        const char *before = i == 0 ? "" : i == n - 1 ? " or " : ", ";
        used += (size_t)snprintf(text + used, size - used, "%s%lld", before,
                                 (long long)fits[i]);
    }
}

static int refuse_chunks(int64_t L, int64_t pp, int64_t chunks, struct error *err)
{
    char fits[256];
    list_chunks_that_fit(L, pp, fits, sizeof fits);
    if (L % chunks)
        return error_set(
            err, ERROR_INPUT,
            "%lld layers cannot be dealt in rounds to stages of %lld chunks: "
            "virtual_pp_degree must divide num_layers; with pp_degree %lld, "
            "virtual_pp_degree %s would do",
            (long long)L, (long long)chunks, (long long)pp, fits);
    return error_set(
        err, ERROR_INPUT,
        "%lld layers in %lld chunks are %lld per chunk, too few for %lld stages: "
        "every chunk of every stage needs a layer; with pp_degree %lld, "
        "virtual_pp_degree %s would do",
        (long long)L, (long long)chunks, (long long)(L / chunks), (long long)pp,
        (long long)pp, fits);
}

static int check(int64_t L, int64_t pp, int64_t chunks, struct error *err)
{
    if (L < 1 || L > MAX_BLOCKS)
        return error_set(err, ERROR_INPUT,
                         "a pipeline cannot be cut from %lld layers: num_layers must be "
                         "between 1 and %d",
                         (long long)L, MAX_BLOCKS);
    if (pp < 1 || pp > L)
        return error_set(
            err, ERROR_INPUT,
            "%lld layers cannot be split over %lld stages: every stage needs a "
            "layer, so pp_degree must be between 1 and %lld",
            (long long)L, (long long)pp, (long long)L);
    if (chunks < 1)
        return error_set(err, ERROR_INPUT,
                         "a stage cannot hold %lld chunks: virtual_pp_degree must be at "
                         "least 1",
                         (long long)chunks);
    if (chunks > 1 && pp == 1)
        return error_set(err, ERROR_INPUT,
                         "%lld chunks per stage (virtual_pp_degree) need a pipeline, and "
                         "pp_degree is 1: use 1 chunk, or 2 stages or more",
                         (long long)chunks);
    if (chunks > 1 && (L % chunks || L / chunks < pp))
        return refuse_chunks(L, pp, chunks, err);
    return 0;
}

int partition_init(struct partition *p, int64_t L, int64_t pp, int64_t chunks,
                   struct error *err)
{
    if (check(L, pp, chunks, err))
        return -1;
    *p = (struct partition){.L = L, .pp = (int)pp, .chunks = (int)chunks};
    return 0;
}

/* -- answers ------------------------------------------------------------------------- */

void partition_balance(struct partition *p, int64_t head_blocks)
{
    CHECK(p->chunks == 1 && head_blocks >= 0, "%d chunks, %lld blocks", p->chunks,
          (long long)head_blocks);
    p->head_blocks = i64_min(head_blocks, MAX_BLOCKS);
}

/* Where stage s begins when n things are dealt to pp stages. */
static int64_t dealt_before(int64_t n, int pp, int stage)
{
    int64_t n_even = pp - n % pp; // the stages without one more
    return stage * (n / pp) + i64_max(0, stage - n_even);
}

/* The first block of a chunk; that of stage pp is the end of stage pp - 1. */
static int64_t first_block_of(const struct partition *p, int stage, int chunk)
{
    int64_t per_chunk = p->L / p->chunks;
    int64_t first = dealt_before(per_chunk + p->head_blocks, p->pp, stage);
    // every stage from here on keeps a block
    return chunk * per_chunk + i64_min(first, per_chunk - (p->pp - stage));
}

static void check_piece(const struct partition *p, int stage, int chunk)
{
    CHECK(stage >= 0 && stage < p->pp && chunk >= 0 && chunk < p->chunks,
          "stage %d of %d, chunk %d of %d", stage, p->pp, chunk, p->chunks);
}

void partition_range(const struct partition *p, int stage, int chunk,
                     int64_t *first_block, int64_t *end_block)
{
    check_piece(p, stage, chunk);
    *first_block = first_block_of(p, stage, chunk);
    *end_block = first_block_of(p, stage + 1, chunk);
}

bool partition_is_first(const struct partition *p, int stage, int chunk)
{
    check_piece(p, stage, chunk);
    return stage == 0 && chunk == 0;
}

bool partition_is_last(const struct partition *p, int stage, int chunk)
{
    check_piece(p, stage, chunk);
    return stage == p->pp - 1 && chunk == p->chunks - 1;
}

int64_t partition_n_boundaries(const struct partition *p)
{
    return (int64_t)p->pp * p->chunks + 1;
}

void partition_boundaries(const struct partition *p, int64_t *boundaries)
{
    int64_t n = 0;
    boundaries[n++] = 0;
    for (int chunk = 0; chunk < p->chunks; chunk++)
        for (int stage = 0; stage < p->pp; stage++) {
            int64_t first, end;
            partition_range(p, stage, chunk, &first, &end);
            boundaries[n++] = 1 + end; // the embedding comes before block 0
        }
    boundaries[n - 1] += 2; // the final norm and the head
}
