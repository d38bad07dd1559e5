/*
 * The inner loop is a 32 x 32 -> 64 bit product and a sum a word, which compilers turn
 * into vectors of any width: it runs at the speed of memory. Integer sums may be taken in
 * any order.
 */
#include "ckpt/ckpt_sum.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensor data is written to files as it lies in memory");

#define BLOCK_WORDS (CKPT_BLOCK_BYTES / (int64_t)sizeof(float))

static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    return x ^ x >> 16;
}

static uint64_t run_multiplier(int64_t c)
{
    uint32_t i = 2 * (uint32_t)c;
    return ((uint64_t)mix(i + 1) << 32) + 2 * (uint64_t)mix(i + 2) + 1;
}

void ckpt_sum_keys_init(struct ckpt_sum_keys *keys)
{
    for (uint32_t j = 0; j < CKPT_SUM_KEYS; j++)
        keys->k[j] = 2 * mix(j + 1) + 1;
}

static uint64_t sum_run(const uint32_t *k, const float *words, int64_t n)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, words + i, sizeof word);
        sum += (uint64_t)k[i] * word;
    }
    return sum;
}

uint64_t ckpt_sum(const struct ckpt_sum_keys *keys, int64_t first, const float *words,
                  int64_t n)
{
    uint64_t sum = 0;
    for (int64_t done = 0; done < n;) {
        int64_t c = (first + done) / CKPT_SUM_KEYS, j = (first + done) % CKPT_SUM_KEYS;
        int64_t part = i64_min(n - done, CKPT_SUM_KEYS - j);
        sum += run_multiplier(c) * sum_run(keys->k + j, words + done, part);
        done += part;
    }
    return sum;
}

/* -- blocks -------------------------------------------------------------------------- */

int ckpt_sums_init(struct ckpt_sums *sums, int64_t n_blocks, struct error *err)
{
    *sums = (struct ckpt_sums){.n_blocks = n_blocks};
    ckpt_sum_keys_init(&sums->keys);
    sums->hashes = calloc((size_t)n_blocks + 1, sizeof *sums->hashes);
    sums->counts = calloc((size_t)n_blocks + 1, sizeof *sums->counts);
    if (sums->hashes && sums->counts)
        return 0;
    ckpt_sums_release(sums);
    return error_set(err, ERROR_RUNTIME, "out of memory for the hashes of %lld blocks",
                     (long long)n_blocks);
}

void ckpt_sums_release(struct ckpt_sums *sums)
{
    free(sums->hashes);
    free(sums->counts);
    sums->hashes = NULL;
    sums->counts = NULL;
    sums->n_blocks = 0;
}

void ckpt_sums_reset(struct ckpt_sums *sums)
{
    memset(sums->hashes, 0, (size_t)sums->n_blocks * sizeof *sums->hashes);
    memset(sums->counts, 0, (size_t)sums->n_blocks * sizeof *sums->counts);
}

void ckpt_sums_add(struct ckpt_sums *sums, int64_t first_block, int64_t first,
                   const float *words, int64_t n)
{
    for (int64_t done = 0; done < n;) {
        int64_t block = first_block + (first + done) / BLOCK_WORDS;
        int64_t inside = (first + done) % BLOCK_WORDS;
        int64_t part = i64_min(n - done, BLOCK_WORDS - inside);
        CHECK(block < sums->n_blocks, "block %lld of %lld", (long long)block,
              (long long)sums->n_blocks);
        sums->hashes[block] += ckpt_sum(&sums->keys, inside, words + done, part);
        sums->counts[block] += part;
        done += part;
    }
}

int64_t ckpt_n_blocks(int64_t n_words)
{
    return n_words / BLOCK_WORDS + (n_words % BLOCK_WORDS > 0);
}

int64_t ckpt_block_words(int64_t n_words, int64_t i)
{
    return i64_min(BLOCK_WORDS, n_words - i * BLOCK_WORDS);
}

int64_t ckpt_sums_records(const struct ckpt_sums *sums, struct ckpt_sum_record *records)
{
    int64_t n = 0;
    for (int64_t i = 0; i < sums->n_blocks; i++)
        if (sums->counts[i] > 0)
            records[n++] = (struct ckpt_sum_record){i, sums->counts[i], sums->hashes[i]};
    return n;
}

void ckpt_sums_add_record(struct ckpt_sums *sums, const struct ckpt_sum_record *record)
{
    CHECK(record->block >= 0 && record->block < sums->n_blocks, "block %lld of %lld",
          (long long)record->block, (long long)sums->n_blocks);
    sums->hashes[record->block] += record->hash;
    sums->counts[record->block] += record->count;
}
