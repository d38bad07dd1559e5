/*
 * ckpt_sum - hashes of tensor data that several processes can compute together.
 *
 * The data of a tensor is cut into blocks of CKPT_BLOCK_BYTES. The hash of a block is a
 * sum over its 32-bit words, so it does not matter who has which of them, nor in which
 * order they come: processes add up what each wrote, and a reader on any other layout
 * checks the blocks it touches. The same numbers have the same hashes on every layout.
 *
 *     hash = sum over c, j of  m_c * k_j * word[c * CKPT_SUM_KEYS + j]   mod 2^64
 *
 *     mix(x):  x ^= x >> 16;  x *= 0x85EBCA6B;  x ^= x >> 13;  x *= 0xC2B2AE35;
 *              x ^= x >> 16                                        (32 bits)
 *     k_j = 2 * mix(j + 1) + 1   mod 2^32                          (all different)
 *     m_c = 2^32 * mix(2 c + 1) + 2 * mix(2 c + 2) + 1   mod 2^64
 *
 * Multipliers are odd: a changed word always changes the hash. So do two flipped bits,
 * and two words that changed places, in one run of CKPT_SUM_KEYS words: the difference is
 * not zero and less than 2^64. Anything else is missed about once in 2^60. Against
 * someone who means harm it is no protection.
 *
 * Words are little-endian in files and taken as they lie in memory.
 */
#ifndef CKPT_CKPT_SUM_H
#define CKPT_CKPT_SUM_H

#include "base/base.h"
#include "base/error.h"

#define CKPT_BLOCK_BYTES ((int64_t)1 << 20)
#define CKPT_SUM_KEYS 4096

struct ckpt_sum_keys {
    uint32_t k[CKPT_SUM_KEYS];
};
void ckpt_sum_keys_init(struct ckpt_sum_keys *keys);

/* What words [first, first + n) of a block add to its hash. */
uint64_t ckpt_sum(const struct ckpt_sum_keys *keys, int64_t first, const float *words,
                  int64_t n);

/* -- the blocks of all tensors ------------------------------------------------------- */

struct ckpt_sums {
    struct ckpt_sum_keys keys;
    int64_t n_blocks;
    uint64_t *hashes; // (n_blocks) so far
    int64_t *counts;  // (n_blocks) words that were added
};

MUST_CHECK int ckpt_sums_init(struct ckpt_sums *sums, int64_t n_blocks,
                              struct error *err);
void ckpt_sums_release(struct ckpt_sums *sums);
void ckpt_sums_reset(struct ckpt_sums *sums); // nothing added yet

/* Add words [first, first + n) of the tensor whose first block is first_block. */
void ckpt_sums_add(struct ckpt_sums *sums, int64_t first_block, int64_t first,
                   const float *words, int64_t n);

/* Blocks of a tensor of n words, and the words of its block i. */
int64_t ckpt_n_blocks(int64_t n_words);
int64_t ckpt_block_words(int64_t n_words, int64_t i);

/* What one process added to one block: what processes send each other. */
struct ckpt_sum_record {
    int64_t block, count;
    uint64_t hash;
};
/* The blocks that were added to, into records (room for all); returns how many. */
int64_t ckpt_sums_records(const struct ckpt_sums *sums, struct ckpt_sum_record *records);
void ckpt_sums_add_record(struct ckpt_sums *sums, const struct ckpt_sum_record *record);

#endif
