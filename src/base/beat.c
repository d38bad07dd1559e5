#include "base/beat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILE_NAME "trefoil-beat." // then user, job, host
#define LEFT_AFTER 3600           // seconds: nobody starts for so long

static struct beat_slot unread = {.step = -1, .peer = BEAT_NOBODY}; // nobody watches
static struct beat_file *file_here;
static char path_here[PATH_MAX];
struct beat_slot *beat_mine = &unread;

const char *beat_phase_name(enum beat_phase phase)
{
    static const char *const names[BEAT_N_PHASES] = {
        [BEAT_START] = "start",       [BEAT_LOAD] = "load", [BEAT_STEP] = "step",
        [BEAT_EVALUATE] = "evaluate", [BEAT_SAVE] = "save", [BEAT_END] = "end",
    };
    return (unsigned)phase < BEAT_N_PHASES ? names[phase] : "?";
}

const char *beat_action_name(enum beat_action action)
{
    static const char *const names[BEAT_N_ACTIONS] = {
        [BEAT_BEGIN] = "begin",        [BEAT_JOIN] = "join the job",
        [BEAT_INDEX] = "sample index", [BEAT_MEMORY] = "memory",
        [BEAT_READ] = "read files",    [BEAT_WRITE] = "write files",
        [BEAT_BATCH] = "next batch",   [BEAT_FORWARD] = "forward",
        [BEAT_BACKWARD] = "backward",  [BEAT_HEAD] = "head",
        [BEAT_NORM] = "gradient norm", [BEAT_UPDATE] = "update",
        [BEAT_TOKEN] = "next token",   [BEAT_REDUCE] = "sum over ranks",
        [BEAT_GATHER] = "gather",      [BEAT_SEND] = "send",
        [BEAT_RECEIVE] = "receive",    [BEAT_BROADCAST] = "broadcast",
        [BEAT_SAVER] = "its own save", [BEAT_LEAVE] = "leave the job",
    };
    return (unsigned)action < BEAT_N_ACTIONS ? names[action] : "?";
}

/* -- the file ------------------------------------------------------------------------ */

static size_t beat_file_bytes(int n_ranks)
{
    return sizeof(struct beat_file) + (size_t)n_ranks * sizeof(struct beat_slot);
}

const char *beat_directory(void)
{
    const char *tmp = getenv("TMPDIR");
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : tmp && *tmp ? tmp : "/tmp";
}

/* The name of the host is part of the file's: what looks like several hosts may share
 * their memory, and each has a watcher. */
void beat_path(char *path, size_t size, const char *key)
{
    char host[65] = "";
    const char *name = strrchr(key, '/');
    gethostname(host, sizeof host - 1);
    if (name && access(key, W_OK) == 0)
        snprintf(path, size, "%s/beat.%s", key, host);
    else
        snprintf(path, size, "%s/" FILE_NAME "%u.%s.%s", beat_directory(),
                 (unsigned)geteuid(), name ? name + 1 : key, host);
}

void beat_sweep(void)
{
    char path[PATH_MAX], prefix[64];
    struct stat info;
    snprintf(prefix, sizeof prefix, FILE_NAME "%u.", (unsigned)geteuid());
    DIR *dir = opendir(beat_directory());
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", beat_directory(), entry->d_name);
        if (lstat(path, &info) == 0 && info.st_uid == geteuid() &&
            time(NULL) - info.st_mtime > LEFT_AFTER)
            unlink(path);
    }
    if (dir)
        closedir(dir);
}

static int cannot_use(const char *path, struct error *err)
{
    return error_set(err, ERROR_RUNTIME,
                     "cannot use '%s', by which ranks are watched: %s", path,
                     strerror(errno));
}

/* Every process makes it equally large, whichever is first. Its memory is reserved now: a
 * store without memory behind it would be a fatal signal. */
static int open_file(const char *path, size_t bytes, struct error *err)
{
    struct stat info;
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return cannot_use(path, err);
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid()) {
        int rc = posix_fallocate(fd, 0, (off_t)bytes);
        if (rc == 0)
            return fd;
        errno = rc;
    } else {
        errno = EPERM;
    }
    cannot_use(path, err);
    close(fd);
    return -1;
}

