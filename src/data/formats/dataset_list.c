#include "data/formats/dataset_list.h"

#include "base/fs.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOW_TO_MAKE_ONE "make one with: trefoil prepare --input TEXT --output PREFIX"

/* The length of `name` without `suffix`, or 0 when it does not end in it. */
static size_t length_before(const char *name, const char *suffix)
{
    size_t n = strlen(name), k = strlen(suffix);
    return n > k && strcmp(name + n - k, suffix) == 0 ? n - k : 0;
}

/* Is `path` a file of a dataset? Then of which prefix and format, and which file. */
static bool is_dataset_file(const char *path, struct dataset_list_entry *entry,
                            size_t *prefix_bytes)
{
    for (int f = 0; f < N_DATASET_FORMATS; f++) {
        size_t data = length_before(path, dataset_formats[f].data_suffix);
        size_t index = length_before(path, dataset_formats[f].index_suffix);
        if (data == 0 && index == 0)
            continue;
        *prefix_bytes = data ? data : index;
        *entry = (struct dataset_list_entry){NULL, (enum dataset_format)f, data != 0,
                                             index != 0};
        return true;
    }
    return false;
}

static int append_entry(struct dataset_list *list, struct dataset_list_entry entry,
                        const char *path, size_t prefix_bytes, struct error *err)
{
    size_t n = (size_t)list->n_entries;
    struct dataset_list_entry *larger =
        realloc(list->entries, (n + 1) * sizeof *list->entries);
    if (larger) {
        list->entries = larger;
        entry.prefix = strndup(path, prefix_bytes);
    }
    if (!larger || !entry.prefix)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    list->entries[list->n_entries++] = entry;
    return 0;
}

static int compare_entries(const void *a, const void *b)
{
    const struct dataset_list_entry *x = a, *y = b;
    int order = strcmp(x->prefix, y->prefix);
    return order != 0 ? order : (int)x->format - (int)y->format;
}

/* Both files of a dataset were found apart: make one entry of them. */
static void merge_files(struct dataset_list *list)
{
    int64_t n = 0;
    for (int64_t i = 0; i < list->n_entries; i++) {
        struct dataset_list_entry *e = &list->entries[i];
        if (n > 0 && compare_entries(&list->entries[n - 1], e) == 0) {
            list->entries[n - 1].has_data |= e->has_data;
            list->entries[n - 1].has_index |= e->has_index;
            free(e->prefix);
        } else {
            list->entries[n++] = *e;
        }
    }
    list->n_entries = n;
}

static int check_entries(const struct dataset_list *list, struct error *err)
{
    for (int64_t i = 0; i < list->n_entries; i++) {
        const struct dataset_list_entry *e = &list->entries[i];
        const struct dataset_format_names *f = &dataset_formats[e->format];
        if (!e->has_data || !e->has_index)
            return error_set(err, ERROR_INPUT,
                             "half a dataset: '%s%s' is there, but not '%s%s'; add the "
                             "other file, or move this one away",
                             e->prefix, e->has_data ? f->data_suffix : f->index_suffix,
                             e->prefix, e->has_data ? f->index_suffix : f->data_suffix);
        if (i > 0 && strcmp(e[-1].prefix, e->prefix) == 0)
            return error_set(err, ERROR_INPUT,
                             "the dataset '%s' is there in two formats, '%s%s' and "
                             "'%s%s'; name one of the files, or move one away",
                             e->prefix, e->prefix,
                             dataset_formats[e[-1].format].data_suffix, e->prefix,
                             f->data_suffix);
    }
    return 0;
}

static int find_in_directory(struct dataset_list *list, const char *dir,
                             struct error *err)
{
    struct fs_names names;
    int rc = -1;
    if (fs_list(dir, &names, err))
        return -1;
    for (int64_t i = 0; i < names.n_names; i++) {
        char path[PATH_MAX];
        struct dataset_list_entry entry;
        size_t prefix_bytes, name_bytes = strlen(names.names[i]);
        if (names.names[i][0] == '.' || strstr(names.names[i], DATASET_OF_TEXT_MARK) ||
            !is_dataset_file(names.names[i], &entry, &prefix_bytes))
            continue;
        if (fs_join(path, sizeof path, dir, names.names[i], err) ||
            append_entry(list, entry, path, strlen(path) - name_bytes + prefix_bytes,
                         err))
            goto done;
    }
    if (list->n_entries == 0) {
        error_set(
            err, ERROR_INPUT,
            "no dataset in the directory '%s': looked for X.bin + X.idx "
            "(Megatron), X_ids.npy + X_idx.npz and X_ids.npz (FleetX); " HOW_TO_MAKE_ONE,
            dir);
        goto done;
    }
    rc = 0;
done:
    fs_names_release(&names);
    return rc;
}

