/*
 * A GGUF file (hf/gguf_write.h has the layout) read from its beginning to the end of its
 * tables. Nothing in it is believed: a length is compared with what is left of the file
 * before anything is read or passed over.
 */
#include "base/fs.h"
#include "cli/inspect.h"
#include "data/formats/disk_int.h"
#include "hub/gguf_write.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "GGUF"
#define MOST_SHOWN_BYTES 200 // of a text
#define MOST_DIMS 8
#define MOST_LEVELS 4 // of arrays in arrays

struct gguf_reader {
    const char *path;
    int fd;
    uint64_t file_bytes, at; // how far it is read
    struct error *err;
    uint8_t room[65536]; // [room_at, room_at + n_room) of the file
    uint64_t room_at;
    size_t n_room;
};

static int damaged(struct gguf_reader *r, const char *what)
{
    return error_set(r->err, ERROR_INPUT,
                     "'%s' is not a readable GGUF file: at byte %llu, %s", r->path,
                     (unsigned long long)r->at, what);
}

static int skip(struct gguf_reader *r, uint64_t n)
{
    if (n > r->file_bytes - r->at)
        return damaged(r, "it is cut off or damaged");
    r->at += n;
    return 0;
}

/* n <= 256 bytes; NULL: failed. Valid until the next call. */
static const uint8_t *take(struct gguf_reader *r, size_t n)
{
    uint64_t first = r->at;
    if (skip(r, n))
        return NULL;
    if (first < r->room_at || first + n > r->room_at + r->n_room) {
        uint64_t left = r->file_bytes - first;
        r->room_at = first;
        r->n_room = left < sizeof r->room ? (size_t)left : sizeof r->room;
        if (fs_pread_exact(r->fd, r->room, r->n_room, (off_t)first)) {
            r->n_room = 0;
            error_set(r->err, fs_error_kind(errno), "cannot read '%s': %s", r->path,
                      strerror(errno));
            return NULL;
        }
    }
    return r->room + (first - r->room_at);
}

static int take_u32(struct gguf_reader *r, uint32_t *value)
{
    const uint8_t *bytes = take(r, 4);
    *value = bytes ? disk_get_u32(bytes) : 0;
    return bytes ? 0 : -1;
}

static int take_u64(struct gguf_reader *r, uint64_t *value)
{
    const uint8_t *bytes = take(r, 8);
    *value = bytes ? disk_get_u64(bytes) : 0;
    return bytes ? 0 : -1;
}

/* A text, of which the beginning is kept; NULL: failed. */
static json_t *take_text(struct gguf_reader *r)
{
    uint64_t n;
    if (take_u64(r, &n))
        return NULL;
    size_t shown = n < MOST_SHOWN_BYTES ? (size_t)n : MOST_SHOWN_BYTES;
    const uint8_t *bytes = take(r, shown);
    json_t *text = bytes ? inspect_text((const char *)bytes, shown) : NULL;
    if (text && skip(r, n - shown)) {
        json_decref(text);
        return NULL;
    }
    return text;
}

/* -- pairs --------------------------------------------------------------------------- */

static const struct value_type {
    const char *name;
    size_t n_bytes; // 0: it has no fixed size
} value_types[] = {{"u8", 1},  {"i8", 1},  {"u16", 2},  {"i16", 2},  {"u32", 4},
                   {"i32", 4}, {"f32", 4}, {"bool", 1}, {"text", 0}, {"array", 0},
                   {"u64", 8}, {"i64", 8}, {"f64", 8}};

static bool is_real(uint32_t type)
{
    return type == GGUF_F32 || type == 12;
}

static json_t *take_number(struct gguf_reader *r, uint32_t type)
{
    size_t n = value_types[type].n_bytes;
    const uint8_t *bytes = take(r, n);
    uint8_t wide[8] = {0};
    if (!bytes)
        return NULL;
    memcpy(wide, bytes, n);
    uint64_t bits = disk_get_u64(wide);
    if (type == GGUF_BOOL)
        return json_boolean(bits != 0);
    if (is_real(type)) {
        float narrow;
        double real;
        uint32_t low = (uint32_t)bits;
        memcpy(&narrow, &low, sizeof narrow);
        memcpy(&real, &bits, sizeof real);
        real = n == 4 ? (double)narrow : real;
        json_t *value = json_real(real);
        return value ? value : json_null(); // JSON has no NaN
    }
    bool is_signed = value_types[type].name[0] == 'i';
    int shift = 64 - 8 * (int)n;
    return json_integer(is_signed ? (int64_t)(bits << shift) >> shift : (int64_t)bits);
}

static int skip_values(struct gguf_reader *r, uint32_t type, uint64_t n, int level);

/* An array is told by its type and length. */
static int take_array(struct gguf_reader *r, json_t **value, int level)
{
    char text[64];
    uint32_t type;
    uint64_t n;
    if (take_u32(r, &type) || take_u64(r, &n))
        return -1;
    if (type >= ARRAY_LEN(value_types) || level >= MOST_LEVELS)
        return damaged(r, "an array is of no known type");
    snprintf(text, sizeof text, "%llu x %s", (unsigned long long)n,
             value_types[type].name);
    if (skip_values(r, type, n, level + 1))
        return -1;
    if (value)
        *value = json_string(text);
    return 0;
}

static int skip_values(struct gguf_reader *r, uint32_t type, uint64_t n, int level)
{
    size_t size = value_types[type].n_bytes;
    if (size > 0)
        return n > r->file_bytes / size ? damaged(r, "an array is longer than the file")
                                        : skip(r, n * size);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t n_text;
        if (type == GGUF_TEXT ? take_u64(r, &n_text) || skip(r, n_text)
                              : take_array(r, NULL, level))
            return -1;
    }
    return 0;
}

