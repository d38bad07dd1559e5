#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

static const int ignored[] = {SIGPIPE, SIGXFSZ};

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
}

void process_restore_signals(void)
{
    for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
        signal(ignored[i], SIG_DFL);
}