/* A file of text was given where a dataset is read. */
static int refuse_text(const char *path, struct error *err)
{
    return error_set(err, ERROR_INPUT,
                     "'%s' is not a file of a dataset; make a dataset of text with: "
                     "trefoil prepare --input '%s' --tokenizer DIR --output PREFIX, and "
                     "use PREFIX; JSON lines are prepared by trefoil pretrain itself if "
                     "the name ends in .jsonl, .ndjson or .json",
                     path, path);
}

static bool is_other_file(const char *path)
{
    enum fs_type type;
    struct error ignored;
    return fs_look(path, &type, &ignored) == 0 && type == FS_FILE;
}

/* Every file of `prefix` that exists, in any format. */
static int find_prefix(struct dataset_list *list, const char *prefix, struct error *err)
{
    for (int f = 0; f < N_DATASET_FORMATS; f++) {
        const char *suffixes[] = {dataset_formats[f].data_suffix,
                                  dataset_formats[f].index_suffix};
        struct dataset_list_entry entry = {.format = (enum dataset_format)f};
        for (int i = 0; i < 2; i++) {
            char path[PATH_MAX];
            bool is_there = snprintf(path, sizeof path, "%s%s", prefix, suffixes[i]) <
                                (int)sizeof path &&
                            fs_exists(path);
            *(i == 0 ? &entry.has_data : &entry.has_index) = is_there;
        }
        if ((entry.has_data || entry.has_index) &&
            append_entry(list, entry, prefix, strlen(prefix), err))
            return -1;
    }
    if (list->n_entries == 0 && is_other_file(prefix))
        return refuse_text(prefix, err);
    if (list->n_entries == 0)
        return error_set(err, ERROR_INPUT,
                         "'%s' is no directory and no dataset%s: none of '%s.bin', "
                         "'%s_ids.npy' and '%s_ids.npz' exists; " HOW_TO_MAKE_ONE,
                         prefix, fs_exists(prefix) ? "" : ", and there is no such file",
                         prefix, prefix, prefix);
    return 0;
}

/* A file was named, so its format is meant, whatever else has the same prefix. */
static int find_named_file(struct dataset_list *list, const char *path,
                           struct dataset_list_entry entry, size_t prefix_bytes,
                           struct error *err)
{
    const struct dataset_format_names *f = &dataset_formats[entry.format];
    const char *other = entry.has_data ? f->index_suffix : f->data_suffix;
    char other_path[PATH_MAX];
    if (snprintf(other_path, sizeof other_path, "%.*s%s", (int)prefix_bytes, path,
                 other) < (int)sizeof other_path &&
        fs_exists(other_path))
        entry.has_data = entry.has_index = true;
    return append_entry(list, entry, path, prefix_bytes, err);
}

int dataset_list_find(struct dataset_list *list, const char *input, struct error *err)
{
    int rc;
    struct dataset_list_entry entry;
    size_t prefix_bytes;
    *list = (struct dataset_list){0};
    if (input[0] == 0)
        return error_set(err, ERROR_INPUT,
                         "dataset.input_dir is empty: name a directory of datasets, or "
                         "the prefix of one; " HOW_TO_MAKE_ONE);
    if (fs_is_directory(input))
        rc = find_in_directory(list, input, err);
    else if (fs_exists(input) && is_dataset_file(input, &entry, &prefix_bytes))
        rc = find_named_file(list, input, entry, prefix_bytes, err);
    else
        rc = find_prefix(list, input, err);
    if (rc == 0) {
        if (list->n_entries > 1)
            qsort(list->entries, (size_t)list->n_entries, sizeof *list->entries,
                  compare_entries);
        merge_files(list);
        rc = check_entries(list, err);
    }
    if (rc)
        dataset_list_release(list);
    return rc;
}

void dataset_list_release(struct dataset_list *list)
{
    for (int64_t i = 0; i < list->n_entries; i++)
        free(list->entries[i].prefix);
    free(list->entries);
    *list = (struct dataset_list){0};
}

bool dataset_list_is_file(const char *path)
{
    struct dataset_list_entry entry;
    size_t prefix_bytes;
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    return name[0] != '.' && is_dataset_file(name, &entry, &prefix_bytes);
}

/* -- which tokenizer ----------------------------------------------------------------- */

/* A dataset without a meta file, made by others, says nothing: *is_there is false. */
static int read_meta(const char *prefix, char path[PATH_MAX], struct dataset_meta *meta,
                     bool *is_there, struct error *err)
{
    if (snprintf(path, PATH_MAX, "%s.meta.json", prefix) >= PATH_MAX)
        return error_set(err, ERROR_INPUT, "path too long: '%.200s...'", prefix);
    return dataset_meta_read(path, meta, is_there, err);
}

