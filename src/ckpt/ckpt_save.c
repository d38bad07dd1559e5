/*
 * The commit:
 *
 *     temporary directory -> files, each synced -> trainer.json, synced -> directory
 *     synced -> rename to the final name -> parent synced -> `latest` -> old ones removed
 *
 * Until the rename the new checkpoint does not exist; after it the save has succeeded,
 * and what fails then is only worth a warning. A checkpoint that is to go is first
 * renamed to ".trash-*", so a directory with a checkpoint's name is always complete.
 * Whatever a killed process leaves behind is removed by the next save.
 */
#include "base/fs.h"
#include "base/log.h"
#include "ckpt/ckpt.h"
#include "ckpt/ckpt_failpoint.h"
#include "ckpt/ckpt_file.h"
#include "ckpt/ckpt_manifest.h"
#include "ckpt/ckpt_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRASH_PREFIX ".trash-"
#define TEMP_INFIX ".tmp-"

struct save {
    const char *output_dir;
    struct ckpt_name name;
    char final[PATH_MAX];
    char temp[PATH_MAX];
    bool has_temp; // the directory at `temp` is ours to remove
};

uint64_t ckpt_bytes(const struct param_table *table)
{
    uint64_t data = ckpt_file_data_bytes(table);
    uint64_t n_tensors = (uint64_t)ckpt_file_n_tensors(table);
    uint64_t n_hashes = data / (uint64_t)CKPT_HASH_BLOCK_BYTES + n_tensors;
    /* A tensor has a line in its file's header and one in the manifest; the last term is
     * for the configuration and the file system's blocks. */
    return data + n_tensors * 512 + n_hashes * 32 + (1u << 20);
}

/* -- tidying: failures are warnings -------------------------------------------------- */

static uint32_t random_suffix(void)
{
    uint32_t bits;
    if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits)
        bits = (uint32_t)getpid();
    return bits;
}

/* Give the directory at `path` a name that is no checkpoint's; the new path to `trash`.
 */
