#include "hub/hf_files.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ONE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"
#define INDEX_MOST_BYTES ((size_t)64 << 20)
#define MOST_FILES 10000
#define TIED_HEAD "lm_head.weight"

static int out_of_memory(const struct hf_files *hf, struct error *err)
{
    return error_set(err, ERROR_RUNTIME, "out of memory for the headers of '%s'",
                     hf->dir);
}

/* -- opening ------------------------------------------------------------------------- */

static int open_file(struct hf_files *hf, const char *name, struct error *err)
{
    struct hf_file *larger =
        realloc(hf->files, (size_t)(hf->n_files + 1) * sizeof *hf->files);
    if (!larger)
        return out_of_memory(hf, err);
    hf->files = larger;
    struct hf_file *file = &hf->files[hf->n_files++];
    *file = (struct hf_file){.fd = -1};
    if (fs_join(file->path, sizeof file->path, hf->dir, name, err))
        return -1;
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe would wait
    if (file->fd < 0)
        return error_set(err, fs_error_kind(errno), "cannot open '%s': %s", file->path,
                         strerror(errno));
    return safetensors_read_header(&file->st, file->fd, file->path, NULL, err);
}

/* The file called `name`, opened unless it is. */
static struct hf_file *need_file(struct hf_files *hf, const char *name, struct error *err)
{
    for (int i = 0; i < hf->n_files; i++)
        if (strcmp(strrchr(hf->files[i].path, '/') + 1, name) == 0)
            return &hf->files[i];
    if (hf->n_files == MOST_FILES || name[0] == '.' || strchr(name, '/')) {
        error_set(err, ERROR_INPUT,
                  "'%s/%s' names the file '%.200s', which is no file of that directory, "
                  "or more than %d files",
                  hf->dir, INDEX_NAME, name, MOST_FILES);
        return NULL;
    }
    return open_file(hf, name, err) ? NULL : &hf->files[hf->n_files - 1];
}

/* Open what the index lists; each tensor must be in the file it says. */
static int open_listed(struct hf_files *hf, const json_t *map, struct error *err)
{
    if (json_object_size(map) == 0)
        return error_set(err, ERROR_INPUT, "'%s/%s' has no \"weight_map\"", hf->dir,
                         INDEX_NAME);
    for (void *at = json_object_iter((json_t *)(uintptr_t)map); at;
         at = json_object_iter_next((json_t *)(uintptr_t)map, at)) {
        const char *tensor = json_object_iter_key(at);
        const char *name = json_string_value(json_object_iter_value(at));
        if (!name)
            return error_set(err, ERROR_INPUT,
                             "'%s/%s': the file of tensor '%.200s' is no string", hf->dir,
                             INDEX_NAME, tensor);
        const struct hf_file *file = need_file(hf, name, err);
        if (!file)
            return -1;
        if (!safetensors_find(&file->st, tensor))
            return error_set(
                err, ERROR_INPUT,
                "'%s' does not hold the tensor '%.200s' that %s says it does", file->path,
                tensor, INDEX_NAME);
    }
    return 0;
}

static int open_index(struct hf_files *hf, const char *path, struct error *err)
{
    char *text = NULL;
    size_t n;
    json_error_t where;
    if (fs_read_regular(path, INDEX_MOST_BYTES, &text, &n, err))
        return -1;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &where);
    free(text);
    if (!root)
        return error_set(err, ERROR_INPUT, "'%s':%d:%d: %s", path, where.line,
                         where.column, where.text);
    int rc = open_listed(hf, json_object_get(root, "weight_map"), err);
    json_decref(root);
    return rc;
}

static int open_all(struct hf_files *hf, struct error *err)
{
    char one[PATH_MAX], index[PATH_MAX], pickle[PATH_MAX];
    enum fs_type of_one, of_index;
    if (fs_join(one, sizeof one, hf->dir, ONE_NAME, err) ||
        fs_join(index, sizeof index, hf->dir, INDEX_NAME, err) ||
        fs_join(pickle, sizeof pickle, hf->dir, "pytorch_model.bin", err) ||
        fs_look(one, &of_one, err) || fs_look(index, &of_index, err))
        return -1;
    if (of_one != FS_NOTHING)
        return open_file(hf, ONE_NAME, err);
    if (of_index != FS_NOTHING)
        return open_index(hf, index, err);
    return error_set(err, ERROR_INPUT, "'%s' has neither %s nor %s%s", hf->dir, ONE_NAME,
                     INDEX_NAME,
                     fs_exists(pickle) ? "; its pytorch_model.bin is a pickle, which is "
                                         "not read: save the model with "
                                         "safe_serialization=True"
                                       : "");
}

static const struct safetensors_tensor *
find_name(const struct hf_files *hf, const char *name, const struct hf_file **file)
{
    for (int i = 0; i < hf->n_files; i++) {
        const struct safetensors_tensor *t = safetensors_find(&hf->files[i].st, name);
        if (t) {
            *file = &hf->files[i];
            return t;
        }
    }
    return NULL;
}

