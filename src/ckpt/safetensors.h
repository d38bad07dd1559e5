/*
 * safetensors - the tensor file of the Hugging Face world.
 *
 *     u64 N, little-endian | N bytes of JSON, right-padded with spaces | data
 *
 * The JSON says {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ...}, offsets
 * counted from the start of the data, and "__metadata__": strings. The tensors must tile
 * the data exactly: no hole, no overlap, nothing after the last. Row-major; alignment is
 * not assumed.
 *
 * A file is described by its header alone, so slices of a tensor can be read and written
 * by anyone who has the header: at safetensors_offset() plus the slice's own offset.
 */
#ifndef CKPT_SAFETENSORS_H
#define CKPT_SAFETENSORS_H

#include "base/base.h"
#include "base/error.h"

#define SAFETENSORS_MAX_HEADER_BYTES 100000000
#define SAFETENSORS_MAX_DIMS 8
#define SAFETENSORS_FILE_NAME_BYTES 64

enum safetensors_dtype {
    SAFETENSORS_BOOL,
    SAFETENSORS_U8,
    SAFETENSORS_I8,
    SAFETENSORS_F8_E5M2,
    SAFETENSORS_F8_E4M3,
    SAFETENSORS_F8_E8M0,
    SAFETENSORS_F8_E4M3FNUZ,
    SAFETENSORS_F8_E5M2FNUZ,
    SAFETENSORS_F4,
    SAFETENSORS_F6_E2M3,
    SAFETENSORS_F6_E3M2,
    SAFETENSORS_I16,
    SAFETENSORS_U16,
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
    SAFETENSORS_I32,
    SAFETENSORS_U32,
    SAFETENSORS_F32,
    SAFETENSORS_C64,
    SAFETENSORS_F64,
    SAFETENSORS_I64,
    SAFETENSORS_U64,
    N_SAFETENSORS_DTYPES,
};

struct safetensors_tensor {
    char *name; // owned
    enum safetensors_dtype dtype;
    int n_dims; // 0: a scalar
    int64_t shape[SAFETENSORS_MAX_DIMS];
    int64_t n_elements;
    int64_t begin, end; // bytes from the start of the data
};

struct safetensors {
    struct safetensors_tensor *tensors; // n_tensors in the order of their data, owned
    int64_t n_tensors;
    int64_t capacity;
    const struct safetensors_tensor **by_name; // of a file that was read: sorted; or NULL
    int64_t header_bytes;                      // N + 8: where the data starts
    int64_t data_bytes;
};

const char *safetensors_dtype_name(enum safetensors_dtype dtype);
void safetensors_release(struct safetensors *st);
/* The tensor called `name`, or NULL. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *st,
                                                  const char *name);
/* Where in the file the tensor's data starts. */
int64_t safetensors_offset(const struct safetensors *st,
                           const struct safetensors_tensor *t);

/* "[2, 3]" to buf, which it returns. */
const char *safetensors_shape_text(const int64_t *shape, int n_dims, char *buf,
                                   size_t size);

/* -- reading ------------------------------------------------------------------------- */

/* Fill *st from the N bytes of JSON and the number of bytes that follow them in the
 * file; `path` is for the error. Strict: whatever breaks a rule above is refused. */
MUST_CHECK int safetensors_parse(struct safetensors *st, const char *json, size_t n,
                                 int64_t data_bytes, const char *path, struct error *err);

/* Read the header of an open file: 8 + N bytes, malloc'ed to *header to be hashed (NULL:
 * not wanted), and parsed to *st. */
MUST_CHECK int safetensors_read_header(struct safetensors *st, int fd, const char *path,
                                       char **header, struct error *err);

/* True for what safetensors_read_f32() understands: F32, F16, BF16. */
bool safetensors_is_float(enum safetensors_dtype dtype);

/* Elements [first, first + n) of a float tensor of an open file, converted to dst. Other
 * types and ranges outside the tensor are errors. */
MUST_CHECK int safetensors_read_f32(const struct safetensors *st,
                                    const struct safetensors_tensor *t, int fd,
                                    const char *path, int64_t first, int64_t n,
                                    float *dst, struct error *err);

/* -- writing ------------------------------------------------------------------------- */

/* Describe the next tensor; its data follows the previous one's. Start from a zeroed
 * struct. The name is copied. */
MUST_CHECK int safetensors_append(struct safetensors *st, const char *name,
                                  enum safetensors_dtype dtype, int n_dims,
                                  const int64_t *shape, struct error *err);

/* Build the 8 + N header bytes (malloc'ed, caller frees), N a multiple of 8, and set
 * st->header_bytes. */
MUST_CHECK int safetensors_encode_header(struct safetensors *st, char **header,
                                         struct error *err);

/* File i of the n that a model called `stem` is cut into: STEM.safetensors, or
 * STEM-00001-of-0000N.safetensors of several, to which an index belongs. */
void safetensors_file_name(const char *stem, int i, int n,
                           char name[SAFETENSORS_FILE_NAME_BYTES]);
/* The text of that index, STEM.safetensors.index.json, malloc'ed for the caller to free;
 * NULL: out of memory. */
char *safetensors_index_text(const char *stem, const struct safetensors *const *files,
                             int n);

#endif
