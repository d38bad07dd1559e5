/*
 * Opening is a table of three functions that leave the same facts behind: where token 0
 * lies, the type of the tokens, and where each document ends.
 */
#include "data/formats/dataset.h"

#include "base/fs.h"
#include "data/formats/dataset_index.h"
#include "data/formats/npy.h"
#include "data/formats/npz.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_META_BYTES 65536
#define SCAN_BYTES (1 << 20)
#define MOST_BYTES_AT_ANY_RATIO (64u << 20) // that deflated ids may unpack to
#define MOST_RATIO 100                      // more than that, by which ids are packed

// clang-format off
const struct dataset_format_names dataset_formats[N_DATASET_FORMATS] = {
    //                     name          data file    index file
    [DATASET_MEGATRON]   = {"megatron",   ".bin",      ".idx"},
    [DATASET_FLEETX]     = {"fleetx",     "_ids.npy",  "_idx.npz"},
    [DATASET_FLEETX_OLD] = {"fleetx_old", "_ids.npz",  "_ids.npz"},
};
// clang-format on

/* -- X.meta.json --------------------------------------------------------------------- */

static int read_meta_count(const json_t *root, const char *path, const char *key,
                           int64_t most, int64_t *value, struct error *err)
{
    const json_t *v = json_object_get(root, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > most)
        return error_set(err, ERROR_INPUT,
                         "'%s': \"%s\" must be there and be an integer from 0 to %lld; "
                         "remove the file if it does not belong to the dataset",
                         path, key, (long long)most);
    *value = json_integer_value(v);
    return 0;
}

/* A malformed record counts as missing. */
static void read_meta_hash(const json_t *root, char hash[DATASET_HASH_BYTES])
{
    const char *text = json_string_value(json_object_get(root, "tokenizer_hash"));
    bool is_valid = text && strlen(text) < DATASET_HASH_BYTES;
    snprintf(hash, DATASET_HASH_BYTES, "%s", is_valid ? text : "");
}

static void read_meta_source(const json_t *root, const char *hash,
                             struct dataset_source *source)
{
    const json_t *n_bytes = json_object_get(root, "source_bytes");
    const json_t *mtime = json_object_get(root, "source_mtime_ns");
    *source = (struct dataset_source){0};
    if (!json_is_integer(n_bytes) || !json_is_integer(mtime) || !hash[0])
        return;
    source->n_bytes = json_integer_value(n_bytes);
    source->mtime_ns = json_integer_value(mtime);
    snprintf(source->tokenizer_hash, sizeof source->tokenizer_hash, "%s", hash);
}

static int read_meta_fields(const json_t *root, const char *path,
                            struct dataset_meta *meta, struct error *err)
{
    const char *tokenizer = json_string_value(json_object_get(root, "tokenizer"));
    if (!tokenizer || strlen(tokenizer) >= sizeof meta->tokenizer)
        return error_set(err, ERROR_INPUT,
                         "'%s': \"tokenizer\" must be there and be a short string", path);
    snprintf(meta->tokenizer, sizeof meta->tokenizer, "%s", tokenizer);
    if (read_meta_count(root, path, "vocab_size", INT32_MAX, &meta->vocab_size, err) ||
        read_meta_count(root, path, "eos_token_id", INT32_MAX, &meta->eos_token_id,
                        err) ||
        read_meta_count(root, path, "documents", INT64_MAX, &meta->n_documents, err) ||
        read_meta_count(root, path, "tokens", INT64_MAX, &meta->n_tokens, err))
        return -1;
    read_meta_hash(root, meta->tokenizer_hash);
    read_meta_source(root, meta->tokenizer_hash, &meta->source);
    return 0;
}

