/*
 * Numbers go from where they lie to the kernel, hashed on the way; what was written is
 * handed to the disk at once (sync_file_range), so that the disk works while the next
 * chunk is hashed, and the final fsync has little left to do.
 *
 * What is on disk is dropped from the page cache: it is not read soon, the next chunk
 * reuses its memory, and a save neither evicts what others have cached nor faults in
 * gigabytes of fresh memory, which would cost more than the copy.
  *
 * The commit:
 *
 *     temporary directory -> files, each synced by all that wrote to it -> trainer.json,
 *     synced -> directory synced -> still the writer? -> latest.next -> rename to the
 *     final name -> parent synced -> latest (ckpt_latest.h)
 *
 * Until the rename the new checkpoint does not exist; after it the save has succeeded,
 * and what fails then is only worth a warning.
 */
#include "ckpt/ckpt_write.h"

#include "base/beat.h"
#include "base/fs.h"
#include "base/log.h"
#include "ckpt/ckpt_failpoint.h"
#include "ckpt/ckpt_latest.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_ELEMENTS ((int64_t)1 << 20)
/* Shorter runs are left to the kernel to hand on: a call for each would cost more. */
#define LEAST_HANDED_BYTES ((int64_t)256 << 10)
#define MAX_ON_THE_WAY 16 // ranges handed to the disk and still in the page cache

static int cannot_write(const char *dir, const char *name, struct error *err)
{
    return error_set(err, ERROR_RUNTIME, "cannot write '%s/%s': %s", dir, name,
                     strerror(errno));
}

/* -- making -------------------------------------------------------------------------- */

/* Space for the whole file, so that a full disk is known now. File systems that cannot
 * promise space get the size alone. */
static int reserve_file(int fd, int64_t n_bytes)
{
    int rc;
    do
        rc = fallocate(fd, 0, 0, n_bytes);
    while (rc && errno == EINTR);
    if (rc && (errno == EOPNOTSUPP || errno == ENOSYS))
        rc = ftruncate(fd, n_bytes);
    return rc;
}

static int make_file(const char *dir, const struct ckpt_layout_file *file,
                     struct error *err)
{
    char path[PATH_MAX];
    int rc = -1;
    if (fs_join(path, sizeof path, dir, file->name, err))
        return -1;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return error_set(err, ERROR_RUNTIME, "cannot create '%s': %s", path,
                         strerror(errno));
    if (ckpt_failpoint(CKPT_AT_FILE_CREATED) ||
        reserve_file(fd, file->st.header_bytes + file->st.data_bytes) ||
        fs_pwrite_exact(fd, file->header, (size_t)file->st.header_bytes, 0) ||
        ckpt_failpoint(CKPT_AT_HEADER_WRITTEN))
        cannot_write(dir, file->name, err);
    else
        rc = 0;
    if (close(fd) && rc == 0)
        rc = cannot_write(dir, file->name, err);
    return rc;
}

/* Headers written, space for the data reserved, nothing synced. */
static int make_files(const char *dir, const struct ckpt_layout *layout,
                      struct error *err)
{
    for (int i = 0; i < layout->n_files; i++) {
        if (make_file(dir, &layout->files[i], err))
            return -1;
        beat_aside();
    }
    return 0;
}

/* -- filling ------------------------------------------------------------------------- */

struct handed { // to the disk
    int fd;
    off_t at, n_bytes;
};

struct part_writer {
    const char *dir;
    const struct ckpt_layout *layout;
    const struct ckpt_source *source;
    struct ckpt_sums *sums;
    float *buffer;                            // CHUNK_ELEMENTS
    int *fds;                                 // (n_files) -1: not opened
    struct handed on_the_way[MAX_ON_THE_WAY]; // a ring, by n_handed
    int64_t n_handed;
};

static int cannot_write_file(const struct part_writer *w, int file, struct error *err)
{
    return cannot_write(w->dir, w->layout->files[file].name, err);
}

static int open_file(struct part_writer *w, int file, struct error *err)
{
    char path[PATH_MAX];
    if (w->fds[file] >= 0)
        return 0;
    if (fs_join(path, sizeof path, w->dir, w->layout->files[file].name, err))
        return -1;
    w->fds[file] = open(path, O_WRONLY | O_CLOEXEC);
    return w->fds[file] >= 0 ? 0 : cannot_write_file(w, file, err);
}

/* Where ranges cannot be synced, fsync() does it all. Any other failure is final: it is
 * reported once, and fsync() would not report it again. */
static bool is_failure(int rc)
{
    return rc && errno != ENOSYS && errno != EINVAL && errno != ESPIPE;
}

static int let_go(const struct handed *h)
{
    unsigned flags =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    if (is_failure(sync_file_range(h->fd, h->at, h->n_bytes, flags)))
        return -1;
    (void)posix_fadvise(h->fd, h->at, h->n_bytes, POSIX_FADV_DONTNEED); // only a wish
    return 0;
}

