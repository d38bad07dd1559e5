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
#include "base/thread.h"
#include "ckpt/ckpt_diff.h"
#include "ckpt/ckpt_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Opening: what the manifest says of each file, against what the file says of itself. */

static int out_of_memory(const char *path, struct error *err)
{
    return error_set(err, ERROR_RUNTIME, "out of memory for reading '%s'", path);
}

/* -- hashes -------------------------------------------------------------------------- */

static bool parse_hash(const json_t *json, uint64_t *hash)
{
    const char *text = json_string_value(json);
    char *end;
    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return false;
    *hash = strtoull(text, &end, 16);
    return true;
}

static bool take_tensor_hashes(const struct safetensors_tensor *t, const json_t *list,
                               uint64_t *hashes)
{
    int64_t n = ckpt_n_blocks(t->n_elements);
    if (t->dtype != SAFETENSORS_F32 || (int64_t)json_array_size(list) != n)
        return false;
    for (int64_t i = 0; i < n; i++)
        if (!parse_hash(json_array_get(list, (size_t)i), &hashes[i]))
            return false;
    return true;
}

static int take_hashes(struct ckpt_reader *r, struct ckpt_read_file *file,
                       const json_t *record, struct error *err)
{
    const json_t *tensors = json_object_get(record, "tensors");
    int64_t n_tensors = file->st.n_tensors, n_blocks = 0;
    file->first_hash = calloc((size_t)n_tensors + 1, sizeof *file->first_hash);
    if (!file->first_hash)
        return out_of_memory(file->path, err);
    for (int64_t i = 0; i < n_tensors; i++) {
        file->first_hash[i] = n_blocks;
        n_blocks += ckpt_n_blocks(file->st.tensors[i].n_elements);
    }
    file->hashes = calloc((size_t)n_blocks + 1, sizeof *file->hashes);
    if (!file->hashes)
        return out_of_memory(file->path, err);
    bool is_right = (int64_t)json_object_size(tensors) == n_tensors;
    for (int64_t i = 0; i < n_tensors && is_right; i++) {
        const struct safetensors_tensor *t = &file->st.tensors[i];
        is_right = take_tensor_hashes(t, json_object_get(tensors, t->name),
                                      file->hashes + file->first_hash[i]);
    }
    if (is_right)
        return 0;
    r->is_damaged = true;
    return error_set(err, ERROR_INPUT,
                     "'%s' is damaged: it does not hold the tensors recorded in its "
                     "checkpoint",
                     file->path);
}

/* -- files --------------------------------------------------------------------------- */

static int check_header(struct ckpt_reader *r, const struct ckpt_read_file *file,
                        const char *header, const json_t *record, struct error *err)
{
    char hash[17];
    const char *expected = json_string_value(json_object_get(record, "header_xxh3_64"));
    ckpt_hash_text(header, (size_t)file->st.header_bytes, hash);
    if (expected && strcmp(hash, expected) == 0)
        return 0;
    r->is_damaged = true;
    return error_set(err, ERROR_INPUT,
                     "'%s' is damaged: its header does not have the recorded hash",
                     file->path);
}

static int open_file(struct ckpt_reader *r, const char *name, const json_t *record,
                     struct error *err)
{
    char *header = NULL;
    struct ckpt_read_file *file = &r->files[r->n_files++];
    *file = (struct ckpt_read_file){.fd = -1, .direct_fd = -1};
    if (fs_join(file->path, sizeof file->path, r->path, name, err))
        return -1;
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe would wait
    if (file->fd < 0)
        error_set(err, fs_error_kind(errno), "cannot open '%s': %s", file->path,
                  strerror(errno));
    if (file->fd < 0 ||
        safetensors_read_header(&file->st, file->fd, file->path, &header, err)) {
        r->is_damaged = err->kind == ERROR_INPUT; // otherwise the machine failed
        return -1;
    }
    int rc = check_header(r, file, header, record, err);
    free(header);
    return rc ? -1 : take_hashes(r, file, record, err);
}

/* "model.safetensors" or "model-00001-of-00002.safetensors" for set "model". */
static bool is_of_set(const char *name, const json_t *record, enum ckpt_set set)
{
    size_t n = strlen(ckpt_set_names[set]);
    return json_object_get(record, "tensors") &&
           strncmp(name, ckpt_set_names[set], n) == 0 &&
           (name[n] == '.' || name[n] == '-');
}

static int open_set(struct ckpt_reader *r, enum ckpt_set set, struct error *err)
{
    r->set_files[set] = r->n_files;
    for (void *at = json_object_iter(r->manifest.files); at;
         at = json_object_iter_next(r->manifest.files, at)) {
        const char *name = json_object_iter_key(at);
        const json_t *record = json_object_iter_value(at);
        if (!is_of_set(name, record, set))
            continue;
        if (ckpt_manifest_check_file(r->path, name, record, &r->is_damaged, err) ||
            open_file(r, name, record, err))
            return -1;
    }
    r->set_files[set + 1] = r->n_files;
    if (r->n_files > r->set_files[set])
        return 0;
    r->is_damaged = true;
    return error_set(err, ERROR_INPUT,
                     "'%s' is damaged: its " CKPT_MANIFEST_NAME
                     " lists no file of the %s",
                     r->path, ckpt_set_names[set]);
}

