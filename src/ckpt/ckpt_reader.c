/* Opening: what the manifest says of each file, against what the file says of itself. */
#include "base/fs.h"
#include "ckpt/ckpt_diff.h"
#include "ckpt/ckpt_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int out_of_memory(const char *path, struct error *err)
{
    return error_set(err, ERROR_RUNTIME, "out of memory for reading '%s'", path);
}

/* -- hashes -------------------------------------------------------------------------- */

static bool parse_hash(const json_t *json, uint64_t *hash)
{
    const char *text = json_string_value(json);
    char *end;
    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return false;
    *hash = strtoull(text, &end, 16);
    return true;
}

static bool take_tensor_hashes(const struct safetensors_tensor *t, const json_t *list,
                               uint64_t *hashes)
{
    int64_t n = ckpt_n_blocks(t->n_elements);
    if (t->dtype != SAFETENSORS_F32 || (int64_t)json_array_size(list) != n)
        return false;
    for (int64_t i = 0; i < n; i++)
        if (!parse_hash(json_array_get(list, (size_t)i), &hashes[i]))
            return false;
    return true;
}

static int take_hashes(struct ckpt_reader *r, struct ckpt_read_file *file,
                       const json_t *record, struct error *err)
{
    const json_t *tensors = json_object_get(record, "tensors");
    int64_t n_tensors = file->st.n_tensors, n_blocks = 0;
    file->first_hash = calloc((size_t)n_tensors + 1, sizeof *file->first_hash);
    if (!file->first_hash)
        return out_of_memory(file->path, err);
    for (int64_t i = 0; i < n_tensors; i++) {
        file->first_hash[i] = n_blocks;
        n_blocks += ckpt_n_blocks(file->st.tensors[i].n_elements);
    }
    file->hashes = calloc((size_t)n_blocks + 1, sizeof *file->hashes);
    if (!file->hashes)
        return out_of_memory(file->path, err);
    bool is_right = (int64_t)json_object_size(tensors) == n_tensors;
    for (int64_t i = 0; i < n_tensors && is_right; i++) {
        const struct safetensors_tensor *t = &file->st.tensors[i];
        is_right = take_tensor_hashes(t, json_object_get(tensors, t->name),
                                      file->hashes + file->first_hash[i]);
    }
    if (is_right)
        return 0;
    r->is_damaged = true;
    return error_set(err, ERROR_INPUT,
                     "'%s' is damaged: it does not hold the tensors recorded in its "
                     "checkpoint",
                     file->path);
}

/* -- files --------------------------------------------------------------------------- */

static int check_header(struct ckpt_reader *r, const struct ckpt_read_file *file,
                        const char *header, const json_t *record, struct error *err)
{
    char hash[17];
    const char *expected = json_string_value(json_object_get(record, "header_xxh3_64"));
    ckpt_hash_text(header, (size_t)file->st.header_bytes, hash);
    if (expected && strcmp(hash, expected) == 0)
        return 0;
    r->is_damaged = true;
    return error_set(err, ERROR_INPUT,
                     "'%s' is damaged: its header does not have the recorded hash",
                     file->path);
}

static int open_file(struct ckpt_reader *r, const char *name, const json_t *record,
                     struct error *err)
{
    char *header = NULL;
    struct ckpt_read_file *file = &r->files[r->n_files++];
    *file = (struct ckpt_read_file){.fd = -1, .direct_fd = -1};
    if (fs_join(file->path, sizeof file->path, r->path, name, err))
        return -1;
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe would wait
    if (file->fd < 0)
        error_set(err, fs_error_kind(errno), "cannot open '%s': %s", file->path,
                  strerror(errno));
    if (file->fd < 0 ||
        safetensors_read_header(&file->st, file->fd, file->path, &header, err)) {
        r->is_damaged = err->kind == ERROR_INPUT; // otherwise the machine failed
        return -1;
    }
    int rc = check_header(r, file, header, record, err);
    free(header);
    return rc ? -1 : take_hashes(r, file, record, err);
}