/* The range was written: start it on its way, and wait for the one that has been on it
 * for longest. */
static int hand_over(struct part_writer *w, int fd, off_t at, off_t n_bytes)
{
    struct handed *slot = &w->on_the_way[w->n_handed % MAX_ON_THE_WAY];
    if (n_bytes < LEAST_HANDED_BYTES)
        return 0;
    if (is_failure(sync_file_range(fd, at, n_bytes, SYNC_FILE_RANGE_WRITE)))
        return -1;
    if (w->n_handed++ >= MAX_ON_THE_WAY && let_go(slot))
        return -1;
    *slot = (struct handed){fd, at, n_bytes};
    return 0;
}

/* x: elements [first, first + n) of the piece. */
static int write_runs(struct part_writer *w, const struct ckpt_tensor *tensor,
                      const struct ckpt_piece *piece, int64_t first, int64_t n,
                      const float *x)
{
    for (int64_t done = 0; done < n;) {
        int64_t whole;
        int64_t run = ckpt_piece_run(piece, first + done, n - done, &whole);
        off_t at = tensor->at + whole * (int64_t)sizeof *x;
        size_t n_bytes = (size_t)run * sizeof *x;
        CHECK(whole + run <= tensor->n_elements, "element %lld of %lld",
              (long long)(whole + run), (long long)tensor->n_elements);
        ckpt_sums_add(w->sums, tensor->first_block, whole, x + done, run);
        if (fs_pwrite_exact(w->fds[tensor->file], x + done, n_bytes, at) ||
            hand_over(w, w->fds[tensor->file], at, (off_t)n_bytes))
            return -1;
        beat_aside();
        done += run;
    }
    return 0;
}

static int write_piece(struct part_writer *w, const struct ckpt_piece *piece, int kind,
                       struct error *err)
{
    const struct ckpt_tensor *tensor =
        ckpt_layout_tensor(w->layout, piece->row->number, kind);
    if (open_file(w, tensor->file, err))
        return -1;
    for (int64_t i = 0; i < piece->n; i += CHUNK_ELEMENTS) {
        int64_t n = i64_min(CHUNK_ELEMENTS, piece->n - i);
        const float *x =
            w->source->view(w->source->context, kind, piece, i, n, w->buffer, err);
        if (!x)
            return -1;
        if (write_runs(w, tensor, piece, i, n, x))
            return cannot_write_file(w, tensor->file, err);
    }
    return ckpt_failpoint(CKPT_AT_TENSOR_WRITTEN)
               ? cannot_write_file(w, tensor->file, err)
               : 0;
}

/* In the order of the files. */
static int write_pieces(struct part_writer *w, const struct ckpt_part *part,
                        struct error *err)
{
    for (int set = 0; set < N_CKPT_SETS; set++) {
        struct ckpt_kinds kinds = ckpt_set_kinds((enum ckpt_set)set, w->layout->rule);
        for (int64_t i = 0; i < part->n_pieces; i++)
            for (int kind = kinds.first; kind < kinds.end; kind++)
                if (write_piece(w, &part->pieces[i], kind, err))
                    return -1;
    }
    return 0;
}

/* A failed fsync is final: the kernel may have dropped the pages, so asking again could
 * succeed without them. The save is given up and its files are removed. */
static int sync_files(struct part_writer *w, struct error *err)
{
    for (int i = 0; i < w->layout->n_files; i++) {
        if (w->fds[i] < 0)
            continue;
        if (ckpt_failpoint(CKPT_AT_FILE_WRITTEN) || fsync(w->fds[i]))
            return cannot_write_file(w, i, err);
        int rc = close(w->fds[i]);
        w->fds[i] = -1;
        beat_aside();
        if (rc || ckpt_failpoint(CKPT_AT_FILE_SYNCED))
            return cannot_write_file(w, i, err);
    }
    return 0;
}

int ckpt_write_part(const char *dir, const struct ckpt_layout *layout,
                    const struct ckpt_part *part, const struct ckpt_source *source,
                    bool is_maker, struct ckpt_sums *sums, struct error *err)
{
    struct part_writer w = {.dir = dir, .layout = layout, .source = source, .sums = sums};
    size_t n_files = (size_t)layout->n_files;
    int rc = -1;
    w.buffer = malloc((size_t)CHUNK_ELEMENTS * sizeof *w.buffer);
    w.fds = malloc((n_files + 1) * sizeof *w.fds);
    for (size_t i = 0; w.fds && i < n_files; i++)
        w.fds[i] = -1;
    if (!w.buffer || !w.fds) {
        error_set(err, ERROR_RUNTIME, "out of memory for writing '%s'", dir);
        goto done;
    }
    for (int i = 0; i < layout->n_files && is_maker; i++)
        if (open_file(&w, i, err))
            goto done;
    if (write_pieces(&w, part, err) || sync_files(&w, err))
        goto done;
    rc = 0;
done:
    for (size_t i = 0; w.fds && i < n_files; i++)
        if (w.fds[i] >= 0)
            close(w.fds[i]);
    free(w.fds);
    free(w.buffer);
    return rc;
}

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