static int take_pair(struct gguf_reader *r, json_t *pairs)
{
    uint32_t type;
    json_t *value = NULL, *key = take_text(r);
    if (!key)
        return -1;
    int rc = take_u32(r, &type);
    if (rc == 0 && type >= ARRAY_LEN(value_types))
        rc = damaged(r, "a value is of no known type");
    if (rc == 0 && type == GGUF_ARRAY)
        (void)!take_array(r, &value, 0); // a failure leaves no value
    else if (rc == 0)
        value = type == GGUF_TEXT ? take_text(r) : take_number(r, type);
    if (value)
        json_object_setn_new(pairs, json_string_value(key), json_string_length(key),
                             value);
    json_decref(key);
    return value ? 0 : -1;
}

/* -- tensors ------------------------------------------------------------------------- */

static const char *tensor_type_name(uint32_t type, char text[24])
{
    static const char *const names[] = {
        [0] = "F32",   [1] = "F16",   [2] = "Q4_0",  [3] = "Q4_1",  [6] = "Q5_0",
        [7] = "Q5_1",  [8] = "Q8_0",  [9] = "Q8_1",  [10] = "Q2_K", [11] = "Q3_K",
        [12] = "Q4_K", [13] = "Q5_K", [14] = "Q6_K", [15] = "Q8_K", [24] = "I8",
        [25] = "I16",  [26] = "I32",  [27] = "I64",  [28] = "F64",  [30] = "BF16"};
    if (type < ARRAY_LEN(names) && names[type])
        return names[type];
    snprintf(text, 24, "type %u", type);
    return text;
}

static int take_tensor(struct gguf_reader *r, json_t *table, int64_t *n_elements)
{
    uint32_t n_dims = 0, type = 0;
    uint64_t dims[MOST_DIMS], offset;
    int64_t n = 1;
    char text[24];
    json_t *name = take_text(r), *shape = json_array();
    int rc = name ? take_u32(r, &n_dims) : -1;
    if (rc == 0 && n_dims > MOST_DIMS)
        rc = damaged(r, "a tensor has more dimensions than there are");
    for (uint32_t i = 0; rc == 0 && i < n_dims; i++) {
        rc = take_u64(r, &dims[i]);
        if (rc == 0 && (dims[i] > INT64_MAX || __builtin_mul_overflow(n, dims[i], &n)))
            rc = damaged(r, "a tensor is larger than can be");
    }
    for (uint32_t i = n_dims; rc == 0 && i-- > 0;) // the slowest first, as elsewhere
        inspect_append(shape, json_integer((int64_t)dims[i]));
    if (rc || take_u32(r, &type) || take_u64(r, &offset) ||
        __builtin_add_overflow(*n_elements, n, n_elements)) {
        json_decref(name);
        json_decref(shape);
        return rc ? -1 : damaged(r, "it is cut off or damaged");
    }
    json_t *row = json_object();
    inspect_set(row, "name", name);
    inspect_set(row, "type", json_string(tensor_type_name(type, text)));
    inspect_set(row, "shape", shape);
    inspect_set_int(row, "elements", n);
    inspect_append(table, row);
    return 0;
}

/* -- the file ------------------------------------------------------------------------ */

static int read_all(struct gguf_reader *r, json_t *report)
{
    uint32_t version = 0;
    uint64_t n_tensors = 0, n_pairs = 0;
    int64_t n_elements = 0;
    json_t *pairs = json_object(), *table = json_array();
    const uint8_t *magic = take(r, strlen(MAGIC));
    int rc = magic && memcmp(magic, MAGIC, strlen(MAGIC)) == 0
                 ? take_u32(r, &version)
                 : damaged(r, "its first bytes are not those of one");
    if (rc == 0 && (version < 2 || version > 3))
        rc = damaged(r, "its version is neither 2 nor 3");
    if (rc == 0 && (take_u64(r, &n_tensors) || take_u64(r, &n_pairs)))
        rc = -1;
    for (uint64_t i = 0; rc == 0 && i < n_pairs; i++)
        rc = take_pair(r, pairs);
    for (uint64_t i = 0; rc == 0 && i < n_tensors; i++)
        rc = take_tensor(r, table, &n_elements);
    if (rc == 0) {
        inspect_set(report, "format", json_string("GGUF, a model for llama.cpp"));
        inspect_set_int(report, "version", version);
        inspect_set_int(report, "bytes", (int64_t)r->file_bytes);
        inspect_set_int(report, "tensors", (int64_t)n_tensors);
        inspect_set_int(report, "elements", n_elements);
        inspect_set(report, "values", json_incref(pairs));
        inspect_set(report, "table", json_incref(table));
    }
    json_decref(pairs);
    json_decref(table);
    return rc;
}

json_t *inspect_gguf(const char *path, struct error *err)
{
    struct gguf_reader r = {.path = path, .err = err};
    struct stat st;
    json_t *report = NULL;
    r.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe would wait
    if (r.fd < 0) {
        error_set(err, fs_error_kind(errno), "cannot open '%s': %s", path,
                  strerror(errno));
        return NULL;
    }
    if (fstat(r.fd, &st) || !S_ISREG(st.st_mode)) {
        error_set(err, ERROR_INPUT, "cannot read '%s': it is not a file", path);
        goto done;
    }
    r.file_bytes = (uint64_t)st.st_size;
    report = json_object();
    if (read_all(&r, report)) {
        json_decref(report);
        report = NULL;
    }
done:
    close(r.fd);
    return report;
}
