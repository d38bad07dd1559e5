/*
 * Of checkpoints and safetensors files, headers and the manifest are read, tensors are
 * not: a checkpoint of any size is described at once. That its files are there, whole by
 * their sizes and headers, is checked; their content is verified when it is asked for. A
 * GGUF file (hub/gguf.h has the layout) is read from its beginning to the end of its
 * tables. Nothing in it is believed: a length is compared with what is left of the file
 * before anything is read or passed over.
 */
#include "cli/inspect_tensors.h"

#include "base/fs.h"
#include "base/text.h"
#include "ckpt/ckpt_find.h"
#include "ckpt/ckpt_manifest.h"
#include "ckpt/ckpt_store.h"
#include "ckpt/safetensors.h"
#include "cli/report.h"
#include "data/formats/disk_int.h"
#include "hub/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_MANIFEST_BYTES ((size_t)1 << 30)
#define MAGIC "GGUF"
#define MOST_SHOWN_BYTES 200 // of a text
#define MOST_DIMS 8
#define MOST_LEVELS 4 // of arrays in arrays

/* A descriptor, or -1. */
static int open_file(const char *path, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe would wait
    if (fd < 0)
        error_set(err, fs_error_kind(errno), "cannot open '%s': %s", path,
                  strerror(errno));
    return fd;
}

/* -- safetensors --------------------------------------------------------------------- */

static json_t *describe_tensor(const struct safetensors_tensor *t)
{
    json_t *object = json_object(), *shape = json_array();
    for (int i = 0; i < t->n_dims; i++)
        report_append(shape, json_integer(t->shape[i]));
    report_set_text(object, "name", t->name);
    report_set(object, "type", json_string(safetensors_dtype_name(t->dtype)));
    report_set(object, "shape", shape);
    report_set_int(object, "elements", t->n_elements);
    report_set_int(object, "bytes", t->end - t->begin);
    return object;
}

json_t *inspect_safetensors(const char *path, struct error *err)
{
    struct safetensors st = {0};
    json_t *object = NULL;
    int64_t n_elements = 0;
    int fd = open_file(path, err);
    if (fd < 0)
        return NULL;
    if (safetensors_read_header(&st, fd, path, NULL, err))
        goto done;
    json_t *tensors = json_array();
    for (int64_t i = 0; i < st.n_tensors; i++) {
        report_append(tensors, describe_tensor(&st.tensors[i]));
        n_elements += st.tensors[i].n_elements;
    }
    object = json_object();
    report_set_text(object, "file", path);
    report_set_int(object, "bytes", st.header_bytes + st.data_bytes);
    report_set_int(object, "tensors", st.n_tensors);
    report_set_int(object, "elements", n_elements);
    report_set(object, "table", tensors);
done:
    safetensors_release(&st);
    close(fd);
    return object;
}

/* -- one checkpoint ------------------------------------------------------------------ */

/* "damaged" is a word that scripts look for. */
static json_t *say_damaged(const char *dir, struct error *err)
{
    if (err->kind == ERROR_INPUT && !strstr(err->text, "damaged"))
        error_prefix(err, "the checkpoint '%s' is damaged", dir);
    return NULL;
}

/* The manifest as JSON, after its own hash and members were found right. */
static json_t *read_manifest(const char *dir, struct error *err)
{
    struct ckpt_info info;
    char path[PATH_MAX], *text;
    size_t n;
    json_error_t where;
    if (ckpt_read_info(dir, &info, err))
        return NULL;
    int rc = ckpt_check_name(dir, &info.progress, err);
    ckpt_info_release(&info);
    if (rc || fs_join(path, sizeof path, dir, CKPT_MANIFEST_NAME, err) ||
        fs_read_regular(path, MOST_MANIFEST_BYTES, &text, &n, err))
        return NULL;
    json_t *manifest = json_loadb(text, n, 0, &where);
    free(text);
    if (!manifest)
        error_set(err, ERROR_INPUT, "'%s':%d:%d: %s", path, where.line, where.column,
                  where.text);
    return manifest;
}

