/*
 * gguf - a checkpoint as one GGUF file (version 3) of a GPT-2 with its tokenizer, for
 * llama.cpp and what is built on it.
 *
 *     "GGUF" | u32 version | u64 n_tensors | u64 n_pairs
 *     pairs     key | u32 type | value
 *     tensors   name | u32 n_dims | u64 dims[], the fastest first | u32 type | u64 offset
 *     padding to GGUF_ALIGN | data, each tensor padded to GGUF_ALIGN
 *
 * Strings are a u64 length and their bytes; everything is little-endian. Offsets count
 * from the start of the data.
 *
 * Norms, biases and the position embedding are float32 whatever was asked for, as
 * llama.cpp's own converter has them. The head is the word embedding, so there is no
 * output.weight.
 */
#ifndef HUB_GGUF_H
#define HUB_GGUF_H

#include "hub/hub_tensors.h"
#include "text/tokenizer.h"

#define GGUF_ALIGN 32

enum gguf_type { // of values
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_TEXT = 8,
    GGUF_ARRAY = 9,
};

/* dtype: DTYPE_F32 or DTYPE_F16, of matrices. `output` must not exist; it appears
 * complete or not at all. What a GGUF cannot say of a tokenizer is refused. */
MUST_CHECK int gguf_export(struct hub_source *src, const struct tokenizer *tokenizer,
                           enum dtype dtype, const char *output, struct error *err);

#endif
