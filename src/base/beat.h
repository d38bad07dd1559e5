/*
 * beat - what this process is doing, for a watcher outside of it.
 *
 * Every rank of a job has a slot in a file of shared memory, one file per job and host.
 * It writes there by plain stores, so that a beat costs next to nothing and needs no
 * system call; a watcher (launch/host_watch.h) reads it without the rank's help. No clock
 * is read either: the watcher sees when a counter last moved.
 *
 * A process without a watcher writes to a slot of its own that nobody reads, so callers
 * never ask. That slot, or the shared one, is found through a global, like the log: every
 * module reports what it does.
 *
 * Progress is any action: a block forward or backward, a message or a piece of one, a
 * chunk of the head, a piece of an update, of a file, of a shuffle. Only a rank that
 * waits for another one does not progress, and says for whom it waits.
 *
 * Threads: all but beat_aside() are for the main thread.
 */
#ifndef BASE_BEAT_H
#define BASE_BEAT_H

#include "base/base.h"
#include "base/error.h"

#include <stdatomic.h>

enum beat_phase { // each has a bound of its own, see launch/host_watch.h
    BEAT_START,
    BEAT_LOAD,
    BEAT_STEP,
    BEAT_EVALUATE,
    BEAT_SAVE,
    BEAT_END,
    BEAT_N_PHASES,
};

enum beat_action {
    BEAT_BEGIN,     // from main() to the first of the others
    BEAT_JOIN,      // the job: inside MPI, where all ranks must come
    BEAT_INDEX,     // of samples; detail: epoch
    BEAT_MEMORY,    // made ready
    BEAT_READ,      // a file, or a piece of one
    BEAT_WRITE,     // the same
    BEAT_BATCH,     // the next one from the loader
    BEAT_FORWARD,   // of a block; detail: which
    BEAT_BACKWARD,  // the same
    BEAT_HEAD,      // a chunk of it; detail: its first row
    BEAT_NORM,      // of the gradients
    BEAT_UPDATE,    // of a piece of the parameters; detail: which
    BEAT_TOKEN,     // of a text that is generated
    BEAT_REDUCE,    // over ranks
    BEAT_GATHER,    // what others have
    BEAT_SEND,      // to a rank
    BEAT_RECEIVE,   // from a rank
    BEAT_BROADCAST, // from one to all
    BEAT_SAVER,     // waits for its own thread that writes a checkpoint
    BEAT_LEAVE,     // the job
    BEAT_N_ACTIONS,
};

const char *beat_phase_name(enum beat_phase phase);
const char *beat_action_name(enum beat_action action);

#define BEAT_NOBODY (-1)    // no rank is waited for
#define BEAT_EVERYBODY (-2) // all of them

enum beat_state { // the last word of a rank: the first that it says counts
    BEAT_ALIVE,   // none yet
    BEAT_FAILED,  // code: its exit code
    BEAT_CRASHED, // caught a deadly signal; code: which
    BEAT_ENDED,   // code: its exit code
    BEAT_N_STATES,
};

/* One rank. Written by it alone, but for is_held and is_reported. */
struct beat_slot {
    _Alignas(128) atomic_int pid; // 0: the rank has not begun
    atomic_ullong pid_space;      // in which that is its number
    atomic_int phase, action, peer;
    atomic_llong detail;         // of the action
    atomic_llong step;           // -1: none yet
    atomic_llong n_steps;        // that are through, of this process
    atomic_ullong progress;      // grows with every action
    atomic_ullong aside;         // the same, of other threads
    _Atomic double hang_timeout; // seconds; 0: the default rule
    atomic_int is_over;          // it has done its work and ends
    atomic_int is_held;          // by the watcher: writes its stack and does no more
    atomic_int outcome;          // see beat_outcome(): 1 + exit code; 0: none yet
    atomic_int state, code;      // its last word, see beat_last_word()
    atomic_llong said_ns;        // when, CLOCK_REALTIME
    atomic_int is_reported;      // the launcher knows the last word
};

#define BEAT_REASON_BYTES 2048
#define BEAT_PROGRESS_BYTES 256

/* Why a rank of this host failed: the first one's reason counts for all. */
struct beat_failure {
    atomic_int by;         // 1 + rank; 0: nobody
    atomic_int is_written; // the rest is
    int is_lasting;        // a job that is started again fails again
    char text[BEAT_REASON_BYTES];
};

