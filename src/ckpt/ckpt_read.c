/*
 * The unit of reading is the block. A piece of several short runs (a matrix that mp cuts
 * by columns) touches all blocks of its tensor, and takes from each what is its own.
 *
 * Pieces are cut into jobs that the threads of this process share, each with a block of
 * its own: hashing, and the first touch of the memory that numbers go to, keep up with
 * fast disks only together.
 */
#include "ckpt/ckpt_read.h"

#include "base/beat.h"
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_WORDS (CKPT_BLOCK_BYTES / (int64_t)sizeof(float))
#define JOB_WORDS (8 * BLOCK_WORDS)
#define JOBS_AHEAD 4 // whose data is asked for before it is read

struct job { // elements [first, end) of a piece, or of a whole tensor that goes nowhere
    const struct ckpt_read_file *file;
    int64_t tensor; // of the file
    int kind;
    const struct ckpt_piece *piece; // NULL: the tensor is only verified
    int64_t first, end;
};

struct job_list {
    struct job *jobs; // owned
    int64_t n_jobs, capacity;
};

struct worker {
    const struct ckpt_reader *r;
    const struct ckpt_sink *sink;
    void *room;      // FS_DIRECT_BYTES(CKPT_BLOCK_BYTES)
    float *block;    // the one read last, in room
    int64_t at;      // its number; -1: none
    int64_t n_words; // of it
    bool is_damaged;
};

/* -- one job ------------------------------------------------------------------------- */

/* A file system that cannot read past the cache may say so when asked to open the file
 * or with each read. */
static int read_bytes(struct worker *w, const struct ckpt_read_file *file, size_t n,
                      off_t at)
{
    w->block = w->room;
    if (file->direct_fd >= 0) {
        w->block = fs_pread_direct(file->direct_fd, w->room, n, at);
        if (w->block || errno != EINVAL)
            return w->block ? 0 : -1;
        w->block = w->room;
    }
    return fs_pread_exact(file->fd, w->block, n, at);
}

/* One block of the job's tensor, verified, into w->block. */
static int read_block(struct worker *w, const struct job *job, int64_t block,
                      struct error *err)
{
    const struct ckpt_read_file *file = job->file;
    const struct safetensors_tensor *t = &file->st.tensors[job->tensor];
    off_t at = safetensors_offset(&file->st, t) + block * CKPT_BLOCK_BYTES;
    w->at = -1;
    beat_aside();
    w->n_words = ckpt_block_words(t->n_elements, block);
    if (read_bytes(w, file, (size_t)w->n_words * sizeof *w->block, at)) {
        enum error_kind kind = fs_error_kind(errno);
        w->is_damaged = kind == ERROR_INPUT;
        return error_set(err, kind, "cannot read tensor '%s' of '%s': %s", t->name,
                         file->path, w->is_damaged ? "it is cut" : strerror(errno));
    }
    w->at = block;
    if (ckpt_sum(&w->r->keys, 0, w->block, w->n_words) ==
        file->hashes[file->first_hash[job->tensor] + block])
        return 0;
    w->is_damaged = true;
    return error_set(
        err, ERROR_INPUT,
        "'%s' is damaged: tensor '%s' does not have the recorded hash (bytes "
        "%lld to %lld of it)",
        file->path, t->name, (long long)(block * CKPT_BLOCK_BYTES),
        (long long)(block * CKPT_BLOCK_BYTES + w->n_words * (int64_t)sizeof(float)));
}

static int hand_on(struct worker *w, const struct job *job, int64_t first, int64_t n,
                   const float *x, struct error *err)
{
    return w->sink->take(w->sink->context, job->kind, job->piece, first, n, x, err);
}

/* Elements of a piece come in the order of the whole parameter, so that each block is
 * read once a job. */
static int run_job(struct worker *w, const struct job *job, struct error *err)
{
    w->at = -1;
    for (int64_t i = job->first; i < job->end;) {
        int64_t whole = i, n = job->end - i;
        if (job->piece)
            n = ckpt_piece_run(job->piece, i, n, &whole);
        int64_t inside = whole % BLOCK_WORDS;
        n = i64_min(n, BLOCK_WORDS - inside);
        if (w->at != whole / BLOCK_WORDS && read_block(w, job, whole / BLOCK_WORDS, err))
            return -1;
        CHECK(inside + n <= w->n_words, "word %lld of a block of %lld",
              (long long)(inside + n), (long long)w->n_words);
        if (job->piece && hand_on(w, job, i, n, w->block + inside, err))
            return -1;
        i += n;
    }
    return 0;
}

/* -- all jobs ------------------------------------------------------------------------ */

/* Have the kernel read the data of a job ahead: threads that take turns in one file look
 * to it like random reads, which it reads nothing ahead of by itself. */
