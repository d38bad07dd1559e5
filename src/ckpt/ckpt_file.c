/*
 * Which file holds which tensors is said once, in the table below; writing, reading and
 * the sizes follow from it and the parameter table.
 *
 * The unit of I/O is the hash block: a block is read, hashed, compared, and only then
 * decoded to where it belongs.
 */
#include "ckpt/ckpt_file.h"

#include "base/fs.h"
#include "ckpt/ckpt_diff.h"
#include "ckpt/ckpt_failpoint.h"
#include "ckpt/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// clang-format off
static const struct ckpt_file_spec file_specs[] = {
    {CKPT_MODEL_NAME,     1, {{"",            offsetof(struct ckpt_state, params)}}},
    {CKPT_OPTIMIZER_NAME, 2, {{".exp_avg",    offsetof(struct ckpt_state, exp_avg)},
                              {".exp_avg_sq", offsetof(struct ckpt_state, exp_avg_sq)}}},
};
// clang-format on

static const struct ckpt_file_spec *find_spec(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(file_specs); i++)
        if (strcmp(file_specs[i].name, name) == 0)
            return &file_specs[i];
    CHECK(false, "no checkpoint file is called '%s'", name);
}

int64_t ckpt_file_n_tensors(const struct param_table *table)
{
    int64_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(file_specs); i++)
        n += ckpt_n_entries(&file_specs[i], table);
    return n;
}

uint64_t ckpt_file_data_bytes(const struct param_table *table)
{
    uint64_t n_buffers = 0;
    for (size_t i = 0; i < ARRAY_LEN(file_specs); i++)
        n_buffers += (uint64_t)file_specs[i].n_parts;
    return n_buffers * (uint64_t)table->n_elements * sizeof(float);
}

/* Where the tensor of `entry` lies in the flat buffers of `state`. */
static float *entry_data(const struct ckpt_entry *entry, const struct ckpt_state *state)
{
    float *flat;
    memcpy(&flat, (const char *)state + entry->part->buffer, sizeof flat);
    return flat + entry->param->offset;
}

/* -- writing ------------------------------------------------------------------------- */

struct file_writer {
    char path[PATH_MAX];
    int fd;
    struct safetensors st;
    char *header;
    uint8_t *block; // CKPT_HASH_BLOCK_BYTES
    json_t *hashes; // of the tensors so far
};

static int cannot_write(const struct file_writer *w, struct error *err)
{
    return error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", w->path,
                     strerror(errno));
}

static int out_of_memory(const char *path, struct error *err)
{
    return error_set(err, ERROR_RUNTIME, "out of memory for '%s'", path);
}

static int describe_tensors(struct safetensors *st, const struct ckpt_file_spec *spec,
                            const struct param_table *table, struct error *err)
{
    for (int64_t i = 0; i < ckpt_n_entries(spec, table); i++) {
        struct ckpt_entry entry = ckpt_entry_at(spec, table, i);
        if (safetensors_append(st, entry.name, SAFETENSORS_F32, entry.param->n_dims,
                               entry.param->shape, err))
            return -1;
    }
    return 0;
}

