/*
 * The address range is reserved without access. A window gets access and memory when it
 * is read, loses both when it is dropped: then its pages go back to the system, first to
 * the file if they were changed. Direct reads and writes instead of a shared mapping of
 * the file, because a disk that fails then is an error and not a signal, what is dropped
 * is gone instead of waiting in the page cache to be written, and pages are huge ones.
 *
 * A window is in one of four states, and in the queue of jobs exactly in two of them:
 *
 *     ABSENT --hold--> READING --job--> PRESENT --retire--> WRITING --job--> PRESENT
 *        ^                                 |
 *        +-------------retire--------------+
 *
 * retire() decides on a PRESENT window: it stays while it is held, is written when it was
 * changed, and else goes. Everything below `lock` is decided under it; only the reading
 * and the writing themselves happen outside, by the thread that took the job.
 *
 * A pass holds windows [held_first, held_end). pump() moves held_end on, as far as the
 * limit on windows in memory allows: called when the cursor moves, and when a written
 * window has gone.
 */
#include "base/offload.h"

#include "base/beat.h"
#include "base/offload_file.h"
#include "base/process.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define N_THREADS 2 // one can read while the other writes
#define HUGE_PAGE_BYTES ((size_t)2 << 20)

enum window_state { WINDOW_ABSENT, WINDOW_READING, WINDOW_PRESENT, WINDOW_WRITING };

struct window {
    enum window_state state;
    bool is_changed; // since it was read or last given to be written
    int n_holds;
};

struct pass {
    bool is_open;
    enum offload_use use;
    int64_t held_first, held_end; // windows held
    int64_t used_end;  // windows before it were in a range of offload_advance()
    int64_t ahead_end; // windows before it are worth reading now
};

struct failure { // the first one; later ones follow from it
    int error;   // errno, 0 while all is well
    const char *verb;
    int64_t window;
};

struct offload {
    const char *what;
    char *dir, *dir_key;
    struct offload_file file;
    size_t n_bytes, window_bytes;
    int64_t n_windows, n_windows_most;
    uint8_t *reserved, *base; // base is reserved, aligned
    size_t reserved_bytes;
    pthread_t threads[N_THREADS];
    int n_threads;

    pthread_mutex_t lock;
    pthread_cond_t work; // jobs is not empty, or is_closing
    pthread_cond_t done; // some window changed its state
    bool is_closing;
    struct window *windows;
    int64_t *jobs; // ring of n_windows: a window has one job at most
    int64_t jobs_first, n_jobs, n_jobs_taken;
    int64_t n_present; // windows not ABSENT
    int64_t n_writing;
    struct pass pass;
    struct failure failure;
};

/* -- windows (lock held) ------------------------------------------------------------- */

static uint8_t *window_data(const struct offload *o, int64_t w)
{
    return o->base + (size_t)w * o->window_bytes;
}

static size_t window_length(const struct offload *o, int64_t w)
{
    size_t at = (size_t)w * o->window_bytes;
    size_t left = o->file.n_bytes - at;
    return left < o->window_bytes ? left : o->window_bytes;
}

static void note_failure(struct offload *o, int error, const char *verb, int64_t w)
{
    if (o->failure.error == 0)
        o->failure = (struct failure){.error = error, .verb = verb, .window = w};
}

static void push_job(struct offload *o, int64_t w, enum window_state state)
{
    CHECK(o->n_jobs < o->n_windows, "%lld jobs", (long long)o->n_jobs);
    o->windows[w].state = state;
    o->jobs[(o->jobs_first + o->n_jobs++) % o->n_windows] = w;
    pthread_cond_signal(&o->work);
}

static void hold(struct offload *o, int64_t w)
{
    struct window *win = &o->windows[w];
    win->n_holds++;
    if (win->state != WINDOW_ABSENT)
        return;
    o->n_present++;
    push_job(o, w, WINDOW_READING);
}

