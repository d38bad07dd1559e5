/*
 * A queue per stream. To record an event is an operation that sets a mark, to wait for it
 * one that is done once the mark that was the event's when the wait was enqueued is set.
 *
 * One thread at a time runs an operation, without the lock; the others wait for it, and
 * each looks after every operation whether its own wish is fulfilled.
 */
#include "device/emulated/emulated_streams.h"

#include "device/emulated/emulated_memory.h"
#include "device/emulated/emulated_watch.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define QUEUE_LONG 512 // operations: what is enqueued on top waits for half of them
#define BURST 8        // operations of a stream at a time, on average, by chance

static const char *const stream_names[N_STREAMS] = {
    [STREAM_COMPUTE] = "compute",
    [STREAM_COMM] = "comm",
    [STREAM_COPY] = "copy",
    [STREAM_TO_NEXT] = "to_next",
    [STREAM_FROM_PREVIOUS] = "from_previous",
    [STREAM_TO_PREVIOUS] = "to_previous",
    [STREAM_FROM_NEXT] = "from_next",
};

struct mark { // one recording of an event
    bool is_set;
    enum stream_name stream;
    int n_users;              // the event, until it is recorded again, and operations
    uint32_t seen[N_STREAMS]; // what it comes after, see emulated_watch.h
};

struct emulated_event {
    struct mark *mark; // NULL: it was never recorded
};

struct stream_operation {
    struct stream_operation *next;
    bool (*run)(void *args); // NULL: of an event
    struct mark *mark;       // that it sets, or waits for
    bool is_wait, is_message;
    struct stream_point at;
    alignas(max_align_t) char args[];
};

struct queue {
    struct stream_operation *first, **last;
    int64_t n_enqueued, n_done;
    bool is_busy; // its first operation was not done when it was tried
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct queue queues[N_STREAMS];
    uint32_t seen[N_STREAMS][N_STREAMS]; // what the last of a queue comes after
    uint32_t seen_by_host[N_STREAMS];    // what was waited for
    bool is_running;                     // an operation, on some thread
    pthread_t messenger;                 // the thread that runs messages
    void (*on_wait)(void *context);      // what it calls while it waits
    void *context;
    enum stream_policy policy;
    enum stream_name preferred, burst;
    uint64_t random;
} all = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .random = 1};

void streams_policy(enum stream_policy policy, uint64_t seed, enum stream_name preferred)
{
    pthread_mutex_lock(&all.lock);
    all.policy = policy;
    all.random = seed * 0x9E3779B97F4A7C15u + 1;
    all.preferred = preferred;
    pthread_mutex_unlock(&all.lock);
}

static uint32_t draw(void)
{
    all.random = all.random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(all.random >> 33);
}

/* -- what can run, with the lock ----------------------------------------------------- */

static bool is_open(const struct stream_operation *op)
{
    return !op->is_wait || op->mark->is_set;
}

static bool is_messenger(void)
{
    return pthread_equal(all.messenger, pthread_self());
}

static bool can_run(enum stream_name s)
{
    const struct queue *q = &all.queues[s];
    return q->first && !q->is_busy && is_open(q->first) &&
           (!q->first->is_message || is_messenger());
}

/* The stream that has to go on for s to: s, or whom it waits for. */
static enum stream_name needed(enum stream_name s)
{
    for (int hops = 0; all.queues[s].first && !is_open(all.queues[s].first); hops++) {
        CHECK(hops < N_STREAMS, "streams wait for each other, stream %s among them",
              stream_names[s]);
        s = all.queues[s].first->mark->stream;
    }
    return s;
}

/* Whom it is the turn of, so that s gets on in the end; false: nobody can. */
static bool choose(enum stream_name s, enum stream_name *chosen)
{
    int n = 0;
    enum stream_name able[N_STREAMS];
    for (int i = 0; i < N_STREAMS; i++)
        if (can_run((enum stream_name)i))
            able[n++] = (enum stream_name)i;
    *chosen = needed(s);
    if (all.policy == STREAMS_PREFER && can_run(all.preferred))
        *chosen = all.preferred;
    if (all.policy == STREAMS_RANDOM && n > 0) {
        if (!can_run(all.burst) || draw() % BURST == 0)
            all.burst = able[draw() % (uint32_t)n];
        *chosen = all.burst;
    }
    if (all.policy == STREAMS_EAGER && n > 0)
        *chosen = able[0];
    // a message that others have not answered yet: the rest goes on, as it would there
    if (!can_run(*chosen) && n > 0)
        *chosen = able[draw() % (uint32_t)n];
    return can_run(*chosen);
}

static void let_go(struct mark *m)
{
    if (m && --m->n_users == 0)
        free(m);
}

