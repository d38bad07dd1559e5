/*
 * hf_names - what other programs call our parameters, and how they lay them out.
 *
 * One table serves both ways and both formats:
 *   transformers   GPT-2's names; matrices of Conv1D are (in, out), the others as ours
 *   GGUF           llama.cpp's names; all matrices as ours, (out, in)
 * Both take a fused qkv of blocks q | k | v with the heads contiguous in each, which is
 * what [3, heads, head_dim, hidden] is.
 */
#ifndef HUB_HF_NAMES_H
#define HUB_HF_NAMES_H

#include "base/base.h"
#include "params/param_table.h"

#define HF_NAME_BYTES 80
#define HF_PREFIX                                                                        \
    "transformer." // of all names in a GPT2LMHeadModel, of none in a GPT2Model

enum hf_dialect { HF_TRANSFORMERS, HF_GGUF, N_HF_DIALECTS };

struct hf_shape {
    int n_dims;       // 1 or 2
    int64_t shape[2]; // as the other program has it
    bool is_transposed;
};

/* The name of `row` without HF_PREFIX, and its shape there. */
void hf_name(const struct param *row, enum hf_dialect dialect, char name[HF_NAME_BYTES]);
struct hf_shape hf_shape(const struct param *row, enum hf_dialect dialect);

/* A tensor that files of transformers may hold and that is no parameter: the buffers of
 * the causal mask, h.N.attn.bias and h.N.attn.masked_bias. `name` has no HF_PREFIX. */
bool hf_name_is_buffer(const char *name);

/* y (cols, rows) := x (rows, cols) transposed. */
void hf_transpose(float *y, const float *x, int64_t rows, int64_t cols);

#endif
