#include "ckpt/ckpt_find.h"

#include "base/fs.h"
#include "base/log.h"
#include "ckpt/ckpt_latest.h"
#include "ckpt/ckpt_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a directory that a user names may stand for: one checkpoint, or the checkpoints in
 * it. Each is to be tried in turn until one can be loaded. */
struct candidates {
    char dir[PATH_MAX];
    struct ckpt_list list; // in the order of trial; n_names 0: `dir` is the checkpoint
    int64_t n_tried;
    bool warns;      // about `latest`
    bool has_latest; // the list is to be narrowed to its run
    bool is_narrowed;
    struct ckpt_name latest;
    struct ckpt_name highest; // step in the directory
    int64_t n_others;         // checkpoints that are not tried
};

static bool have_same_text(const struct ckpt_name *a, const struct ckpt_name *b)
{
    return strcmp(a->text, b->text) == 0;
}

/* -- the run of the one saved last --------------------------------------------------- */

/* The checkpoints of a directory except the one saved last. */
struct survey {
    int64_t n_readable;
    char run_id[CKPT_RUN_ID_BYTES]; // of the first that was read
    bool has_several_runs;
    bool has_later; // one has a higher step than the one saved last
};

/* *is_known false: its trainer.json is damaged or not there. */
static int read_run_id(const char *dir, const char *name, char id[CKPT_RUN_ID_BYTES],
                       bool *is_known, struct error *err)
{
    struct ckpt_manifest m;
    char path[PATH_MAX];
    struct error why;
    bool is_damaged;
    *is_known = false;
    if (fs_join(path, sizeof path, dir, name, err))
        return -1;
    if (ckpt_manifest_read(&m, path, &is_damaged, &why)) {
        if (why.kind == ERROR_INPUT)
            return 0;
        *err = why;
        return -1;
    }
    memcpy(id, m.progress.run_id, CKPT_RUN_ID_BYTES);
    *is_known = true;
    ckpt_manifest_release(&m);
    return 0;
}

static int survey_others(const struct candidates *c, struct survey *s, struct error *err)
{
    *s = (struct survey){.n_readable = 0};
    for (int64_t i = 0; i < c->list.n_names; i++) {
        const struct ckpt_name *name = &c->list.names[i];
        char id[CKPT_RUN_ID_BYTES];
        bool is_known;
        if (have_same_text(name, &c->latest))
            continue;
        if (read_run_id(c->dir, name->text, id, &is_known, err))
            return -1;
        if (!is_known)
            continue;
        if (s->n_readable++ == 0)
            memcpy(s->run_id, id, sizeof id);
        s->has_several_runs |= strcmp(s->run_id, id) != 0;
        s->has_later |= name->step > c->latest.step;
    }
    return 0;
}

/* Was a checkpoint of this name set aside? `aside` := the last name it was given. */
static bool find_aside(const struct candidates *c, char aside[CKPT_NAME_BYTES + 32])
{
    char path[PATH_MAX];
    struct error ignored;
    bool is_there = false;
    for (int i = 1; i < 1000; i++) {
        char name[CKPT_NAME_BYTES + 32], number[16] = "";
        if (i > 1)
            snprintf(number, sizeof number, "-%d", i);
        snprintf(name, sizeof name, "%s" CKPT_DAMAGED_SUFFIX "%s", c->latest.text,
                 number);
        if (fs_join(path, sizeof path, c->dir, name, &ignored) || !fs_exists(path))
            break;
        memcpy(aside, name, sizeof name);
        is_there = true;
    }
    return is_there;
}

static int refuse_unknown_run(const struct candidates *c, bool was_there,
                              struct error *err)
{
    return error_set(err, ERROR_INPUT,
                     "'%s/" CKPT_LATEST_NAME
                     "' names '%s', which %s, and the other checkpoints "
                     "there may be of another run: name the one to use, such as '%s/%s'",
                     c->dir, c->latest.text, was_there ? "is damaged" : "is not there",
                     c->dir, c->highest.text);
}

/* Which of the others are tried after the one saved last. */
struct rule {
    bool has_run; // only checkpoints of this run or of a run that cannot be read
    char run_id[CKPT_RUN_ID_BYTES];
    bool is_lower; // only lower steps
};

