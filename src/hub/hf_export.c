/*
 * Tensors stand in the files in the order of their names, as the safetensors library
 * writes them; files are cut between tensors. Memory: two of the largest tensor.
 */
#include "hub/hf_export.h"

#include "base/fs.h"
#include "ckpt/safetensors.h"
#include "hub/hf_config.h"
#include "text/tokenizer_save.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct entry { // a tensor to write
    char name[sizeof(HF_PREFIX) + HF_NAME_BYTES];
    const struct param *row;
    int64_t n_bytes;
    int file;
};

struct hf_exporter {
    struct hub_source *src;
    const struct hf_export_options *opt;
    char output[PATH_MAX]; // without slashes at its end
    char temp[PATH_MAX];
    bool has_temp;         // it is ours to remove
    struct entry *entries; // by name, owned
    int64_t n_entries;
    int64_t total_bytes;
    int n_files;
    struct safetensors *files; // (n_files) owned
};

static const enum safetensors_dtype file_dtypes[] = {[DTYPE_F32] = SAFETENSORS_F32,
                                                     [DTYPE_F16] = SAFETENSORS_F16,
                                                     [DTYPE_BF16] = SAFETENSORS_BF16};

/* -- which tensor goes where --------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static void cut_into_files(struct hf_exporter *x)
{
    int64_t used = 0;
    x->n_files = 1;
    for (int64_t i = 0; i < x->n_entries; i++) {
        struct entry *e = &x->entries[i];
        if (used > 0 && e->n_bytes > x->opt->max_file_bytes - used) {
            x->n_files++;
            used = 0;
        }
        e->file = x->n_files - 1;
        used += e->n_bytes;
        x->total_bytes += e->n_bytes;
    }
}

static int list_entries(struct hf_exporter *x, struct error *err)
{
    const struct param_table *table = &x->src->table;
    x->entries = calloc((size_t)table->n_params, sizeof *x->entries);
    if (!x->entries)
        return error_set(err, ERROR_RUNTIME, "out of memory for %lld tensors",
                         (long long)table->n_params);
    x->n_entries = table->n_params;
    for (int64_t i = 0; i < x->n_entries; i++) {
        struct entry *e = &x->entries[i];
        char name[HF_NAME_BYTES];
        e->row = &table->params[i];
        hf_name(e->row, HF_TRANSFORMERS, name);
        snprintf(e->name, sizeof e->name, HF_PREFIX "%s", name);
        e->n_bytes = e->row->n_elements * (int64_t)dtype_bytes(x->opt->dtype);
    }
    qsort(x->entries, (size_t)x->n_entries, sizeof *x->entries, by_name);
    cut_into_files(x);
    return 0;
}

/* -- files of tensors ---------------------------------------------------------------- */

static int describe_files(struct hf_exporter *x, struct error *err)
{
    x->files = calloc((size_t)x->n_files, sizeof *x->files);
    if (!x->files)
        return error_set(err, ERROR_RUNTIME, "out of memory for %d files", x->n_files);
    for (int64_t i = 0; i < x->n_entries; i++) {
        const struct entry *e = &x->entries[i];
        struct hf_shape shape = hf_shape(e->row, HF_TRANSFORMERS);
        if (safetensors_append(&x->files[e->file], e->name, file_dtypes[x->opt->dtype],
                               shape.n_dims, shape.shape, err))
            return -1;
    }
    return 0;
}

static int write_tensors(const struct hf_exporter *x, int file, int fd, const char *path,
                         struct error *err)
{
    for (int64_t i = 0; i < x->n_entries; i++) {
        const struct entry *e = &x->entries[i];
        if (e->file != file)
            continue;
        const float *numbers = hub_source_read(x->src, e->row, HF_TRANSFORMERS, err);
        if (!numbers || hf_write_numbers(fd, numbers, e->row->n_elements, x->opt->dtype,
                                         e->name, path, err))
            return -1;
    }
    return 0;
}

static int write_file(const struct hf_exporter *x, int file, struct error *err)
{
    char name[SAFETENSORS_FILE_NAME_BYTES], path[PATH_MAX];
    char *header = NULL;
    int fd = -1, rc = -1;
    safetensors_file_name("model", file, x->n_files, name);
    if (fs_join(path, sizeof path, x->temp, name, err) ||
        safetensors_encode_header(&x->files[file], &header, err))
        goto done;
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 || fs_write_exact(fd, header, (size_t)x->files[file].header_bytes)) {
        error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", path, strerror(errno));
        goto done;
    }
    if (write_tensors(x, file, fd, path, err))
        goto done;
    if (fsync(fd)) {
        error_set(err, ERROR_RUNTIME, "cannot sync '%s': %s", path, strerror(errno));
        goto done;
    }
    rc = 0;
done:
    if (fd >= 0)
        close(fd);
    free(header);
    return rc;
}

/* -- the small files ----------------------------------------------------------------- */

