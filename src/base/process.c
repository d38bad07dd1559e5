#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/auxv.h>
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

/* -- the stack ----------------------------------------------------------------------- */

/* From the first byte of the stack, after the arguments and the environment, to here. */
static size_t used_stack_bytes(void)
{
    volatile char here = 0;
    uintptr_t top = (uintptr_t)getauxval(AT_EXECFN);
    uintptr_t now = (uintptr_t)&here;
    return top > now ? top - now + PAGE_BYTES : PAGE_BYTES;
}

/* The lowest page is enough: the kernel extends the stack down to it. */
static void __attribute__((noinline)) extend_stack(void)
{
    volatile char stack[START_STACK_BYTES];
    stack[0] = 0;
    (void)stack[0];
}

int process_reserve_stack(struct error *err)
{
    struct rlimit limit;
    size_t needed = used_stack_bytes() + START_STACK_BYTES;
    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < needed)
        return 0;
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

void process_restore_signals(void)
{
    for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
        signal(ignored[i], SIG_DFL);
}
