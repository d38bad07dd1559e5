/*
 * The commit:
 *
 *     temporary directory -> files, each synced by all that wrote to it -> trainer.json,
 *     synced -> directory synced -> still the writer? -> rename to the final name ->
 *     parent synced
 *
 * Until the rename the new checkpoint does not exist; after it the save has succeeded,
 * and what fails then is only worth a warning.
 */
#include "ckpt/ckpt_commit.h"

#include "base/beat.h"
#include "base/fs.h"
#include "base/log.h"
#include "ckpt/ckpt_failpoint.h"
#include "ckpt/ckpt_manifest.h"
#include "ckpt/ckpt_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define DISK_FULL "the disk is full"

/* A tensor has a line in its file's header, one in the manifest and one in an index; the
 * last term is for the configuration and the file system's blocks. */
static uint64_t checkpoint_bytes(uint64_t data_bytes, uint64_t n_tensors)
{
    uint64_t n_hashes = data_bytes / (uint64_t)CKPT_BLOCK_BYTES + n_tensors;
    return data_bytes + n_tensors * 640 + n_hashes * 32 + (1u << 20);
}

uint64_t ckpt_bytes(const struct param_table *table, const struct update_rule *rule)
{
    uint64_t n_kinds = (uint64_t)update_rule_n_tensors(rule);
    return checkpoint_bytes(n_kinds * (uint64_t)table->n_elements * sizeof(float),
                            n_kinds * (uint64_t)table->n_params);
}

/* -- begin --------------------------------------------------------------------------- */

static int init_paths(struct ckpt_commit *c, struct error *err)
{
    char temp_name[CKPT_NAME_BYTES + 64];
    uint64_t random;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
        random = (uint64_t)getpid();
    snprintf(temp_name, sizeof temp_name, "%s" CKPT_TEMP_INFIX "%016llx", c->name.text,
             (unsigned long long)random);
    if (fs_join(c->final, sizeof c->final, c->output_dir, c->name.text, err))
        return -1;
    return fs_join(c->temp, sizeof c->temp, c->output_dir, temp_name, err);
}

static int check_room(const struct ckpt_commit *c, struct error *err)
{
    uint64_t n_free;
    if (fs_free_bytes(c->output_dir, &n_free, err))
        return -1;
    if (n_free < c->needed_bytes)
        return error_set(err, ERROR_RUNTIME, DISK_FULL);
    return 0;
}

static int make_temp(struct ckpt_commit *c, struct error *err)
{
    if (mkdir(c->temp, 0777))
        return error_set(err, ERROR_RUNTIME, "cannot create directory '%s': %s", c->temp,
                         strerror(errno));
    c->has_temp = true;
    return 0;
}

static int failed_at(const struct ckpt_commit *c, enum ckpt_failpoint at,
                     struct error *err)
{
    if (ckpt_failpoint(at))
        return error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", c->temp,
                         strerror(errno));
    return 0;
}

int ckpt_commit_begin(struct ckpt_commit *c, const char *output_dir,
                      const struct ckpt_lock *lock, const struct ckpt_layout *layout,
                      const struct ckpt_progress *progress, struct error *err)
{
    CHECK(progress->step >= 0 && progress->epoch >= 0, "epoch %lld, step %lld",
          (long long)progress->epoch, (long long)progress->step);
    *c = (struct ckpt_commit){
        .output_dir = output_dir,
        .layout = layout,
        .lock = lock,
        .name = ckpt_name_make(progress->epoch, progress->step),
        .needed_bytes = checkpoint_bytes(
            (uint64_t)(layout->n_kinds * layout->n_parameters) * sizeof(float),
            (uint64_t)(layout->n_kinds * layout->n_rows))};
    if (ckpt_lock_check(lock, err))
        return -1;
    ckpt_tidy_leftovers(output_dir);
    if (init_paths(c, err) || check_room(c, err) || make_temp(c, err) ||
        failed_at(c, CKPT_AT_TEMP_CREATED, err))
        return -1;
    return ckpt_make_files(c->temp, layout, err);
}

/* -- finish -------------------------------------------------------------------------- */

/* Every word of every tensor written, and none twice: a hole would read as zeros, with a
 * hash that fits. */
static void check_coverage(const struct ckpt_layout *layout, const struct ckpt_sums *sums)
{
    for (int i = 0; i < layout->n_files; i++) {
        const struct ckpt_layout_file *file = &layout->files[i];
        int64_t block = file->first_block;
        for (int64_t t = 0; t < file->st.n_tensors; t++) {
            int64_t n = file->st.tensors[t].n_elements;
            for (int64_t b = 0; b < ckpt_n_blocks(n); b++, block++)
                CHECK(sums->counts[block] == ckpt_block_words(n, b),
                      "'%s', block %lld: %lld of %lld words were written",
                      file->st.tensors[t].name, (long long)b,
                      (long long)sums->counts[block], (long long)ckpt_block_words(n, b));
        }
    }
}

static int write_indexes(struct ckpt_commit *c, struct ckpt_manifest *m,
                         struct error *err)
{
    for (int set = 0; set < N_CKPT_SETS; set++) {
        char name[CKPT_FILE_NAME_BYTES], path[PATH_MAX], *text;
        if (ckpt_layout_index(c->layout, (enum ckpt_set)set, name, &text, err))
            return -1;
        if (!text)
            continue;
        int rc = fs_join(path, sizeof path, c->temp, name, err);
        if (rc == 0)
            rc = fs_write_atomic(path, text, strlen(text), err);
        if (rc == 0)
            rc = ckpt_manifest_add_plain_file(m, name, text, err);
        free(text);
        if (rc)
            return -1;
    }
    return 0;
}