int hf_files_open(struct hf_files *hf, const char *dir, struct error *err)
{
    const struct hf_file *file;
    *hf = (struct hf_files){.prefix = HF_PREFIX};
    if (snprintf(hf->dir, sizeof hf->dir, "%s", dir) >= (int)sizeof hf->dir)
        return error_set(err, ERROR_INPUT, "path too long: '%.200s...'", dir);
    if (open_all(hf, err))
        return -1;
    if (!find_name(hf, HF_PREFIX "wte.weight", &file))
        hf->prefix = "";
    return 0;
}

void hf_files_close(struct hf_files *hf)
{
    for (int i = 0; i < hf->n_files; i++) {
        if (hf->files[i].fd >= 0)
            close(hf->files[i].fd);
        safetensors_release(&hf->files[i].st);
    }
    free(hf->files);
    hf->files = NULL;
    hf->n_files = 0;
}

const struct safetensors_tensor *hf_files_find(const struct hf_files *hf,
                                               const struct param *row,
                                               const struct hf_file **file)
{
    char name[HF_NAME_BYTES], full[sizeof(HF_PREFIX) + HF_NAME_BYTES];
    hf_name(row, HF_TRANSFORMERS, name);
    snprintf(full, sizeof full, "%s%s", hf->prefix, name);
    return find_name(hf, full, file);
}

const struct safetensors_tensor *hf_files_find_head(const struct hf_files *hf,
                                                    const struct hf_file **file)
{
    return find_name(hf, TIED_HEAD, file);
}

/* -- checking ------------------------------------------------------------------------ */

static void shape_text(const int64_t *shape, int n_dims, char text[80])
{
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < n_dims && used < 60; i++)
        used += (size_t)snprintf(text + used, 80 - used, "%s%lld", i ? ", " : "",
                                 (long long)shape[i]);
}

static int check_row(const struct hf_files *hf, const struct param *row,
                     struct error *err)
{
    const struct hf_file *file;
    const struct safetensors_tensor *t = hf_files_find(hf, row, &file);
    struct hf_shape want = hf_shape(row, HF_TRANSFORMERS);
    char name[HF_NAME_BYTES], there[80], wanted[80];
    if (!t) {
        hf_name(row, HF_TRANSFORMERS, name);
        return error_set(err, ERROR_INPUT, "'%s' has no tensor '%s%s'", hf->dir,
                         hf->prefix, name);
    }
    if (!safetensors_is_float(t->dtype))
        return error_set(err, ERROR_INPUT,
                         "'%s': tensor '%s' is of type %s; F32, F16 and BF16 can be "
                         "imported",
                         file->path, t->name, safetensors_dtype_name(t->dtype));
    if (t->n_dims == want.n_dims &&
        memcmp(t->shape, want.shape, (size_t)want.n_dims * sizeof *want.shape) == 0)
        return 0;
    shape_text(t->shape, t->n_dims, there);
    shape_text(want.shape, want.n_dims, wanted);
    return error_set(err, ERROR_INPUT,
                     "'%s': tensor '%s' has the shape [%s], but config.json makes it "
                     "[%s]",
                     file->path, t->name, there, wanted);
}

static bool is_expected(const struct hf_files *hf, const struct param_table *whole,
                        const char *name)
{
    size_t n = strlen(hf->prefix);
    if (strcmp(name, TIED_HEAD) == 0)
        return true;
    if (strncmp(name, hf->prefix, n) != 0)
        return false;
    if (hf_name_is_buffer(name + n))
        return true;
    for (int64_t i = 0; i < whole->n_params; i++) {
        char known[HF_NAME_BYTES];
        hf_name(&whole->params[i], HF_TRANSFORMERS, known);
        if (strcmp(known, name + n) == 0)
            return true;
    }
    return false;
}

/* No tensor that we would leave out, none in two files. */
static int check_file(const struct hf_files *hf, const struct hf_file *file,
                      const struct param_table *whole, struct error *err)
{
    for (int64_t i = 0; i < file->st.n_tensors; i++) {
        const char *name = file->st.tensors[i].name;
        const struct hf_file *first;
        if (!is_expected(hf, whole, name))
            return error_set(err, ERROR_INPUT,
                             "'%s' holds the tensor '%.200s', which is no part of the "
                             "GPT-2 that config.json describes",
                             file->path, name);
        if (find_name(hf, name, &first) && first != file)
            return error_set(err, ERROR_INPUT, "tensor '%.200s' is in '%s' and in '%s'",
                             name, first->path, file->path);
    }
    return 0;
}

int hf_files_check(const struct hf_files *hf, const struct param_table *whole,
                   struct error *err)
{
    for (int64_t i = 0; i < whole->n_params; i++)
        if (check_row(hf, &whole->params[i], err))
            return -1;
    for (int i = 0; i < hf->n_files; i++)
        if (check_file(hf, &hf->files[i], whole, err))
            return -1;
    return 0;
}
