#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

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

/* The kernel reads the limit whenever the stack grows. */
int process_raise_stack(struct error *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit))
        return 0;
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
    return 0;
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