/* What the manifest says of the run, and the parts of its configuration that say what was
 * trained and on what. */
static void add_facts(json_t *object, const json_t *manifest)
{
    static const char *const members[] = {
        "step",          "epoch",           "consumed_samples", "n_parameters",
        "loss_scaler",   "program_version", "data_fingerprint", "run_id",
        "tokenizer_hash"};
    static const char *const sections[] = {"Model", "batch_size", "dataset"};
    const json_t *config = json_object_get(manifest, "config");
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        json_t *value = json_object_get(manifest, members[i]);
        if (value)
            report_set(object, members[i], json_incref(value));
    }
    for (size_t i = 0; i < ARRAY_LEN(sections); i++) {
        json_t *section = json_object_get(config, sections[i]);
        if (section)
            report_set(object, sections[i], json_incref(section));
    }
}

/* Every file that the manifest names, checked; those of tensors described. */
static int add_files(json_t *object, const char *dir, const json_t *manifest,
                     struct error *err)
{
    const char *name;
    json_t *record, *files = json_array();
    report_set(object, "files", files);
    json_object_foreach(json_object_get(manifest, "files"), name, record)
    {
        char path[PATH_MAX];
        bool is_damaged;
        if (ckpt_manifest_check_file(dir, name, record, &is_damaged, err) ||
            fs_join(path, sizeof path, dir, name, err))
            return -1;
        if (!text_ends_with(name, ".safetensors"))
            continue;
        json_t *file = inspect_safetensors(path, err);
        if (!file)
            return -1;
        // two tensors for each of the model's: whoever wants to see them names the file
        if (strncmp(name, "optimizer", strlen("optimizer")) == 0)
            json_object_del(file, "table");
        report_append(files, file);
    }
    return 0;
}

json_t *inspect_checkpoint(const char *dir, bool verifies, struct error *err)
{
    bool is_damaged;
    if (verifies && ckpt_verify(dir, N_CKPT_SETS, &is_damaged, err))
        return say_damaged(dir, err);
    json_t *manifest = read_manifest(dir, err);
    if (!manifest)
        return say_damaged(dir, err);
    json_t *object = json_object();
    report_set_text(object, "directory", dir);
    report_set(object, "state", json_string(verifies ? "whole" : "not verified"));
    add_facts(object, manifest);
    int rc = add_files(object, dir, manifest, err);
    json_decref(manifest);
    if (rc == 0)
        return object;
    json_decref(object);
    return say_damaged(dir, err);
}

/* -- a directory of them ------------------------------------------------------------- */

/* Is dir/name called like a checkpoint, or a directory with a manifest? Then its path. */
static bool is_checkpoint(const char *dir, const char *name, char path[PATH_MAX])
{
    struct error err;
    struct ckpt_name parsed;
    char manifest[PATH_MAX];
    return fs_join(path, PATH_MAX, dir, name, &err) == 0 &&
           fs_join(manifest, sizeof manifest, path, CKPT_MANIFEST_NAME, &err) == 0 &&
           (ckpt_name_parse(name, &parsed) || fs_exists(manifest));
}

static json_t *describe_row(const char *name, const json_t *checkpoint,
                            const struct error *why)
{
    static const char *const members[] = {"step", "epoch", "state"};
    json_t *row = json_object();
    report_set_text(row, "name", name);
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        json_t *value = json_object_get(checkpoint, members[i]);
        report_set(row, members[i], value ? json_incref(value) : json_null());
    }
    if (!checkpoint)
        report_set_text(row, "state", why->text);
    return row;
}

static int64_t step_of(const json_t *checkpoint)
{
    return json_integer_value(json_object_get(checkpoint, "step"));
}

/* Of directories under other names than a run gives: the highest step. */
static const char *find_highest(json_t *whole)
{
    const char *name, *highest = NULL;
    json_t *checkpoint;
    json_object_foreach(whole, name, checkpoint)
    {
        if (!highest || step_of(checkpoint) > step_of(json_object_get(whole, highest)))
            highest = name;
    }
    return highest;
}

