/*
 * Checkpoints and files of tensors. Headers and the manifest are read, tensors are not: a
 * checkpoint of any size is described at once. That its files are there, whole by their
 * sizes and headers, is checked; their content is verified when it is asked for.
 */
#include "base/fs.h"
#include "ckpt/ckpt.h"
#include "ckpt/ckpt_layout.h"
#include "ckpt/ckpt_manifest.h"
#include "ckpt/ckpt_scan.h"
#include "ckpt/safetensors.h"
#include "cli/inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_MANIFEST_BYTES ((size_t)1 << 30)

static json_t *describe_tensor(const struct safetensors_tensor *t)
{
    json_t *object = json_object(), *shape = json_array();
    for (int i = 0; i < t->n_dims; i++)
        inspect_append(shape, json_integer(t->shape[i]));
    inspect_set(object, "name", inspect_text(t->name, strlen(t->name)));
    inspect_set(object, "type", json_string(safetensors_dtype_name(t->dtype)));
    inspect_set(object, "shape", shape);
    inspect_set_int(object, "elements", t->n_elements);
    inspect_set_int(object, "bytes", t->end - t->begin);
    return object;
}

json_t *inspect_safetensors(const char *path, struct error *err)
{
    struct safetensors st = {0};
    json_t *object = NULL;
    int64_t n_elements = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe would wait
    if (fd < 0) {
        error_set(err, fs_error_kind(errno), "cannot open '%s': %s", path,
                  strerror(errno));
        return NULL;
    }
    if (safetensors_read_header(&st, fd, path, NULL, err))
        goto done;
    json_t *tensors = json_array();
    for (int64_t i = 0; i < st.n_tensors; i++) {
        inspect_append(tensors, describe_tensor(&st.tensors[i]));
        n_elements += st.tensors[i].n_elements;
    }
    object = json_object();
    inspect_set(object, "file", inspect_text(path, strlen(path)));
    inspect_set_int(object, "bytes", st.header_bytes + st.data_bytes);
    inspect_set_int(object, "tensors", st.n_tensors);
    inspect_set_int(object, "elements", n_elements);
    inspect_set(object, "table", tensors);
done:
    safetensors_release(&st);
    close(fd);
    return object;
}

/* -- one checkpoint -------------------------------------------------------------------
 */

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
        "step",        "epoch",           "consumed_samples", "n_parameters",
        "loss_scaler", "program_version", "data_fingerprint", "run_id"};
    static const char *const sections[] = {"Model", "batch_size", "dataset"};
    const json_t *config = json_object_get(manifest, "config");
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        json_t *value = json_object_get(manifest, members[i]);
        if (value)
            inspect_set(object, members[i], json_incref(value));
    }
    for (size_t i = 0; i < ARRAY_LEN(sections); i++) {
        json_t *section = json_object_get(config, sections[i]);
        if (section)
            inspect_set(object, sections[i], json_incref(section));
    }
}

static bool has_suffix(const char *name, const char *suffix)
{
    size_t n = strlen(name), k = strlen(suffix);
    return n >= k && strcmp(name + n - k, suffix) == 0;
}

/* Every file that the manifest names, checked; those of tensors described. */
static int add_files(json_t *object, const char *dir, const json_t *manifest,
                     struct error *err)
{
    const char *name;
    json_t *record, *files = json_array();
    inspect_set(object, "files", files);
    json_object_foreach(json_object_get(manifest, "files"), name, record)
    {
        char path[PATH_MAX];
        bool is_damaged;
        if (ckpt_manifest_check_file(dir, name, record, &is_damaged, err) ||
            fs_join(path, sizeof path, dir, name, err))
            return -1;
        if (!has_suffix(name, ".safetensors"))
            continue;
        json_t *file = inspect_safetensors(path, err);
        if (!file)
            return -1;
        // two tensors for each of the model's: whoever wants to see them names the file
        if (strncmp(name, "optimizer", strlen("optimizer")) == 0)
            json_object_del(file, "table");
        inspect_append(files, file);
    }
    return 0;
}

json_t *inspect_checkpoint(const char *dir, const struct inspect_options *opt,
                           struct error *err)
{
    bool is_damaged;
    if (opt->verifies && ckpt_verify(dir, N_CKPT_SETS, &is_damaged, err))
        return say_damaged(dir, err);
    json_t *manifest = read_manifest(dir, err);
    if (!manifest)
        return say_damaged(dir, err);
    json_t *object = json_object();
    inspect_set(object, "directory", inspect_text(dir, strlen(dir)));
    inspect_set(object, "state",
                json_string(opt->verifies ? INSPECT_WHOLE : INSPECT_UNVERIFIED));
    add_facts(object, manifest);
    int rc = add_files(object, dir, manifest, err);
    json_decref(manifest);
    if (rc == 0)
        return object;
    json_decref(object);
    return say_damaged(dir, err);
}

/* -- a directory of them --------------------------------------------------------------
 */

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
    inspect_set(row, "name", inspect_text(name, strlen(name)));
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        json_t *value = json_object_get(checkpoint, members[i]);
        inspect_set(row, members[i], value ? json_incref(value) : json_null());
    }
    if (!checkpoint)
        inspect_set(row, "state", inspect_text(why->text, strlen(why->text)));
    return row;
}

static int64_t step_of(const json_t *checkpoint)
{
    return json_integer_value(json_object_get(checkpoint, "step"));
}

int inspect_checkpoints(const char *dir, const struct inspect_options *opt, json_t **rows,
                        json_t **newest, int64_t *n_damaged, struct error *err)
{
    struct fs_names names;
    int rc = 0;
    *rows = *newest = NULL;
    *n_damaged = 0;
    if (fs_list(dir, &names, err))
        return -1;
    *rows = json_array();
    for (int64_t i = 0; i < names.n_names && rc == 0; i++) {
        char path[PATH_MAX];
        struct error why;
        struct ckpt_name parsed;
        if (!is_checkpoint(dir, names.names[i], path))
            continue;
        json_t *checkpoint = inspect_checkpoint(path, opt, &why);
        if (!checkpoint && opt->verifies && why.kind != ERROR_INPUT) {
            *err = why;
            rc = -1;
        }
        *n_damaged += !checkpoint && ckpt_name_parse(names.names[i], &parsed);
        inspect_append(*rows, describe_row(names.names[i], checkpoint, &why));
        if (checkpoint && (!*newest || step_of(checkpoint) > step_of(*newest))) {
            json_decref(*newest);
            *newest = json_incref(checkpoint);
        }
        json_decref(checkpoint);
    }
    fs_names_release(&names);
    return rc;
}
