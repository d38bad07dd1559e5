#include "ckpt/ckpt_find.h"

#include "base/fs.h"
#include "base/log.h"
#include "ckpt/ckpt_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a directory that a user names may stand for: one checkpoint, or the checkpoints in
 * it. Each is to be tried in turn until one can be loaded. */
struct candidates {
    char dir[PATH_MAX];
    struct ckpt_list list; // n_names 0: `dir` itself is the checkpoint
    int64_t n_tried;
};

/* An error if there is none. */
static int candidates_open(struct candidates *c, const char *ckpt_dir, struct error *err)
{
    char manifest[PATH_MAX];
    enum fs_type type;
    *c = (struct candidates){.n_tried = 0};
    if (fs_look(ckpt_dir, &type, err))
        return -1;
    if (type != FS_DIRECTORY)
        return error_set(err, ERROR_INPUT,
                         "cannot find the checkpoint: '%s' is %s; name the output_dir of "
                         "a run, or a checkpoint in it",
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

static void candidates_release(struct candidates *c)
{
    ckpt_list_release(&c->list);
}

/* The next one to `path`; false: no more. */
static bool candidates_next(struct candidates *c, char *path, size_t path_size)
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

/* One was taken, at `path`: warn if it is of a later step than the one saved last. */
static void candidates_warn(const struct candidates *c, const char *path)
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

/* After the last: an error that quotes why the newest could not be loaded. */
static int candidates_none(const struct candidates *c, const struct error *newest,
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

int ckpt_resolve(const char *ckpt_dir, int n_sets, char *path, size_t path_size,
                 struct error *err)
{
    struct candidates c;
    struct error newest = {.text = ""}, why;
    int rc = -1;
    if (candidates_open(&c, ckpt_dir, err))
        return -1;
    while (candidates_next(&c, path, path_size)) {
        bool is_damaged;
        if (c.list.n_names == 0 || ckpt_verify(path, n_sets, &is_damaged, &why) == 0) {
            candidates_warn(&c, path);
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
    candidates_none(&c, &newest, err);
done:
    candidates_release(&c);
    return rc;
}

int ckpt_find_info(const char *dir, struct ckpt_info *info, char path[PATH_MAX],
                   struct error *err)
{
    struct candidates c;
    struct error newest = {.text = ""}, why;
    int rc = -1;
    if (candidates_open(&c, dir, err))
        return -1;
    while (rc && candidates_next(&c, path, PATH_MAX)) {
        rc = ckpt_read_info(path, info, &why);
        if (rc && why.kind != ERROR_INPUT) {
            *err = why;
            goto done;
        }
        if (c.n_tried == 1)
            newest = why;
    }
    if (rc)
        candidates_none(&c, &newest, err);
done:
    candidates_release(&c);
    return rc;
}

/* -- by all ranks -------------------------------------------------------------------- */

/* Rank 0 decides which checkpoint is tried: the others might look at another moment. An
 * empty path: there are no more. */
static int next_path(struct comm *world, struct candidates *candidates,
                     char path[PATH_MAX], struct error *err)
{
    memset(path, 0, PATH_MAX);
    if (comm_rank(world) == 0 && !candidates_next(candidates, path, PATH_MAX))
        path[0] = 0;
    return comm_bcast_bytes(world, path, PATH_MAX, 0, err);
}

static void pass_over(const char *path, const struct error *why, bool sets_aside)
{
    char aside[PATH_MAX + 32];
    struct error err;
    if (!sets_aside)
        log_warning("skipped the checkpoint '%s': %s", path, why->text);
    else if (ckpt_set_aside(path, aside, sizeof aside, &err))
        log_warning("skipped the checkpoint '%s': %s. It could not be set aside: %s",
                    path, why->text, err.text);
    else
        log_warning("skipped the checkpoint '%s': %s. It was set aside as '%s'", path,
                    why->text, aside);
}

/* Load it on all ranks, or on none. */
static int load_on_all(const struct ckpt_load_newest *what, struct comm *world,
                       const char *path, bool *is_damaged, struct error *err)
{
    *is_damaged = false;
    int rc = what->load(what->context, path, is_damaged, err);
    // a rank that failed for another reason decides: the next one would fail it too
    int64_t failures[] = {rc && *is_damaged, rc && !*is_damaged};
    struct error mpi_err;
    *is_damaged = false;
    if (comm_max_i64(world, failures, ARRAY_LEN(failures), &mpi_err)) {
        *err = mpi_err;
        return -1;
    }
    rc = comm_agree(world, rc, err);
    *is_damaged = failures[0] && !failures[1];
    return rc;
}

static int try_each(const struct ckpt_load_newest *what, struct comm *world,
                    struct candidates *candidates, char path[PATH_MAX], struct error *err)
{
    struct error newest = {.text = ""}, why;
    bool is_first = comm_rank(world) == 0, is_damaged;
    for (int n_tried = 0;; n_tried++) {
        if (next_path(world, candidates, path, err))
            return -1;
        if (path[0] == 0)
            break;
        if (load_on_all(what, world, path, &is_damaged, &why) == 0) {
            if (is_first)
                candidates_warn(candidates, path);
            return 0;
        }
        if (!is_damaged) {
            *err = why;
            if (why.kind == ERROR_RUNTIME)
                error_set(err, why.kind,
                          "%.1500s; the checkpoint was left as it is: try again, or name "
                          "another",
                          why.text);
            return -1;
        }
        if (n_tried == 0)
            newest = why;
        if (is_first && candidates->list.n_names > 0)
            pass_over(path, &why, what->sets_aside);
    }
    int rc = is_first ? candidates_none(candidates, &newest, err) : 0;
    return comm_agree(world, rc, err);
}

int ckpt_load_newest(const struct ckpt_load_newest *what, struct comm *world,
                     const char *dir, char path[PATH_MAX], struct error *err)
{
    struct candidates candidates = {.n_tried = 0};
    int rc = comm_rank(world) == 0 ? candidates_open(&candidates, dir, err) : 0;
    rc = comm_agree(world, rc, err);
    if (rc == 0)
        rc = try_each(what, world, &candidates, path, err);
    candidates_release(&candidates);
    return rc;
}
