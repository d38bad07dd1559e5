/*
 * ckpt_format - a checkpoint: a directory of plain files without a layout, or nothing.
 *
 *     output_dir/epoch_E_step_N/
 *         model.safetensors       the logical tensors, named as in the parameter table
 *         optimizer.safetensors   "NAME.STATE" of each, for all states of the update rule
 *         trainer.json            counters, configuration, size and hashes of the above,
 *                                 and a hash of itself (ckpt_manifest.h)
 *     output_dir/latest           the name of the one saved last, which the directory
 *                                 stands for (ckpt_find.h); with latest.next during a
 *                                 commit (ckpt_latest.h)
 *     output_dir/tokenizer/       what the data was prepared with (ckpt_tokenizer.h)
 *     output_dir/tokenizer-HASH/  the same of an earlier run in this directory
 *     output_dir/NAME.damaged     what failed to load, or stood in a save's way
 *
 * A directory of that name is complete: it was written under another name, synced, and
 * renamed. Every byte of its files is covered by a hash, and nothing is used before its
 * hash is verified.
 *
 * Here: what one process has of a model, where in which file that lies, and the hashes of
 * it. Plain data: nothing here knows about ranks, grids or messages, so parts of any
 * layout can be written and read by one process, in turn.
 *
 * Libraries: jansson, xxHash.
 */
#ifndef CKPT_CKPT_FORMAT_H
#define CKPT_CKPT_FORMAT_H

#include "base/base.h"
#include "base/error.h"
#include "ckpt/safetensors.h"
#include "optim/optimizer.h"
#include "params/param_table.h"
#include "params/shard_map.h"

/* -- what one process has ------------------------------------------------------------ */

/* A `kind` is the number of a tensor among those that a parameter has (optimizer.h): the
 * weights, and 1 + i for state i of the update rule. */

/* Elements [first, first + n) of a process's part of one parameter. `runs` says where in
 * the whole parameter that part lies. */
struct ckpt_piece {
    const struct param *row; // of this process's table, borrowed
    int64_t id; // the caller's name for the piece: its place in the shard map
    struct param_runs runs;
    int64_t first, n;
};

struct ckpt_part {
    struct ckpt_piece *pieces; // (n_pieces) in the order of the table, owned
    int64_t n_pieces;
    int64_t n_elements; // of all of them
};

/* The pieces that `map` gives to its rank. `only_counted`: leave out what another process
 * of the same replica saves. */
MUST_CHECK int ckpt_part_init(struct ckpt_part *part, const struct shard_map *map,
                              bool only_counted, struct error *err);
void ckpt_part_release(struct ckpt_part *part);

/* Element i of the piece and those after it that follow it in the whole parameter:
 * returns how many, at most n, and the place of the first in *whole. */
int64_t ckpt_piece_run(const struct ckpt_piece *piece, int64_t i, int64_t n,
                       int64_t *whole);

/* Numbers to be written: elements [first, first + n) of the piece, either where they lie
 * or copied to `buffer` (of n floats). NULL: failed, with *err filled. */
struct ckpt_source {
    const float *(*view)(void *context, int kind, const struct ckpt_piece *piece,
                         int64_t first, int64_t n, float *buffer, struct error *err);
    void *context;
};

/* Where numbers go that were read: the same elements, from x. Called by several threads
 * at once, never for the same element. */
struct ckpt_sink {
    int (*take)(void *context, int kind, const struct ckpt_piece *piece, int64_t first,
                int64_t n, const float *x, struct error *err);
    void *context;
};

/* -- which files there are ----------------------------------------------------------- */

/*
 * A function of the model, the update rule and the largest size of a file, nothing else:
 * every process computes it for itself and writes its slices in place. The tensors of a
 * set follow each other in the order of the parameter table. A set that fits is one file,
 * SET.safetensors; a larger one is cut between tensors into
 * SET-00001-of-0000N.safetensors, with the SET.safetensors.index.json that the Hugging
 * Face world reads.
 */
#define CKPT_MAX_FILE_BYTES ((int64_t)5000000000) // what the Hugging Face world cuts at
#define CKPT_FILE_NAME_BYTES SAFETENSORS_FILE_NAME_BYTES
#define CKPT_TENSOR_NAME_BYTES (PARAM_NAME_BYTES + 16)

enum ckpt_set { CKPT_MODEL, CKPT_OPTIMIZER, N_CKPT_SETS };

extern const char *const ckpt_set_names[N_CKPT_SETS];

/* A parameter has the kinds [first, end) in this set. */
struct ckpt_kinds {
    int first, end;
};
struct ckpt_kinds ckpt_set_kinds(enum ckpt_set set, const struct update_rule *rule);

/* The tensor of `param` of this kind, as files call it. */
void ckpt_tensor_name(const struct param *param, int kind, const struct update_rule *rule,
                      char name[CKPT_TENSOR_NAME_BYTES]);

struct ckpt_tensor {
    int file;
    int64_t at; // bytes from the start of the file
    int64_t n_elements;
    int64_t first_block; // of all blocks of the checkpoint
};

struct ckpt_layout_file {
    char name[CKPT_FILE_NAME_BYTES];
    struct safetensors st;
    char *header; // st.header_bytes, owned
    int64_t first_block;
};

struct ckpt_layout {
    struct ckpt_layout_file *files; // (n_files) owned
    int n_files;
    int set_files[N_CKPT_SETS + 1]; // first file of each set
    struct ckpt_tensor *tensors;    // (n_rows, n_kinds) owned
    const struct update_rule *rule;
    int n_kinds; // tensors of a parameter
    int64_t n_rows;
    int64_t n_blocks;
    int64_t n_parameters;
    int64_t n_bytes; // of the files, without indexes and manifest
};

/* `whole` is the table of the whole model. A tensor larger than max_file_bytes has a file
 * to itself. */
MUST_CHECK int ckpt_layout_init(struct ckpt_layout *layout,
                                const struct param_table *whole,
                                const struct update_rule *rule, int64_t max_file_bytes,
                                struct error *err);
void ckpt_layout_release(struct ckpt_layout *layout);

const struct ckpt_tensor *ckpt_layout_tensor(const struct ckpt_layout *layout,
                                             int64_t number, int kind);

/* The index of a set that has several files, malloc'ed for the caller to free, and its
 * file's name; *text is NULL for a set of one file. */
MUST_CHECK int ckpt_layout_index(const struct ckpt_layout *layout, enum ckpt_set set,
                                 char name[CKPT_FILE_NAME_BYTES], char **text,
                                 struct error *err);

/* -- hashes of tensor data that several processes can compute together --------------- */

/*
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
#define CKPT_BLOCK_BYTES ((int64_t)1 << 20)
#define CKPT_SUM_KEYS 4096

struct ckpt_sum_keys {
    uint32_t k[CKPT_SUM_KEYS];
};
void ckpt_sum_keys_init(struct ckpt_sum_keys *keys);

/* What words [first, first + n) of a block add to its hash. */
uint64_t ckpt_sum(const struct ckpt_sum_keys *keys, int64_t first, const float *words,
                  int64_t n);

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
/* The blocks that were added to, into records (with space for all); returns how many. */
int64_t ckpt_sums_records(const struct ckpt_sums *sums, struct ckpt_sum_record *records);
void ckpt_sums_add_record(struct ckpt_sums *sums, const struct ckpt_sum_record *record);

#endif
