/*
 * ckpt_layout - which files a new checkpoint has, and where in them each tensor lies.
 *
 * A function of the model and the largest size of a file, nothing else: every process
 * computes it for itself and writes its slices in place. The tensors of a set follow each
 * other in the order of the parameter table:
 *
 *     model       NAME
 *     optimizer   NAME.STATE of each state of the update rule
 *
 * A set that fits is one file, SET.safetensors; a larger one is cut between tensors into
 * SET-00001-of-0000N.safetensors, with the SET.safetensors.index.json that the Hugging
 * Face world reads.
 */
#ifndef CKPT_CKPT_LAYOUT_H
#define CKPT_CKPT_LAYOUT_H

#include "base/base.h"
#include "base/error.h"
#include "ckpt/ckpt_part.h"
#include "ckpt/safetensors.h"
#include "optim/optimizer.h"
#include "params/param_table.h"

#define CKPT_FILE_NAME_BYTES 64
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

#endif