static int choose_rule(const struct candidates *c, bool is_listed, struct rule *rule,
                       struct error *err)
{
    struct survey survey;
    char aside[CKPT_NAME_BYTES + 32];
    bool was_there = is_listed || find_aside(c, aside);
    *rule = (struct rule){.is_lower = was_there};
    if (was_there && read_run_id(c->dir, is_listed ? c->latest.text : aside, rule->run_id,
                                 &rule->has_run, err))
        return -1;
    if (rule->has_run)
        return 0;
    if (survey_others(c, &survey, err))
        return -1;
    if (survey.has_several_runs || (was_there && survey.has_later))
        return refuse_unknown_run(c, was_there, err);
    return 0;
}

static bool rule_takes(const struct rule *rule, const struct candidates *c,
                       const struct ckpt_name *name)
{
    char id[CKPT_RUN_ID_BYTES];
    bool is_known;
    struct error ignored; // loading it reports the same error
    if (rule->is_lower && name->step >= c->latest.step)
        return false;
    return !rule->has_run || read_run_id(c->dir, name->text, id, &is_known, &ignored) ||
           !is_known || strcmp(id, rule->run_id) == 0;
}

/* Leave the one saved last, if it is there, and what may be tried after it. */
static int candidates_narrow(struct candidates *c, struct error *err)
{
    struct rule rule;
    struct ckpt_list *list = &c->list;
    if (!list->names || !c->has_latest || c->is_narrowed)
        return 0;
    bool is_listed = list->n_names > 0 && have_same_text(&list->names[0], &c->latest);
    int64_t n = is_listed;
    if (choose_rule(c, is_listed, &rule, err))
        return -1;
    for (int64_t i = is_listed; i < list->n_names; i++)
        if (rule_takes(&rule, c, &list->names[i]))
            list->names[n++] = list->names[i];
    c->n_others = list->n_names - n;
    list->n_names = n;
    c->is_narrowed = true;
    return 0;
}

/* -- in turn ------------------------------------------------------------------------- */

/* Put the one saved last first; false: it is not there. */
static bool move_to_front(struct ckpt_list *list, const struct ckpt_name *name)
{
    int64_t i = 0;
    while (i < list->n_names && !have_same_text(&list->names[i], name))
        i++;
    if (i == list->n_names)
        return false;
    struct ckpt_name moved = list->names[i];
    memmove(list->names + 1, list->names, (size_t)i * sizeof *list->names);
    list->names[0] = moved;
    return true;
}

/* Warn when there is a file `latest` without a name in it. */
static int warn_of_garbage(const struct candidates *c, struct error *err)
{
    char path[PATH_MAX];
    enum fs_type type;
    if (fs_join(path, sizeof path, c->dir, CKPT_LATEST_NAME, err) ||
        fs_look(path, &type, err))
        return -1;
    if (type != FS_NOTHING && c->warns)
        log_warning("'%s' does not name a checkpoint; the highest step is taken", path);
    return 0;
}

static int open_list(struct candidates *c, struct error *err)
{
    if (ckpt_scan(c->dir, &c->list, err))
        return -1;
    if (c->list.n_names == 0)
        return error_set(err, ERROR_INPUT,
                         "'%s' holds no checkpoint: neither a " CKPT_MANIFEST_NAME
                         " nor directories called epoch_E_step_N (those that end in "
                         "'" CKPT_DAMAGED_SUFFIX "' were set aside)",
                         c->dir);
    c->highest = c->list.names[0];
    if (ckpt_latest_read(c->dir, &c->latest, &c->has_latest, err))
        return -1;
    if (!c->has_latest)
        return warn_of_garbage(c, err);
    if (move_to_front(&c->list, &c->latest))
        return 0;
    if (candidates_narrow(c, err))
        return -1;
    if (c->list.n_names == 0)
        return error_set(err, ERROR_INPUT,
                         "'%s/" CKPT_LATEST_NAME "' names '%s', which was set aside as "
                         "damaged, and its run has no earlier checkpoint there; to use "
                         "one of another run name it, such as '%s/%s'",
                         c->dir, c->latest.text, c->dir, c->highest.text);
    if (c->warns)
        log_warning("'%s/" CKPT_LATEST_NAME "' names '%s', which is not there", c->dir,
                    c->latest.text);
    return 0;
}

static void candidates_release(struct candidates *c)
{
    ckpt_list_release(&c->list);
}