int dataset_meta_read(const char *path, struct dataset_meta *meta, bool *is_there,
                      struct error *err)
{
    char *text = NULL;
    size_t n;
    json_error_t json_err;
    enum fs_type type;
    *meta = (struct dataset_meta){0};
    *is_there = false;
    if (fs_look(path, &type, err))
        return -1;
    if (type == FS_NOTHING)
        return 0;
    *is_there = true;
    if (fs_read_regular(path, MAX_META_BYTES, &text, &n, err))
        return -1;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &json_err);
    free(text);
    if (!root)
        return error_set(err, ERROR_INPUT, "'%s':%d:%d: %s", path, json_err.line,
                         json_err.column, json_err.text);
    int rc = read_meta_fields(root, path, meta, err);
    json_decref(root);
    return rc;
}

int dataset_meta_write(const char *path, const struct dataset_meta *meta,
                       struct error *err)
{
    json_t *root = json_pack(
        "{s:s, s:I, s:I, s:I, s:I}", "tokenizer", meta->tokenizer, "vocab_size",
        (json_int_t)meta->vocab_size, "eos_token_id", (json_int_t)meta->eos_token_id,
        "documents", (json_int_t)meta->n_documents, "tokens", (json_int_t)meta->n_tokens);
    if (!root)
        return error_set(err, ERROR_INPUT,
                         "cannot write '%s': the path of the tokenizer, '%s', is not "
                         "UTF-8; rename it",
                         path, meta->tokenizer);
    const struct dataset_source *source = &meta->source;
    if (source->tokenizer_hash[0] &&
        (json_object_set_new(root, "source_bytes", json_integer(source->n_bytes)) ||
         json_object_set_new(root, "source_mtime_ns", json_integer(source->mtime_ns)))) {
        json_decref(root);
        return error_set(err, ERROR_RUNTIME, "out of memory");
    }
    const char *hash =
        source->tokenizer_hash[0] ? source->tokenizer_hash : meta->tokenizer_hash;
    if (hash[0] && json_object_set_new(root, "tokenizer_hash", json_string(hash))) {
        json_decref(root);
        return error_set(err, ERROR_RUNTIME, "out of memory");
    }
    char *text = json_dumps(root, JSON_PRESERVE_ORDER);
    char *line = NULL;
    int n = text ? asprintf(&line, "%s\n", text) : -1;
    int rc = n < 0 ? error_set(err, ERROR_RUNTIME, "out of memory")
                   : fs_write_atomic(path, line, (size_t)n, err);
    if (n >= 0)
        free(line);
    free(text);
    json_decref(root);
    return rc;
}

/* -- opening ------------------------------------------------------------------------- */

static int open_file(const char *path, int *fd, struct stat *st, struct error *err)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a named pipe would wait
    if (*fd < 0)
        return error_set(err, ERROR_INPUT, "cannot open '%s': %s", path, strerror(errno));
    if (fstat(*fd, st))
        return error_set(err, ERROR_INPUT, "cannot look at '%s': %s", path,
                         strerror(errno));
    if (!S_ISREG(st->st_mode))
        return error_set(err, ERROR_INPUT, "'%s' is not a regular file", path);
    return 0;
}

static void adopt_index(struct dataset *d, const struct dataset_index *idx,
                        enum disk_int type)
{
    d->type = type;
    d->n_tokens = idx->n_tokens;
    d->n_documents = idx->n_documents;
    d->document_ends = idx->document_ends;
}

static int open_megatron(struct dataset *d, int index_fd, struct error *err)
{
    struct dataset_index idx;
    if (megatron_index_read(&idx, index_fd, d->index_path, (uint64_t)d->data_stat.st_size,
                            d->data_path, err))
        return -1;
    adopt_index(d, &idx, idx.type);
    return 0;
}

/* Take over the lengths, which must add up to the number of ids. */
static int adopt_fleetx_index(struct dataset *d, const struct npz *z,
                              const struct npy *ids, struct error *err)
{
    struct dataset_index idx;
    if (fleetx_index_read(&idx, z, ids->n_elements, err))
        return -1;
    adopt_index(d, &idx, ids->type);
    if (ids->n_dims != 1 || ids->n_elements != idx.n_tokens)
        return error_set(err, ERROR_INPUT,
                         "'%s' and '%s' do not belong together: the lens add up to %lld "
                         "tokens, but there are %lld ids (up to byte %lld)",
                         d->data_path, d->index_path, (long long)idx.n_tokens,
                         (long long)ids->n_elements, (long long)d->data_stat.st_size);
    return 0;
}

