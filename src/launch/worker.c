/*
 * Order at the start: the output first, so that every later complaint is in the log; the
 * death signal next, so that nothing outlives the job; then the slot of shared memory,
 * which makes this process known to who watches.
 */
#include "launch/worker.h"

#include "base/beat.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/thread.h"
#include "launch/job_files.h"
#include "launch/job_watch.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define ENV_THREADS "TREFOIL_THREADS" // of worker_start() for worker_threads()
#define REPORT_NAPS 100               // of 10 ms, for the last word to be on its way

/* -- output -------------------------------------------------------------------------- */

/* Appended to: the launcher has removed the logs of former jobs, and those that are there
 * are of this one, before it was started again. Lines of
 * rank 0, which are for the terminal, go by mpiexec to the launcher as well. */
static int redirect_output(int rank, struct error *err)
{
    char path[4096];
    const char *dir = getenv(WORKER_ENV_LOG_DIR) ? getenv(WORKER_ENV_LOG_DIR) : ".";
    job_files_log_path(path, sizeof path, dir, rank);
    if (rank == 0) { // a terminal that is not read must not hold the job up
        int copy = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        fcntl(copy, F_SETFL, O_NONBLOCK);
        log_set_copy(copy, WORKER_LOG_MARK);
    } else {
        log_is_own();
    }
    if (fs_make_directories(dir, err))
        return -1;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
    fflush(stdout);
    fflush(stderr);
    bool is_result = rank == 0 && getenv(WORKER_ENV_OUTPUT);
    if (fd < 0 || (!is_result && dup2(fd, STDOUT_FILENO) < 0) ||
        dup2(fd, STDERR_FILENO) < 0)
        return error_set(err, ERROR_RUNTIME, "cannot write output to '%s': %s", path,
                         strerror(errno));
    close(fd);
    setvbuf(stdout, NULL, _IOLBF, 0);
    return 0;
}

/* -- deaths -------------------------------------------------------------------------- */

/* A rank that dies at once may take the watcher of its host along. */
static void wait_until_reported(void)
{
    static const struct timespec nap = {.tv_nsec = 10000000};
    for (int i = 0; i < REPORT_NAPS && !atomic_load(&beat_mine->is_reported); i++)
        nanosleep(&nap, NULL);
}

static void write_stack(const char *heading)
{
    void *frames[64];
    int unused = fs_write_exact(STDERR_FILENO, heading, strlen(heading));
    (void)unused;
    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
}

/* Record the signal, then let it do what it does. */
static void on_deadly(int signal_number)
{
    beat_last_word(BEAT_CRASHED, signal_number);
    if (signal_number != SIGTERM && signal_number != SIGINT && signal_number != SIGHUP)
        write_stack("\nthis rank crashed; its stack:\n");
    wait_until_reported();
    raise(signal_number); // SA_RESETHAND: the default action, once this handler returns
}

/* The watcher wants to know where this rank is. One that was stopped does not go on: the
 * job is about to end. */
static void on_stack_wanted(int signal_number)
{
    (void)signal_number;
    write_stack("\nthe job hangs; the stack of this rank:\n");
    while (atomic_load(&beat_mine->is_held))
        pause();
    // inside MPI's own start and end nothing looks whether the job ends
    int action = atomic_load(&beat_mine->action);
    if (beat_must_end() && (action == BEAT_JOIN || action == BEAT_LEAVE))
        _exit(3);
}

/* A library that calls exit() ends the rank without its last word. Children of the rank
 * come here too, and are not it. */
static void on_silent_exit(int code, void *unused)
{
    char reason[96];
    (void)unused;
    if (atomic_load(&beat_mine->pid) != (int)getpid())
        return;
    bool is_joining = atomic_load(&beat_mine->action) == BEAT_JOIN &&
                      atomic_load(&beat_mine->peer) != BEAT_NOBODY;
    snprintf(reason, sizeof reason,
             is_joining ? WORKER_JOIN_ENDED " with exit code %d"
                        : "it ended with exit code %d and did not say why",
             code);
    if (beat_fail(reason, code ? code : 3, false))
        wait_until_reported();
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
static void handle_signals(void)
{
    static const int deadly[] = {SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,  SIGABRT, SIGSYS,
                                 SIGTRAP, SIGXCPU, SIGQUIT, SIGTERM, SIGINT,  SIGHUP};
    sigset_t all;
    set_handler(SIGUSR1, SIG_IGN, 0);
    for (size_t i = 0; i < ARRAY_LEN(deadly); i++)
        set_handler(deadly[i], on_deadly, (int)(SA_RESETHAND | SA_NODEFER));
    sigfillset(&all);
    sigprocmask(SIG_UNBLOCK, &all, NULL);
}

/* -- start --------------------------------------------------------------------------- */

/* Become visible to the watcher of this host, or start it. */
static int join_watch(const struct comm_launch *me, struct error *err)
{
    char key[256], path[PATH_MAX];
    void *frame;
    snprintf(key, sizeof key, "parent.%d", (int)getppid());
    beat_path(path, sizeof path, me->job ? me->job : key);
    // the first call loads a library, which a signal handler must not do
    int unused = backtrace(&frame, 1);
    (void)unused;
    set_handler(HOST_WATCH_STACK_SIGNAL, on_stack_wanted, SA_RESTART);
    struct beat_file *file = beat_open(path, me->rank, me->size, err);
    if (!file)
        return -1;
    const char *contact = getenv(WORKER_ENV_WATCH);
    job_watch_start(file, path, me->size, !me->is_ours ? NULL : contact ? contact : "");
    return 0;
}

int worker_share(int n_processors, int local_rank, int local_size, int *first)
{
    bool is_known = local_rank >= 0 && local_rank < local_size;
    int n = is_known ? n_processors / local_size : 0;
    *first = local_rank * n;
    return n;
}

/* By package, core and number: so neighbours stand together. */
static int64_t processor_key(int id)
{
    static const char *const names[] = {"physical_package_id", "core_id"};
    int64_t key = 0;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char path[128];
        int number = 0;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", id,
                 names[i]);
        FILE *f = fopen(path, "re");
        bool is_told = f && fscanf(f, "%d", &number) == 1;
        key = key << 20 | (is_told ? number & 0xfffff : 0);
        if (f)
            fclose(f);
    }
    return key << 20 | id;
}

