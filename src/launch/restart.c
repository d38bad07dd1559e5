/*
 * Checkpoints of this run are told from those that were there before by their
 * directories: a save makes a new one, also where it replaces an old one of the same
 * name.
 */
#include "launch/restart.h"

#include "base/fs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum restart_decision restart_decide(struct restart *r, int64_t step)
{
    if (step > r->newest_step) {
        r->newest_step = step;
        r->n_idle = 0;
    }
    if (r->n_idle >= RESTART_IDLE_MOST)
        return RESTART_LOOP;
    if (r->n_restarts >= r->most)
        return RESTART_SPENT;
    r->n_restarts++;
    r->n_idle++;
    return RESTART_AGAIN;
}

int restart_pause(int64_t n_restart)
{
    int64_t seconds = n_restart > 5 ? RESTART_PAUSE_SECONDS_MOST : 1 << (n_restart - 1);
    return (int)i64_min(seconds, RESTART_PAUSE_SECONDS_MOST);
}

/* -- what was there before ----------------------------------------------------------- */

static bool is_same_directory(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

/* Zeros where there is none. */
static struct resume_mark mark_of(const struct resume_point *r,
                                  const struct ckpt_name *name)
{
    char path[PATH_MAX];
    struct error ignored;
    struct stat info;
    if (fs_join(path, sizeof path, r->output_dir, name->text, &ignored) ||
        stat(path, &info))
        return (struct resume_mark){0};
    return (struct resume_mark){.inode = info.st_ino, .changed = info.st_mtim};
}

static bool is_same_mark(struct resume_mark a, struct resume_mark b)
{
    return a.inode == b.inode && a.changed.tv_sec == b.changed.tv_sec &&
           a.changed.tv_nsec == b.changed.tv_nsec;
}

static int note_before(struct resume_point *r, struct error *err)
{
    enum fs_type type;
    if (fs_look(r->output_dir, &type, err))
        return -1;
    if (type != FS_DIRECTORY)
        return 0;
    if (ckpt_scan(r->output_dir, &r->before, err))
        return -1;
    r->marks = calloc((size_t)r->before.n_names + 1, sizeof *r->marks);
    if (!r->marks)
        return error_set(err, ERROR_RUNTIME, "out of memory for the checkpoints in '%s'",
                         r->output_dir);
    for (int64_t i = 0; i < r->before.n_names; i++)
        r->marks[i] = mark_of(r, &r->before.names[i]);
    return 0;
}

static bool was_before(const struct resume_point *r, const struct ckpt_name *name)
{
    for (int64_t i = 0; i < r->before.n_names; i++)
        if (strcmp(r->before.names[i].text, name->text) == 0)
            return is_same_mark(r->marks[i], mark_of(r, name));
    return false;
}

int resume_point_init(struct resume_point *r, const struct config *cfg, char *const *argv,
                      struct error *err)
{
    const struct config_save_load *save = &cfg->save_load;
    *r = (struct resume_point){0};
    memcpy(r->output_dir, save->output_dir, sizeof r->output_dir);
    while (argv[r->n_argv])
        r->n_argv++;
    r->words = calloc((size_t)r->n_argv + 3, sizeof *r->words);
    if (!r->words)
        return error_set(err, ERROR_RUNTIME, "out of memory for a command line");
    memcpy(r->words, argv, (size_t)r->n_argv * sizeof *r->words);
    if (is_same_directory(save->ckpt_dir, save->output_dir))
        return 0; // it continues what is there
    return note_before(r, err);
}

void resume_point_release(struct resume_point *r)
{
    ckpt_list_release(&r->before);
    free(r->marks);
    free(r->words);
    *r = (struct resume_point){0};
}

/* -- what there is now --------------------------------------------------------------- */

/* The newest of this run's own that looks whole; NULL: none. *has_others: there are some
 * of an earlier run too. */
static const struct ckpt_name *find_own(const struct resume_point *r,
                                        const struct ckpt_list *list, bool *has_others)
{
    const struct ckpt_name *own = NULL;
    struct error why;
    *has_others = false;
    for (int64_t i = 0; i < list->n_names; i++)
        if (was_before(r, &list->names[i]))
            *has_others = true;
        else if (!own && (ckpt_check(r->output_dir, &list->names[i], NULL, &why) == 0 ||
                          why.kind != ERROR_INPUT)) // the run will see what it is
            own = &list->names[i];
    return own;
}

/* The directory, so that the run itself finds the newest that can be loaded; among others
 * the one, so that it finds none of theirs. */
static void add_setting(struct resume_point *r, const struct ckpt_name *own,
                        bool has_others)
{
    static char option[] = "-o";
    snprintf(r->setting, sizeof r->setting, "save_load.ckpt_dir=%s%s%s", r->output_dir,
             has_others ? "/" : "", has_others ? own->text : "");
    r->words[r->n_argv] = option;
    r->words[r->n_argv + 1] = r->setting;
}

int resume_point_next(struct resume_point *r, char *const **argv, int64_t *step,
                      struct error *err)
{
    struct ckpt_list list = {0};
    enum fs_type type;
    bool has_others;
    *argv = r->words;
    *step = -1;
    r->words[r->n_argv] = NULL;
    if (fs_look(r->output_dir, &type, err))
        return -1;
    if (type != FS_DIRECTORY)
        return 0;
    if (ckpt_scan(r->output_dir, &list, err))
        return -1;
    const struct ckpt_name *own = find_own(r, &list, &has_others);
    if (own) {
        *step = own->step;
        add_setting(r, own, has_others);
    }
    ckpt_list_release(&list);
    return 0;
}
