/*
 * gguf_write - the header of a GGUF file (version 3), piece by piece into memory.
 *
 *     "GGUF" | u32 version | u64 n_tensors | u64 n_pairs
 *     pairs     key | u32 type | value
 *     tensors   name | u32 n_dims | u64 dims[], the fastest first | u32 type | u64 offset
 *     padding to GGUF_ALIGN | data, each tensor padded to GGUF_ALIGN
 *
 * Strings are a u64 length and their bytes; everything is little-endian. Offsets count
 * from the start of the data.
 *
 * Running out of memory is remembered and told by gguf_finish().
 */
#ifndef HUB_GGUF_WRITE_H
#define HUB_GGUF_WRITE_H

#include "base/base.h"
#include "base/error.h"

#define GGUF_ALIGN 32

enum gguf_type { // of values
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_TEXT = 8,
    GGUF_ARRAY = 9,
};

struct gguf_bytes { // grows as needed; zero-initialised is empty
    uint8_t *bytes;
    size_t n, capacity;
    bool is_short; // memory ran out
};

struct gguf_header { // zero-initialised is empty
    struct gguf_bytes pairs, tensors;
    uint64_t n_pairs, n_tensors;
    uint64_t data_bytes; // of the tensors so far, padded
};
void gguf_release(struct gguf_header *h);

void gguf_add_u32(struct gguf_header *h, const char *key, uint32_t value);
void gguf_add_f32(struct gguf_header *h, const char *key, float value);
void gguf_add_bool(struct gguf_header *h, const char *key, bool value);
void gguf_add_text(struct gguf_header *h, const char *key, const char *text);
/* An array of n elements, which the caller appends with the two below. */
void gguf_add_array(struct gguf_header *h, const char *key, enum gguf_type type,
                    uint64_t n);
void gguf_append_i32(struct gguf_header *h, int32_t value);
void gguf_append_text(struct gguf_header *h, const char *text, size_t n);

/* The next tensor, row-major `shape` with the slowest dim first. */
void gguf_add_tensor(struct gguf_header *h, const char *name, int n_dims,
                     const int64_t *shape, uint32_t ggml_type, uint64_t n_bytes);

/* All bytes before the data, malloc'ed for the caller to free. */
MUST_CHECK int gguf_finish(const struct gguf_header *h, uint8_t **bytes, size_t *n,
                           struct error *err);

#endif