/* Run the first operation of a stream; the lock is not held meanwhile. */
static void run_first(enum stream_name s)
{
    struct queue *q = &all.queues[s];
    struct stream_operation *op = q->first;
    bool is_done = true;
    if (op->run) {
        all.is_running = true;
        pthread_mutex_unlock(&all.lock);
        if (emulated_watch)
            emulated_watch->operation(&op->at);
        is_done = op->run(op->args);
        if (emulated_watch)
            emulated_watch->operation(NULL);
        pthread_mutex_lock(&all.lock);
        all.is_running = false;
    } else if (!op->is_wait) {
        op->mark->is_set = true;
    }
    q->is_busy = !is_done;
    if (is_done) {
        q->first = op->next;
        if (!q->first)
            q->last = &q->first;
        q->n_done++;
        let_go(op->mark);
        free(op);
        for (int i = 0; i < N_STREAMS; i++) // time has passed
            all.queues[i].is_busy = false;
    }
    pthread_cond_broadcast(&all.changed);
}

/* -- running, with the lock ---------------------------------------------------------- */

/* Nobody can go on but what was just tried, messages that others have to answer, or what
 * another thread has to try. */
static void rest(void)
{
    bool is_expected = false;
    for (int i = 0; i < N_STREAMS; i++) {
        struct queue *q = &all.queues[i];
        is_expected = is_expected || (q->first && q->first->is_message);
        q->is_busy = false;
    }
    CHECK(is_expected, "no stream can go on, and none waits for a message");
    void (*on_wait)(void *) = is_messenger() ? all.on_wait : NULL;
    void *context = all.context;
    pthread_mutex_unlock(&all.lock);
    if (on_wait)
        on_wait(context);
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    pthread_mutex_lock(&all.lock);
}

/* One operation, or a rest, or the end of another thread's. */
static void go_on(enum stream_name s)
{
    enum stream_name chosen;
    if (all.is_running)
        pthread_cond_wait(&all.changed, &all.lock);
    else if (choose(s, &chosen))
        run_first(chosen);
    else
        rest();
}

static void run_until(enum stream_name s, int64_t n_done)
{
    if (all.queues[s].n_done >= n_done)
        return;
    pthread_mutex_unlock(&all.lock);
    emulated_memory_open();
    pthread_mutex_lock(&all.lock);
    while (all.queues[s].n_done < n_done)
        go_on(s);
    pthread_mutex_unlock(&all.lock);
    emulated_memory_close();
    pthread_mutex_lock(&all.lock);
}

/* What can run without waiting, and no more than `most`. */
static void run_some(int64_t most)
{
    bool is_able = true;
    pthread_mutex_unlock(&all.lock);
    emulated_memory_open();
    pthread_mutex_lock(&all.lock);
    while (is_able && most > 0) {
        int n = 0;
        enum stream_name able[N_STREAMS];
        for (int i = 0; i < N_STREAMS; i++)
            if (can_run((enum stream_name)i))
                able[n++] = (enum stream_name)i;
        is_able = n > 0 && !all.is_running;
        if (is_able) {
            run_first(able[draw() % (uint32_t)n]);
            most--;
        }
    }
    for (int i = 0; i < N_STREAMS; i++)
        all.queues[i].is_busy = false;
    pthread_mutex_unlock(&all.lock);
    emulated_memory_close();
    pthread_mutex_lock(&all.lock);
}

/* -- enqueueing ---------------------------------------------------------------------- */

static void join(uint32_t seen[N_STREAMS], const uint32_t more[N_STREAMS])
{
    for (int i = 0; i < N_STREAMS; i++)
        seen[i] = seen[i] > more[i] ? seen[i] : more[i];
}

/* What an operation that is enqueued now comes after. */
static void place(struct stream_operation *op, enum stream_name s)
{
    uint32_t *seen = all.seen[s];
    join(seen, all.seen_by_host);
    seen[s]++;
    if (op->is_wait)
        join(seen, op->mark->seen);
    else if (op->mark)
        memcpy(op->mark->seen, seen, sizeof op->mark->seen);
    op->at.stream = s;
    memcpy(op->at.seen, seen, sizeof op->at.seen);
}

static struct stream_operation *operation_make(size_t bytes)
{
    struct stream_operation *op = calloc(1, sizeof *op + bytes);
    CHECK(op, "no memory for an operation of %zu bytes", bytes);
    return op;
}

static void enqueue(enum stream_name s, struct stream_operation *op)
{
    struct queue *q = &all.queues[s];
    if (!q->last)
        q->last = &q->first;
    *q->last = op;
    q->last = &op->next;
    q->n_enqueued++;
    if (op->mark)
        op->mark->n_users++;
    place(op, s);
    int64_t n_queued = 0;
    for (int i = 0; i < N_STREAMS; i++)
        n_queued += all.queues[i].n_enqueued - all.queues[i].n_done;
    if (all.policy == STREAMS_EAGER)
        run_some(n_queued);
    else if (n_queued > QUEUE_LONG)
        run_some(QUEUE_LONG / 2);
}

