#include "launch/restart.h"

#include "base/fs.h"
#include "ckpt/ckpt_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* -- from where ---------------------------------------------------------------------- */

static bool is_same_directory(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

/* The time by the clock of the file system, which may be another machine's. */
static struct timespec time_in(const char *dir)
{
    char path[CONFIG_PATH_BYTES + 32];
    struct stat info;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(path, sizeof path, "%s/.launch-XXXXXX", dir);
    int fd = mkstemp(path);
    if (fd >= 0) {
        now = fstat(fd, &info) == 0 ? info.st_mtim : now;
        unlink(path);
        close(fd);
    }
    return now;
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
    if (fs_is_directory(save->output_dir) &&
        !is_same_directory(save->ckpt_dir, save->output_dir)) // else it continues those
        r->since = time_in(save->output_dir);
    return 0;
}

void resume_point_release(struct resume_point *r)
{
    free(r->words);
    *r = (struct resume_point){0};
}

/* Saved since the run was first started: a save makes a new directory, also where it
 * replaces an old one of the same name. */
static bool is_own(const struct resume_point *r, const struct ckpt_name *name)
{
    char path[PATH_MAX];
    struct error ignored;
    struct stat info;
    if (fs_join(path, sizeof path, r->output_dir, name->text, &ignored) ||
        stat(path, &info))
        return false;
    return info.st_mtim.tv_sec != r->since.tv_sec
               ? info.st_mtim.tv_sec > r->since.tv_sec
               : info.st_mtim.tv_nsec > r->since.tv_nsec;
}

/* The newest of this run's own that looks whole; NULL: none. *has_others: there are some
 * of an earlier run too. */
static const struct ckpt_name *find_own(const struct resume_point *r,
                                        const struct ckpt_list *list, bool *has_others)
{
    const struct ckpt_name *own = NULL;
    struct error why;
    *has_others = false;
    for (int64_t i = 0; i < list->n_names; i++)
        if (!is_own(r, &list->names[i]))
            *has_others = true;
        else if (!own && (ckpt_check(r->output_dir, &list->names[i], NULL, &why) == 0 ||
                          why.kind != ERROR_INPUT)) // the run will see what it is
            own = &list->names[i];
    return own;
}

int resume_point_next(struct resume_point *r, char *const **argv, int64_t *step,
                      struct error *err)
{
    static char option[] = "-o";
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
        // the directory, so that the run itself finds the newest that can be loaded; among
        // others the one, so that it finds none of theirs
        *step = own->step;
        snprintf(r->setting, sizeof r->setting, "save_load.ckpt_dir=%s%s%s",
                 r->output_dir, has_others ? "/" : "", has_others ? own->text : "");
        r->words[r->n_argv] = option;
        r->words[r->n_argv + 1] = r->setting;
    }
    ckpt_list_release(&list);
    return 0;
}