/* The one of `whole`, by name, that stands for `dir`; *taken "": there is none, *why. */
static int find_taken(char taken[NAME_MAX + 1], const char *dir, json_t *whole,
                      struct error *why, struct error *err)
{
    struct ckpt_list order;
    const char *highest = find_highest(whole);
    taken[0] = 0;
    error_set(why, ERROR_INPUT, "no checkpoint in '%s' is whole", dir);
    if (!highest)
        return 0;
    if (ckpt_newest_step(dir) < 0) {
        snprintf(taken, NAME_MAX + 1, "%s", highest);
        return 0;
    }
    if (ckpt_find_order(dir, true, &order, why)) {
        if (why->kind == ERROR_INPUT)
            return 0;
        *err = *why;
        return -1;
    }
    for (int64_t i = 0; i < order.n_names && !taken[0]; i++)
        if (json_object_get(whole, order.names[i].text))
            snprintf(taken, NAME_MAX + 1, "%s", order.names[i].text);
    ckpt_list_release(&order);
    return 0;
}

/* One row, and the description in `whole` if it is not damaged. */
static int add_row(json_t *rows, json_t *whole, const char *name, const char *path,
                   bool verifies, int64_t *n_damaged, struct error *err)
{
    struct error why;
    struct ckpt_name parsed;
    json_t *checkpoint = inspect_checkpoint(path, verifies, &why);
    report_append(rows, describe_row(name, checkpoint, &why));
    if (checkpoint) {
        report_set(whole, name, checkpoint);
        return 0;
    }
    *n_damaged += ckpt_name_parse(name, &parsed);
    if (!verifies || why.kind == ERROR_INPUT)
        return 0;
    *err = why;
    return -1;
}

int inspect_checkpoints(const char *dir, bool verifies, json_t **rows, json_t **taken,
                        struct error *why, int64_t *n_damaged, struct error *err)
{
    struct fs_names names;
    char taken_name[NAME_MAX + 1] = "";
    int rc = 0;
    *rows = *taken = NULL;
    *n_damaged = 0;
    if (fs_list(dir, &names, err))
        return -1;
    *rows = json_array();
    json_t *whole = json_object();
    for (int64_t i = 0; i < names.n_names && rc == 0; i++) {
        char path[PATH_MAX];
        if (is_checkpoint(dir, names.names[i], path))
            rc = add_row(*rows, whole, names.names[i], path, verifies, n_damaged, err);
    }
    fs_names_release(&names);
    if (rc == 0 && json_array_size(*rows) > 0)
        rc = find_taken(taken_name, dir, whole, why, err);
    *taken = json_incref(json_object_get(whole, taken_name));
    json_decref(whole);
    return rc;
}

/* -- GGUF: reading ------------------------------------------------------------------- */

struct gguf_reader {
    const char *path;
    int fd;
    uint64_t file_bytes, at; // how far it is read
    struct error *err;
    uint8_t buffer[65536]; // [buffer_at, buffer_at + n_buffer) of the file
    uint64_t buffer_at;
    size_t n_buffer;
};

static int gguf_refuse(struct gguf_reader *r, const char *what)
{
    return error_set(r->err, ERROR_INPUT,
                     "'%s' is not a readable GGUF file: at byte %llu, %s", r->path,
                     (unsigned long long)r->at, what);
}

static int gguf_skip(struct gguf_reader *r, uint64_t n)
{
    if (n > r->file_bytes - r->at)
        return gguf_refuse(r, "it is cut off or damaged");
    r->at += n;
    return 0;
}

