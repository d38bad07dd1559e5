/*
 * ckpt_diff - in what the tensors of a checkpoint differ from those of a model.
 */
#ifndef CKPT_CKPT_DIFF_H
#define CKPT_CKPT_DIFF_H

#include "base/base.h"
#include "base/error.h"
#include "ckpt/ckpt_format.h"
#include "ckpt/ckpt_read.h"
#include "params/param_table.h"

/* 0 if these files hold exactly the tensors that `set` has of the model `whole`, in any
 * order; else the error lists what is missing, unexpected, there twice, or of another
 * shape. `path` names the checkpoint in it. */
MUST_CHECK int ckpt_diff_check(const struct param_table *whole, enum ckpt_set set,
                               const struct update_rule *rule,
                               const struct ckpt_read_file *files, int n_files,
                               const char *path, struct error *err);

#endif
