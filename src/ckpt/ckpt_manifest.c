/*
 * The self-hash is appended to the finished text, not put into the object, so that it
 * covers the bytes of the file and not one reading of them: a flipped space is found too.
 */
#include "ckpt/ckpt_manifest.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define FORMAT_NAME "trefoil-checkpoint"
#define FORMAT_VERSION 1
#define MAX_MANIFEST_BYTES ((size_t)256 << 20)

/* What follows the hashed bytes; %s is their hash. */
#define SELF_FORMAT ",\n  \"self_xxh3_64\": \"%s\"\n}\n"
#define SELF_BYTES (sizeof SELF_FORMAT - 1 - 2 + 16)

void ckpt_hash_text(const void *bytes, size_t n, char text[17])
{
    snprintf(text, 17, "%016llx", (unsigned long long)XXH3_64bits(bytes, n));
}

void ckpt_manifest_release(struct ckpt_manifest *m)
{
    json_decref(m->config);
    json_decref(m->files);
    *m = (struct ckpt_manifest){0};
}

/* -- writing ------------------------------------------------------------------------- */

/* The whole text, malloc'ed; NULL: out of memory. */
static char *manifest_text(const struct ckpt_manifest *m)
{
    char *text = NULL, *body = NULL;
    json_t *root = json_pack(
        "{s:s, s:i, s:s, s:I, s:I, s:I, s:I, s:O, s:I, s:O}", "format", FORMAT_NAME,
        "format_version", FORMAT_VERSION, "program_version", m->program_version, "step",
        (json_int_t)m->step, "epoch", (json_int_t)m->epoch, "consumed_samples",
        (json_int_t)m->consumed_samples, "n_parameters", (json_int_t)m->n_parameters,
        "config", m->config, "hash_block_bytes", (json_int_t)m->hash_block_bytes, "files",
        m->files);
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

static int damaged(struct error *err, const char *path, const char *why)
{
    return error_set(err, ERROR_INPUT, "'%s' is damaged: %s", path, why);
}

static int check_self_hash(const char *text, size_t n, const char *path,
                           struct error *err)
{
    char self[17], tail[SELF_BYTES + 1];
    if (n < SELF_BYTES)
        return damaged(err, path, "it is cut");
    ckpt_hash_text(text, n - SELF_BYTES, self);
    snprintf(tail, sizeof tail, SELF_FORMAT, self);
    if (memcmp(text + n - SELF_BYTES, tail, SELF_BYTES) != 0)
        return damaged(err, path, "its own hash does not fit its content");
    return 0;
}

static int check_format(const json_t *root, const char *path, struct error *err)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *version = json_object_get(root, "format_version");
    if (!format || strcmp(format, FORMAT_NAME) != 0 || !json_is_integer(version))
        return error_set(err, ERROR_INPUT, "'%s' does not describe a Trefoil checkpoint",
                         path);
    if (json_integer_value(version) != FORMAT_VERSION)
        return error_set(err, ERROR_INPUT,
                         "'%s' has checkpoint format %lld, this version of Trefoil reads "
                         "format %d",
                         path, (long long)json_integer_value(version), FORMAT_VERSION);
    return 0;
}

static bool get_count(const json_t *root, const char *key, int64_t *value)
{
    const json_t *member = json_object_get(root, key);
    *value = json_integer_value(member);
    return json_is_integer(member) && *value >= 0;
}

static int take_members(struct ckpt_manifest *m, const json_t *root, const char *path,
                        struct error *err)
{
    const char *version = json_string_value(json_object_get(root, "program_version"));
    m->config = json_incref(json_object_get(root, "config"));
    m->files = json_incref(json_object_get(root, "files"));
    if (!version || !get_count(root, "step", &m->step) ||
        !get_count(root, "epoch", &m->epoch) ||
        !get_count(root, "consumed_samples", &m->consumed_samples) ||
        !get_count(root, "n_parameters", &m->n_parameters) ||
        !get_count(root, "hash_block_bytes", &m->hash_block_bytes) ||
        !json_is_object(m->config) || !json_is_object(m->files))
        return damaged(err, path, "a member is missing or of the wrong type");
    if (m->hash_block_bytes < 16 || m->hash_block_bytes > (int64_t)1 << 30 ||
        m->hash_block_bytes % 16 != 0)
        return damaged(err, path, "its hash_block_bytes makes no sense");
    snprintf(m->program_version, sizeof m->program_version, "%s", version);
    return 0;
}

/* A file of the manifest must have its size, and a name that stays in the directory. */
static int check_file(const char *dir, const char *name, const json_t *file,
                      struct error *err)
{
    char path[PATH_MAX];
    struct stat st;
    int64_t n_bytes;
    if (fs_join(path, sizeof path, dir, name, err))
        return -1;
    if (strchr(name, '/') || !get_count(file, "bytes", &n_bytes) ||
        !json_is_string(json_object_get(file, "header_xxh3_64")) ||
        !json_is_object(json_object_get(file, "tensors")))
        return error_set(err, ERROR_INPUT, "'%s/%s' is damaged: its record of '%s'", dir,
                         CKPT_MANIFEST_NAME, name);
    if (stat(path, &st))
        return error_set(err, ERROR_INPUT, "cannot open '%s': %s", path, strerror(errno));
    if (st.st_size != n_bytes)
        return error_set(err, ERROR_INPUT,
                         "'%s' is damaged: it has %lld bytes instead of %lld", path,
                         (long long)st.st_size, (long long)n_bytes);
    return 0;
}

int ckpt_manifest_check_files(const struct ckpt_manifest *m, const char *dir,
                              struct error *err)
{
    for (void *at = json_object_iter(m->files); at;
         at = json_object_iter_next(m->files, at))
        if (check_file(dir, json_object_iter_key(at), json_object_iter_value(at), err))
            return -1;
    return 0;
}

int ckpt_manifest_read(struct ckpt_manifest *m, const char *dir, struct error *err)
{
    char path[PATH_MAX];
    char *text = NULL;
    size_t n;
    json_error_t at;
    json_t *root = NULL;
    int rc = -1;
    *m = (struct ckpt_manifest){0};

    if (fs_join(path, sizeof path, dir, CKPT_MANIFEST_NAME, err) ||
        fs_read_all(path, MAX_MANIFEST_BYTES, &text, &n, err) ||
        check_self_hash(text, n, path, err))
        goto done;
    root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &at);
    if (!root) {
        error_set(err, ERROR_INPUT, "%s:%d:%d: %s", path, at.line, at.column, at.text);
        goto done;
    }
    if (check_format(root, path, err) || take_members(m, root, path, err))
        goto done;
    rc = 0;
done:
    if (rc)
        ckpt_manifest_release(m);
    json_decref(root);
    free(text);
    return rc;
}
