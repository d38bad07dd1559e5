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

/* Whether the checkpoint is there and was saved after `since`; *saved := when. */
static bool is_later(const struct resume_point *r, const struct ckpt_name *name,
                     struct timespec since, struct timespec *saved)
{
    char path[PATH_MAX];
    struct error ignored;
    struct stat info;
    if (fs_join(path, sizeof path, r->output_dir, name->text, &ignored) ||
        stat(path, &info))
        return false;
    *saved = info.st_mtim;
    return saved->tv_sec != since.tv_sec ? saved->tv_sec > since.tv_sec
                                         : saved->tv_nsec > since.tv_nsec;
}

/* Now, or later: what is there already is not this run's, also if a clock was ahead. */
static struct timespec find_since(const struct resume_point *r)
{
    struct timespec since = time_in(r->output_dir), saved;
    struct ckpt_list list;
    struct error ignored;
    if (ckpt_scan(r->output_dir, &list, &ignored))
        return since;
    for (int64_t i = 0; i < list.n_names; i++)
        if (is_later(r, &list.names[i], since, &saved))
            since = saved;
    ckpt_list_release(&list);
    return since;
}

int resume_point_init(struct resume_point *r, const struct config *cfg, char *const *argv,
                      struct error *err)
{
    const struct config_save_load *save = &cfg->save_load;
    struct stat out = {0}, from;
    *r = (struct resume_point){0};
    memcpy(r->output_dir, save->output_dir, sizeof r->output_dir);
    while (argv[r->n_argv])
        r->n_argv++;
    r->words = calloc((size_t)r->n_argv + 3, sizeof *r->words);
    if (!r->words)
        return error_set(err, ERROR_RUNTIME, "out of memory for a command line");
    memcpy(r->words, argv, (size_t)r->n_argv * sizeof *r->words);
    bool has_old = stat(save->output_dir, &out) == 0 && S_ISDIR(out.st_mode);
    bool continues_old = stat(save->ckpt_dir, &from) == 0 && from.st_dev == out.st_dev &&
                         from.st_ino == out.st_ino;
    if (has_old && !continues_old)
        r->since = find_since(r);
    return 0;
}

void resume_point_release(struct resume_point *r)
{
    free(r->words);
    *r = (struct resume_point){0};
}

/* The newest of this run's own that looks whole; NULL: none. *has_others: there are some
 * of an earlier run too. Its own were saved since it was first started: a save makes a new
 * directory, also where it replaces an old one of the same name. */
static const struct ckpt_name *find_own(const struct resume_point *r,
                                        const struct ckpt_list *list, bool *has_others)
{
    const struct ckpt_name *own = NULL;
    struct error why;
    *has_others = false;
    for (int64_t i = 0; i < list->n_names; i++) {
        struct timespec saved;
        bool is_own = is_later(r, &list->names[i], r->since, &saved);
        *has_others = *has_others || !is_own;
        if (is_own && !own &&
            (ckpt_check(r->output_dir, &list->names[i], NULL, &why) == 0 ||
             why.kind != ERROR_INPUT)) // the run will see what it is
            own = &list->names[i];
    }
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
