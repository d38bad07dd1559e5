#include "ckpt/ckpt_lock.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/process.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NOTE_BYTES 1024 // of the file, padded: a beat is one write in place
#define MOST_TRIES 20
#define MOST_LOOKS 4 // at a file that cannot be read, before it is believed to be ours
#define PAUSE_SECONDS 0.05

struct owner { // as the file says
    char host[256];
    char machine[64]; // its boot, so that equal names of hosts do not matter
    char started[32];
    char token[17];
    int64_t pid;
    int64_t beat;
};

/* -- the file ------------------------------------------------------------------------ */

static void copy_member(const json_t *root, const char *key, char *text, size_t size)
{
    const char *value = json_string_value(json_object_get(root, key));
    snprintf(text, size, "%s", value ? value : "");
}

enum note {
    NOTE_UNREADABLE, // with errno: nothing is known
    NOTE_EMPTY,      // its owner has given it back, or never wrote, or it is no note
    NOTE_READ,
};

static enum note read_owner(int fd, struct owner *owner)
{
    char note[NOTE_BYTES + 1];
    ssize_t n;
    *owner = (struct owner){.pid = 0};
    do
        n = pread(fd, note, NOTE_BYTES, 0);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n < 0 ? NOTE_UNREADABLE : NOTE_EMPTY;
    json_t *root = json_loadb(note, (size_t)n, JSON_DISABLE_EOF_CHECK, NULL);
    copy_member(root, "host", owner->host, sizeof owner->host);
    copy_member(root, "machine", owner->machine, sizeof owner->machine);
    copy_member(root, "started", owner->started, sizeof owner->started);
    copy_member(root, "token", owner->token, sizeof owner->token);
    owner->pid = json_integer_value(json_object_get(root, "pid"));
    owner->beat = json_integer_value(json_object_get(root, "beat"));
    enum note found = root ? NOTE_READ : NOTE_EMPTY;
    json_decref(root);
    return found;
}

static int write_owner(int fd, const struct owner *owner)
{
    char note[NOTE_BYTES];
    memset(note, ' ', sizeof note);
    note[sizeof note - 1] = '\n';
    json_t *root =
        json_pack("{s:s, s:s, s:I, s:s, s:s, s:I}", "host", owner->host, "machine",
                  owner->machine, "pid", (json_int_t)owner->pid, "started",
                  owner->started, "token", owner->token, "beat", (json_int_t)owner->beat);
    char *text = root ? json_dumps(root, JSON_ENSURE_ASCII) : NULL;
    size_t n = text ? strlen(text) : sizeof note;
    if (n < sizeof note)
        memcpy(note, text, n);
    free(text);
    json_decref(root);
    if (n >= sizeof note) {
        errno = ENOMEM;
        return -1;
    }
    return fs_pwrite_exact(fd, note, sizeof note, 0);
}

static void describe_self(struct owner *me)
{
    struct tm tm;
    time_t now = time(NULL);
    uint64_t token;
    *me = (struct owner){.pid = getpid()};
    if (gethostname(me->host, sizeof me->host - 1))
        snprintf(me->host, sizeof me->host, "unknown");
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, me->machine, sizeof me->machine - 1) : 0;
    me->machine[n > 0 ? n : 0] = 0;
    me->machine[strcspn(me->machine, "\n")] = 0;
    if (fd >= 0)
        close(fd);
    strftime(me->started, sizeof me->started, "%Y-%m-%d %H:%M:%S UTC",
             gmtime_r(&now, &tm));
    if (getrandom(&token, sizeof token, GRND_NONBLOCK) != sizeof token)
        token = (uint64_t)now << 32 | (uint64_t)getpid();
    snprintf(me->token, sizeof me->token, "%016llx", (unsigned long long)token);
}

static void sleep_seconds(double seconds)
{
    struct timespec part = {.tv_sec = (time_t)seconds};
    part.tv_nsec = (long)((seconds - (double)part.tv_sec) * 1e9);
    nanosleep(&part, NULL);
}

/* -- beating ------------------------------------------------------------------------- */

/* Called with the mutex held. True when is_closing was set in time. */
static bool wait_for_closing(struct ckpt_lock *lock)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    long long nanos = until.tv_nsec + (long long)(lock->beat_seconds * 1e9);
    until.tv_sec += (time_t)(nanos / 1000000000);
    until.tv_nsec = (long)(nanos % 1000000000);
    while (!lock->is_closing)
        if (pthread_cond_timedwait(&lock->closing, &lock->mutex, &until) == ETIMEDOUT)
            break;
    return lock->is_closing;
}

/* A beat that cannot be read or written is tried again with the next; a lock that was
 * lost is left alone. */
static void *beat_until_closing(void *context)
{
    struct ckpt_lock *lock = context;
    pthread_mutex_lock(&lock->mutex);
    while (!wait_for_closing(lock)) {
        struct owner owner;
        if (read_owner(lock->fd, &owner) != NOTE_READ ||
            strcmp(owner.token, lock->token) != 0)
            continue;
        owner.beat++;
        (void)write_owner(lock->fd, &owner);
    }
    pthread_mutex_unlock(&lock->mutex);
    return NULL;
}

