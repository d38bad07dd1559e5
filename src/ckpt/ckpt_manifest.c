/*
 * The self-hash is appended to the finished text, not put into the object, so that it
 * covers the bytes of the file and not one reading of them: a flipped space is found too.
 */
#include "ckpt/ckpt_manifest.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define FORMAT_NAME "trefoil-checkpoint"
#define FORMAT_VERSION 2
#define MAX_MANIFEST_BYTES ((size_t)1 << 30)

/* What follows the hashed bytes; %s is their hash. */
#define SELF_FORMAT ",\n  \"self_xxh3_64\": \"%s\"\n}\n"
#define SELF_BYTES (sizeof SELF_FORMAT - 1 - 2 + 16)

void ckpt_hash_text(const void *bytes, size_t n, char text[17])
{
    snprintf(text, 17, "%016llx", (unsigned long long)XXH3_64bits(bytes, n));
}

static int out_of_memory(struct error *err)
{
    return error_set(err, ERROR_RUNTIME, "out of memory for a " CKPT_MANIFEST_NAME);
}

void ckpt_manifest_release(struct ckpt_manifest *m)
{
    json_decref(m->config);
    json_decref(m->files);
    *m = (struct ckpt_manifest){0};
}

/* -- making -------------------------------------------------------------------------- */

/* {"NAME": ["...", ...], ...} of one file, or NULL: out of memory. */
static json_t *tensor_hashes(const struct ckpt_layout_file *file,
                             const struct ckpt_sums *sums)
{
    json_t *tensors = json_object();
    int64_t block = file->first_block;
    for (int64_t i = 0; i < file->st.n_tensors; i++) {
        json_t *hashes = json_array();
        int64_t end = block + ckpt_n_blocks(file->st.tensors[i].n_elements);
        if (json_object_set_new(tensors, file->st.tensors[i].name, hashes))
            goto failed;
        for (; block < end; block++) {
            char text[17];
            snprintf(text, sizeof text, "%016llx",
                     (unsigned long long)sums->hashes[block]);
            if (json_array_append_new(hashes, json_string(text)))
                goto failed;
        }
    }
    return tensors;
failed:
    json_decref(tensors);
    return NULL;
}

static int add_tensor_file(struct ckpt_manifest *m, const struct ckpt_layout_file *file,
                           const struct ckpt_sums *sums, struct error *err)
{
    char header_hash[17];
    json_t *tensors = tensor_hashes(file, sums);
    ckpt_hash_text(file->header, (size_t)file->st.header_bytes, header_hash);
    if (!tensors ||
        json_object_set_new(
            m->files, file->name,
            json_pack("{s:I, s:s, s:o}", "bytes",
                      (json_int_t)(file->st.header_bytes + file->st.data_bytes),
                      "header_xxh3_64", header_hash, "tensors", tensors)))
        return out_of_memory(err);
    return 0;
}

int ckpt_manifest_init(struct ckpt_manifest *m, const struct ckpt_progress *progress,
                       const struct ckpt_layout *layout, const struct ckpt_sums *sums,
                       struct error *err)
{
    json_error_t at;
    *m = (struct ckpt_manifest){.progress = *progress,
                                .n_parameters = layout->n_parameters,
                                .program_version = TREFOIL_VERSION,
                                .files = json_object(),
                                .config = json_loads(progress->config_json, 0, &at)};
    if (!json_is_object(m->config))
        return error_set(err, ERROR_RUNTIME,
                         "the configuration to be saved is not a JSON object");
    if (!m->files)
        return out_of_memory(err);
    for (int i = 0; i < layout->n_files; i++)
        if (add_tensor_file(m, &layout->files[i], sums, err))
            return -1;
    return 0;
}

int ckpt_manifest_add_plain_file(struct ckpt_manifest *m, const char *name,
                                 const char *text, struct error *err)
{
    char hash[17];
    ckpt_hash_text(text, strlen(text), hash);
    if (json_object_set_new(
            m->files, name,
            json_pack("{s:I, s:s}", "bytes", (json_int_t)strlen(text), "xxh3_64", hash)))
        return out_of_memory(err);
    return 0;
}

/* -- writing ------------------------------------------------------------------------- */