/* Takes `text`; NULL is what a rendering without memory gave. */
static int write_text(const struct hf_exporter *x, const char *name, char *text,
                      struct error *err)
{
    char path[PATH_MAX];
    int rc = -1;
    if (!text)
        error_set(err, ERROR_RUNTIME, "out of memory for '%s'", name);
    else if (fs_join(path, sizeof path, x->temp, name, err) == 0)
        rc = fs_write_atomic(path, text, strlen(text), err);
    free(text);
    return rc;
}

static int write_index(const struct hf_exporter *x, struct error *err)
{
    if (x->n_files == 1)
        return 0;
    const struct safetensors **files = calloc((size_t)x->n_files, sizeof(void *));
    for (int i = 0; i < x->n_files && files; i++)
        files[i] = &x->files[i];
    char *text = files ? safetensors_index_text("model", files, x->n_files) : NULL;
    free((void *)files);
    return write_text(x, "model.safetensors.index.json", text, err);
}

static int write_small_files(const struct hf_exporter *x, struct error *err)
{
    struct hf_config config = {.model = x->src->cfg.model,
                               .eos = x->src->cfg.dataset.eos_token_id};
    if (x->opt->tokenizer && tokenizer_eos(x->opt->tokenizer) >= 0)
        config.eos = tokenizer_eos(x->opt->tokenizer);
    if (write_index(x, err) ||
        write_text(x, "config.json", hf_config_text(&config, x->opt->dtype), err) ||
        write_text(x, "generation_config.json", hf_config_generation_text(&config), err))
        return -1;
    return x->opt->tokenizer ? tokenizer_save(x->opt->tokenizer, x->temp, err) : 0;
}

/* -- the directory ------------------------------------------------------------------- */

static int check_output(const char *output, struct error *err)
{
    struct fs_names list;
    struct stat st;
    if (lstat(output, &st) == 0 && S_ISLNK(st.st_mode))
        return error_set(err, ERROR_INPUT,
                         "cannot export to '%s': it is a symbolic link; name the "
                         "directory itself",
                         output);
    if (!fs_exists(output))
        return 0;
    if (!fs_is_directory(output))
        return error_set(err, ERROR_INPUT,
                         "cannot export to '%s': there is a file of that name; name "
                         "another directory",
                         output);
    if (fs_list(output, &list, err))
        return -1;
    bool is_empty = list.n_names == 0;
    fs_names_release(&list);
    if (is_empty)
        return 0;
    return error_set(err, ERROR_INPUT,
                     "cannot export to '%s': the directory is not empty; remove it or "
                     "name another",
                     output);
}

/* The names of the directory and of the one beside it that becomes it. */
static int name_directories(struct hf_exporter *x, const char *output, struct error *err)
{
    int n = (int)strnlen(output, PATH_MAX);
    while (n > 1 && output[n - 1] == '/')
        n--;
    snprintf(x->output, sizeof x->output, "%.*s", n, output);
    if (n > 0 && snprintf(x->temp, sizeof x->temp, "%.*s.tmp-%ld", n, output,
                          (long)getpid()) < (int)sizeof x->temp)
        return 0;
    return error_set(err, ERROR_INPUT,
                     "cannot export to '%.200s': the path is empty or too long", output);
}

/* Make x->temp, and check the free disk space. */
static int make_temp(struct hf_exporter *x, struct error *err)
{
    uint64_t n_free;
    if (fs_exists(x->temp))
        return error_set(err, ERROR_INPUT,
                         "cannot export to '%s': '%s' is in the way; remove it",
                         x->output, x->temp);
    if (fs_make_directories(x->temp, err))
        return -1;
    x->has_temp = true;
    if (fs_free_bytes(x->temp, &n_free, err))
        return -1;
    if (n_free < (uint64_t)x->total_bytes)
        return error_set(err, ERROR_RUNTIME,
                         "cannot export to '%s': %lld bytes are needed, %llu are free",
                         x->output, (long long)x->total_bytes,
                         (unsigned long long)n_free);
    return 0;
}

static int write_all(struct hf_exporter *x, struct error *err)
{
    if (list_entries(x, err) || describe_files(x, err) || make_temp(x, err))
        return -1;
    for (int i = 0; i < x->n_files; i++)
        if (write_file(x, i, err))
            return -1;
    if (write_small_files(x, err) || fs_sync_directory(x->temp, err))
        return -1;
    return fs_rename(x->temp, x->output, err);
}

int hf_export(struct hub_source *src, const struct hf_export_options *opt,
              const char *output, struct error *err)
{
    struct hf_exporter x = {.src = src, .opt = opt};
    struct error ignored;
    if (name_directories(&x, output, err) || check_output(x.output, err))
        return -1;
    int rc = write_all(&x, err);
    if (rc && x.has_temp)
        (void)!fs_remove_tree(x.temp, &ignored);
    for (int i = 0; i < x.n_files && x.files; i++)
        safetensors_release(&x.files[i]);
    free(x.files);
    free(x.entries);
    return rc;
}
