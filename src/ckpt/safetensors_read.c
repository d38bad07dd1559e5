/*
 * Reading a file that may be hostile: the declared length of the header is checked
 * against the file before anything is allocated, the JSON library refuses duplicates and
 * numbers beyond 64 bits, every product is checked, and in the order of their offsets the
 * tensors must tile the data exactly.
 */
#include "base/fs.h"
#include "ckpt/safetensors.h"
#include "ckpt/safetensors_dtype.h"

#include <endian.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define READ_BLOCK_BYTES ((size_t)1 << 20)

/* -- the header ---------------------------------------------------------------------- */

static int refuse(struct error *err, const char *path, const char *name, const char *why)
{
    return error_set(err, ERROR_INPUT,
                     "'%s' is not a valid safetensors file: '%.200s' %s", path, name,
                     why);
}

static int cannot_read(const char *path, struct error *err)
{
    return error_set(err, fs_error_kind(errno), "cannot read '%s': %s", path,
                     strerror(errno));
}

static int parse_dtype(struct safetensors_tensor *t, const json_t *entry)
{
    const char *text = json_string_value(json_object_get(entry, "dtype"));
    for (int i = 0; text && i < N_SAFETENSORS_DTYPES; i++)
        if (strcmp(text, safetensors_dtypes[i].name) == 0) {
            t->dtype = (enum safetensors_dtype)i;
            return 0;
        }
    return -1;
}

static int parse_shape(struct safetensors_tensor *t, const json_t *entry)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape) || json_array_size(shape) > SAFETENSORS_MAX_DIMS)
        return -1;
    t->n_dims = (int)json_array_size(shape);
    for (int i = 0; i < t->n_dims; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return -1;
        t->shape[i] = json_integer_value(dim);
    }
    return 0;
}

static int parse_offsets(struct safetensors_tensor *t, const json_t *entry)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0);
    const json_t *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return -1;
    t->begin = json_integer_value(begin);
    t->end = json_integer_value(end);
    return t->begin >= 0 && t->end >= t->begin ? 0 : -1;
}

static int parse_tensor(struct safetensors *st, const char *name, const json_t *entry,
                        const char *path, struct error *err)
{
    int64_t n_bytes;
    struct safetensors_tensor *t = safetensors_add(st, name);
    if (!t)
        return error_set(err, ERROR_RUNTIME, "out of memory for the header of '%s'",
                         path);
    if (!json_is_object(entry))
        return refuse(err, path, name, "is not described by an object");
    if (parse_dtype(t, entry))
        return refuse(err, path, name, "has an unknown dtype or none");
    if (parse_shape(t, entry))
        return refuse(err, path, name,
                      "has a shape that is not a list of at most 8 sizes");
    if (parse_offsets(t, entry))
        return refuse(
            err, path, name,
            "has data_offsets that are not [begin, end] with 0 <= begin <= end");
    if (!safetensors_count(t, &n_bytes) || n_bytes != t->end - t->begin)
        return refuse(err, path, name,
                      "has data_offsets that do not fit its shape and dtype");
    return 0;
}

static int check_metadata(json_t *metadata, const char *path, struct error *err)
{
    if (!json_is_object(metadata))
        return refuse(err, path, "__metadata__", "is not an object");
    for (void *at = json_object_iter(metadata); at;
         at = json_object_iter_next(metadata, at))
        if (!json_is_string(json_object_iter_value(at)))
            return refuse(err, path, json_object_iter_key(at),
                          "in __metadata__ is not a string");
    return 0;
}