static int move_to_trash(const char *output_dir, const char *path,
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

static void remove_trash(const char *trash)
{
    struct error err;
    if (fs_remove_tree(trash, &err))
        log_warning("could not remove an old checkpoint: %s", err.text);
    else if (ckpt_failpoint(CKPT_AT_TRASH_REMOVED))
        log_warning("could not remove '%s': %s", trash, strerror(errno));
}

static void discard(const char *output_dir, const char *path,
                    const struct ckpt_name *name)
{
    char trash[PATH_MAX];
    struct error err;
    if (move_to_trash(output_dir, path, name, trash, &err))
        log_warning("could not remove an old checkpoint: %s", err.text);
    else
        remove_trash(trash);
}

/* "epoch_E_step_N.tmp-PID-RANDOM" of a process that is gone, or of ours, which has no
 * other save in flight. */
static bool is_stale_temp(const char *file_name)
{
    struct ckpt_name name;
    char base[CKPT_NAME_BYTES];
    const char *infix = strstr(file_name, TEMP_INFIX);
    if (!infix || infix - file_name >= (ptrdiff_t)sizeof base)
        return false;
    snprintf(base, sizeof base, "%.*s", (int)(infix - file_name), file_name);
    if (!ckpt_name_parse(base, &name))
        return false;
    long pid = strtol(infix + strlen(TEMP_INFIX), NULL, 10);
    if (pid <= 0 || pid > INT_MAX)
        return false;
    return pid == getpid() || (kill((pid_t)pid, 0) && errno == ESRCH);
}

static bool is_trash(const char *file_name)
{
    return strncmp(file_name, TRASH_PREFIX "epoch_", strlen(TRASH_PREFIX "epoch_")) == 0;
}

static void remove_leftovers(const char *output_dir)
{
    struct fs_names files;
    struct error err;
    if (fs_list(output_dir, &files, &err)) {
        log_warning("could not look for leftovers: %s", err.text);
        return;
    }
    for (int64_t i = 0; i < files.n_names; i++) {
        char path[PATH_MAX];
        if (!is_stale_temp(files.names[i]) && !is_trash(files.names[i]))
            continue;
        if (fs_join(path, sizeof path, output_dir, files.names[i], &err) ||
            fs_remove_tree(path, &err))
            log_warning("could not remove what an interrupted save left: %s", err.text);
        else
            log_info("removed '%s', left by an interrupted save", path);
    }
    fs_names_release(&files);
}

/* Remove all but the newest keep_last of the checkpoints up to `saved`, which is one of
 * them. One that looks damaged is neither counted nor removed. */
static void prune(const char *output_dir, const struct ckpt_name *saved,
                  int64_t keep_last)
{
    struct ckpt_list list;
    struct error err;
    int64_t n_kept = 1; // `saved`
    if (keep_last <= 0)
        return;
    if (ckpt_scan(output_dir, &list, &err)) {
        log_warning("could not remove old checkpoints: %s", err.text);
        return;
    }
    for (int64_t i = 0; i < list.n_names; i++) {
        const struct ckpt_name *name = &list.names[i];
        char path[PATH_MAX];
        if (name->step > saved->step || strcmp(name->text, saved->text) == 0)
            continue;
        if (ckpt_check(output_dir, name, false, &err))
            log_warning("left a damaged checkpoint alone: %s", err.text);
        else if (n_kept < keep_last)
            n_kept++;
        else if (fs_join(path, sizeof path, output_dir, name->text, &err) == 0)
            discard(output_dir, path, name);
    }
    ckpt_list_release(&list);
}

static void write_latest(const char *output_dir, const struct ckpt_name *name)
{
    char path[PATH_MAX], line[CKPT_NAME_BYTES + 2];
    struct error err;
    int n = snprintf(line, sizeof line, "%s\n", name->text);
    if (fs_join(path, sizeof path, output_dir, "latest", &err) ||
        fs_write_atomic(path, line, (size_t)n, &err))
        log_warning("could not note the newest checkpoint: %s", err.text);
    else if (ckpt_failpoint(CKPT_AT_LATEST_WRITTEN))
        log_warning("could not write '%s': %s", path, strerror(errno));
}

/* -- the commit ---------------------------------------------------------------------- */

/* The paths of a save; the final one also to the caller's `path`, if any. */
static int init_paths(struct save *s, char *path, size_t path_size, struct error *err)
{
    char temp_name[CKPT_NAME_BYTES + 64];
    snprintf(temp_name, sizeof temp_name, "%s" TEMP_INFIX "%ld-%08x", s->name.text,
             (long)getpid(), random_suffix());
    if (fs_join(s->final, sizeof s->final, s->output_dir, s->name.text, err) ||
        fs_join(s->temp, sizeof s->temp, s->output_dir, temp_name, err))
        return -1;
    return path ? fs_join(path, path_size, s->output_dir, s->name.text, err) : 0;
}

static int make_temp(struct save *s, struct error *err)
{
    if (mkdir(s->temp, 0777))
        return error_set(err, ERROR_RUNTIME, "cannot create directory '%s': %s", s->temp,
                         strerror(errno));
    s->has_temp = true;
    return 0;
}

static int failed_at(const struct save *s, enum ckpt_failpoint at, struct error *err)
{
    if (ckpt_failpoint(at))
        return error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", s->temp,
                         strerror(errno));
    return 0;
}

static int init_manifest(struct ckpt_manifest *m, const struct ckpt_state *state,
                         struct error *err)
{
    json_error_t at;
    *m = (struct ckpt_manifest){.step = state->step,
                                .epoch = state->epoch,
                                .consumed_samples = state->consumed_samples,
                                .n_parameters = state->table->n_elements,
                                .hash_block_bytes = CKPT_HASH_BLOCK_BYTES,
                                .program_version = TREFOIL_VERSION,
                                .files = json_object(),
                                .config = json_loads(state->config_json, 0, &at)};
    if (!json_is_object(m->config))
        return error_set(err, ERROR_RUNTIME,
                         "the configuration to be saved is not a JSON object");
    return m->files ? 0 : error_set(err, ERROR_RUNTIME, "out of memory for a checkpoint");
}

static int write_temp(struct save *s, const struct ckpt_state *state, struct error *err)
{
    struct ckpt_manifest m;
    int rc = -1;
    if (init_manifest(&m, state, err) || make_temp(s, err) ||
        failed_at(s, CKPT_AT_TEMP_CREATED, err) ||
        ckpt_file_write(s->temp, CKPT_MODEL_NAME, state, &m, err) ||
        ckpt_file_write(s->temp, CKPT_OPTIMIZER_NAME, state, &m, err) ||
        ckpt_manifest_write(&m, s->temp, err) ||
        failed_at(s, CKPT_AT_MANIFEST_WRITTEN, err) || fs_sync_directory(s->temp, err) ||
        failed_at(s, CKPT_AT_TEMP_SYNCED, err))
        goto done;
    rc = 0;
done:
    ckpt_manifest_release(&m);
    return rc;
}