/* n <= 256 bytes; NULL: failed. Valid until the next call. */
static const uint8_t *gguf_read(struct gguf_reader *r, size_t n)
{
    uint64_t first = r->at;
    if (gguf_skip(r, n))
        return NULL;
    if (first < r->buffer_at || first + n > r->buffer_at + r->n_buffer) {
        uint64_t left = r->file_bytes - first;
        r->buffer_at = first;
        r->n_buffer = left < sizeof r->buffer ? (size_t)left : sizeof r->buffer;
        if (fs_pread_exact(r->fd, r->buffer, r->n_buffer, (off_t)first)) {
            r->n_buffer = 0;
            error_set(r->err, fs_error_kind(errno), "cannot read '%s': %s", r->path,
                      strerror(errno));
            return NULL;
        }
    }
    return r->buffer + (first - r->buffer_at);
}

static int gguf_read_u32(struct gguf_reader *r, uint32_t *value)
{
    const uint8_t *bytes = gguf_read(r, 4);
    *value = bytes ? disk_get_u32(bytes) : 0;
    return bytes ? 0 : -1;
}

static int gguf_read_u64(struct gguf_reader *r, uint64_t *value)
{
    const uint8_t *bytes = gguf_read(r, 8);
    *value = bytes ? disk_get_u64(bytes) : 0;
    return bytes ? 0 : -1;
}

/* A text, truncated if long; NULL: failed. */
static json_t *gguf_read_text(struct gguf_reader *r)
{
    uint64_t n;
    if (gguf_read_u64(r, &n))
        return NULL;
    size_t shown = n < MOST_SHOWN_BYTES ? (size_t)n : MOST_SHOWN_BYTES;
    const uint8_t *bytes = gguf_read(r, shown);
    json_t *text = bytes ? report_text((const char *)bytes, shown) : NULL;
    if (text && gguf_skip(r, n - shown)) {
        json_decref(text);
        return NULL;
    }
    return text;
}

/* -- GGUF: pairs --------------------------------------------------------------------- */

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

static json_t *gguf_read_number(struct gguf_reader *r, uint32_t type)
{
    size_t n = value_types[type].n_bytes;
    const uint8_t *bytes = gguf_read(r, n);
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

static int gguf_skip_values(struct gguf_reader *r, uint32_t type, uint64_t n, int level);

/* An array is reported by its type and length. */
static int gguf_read_array(struct gguf_reader *r, json_t **value, int level)
{
    char text[64];
    uint32_t type;
    uint64_t n;
    if (gguf_read_u32(r, &type) || gguf_read_u64(r, &n))
        return -1;
    if (type >= ARRAY_LEN(value_types) || level >= MOST_LEVELS)
        return gguf_refuse(r, "an array is of no known type");
    snprintf(text, sizeof text, "%llu x %s", (unsigned long long)n,
             value_types[type].name);
    if (gguf_skip_values(r, type, n, level + 1))
        return -1;
    if (value)
        *value = json_string(text);
    return 0;
}

static int gguf_skip_values(struct gguf_reader *r, uint32_t type, uint64_t n, int level)
{
    size_t size = value_types[type].n_bytes;
    if (size > 0)
        return n > r->file_bytes / size
                   ? gguf_refuse(r, "an array is longer than the file")
                   : gguf_skip(r, n * size);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t n_text;
        if (type == GGUF_TEXT ? gguf_read_u64(r, &n_text) || gguf_skip(r, n_text)
                              : gguf_read_array(r, NULL, level))
            return -1;
    }
    return 0;
}

static int gguf_read_pair(struct gguf_reader *r, json_t *pairs)
{
    uint32_t type;
    json_t *value = NULL, *key = gguf_read_text(r);
    if (!key)
        return -1;
    int rc = gguf_read_u32(r, &type);
    if (rc == 0 && type >= ARRAY_LEN(value_types))
        rc = gguf_refuse(r, "a value is of no known type");
    if (rc == 0 && type == GGUF_ARRAY)
        (void)!gguf_read_array(r, &value, 0); // a failure leaves no value
    else if (rc == 0)
        value = type == GGUF_TEXT ? gguf_read_text(r) : gguf_read_number(r, type);
    if (value)
        json_object_setn_new(pairs, json_string_value(key), json_string_length(key),
                             value);
    json_decref(key);
    return value ? 0 : -1;
}