static json_t *manifest_json(const struct ckpt_manifest *m)
{
    const struct ckpt_progress *p = &m->progress;
    json_t *scaler = json_pack("{s:f, s:I, s:I, s:I}", "scale", p->scaler.scale,
                               "good_steps", (json_int_t)p->scaler.good_steps,
                               "bad_steps", (json_int_t)p->scaler.bad_steps, "n_skipped",
                               (json_int_t)p->scaler.n_skipped);
    return json_pack(
        "{s:s, s:i, s:s, s:I, s:I, s:I, s:I, s:s, s:s*, s:s*, s:o, s:O, s:I, s:O}",
        "format", FORMAT_NAME, "format_version", FORMAT_VERSION, "program_version",
        m->program_version, "step", (json_int_t)p->step, "epoch", (json_int_t)p->epoch,
        "consumed_samples", (json_int_t)p->consumed_samples, "n_parameters",
        (json_int_t)m->n_parameters, "data_fingerprint", p->data_fingerprint, "run_id",
        p->run_id[0] ? p->run_id : NULL, "tokenizer_hash",
        p->tokenizer_hash[0] ? p->tokenizer_hash : NULL, "loss_scaler", scaler, "config",
        m->config, "hash_block_bytes", (json_int_t)CKPT_BLOCK_BYTES, "files", m->files);
}

/* The whole text, malloc'ed; NULL: out of memory. */
static char *manifest_text(const struct ckpt_manifest *m)
{
    char *text = NULL, *body = NULL;
    json_t *root = manifest_json(m);
    if (root)
        body = json_dumps(root, JSON_INDENT(2));
    if (body) {
        char self[17];
        size_t n = strlen(body) - 2; // without the closing "\n}"
        ckpt_hash_text(body, n, self);
        text = malloc(n + SELF_BYTES + 1);
        if (text) {
            memcpy(text, body, n);
            snprintf(text + n, SELF_BYTES + 1, SELF_FORMAT, self);
        }
    }
    free(body);
    json_decref(root);
    return text;
}

int ckpt_manifest_write(const struct ckpt_manifest *m, const char *dir, struct error *err)
{
    char path[PATH_MAX];
    int fd = -1, rc = -1;
    char *text = manifest_text(m);
    if (!text) {
        error_set(err, ERROR_RUNTIME, "out of memory for '%s/%s'", dir,
                  CKPT_MANIFEST_NAME);
        goto done;
    }
    if (fs_join(path, sizeof path, dir, CKPT_MANIFEST_NAME, err))
        goto done;
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 || fs_write_exact(fd, text, strlen(text)) || fsync(fd)) {
        error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", path, strerror(errno));
        goto done;
    }
    rc = 0;
done:
    if (fd >= 0 && close(fd) && rc == 0)
        rc =
            error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", path, strerror(errno));
    free(text);
    return rc;
}

/* -- reading ------------------------------------------------------------------------- */

static int damaged(bool *is_damaged, struct error *err, const char *path, const char *why)
{
    *is_damaged = true;
    return error_set(err, ERROR_INPUT, "'%s' is damaged: %s", path, why);
}

static int check_self_hash(const char *text, size_t n, const char *path, bool *is_damaged,
                           struct error *err)
{
    char self[17], tail[SELF_BYTES + 1];
    if (n < SELF_BYTES)
        return damaged(is_damaged, err, path, "it is cut");
    ckpt_hash_text(text, n - SELF_BYTES, self);
    snprintf(tail, sizeof tail, SELF_FORMAT, self);
    if (memcmp(text + n - SELF_BYTES, tail, SELF_BYTES) != 0)
        return damaged(is_damaged, err, path, "its own hash does not fit its content");
    return 0;
}

static int check_format(const json_t *root, const char *path, struct error *err)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *version = json_object_get(root, "format_version");
    if (!format || strcmp(format, FORMAT_NAME) != 0 || !json_is_integer(version))
        return error_set(err, ERROR_INPUT, "'%s' does not describe a Trefoil checkpoint",
                         path);
    if (json_integer_value(version) == FORMAT_VERSION)
        return 0;
    bool is_older = json_integer_value(version) < FORMAT_VERSION;
    return error_set(err, ERROR_INPUT,
                     "'%s' has checkpoint format %lld, this version of Trefoil reads "
                     "format %d; use %s version that wrote it, %s",
                     path, (long long)json_integer_value(version), FORMAT_VERSION,
                     is_older ? "the older" : "the newer",
                     is_older ? "or move the directory away to start again"
                              : "or a checkpoint of this one");
}