static int file_writer_open(struct file_writer *w, const char *dir,
                            const struct ckpt_file_spec *spec,
                            const struct param_table *table, struct error *err)
{
    if (fs_join(w->path, sizeof w->path, dir, spec->name, err) ||
        describe_tensors(&w->st, spec, table, err) ||
        safetensors_encode_header(&w->st, &w->header, err))
        return -1;
    w->block = malloc((size_t)CKPT_HASH_BLOCK_BYTES);
    w->hashes = json_object();
    if (!w->block || !w->hashes)
        return out_of_memory(w->path, err);
    w->fd = open(w->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (w->fd < 0)
        return error_set(err, ERROR_RUNTIME, "cannot create '%s': %s", w->path,
                         strerror(errno));
    if (ckpt_failpoint(CKPT_AT_FILE_CREATED) ||
        fs_pwrite_exact(w->fd, w->header, (size_t)w->st.header_bytes, 0) ||
        ckpt_failpoint(CKPT_AT_HEADER_WRITTEN))
        return cannot_write(w, err);
    return 0;
}

static void file_writer_close(struct file_writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    json_decref(w->hashes);
    free(w->block);
    free(w->header);
    safetensors_release(&w->st);
}

static int write_tensor(struct file_writer *w, const struct safetensors_tensor *t,
                        const float *src, struct error *err)
{
    const int64_t n_block = CKPT_HASH_BLOCK_BYTES / (int64_t)sizeof(float);
    json_t *hashes = json_array();
    if (json_object_set_new(w->hashes, t->name, hashes))
        return out_of_memory(w->path, err);
    for (int64_t i = 0; i < t->n_elements; i += n_block) {
        char hash[17];
        int64_t n = i64_min(n_block, t->n_elements - i);
        size_t n_bytes = (size_t)n * sizeof(float);
        safetensors_encode_f32(src + i, n, w->block);
        ckpt_hash_text(w->block, n_bytes, hash);
        if (json_array_append_new(hashes, json_string(hash)))
            return out_of_memory(w->path, err);
        off_t at = safetensors_offset(&w->st, t) + i * (int64_t)sizeof(float);
        if (fs_pwrite_exact(w->fd, w->block, n_bytes, at))
            return cannot_write(w, err);
    }
    return ckpt_failpoint(CKPT_AT_TENSOR_WRITTEN) ? cannot_write(w, err) : 0;
}

/* A failed fsync is final: the kernel may have dropped the pages, so asking again could
 * succeed without them. The save is given up and its files are removed. */
static int sync_and_close(struct file_writer *w, struct error *err)
{
    if (ckpt_failpoint(CKPT_AT_FILE_WRITTEN) || fsync(w->fd))
        return cannot_write(w, err);
    int rc = close(w->fd);
    w->fd = -1;
    if (rc || ckpt_failpoint(CKPT_AT_FILE_SYNCED))
        return cannot_write(w, err);
    return 0;
}

int ckpt_file_write(const char *dir, const char *name, const struct ckpt_state *state,
                    struct ckpt_manifest *m, struct error *err)
{
    const struct ckpt_file_spec *spec = find_spec(name);
    struct file_writer w = {.fd = -1};
    char header_hash[17];
    int rc = -1;

    if (file_writer_open(&w, dir, spec, state->table, err))
        goto done;
    for (int64_t i = 0; i < w.st.n_tensors; i++) {
        struct ckpt_entry entry = ckpt_entry_at(spec, state->table, i);
        if (write_tensor(&w, &w.st.tensors[i], entry_data(&entry, state), err))
            goto done;
    }
    if (sync_and_close(&w, err))
        goto done;
    ckpt_hash_text(w.header, (size_t)w.st.header_bytes, header_hash);
    json_t *record = json_pack("{s:I, s:s, s:O}", "bytes",
                               (json_int_t)(w.st.header_bytes + w.st.data_bytes),
                               "header_xxh3_64", header_hash, "tensors", w.hashes);
    if (json_object_set_new(m->files, name, record)) {
        out_of_memory(w.path, err);
        goto done;
    }
    rc = 0;
done:
    file_writer_close(&w);
    return rc;
}

/* -- reading ------------------------------------------------------------------------- */

struct file_reader {
    char path[PATH_MAX];
    int fd;
    struct safetensors st;
    const json_t *record; // of this file in the manifest; borrowed
    int64_t block_bytes;
    uint8_t *block;
};

static int check_header(struct file_reader *r, const char *header, struct error *err)
{
    char hash[17];
    const char *expected =
        json_string_value(json_object_get(r->record, "header_xxh3_64"));
    ckpt_hash_text(header, (size_t)r->st.header_bytes, hash);
    if (!expected || strcmp(hash, expected) != 0)
        return error_set(err, ERROR_INPUT,
                         "'%s' is damaged: its header does not have the recorded hash",
                         r->path);
    if (r->st.n_tensors !=
        (int64_t)json_object_size(json_object_get(r->record, "tensors")))
        return error_set(err, ERROR_INPUT,
                         "'%s' is damaged: it does not hold the tensors recorded",
                         r->path);
    return 0;
}

static int file_reader_open(struct file_reader *r, const char *dir, const char *name,
                            const struct ckpt_manifest *m, struct error *err)
{
    char *header = NULL;
    if (fs_join(r->path, sizeof r->path, dir, name, err))
        return -1;
    r->record = json_object_get(m->files, name);
    if (!r->record)
        return error_set(err, ERROR_INPUT,
                         "'%s' is damaged: its " CKPT_MANIFEST_NAME " lists no '%s'", dir,
                         name);
    r->fd = open(r->path, O_RDONLY | O_CLOEXEC);
    if (r->fd < 0)
        return error_set(err, ERROR_INPUT, "cannot open '%s': %s", r->path,
                         strerror(errno));
    if (safetensors_read_header(&r->st, r->fd, r->path, &header, err))
        return -1;
    int rc = check_header(r, header, err);
    free(header);
    if (rc)
        return -1;
    r->block_bytes = m->hash_block_bytes;
    r->block = malloc((size_t)r->block_bytes);
    return r->block ? 0 : out_of_memory(r->path, err);
}

static void file_reader_close(struct file_reader *r)
{
    if (r->fd >= 0)
        close(r->fd);
    free(r->block);
    safetensors_release(&r->st);
}

/* Verify the tensor and, unless dst is NULL, decode it there. */
static int read_tensor(struct file_reader *r, const struct safetensors_tensor *t,
                       float *dst, struct error *err)
{
    const json_t *hashes =
        json_object_get(json_object_get(r->record, "tensors"), t->name);
    int64_t n_bytes = t->end - t->begin;
    for (int64_t i = 0; i < n_bytes; i += r->block_bytes) {
        char hash[17];
        int64_t n = i64_min(r->block_bytes, n_bytes - i);
        if (fs_pread_exact(r->fd, r->block, (size_t)n, safetensors_offset(&r->st, t) + i))
            return error_set(err, ERROR_INPUT, "cannot read tensor '%s' of '%s': %s",
                             t->name, r->path, strerror(errno));
        ckpt_hash_text(r->block, (size_t)n, hash);
        const char *expected =
            json_string_value(json_array_get(hashes, (size_t)(i / r->block_bytes)));
        if (!expected || strcmp(hash, expected) != 0)
            return error_set(err, ERROR_INPUT,
                             "'%s' is damaged: tensor '%s' does not have the recorded "
                             "hash (bytes %lld to %lld of it)",
                             r->path, t->name, (long long)i, (long long)(i + n));
        if (dst) {
            int64_t width = (int64_t)safetensors_float_bytes(t->dtype, 1);
            safetensors_decode_f32(t->dtype, r->block, n / width, dst + i / width);
        }
    }
    return 0;
}

int ckpt_file_read(const char *dir, const char *name, const struct ckpt_manifest *m,
                   struct ckpt_state *state, struct error *err)
{
    const struct ckpt_file_spec *spec = find_spec(name);
    struct file_reader r = {.fd = -1};
    int rc = -1;
    if (file_reader_open(&r, dir, name, m, err) ||
        ckpt_diff_check(spec, state->table, &r.st, r.path, err))
        goto done;
    for (int64_t i = 0; i < ckpt_n_entries(spec, state->table); i++) {
        struct ckpt_entry entry = ckpt_entry_at(spec, state->table, i);
        const struct safetensors_tensor *t = safetensors_find(&r.st, entry.name);
        if (read_tensor(&r, t, entry_data(&entry, state), err))
            goto done;
    }
    rc = 0;
done:
    file_reader_close(&r);
    return rc;
}

int ckpt_file_verify(const char *dir, const char *name, const struct ckpt_manifest *m,
                     struct error *err)
{
    struct file_reader r = {.fd = -1};
    int rc = file_reader_open(&r, dir, name, m, err);
    for (int64_t i = 0; i < r.st.n_tensors && rc == 0; i++)
        rc = read_tensor(&r, &r.st.tensors[i], NULL, err);
    file_reader_close(&r);
    return rc;
}