struct beat_file {
    _Alignas(128) atomic_int watcher; // its pid; 0: none, whoever sets it starts one
    atomic_int must_end;              // the watcher ends the job: a rank that can, aborts
    struct beat_failure failure;
    atomic_int is_shown; // somebody shows the progress of rank 0
    atomic_uint n_shown; // texts so far, twice; odd: it is being written
    char progress[BEAT_PROGRESS_BYTES];
    struct beat_slot slots[]; // by rank of the job
};

extern struct beat_slot *beat_mine;

/* -- the rank's side ----------------------------------------------------------------- */

/* Map the file at `path`, made if it is not there, and take the slot of `rank`. Returns
 * the file, which stays mapped to the end of the process; NULL with *err. */
struct beat_file *beat_open(const char *path, int rank, int n_ranks, struct error *err);

/* All ranks of this host have opened the file: its name can go. */
void beat_remove_name(void);
/* A process forked by a rank: it is not that rank. */
void beat_detach(void);
/* Whether the watcher ends the job: then waiting for other ranks is of no use. */
bool beat_must_end(void);

static inline void beat_count(void)
{
    unsigned long long n =
        atomic_load_explicit(&beat_mine->progress, memory_order_relaxed);
    atomic_store_explicit(&beat_mine->progress, n + 1, memory_order_relaxed);
}

/* Begin an action. */
static inline void beat(enum beat_action action, int64_t detail)
{
    atomic_store_explicit(&beat_mine->action, (int)action, memory_order_relaxed);
    atomic_store_explicit(&beat_mine->detail, detail, memory_order_relaxed);
    beat_count();
}

/* From here on this rank waits for `peer`, a rank of the job or BEAT_EVERYBODY; until
 * beat_go_on(). */
static inline void beat_wait(enum beat_action action, int peer)
{
    atomic_store_explicit(&beat_mine->action, (int)action, memory_order_relaxed);
    atomic_store_explicit(&beat_mine->peer, peer, memory_order_relaxed);
}

static inline void beat_go_on(void)
{
    atomic_store_explicit(&beat_mine->peer, BEAT_NOBODY, memory_order_relaxed);
    beat_count();
}

/* Progress of a thread beside the main one, or of code that either of them runs. */
static inline void beat_aside(void)
{
    atomic_fetch_add_explicit(&beat_mine->aside, 1, memory_order_relaxed);
}

/* Returns the phase before it, to be restored. */
static inline enum beat_phase beat_enter(enum beat_phase phase)
{
    int before = atomic_load_explicit(&beat_mine->phase, memory_order_relaxed);
    atomic_store_explicit(&beat_mine->phase, (int)phase, memory_order_relaxed);
    beat_count();
    return (enum beat_phase)before;
}

/* Step `step` begins, and the one before it is through. */
void beat_step(int64_t step);
void beat_step_is_through(void);
void beat_set_hang_timeout(double seconds);
/* The work of this process is done: that it is gone is no fault. */
void beat_over(void);

/* How the work of this process ended, before it leaves MPI: this counts if MPI does not let
 * it go. */
void beat_outcome(int exit_code);

/* The last word of this rank. False: it has said one before, which counts. May be called
 * in a signal handler. */
bool beat_last_word(enum beat_state state, int code);
/* The same for a failure with its reason, of which the lines are joined. */
bool beat_fail(const char *reason, int exit_code, bool is_lasting);

/* Whether the launcher shows the progress of this rank, and the text to show. */
bool beat_is_shown(void);
void beat_show_progress(const char *text);

/* -- the watcher's side -------------------------------------------------------------- */

/* Where memory is shared between processes: /dev/shm, or the directory for temporary
 * files where that cannot be used. */
const char *beat_directory(void);
/* A place for the file of a job whose name is `key`, on this host. A key that is the path
 * of a directory of this host: in there. */
void beat_path(char *path, size_t size, const char *key);
/* As beat_open(), without taking a slot. */
struct beat_file *beat_file_map(const char *path, int n_ranks, struct error *err);
void beat_file_unmap(struct beat_file *file, int n_ranks);

/* Remove files of this user that jobs left which were killed while they started: a job
 * whose ranks have all begun needs the name no more, and they remove it then. */
void beat_sweep(void);

#endif