/* An error if there is none. candidates_release() is to be called after a failure too. */
static int candidates_open(struct candidates *c, const char *ckpt_dir, bool warns,
                           struct error *err)
{
    char manifest[PATH_MAX];
    enum fs_type type;
    *c = (struct candidates){.warns = warns};
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
    return type == FS_NOTHING ? open_list(c, err) : 0;
}

/* The next one to `path`; false: no more. After one that is damaged, and before it is set
 * aside, candidates_narrow() is to be called. */
static bool candidates_next(struct candidates *c, char *path, size_t path_size)
{
    struct error ignored;
    int64_t i = c->n_tried++;
    if (c->dir[0] && c->list.names == NULL)
        return i == 0 && snprintf(path, path_size, "%s", c->dir) < (int)path_size;
    return i < c->list.n_names &&
           fs_join(path, path_size, c->dir, c->list.names[i].text, &ignored) == 0;
}

/* One was taken, at `path`: warn if another one has a higher step. */
static void candidates_warn(const struct candidates *c, const char *path)
{
    if (!c->list.names || !c->has_latest || c->n_tried != 1 ||
        c->highest.step <= c->latest.step ||
        !have_same_text(&c->list.names[0], &c->latest))
        return;
    log_warning("'%s' was saved last and is taken; '%s' has a higher step, maybe of "
                "another run. To take that one, name it: "
                "-o save_load.ckpt_dir=%s/%s (or --ckpt)",
                path, c->highest.text, c->dir, c->highest.text);
}

/* After the last: an error that quotes why the first could not be loaded. */
static int candidates_none(const struct candidates *c, const struct error *first,
                           struct error *err)
{
    char others[128] = "";
    if (c->list.names == NULL) {
        *err = *first;
        return -1;
    }
    if (c->n_others > 0)
        snprintf(others, sizeof others,
                 " (%lld others, which this run did not save before it, were not tried)",
                 (long long)c->n_others);
    return error_set(
        err, ERROR_INPUT,
        "none of the %lld checkpoints in '%s' is valid%s; the newest: %.1000s. "
        "To start from scratch, leave save_load.ckpt_dir empty",
        (long long)c->list.n_names, c->dir, others, first->text);
}

int ckpt_find_order(const char *dir, bool warns, struct ckpt_list *order,
                    struct error *err)
{
    struct candidates c;
    int rc = candidates_open(&c, dir, warns, err);
    if (rc == 0)
        rc = candidates_narrow(&c, err);
    *order = c.list;
    if (rc)
        ckpt_list_release(order);
    return rc;
}

int ckpt_resolve(const char *ckpt_dir, int n_sets, char *path, size_t path_size,
                 struct error *err)
{
    struct candidates c;
    struct error newest = {.text = ""}, why;
    int rc = -1;
    if (candidates_open(&c, ckpt_dir, true, err))
        goto done;
    while (candidates_next(&c, path, path_size)) {
        bool is_damaged;
        if (c.list.names == NULL || ckpt_verify(path, n_sets, &is_damaged, &why) == 0) {
            candidates_warn(&c, path);
            rc = 0;
            goto done;
        }
        if (!is_damaged) { // another would fare no better
            *err = why;
            goto done;
        }
        if (candidates_narrow(&c, err))
            goto done;
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
    if (candidates_open(&c, dir, false, err))
        goto done;
    while (rc && candidates_next(&c, path, PATH_MAX)) {
        rc = ckpt_read_info(path, info, &why);
        if (rc && why.kind != ERROR_INPUT) {
            *err = why;
            goto done;
        }
        if (rc && candidates_narrow(&c, err))
            goto done;
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
        if (comm_agree(world, is_first ? candidates_narrow(candidates, err) : 0, err))
            return -1;
        if (is_first && candidates->list.names != NULL)
            pass_over(path, &why, what->sets_aside);
    }
    int rc = is_first ? candidates_none(candidates, &newest, err) : 0;
    return comm_agree(world, rc, err);
}

int ckpt_load_newest(const struct ckpt_load_newest *what, struct comm *world,
                     const char *dir, char path[PATH_MAX], struct error *err)
{
    struct candidates candidates = {.n_tried = 0};
    int rc = comm_rank(world) == 0 ? candidates_open(&candidates, dir, true, err) : 0;
    rc = comm_agree(world, rc, err);
    if (rc == 0)
        rc = try_each(what, world, &candidates, path, err);
    candidates_release(&candidates);
    return rc;
}