static int start_beating(struct ckpt_lock *lock, struct error *err)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&lock->closing, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&lock->mutex, NULL);
    int rc = thread_start(&lock->thread, beat_until_closing, lock);
    lock->has_thread = rc == 0;
    return rc ? process_fork_failed(err, "a thread", rc) : 0;
}

static void stop_beating(struct ckpt_lock *lock)
{
    if (lock->has_thread) {
        pthread_mutex_lock(&lock->mutex);
        lock->is_closing = true;
        pthread_cond_signal(&lock->closing);
        pthread_mutex_unlock(&lock->mutex);
        pthread_join(lock->thread, NULL);
    }
    pthread_cond_destroy(&lock->closing);
    pthread_mutex_destroy(&lock->mutex);
    lock->has_thread = false;
}

/* -- taking -------------------------------------------------------------------------- */

static int refuse_lock(const struct ckpt_lock *lock, const struct owner *owner,
                       struct error *err)
{
    return error_set(err, ERROR_RUNTIME,
                     "'%.*s' is in use: process %lld on '%s' writes there since %s; wait "
                     "for it, stop it, or choose another save_load.output_dir",
                     (int)(strlen(lock->path) - strlen("/" CKPT_LOCK_NAME)), lock->path,
                     (long long)owner->pid, owner->host, owner->started);
}

/* Whether the owner's number moves while we look. The file is opened anew each time:
 * that is when network file systems ask their server. */
static bool is_beating(const struct ckpt_lock *lock, const struct owner *before)
{
    double seconds = lock->beat_seconds * CKPT_LOCK_WATCH_BEATS;
    log_info("'%s' was not given back by process %lld on '%s'; watching it for %.0f "
             "seconds",
             lock->path, (long long)before->pid, before->host, seconds);
    for (int i = 0; i < 2 * CKPT_LOCK_WATCH_BEATS; i++) {
        struct owner now;
        sleep_seconds(lock->beat_seconds / 2);
        int fd = open(lock->path, O_RDONLY | O_CLOEXEC);
        bool is_there = fd >= 0 && read_owner(fd, &now) == NOTE_READ;
        if (fd >= 0)
            close(fd);
        if (is_there &&
            (now.beat != before->beat || strcmp(now.token, before->token) != 0))
            return true;
    }
    return false;
}

/* May the file that we have opened be taken? `has_kernel_lock`: nobody holds it as far as
 * the kernel knows. */
static bool is_free(const struct ckpt_lock *lock, const struct owner *owner,
                    const struct owner *me, bool has_kernel_lock)
{
    bool is_here = owner->machine[0] && strcmp(owner->machine, me->machine) == 0;
    if (is_here && has_kernel_lock)
        return true;
    if (is_here && kill((pid_t)owner->pid, 0) && errno == ESRCH)
        return true;
    return !is_beating(lock, owner);
}

enum attempt { TAKEN, REFUSED, AGAIN };

/* The error, by errno, of a file that cannot be examined. */
static enum attempt look_again(const struct ckpt_lock *lock, struct error *err)
{
    error_set(err, ERROR_RUNTIME, "cannot read '%s': %s", lock->path, strerror(errno));
    sleep_seconds(PAUSE_SECONDS);
    return AGAIN;
}

/* One attempt on the file lock->fd. With AGAIN, *err may say why. */
static enum attempt try_file(struct ckpt_lock *lock, struct owner *me, struct error *err)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct owner owner;
    bool has_kernel_lock = fcntl(lock->fd, F_OFD_SETLK, &whole) == 0;
    bool is_held = !has_kernel_lock && (errno == EAGAIN || errno == EACCES);
    int is_same = fs_is_same_file(lock->path, lock->fd);
    enum note note = is_same > 0 ? read_owner(lock->fd, &owner) : NOTE_EMPTY;
    if (is_same < 0 || note == NOTE_UNREADABLE)
        return look_again(lock, err);
    if (!is_same)
        return AGAIN;
    bool has_owner = note == NOTE_READ;
    if (is_held && has_owner) {
        refuse_lock(lock, &owner, err);
        return REFUSED;
    }
    if (is_held) { // its owner is about to write its name, or to remove the file
        sleep_seconds(PAUSE_SECONDS);
        return AGAIN;
    }
    if (has_owner) {
        if (!is_free(lock, &owner, me, has_kernel_lock)) {
            refuse_lock(lock, &owner, err);
            return REFUSED;
        }
        log_info("broke the lock '%s' of process %lld on '%s', which is gone", lock->path,
                 (long long)owner.pid, owner.host);
        if (fs_is_same_file(lock->path, lock->fd) > 0)
            unlink(lock->path);
        return AGAIN; // with a file of its own
    }
    if (write_owner(lock->fd, me)) {
        error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", lock->path,
                  strerror(errno));
        unlink(lock->path);
        return REFUSED;
    }
    return fs_is_same_file(lock->path, lock->fd) ? TAKEN : AGAIN; // as far as is known
}

