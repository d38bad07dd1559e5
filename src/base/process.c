#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
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

void process_restore_signals(void)
{
    for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
        signal(ignored[i], SIG_DFL);
}
