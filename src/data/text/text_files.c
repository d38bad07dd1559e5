#include "data/text/text_files.h"

#include "base/grow.h"
#include "data/formats/dataset_list.h"
#include "data/text/text_input.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MOST_LEVELS 64 // of directories in directories

struct walk {
    struct text_files *out;
    const char *output; // or NULL
    int64_t capacity;   // of the list of files
    bool has_standard_input;
};

static bool ends_with(const char *name, size_t n, const char *suffix)
{
    size_t k = strlen(suffix);
    return n >= k && memcmp(name + n - k, suffix, k) == 0;
}

bool text_files_is_json(const char *path)
{
    size_t n = strlen(path);
    if (ends_with(path, n, ".gz"))
        n -= strlen(".gz");
    else if (ends_with(path, n, ".zst"))
        n -= strlen(".zst");
    return ends_with(path, n, ".jsonl") || ends_with(path, n, ".json") ||
           ends_with(path, n, ".ndjson");
}

/* Token files without a mark of their own are known by their names only. */
static int refuse_token_files(const char *path, struct error *err)
{
    static const char *const suffixes[] = {".bin", ".idx", ".npy", ".npz"};
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++)
        if (ends_with(path, strlen(path), suffixes[i]))
            return error_set(err, ERROR_INPUT,
                             "'%s' is a token file (%s), not text; name the text files",
                             path, suffixes[i]);
    return 0;
}

/* What an earlier run with the same --output has left in a directory of inputs. */
static bool is_own_output(const struct walk *w, const char *path)
{
    static const char *const suffixes[] = {
        ".bin",     ".idx",     "_ids.npy",     "_idx.npz",     ".meta.json",
        ".bin.tmp", ".idx.tmp", "_ids.npy.tmp", "_idx.npz.tmp", ".lens.tmp"};
    size_t n = w->output ? strlen(w->output) : 0;
    if (!w->output || strncmp(path, w->output, n) != 0)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++)
        if (strcmp(path + n, suffixes[i]) == 0)
            return true;
    return false;
}

static int add_file(struct walk *w, const char *path, const struct stat *st,
                    struct error *err)
{
    struct fs_names *list = &w->out->files;
    if (refuse_token_files(path, err))
        return -1;
    w->out->total_bytes += (double)st->st_size;
    w->out->has_pipes = w->out->has_pipes || !S_ISREG(st->st_mode);
    char *copy = strdup(path);
    if (!copy ||
        grow_array(&list->names, &w->capacity, list->n_names + 1, sizeof *list->names)) {
        free(copy);
        return error_set(err, ERROR_RUNTIME, "out of memory");
    }
    list->names[list->n_names++] = copy;
    return 0;
}

static int add_directory(struct walk *w, const char *dir, int level, struct error *err);

/* An entry of a directory, or nothing where the header says so. */
static int add_entry(struct walk *w, const char *path, int level, struct error *err)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    if (is_own_output(w, path) || strstr(slash ? slash : path, DATASET_OF_TEXT_MARK))
        return 0;
    if (stat(path, &st))
        return error_set(err, ERROR_INPUT, "cannot open '%s': %s", path, strerror(errno));
    if (S_ISREG(st.st_mode))
        return add_file(w, path, &st, err);
    if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return add_directory(w, path, level + 1, err);
    return 0;
}

static int add_directory(struct walk *w, const char *dir, int level, struct error *err)
{
    struct fs_names names;
    int rc = -1;
    if (level > MOST_LEVELS)
        return error_set(err, ERROR_INPUT,
                         "'%s' is more than %d directories deep; name it as an input "
                         "of its own",
                         dir, MOST_LEVELS);
    if (fs_list(dir, &names, err))
        return -1;
    for (int64_t i = 0; i < names.n_names; i++) {
        char path[PATH_MAX];
        if (names.names[i][0] == '.')
            continue;
        if (fs_join(path, sizeof path, dir, names.names[i], err) ||
            add_entry(w, path, level, err))
            goto done;
    }
    rc = 0;
done:
    fs_names_release(&names);
    return rc;
}

/* Read once, it has nothing for a second time. */
static int add_standard_input(struct walk *w, struct error *err)
{
    const struct stat pipe = {.st_mode = S_IFIFO};
    if (w->has_standard_input)
        return error_set(err, ERROR_INPUT, "standard input (-) is named twice");
    w->has_standard_input = true;
    return add_file(w, TEXT_STANDARD_INPUT, &pipe, err);
}

static int add_input(struct walk *w, const char *path, struct error *err)
{
    struct stat st;
    int64_t n_before = w->out->files.n_names;
    if (strcmp(path, TEXT_STANDARD_INPUT) == 0)
        return add_standard_input(w, err);
    if (stat(path, &st))
        return error_set(
            err, ERROR_INPUT,
            "cannot open '%s': %s; name a file of text or a directory of such", path,
            strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return add_file(w, path, &st, err);
    if (add_directory(w, path, 0, err))
        return -1;
    if (w->out->files.n_names == n_before)
        return error_set(err, ERROR_INPUT,
                         "the directory '%s' has no files in it; put text there", path);
    return 0;
}

int text_files_init(struct text_files *f, char *const *inputs, int n_inputs,
                    const char *output, struct error *err)
{
    struct walk w = {.out = f, .output = output};
    *f = (struct text_files){0};
    for (int i = 0; i < n_inputs; i++)
        if (add_input(&w, inputs[i], err)) {
            text_files_release(f);
            return -1;
        }
    return 0;
}

int text_files_check_shared(const char *path, int n_processes, struct error *err)
{
    struct stat st;
    bool is_standard = strcmp(path, TEXT_STANDARD_INPUT) == 0;
    if (n_processes == 1 ||
        (!is_standard && (stat(path, &st) || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))))
        return 0;
    return error_set(err, ERROR_INPUT,
                     "'%s' can be read by one process only, and there are %d; write it "
                     "to a file first",
                     text_source_name(path), n_processes);
}

void text_files_release(struct text_files *f)
{
    fs_names_release(&f->files);
    *f = (struct text_files){0};
}

void text_files_say(const struct text_files *f, char *buf, size_t size)
{
    const char *first = f->files.n_names > 0 ? f->files.names[0] : "";
    if (f->files.n_names == 1)
        snprintf(buf, size, "'%s'", first);
    else
        snprintf(buf, size, "the %lld files from '%s' on", (long long)f->files.n_names,
                 first);
}