static int compare_places(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Sorted by offset, each tensor must begin where the one before it ended. */
static int check_tiling(struct safetensors *st, const char *path, struct error *err)
{
    int64_t at = 0;
    if (st->n_tensors > 1)
        qsort(st->tensors, (size_t)st->n_tensors, sizeof *st->tensors, compare_places);
    for (int64_t i = 0; i < st->n_tensors; i++) {
        const struct safetensors_tensor *t = &st->tensors[i];
        if (t->begin != at)
            return refuse(err, path, t->name,
                          t->begin < at ? "overlaps the tensor before it"
                                        : "leaves a hole before it");
        at = t->end;
    }
    if (at != st->data_bytes)
        return error_set(err, ERROR_INPUT,
                         "'%s' is not a valid safetensors file: its tensors end at byte "
                         "%lld of the data, which has %lld",
                         path, (long long)at, (long long)st->data_bytes);
    return 0;
}

static int parse_entries(struct safetensors *st, json_t *root, const char *path,
                         struct error *err)
{
    for (void *at = json_object_iter(root); at; at = json_object_iter_next(root, at)) {
        const char *name = json_object_iter_key(at);
        json_t *entry = json_object_iter_value(at);
        int rc = strcmp(name, "__metadata__") == 0
                     ? check_metadata(entry, path, err)
                     : parse_tensor(st, name, entry, path, err);
        if (rc)
            return -1;
    }
    return check_tiling(st, path, err);
}

int safetensors_parse(struct safetensors *st, const char *json, size_t n,
                      int64_t data_bytes, const char *path, struct error *err)
{
    json_error_t at;
    json_t *root = NULL;
    int rc = -1;
    *st = (struct safetensors){.header_bytes = (int64_t)n + 8, .data_bytes = data_bytes};

    if (n == 0 || json[0] != '{') {
        error_set(err, ERROR_INPUT,
                  "'%s' is not a valid safetensors file: its header does not start "
                  "with '{'",
                  path);
        goto done;
    }
    root = json_loadb(json, n, JSON_REJECT_DUPLICATES, &at);
    if (!root) {
        error_set(err, ERROR_INPUT,
                  "'%s' is not a valid safetensors file: byte %d of its header: %s", path,
                  at.position + 8, at.text);
        goto done;
    }
    rc = parse_entries(st, root, path, err);
    if (rc == 0)
        rc = safetensors_sort_names(st, err);
done:
    json_decref(root);
    if (rc)
        safetensors_release(st);
    return rc;
}

/* N, checked against the limit and against what the file has. */
static int read_header_length(int fd, const char *path, int64_t file_bytes, size_t *n,
                              struct error *err)
{
    uint64_t raw;
    if (file_bytes < 8)
        return error_set(err, ERROR_INPUT,
                         "'%s' is not a valid safetensors file: it has %lld bytes, its "
                         "header alone takes more",
                         path, (long long)file_bytes);
    if (fs_pread_exact(fd, &raw, sizeof raw, 0))
        return cannot_read(path, err);
    raw = le64toh(raw);
    if (raw > SAFETENSORS_MAX_HEADER_BYTES || raw > (uint64_t)file_bytes - 8)
        return error_set(err, ERROR_INPUT,
                         "'%s' is not a valid safetensors file, or was cut: its header "
                         "claims %llu bytes, the file has %lld and the limit is %d",
                         path, (unsigned long long)raw, (long long)file_bytes,
                         SAFETENSORS_MAX_HEADER_BYTES);
    *n = (size_t)raw;
    return 0;
}

int safetensors_read_header(struct safetensors *st, int fd, const char *path,
                            char **header, struct error *err)
{
    struct stat info;
    size_t n = 0;
    char *bytes = NULL;
    int rc = -1;
    *st = (struct safetensors){0};

    if (fstat(fd, &info)) {
        cannot_read(path, err);
        goto done;
    }
    if (!S_ISREG(info.st_mode)) {
        error_set(err, ERROR_INPUT, "cannot read '%s': it is not a regular file", path);
        goto done;
    }
    if (read_header_length(fd, path, info.st_size, &n, err))
        goto done;
    bytes = malloc(8 + n);
    if (!bytes) {
        error_set(err, ERROR_RUNTIME, "out of memory for the header of '%s' (%zu bytes)",
                  path, n);
        goto done;
    }
    if (fs_pread_exact(fd, bytes, 8 + n, 0)) {
        cannot_read(path, err);
        goto done;
    }
    rc = safetensors_parse(st, bytes + 8, n, info.st_size - 8 - (int64_t)n, path, err);
done:
    if (rc == 0 && header) {
        *header = bytes;
        bytes = NULL;
    }
    free(bytes);
    return rc;
}

/* -- the data ------------------------------------------------------------------------ */

static float float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* IEEE binary16 to binary32, exact; a NaN keeps its payload. */
static float float_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half >> 15) << 31;
    uint32_t exponent = half >> 10 & 31u, fraction = half & 1023u;
    if (exponent == 31)
        return float_from_bits(sign | 0x7F800000u | fraction << 13);
    if (exponent > 0)
        return float_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float magnitude = (float)fraction * 0x1p-24f; // zero or subnormal
    return sign ? -magnitude : magnitude;
}