static int check_space(const struct ckpt_commit *c, struct error *err)
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
    ckpt_latest_settle(output_dir);
    if (init_paths(c, err) || check_space(c, err) || make_temp(c, err) ||
        failed_at(c, CKPT_AT_TEMP_CREATED, err))
        return -1;
    return make_files(c->temp, layout, err);
}

/* -- hashes to one process ----------------------------------------------------------- */

/* A process sends the blocks it wrote in and no others, so the whole is little more than
 * one record per block. */

/* bounds[r]: bytes of the records of the ranks before r. */
static int share_bounds(struct comm *comm, int64_t n_records, int64_t *bounds,
                        struct error *err)
{
    int size = comm_size(comm), me = comm_rank(comm);
    for (int r = 0; r <= size; r++)
        bounds[r] = 0;
    bounds[me + 1] = n_records * (int64_t)sizeof(struct ckpt_sum_record);
    if (comm_sum_i64(comm, bounds, size + 1, err))
        return -1;
    for (int r = 0; r < size; r++)
        bounds[r + 1] += bounds[r];
    return 0;
}

static void add_others(struct ckpt_sums *sums, const struct ckpt_sum_record *all,
                       const int64_t *bounds, int size)
{
    int64_t width = (int64_t)sizeof *all;
    for (int64_t i = bounds[1] / width; i < bounds[size] / width; i++)
        ckpt_sums_add_record(sums, &all[i]);
}

static int out_of_memory(struct error *err)
{
    return error_set(err, ERROR_RUNTIME, "out of memory for the hashes of a checkpoint");
}

int ckpt_gather_sums(struct ckpt_sums *sums, struct comm *comm, struct error *err)
{
    int size = comm_size(comm), me = comm_rank(comm), rc = 0;
    if (size == 1)
        return 0;
    struct ckpt_sum_record *mine = calloc((size_t)sums->n_blocks + 1, sizeof *mine);
    int64_t *bounds = calloc((size_t)size + 1, sizeof *bounds);
    struct ckpt_sum_record *all = NULL;
    if (!mine || !bounds)
        rc = out_of_memory(err);
    rc = comm_agree(comm, rc, err);
    if (rc || !mine || !bounds)
        goto done;
    rc = share_bounds(comm, ckpt_sums_records(sums, mine), bounds, err);
    if (rc)
        goto done;
    if (me == 0) {
        all = malloc((size_t)bounds[size] + 1);
        if (!all)
            rc = out_of_memory(err);
    }
    rc = comm_agree(comm, rc, err);
    if (rc == 0)
        rc = comm_gather_bytes(comm, mine, all, bounds, 0, err);
    if (rc == 0 && me == 0)
        add_others(sums, all, bounds, size);
done:
    free(mine);
    free(bounds);
    free(all);
    return rc;
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
static int replace_checkpoint(struct ckpt_commit *c, struct error *err)
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
    if (spare_damaged(c, err) ||
        ckpt_latest_announce(c->output_dir, &c->name, c->temp, err))
        return -1;
    c->is_announced = true;
    if (fs_is_directory(c->final) ? replace_checkpoint(c, err)
                                  : fs_rename(c->temp, c->final, err))
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

static bool is_about_space(const struct error *why)
{
    static const int of_space[] = {ENOSPC, EDQUOT};
    bool is_it = strstr(why->text, DISK_FULL);
    for (size_t i = 0; i < ARRAY_LEN(of_space); i++)
        is_it |= strstr(why->text, strerror(of_space[i])) != NULL;
    return is_it;
}

int ckpt_commit_abandon(struct ckpt_commit *c, struct error *err)
{
    struct error ignored, cause = *err;
    uint64_t n_free;
    char hint[96] = "";
    if (c->has_temp && c->is_announced)
        ckpt_latest_retract(c->output_dir);
    if (c->has_temp && fs_remove_tree(c->temp, &ignored))
        log_warning("could not remove an unfinished checkpoint: %s", ignored.text);
    c->has_temp = false;
    if (is_about_space(&cause) && fs_free_bytes(c->output_dir, &n_free, &ignored) == 0)
        snprintf(hint, sizeof hint, " (it takes %llu bytes, %llu are free there)",
                 (unsigned long long)c->needed_bytes, (unsigned long long)n_free);
    else if (strstr(cause.text, strerror(EFBIG)))
        snprintf(hint, sizeof hint, " (see ulimit -f, and save_load.max_file_bytes)");
    return error_set(err, ERROR_RUNTIME,
                     "cannot save the checkpoint '%s' in '%s': %.1200s%s; earlier "
                     "checkpoints are untouched",
                     c->name.text, c->output_dir, cause.text, hint);
}