/* -- GGUF: tensors ------------------------------------------------------------------- */

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

static int gguf_read_tensor(struct gguf_reader *r, json_t *table, int64_t *n_elements)
{
    uint32_t n_dims = 0, type = 0;
    uint64_t dims[MOST_DIMS], offset;
    int64_t n = 1;
    char text[24];
    json_t *name = gguf_read_text(r), *shape = json_array();
    int rc = name ? gguf_read_u32(r, &n_dims) : -1;
    if (rc == 0 && n_dims > MOST_DIMS)
        rc = gguf_refuse(r, "a tensor has more dimensions than there are");
    for (uint32_t i = 0; rc == 0 && i < n_dims; i++) {
        rc = gguf_read_u64(r, &dims[i]);
        if (rc == 0 && (dims[i] > INT64_MAX || __builtin_mul_overflow(n, dims[i], &n)))
            rc = gguf_refuse(r, "a tensor is larger than can be");
    }
    for (uint32_t i = n_dims; rc == 0 && i-- > 0;) // the slowest first, as elsewhere
        report_append(shape, json_integer((int64_t)dims[i]));
    if (rc || gguf_read_u32(r, &type) || gguf_read_u64(r, &offset) ||
        __builtin_add_overflow(*n_elements, n, n_elements)) {
        json_decref(name);
        json_decref(shape);
        return rc ? -1 : gguf_refuse(r, "it is cut off or damaged");
    }
    json_t *row = json_object();
    report_set(row, "name", name);
    report_set(row, "type", json_string(tensor_type_name(type, text)));
    report_set(row, "shape", shape);
    report_set_int(row, "elements", n);
    report_append(table, row);
    return 0;
}

/* -- GGUF: the file ------------------------------------------------------------------ */

static int gguf_read_all(struct gguf_reader *r, json_t *report)
{
    uint32_t version = 0;
    uint64_t n_tensors = 0, n_pairs = 0;
    int64_t n_elements = 0;
    json_t *pairs = json_object(), *table = json_array();
    const uint8_t *magic = gguf_read(r, strlen(MAGIC));
    int rc = magic && memcmp(magic, MAGIC, strlen(MAGIC)) == 0
                 ? gguf_read_u32(r, &version)
                 : gguf_refuse(r, "its first bytes are not those of one");
    if (rc == 0 && (version < 2 || version > 3))
        rc = gguf_refuse(r, "its version is neither 2 nor 3");
    if (rc == 0 && (gguf_read_u64(r, &n_tensors) || gguf_read_u64(r, &n_pairs)))
        rc = -1;
    for (uint64_t i = 0; rc == 0 && i < n_pairs; i++)
        rc = gguf_read_pair(r, pairs);
    for (uint64_t i = 0; rc == 0 && i < n_tensors; i++)
        rc = gguf_read_tensor(r, table, &n_elements);
    if (rc == 0) {
        report_set(report, "format", json_string("GGUF, a model for llama.cpp"));
        report_set_int(report, "version", version);
        report_set_int(report, "bytes", (int64_t)r->file_bytes);
        report_set_int(report, "tensors", (int64_t)n_tensors);
        report_set_int(report, "elements", n_elements);
        report_set(report, "values", json_incref(pairs));
        report_set(report, "table", json_incref(table));
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
    if ((r.fd = open_file(path, err)) < 0)
        return NULL;
    if (fstat(r.fd, &st) || !S_ISREG(st.st_mode)) {
        error_set(err, ERROR_INPUT, "cannot read '%s': it is not a file", path);
        goto done;
    }
    r.file_bytes = (uint64_t)st.st_size;
    report = json_object();
    if (gguf_read_all(&r, report)) {
        json_decref(report);
        report = NULL;
    }
done:
    close(r.fd);
    return report;
}