/* Return the memory to the system, and make it an error to touch it. */
static void forget(struct offload *o, int64_t w)
{
    uint8_t *data = window_data(o, w);
    size_t n = window_length(o, w);
    if (madvise(data, n, MADV_DONTNEED) || mprotect(data, n, PROT_NONE))
        note_failure(o, errno, "drop", w);
    o->windows[w].state = WINDOW_ABSENT;
    o->n_present--;
}

static void retire(struct offload *o, int64_t w)
{
    struct window *win = &o->windows[w];
    if (win->state != WINDOW_PRESENT || win->n_holds > 0)
        return;
    if (win->is_changed && o->failure.error == 0) {
        win->is_changed = false;
        o->n_writing++;
        push_job(o, w, WINDOW_WRITING);
        return;
    }
    forget(o, w);
}

static void unhold(struct offload *o, int64_t w, enum offload_use use)
{
    struct window *win = &o->windows[w];
    CHECK(win->n_holds > 0, "window %lld of %s", (long long)w, o->what);
    win->n_holds--;
    win->is_changed |= use == OFFLOAD_UPDATE;
    retire(o, w);
}

/* -- the pass (lock held) ------------------------------------------------------------ */

static void pump(struct offload *o)
{
    struct pass *p = &o->pass;
    while (p->is_open && p->held_end < p->ahead_end && o->n_present < o->n_windows_most)
        hold(o, p->held_end++);
}

static void pass_drop_before(struct offload *o, int64_t end)
{
    struct pass *p = &o->pass;
    for (; p->held_first < i64_min(end, p->held_end); p->held_first++)
        unhold(o, p->held_first, p->held_first < p->used_end ? p->use : OFFLOAD_READ);
}

/* Hold what must be held; at the limit, wait for windows that are being written. */
static void pass_hold_until(struct offload *o, int64_t end)
{
    struct pass *p = &o->pass;
    while (p->held_end < end) {
        if (o->n_present >= o->n_windows_most && o->n_writing > 0)
            pthread_cond_wait(&o->done, &o->lock);
        else
            hold(o, p->held_end++);
    }
}

/* -- background ---------------------------------------------------------------------- */

static int job_read(struct offload *o, int64_t w)
{
    uint8_t *data = window_data(o, w);
    size_t n = window_length(o, w);
    if (mprotect(data, n, PROT_READ | PROT_WRITE))
        return -1;
    return offload_file_read(&o->file, data, n, (size_t)w * o->window_bytes);
}

static int job_write(struct offload *o, int64_t w)
{
    return offload_file_write(&o->file, window_data(o, w), window_length(o, w),
                              (size_t)w * o->window_bytes);
}

/* Take the next job and do it; the lock is held before and after. */
static void do_job(struct offload *o)
{
    int64_t w = o->jobs[o->jobs_first];
    bool is_write = o->windows[w].state == WINDOW_WRITING;
    bool is_needed = o->failure.error == 0;
    int rc = 0, error = 0;
    o->jobs_first = (o->jobs_first + 1) % o->n_windows;
    o->n_jobs--;
    o->n_jobs_taken++;
    if (is_needed) {
        pthread_mutex_unlock(&o->lock);
        rc = is_write ? job_write(o, w) : job_read(o, w);
        error = errno;
        beat_aside();
        pthread_mutex_lock(&o->lock);
    }
    if (rc)
        note_failure(o, error, is_write ? "write" : "read", w);
    o->n_jobs_taken--;
    o->n_writing -= is_write;
    o->windows[w].state = WINDOW_PRESENT;
    retire(o, w);
    pump(o);
    pthread_cond_broadcast(&o->done);
}