static void ask_for(const struct job_list *list, int64_t i)
{
    if (i >= list->n_jobs || list->jobs[i].file->direct_fd >= 0)
        return;
    const struct job *job = &list->jobs[i];
    const struct safetensors_tensor *t = &job->file->st.tensors[job->tensor];
    int64_t first = job->first, last = job->end - 1;
    if (job->piece) {
        ckpt_piece_run(job->piece, job->first, 1, &first);
        ckpt_piece_run(job->piece, job->end - 1, 1, &last);
    }
    int64_t begin = first / BLOCK_WORDS * CKPT_BLOCK_BYTES;
    int64_t end = (last / BLOCK_WORDS + 1) * CKPT_BLOCK_BYTES;
    (void)posix_fadvise(job->file->fd, safetensors_offset(&job->file->st, t) + begin,
                        end - begin, POSIX_FADV_WILLNEED);
}

/* One failure is told, of the first job that met one. */
static int run_jobs(struct ckpt_reader *r, const struct job_list *list,
                    const struct ckpt_sink *sink, struct error *err)
{
    int64_t failed_at = INT64_MAX;
    for (int i = 0; i < JOBS_AHEAD; i++)
        ask_for(list, i);
#pragma omp parallel
    {
        struct worker w = {.r = r, .sink = sink};
        w.room = aligned_alloc(FS_DIRECT_UNIT, FS_DIRECT_BYTES((size_t)CKPT_BLOCK_BYTES));
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < list->n_jobs; i++) {
            struct error why;
            int64_t first_failure;
#pragma omp atomic read
            first_failure = failed_at;
            if (first_failure < i)
                continue;
            ask_for(list, i + JOBS_AHEAD);
            int rc = w.room ? run_job(&w, &list->jobs[i], &why)
                            : error_set(&why, ERROR_RUNTIME,
                                        "out of memory for reading '%s'", r->path);
#pragma omp critical(ckpt_failure)
            if (rc && i < failed_at) {
                failed_at = i;
                r->is_damaged = w.is_damaged;
                *err = why;
            }
        }
        free(w.room);
    }
    return failed_at < INT64_MAX ? -1 : 0;
}

static int add_jobs(struct job_list *list, struct job job, int64_t n, struct error *err)
{
    for (int64_t i = 0; i < n; i += JOB_WORDS) {
        if (list->n_jobs == list->capacity) {
            int64_t capacity = list->capacity ? 2 * list->capacity : 256;
            struct job *jobs = realloc(list->jobs, (size_t)capacity * sizeof *jobs);
            if (!jobs)
                return error_set(err, ERROR_RUNTIME,
                                 "out of memory for reading a checkpoint");
            list->jobs = jobs;
            list->capacity = capacity;
        }
        job.first = i;
        job.end = i64_min(n, i + JOB_WORDS);
        list->jobs[list->n_jobs++] = job;
    }
    return 0;
}

int ckpt_reader_verify(struct ckpt_reader *r, struct error *err)
{
    struct job_list list = {.n_jobs = 0};
    int rc = 0;
    for (int i = 0; i < r->n_files; i++)
        for (int64_t t = 0; t < r->files[i].st.n_tensors && rc == 0; t++)
            rc = add_jobs(&list, (struct job){.file = &r->files[i], .tensor = t},
                          r->files[i].st.tensors[t].n_elements, err);
    if (rc == 0)
        rc = run_jobs(r, &list, NULL, err);
    free(list.jobs);
    return rc;
}

/* The job's tensor; ckpt_reader_check() has seen that it is there. */
static void find_tensor(const struct ckpt_reader *r, struct job *job)
{
    char name[CKPT_TENSOR_NAME_BYTES];
    ckpt_tensor_name(job->piece->row, job->kind, r->rule, name);
    for (int i = 0; i < r->n_files; i++) {
        const struct safetensors *st = &r->files[i].st;
        const struct safetensors_tensor *t = safetensors_find(st, name);
        if (t) {
            job->file = &r->files[i];
            job->tensor = t - st->tensors;
            return;
        }
    }
    CHECK(false, "tensor '%s' is missing", name);
}

/* As the data lies on the disk, which is fastest when it is read from front to back. */
static int compare_places(const void *a, const void *b)
{
    const struct job *x = a, *y = b;
    const struct safetensors *st = &x->file->st;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    off_t at_x = safetensors_offset(st, &st->tensors[x->tensor]);
    off_t at_y = safetensors_offset(st, &st->tensors[y->tensor]);
    if (at_x != at_y)
        return at_x < at_y ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

int ckpt_reader_read(struct ckpt_reader *r, int n_sets, const struct ckpt_part *part,
                     const struct ckpt_sink *sink, struct error *err)
{
    struct job_list list = {.n_jobs = 0};
    int rc = 0;
    for (int set = 0; set < n_sets; set++) {
        struct ckpt_kinds kinds = ckpt_set_kinds((enum ckpt_set)set, r->rule);
        for (int64_t i = 0; i < part->n_pieces; i++)
            for (int kind = kinds.first; kind < kinds.end && rc == 0; kind++) {
                struct job job = {.kind = kind, .piece = &part->pieces[i]};
                find_tensor(r, &job);
                rc = add_jobs(&list, job, part->pieces[i].n, err);
            }
    }
    if (list.n_jobs > 0)
        qsort(list.jobs, (size_t)list.n_jobs, sizeof *list.jobs, compare_places);
    if (rc == 0)
        rc = run_jobs(r, &list, sink, err);
    free(list.jobs);
    return rc;
}
