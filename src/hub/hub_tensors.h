/*
 * hub_tensors - our parameters as other programs have them: what they call them, how they
 * lay them out, and the numbers of a checkpoint in that layout.
 *
 * One table serves both ways and both formats:
 *   transformers   GPT-2's names; matrices of Conv1D are (in, out), the others as ours
 *   GGUF           llama.cpp's names; all matrices as ours, (out, in)
 * Both take a fused qkv of blocks q | k | v with the heads contiguous in each, which is
 * what [3, heads, head_dim, hidden] is.
 */
#ifndef HUB_HUB_TENSORS_H
#define HUB_HUB_TENSORS_H

#include "base/base.h"
#include "base/error.h"
#include "ckpt/ckpt_read.h"
#include "config/config.h"
#include "params/param_table.h"

#include <limits.h>

#define HF_NAME_BYTES 80
#define HF_PREFIX                                                                        \
    "transformer." // of all names in a GPT2LMHeadModel, of none in a GPT2Model

enum hf_dialect { HF_TRANSFORMERS, HF_GGUF, N_HF_DIALECTS };

struct hf_shape {
    int n_dims;       // 1 or 2
    int64_t shape[2]; // as the other program has it
    bool is_transposed;
};

/* Refuse a model with a parameter that other programs have no name for. */
MUST_CHECK int hf_names_check(const struct param_table *whole, struct error *err);

/* The name of `row` without HF_PREFIX, and its shape there. */
void hf_name(const struct param *row, enum hf_dialect dialect, char name[HF_NAME_BYTES]);
struct hf_shape hf_shape(const struct param *row, enum hf_dialect dialect);

/* A tensor that files of transformers may hold and that is no parameter: the buffers of
 * the causal mask, h.N.attn.bias and h.N.attn.masked_bias. `name` has no HF_PREFIX. */
bool hf_name_is_buffer(const char *name);

/* y (cols, rows) := x (rows, cols) transposed. */
void hf_transpose(float *y, const float *x, int64_t rows, int64_t cols);

/*
 * A checkpoint that is to be written in another format, tensor by tensor. Only the tensor
 * that is asked for is in memory, so a model of any size can be exported on a machine that
 * could not train it. Every block read is verified (ckpt_read.h).
 */
struct hub_source {
    char path[PATH_MAX]; // of the checkpoint
    struct config cfg;   // it was trained with
    struct param_table table;
    struct ckpt_reader reader;
    float *raw, *turned; // (the largest tensor) each
};

/* Open what `ckpt_dir` means to ckpt_resolve(). hub_source_close() is to be called after a
 * failure too. */
MUST_CHECK int hub_source_open(struct hub_source *src, const char *ckpt_dir,
                               struct error *err);
void hub_source_close(struct hub_source *src);

/* The numbers of `row`, laid out as `dialect` wants them; valid until the next call.
 * NULL: failed. */
const float *hub_source_read(struct hub_source *src, const struct param *row,
                             enum hf_dialect dialect, struct error *err);

/* Convert n numbers to bytes of a type and write them to an open file. A number that is
 * finite in float32 and would not be in float16 is refused: `name` and `path` are for the
 * error. */
MUST_CHECK int hf_write_numbers(int fd, const float *x, int64_t n, enum dtype dtype,
                                const char *name, const char *path, struct error *err);

#endif
