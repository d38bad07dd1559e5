/*
 * What a save leaves to be done around it. A checkpoint that is to go is first renamed to
 * ".trash-*", so a directory with a checkpoint's name is always complete. Whatever a
 * killed process leaves behind is removed by the next save.
 */
#include "base/fs.h"
#include "base/log.h"
#include "ckpt/ckpt_commit.h"
#include "ckpt/ckpt_failpoint.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define TRASH_PREFIX ".trash-"

static uint32_t random_suffix(void)
{
    uint32_t bits;
    if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits)
        bits = (uint32_t)getpid();
    return bits;
}

int ckpt_tidy_rename(const char *output_dir, const char *path,
                     const struct ckpt_name *name, char trash[PATH_MAX],
                     struct error *err)
{
    char trash_name[CKPT_NAME_BYTES + 32];
    snprintf(trash_name, sizeof trash_name, TRASH_PREFIX "%s-%08x", name->text,
             random_suffix());
    if (fs_join(trash, PATH_MAX, output_dir, trash_name, err) ||
        fs_rename(path, trash, err))
        return -1;
    if (ckpt_failpoint(CKPT_AT_TRASH_RENAMED))
        return error_set(err, ERROR_RUNTIME, "cannot rename '%s': %s", path,
                         strerror(errno));
    return 0;
}

void ckpt_tidy_remove(const char *trash)
{
    struct error err;
    if (fs_remove_tree(trash, &err))
        log_warning("could not remove an old checkpoint: %s", err.text);
    else if (ckpt_failpoint(CKPT_AT_TRASH_REMOVED))
        log_warning("could not remove '%s': %s", trash, strerror(errno));
}

void ckpt_tidy_discard(const char *output_dir, const char *path,
                       const struct ckpt_name *name)
{
    char trash[PATH_MAX];
    struct error err;
    if (ckpt_tidy_rename(output_dir, path, name, trash, &err))
        log_warning("could not remove an old checkpoint: %s", err.text);
    else
        ckpt_tidy_remove(trash);
}

/* "epoch_E_step_N.tmp-RANDOM": the lock is ours, so nobody else can be writing it. */
static bool is_unfinished(const char *file_name)
{
    struct ckpt_name name;
    char base[CKPT_NAME_BYTES];
    const char *infix = strstr(file_name, CKPT_TEMP_INFIX);
    if (!infix || infix - file_name >= (ptrdiff_t)sizeof base)
        return false;
    snprintf(base, sizeof base, "%.*s", (int)(infix - file_name), file_name);
    return ckpt_name_parse(base, &name);
}

static bool is_trash(const char *file_name)
{
    return strncmp(file_name, TRASH_PREFIX "epoch_", strlen(TRASH_PREFIX "epoch_")) == 0;
}

void ckpt_tidy_leftovers(const char *output_dir)
{
    struct fs_names files;
    struct error err;
    if (fs_list(output_dir, &files, &err)) {
        log_warning("could not look for leftovers: %s", err.text);
        return;
    }
    for (int64_t i = 0; i < files.n_names; i++) {
        char path[PATH_MAX];
        if (!is_unfinished(files.names[i]) && !is_trash(files.names[i]))
            continue;
        if (fs_join(path, sizeof path, output_dir, files.names[i], &err) ||
            fs_remove_tree(path, &err))
            log_warning("could not remove what an interrupted save left: %s", err.text);
        else
            log_info("removed '%s', left by an interrupted save", path);
    }
    fs_names_release(&files);
}

/* Remove the run's checkpoints up to `saved`, which is one of them, that `keep` does not
 * name. One that looks damaged, or is another run's, is neither counted nor removed. */
void ckpt_tidy_prune(const char *output_dir, const struct ckpt_name *saved,
                     const char *run_id, const struct ckpt_keep *keep)
{
    struct ckpt_list list;
    struct error err;
    int64_t n_own = 1; // `saved`
    if (keep->last <= 0)
        return;
    if (ckpt_scan(output_dir, &list, &err)) {
        log_warning("could not remove old checkpoints: %s", err.text);
        return;
    }
    for (int64_t i = 0; i < list.n_names; i++) {
        const struct ckpt_name *name = &list.names[i];
        struct ckpt_progress progress;
        char path[PATH_MAX];
        if (name->step > saved->step || strcmp(name->text, saved->text) == 0)
            continue;
        if (ckpt_check(output_dir, name, &progress, &err))
            log_warning("left %s checkpoint alone: %s",
                        err.kind == ERROR_INPUT ? "a damaged" : "an unreadable",
                        err.text);
        else if (strcmp(progress.run_id, run_id) == 0 && ++n_own > keep->last &&
                 (keep->every <= 0 || name->step % keep->every != 0) &&
                 fs_join(path, sizeof path, output_dir, name->text, &err) == 0)
            ckpt_tidy_discard(output_dir, path, name);
    }
    ckpt_list_release(&list);
}

void ckpt_tidy_note(const char *output_dir, const struct ckpt_name *saved)
{
    char path[PATH_MAX], line[CKPT_NAME_BYTES + 2];
    struct error err;
    int n = snprintf(line, sizeof line, "%s\n", saved->text);
    if (fs_join(path, sizeof path, output_dir, CKPT_LATEST_NAME, &err) ||
        fs_write_atomic(path, line, (size_t)n, &err))
        log_warning("could not note the newest checkpoint: %s", err.text);
    else if (ckpt_failpoint(CKPT_AT_LATEST_WRITTEN))
        log_warning("could not write '%s': %s", path, strerror(errno));
}

void ckpt_tidy(const char *output_dir, const struct ckpt_name *saved, const char *run_id,
               const struct ckpt_keep *keep)
{
    ckpt_tidy_note(output_dir, saved);
    ckpt_tidy_prune(output_dir, saved, run_id, keep);
}