static int write_manifest(struct ckpt_commit *c, const struct ckpt_progress *progress,
                          const struct ckpt_sums *sums, struct error *err)
{
    struct ckpt_manifest m;
    int rc = -1;
    if (ckpt_manifest_init(&m, progress, c->layout, sums, err) ||
        write_indexes(c, &m, err) || ckpt_manifest_write(&m, c->temp, err) ||
        failed_at(c, CKPT_AT_MANIFEST_WRITTEN, err) || fs_sync_directory(c->temp, err) ||
        failed_at(c, CKPT_AT_TEMP_SYNCED, err))
        goto done;
    rc = 0;
done:
    ckpt_manifest_release(&m);
    return rc;
}

/* For file systems that cannot exchange two names: the old directory steps aside, and
 * back if the new one cannot take its place. A kill between the two renames leaves this
 * step without a checkpoint, earlier ones are as they were. */
static int replace_in_two_steps(struct ckpt_commit *c, struct error *err)
{
    char trash[PATH_MAX];
    struct error ignored;
    if (ckpt_tidy_rename(c->output_dir, c->final, &c->name, trash, err))
        return -1;
    if (fs_rename(c->temp, c->final, err)) {
        if (!fs_exists(c->final) && fs_rename(trash, c->final, &ignored))
            log_warning("could not put back '%s': %s", c->final, ignored.text);
        return -1;
    }
    ckpt_tidy_remove(trash);
    return 0;
}

/* The new directory and the one that has its name trade places in one step, so that at
 * no moment there is none; the old one is then discarded. */
static int replace(struct ckpt_commit *c, struct error *err)
{
    if (ckpt_failpoint(CKPT_AT_EXCHANGE) ||
        renameat2(AT_FDCWD, c->temp, AT_FDCWD, c->final, RENAME_EXCHANGE)) {
        if (errno == EINVAL || errno == ENOSYS)
            return replace_in_two_steps(c, err);
        return error_set(err, ERROR_RUNTIME, "cannot replace '%s': %s", c->final,
                         strerror(errno));
    }
    c->has_temp = false; // what is called so now is the old checkpoint
    if (fs_sync_directory(c->output_dir, err))
        return -1;
    ckpt_tidy_discard(c->output_dir, c->temp, &c->name);
    return 0;
}

/* Only a checkpoint is replaced: what is cut, or is none, is somebody's data. Its bytes
 * are not read, training waits for this. */
static int spare_damaged(struct ckpt_commit *c, struct error *err)
{
    char aside[PATH_MAX + 32];
    struct error why;
    if (!fs_is_directory(c->final) ||
        ckpt_check(c->output_dir, &c->name, NULL, &why) == 0)
        return 0;
    if (why.kind != ERROR_INPUT) { // nobody knows what it is
        *err = why;
        return -1;
    }
    if (ckpt_set_aside(c->final, aside, sizeof aside, err))
        return -1;
    log_warning("'%s' was there and is no valid checkpoint: %s. It was set aside as '%s'",
                c->final, why.text, aside);
    return 0;
}

static int give_name(struct ckpt_commit *c, struct error *err)
{
    if (fs_exists(c->final) && !fs_is_directory(c->final))
        return error_set(err, ERROR_RUNTIME,
                         "'%s' is in the way: it is not a directory; remove it",
                         c->final);
    if (spare_damaged(c, err))
        return -1;
    if (fs_is_directory(c->final) ? replace(c, err) : fs_rename(c->temp, c->final, err))
        return -1;
    c->has_temp = false;
    return failed_at(c, CKPT_AT_COMMITTED, err);
}

int ckpt_commit_finish(struct ckpt_commit *c, const struct ckpt_progress *progress,
                       const struct ckpt_sums *sums, struct error *err)
{
    check_coverage(c->layout, sums);
    beat(BEAT_WRITE, 0);
    if (write_manifest(c, progress, sums, err) || ckpt_lock_check(c->lock, err))
        return -1;
    return give_name(c, err);
}

static bool is_about_room(const struct error *why)
{
    static const int of_room[] = {ENOSPC, EDQUOT};
    bool is_it = strstr(why->text, DISK_FULL);
    for (size_t i = 0; i < ARRAY_LEN(of_room); i++)
        is_it |= strstr(why->text, strerror(of_room[i])) != NULL;
    return is_it;
}

int ckpt_commit_abandon(struct ckpt_commit *c, struct error *err)
{
    struct error ignored, cause = *err;
    uint64_t n_free;
    char room[96] = "";
    if (c->has_temp && fs_remove_tree(c->temp, &ignored))
        log_warning("could not remove an unfinished checkpoint: %s", ignored.text);
    c->has_temp = false;
    if (is_about_room(&cause) && fs_free_bytes(c->output_dir, &n_free, &ignored) == 0)
        snprintf(room, sizeof room, " (it takes %llu bytes, %llu are free there)",
                 (unsigned long long)c->needed_bytes, (unsigned long long)n_free);
    else if (strstr(cause.text, strerror(EFBIG)))
        snprintf(room, sizeof room, " (see ulimit -f, and save_load.max_file_bytes)");
    return error_set(err, ERROR_RUNTIME,
                     "cannot save the checkpoint '%s' in '%s': %.1200s%s; earlier "
                     "checkpoints are untouched",
                     c->name.text, c->output_dir, cause.text, room);
}