static bool get_count(const json_t *root, const char *key, int64_t *value)
{
    const json_t *member = json_object_get(root, key);
    *value = json_integer_value(member);
    return json_is_integer(member) && *value >= 0;
}

static bool get_scaler(const json_t *root, struct ckpt_scaler *scaler)
{
    const json_t *member = json_object_get(root, "loss_scaler");
    const json_t *scale = json_object_get(member, "scale");
    scaler->scale = json_number_value(scale);
    return json_is_number(scale) &&
           get_count(member, "good_steps", &scaler->good_steps) &&
           get_count(member, "bad_steps", &scaler->bad_steps) &&
           get_count(member, "n_skipped", &scaler->n_skipped);
}

static bool get_text(const json_t *root, const char *key, char *text, size_t size)
{
    const char *value = json_string_value(json_object_get(root, key));
    return value && snprintf(text, size, "%s", value) < (int)size;
}

/* Could a run have written these numbers? Each step takes a sample at least. */
static const char *find_contradiction(const struct ckpt_progress *p)
{
    const struct ckpt_scaler *s = &p->scaler;
    if (p->consumed_samples < p->step || (p->step == 0) != (p->consumed_samples == 0) ||
        (p->step > 0 && p->consumed_samples / p->step > INT32_MAX))
        return "its consumed_samples cannot be those of its step";
    if (p->epoch > p->consumed_samples)
        return "its epoch is larger than its consumed_samples";
    if (s->n_skipped > p->step || s->good_steps > p->step || s->bad_steps > p->step)
        return "its loss_scaler counts more steps than there were";
    if (!isfinite(s->scale) || s->scale < 0)
        return "the scale of its loss_scaler is no scale";
    return NULL;
}

/* One of the members that checkpoints of earlier versions do not have. */
static bool get_newer_text(const json_t *root, const char *key, char *text, size_t size)
{
    text[0] = 0;
    return !json_object_get(root, key) || (get_text(root, key, text, size) && text[0]);
}

static int take_members(struct ckpt_manifest *m, const json_t *root, const char *path,
                        bool *is_damaged, struct error *err)
{
    struct ckpt_progress *p = &m->progress;
    int64_t block_bytes;
    m->config = json_incref(json_object_get(root, "config"));
    m->files = json_incref(json_object_get(root, "files"));
    if (!get_text(root, "program_version", m->program_version,
                  sizeof m->program_version) ||
        !get_text(root, "data_fingerprint", p->data_fingerprint,
                  sizeof p->data_fingerprint) ||
        !get_count(root, "step", &p->step) || !get_count(root, "epoch", &p->epoch) ||
        !get_count(root, "consumed_samples", &p->consumed_samples) ||
        !get_count(root, "n_parameters", &m->n_parameters) ||
        !get_count(root, "hash_block_bytes", &block_bytes) ||
        !get_scaler(root, &p->scaler) ||
        !get_newer_text(root, "run_id", p->run_id, sizeof p->run_id) ||
        !get_newer_text(root, "tokenizer_hash", p->tokenizer_hash,
                        sizeof p->tokenizer_hash) ||
        !json_is_object(m->config) || !json_is_object(m->files))
        return damaged(is_damaged, err, path, "a member is missing or of the wrong type");
    if (block_bytes != CKPT_BLOCK_BYTES)
        return damaged(is_damaged, err, path,
                       "its hash_block_bytes is not that of its format");
    const char *why = find_contradiction(p);
    return why ? damaged(is_damaged, err, path, why) : 0;
}

/* A file that is not there is damage; one that may not be read, or not now, is not. */
static int read_text(const char *path, char **text, size_t *n, bool *is_damaged,
                     struct error *err)
{
    if (fs_read_regular(path, MAX_MANIFEST_BYTES, text, n, err)) {
        if (err->kind == ERROR_INPUT)
            *is_damaged = true;
        return -1;
    }
    return 0;
}

int ckpt_manifest_read(struct ckpt_manifest *m, const char *dir, bool *is_damaged,
                       struct error *err)
{
    char path[PATH_MAX];
    char *text = NULL;
    size_t n = 0;
    json_error_t at;
    json_t *root = NULL;
    int rc = -1;
    *m = (struct ckpt_manifest){0};