/* "model.safetensors" or "model-00001-of-00002.safetensors" for set "model". */
static bool is_of_set(const char *name, const json_t *record, enum ckpt_set set)
{
    size_t n = strlen(ckpt_set_names[set]);
    return json_object_get(record, "tensors") &&
           strncmp(name, ckpt_set_names[set], n) == 0 &&
           (name[n] == '.' || name[n] == '-');
}

static int open_set(struct ckpt_reader *r, enum ckpt_set set, struct error *err)
{
    r->set_files[set] = r->n_files;
    for (void *at = json_object_iter(r->manifest.files); at;
         at = json_object_iter_next(r->manifest.files, at)) {
        const char *name = json_object_iter_key(at);
        const json_t *record = json_object_iter_value(at);
        if (!is_of_set(name, record, set))
            continue;
        if (ckpt_manifest_check_file(r->path, name, record, &r->is_damaged, err) ||
            open_file(r, name, record, err))
            return -1;
    }
    r->set_files[set + 1] = r->n_files;
    if (r->n_files > r->set_files[set])
        return 0;
    r->is_damaged = true;
    return error_set(err, ERROR_INPUT,
                     "'%s' is damaged: its " CKPT_MANIFEST_NAME
                     " lists no file of the %s",
                     r->path, ckpt_set_names[set]);
}

/* Indexes and whatever else has a hash of its own and no tensors. */
static int check_plain_files(struct ckpt_reader *r, struct error *err)
{
    for (void *at = json_object_iter(r->manifest.files); at;
         at = json_object_iter_next(r->manifest.files, at)) {
        const char *name = json_object_iter_key(at);
        const json_t *record = json_object_iter_value(at);
        if (!json_object_get(record, "tensors") &&
            ckpt_manifest_check_plain_file(r->path, name, record, &r->is_damaged, err))
            return -1;
    }
    return 0;
}

int ckpt_reader_open(struct ckpt_reader *r, const char *path, int n_sets,
                     struct error *err)
{
    *r = (struct ckpt_reader){.n_files = 0};
    ckpt_sum_keys_init(&r->keys);
    if (snprintf(r->path, sizeof r->path, "%s", path) >= (int)sizeof r->path)
        return error_set(err, ERROR_INPUT, "path too long: '%.200s...'", path);
    if (ckpt_manifest_read(&r->manifest, path, &r->is_damaged, err))
        return -1;
    size_t n_files = json_object_size(r->manifest.files);
    r->files = calloc(n_files + 1, sizeof *r->files);
    if (!r->files)
        return out_of_memory(path, err);
    for (int set = 0; set < n_sets; set++)
        if (open_set(r, (enum ckpt_set)set, err))
            return -1;
    return n_sets == N_CKPT_SETS ? check_plain_files(r, err) : 0;
}

void ckpt_reader_close(struct ckpt_reader *r)
{
    for (int i = 0; i < r->n_files; i++) {
        struct ckpt_read_file *file = &r->files[i];
        if (file->fd >= 0)
            close(file->fd);
        if (file->direct_fd >= 0)
            close(file->direct_fd);
        safetensors_release(&file->st);
        free(file->hashes);
        free(file->first_hash);
    }
    free(r->files);
    r->files = NULL;
    r->n_files = 0;
    ckpt_manifest_release(&r->manifest);
}

void ckpt_reader_bypass_cache(struct ckpt_reader *r)
{
    for (int i = 0; i < r->n_files; i++) {
        struct ckpt_read_file *file = &r->files[i];
        if (file->direct_fd < 0 && !fs_is_cached(file->fd))
            file->direct_fd = open(file->path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    }
}

int ckpt_reader_check(struct ckpt_reader *r, const struct param_table *whole,
                      const struct update_rule *rule, int n_sets, struct error *err)
{
    r->rule = rule;
    for (int set = 0; set < n_sets; set++) {
        int first = r->set_files[set], end = r->set_files[set + 1];
        if (ckpt_diff_check(whole, (enum ckpt_set)set, rule, r->files + first,
                            end - first, r->path, err))
            return -1;
    }
    return 0;
}