static struct stream_operation *operation_with(bool (*run)(void *), const void *args,
                                               size_t bytes, const void *more,
                                               size_t more_bytes)
{
    struct stream_operation *op = operation_make(bytes + more_bytes);
    op->run = run;
    memcpy(op->args, args, bytes);
    if (more_bytes > 0)
        memcpy(op->args + bytes, more, more_bytes);
    return op;
}

static void enqueue_locked(enum stream_name s, struct stream_operation *op)
{
    pthread_mutex_lock(&all.lock);
    enqueue(s, op);
    pthread_mutex_unlock(&all.lock);
}

void streams_enqueue(enum stream_name s, bool (*run)(void *args), const void *args,
                     size_t bytes, const void *more, size_t more_bytes)
{
    enqueue_locked(s, operation_with(run, args, bytes, more, more_bytes));
}

void emulated_enqueue(enum stream_name s, bool (*run)(void *args), const void *args,
                      size_t bytes)
{
    struct stream_operation *op = operation_with(run, args, bytes, NULL, 0);
    op->is_message = true;
    enqueue_locked(s, op);
}

void streams_begin(void)
{
    all.messenger = pthread_self();
}

void gpu_on_wait(void (*fn)(void *context), void *context)
{
    pthread_mutex_lock(&all.lock);
    all.on_wait = fn;
    all.context = context;
    pthread_mutex_unlock(&all.lock);
}

static void synchronize(enum stream_name s)
{
    uint32_t seen[N_STREAMS];
    memcpy(seen, all.seen[s], sizeof seen);
    run_until(s, all.queues[s].n_enqueued);
    join(all.seen_by_host, seen);
}

void streams_drain(void)
{
    pthread_mutex_lock(&all.lock);
    for (int i = 0; i < N_STREAMS; i++)
        synchronize((enum stream_name)i);
    pthread_mutex_unlock(&all.lock);
}

void streams_synchronize(enum stream_name s)
{
    pthread_mutex_lock(&all.lock);
    synchronize(s);
    pthread_mutex_unlock(&all.lock);
}

/* -- events -------------------------------------------------------------------------- */

void *gpu_event_make(void)
{
    struct emulated_event *e = calloc(1, sizeof *e);
    CHECK(e, "no memory for an event");
    return e;
}

void gpu_event_free(void *event)
{
    struct emulated_event *e = event;
    if (!e)
        return;
    pthread_mutex_lock(&all.lock);
    let_go(e->mark);
    pthread_mutex_unlock(&all.lock);
    free(e);
}

void gpu_record(void *event, enum stream_name s)
{
    struct emulated_event *e = event;
    struct stream_operation *op = operation_make(0);
    struct mark *m = calloc(1, sizeof *m);
    CHECK(m, "no memory for an event");
    m->stream = s;
    m->n_users = 1;
    op->mark = m;
    pthread_mutex_lock(&all.lock);
    let_go(e->mark);
    e->mark = m;
    enqueue(s, op);
    pthread_mutex_unlock(&all.lock);
}

void gpu_wait(enum stream_name s, void *event)
{
    struct emulated_event *e = event;
    struct stream_operation *op = operation_make(0);
    op->is_wait = true;
    pthread_mutex_lock(&all.lock);
    CHECK(e->mark, "stream %s is to wait for an event that was never recorded",
          stream_names[s]);
    op->mark = e->mark;
    enqueue(s, op);
    pthread_mutex_unlock(&all.lock);
}

/* Who asks again and again gets an answer in the end: every question runs something. */
bool gpu_happened(void *event)
{
    struct emulated_event *e = event;
    pthread_mutex_lock(&all.lock);
    CHECK(e->mark, "an event was asked for that was never recorded");
    if (!e->mark->is_set) {
        enum stream_name s = e->mark->stream;
        pthread_mutex_unlock(&all.lock);
        emulated_memory_open();
        pthread_mutex_lock(&all.lock);
        enum stream_name chosen;
        if (!all.is_running && choose(s, &chosen))
            run_first(chosen);
        else // all that can run was tried: the next question tries it again
            for (int i = 0; i < N_STREAMS; i++)
                all.queues[i].is_busy = false;
        pthread_mutex_unlock(&all.lock);
        emulated_memory_close();
        pthread_mutex_lock(&all.lock);
    }
    bool has_happened = e->mark->is_set;
    if (has_happened)
        join(all.seen_by_host, e->mark->seen);
    pthread_mutex_unlock(&all.lock);
    return has_happened;
}