static void *run_jobs(void *arg)
{
    struct offload *o = arg;
    pthread_mutex_lock(&o->lock);
    while (!o->is_closing) {
        if (o->n_jobs > 0)
            do_job(o);
        else
            pthread_cond_wait(&o->work, &o->lock);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* -- opening ------------------------------------------------------------------------- */

static int reserve_addresses(struct offload *o, struct error *err)
{
    o->reserved_bytes = o->file.n_bytes + HUGE_PAGE_BYTES;
    void *reserved = mmap(NULL, o->reserved_bytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return error_set(err, ERROR_RUNTIME,
                         "cannot get addresses for the %.1f MB of %s: %s; a limit on "
                         "address space (ulimit -v) may be too low",
                         (double)o->file.n_bytes / 1e6, o->what, strerror(errno));
    o->reserved = reserved;
    size_t past = (uintptr_t)reserved % HUGE_PAGE_BYTES;
    o->base = o->reserved + (past ? HUGE_PAGE_BYTES - past : 0);
    madvise(o->base, o->file.n_bytes, MADV_HUGEPAGE); // a wish
    return 0;
}

static int start_threads(struct offload *o, struct error *err)
{
    int failure = 0;
    while (o->n_threads < N_THREADS && failure == 0) {
        failure = thread_start(&o->threads[o->n_threads], run_jobs, o);
        o->n_threads += failure == 0;
    }
    char what[128];
    snprintf(what, sizeof what, "a thread for %s", o->what);
    return failure ? process_fork_failed(err, what, failure) : 0;
}

static int allocate(struct offload **out, const struct offload_options *opt,
                    struct error *err)
{
    struct offload *o = calloc(1, sizeof *o);
    *out = o;
    if (!o)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->work, NULL);
    pthread_cond_init(&o->done, NULL);
    o->file.fd = -1;
    o->what = opt->what;
    o->n_bytes = opt->n_bytes;
    o->window_bytes = opt->window_bytes ? opt->window_bytes : OFFLOAD_WINDOW_BYTES;
    o->n_windows_most = opt->n_windows ? opt->n_windows : OFFLOAD_WINDOWS;
    CHECK(o->window_bytes % OFFLOAD_FILE_UNIT == 0, "window of %zu", o->window_bytes);
    CHECK(o->n_windows_most >= 2, "%lld windows", (long long)o->n_windows_most);
    o->dir = strdup(opt->dir);
    o->dir_key = strdup(opt->dir_key);
    if (!o->dir || !o->dir_key)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    return 0;
}

static int allocate_windows(struct offload *o, struct error *err)
{
    o->n_windows = (int64_t)((o->file.n_bytes + o->window_bytes - 1) / o->window_bytes);
    o->windows = calloc((size_t)o->n_windows, sizeof *o->windows);
    o->jobs = calloc((size_t)o->n_windows, sizeof *o->jobs);
    if (!o->windows || !o->jobs)
        return error_set(err, ERROR_RUNTIME, "out of memory for the windows of %s",
                         o->what);
    return 0;
}

int offload_open(struct offload **out, const struct offload_options *opt,
                 struct error *err)
{
    struct offload *o;
    if (allocate(&o, opt, err) || offload_file_open(&o->file, opt, err))
        goto failed;
    if (o->file.n_bytes > 0 &&
        (allocate_windows(o, err) || reserve_addresses(o, err) || start_threads(o, err)))
        goto failed;
    *out = o;
    return 0;
failed:
    offload_close(o);
    *out = NULL;
    return -1;
}

void offload_close(struct offload *o)
{
    if (!o)
        return;
    pthread_mutex_lock(&o->lock);
    o->is_closing = true;
    pthread_cond_broadcast(&o->work);
    pthread_mutex_unlock(&o->lock);
    for (int i = 0; i < o->n_threads; i++)
        pthread_join(o->threads[i], NULL);
    if (o->reserved)
        munmap(o->reserved, o->reserved_bytes);
    offload_file_close(&o->file);
    pthread_cond_destroy(&o->done);
    pthread_cond_destroy(&o->work);
    pthread_mutex_destroy(&o->lock);
    free(o->windows);
    free(o->jobs);
    free(o->dir);
    free(o->dir_key);
    free(o);
}

void *offload_data(const struct offload *o)
{
    return o->base;
}

/* -- use ----------------------------------------------------------------------------- */

static int64_t first_window(const struct offload *o, size_t first)
{
    return (int64_t)(first / o->window_bytes);
}

static int64_t end_window(const struct offload *o, size_t end)
{
    return (int64_t)((end + o->window_bytes - 1) / o->window_bytes);
}

static void check_range(const struct offload *o, size_t first, size_t end)
{
    CHECK(first <= end && end <= o->n_bytes, "[%zu, %zu) of the %zu bytes of %s", first,
          end, o->n_bytes, o->what);
}

/* The sentence of the failure, if there was one. */
static int report_failure(const struct offload *o, struct error *err)
{
    const struct failure *f = &o->failure;
    if (f->error == 0)
        return 0;
    return error_set(err, ERROR_RUNTIME,
                     "cannot %s %s at byte %lld of its file in %s '%s': %s; its content "
                     "is lost: resume from the last checkpoint, with the directory on a "
                     "disk that works",
                     f->verb, o->what, (long long)f->window * (long long)o->window_bytes,
                     o->dir_key, o->dir, strerror(f->error));
}

/* Until windows [first, end) are there or nothing is sure any more; lock held. */
static int await_windows(struct offload *o, int64_t first, int64_t end, struct error *err)
{
    for (int64_t w = first; w < end; w++) {
        CHECK(o->windows[w].n_holds > 0, "window %lld of %s", (long long)w, o->what);
        while (o->windows[w].state != WINDOW_PRESENT && o->failure.error == 0)
            pthread_cond_wait(&o->done, &o->lock);
    }
    return report_failure(o, err);
}

void offload_begin(struct offload *o, enum offload_use use)
{
    pthread_mutex_lock(&o->lock);
    CHECK(!o->pass.is_open, "a second pass over %s", o->what);
    o->pass = (struct pass){.is_open = true, .use = use};
    o->pass.ahead_end = i64_min(o->n_windows, o->n_windows_most);
    pump(o);
    pthread_mutex_unlock(&o->lock);
}

int offload_advance(struct offload *o, size_t first, size_t end, struct error *err)
{
    struct pass *p = &o->pass;
    int64_t from = first_window(o, first), to = end_window(o, end);
    check_range(o, first, end);
    if (first == end)
        return 0;
    pthread_mutex_lock(&o->lock);
    CHECK(p->is_open && from >= p->held_first, "[%zu, %zu) of %s", first, end, o->what);
    pass_drop_before(o, from);
    if (p->held_first == p->held_end) // nothing is left, or the cursor went past it
        p->held_first = p->held_end = from;
    p->ahead_end = i64_min(o->n_windows, from + o->n_windows_most);
    pass_hold_until(o, to);
    p->used_end = i64_max(p->used_end, to);
    pump(o);
    int rc = await_windows(o, from, to, err);
    pthread_mutex_unlock(&o->lock);
    return rc;
}

void offload_end(struct offload *o)
{
    pthread_mutex_lock(&o->lock);
    CHECK(o->pass.is_open, "no pass over %s", o->what);
    pass_drop_before(o, o->pass.held_end);
    o->pass.is_open = false;
    pthread_mutex_unlock(&o->lock);
}

void offload_fetch(struct offload *o, size_t first, size_t end)
{
    check_range(o, first, end);
    pthread_mutex_lock(&o->lock);
    for (int64_t w = first_window(o, first); first < end && w < end_window(o, end); w++)
        hold(o, w);
    pthread_mutex_unlock(&o->lock);
}

int offload_wait(struct offload *o, size_t first, size_t end, struct error *err)
{
    check_range(o, first, end);
    if (first == end)
        return 0;
    pthread_mutex_lock(&o->lock);
    int rc = await_windows(o, first_window(o, first), end_window(o, end), err);
    pthread_mutex_unlock(&o->lock);
    return rc;
}

void offload_drop(struct offload *o, size_t first, size_t end, enum offload_use use)
{
    check_range(o, first, end);
    pthread_mutex_lock(&o->lock);
    for (int64_t w = first_window(o, first); first < end && w < end_window(o, end); w++)
        unhold(o, w, use);
    pthread_mutex_unlock(&o->lock);
}
