/*
 * The types of a safetensors file, a description built tensor by tensor, the header's
 * text, and reading.
 *
 * A file that is read may be hostile: the declared length of the header is checked
 * against the file before anything is allocated, the JSON library refuses duplicates and
 * numbers beyond 64 bits, every product is checked, and in the order of their offsets the
 * tensors must tile the data exactly.
 */
#include "ckpt/safetensors.h"

#include "base/dtype.h"
#include "base/fs.h"

#include <endian.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// clang-format off
static const struct dtype_row {
    const char *name; // as in the file
    int64_t n_bits;   // of one element
} dtypes[N_SAFETENSORS_DTYPES] = {
    [SAFETENSORS_BOOL]        = {"BOOL", 8},
    [SAFETENSORS_U8]          = {"U8", 8},
    [SAFETENSORS_I8]          = {"I8", 8},
    [SAFETENSORS_F8_E5M2]     = {"F8_E5M2", 8},
    [SAFETENSORS_F8_E4M3]     = {"F8_E4M3", 8},
    [SAFETENSORS_F8_E8M0]     = {"F8_E8M0", 8},
    [SAFETENSORS_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [SAFETENSORS_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [SAFETENSORS_F4]          = {"F4", 4},
    [SAFETENSORS_F6_E2M3]     = {"F6_E2M3", 6},
    [SAFETENSORS_F6_E3M2]     = {"F6_E3M2", 6},
    [SAFETENSORS_I16]         = {"I16", 16},
    [SAFETENSORS_U16]         = {"U16", 16},
    [SAFETENSORS_F16]         = {"F16", 16},
    [SAFETENSORS_BF16]        = {"BF16", 16},
    [SAFETENSORS_I32]         = {"I32", 32},
    [SAFETENSORS_U32]         = {"U32", 32},
    [SAFETENSORS_F32]         = {"F32", 32},
    [SAFETENSORS_C64]         = {"C64", 64},
    [SAFETENSORS_F64]         = {"F64", 64},
    [SAFETENSORS_I64]         = {"I64", 64},
    [SAFETENSORS_U64]         = {"U64", 64},
};
// clang-format on

const char *safetensors_dtype_name(enum safetensors_dtype dtype)
{
    return dtypes[dtype].name;
}

void safetensors_release(struct safetensors *st)
{
    for (int64_t i = 0; i < st->n_tensors; i++)
        free(st->tensors[i].name);
    free(st->tensors);
    free((void *)st->by_name);
    *st = (struct safetensors){0};
}

static int compare_names(const void *a, const void *b)
{
    const struct safetensors_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* By which safetensors_find() need not look at all of them. */
static int sort_names(struct safetensors *st, struct error *err)
{
    size_t n = (size_t)st->n_tensors;
    st->by_name = calloc(n + 1, sizeof(void *));
    if (!st->by_name)
        return error_set(err, ERROR_RUNTIME, "out of memory for %zu names", n);
    for (size_t i = 0; i < n; i++)
        st->by_name[i] = &st->tensors[i];
    if (n > 1)
        qsort((void *)st->by_name, n, sizeof(void *), compare_names);
    return 0;
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *st,
                                                  const char *name)
{
    for (int64_t i = 0; i < st->n_tensors && !st->by_name; i++)
        if (strcmp(st->tensors[i].name, name) == 0)
            return &st->tensors[i];
    int64_t low = 0, high = st->by_name ? st->n_tensors : 0;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        int order = strcmp(st->by_name[middle]->name, name);
        if (order == 0)
            return st->by_name[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

int64_t safetensors_offset(const struct safetensors *st,
                           const struct safetensors_tensor *t)
{
    return st->header_bytes + t->begin;
}

const char *safetensors_shape_text(const int64_t *shape, int n_dims, char *buf,
                                   size_t size)
{
    size_t used = (size_t)snprintf(buf, size, "[");
    for (int i = 0; i < n_dims && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%lld", i ? ", " : "",
                                 (long long)shape[i]);
    if (used < size)
        snprintf(buf + used, size - used, "]");
    return buf;
}

/* Set t->n_elements and *n_bytes from dtype and shape; false when a dim is negative, a
 * product overflows, or the elements do not fill whole bytes. */
static bool count_bytes(struct safetensors_tensor *t, int64_t *n_bytes)
{
    int64_t n_bits;
    t->n_elements = 1;
    for (int i = 0; i < t->n_dims; i++)
        if (t->shape[i] < 0 ||
            __builtin_mul_overflow(t->n_elements, t->shape[i], &t->n_elements))
            return false;
    if (__builtin_mul_overflow(t->n_elements, dtypes[t->dtype].n_bits, &n_bits) ||
        n_bits % 8 != 0)
        return false;
    *n_bytes = n_bits / 8;
    return true;
}

/* A new last tensor with a copy of the name, all else zero; NULL: out of memory. */
static struct safetensors_tensor *add_tensor(struct safetensors *st, const char *name)
{
    if (st->n_tensors == st->capacity) {
        int64_t capacity = st->capacity ? 2 * st->capacity : 64;
        struct safetensors_tensor *larger =
            realloc(st->tensors, (size_t)capacity * sizeof *larger);
        if (!larger)
            return NULL;
        st->tensors = larger;
        st->capacity = capacity;
    }
    char *copy = strdup(name);
    if (!copy)
        return NULL;
    struct safetensors_tensor *t = &st->tensors[st->n_tensors++];
    *t = (struct safetensors_tensor){.name = copy};
    return t;
}

int safetensors_append(struct safetensors *st, const char *name,
                       enum safetensors_dtype dtype, int n_dims, const int64_t *shape,
                       struct error *err)
{
    int64_t n_bytes;
    CHECK(n_dims >= 0 && n_dims <= SAFETENSORS_MAX_DIMS, "'%s' has %d dims", name,
          n_dims);
    struct safetensors_tensor *t = add_tensor(st, name);
    if (!t)
        return error_set(err, ERROR_RUNTIME, "out of memory for the header of '%s'",
                         name);
    t->dtype = dtype;
    t->n_dims = n_dims;
    memcpy(t->shape, shape, (size_t)n_dims * sizeof *shape);
    t->begin = st->data_bytes;
    if (!count_bytes(t, &n_bytes) || __builtin_add_overflow(t->begin, n_bytes, &t->end))
        return error_set(err, ERROR_INPUT, "tensor '%s' is too large for a file", name);
    st->data_bytes = t->end;
    return 0;
}

/* -- writing ------------------------------------------------------------------------- */

/* Tensors stand in the order of their data, as in the parameter table, so a layer is one
 * piece of the file. */
static json_t *tensor_to_json(const struct safetensors_tensor *t)
{
    json_t *shape = json_array();
    for (int i = 0; i < t->n_dims; i++)
        if (json_array_append_new(shape, json_integer(t->shape[i]))) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtypes[t->dtype].name, "shape",
                     shape, "data_offsets", (json_int_t)t->begin, (json_int_t)t->end);
}

static char *header_text(const struct safetensors *st)
{
    char *text = NULL;
    /* Readers of the Hugging Face world look for "format". */
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    for (int64_t i = 0; i < st->n_tensors; i++)
        if (json_object_set_new(root, st->tensors[i].name,
                                tensor_to_json(&st->tensors[i])))
            goto done;
    text = json_dumps(root, JSON_COMPACT);
done:
    json_decref(root);
    return text;
}

int safetensors_encode_header(struct safetensors *st, char **header, struct error *err)
{
    char *text = header_text(st);
    char *bytes = NULL;
    int rc = -1;
    if (!text) {
        error_set(err, ERROR_RUNTIME, "out of memory for a header of %lld tensors",
                  (long long)st->n_tensors);
        goto done;
    }
    size_t n_text = strlen(text);
    size_t n_padded = (n_text + 7) / 8 * 8;
    if (n_padded > SAFETENSORS_MAX_HEADER_BYTES) {
        error_set(err, ERROR_INPUT,
                  "a safetensors header of %zu bytes is over the limit of %d", n_padded,
                  SAFETENSORS_MAX_HEADER_BYTES);
        goto done;
    }
    bytes = malloc(8 + n_padded);
    if (!bytes) {
        error_set(err, ERROR_RUNTIME, "out of memory for a header of %zu bytes",
                  n_padded);
        goto done;
    }
    uint64_t length = htole64(n_padded);
    memcpy(bytes, &length, sizeof length);
    memcpy(bytes + 8, text, n_text);
    memset(bytes + 8 + n_text, ' ', n_padded - n_text);
    st->header_bytes = (int64_t)(8 + n_padded);
    *header = bytes;
    rc = 0;
done:
    free(text);
    return rc;
}

void safetensors_file_name(const char *stem, int i, int n,
                           char name[SAFETENSORS_FILE_NAME_BYTES])
{
    if (n == 1)
        snprintf(name, SAFETENSORS_FILE_NAME_BYTES, "%s.safetensors", stem);
    else
        snprintf(name, SAFETENSORS_FILE_NAME_BYTES, "%s-%05d-of-%05d.safetensors", stem,
                 i + 1, n);
}

char *safetensors_index_text(const char *stem, const struct safetensors *const *files,
                             int n)
{
    int64_t total = 0;
    int rc = 0;
    json_t *map = json_object();
    for (int i = 0; i < n; i++) {
        char name[SAFETENSORS_FILE_NAME_BYTES];
        safetensors_file_name(stem, i, n, name);
        total += files[i]->data_bytes;
        for (int64_t j = 0; j < files[i]->n_tensors && rc == 0; j++)
            rc = json_object_set_new(map, files[i]->tensors[j].name, json_string(name));
    }
    json_t *root = json_pack("{s:{s:I}, s:o}", "metadata", "total_size",
                             (json_int_t)total, "weight_map", map);
    char *text = root && rc == 0 ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    return text;
}

/* -- reading ------------------------------------------------------------------------- */

#define READ_BLOCK_BYTES ((size_t)1 << 20)

static int refuse_file(struct error *err, const char *path, const char *name,
                       const char *why)
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
        if (strcmp(text, dtypes[i].name) == 0) {
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
    struct safetensors_tensor *t = add_tensor(st, name);
    if (!t)
        return error_set(err, ERROR_RUNTIME, "out of memory for the header of '%s'",
                         path);
    if (!json_is_object(entry))
        return refuse_file(err, path, name, "is not described by an object");
    if (parse_dtype(t, entry))
        return refuse_file(err, path, name, "has an unknown dtype or none");
    if (parse_shape(t, entry))
        return refuse_file(err, path, name,
                           "has a shape that is not a list of at most 8 sizes");
    if (parse_offsets(t, entry))
        return refuse_file(
            err, path, name,
            "has data_offsets that are not [begin, end] with 0 <= begin <= end");
    if (!count_bytes(t, &n_bytes) || n_bytes != t->end - t->begin)
        return refuse_file(err, path, name,
                           "has data_offsets that do not fit its shape and dtype");
    return 0;
}

static int check_metadata(json_t *metadata, const char *path, struct error *err)
{
    if (!json_is_object(metadata))
        return refuse_file(err, path, "__metadata__", "is not an object");
    for (void *at = json_object_iter(metadata); at;
         at = json_object_iter_next(metadata, at))
        if (!json_is_string(json_object_iter_value(at)))
            return refuse_file(err, path, json_object_iter_key(at),
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
            return refuse_file(err, path, t->name,
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
        rc = sort_names(st, err);
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

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensor data lies in files as it does in memory");

static bool find_float(enum safetensors_dtype dtype, enum dtype *type)
{
    *type = dtype == SAFETENSORS_F16    ? DTYPE_F16
            : dtype == SAFETENSORS_BF16 ? DTYPE_BF16
                                        : DTYPE_F32;
    return *type != DTYPE_F32 || dtype == SAFETENSORS_F32;
}

bool safetensors_is_float(enum safetensors_dtype dtype)
{
    enum dtype ignored;
    return find_float(dtype, &ignored);
}

int safetensors_read_f32(const struct safetensors *st, const struct safetensors_tensor *t,
                         int fd, const char *path, int64_t first, int64_t n, float *dst,
                         struct error *err)
{
    enum dtype type;
    if (!find_float(t->dtype, &type))
        return error_set(err, ERROR_INPUT,
                         "tensor '%s' of '%s' has dtype %s; F32, F16 and BF16 are read",
                         t->name, path, dtypes[t->dtype].name);
    if (first < 0 || n < 0 || first > t->n_elements - n)
        return error_set(
            err, ERROR_INPUT,
            "tensor '%s' of '%s' has %lld elements, asked for %lld from %lld", t->name,
            path, (long long)t->n_elements, (long long)n, (long long)first);
    uint8_t *block = malloc(READ_BLOCK_BYTES);
    if (!block)
        return error_set(err, ERROR_RUNTIME, "out of memory for reading '%s'", path);

    int rc = 0;
    int64_t width = (int64_t)dtype_bytes(type);
    int64_t n_block = (int64_t)READ_BLOCK_BYTES / width;
    for (int64_t i = 0; i < n && rc == 0; i += n_block) {
        int64_t n_now = i64_min(n_block, n - i);
        off_t at = safetensors_offset(st, t) + (first + i) * width;
        if (fs_pread_exact(fd, block, (size_t)(n_now * width), at))
            rc = error_set(err, fs_error_kind(errno),
                           "cannot read tensor '%s' of '%s': %s", t->name, path,
                           strerror(errno));
        else
            dtype_load(dst + i, block, type, n_now);
    }
    free(block);
    return rc;
}
