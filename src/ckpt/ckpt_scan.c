/*
 * Checkpoints are found by listing the directory, ordered by the step in their names,
 * and believed only after their own hashes: neither time stamps nor `latest` are asked.
 * Names of unfinished or discarded ones (".tmp-", ".trash-") do not parse.
 */
#include "ckpt/ckpt_scan.h"

#include "base/fs.h"
#include "base/log.h"
#include "ckpt/ckpt.h"
#include "ckpt/ckpt_read.h"

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

/* -- is it whole? -------------------------------------------------------------------- */

int ckpt_check_name(const char *path, const struct ckpt_progress *progress,
                    struct error *err)
{
    struct ckpt_name name;
    char text[CKPT_NAME_BYTES];
    size_t n = strlen(path), begin;
    while (n > 0 && path[n - 1] == '/')
        n--;
    for (begin = n; begin > 0 && path[begin - 1] != '/';)
        begin--;
    if (n - begin >= sizeof text)
        return 0;
    snprintf(text, sizeof text, "%.*s", (int)(n - begin), path + begin);
    if (!ckpt_name_parse(text, &name) ||
        (progress->step == name.step && progress->epoch == name.epoch))
        return 0;
    return error_set(err, ERROR_INPUT,
                     "'%s/" CKPT_MANIFEST_NAME "' belongs to another checkpoint: it says "
                     "epoch %lld, step %lld",
                     path, (long long)progress->epoch, (long long)progress->step);
}

int ckpt_verify(const char *path, int n_sets, bool *is_damaged, struct error *err)
{
    struct ckpt_reader reader;
    int rc = ckpt_reader_open(&reader, path, n_sets, err);
    if (rc == 0 && ckpt_check_name(path, &reader.manifest.progress, err)) {
        reader.is_damaged = true;
        rc = -1;
    }
    if (rc == 0)
        rc = ckpt_reader_verify(&reader, err);
    *is_damaged = reader.is_damaged;
    ckpt_reader_close(&reader);
    return rc;
}

int ckpt_check(const char *dir, const struct ckpt_name *name,
               struct ckpt_progress *progress, struct error *err)
{
    struct ckpt_manifest m = {.n_parameters = 0};
    char path[PATH_MAX];
    bool is_damaged;
    int rc = -1;
    if (fs_join(path, sizeof path, dir, name->text, err) ||
        ckpt_manifest_read(&m, path, &is_damaged, err) ||
        ckpt_manifest_check_files(&m, path, err) ||
        ckpt_check_name(path, &m.progress, err))
        goto done;
    if (progress)
        *progress = m.progress;
    rc = 0;
done:
    ckpt_manifest_release(&m);
    return rc;
}

/* -- which one? ---------------------------------------------------------------------- */

int ckpt_candidates_open(struct ckpt_candidates *c, const char *ckpt_dir,
                         struct error *err)
{
    char manifest[PATH_MAX];
    enum fs_type type;
    *c = (struct ckpt_candidates){.n_tried = 0};
    if (fs_look(ckpt_dir, &type, err))
        return -1;
    if (type != FS_DIRECTORY)
        return error_set(err, ERROR_INPUT, "cannot find the checkpoint: '%s' is %s",
                         ckpt_dir, type == FS_NOTHING ? "not there" : "not a directory");
    if (snprintf(c->dir, sizeof c->dir, "%s", ckpt_dir) >= (int)sizeof c->dir)
        return error_set(err, ERROR_INPUT, "path too long: '%.200s...'", ckpt_dir);
    if (fs_join(manifest, sizeof manifest, ckpt_dir, CKPT_MANIFEST_NAME, err) ||
        fs_look(manifest, &type, err))
        return -1;
    if (type != FS_NOTHING)
        return 0;
    if (ckpt_scan(ckpt_dir, &c->list, err))
        return -1;
    if (c->list.n_names > 0)
        return 0;
    ckpt_list_release(&c->list);
    return error_set(err, ERROR_INPUT,
                     "'%s' holds no checkpoint: neither a " CKPT_MANIFEST_NAME
                     " nor directories called epoch_E_step_N (those that end in "
                     "'" CKPT_DAMAGED_SUFFIX "' were set aside)",
                     ckpt_dir);
}