/* One dataset and its meta file. */
struct described {
    const struct dataset_list_entry *entry;
    const char *path;                // of the meta file
    const struct dataset_meta *meta; // NULL: there is none
};

/* Call `see` with each dataset of `inputs` that is there. */
static int see_metas(const struct config_paths *inputs,
                     int (*see)(void *context, const struct described *d,
                                struct error *err),
                     void *context, struct error *err)
{
    struct error ignored;
    struct dataset_meta meta;
    char path[PATH_MAX];
    bool is_there = false;
    int rc = 0;
    for (int64_t i = 0; i < inputs->n_paths && rc == 0; i++) {
        struct dataset_list list = {0};
        if (dataset_list_find(&list, config_path_at(inputs, i), &ignored) == 0)
            for (int64_t j = 0; j < list.n_entries && rc == 0; j++) {
                rc = read_meta(list.entries[j].prefix, path, &meta, &is_there, err);
                struct described d = {&list.entries[j], path, is_there ? &meta : NULL};
                if (rc == 0)
                    rc = see(context, &d, err);
            }
        dataset_list_release(&list);
    }
    return rc;
}

struct tokenizer_name {
    char *text;
    size_t size;
};

static int see_tokenizer(void *context, const struct described *d, struct error *err)
{
    const struct tokenizer_name *name = context;
    const struct dataset_meta *meta = d->meta;
    if (!meta || strcmp(meta->tokenizer, name->text) == 0)
        return 0;
    if (name->text[0])
        return error_set(err, ERROR_INPUT,
                         "its datasets were prepared with several tokenizers, '%s' and "
                         "'%s'",
                         name->text, meta->tokenizer);
    snprintf(name->text, name->size, "%s", meta->tokenizer);
    return 0;
}

int dataset_list_tokenizer(const struct config_paths *inputs, char *name, size_t size,
                           struct error *err)
{
    struct tokenizer_name found = {name, size};
    name[0] = 0;
    return see_metas(inputs, see_tokenizer, &found, err);
}

struct common_hash {
    char *text;
    bool is_common;
};

static int see_hash(void *context, const struct described *d, struct error *err)
{
    struct common_hash *hash = context;
    (void)err;
    if (!d->meta)
        return 0;
    const char *own = d->meta->tokenizer_hash;
    if (!hash->text[0])
        memcpy(hash->text, own, DATASET_HASH_BYTES);
    hash->is_common &= own[0] && strcmp(hash->text, own) == 0;
    return 0;
}

int dataset_list_tokenizer_hash(const struct config_paths *inputs,
                                char hash[DATASET_HASH_BYTES], struct error *err)
{
    struct common_hash found = {hash, true};
    hash[0] = 0;
    int rc = see_metas(inputs, see_hash, &found, err);
    if (rc || !found.is_common)
        hash[0] = 0;
    return rc;
}

/* -- what the data says of itself ---------------------------------------------------- */

struct facts {
    struct config_data_facts *known;
    bool has_other; // than PaddleFleetX's form without a meta file
};

static int see_facts(void *context, const struct described *d, struct error *err)
{
    struct facts *f = context;
    struct config_data_facts *facts = f->known;
    const struct dataset_meta *meta = d->meta;
    bool is_fleetx =
        d->entry->format == DATASET_FLEETX || d->entry->format == DATASET_FLEETX_OLD;
    (void)err;
    if (!is_fleetx || meta)
        f->has_other = true;
    else if (!facts->plain_fleetx[0])
        snprintf(facts->plain_fleetx, sizeof facts->plain_fleetx, "%s", d->entry->prefix);
    if (!meta)
        return 0;
    if (!facts->source[0]) {
        facts->vocab_size = meta->vocab_size;
        facts->eos_token_id = meta->eos_token_id;
        snprintf(facts->source, sizeof facts->source, "%s", d->path);
    }
    if (meta->eos_token_id != facts->eos_token_id)
        facts->eos_token_id = -1;
    if (meta->vocab_size != facts->vocab_size && !facts->other_source[0]) {
        facts->other_vocab_size = meta->vocab_size;
        snprintf(facts->other_source, sizeof facts->other_source, "%s", d->path);
    }
    return 0;
}

int dataset_list_facts(const struct config_dataset *data, struct config_data_facts *facts,
                       struct error *err)
{
    struct facts f = {.known = facts};
    *facts = (struct config_data_facts){.eos_token_id = -1};
    int rc = see_metas(config_datasets(data), see_facts, &f, err);
    facts->is_plain_fleetx = facts->plain_fleetx[0] && !f.has_other;
    return rc;
}
