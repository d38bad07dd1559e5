/*
 * A rank's side of the launcher. All it knows comes from the environment that
 * launch_run() and mpiexec made, so there is no state to pass around: the status file is
 * opened by name each time it has something to tell, which is not at every step.
 *
 * Order at the start: the output first, so that every later complaint is in the log; the
 * death signal next, so that nothing outlives the job; then the status file, which makes
 * this process known to the launcher.
 */
#include "launch/worker.h"

#include "base/beat.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/thread.h"
#include "launch/launch_command.h"
#include "launch/pin.h"
#include "launch/rank_status.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENV_THREADS "TREFOIL_THREADS" // of worker_start() for worker_threads()

/* Where a crash is recorded; a signal handler can reach nothing else. */
static volatile sig_atomic_t crash_fd = -1;

/* NULL: launch_run() did not start this process. */
static const char *log_dir(void)
{
    const char *dir = getenv(LAUNCH_ENV_LOG_DIR);
    return dir && dir[0] == '/' ? dir : NULL;
}

/* A count that mpiexec tells its ranks; -1 when it does not. */
static int number_in(const char *variable)
{
    const char *text = getenv(variable);
    char *end;
    if (!text || *text < '0' || *text > '9')
        return -1;
    long value = strtol(text, &end, 10);
    return *end == '\0' && value < LAUNCH_RANKS_MOST + 1 ? (int)value : -1;
}

static int job_rank(void)
{
    return number_in(launch_dialect()->rank);
}

bool worker_is_rank(void)
{
    return log_dir() && job_rank() >= 0;
}

/* -- start --------------------------------------------------------------------------- */

/* mpiexec's own way to the launcher is kept for what the log directory does not take: the
 * last word of any rank, and the lines of rank 0, which are for the terminal. */
static void keep_spare(int rank)
{
    int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    rank_status_set_spare(fd);
    if (rank == 0)
        log_set_spare(fd, WORKER_LOG_MARK);
}

/* Appended to: the launcher has removed the logs of former jobs, and those that are there
 * are of this one, before it was started again. */
static int redirect_output(const char *dir, int rank, struct error *err)
{
    char path[4096];
    rank_log_path(path, sizeof path, dir, rank);
    keep_spare(rank);
    if (fs_make_directories(dir, err))
        return -1;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return error_set(err, ERROR_RUNTIME, "cannot create '%s': %s", path,
                         strerror(errno));
    fflush(stdout);
    fflush(stderr);
    int rc = dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0 ? -1 : 0;
    if (rc)
        error_set(err, ERROR_RUNTIME, "cannot write output to '%s': %s", path,
                  strerror(errno));
    close(fd);
    setvbuf(stdout, NULL, _IOLBF, 0);
    return rc;
}

/* Record the crash and its stack, then let the signal do what it does. */
static void on_crash(int signal_number)
{
    static const char heading[] = "\nthis rank crashed; its stack:\n";
    void *frames[64];
    rank_status_crash(crash_fd, signal_number);
    int unused = fs_write_exact(STDERR_FILENO, heading, sizeof heading - 1);
    (void)unused;
    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
    raise(signal_number); // SA_RESETHAND: the default action, once this handler returns
}

/* A library that calls exit() ends the rank without its last word. Children of the rank
 * come here too, and are not it. */
static void on_silent_exit(int code, void *unused)
{
    struct rank_status status;
    char reason[96];
    (void)unused;
    if (!log_dir() || !rank_status_read(log_dir(), job_rank(), &status) ||
        status.state != RANK_RUNNING || status.pid != getpid())
        return;
    snprintf(reason, sizeof reason, "it ended with exit code %d and did not say why",
             code);
    rank_status_failure(log_dir(), job_rank(), INT64_MAX, code ? code : 3, false, reason);
}

/* mpirun passes SIGUSR2 on where it would not give ranks time after SIGTERM. */
static void on_stop_from_afar(int signal_number)
{
    (void)signal_number;
    raise(SIGTERM);
}

static void set_handler(int signal_number, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, old;
    sigemptyset(&action.sa_mask);
    // a handler that is there (a sanitizer's) knows better
    if (sigaction(signal_number, NULL, &old) == 0 && old.sa_handler == SIG_DFL)
        sigaction(signal_number, &action, NULL);
}

/* Hear what mpiexec was made deaf to. SIGUSR1 means a stop at the launcher alone; here it
 * is MPICH's, whose handler comes later and is not disturbed. */
static void hear_signals(void)
{
    struct sigaction old;
    sigset_t all;
    if (sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == SIG_DFL)
        signal(SIGUSR1, SIG_IGN);
    sigfillset(&all);
    sigprocmask(SIG_UNBLOCK, &all, NULL);
}

static void watch_crashes(const char *dir, int rank)
{
    static const int deadly[] = {SIGSEGV, SIGBUS,  SIGFPE,  SIGILL, SIGABRT,
                                 SIGSYS,  SIGTRAP, SIGXCPU, SIGQUIT};
    char path[4096];
    void *frame;
    rank_status_path(path, sizeof path, dir, rank);
    crash_fd = open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
    if (crash_fd < 0)
        return;
    // the first call loads a library, which a signal handler must not do
    int unused = backtrace(&frame, 1);
    (void)unused;
    for (size_t i = 0; i < ARRAY_LEN(deadly); i++)
        set_handler(deadly[i], on_crash, (int)(SA_RESETHAND | SA_NODEFER));
    set_handler(SIGUSR2, on_stop_from_afar, SA_RESTART);
}