    if (fs_join(path, sizeof path, dir, CKPT_MANIFEST_NAME, err) ||
        read_text(path, &text, &n, is_damaged, err) ||
        check_self_hash(text, n, path, is_damaged, err))
        goto done;
    root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &at);
    if (!root) {
        error_set(err, ERROR_INPUT, "%s:%d:%d: %s", path, at.line, at.column, at.text);
        *is_damaged = true;
        goto done;
    }
    if (check_format(root, path, err) || take_members(m, root, path, is_damaged, err))
        goto done;
    rc = 0;
done:
    if (rc)
        ckpt_manifest_release(m);
    json_decref(root);
    free(text);
    return rc;
}

int ckpt_manifest_hash(const char *dir, char hash[17], struct error *err)
{
    char path[PATH_MAX], *text = NULL;
    size_t n = 0;
    if (fs_join(path, sizeof path, dir, CKPT_MANIFEST_NAME, err) ||
        fs_read_regular(path, MAX_MANIFEST_BYTES, &text, &n, err))
        return -1;
    ckpt_hash_text(text, n, hash);
    free(text);
    return 0;
}

int ckpt_read_info(const char *path, struct ckpt_info *info, struct error *err)
{
    struct ckpt_manifest m;
    bool is_damaged;
    *info = (struct ckpt_info){.n_parameters = 0};
    if (ckpt_manifest_read(&m, path, &is_damaged, err))
        return -1;
    info->progress = m.progress;
    info->n_parameters = m.n_parameters;
    memcpy(info->program_version, m.program_version, sizeof info->program_version);
    info->config_json = json_dumps(m.config, JSON_INDENT(2));
    ckpt_manifest_release(&m);
    if (!info->config_json)
        return error_set(err, ERROR_RUNTIME,
                         "out of memory for the configuration in '%s'", path);
    return 0;
}

void ckpt_info_release(struct ckpt_info *info)
{
    free(info->config_json);
    *info = (struct ckpt_info){.n_parameters = 0};
}

/* -- the files ----------------------------------------------------------------------- */

int ckpt_manifest_check_file(const char *dir, const char *name, const json_t *record,
                             bool *is_damaged, struct error *err)
{
    char path[PATH_MAX];
    struct stat st;
    int64_t n_bytes;
    if (fs_join(path, sizeof path, dir, name, err))
        return -1;
    if (strchr(name, '/') || !get_count(record, "bytes", &n_bytes))
        return damaged(is_damaged, err, path, "its record in " CKPT_MANIFEST_NAME);
    if (stat(path, &st)) {
        enum error_kind kind = fs_error_kind(errno);
        if (kind == ERROR_INPUT)
            *is_damaged = true;
        return error_set(err, kind, "cannot open '%s': %s", path, strerror(errno));
    }
    if (!S_ISREG(st.st_mode))
        return damaged(is_damaged, err, path, "it is not a file");
    if (st.st_size == n_bytes)
        return 0;
    *is_damaged = true;
    return error_set(err, ERROR_INPUT,
                     "'%s' is damaged: it has %lld bytes instead of %lld", path,
                     (long long)st.st_size, (long long)n_bytes);
}

int ckpt_manifest_check_files(const struct ckpt_manifest *m, const char *dir,
                              struct error *err)
{
    bool is_damaged;
    for (void *at = json_object_iter(m->files); at;
         at = json_object_iter_next(m->files, at))
        if (ckpt_manifest_check_file(dir, json_object_iter_key(at),
                                     json_object_iter_value(at), &is_damaged, err))
            return -1;
    return 0;
}

int ckpt_manifest_check_plain_file(const char *dir, const char *name,
                                   const json_t *record, bool *is_damaged,
                                   struct error *err)
{
    char path[PATH_MAX], hash[17], *text = NULL;
    size_t n = 0;
    if (ckpt_manifest_check_file(dir, name, record, is_damaged, err) ||
        fs_join(path, sizeof path, dir, name, err) ||
        read_text(path, &text, &n, is_damaged, err))
        return -1;
    ckpt_hash_text(text, n, hash);
    free(text);
    const char *expected = json_string_value(json_object_get(record, "xxh3_64"));
    if (expected && strcmp(hash, expected) == 0)
        return 0;
    return damaged(is_damaged, err, path, "it does not have the recorded hash");
}