int ckpt_lock_open(struct ckpt_lock *lock, const char *output_dir, double beat_seconds,
                   struct error *err)
{
    struct owner me;
    *lock = (struct ckpt_lock){.fd = -1, .beat_seconds = beat_seconds};
    if (fs_join(lock->path, sizeof lock->path, output_dir, CKPT_LOCK_NAME, err))
        return -1;
    describe_self(&me);
    memcpy(lock->token, me.token, sizeof lock->token);
    error_set(err, ERROR_RUNTIME,
              "cannot lock '%s': others take it at the same time; try again", lock->path);
    for (int i = 0; i < MOST_TRIES; i++) {
        lock->fd = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (lock->fd < 0) {
            if (fs_error_kind(errno) == ERROR_RUNTIME && errno != EACCES) {
                look_again(lock, err);
                continue;
            }
            return error_set(err, ERROR_RUNTIME, "cannot open '%s': %s", lock->path,
                             strerror(errno));
        }
        enum attempt attempt = try_file(lock, &me, err);
        if (attempt == TAKEN) {
            lock->is_open = true;
            if (start_beating(lock, err) == 0)
                return 0;
            ckpt_lock_close(lock);
            return -1;
        }
        close(lock->fd);
        lock->fd = -1;
        if (attempt == REFUSED)
            return -1;
    }
    return -1;
}

/* -- holding ------------------------------------------------------------------------- */

enum standing { LOCK_UNKNOWN, LOCK_OURS, LOCK_TAKEN, LOCK_REMOVED };

/* The file is opened anew: that is when network file systems ask their server. With
 * LOCK_TAKEN *owner is who has it, with LOCK_UNKNOWN errno says why. */
static enum standing read_lock_state(const struct ckpt_lock *lock, struct owner *owner)
{
    *owner = (struct owner){.pid = 0};
    int fd = open(lock->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fs_error_kind(errno) == ERROR_INPUT ? LOCK_REMOVED : LOCK_UNKNOWN;
    enum note note = read_owner(fd, owner);
    int reason = errno;
    close(fd);
    int is_same = fs_is_same_file(lock->path, lock->fd);
    if (note == NOTE_UNREADABLE)
        errno = reason;
    if (note == NOTE_UNREADABLE || is_same < 0)
        return LOCK_UNKNOWN;
    if (note == NOTE_EMPTY)
        return LOCK_REMOVED;
    return is_same && strcmp(owner->token, lock->token) == 0 ? LOCK_OURS : LOCK_TAKEN;
}

void ckpt_lock_close(struct ckpt_lock *lock)
{
    struct owner owner;
    if (!lock->is_open)
        return;
    stop_beating(lock);
    if (read_lock_state(lock, &owner) == LOCK_OURS)
        unlink(lock->path);
    close(lock->fd);
    lock->fd = -1;
    lock->is_open = false;
}

int ckpt_lock_check(const struct ckpt_lock *lock, struct error *err)
{
    struct owner owner;
    enum standing standing = read_lock_state(lock, &owner);
    for (int i = 1; standing == LOCK_UNKNOWN && i < MOST_LOOKS; i++) {
        sleep_seconds(PAUSE_SECONDS);
        standing = read_lock_state(lock, &owner);
    }
    switch (standing) {
    case LOCK_OURS:
        return 0;
    case LOCK_UNKNOWN: // who breaks a lock leaves one that can be read
        log_warning("cannot look at '%s': %s; it is taken to be this run's still",
                    lock->path, strerror(errno));
        return 0;
    case LOCK_TAKEN:
        return error_set(
            err, ERROR_RUNTIME,
            "'%s' was taken over by process %lld on '%s' at %s: this run has "
            "no right to write there any more",
            lock->path, (long long)owner.pid, owner.host, owner.started);
    case LOCK_REMOVED:
        break;
    }
    return error_set(err, ERROR_RUNTIME,
                     "'%s' was removed while this run held it: it has no right to write "
                     "there any more",
                     lock->path);
}

/* -- from outside -------------------------------------------------------------------- */

void ckpt_lock_look(const char *output_dir, struct ckpt_lock_view *view)
{
    char path[PATH_MAX];
    struct owner owner, me;
    struct error ignored;
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    *view = (struct ckpt_lock_view){.state = CKPT_LOCK_FREE};
    if (fs_join(path, sizeof path, output_dir, CKPT_LOCK_NAME, &ignored))
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        return;
    bool is_held = fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
    enum note note = read_owner(fd, &owner);
    close(fd);
    if (note == NOTE_READ) {
        describe_self(&me);
        bool is_here = owner.machine[0] && strcmp(owner.machine, me.machine) == 0;
        memcpy(view->host, owner.host, sizeof view->host);
        view->pid = owner.pid;
        view->beat = owner.beat;
        view->state = is_held   ? CKPT_LOCK_HELD
                      : is_here ? CKPT_LOCK_LEFT
                                : CKPT_LOCK_AWAY;
    } else if (is_held) { // its owner is about to write its name
        view->state = CKPT_LOCK_HELD;
    }
}