static int open_fleetx(struct dataset *d, int index_fd, struct error *err)
{
    struct npz z;
    struct npy ids;
    if (npy_read_header(&ids, d->fd, 0, (uint64_t)d->data_stat.st_size, d->data_path,
                        err) ||
        npz_open(&z, index_fd, d->index_path, err))
        return -1;
    d->data_offset = (int64_t)ids.data_offset;
    int rc = adopt_fleetx_index(d, &z, &ids, err);
    npz_close(&z);
    return rc;
}

/* Deflated ids have to be unpacked whole, so their claim must be credible: text packs to
 * a third or a fifth, and only a made-up file to a thousandth. */
static int refuse_bomb(const struct npz_member *m, struct error *err)
{
    if (!m->is_deflated || m->bytes <= MOST_BYTES_AT_ANY_RATIO ||
        m->bytes / MOST_RATIO < m->packed_bytes)
        return 0;
    return error_set(
        err, ERROR_INPUT,
        "'%s' is %llu bytes that claim to unpack to %llu MB, as no tokens of "
        "a text do; if they are right, store them unpacked (numpy.savez)",
        m->name, (unsigned long long)m->packed_bytes,
        (unsigned long long)(m->bytes >> 20));
}

/* Stored ids are read in place; deflated ones have to be unpacked whole, once it is known
 * that the lengths fit them. */
static int adopt_archived_ids(struct dataset *d, const struct npz *z, struct error *err)
{
    struct npz_member m;
    struct npy ids;
    bool is_there;
    uint64_t offset = 0;
    if (npz_find(z, "ids", &m, &is_there, err))
        return -1;
    if (!is_there)
        return error_set(err, ERROR_INPUT, "'%s' has no array ids in it", d->data_path);
    if (refuse_bomb(&m, err) || npz_describe(z, &m, &ids, err) ||
        adopt_fleetx_index(d, z, &ids, err) ||
        (m.is_deflated ? npz_read(z, &m, &ids, &d->memory, err)
                       : npz_offset(z, &m, &offset, err)))
        return -1;
    d->data_offset = (int64_t)(ids.data_offset + offset);
    return 0;
}

static int open_fleetx_old(struct dataset *d, int index_fd, struct error *err)
{
    struct npz z;
    if (npz_open(&z, index_fd, d->index_path, err))
        return -1;
    int rc = adopt_archived_ids(d, &z, err);
    npz_close(&z);
    return rc;
}

static int (*const openers[N_DATASET_FORMATS])(struct dataset *, int, struct error *) = {
    [DATASET_MEGATRON] = open_megatron,
    [DATASET_FLEETX] = open_fleetx,
    [DATASET_FLEETX_OLD] = open_fleetx_old,
};

static int open_meta(struct dataset *d, const char *prefix, struct error *err)
{
    char *path = NULL;
    if (asprintf(&path, "%s.meta.json", prefix) < 0)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    int rc = dataset_meta_read(path, &d->meta, &d->has_meta, err);
    if (rc == 0 && d->has_meta &&
        (d->meta.n_documents != d->n_documents || d->meta.n_tokens != d->n_tokens))
        rc = error_set(err, ERROR_INPUT,
                       "'%s' describes %lld documents and %lld tokens, but the dataset "
                       "has %lld and %lld: remove it if it is left from another one",
                       path, (long long)d->meta.n_documents, (long long)d->meta.n_tokens,
                       (long long)d->n_documents, (long long)d->n_tokens);
    free(path);
    return rc;
}