/* For file systems that cannot exchange two names: the old directory steps aside, and
 * back if the new one cannot take its place. A kill between the two renames leaves this
 * step without a checkpoint, earlier ones are as they were. */
static int replace_in_two_steps(struct save *s, struct error *err)
{
    char trash[PATH_MAX];
    struct error ignored;
    if (move_to_trash(s->output_dir, s->final, &s->name, trash, err))
        return -1;
    if (fs_rename(s->temp, s->final, err)) {
        if (!fs_exists(s->final) && fs_rename(trash, s->final, &ignored))
            log_warning("could not put back '%s': %s", s->final, ignored.text);
        return -1;
    }
    remove_trash(trash);
    return 0;
}

/* The new directory and the one that has its name trade places in one step, so that at
 * no moment there is none; the old one is then discarded. */
static int replace(struct save *s, struct error *err)
{
    if (ckpt_failpoint(CKPT_AT_EXCHANGE) ||
        renameat2(AT_FDCWD, s->temp, AT_FDCWD, s->final, RENAME_EXCHANGE)) {
        if (errno == EINVAL || errno == ENOSYS)
            return replace_in_two_steps(s, err);
        return error_set(err, ERROR_RUNTIME, "cannot replace '%s': %s", s->final,
                         strerror(errno));
    }
    s->has_temp = false; // what is called so now is the old checkpoint
    if (fs_sync_directory(s->output_dir, err))
        return -1;
    discard(s->output_dir, s->temp, &s->name);
    return 0;
}

static int commit(struct save *s, struct error *err)
{
    if (fs_exists(s->final) && !fs_is_directory(s->final))
        return error_set(err, ERROR_RUNTIME, "'%s' is in the way: it is not a directory",
                         s->final);
    if (fs_is_directory(s->final) ? replace(s, err) : fs_rename(s->temp, s->final, err))
        return -1;
    s->has_temp = false;
    return failed_at(s, CKPT_AT_COMMITTED, err);
}

static int check_room(const char *output_dir, uint64_t needed, struct error *err)
{
    uint64_t n_free;
    if (fs_free_bytes(output_dir, &n_free, err))
        return -1;
    if (n_free < needed)
        return error_set(err, ERROR_RUNTIME, "the disk is full");
    return 0;
}

/* Remove what was written, and say what a person needs to know. */
static int give_up(struct save *s, uint64_t needed, struct error *err)
{
    struct error ignored;
    uint64_t n_free = 0;
    if (s->has_temp && fs_remove_tree(s->temp, &ignored))
        log_warning("could not remove an unfinished checkpoint: %s", ignored.text);
    if (fs_free_bytes(s->output_dir, &n_free, &ignored))
        n_free = 0;
    struct error cause = *err;
    return error_set(err, ERROR_RUNTIME,
                     "cannot save the checkpoint '%s' in '%s': %.1200s (it takes %llu "
                     "bytes, %llu are free there); earlier checkpoints are untouched",
                     s->name.text, s->output_dir, cause.text, (unsigned long long)needed,
                     (unsigned long long)n_free);
}

int ckpt_save(const char *output_dir, const struct ckpt_state *state, int64_t keep_last,
              char *path, size_t path_size, struct error *err)
{
    CHECK(state->step >= 0 && state->epoch >= 0 && state->consumed_samples >= 0,
          "epoch %lld, step %lld", (long long)state->epoch, (long long)state->step);
    struct save s = {.output_dir = output_dir,
                     .name = ckpt_name_make(state->epoch, state->step)};
    uint64_t needed = ckpt_bytes(state->table);

    if (fs_make_directories(output_dir, err))
        return -1;
    remove_leftovers(output_dir);
    if (init_paths(&s, path, path_size, err) || check_room(output_dir, needed, err) ||
        write_temp(&s, state, err) || commit(&s, err))
        return give_up(&s, needed, err);

    write_latest(output_dir, &s.name);
    prune(output_dir, &s.name, keep_last);
    return 0;
}