static int compare_keys(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Where threads run does not change results, so that a refusal does no harm. */
static void pin(int local_rank, int local_size)
{
    cpu_set_t allowed, mine;
    int64_t keys[CPU_SETSIZE];
    int n = 0, first = 0;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        return;
    for (int id = 0; id < CPU_SETSIZE; id++)
        if (CPU_ISSET((size_t)id, &allowed))
            keys[n++] = processor_key(id);
    qsort(keys, (size_t)n, sizeof *keys, compare_keys);
    int n_mine = worker_share(n, local_rank, local_size, &first);
    for (int i = first; i < first + n_mine; i++)
        CPU_SET((size_t)(keys[i] & 0xfffff), &mine);
    if (n_mine > 0)
        sched_setaffinity(0, sizeof mine, &mine);
}

/* Where there are more ranks than processors, waiting must not burn the one that another
 * rank needs: both libraries read their variable when MPI starts. The launcher has counted
 * the ranks of its own machine; each other is counted by those who came to it. */
static int share_processors(const struct comm_launch *me, struct error *err)
{
    int n = thread_processors(), first;
    char threads[16];
    if (me->local_size > 0 && !getenv(WORKER_ENV_OVERSUBSCRIBE) &&
        thread_is_crowded(me->local_size))
        return error_set(err, ERROR_INPUT,
                         "too many ranks: %d processes on this host of %d processors, "
                         "where more than %d need --oversubscribe",
                         me->local_size, n, RANKS_PER_PROCESSOR * n);
    int n_mine = worker_share(n, me->local_rank, me->local_size, &first);
    snprintf(threads, sizeof threads, "%d", n_mine > 0 ? n_mine : 1);
    setenv(ENV_THREADS, threads, 1);
    pin(me->local_rank, me->local_size);
    if (n_mine == 0) {
        setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
        setenv("MPIR_CVAR_POLLS_BEFORE_YIELD", "1", 0);
    }
    return 0;
}

static int start_rank(const struct comm_launch *me, struct error *err)
{
    char host[256] = "";
    if (redirect_output(me->rank, err))
        return -1;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() == 1)
        return error_set(err, ERROR_RUNTIME, "the daemon that started rank %d is gone",
                         me->rank);
    // Open MPI's shared memory goes with the directory of the job, where that is here;
    // its session directory was for mpirun to choose
    unsetenv("OMPI_MCA_orte_local_tmpdir_base");
    if (fs_is_directory(me->job))
        setenv("OMPI_MCA_btl_vader_backing_directory", me->job, 0);
    if (join_watch(me, err))
        return -1;
    if (on_exit(on_silent_exit, NULL))
        return error_set(err, ERROR_RUNTIME, "out of memory for the start of rank %d",
                         me->rank);
    handle_signals();
    if (share_processors(me, err))
        return -1;
    gethostname(host, sizeof host - 1);
    log_own("rank %d begins on %s as process %d, %d of %d there, with %s thread(s)",
            me->rank, host, (int)getpid(), me->local_rank, me->local_size,
            getenv(ENV_THREADS));
    return 0;
}

int worker_start(struct error *err)
{
    struct comm_launch me = comm_launch_info();
    if (me.is_ours)
        return start_rank(&me, err);
    if (me.size > 1 && join_watch(&me, err))
        log_warning("rank %d is not watched for hangs: %s", me.rank, err->text);
    return 0;
}

int worker_threads(void)
{
    const char *n = getenv(ENV_THREADS);
    return comm_launch_info().is_ours && !getenv("OMP_NUM_THREADS") && n ? atoi(n) : 0;
}

/* -- the end ------------------------------------------------------------------------- */

void worker_report_failure(const struct error *err)
{
    bool is_ours = comm_launch_info().is_ours;
    fflush(stdout);
    beat_fail(err->text, error_exit_code(err), err->kind != ERROR_RUNTIME);
    if (is_ours)
        log_set_copy(-1, NULL); // the launcher has it, and shows it in its own words
    log_error("%s", err->text);
    if (is_ours)
        wait_until_reported();
}

int worker_finish(int rc, const struct error *err)
{
    struct comm_launch me = comm_launch_info();
    int code = rc < 0 ? error_exit_code(err) : 0;
    beat_over();
    if (rc < 0 && err->kind == ERROR_STOPPED)
        log_warning("%s", err->text);
    else if (rc < 0 && !(me.is_ours && atomic_load(&beat_mine->state) == BEAT_FAILED))
        worker_report_failure(err);
    if (!me.is_ours)
        return code;
    fflush(stdout);
    log_own("rank %d ends%s", me.rank,
            code == 0    ? ", its work done"
            : code == 75 ? ", stopped"
                         : ", failed");
    beat_last_word(BEAT_ENDED, code);
    wait_until_reported();
    return code == 75 ? 0 : code;
}