void ckpt_candidates_release(struct ckpt_candidates *c)
{
    ckpt_list_release(&c->list);
}

bool ckpt_candidates_next(struct ckpt_candidates *c, char *path, size_t path_size)
{
    struct error ignored;
    int64_t i = c->n_tried++;
    if (c->list.n_names == 0)
        return i == 0 && snprintf(path, path_size, "%s", c->dir) < (int)path_size;
    return i < c->list.n_names &&
           fs_join(path, path_size, c->dir, c->list.names[i].text, &ignored) == 0;
}

/* What `latest` says, if it says anything: it is a hint, and may be anybody's. */
static bool read_latest(const char *dir, struct ckpt_name *name)
{
    char path[PATH_MAX], *text = NULL;
    size_t n;
    struct error ignored;
    if (fs_join(path, sizeof path, dir, CKPT_LATEST_NAME, &ignored) ||
        fs_read_regular(path, CKPT_NAME_BYTES, &text, &n, &ignored))
        return false;
    text[strcspn(text, "\n")] = 0;
    bool is_name = ckpt_name_parse(text, name);
    free(text);
    return is_name;
}

void ckpt_candidates_warn(const struct ckpt_candidates *c, const char *path)
{
    struct ckpt_name latest;
    if (c->list.n_names == 0 || !read_latest(c->dir, &latest))
        return;
    const struct ckpt_name *taken = &c->list.names[c->n_tried - 1];
    bool is_there = false;
    for (int64_t i = c->n_tried; i < c->list.n_names; i++)
        is_there |= strcmp(c->list.names[i].text, latest.text) == 0;
    if (!is_there || latest.step >= taken->step)
        return;
    log_warning("'%s' has the highest step in '%s' and was taken, but '%s' was saved "
                "last, maybe by another run; to take that one name it: "
                "-o save_load.ckpt_dir=%s/%s (or --ckpt)",
                path, c->dir, latest.text, c->dir, latest.text);
}

int ckpt_candidates_none(const struct ckpt_candidates *c, const struct error *newest,
                         struct error *err)
{
    if (c->list.n_names == 0) {
        *err = *newest;
        return -1;
    }
    return error_set(
        err, ERROR_INPUT,
        "none of the %lld checkpoints in '%s' is valid; the newest: %.1000s. "
        "To start from scratch, leave save_load.ckpt_dir empty",
        (long long)c->list.n_names, c->dir, newest->text);
}

int ckpt_set_aside(const char *path, char *aside, size_t size, struct error *err)
{
    for (int i = 1; i < 1000; i++) {
        char number[16] = "";
        if (i > 1)
            snprintf(number, sizeof number, "-%d", i);
        if (snprintf(aside, size, "%s" CKPT_DAMAGED_SUFFIX "%s", path, number) >=
            (int)size)
            return error_set(err, ERROR_INPUT, "path too long: '%.200s...'", path);
        if (!fs_exists(aside))
            return fs_rename(path, aside, err);
    }
    return error_set(err, ERROR_RUNTIME, "there are a thousand '%s', remove some", aside);
}

int ckpt_resolve(const char *ckpt_dir, int n_sets, char *path, size_t path_size,
                 struct error *err)
{
    struct ckpt_candidates c;
    struct error newest = {.text = ""}, why;
    int rc = -1;
    if (ckpt_candidates_open(&c, ckpt_dir, err))
        return -1;
    while (ckpt_candidates_next(&c, path, path_size)) {
        bool is_damaged;
        if (c.list.n_names == 0 || ckpt_verify(path, n_sets, &is_damaged, &why) == 0) {
            ckpt_candidates_warn(&c, path);
            rc = 0;
            goto done;
        }
        if (!is_damaged) { // another would fare no better
            *err = why;
            goto done;
        }
        log_warning("skipped the checkpoint '%s': %s", path, why.text);
        if (c.n_tried == 1)
            newest = why;
    }
    ckpt_candidates_none(&c, &newest, err);
done:
    ckpt_candidates_release(&c);
    return rc;
}
