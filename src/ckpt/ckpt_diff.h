/*
 * ckpt_diff - which tensors a checkpoint file must hold for a model, and in what a given
 * file differs from that.
 */
#ifndef CKPT_CKPT_DIFF_H
#define CKPT_CKPT_DIFF_H

#include "base/base.h"
#include "base/error.h"
#include "ckpt/safetensors.h"
#include "model/param_table.h"

#define CKPT_MAX_PARTS 2

struct ckpt_part {      // one flat buffer of struct ckpt_state
    const char *suffix; // of the tensor names, after the parameter's
    size_t buffer;      // offset of the pointer in struct ckpt_state
};

struct ckpt_file_spec {
    const char *name;
    int n_parts; // tensors a parameter
    struct ckpt_part parts[CKPT_MAX_PARTS];
};

struct ckpt_entry { // one tensor of a file
    char name[PARAM_NAME_BYTES + 16];
    const struct param *param;
    const struct ckpt_part *part;
};

/* The tensors of a file in their order: all parts of the first parameter, and so on. */
int64_t ckpt_n_entries(const struct ckpt_file_spec *spec,
                       const struct param_table *table);
struct ckpt_entry ckpt_entry_at(const struct ckpt_file_spec *spec,
                                const struct param_table *table, int64_t i);

/* 0 if the file has exactly these tensors, in any order and any float type; else the
 * error lists what is missing, unexpected, or of another shape. */
MUST_CHECK int ckpt_diff_check(const struct ckpt_file_spec *spec,
                               const struct param_table *table,
                               const struct safetensors *st, const char *path,
                               struct error *err);

#endif