/* Each rank of this machine gets its share of the processors. Where there are more ranks
 * than processors, waiting must not burn the one that another rank needs: both libraries
 * read their variable when MPI starts. */
static void share_processors(void)
{
    int local_rank = number_in(launch_dialect()->local_rank);
    int local_size = number_in(launch_dialect()->local_size);
    int n = thread_processors(), first;
    int n_mine = pin_share(n, local_rank, local_size, &first);
    char threads[16];
    snprintf(threads, sizeof threads, "%d", n_mine > 0 ? n_mine : 1);
    setenv(ENV_THREADS, threads, 1);
    if (n_mine > 0) {
        pin_process(local_rank, local_size);
        return;
    }
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    setenv("MPIR_CVAR_POLLS_BEFORE_YIELD", "1", 0);
}

/* The launcher has counted the ranks of its own machine; each other is counted by those
 * who came to it. */
static int check_crowd(struct error *err)
{
    int n = number_in(launch_dialect()->local_size);
    if (n < 1 || getenv(LAUNCH_ENV_OVERSUBSCRIBE) || !launch_is_crowded(n))
        return 0;
    return error_set(err, ERROR_INPUT,
                     "too many ranks: %d processes on this host of %d processors, where "
                     "more than %d need --oversubscribe",
                     n, thread_processors(),
                     LAUNCH_RANKS_PER_PROCESSOR * thread_processors());
}

int worker_start(struct error *err)
{
    char host[256] = "";
    const char *dir = log_dir();
    int rank = job_rank();
    if (!dir)
        return 0;
    hear_signals();
    if (rank < 0)
        return error_set(err, ERROR_RUNTIME,
                         "%s is set, but not %s: this process was started by the mpiexec "
                         "of another MPI library than %s, which it was built with",
                         LAUNCH_ENV_LOG_DIR, launch_dialect()->rank,
                         launch_dialect()->name);
    if (redirect_output(dir, rank, err))
        return -1;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() == 1)
        return error_set(err, ERROR_RUNTIME, "the daemon that started rank %d is gone",
                         rank);
    if (rank_status_create(dir, rank, err))
        return -1;
    if (on_exit(on_silent_exit, NULL))
        return error_set(err, ERROR_RUNTIME, "out of memory for the start of rank %d",
                         rank);
    watch_crashes(dir, rank);
    if (check_crowd(err))
        return -1;
    share_processors();
    gethostname(host, sizeof host - 1);
    worker_log("rank %d begins on %s as process %d, %d of %d there, with %s thread(s)",
               rank, host, (int)getpid(), number_in(launch_dialect()->local_rank),
               number_in(launch_dialect()->local_size), getenv(ENV_THREADS));
    return 0;
}

void worker_log(const char *fmt, ...)
{
    char text[1024];
    va_list args;
    if (!worker_is_rank() || job_rank() == 0)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    enum log_level level = log_set_level(LOG_INFO);
    log_info("%s", text);
    log_set_level(level);
}

int worker_threads(void)
{
    int n = log_dir() && !getenv("OMP_NUM_THREADS") ? number_in(ENV_THREADS) : 0;
    return n > 0 ? n : 0;
}

/* -- progress and end ---------------------------------------------------------------- */

void worker_set_step(int64_t step)
{
    beat_step(step);
    if (worker_is_rank() && !beat_file_of_process()) // else the launcher sees it there
        rank_status_set_step(log_dir(), job_rank(), step);
}

static int open_progress(void)
{
    char path[4096];
    if (!worker_is_rank() || job_rank() > 0)
        return -1;
    rank_progress_path(path, sizeof path, log_dir());
    return open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

bool worker_is_shown(void)
{
    int fd = open_progress();
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

void worker_show_progress(const char *text)
{
    char line[RANK_PROGRESS_BYTES] = "";
    int fd = open_progress();
    if (fd < 0)
        return;
    snprintf(line, sizeof line, "%s", text);
    ssize_t unused = pwrite(fd, line, sizeof line, 0); // whole or not at all
    (void)unused;
    close(fd);
}

/* The status is written before the log line: a launcher that has seen the line can know
 * where it begins, and shows the failure once, in its own words. */
void worker_report_failure(const struct error *err)
{
    struct stat log = {0};
    if (worker_is_rank()) {
        fflush(stdout);
        fstat(STDERR_FILENO, &log);
        rank_status_set_step(log_dir(), job_rank(), atomic_load(&beat_mine->step));
        rank_status_failure(log_dir(), job_rank(), S_ISREG(log.st_mode) ? log.st_size : 0,
                            error_exit_code(err), err->kind != ERROR_RUNTIME, err->text);
        log_set_spare(-1, NULL); // the launcher has it
    }
    log_error("%s", err->text);
}

int worker_finish(int rc, const struct error *err)
{
    const char *dir = log_dir();
    bool is_rank = worker_is_rank();
    struct rank_status status;
    int code = rc < 0 ? error_exit_code(err) : 0;
    beat_over();
    if (rc < 0 && err->kind == ERROR_STOPPED)
        log_warning("%s", err->text);
    else if (rc < 0 && !(is_rank && rank_status_read(dir, job_rank(), &status) &&
                         status.state == RANK_FAILED))
        worker_report_failure(err);
    if (!is_rank)
        return code;
    fflush(stdout);
    worker_log("rank %d ends%s", job_rank(),
               code == 0    ? ", its work done"
               : code == 75 ? ", stopped"
                            : ", failed");
    rank_status_end(dir, job_rank(), code);
    return code == 75 ? 0 : code;
}