struct beat_file *beat_file_map(const char *path, int n_ranks, struct error *err)
{
    size_t bytes = beat_file_bytes(n_ranks);
    int fd = open_file(path, bytes, err);
    if (fd < 0)
        return NULL;
    void *file = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED)
        cannot_use(path, err);
    close(fd);
    return file == MAP_FAILED ? NULL : file;
}

void beat_file_unmap(struct beat_file *file, int n_ranks)
{
    if (file)
        munmap(file, beat_file_bytes(n_ranks));
}

/* -- the rank's side ----------------------------------------------------------------- */

struct beat_file *beat_open(const char *path, int rank, int n_ranks, struct error *err)
{
    file_here = beat_file_map(path, n_ranks, err);
    if (!file_here)
        return NULL;
    snprintf(path_here, sizeof path_here, "%s", path);
    beat_mine = &file_here->slots[rank];
    atomic_store(&beat_mine->peer, BEAT_NOBODY);
    atomic_store(&beat_mine->step, -1);
    struct stat space = {0};
    if (stat("/proc/self/ns/pid", &space) == 0)
        atomic_store(&beat_mine->pid_space, space.st_ino);
    atomic_store(&beat_mine->pid, (int)getpid());
    return file_here;
}

void beat_remove_name(void)
{
    if (file_here)
        unlink(path_here);
}

void beat_detach(void)
{
    beat_mine = &unread;
    file_here = NULL;
}

bool beat_must_end(void)
{
    return file_here && atomic_load_explicit(&file_here->must_end, memory_order_relaxed);
}

void beat_step(int64_t step)
{
    atomic_store_explicit(&beat_mine->step, step, memory_order_relaxed);
    atomic_store_explicit(&beat_mine->phase, BEAT_STEP, memory_order_relaxed);
    beat_count();
}

void beat_step_is_through(void)
{
    atomic_fetch_add_explicit(&beat_mine->n_steps, 1, memory_order_relaxed);
}

void beat_set_hang_timeout(double seconds)
{
    atomic_store(&beat_mine->hang_timeout, seconds);
}

void beat_outcome(int exit_code)
{
    atomic_store(&beat_mine->outcome, 1 + exit_code);
}

void beat_over(void)
{
    atomic_store(&beat_mine->is_over, 1);
}

/* -- last words ---------------------------------------------------------------------- */

bool beat_last_word(enum beat_state state, int code)
{
    struct timespec now;
    if (atomic_load(&beat_mine->state) != BEAT_ALIVE)
        return false;
    clock_gettime(CLOCK_REALTIME, &now);
    atomic_store(&beat_mine->said_ns, (long long)now.tv_sec * 1000000000 + now.tv_nsec);
    atomic_store(&beat_mine->code, code);
    atomic_store(&beat_mine->state, (int)state); // the rest is there when this is seen
    return true;
}

bool beat_fail(const char *reason, int exit_code, bool is_lasting)
{
    int nobody = 0;
    if (atomic_load(&beat_mine->state) != BEAT_ALIVE)
        return false;
    if (file_here &&
        atomic_compare_exchange_strong(&file_here->failure.by, &nobody,
                                       1 + (int)(beat_mine - file_here->slots))) {
        struct beat_failure *failure = &file_here->failure;
        failure->is_lasting = is_lasting;
        snprintf(failure->text, sizeof failure->text, "%s", reason);
        for (char *c = failure->text; *c; c++)
            *c = *c == '\n' ? ' ' : *c;
        atomic_store(&failure->is_written, 1);
    }
    return beat_last_word(BEAT_FAILED, exit_code);
}

/* -- progress ------------------------------------------------------------------------ */

bool beat_is_shown(void)
{
    return file_here && beat_mine == &file_here->slots[0] &&
           atomic_load(&file_here->is_shown) != 0;
}

void beat_show_progress(const char *text)
{
    if (!beat_is_shown())
        return;
    atomic_fetch_add(&file_here->n_shown, 1);
    snprintf(file_here->progress, sizeof file_here->progress, "%s", text);
    atomic_fetch_add(&file_here->n_shown, 1);
}
