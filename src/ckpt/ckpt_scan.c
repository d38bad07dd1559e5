/*
 * Checkpoints are found by listing the directory, ordered by the step in their names,
 * and believed only after their own hashes: neither time stamps nor `latest` are asked.
 * Names of unfinished or discarded ones (".tmp-", ".trash-") do not parse.
 */
#include "ckpt/ckpt_scan.h"

#include "base/fs.h"
#include "base/log.h"
#include "ckpt/ckpt.h"
#include "ckpt/ckpt_file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ckpt_name ckpt_name_make(int64_t epoch, int64_t step)
{
    struct ckpt_name name = {.epoch = epoch, .step = step};
    snprintf(name.text, sizeof name.text, "epoch_%lld_step_%lld", (long long)epoch,
             (long long)step);
    return name;
}

/* Skip `word` and the number after it; NULL when they are not there. */
static const char *parse_field(const char *text, const char *word, int64_t *value)
{
    size_t n = strlen(word);
    if (strncmp(text, word, n) != 0)
        return NULL;
    *value = 0;
    for (text += n; *text >= '0' && *text <= '9'; text++)
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, *text - '0', value))
            return NULL;
    return text;
}

bool ckpt_name_parse(const char *text, struct ckpt_name *name)
{
    int64_t epoch, step;
    const char *at = parse_field(text, "epoch_", &epoch);
    if (at)
        at = parse_field(at, "_step_", &step);
    if (!at)
        return false;
    *name = ckpt_name_make(epoch, step);
    return strcmp(name->text, text) == 0;
}

static int compare_newest_first(const void *a, const void *b)
{
    const struct ckpt_name *x = a, *y = b;
    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    return (x->epoch < y->epoch) - (x->epoch > y->epoch);
}

int ckpt_scan(const char *dir, struct ckpt_list *list, struct error *err)
{
    struct fs_names files;
    *list = (struct ckpt_list){0};
    if (fs_list(dir, &files, err))
        return -1;
    list->names = calloc((size_t)files.n_names + 1, sizeof *list->names);
    for (int64_t i = 0; i < files.n_names && list->names; i++)
        list->n_names += ckpt_name_parse(files.names[i], &list->names[list->n_names]);
    fs_names_release(&files);
    if (!list->names)
        return error_set(err, ERROR_RUNTIME, "out of memory for the names in '%s'", dir);
    qsort(list->names, (size_t)list->n_names, sizeof *list->names, compare_newest_first);
    return 0;
}

void ckpt_list_release(struct ckpt_list *list)
{
    free(list->names);
    *list = (struct ckpt_list){0};
}

int64_t ckpt_newest_step(const char *dir)
{
    struct ckpt_list list;
    struct error err;
    int64_t step = -1;
    if (ckpt_scan(dir, &list, &err) == 0 && list.n_names > 0)
        step = list.names[0].step;
    ckpt_list_release(&list);
    return step;
}

int ckpt_check(const char *dir, const struct ckpt_name *name, bool is_deep,
               struct error *err)
{
    struct ckpt_manifest m = {0};
    char path[PATH_MAX];
    int rc = -1;
    if (fs_join(path, sizeof path, dir, name->text, err) ||
        ckpt_manifest_read(&m, path, err) || ckpt_manifest_check_files(&m, path, err))
        goto done;
    if (m.step != name->step || m.epoch != name->epoch) {
        error_set(err, ERROR_INPUT,
                  "'%s/" CKPT_MANIFEST_NAME "' belongs to another checkpoint: it says "
                  "epoch %lld, step %lld",
                  path, (long long)m.epoch, (long long)m.step);
        goto done;
    }
    if (is_deep && (ckpt_file_verify(path, CKPT_MODEL_NAME, &m, err) ||
                    ckpt_file_verify(path, CKPT_OPTIMIZER_NAME, &m, err)))
        goto done;
    rc = 0;
done:
    ckpt_manifest_release(&m);
    return rc;
}

/* The newest valid one of the list, or NULL with *err about the newest of all. */
static const struct ckpt_name *find_valid(const char *dir, const struct ckpt_list *list,
                                          struct error *err)
{
    for (int64_t i = 0; i < list->n_names; i++) {
        struct error why;
        if (ckpt_check(dir, &list->names[i], true, &why) == 0)
            return &list->names[i];
        log_warning("skipped the checkpoint '%s': %s", list->names[i].text, why.text);
        if (i == 0)
            *err = why;
    }
    return NULL;
}

static int resolve_newest(const char *dir, char *path, size_t path_size,
                          struct error *err)
{
    struct ckpt_list list;
    int rc = -1;
    if (ckpt_scan(dir, &list, err))
        goto done;
    if (list.n_names == 0) {
        error_set(err, ERROR_INPUT,
                  "'%s' holds no checkpoint: neither a " CKPT_MANIFEST_NAME
                  " nor directories called epoch_E_step_N",
                  dir);
        goto done;
    }
    struct error why = {.text = ""};
    const struct ckpt_name *name = find_valid(dir, &list, &why);
    if (!name) {
        error_set(
            err, ERROR_INPUT,
            "none of the %lld checkpoints in '%s' is valid; the newest: %.1000s. To "
            "start from scratch, leave save_load.ckpt_dir empty",
            (long long)list.n_names, dir, why.text);
        goto done;
    }
    rc = fs_join(path, path_size, dir, name->text, err);
done:
    ckpt_list_release(&list);
    return rc;
}

int ckpt_resolve(const char *ckpt_dir, char *path, size_t path_size, struct error *err)
{
    char manifest[PATH_MAX];
    if (!fs_is_directory(ckpt_dir))
        return error_set(err, ERROR_INPUT, "cannot find the checkpoint: '%s' is %s",
                         ckpt_dir, fs_exists(ckpt_dir) ? "not a directory" : "not there");
    if (fs_join(manifest, sizeof manifest, ckpt_dir, CKPT_MANIFEST_NAME, err))
        return -1;
    if (!fs_exists(manifest))
        return resolve_newest(ckpt_dir, path, path_size, err);
    if (snprintf(path, path_size, "%s", ckpt_dir) >= (int)path_size)
        return error_set(err, ERROR_INPUT, "path too long: '%s'", ckpt_dir);
    return 0;
}