bool safetensors_is_float(enum safetensors_dtype dtype)
{
    return dtype == SAFETENSORS_F32 || dtype == SAFETENSORS_F16 ||
           dtype == SAFETENSORS_BF16;
}

size_t safetensors_float_bytes(enum safetensors_dtype dtype, int64_t n)
{
    return (size_t)n * (size_t)(safetensors_dtypes[dtype].n_bits / 8);
}

void safetensors_decode_f32(enum safetensors_dtype dtype, const uint8_t *raw, int64_t n,
                            float *dst)
{
    CHECK(safetensors_is_float(dtype), "%s", safetensors_dtypes[dtype].name);
    for (int64_t i = 0; i < n && dtype == SAFETENSORS_F32; i++) {
        uint32_t word;
        memcpy(&word, raw + 4 * i, sizeof word);
        dst[i] = float_from_bits(le32toh(word));
    }
    for (int64_t i = 0; i < n && dtype != SAFETENSORS_F32; i++) {
        uint16_t half;
        memcpy(&half, raw + 2 * i, sizeof half);
        half = le16toh(half);
        dst[i] = dtype == SAFETENSORS_F16 ? float_from_f16(half)
                                          : float_from_bits((uint32_t)half << 16);
    }
}

int safetensors_read_f32(const struct safetensors *st, const struct safetensors_tensor *t,
                         int fd, const char *path, int64_t first, int64_t n, float *dst,
                         struct error *err)
{
    if (!safetensors_is_float(t->dtype))
        return error_set(err, ERROR_INPUT,
                         "tensor '%s' of '%s' has dtype %s; F32, F16 and BF16 are read",
                         t->name, path, safetensors_dtypes[t->dtype].name);
    if (first < 0 || n < 0 || first > t->n_elements - n)
        return error_set(
            err, ERROR_INPUT,
            "tensor '%s' of '%s' has %lld elements, asked for %lld from %lld", t->name,
            path, (long long)t->n_elements, (long long)n, (long long)first);
    uint8_t *block = malloc(READ_BLOCK_BYTES);
    if (!block)
        return error_set(err, ERROR_RUNTIME, "out of memory for reading '%s'", path);

    int rc = 0;
    int64_t width = (int64_t)safetensors_float_bytes(t->dtype, 1);
    int64_t n_block = (int64_t)READ_BLOCK_BYTES / width;
    for (int64_t i = 0; i < n && rc == 0; i += n_block) {
        int64_t n_now = i64_min(n_block, n - i);
        off_t at = safetensors_offset(st, t) + (first + i) * width;
        if (fs_pread_exact(fd, block, (size_t)(n_now * width), at))
            rc = error_set(err, fs_error_kind(errno),
                           "cannot read tensor '%s' of '%s': %s", t->name, path,
                           strerror(errno));
        else
            safetensors_decode_f32(t->dtype, block, n_now, dst + i);
    }
    free(block);
    return rc;
}
