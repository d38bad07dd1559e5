/*
 * Numbers go from where they lie to the kernel, hashed on the way; what was written is
 * handed to the disk at once (sync_file_range), so that the disk works while the next
 * chunk is hashed, and the final fsync has little left to do.
 *
 * What the disk has is let go of by the page cache: nobody reads it soon, its memory is
 * the next chunk's, and a save neither pushes out what others have there nor takes
 * gigabytes of memory that nobody has touched yet, which costs more than copying to it.
 */
#include "ckpt/ckpt_write.h"

#include "base/beat.h"
#include "base/fs.h"
#include "ckpt/ckpt_failpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
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

/* Room for the whole file, so that a full disk is known now. File systems that cannot
 * promise room get the size alone. */
static int take_room(int fd, int64_t n_bytes)
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
        take_room(fd, file->st.header_bytes + file->st.data_bytes) ||
        fs_pwrite_exact(fd, file->header, (size_t)file->st.header_bytes, 0) ||
        ckpt_failpoint(CKPT_AT_HEADER_WRITTEN))
        cannot_write(dir, file->name, err);
    else
        rc = 0;
    if (close(fd) && rc == 0)
        rc = cannot_write(dir, file->name, err);
    return rc;
}

int ckpt_make_files(const char *dir, const struct ckpt_layout *layout, struct error *err)
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
    float *room;                              // CHUNK_ELEMENTS
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

/* Where the disk cannot be told about ranges, fsync() does it all. Any other failure is
 * final: it was this one's to tell, and fsync() will not tell it again. */
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
            w->source->view(w->source->context, kind, piece, i, n, w->room, err);
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
    w.room = malloc((size_t)CHUNK_ELEMENTS * sizeof *w.room);
    w.fds = malloc((n_files + 1) * sizeof *w.fds);
    for (size_t i = 0; w.fds && i < n_files; i++)
        w.fds[i] = -1;
    if (!w.room || !w.fds) {
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
    free(w.room);
    return rc;
}
