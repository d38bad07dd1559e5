/*
 * ckpt_lock - one writer at a time in an output directory.
 *
 * The file output_dir/.lock says who writes there: host, process, since when. Its owner
 * holds a lock of the kernel on it (fcntl, open file description), which ends with the
 * process however it ends, and across machines where the file system passes locks on.
 *
 * Not all do. So the owner also counts up a number in the file every few seconds. A lock
 * that the kernel gives, but that a process of another machine has not given back, is
 * watched for a while: if the number moves, its owner lives; if not, the lock is broken.
 * On the same machine the kernel is believed at once.
 *
 * Breaking a lock makes a new file. So an owner that was taken for dead, and is not,
 * finds out: ckpt_lock_check(), called before a checkpoint gets its name, fails for good.
 * And the new owner has removed whatever the old one was writing.
 */
#ifndef CKPT_CKPT_LOCK_H
#define CKPT_CKPT_LOCK_H

#include "base/base.h"
#include "base/error.h"

#include <limits.h>
#include <pthread.h>

#define CKPT_LOCK_NAME ".lock"
#define CKPT_LOCK_BEAT_SECONDS 5.0
#define CKPT_LOCK_WATCH_BEATS 3 // without one of these many, the owner is dead

struct ckpt_lock { // members are the lock's own
    char path[PATH_MAX];
    int fd;
    bool is_open;
    char token[17];
    double beat_seconds;
    bool has_thread, is_closing;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t closing;
};

/* Become the writer of output_dir, which exists. Refused with a sentence that names the
 * other while there is one. beat_seconds: CKPT_LOCK_BEAT_SECONDS but for tests. */
MUST_CHECK int ckpt_lock_open(struct ckpt_lock *lock, const char *output_dir,
                              double beat_seconds, struct error *err);
/* Give it back; a lock of zeros is fine. */
void ckpt_lock_close(struct ckpt_lock *lock);

/* Still the writer? -1: another process has taken over, and this one must not write in
 * output_dir any more. A lock that cannot be read, a few times in a row, is not lost:
 * that is a warning. */
MUST_CHECK int ckpt_lock_check(const struct ckpt_lock *lock, struct error *err);

/* -- from outside -------------------------------------------------------------------- */

enum ckpt_lock_state {
    CKPT_LOCK_FREE, // nobody writes there, and the last one gave the lock back
    CKPT_LOCK_HELD, // its owner lives
    CKPT_LOCK_LEFT, // its owner is gone and has not given it back: killed
    CKPT_LOCK_AWAY, // of another machine whose locks do not reach us: `beat` must move
};

struct ckpt_lock_view {
    enum ckpt_lock_state state;
    char host[256];
    int64_t pid, beat;
};

/* Who writes in output_dir? Only looks: nothing is taken, changed or waited for. */
void ckpt_lock_look(const char *output_dir, struct ckpt_lock_view *view);

#endif
