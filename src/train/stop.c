#include "train/stop.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t wanted_by; // a signal handler can reach nothing else

static void on_signal(int signal_number)
{
    wanted_by = signal_number;
}

void stop_watch(void)
{
    struct sigaction action = {.sa_handler = on_signal,
                               .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
    sigemptyset(&action.sa_mask);
    wanted_by = 0;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool stop_is_wanted(void)
{
    return wanted_by != 0;
}

const char *stop_signal_name(void)
{
    return wanted_by == SIGINT ? "SIGINT" : "SIGTERM";
}
