#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE_BYTES 4096
#define START_STACK_BYTES (512 << 10) // structs of configurations and paths, mostly

static const int ignored[] = {SIGPIPE, SIGXFSZ};

/* -- before libraries begin ---------------------------------------------------------- */

static bool was_hangup_ignored;

/* A system call and nothing else: no library, and no sanitizer, is ready yet. */
__attribute__((no_sanitize("address", "undefined"))) static void look_at_hangup(void)
{
    unsigned long action[8] = {0}; // the kernel's, which begins with the handler
    if (syscall(SYS_rt_sigaction, SIGHUP, NULL, action, sizeof(unsigned long)) == 0)
        was_hangup_ignored = action[0] == (unsigned long)(uintptr_t)SIG_IGN;
}

__attribute__((section(".preinit_array"),
               used)) static void (*const first)(void) = look_at_hangup;

/* -- in main() ----------------------------------------------------------------------- */

static void open_standard_descriptors(void)
{
    // what nobody can read must not count as written; the log may go nowhere
    static const int modes[] = {O_RDONLY, O_RDONLY, O_WRONLY};
    for (int fd = 0; fd < (int)ARRAY_LEN(modes); fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
            continue;
        // the lowest number that is free: all below it are open by now
        if (open("/dev/null", modes[fd]) < 0)
            return;
    }
}

void process_begin(void)
{
    open_standard_descriptors();
    for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
        signal(ignored[i], SIG_IGN);
    signal(SIGHUP, was_hangup_ignored ? SIG_IGN : SIG_DFL);
}

/* -- stacks -------------------------------------------------------------------------- */

#define LEAST_STACK_BYTES ((size_t)1 << 20) // of any command, with space to spare

/* Threads take the size that the C library read from the limit when the program started,
 * or 2 MB where there was no limit. */
static void raise_stack_of_threads(size_t bytes)
{
    pthread_attr_t attributes;
    size_t now;
    if (pthread_getattr_default_np(&attributes))
        return;
    if (pthread_attr_getstacksize(&attributes, &now) == 0 && now < bytes &&
        pthread_attr_setstacksize(&attributes, bytes) == 0)
        pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
}

/* The lowest page is enough: the kernel extends the stack down to it. */
static void __attribute__((noinline)) extend_stack(void)
{
    volatile char stack[START_STACK_BYTES];
    stack[0] = 0;
    (void)stack[0];
}

/* Give the first thread's stack the addresses that commands need before kernels start (see
 * product_start()). A stack grows as it is used, and a process whose stack cannot grow,
 * because of `ulimit -v`, ends by a signal. */
static int reserve_stack(struct error *err)
{
    void *probe = mmap(NULL, START_STACK_BYTES + PAGE_BYTES, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (probe == MAP_FAILED)
        return error_set(
            err, ERROR_RUNTIME,
            "not enough memory: the stack needs %.2f MB more; raise the limit "
            "on addresses (ulimit -v)",
            (double)START_STACK_BYTES / 1e6);
    munmap(probe, START_STACK_BYTES + PAGE_BYTES);
    extend_stack();
    return 0;
}

/* The kernel reads the limit whenever the stack grows. */
int process_prepare_stack(struct error *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit))
        return reserve_stack(err);
    bool is_low = limit.rlim_cur < PROCESS_STACK_BYTES; // unlimited is the largest number
    if (is_low)
        limit.rlim_cur =
            limit.rlim_max < PROCESS_STACK_BYTES ? limit.rlim_max : PROCESS_STACK_BYTES;
    if (limit.rlim_cur < LEAST_STACK_BYTES)
        return error_set(
            err, ERROR_RUNTIME,
            "the stack of a process is limited to %llu kB here (ulimit -s), "
            "and at least %llu kB are needed; raise the limit to 8192 kB, or "
            "have the administrator raise the hard limit",
            (unsigned long long)limit.rlim_cur >> 10,
            (unsigned long long)LEAST_STACK_BYTES >> 10);
    if (is_low && setrlimit(RLIMIT_STACK, &limit))
        return error_set(err, ERROR_RUNTIME, "cannot raise the limit of the stack: %s",
                         strerror(errno));
    raise_stack_of_threads(is_low ? (size_t)limit.rlim_cur : PROCESS_STACK_BYTES);
    return reserve_stack(err);
}

/* -- children ------------------------------------------------------------------------ */

int process_fork_failed(struct error *err, const char *what, int reason)
{
    struct rlimit limit;
    char words[128] = "";
    if (reason == EAGAIN && getrlimit(RLIMIT_NPROC, &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY)
        snprintf(words, sizeof words,
                 "; the limit of this user's processes and threads is %llu: raise it "
                 "(ulimit -u)",
                 (unsigned long long)limit.rlim_cur);
    else if (reason == EAGAIN)
        snprintf(words, sizeof words,
                 "; the control group may limit processes (pids.max)");
    return error_set(err, ERROR_RUNTIME, "cannot start %s: %s%s", what, strerror(reason),
                     words);
}

void process_restore_signals(void)
{
    for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
        signal(ignored[i], SIG_DFL);
}
