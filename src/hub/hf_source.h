/*
 * hf_source - a checkpoint that is to be written in another format, tensor by tensor.
 *
 * Only the tensor that is asked for is in memory, so a model of any size can be exported
 * on a machine that could not train it. Every block read is verified (ckpt_read.h).
 */
#ifndef HUB_HF_SOURCE_H
#define HUB_HF_SOURCE_H

#include "base/error.h"
#include "ckpt/ckpt_read.h"
#include "config/config.h"
#include "hub/hf_names.h"
#include "params/param_table.h"

#include <limits.h>

struct hf_source {
    char path[PATH_MAX]; // of the checkpoint
    struct config cfg;   // it was trained with
    struct param_table table;
    struct ckpt_reader reader;
    float *raw, *turned; // (the largest tensor) each
};

/* Open what `ckpt_dir` means to ckpt_resolve(). hf_source_close() is to be called after a
 * failure too. */
MUST_CHECK int hf_source_open(struct hf_source *src, const char *ckpt_dir,
                              struct error *err);
void hf_source_close(struct hf_source *src);

/* The numbers of `row`, laid out as `dialect` wants them; valid until the next call.
 * NULL: failed. */
const float *hf_source_read(struct hf_source *src, const struct param *row,
                            enum hf_dialect dialect, struct error *err);

/* Convert n numbers to bytes of a type and write them to an open file. A number that is
 * finite in float32 and would not be in float16 is refused: `name` and `path` are for the
 * error. */
MUST_CHECK int hf_write_numbers(int fd, const float *x, int64_t n, enum dtype dtype,
                                const char *name, const char *path, struct error *err);

#endif