int dataset_open(struct dataset *d, const char *prefix, enum dataset_format format,
                 struct error *err)
{
    int rc = -1, index_fd = -1;
    *d = (struct dataset){.format = format, .fd = -1};
    if (asprintf(&d->data_path, "%s%s", prefix, dataset_formats[format].data_suffix) <
            0 ||
        asprintf(&d->index_path, "%s%s", prefix, dataset_formats[format].index_suffix) <
            0) {
        error_set(err, ERROR_RUNTIME, "out of memory");
        goto done;
    }
    if (open_file(d->data_path, &d->fd, &d->data_stat, err) ||
        open_file(d->index_path, &index_fd, &d->index_stat, err) ||
        openers[format](d, index_fd, err) || open_meta(d, prefix, err))
        goto done;
    rc = 0;
done:
    if (index_fd >= 0)
        close(index_fd);
    if (rc)
        dataset_close(d);
    return rc;
}

void dataset_close(struct dataset *d)
{
    if (d->fd >= 0)
        close(d->fd);
    free(d->data_path);
    free(d->index_path);
    free(d->memory);
    free(d->document_ends);
    *d = (struct dataset){.fd = -1};
}

/* -- tokens -------------------------------------------------------------------------- */

/* raw := tokens [first, first + n) as they lie in the file. */
static int read_raw(const struct dataset *d, int64_t first, int64_t n, uint8_t *raw,
                    struct error *err)
{
    size_t size = disk_int_bytes(d->type);
    int64_t at = d->data_offset + first * (int64_t)size;
    if (d->memory) {
        memcpy(raw, d->memory + at, (size_t)n * size);
        return 0;
    }
    if (fs_pread_exact(d->fd, raw, (size_t)n * size, at))
        return error_set(err, ERROR_RUNTIME, "cannot read '%s' at byte %lld: %s",
                         d->data_path, (long long)at,
                         errno == ENODATA ? "the file was cut short while in use"
                                          : strerror(errno));
    return 0;
}

int dataset_read(const struct dataset *d, int64_t first, int64_t n, int32_t *tokens,
                 struct error *err)
{
    uint8_t raw[16384];
    int64_t most = (int64_t)(sizeof raw / disk_int_bytes(d->type));
    for (int64_t i = 0; i < n; i += most) {
        int64_t n_read = i64_min(n - i, most);
        if (read_raw(d, first + i, n_read, raw, err))
            return -1;
        disk_int_read_i32(d->type, raw, n_read, tokens + i);
    }
    return 0;
}

int dataset_max_token(const struct dataset *d, uint64_t *max, struct error *err)
{
    int rc = -1;
    int64_t most = SCAN_BYTES / (int64_t)disk_int_bytes(d->type);
    uint8_t *raw = malloc(SCAN_BYTES);
    *max = 0;
    if (!raw)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    for (int64_t first = 0; first < d->n_tokens; first += most) {
        int64_t n = i64_min(most, d->n_tokens - first);
        if (read_raw(d, first, n, raw, err))
            goto done;
        uint64_t chunk_max = disk_int_max(d->type, raw, n);
        *max = chunk_max > *max ? chunk_max : *max;
    }
    rc = 0;
done:
    free(raw);
    return rc;
}

int dataset_find_bad_token(const struct dataset *d, int64_t vocab_size, int64_t *position,
                           int64_t *id, bool *is_found, struct error *err)
{
    size_t size = disk_int_bytes(d->type);
    uint8_t raw[16384];
    int64_t most = (int64_t)(sizeof raw / size);
    *is_found = false;
    for (int64_t first = 0; first < d->n_tokens; first += most) {
        int64_t n = i64_min(most, d->n_tokens - first);
        if (read_raw(d, first, n, raw, err))
            return -1;
        for (int64_t i = 0; i < n; i++) {
            *id = disk_int_get(d->type, raw + (size_t)i * size);
            *position = first + i;
            *is_found = *id < 0 || *id >= vocab_size;
            if (*is_found)
                return 0;
        }
    }
    return 0;
}