/* Indexes and whatever else has a hash of its own and no tensors. */
static int check_plain_files(struct ckpt_reader *r, struct error *err)
{
    for (void *at = json_object_iter(r->manifest.files); at;
         at = json_object_iter_next(r->manifest.files, at)) {
        const char *name = json_object_iter_key(at);
        const json_t *record = json_object_iter_value(at);
        if (!json_object_get(record, "tensors") &&
            ckpt_manifest_check_plain_file(r->path, name, record, &r->is_damaged, err))
            return -1;
    }
    return 0;
}

int ckpt_reader_open(struct ckpt_reader *r, const char *path, int n_sets,
                     struct error *err)
{
    *r = (struct ckpt_reader){.n_sets = n_sets};
    ckpt_sum_keys_init(&r->keys);
    if (snprintf(r->path, sizeof r->path, "%s", path) >= (int)sizeof r->path)
        return error_set(err, ERROR_INPUT, "path too long: '%.200s...'", path);
    if (ckpt_manifest_read(&r->manifest, path, &r->is_damaged, err))
        return -1;
    size_t n_files = json_object_size(r->manifest.files);
    r->files = calloc(n_files + 1, sizeof *r->files);
    if (!r->files)
        return out_of_memory(path, err);
    for (int set = 0; set < n_sets; set++)
        if (open_set(r, (enum ckpt_set)set, err))
            return -1;
    return n_sets == N_CKPT_SETS ? check_plain_files(r, err) : 0;
}

int ckpt_reader_open_named(struct ckpt_reader *r, const char *path, int n_sets,
                           struct error *err)
{
    if (ckpt_reader_open(r, path, n_sets, err))
        return -1;
    if (ckpt_check_name(path, &r->manifest.progress, err) == 0)
        return 0;
    r->is_damaged = true;
    return -1;
}

void ckpt_reader_close(struct ckpt_reader *r)
{
    for (int i = 0; i < r->n_files; i++) {
        struct ckpt_read_file *file = &r->files[i];
        if (file->fd >= 0)
            close(file->fd);
        if (file->direct_fd >= 0)
            close(file->direct_fd);
        safetensors_release(&file->st);
        free(file->hashes);
        free(file->first_hash);
    }
    free(r->files);
    r->files = NULL;
    r->n_files = 0;
    ckpt_manifest_release(&r->manifest);
}

void ckpt_reader_bypass_cache(struct ckpt_reader *r)
{
    for (int i = 0; i < r->n_files; i++) {
        struct ckpt_read_file *file = &r->files[i];
        if (file->direct_fd < 0 && !fs_is_cached(file->fd))
            file->direct_fd = open(file->path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    }
}

int ckpt_reader_check(struct ckpt_reader *r, const struct param_table *whole,
                      const struct update_rule *rule, int n_sets, struct error *err)
{
    r->rule = rule;
    for (int set = 0; set < n_sets; set++) {
        int first = r->set_files[set], end = r->set_files[set + 1];
        if (ckpt_diff_check(whole, (enum ckpt_set)set, rule, r->files + first,
                            end - first, r->path, err))
            return -1;
    }
    return 0;
}

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
    void *buffer;    // FS_DIRECT_BYTES(CKPT_BLOCK_BYTES)
    float *block;    // the one read last, in buffer
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
    w->block = w->buffer;
    if (file->direct_fd >= 0) {
        w->block = fs_pread_direct(file->direct_fd, w->buffer, n, at);
        if (w->block || errno != EINVAL)
            return w->block ? 0 : -1;
        w->block = w->buffer;
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
 * read once per job. */
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

/* One failure is reported, that of the first job that had one. */
static int run_jobs(struct ckpt_reader *r, const struct job_list *list,
                    const struct ckpt_sink *sink, struct error *err)
{
    int64_t failed_at = INT64_MAX;
    for (int i = 0; i < JOBS_AHEAD; i++)
        ask_for(list, i);
#pragma omp parallel num_threads(thread_team_size())
    {
        struct worker w = {.r = r, .sink = sink};
        w.buffer =
            aligned_alloc(FS_DIRECT_UNIT, FS_DIRECT_BYTES((size_t)CKPT_BLOCK_BYTES));
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < list->n_jobs; i++) {
            struct error why;
            int64_t first_failure;
#pragma omp atomic read
            first_failure = failed_at;
            if (first_failure < i)
                continue;
            ask_for(list, i + JOBS_AHEAD);
            int rc = w.buffer ? run_job(&w, &list->jobs[i], &why)
                              : error_set(&why, ERROR_RUNTIME,
                                          "out of memory for reading '%s'", r->path);
#pragma omp critical(ckpt_failure)
            if (rc && i < failed_at) {
                failed_at = i;
                r->is_damaged = w.is_damaged;
                *err = why;
            }
        }
        free(w.buffer);
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

int ckpt_reader_load(struct ckpt_reader *r, const struct param_table *whole,
                     const struct update_rule *rule, const struct shard_map *map,
                     const struct ckpt_sink *sink, struct error *err)
{
    struct ckpt_part part = {.n_pieces = 0};
    int rc = ckpt_reader_check(r, whole, rule, r->n_sets, err);
    if (rc == 0)
        rc = ckpt_part_init(&part, map, false, err);
    if (rc == 0)
        rc = ckpt_reader_read(r, r->n_sets, &part, sink, err);
    ckpt_part_release(&part);
    return rc;
}
