#include "launch/restart.h"

#include "base/fs.h"
#include "ckpt/ckpt_find.h"

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

/* The checkpoint in output_dir that is tried first, by the hash of its trainer.json. ""
 * if there is none, or it cannot be read. */
static void first_of(const struct resume_point *r, const struct ckpt_list *order,
                     char hash[CKPT_HASH_BYTES])
{
    char path[PATH_MAX];
    struct error ignored;
    if (order->n_names == 0 ||
        fs_join(path, sizeof path, r->output_dir, order->names[0].text, &ignored) ||
        ckpt_manifest_hash(path, hash, &ignored))
        hash[0] = 0;
}

/* Empty where there is none, and where the user has to name one. */
static int find_order(const struct resume_point *r, struct ckpt_list *order,
                      struct error *err)
{
    struct error why;
    enum fs_type type;
    *order = (struct ckpt_list){0};
    if (fs_look(r->output_dir, &type, err))
        return -1;
    if (type != FS_DIRECTORY || ckpt_newest_step(r->output_dir) < 0)
        return 0;
    if (ckpt_find_order(r->output_dir, false, order, &why) == 0 ||
        why.kind == ERROR_INPUT)
        return 0;
    *err = why;
    return -1;
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
    struct ckpt_list order;
    struct error ignored;
    r->continues_old = stat(save->output_dir, &out) == 0 && S_ISDIR(out.st_mode) &&
                       stat(save->ckpt_dir, &from) == 0 && from.st_dev == out.st_dev &&
                       from.st_ino == out.st_ino;
    if (find_order(r, &order, &ignored) == 0)
        first_of(r, &order, r->first);
    ckpt_list_release(&order);
    return 0;
}

void resume_point_release(struct resume_point *r)
{
    free(r->words);
    *r = (struct resume_point){0};
}

/* The first in the order that looks whole; NULL: none. */
static const struct ckpt_name *find_whole(const struct resume_point *r,
                                          const struct ckpt_list *order)
{
    struct error why;
    for (int64_t i = 0; i < order->n_names; i++)
        if (ckpt_check(r->output_dir, &order->names[i], NULL, &why) == 0 ||
            why.kind != ERROR_INPUT) // the run will report it
            return &order->names[i];
    return NULL;
}

int resume_point_next(struct resume_point *r, char *const **argv, int64_t *step,
                      struct error *err)
{
    static char option[] = "-o";
    struct ckpt_list order;
    char first[CKPT_HASH_BYTES];
    *argv = r->words;
    *step = -1;
    r->words[r->n_argv] = NULL;
    if (find_order(r, &order, err))
        return -1;
    first_of(r, &order, first);
    bool is_own = r->continues_old || strcmp(first, r->first) != 0;
    const struct ckpt_name *found = is_own ? find_whole(r, &order) : NULL;
    if (found) {
        *step = found->step;
        snprintf(r->setting, sizeof r->setting, "save_load.ckpt_dir=%s", r->output_dir);
        r->words[r->n_argv] = option;
        r->words[r->n_argv + 1] = r->setting;
    }
    ckpt_list_release(&order);
    return 0;
}
