#include "launch/launch_restart.h"

enum launch_decision launch_restart_decide(struct launch_restart *r, int64_t step)
{
    if (step > r->newest_step) {
        r->newest_step = step;
        r->n_idle = 0;
    }
    if (r->n_idle >= LAUNCH_IDLE_RESTARTS_MOST)
        return LAUNCH_LOOP;
    if (r->n_restarts >= r->most)
        return LAUNCH_SPENT;
    r->n_restarts++;
    r->n_idle++;
    return LAUNCH_AGAIN;
}

int launch_restart_pause(int64_t n_restart)
{
    int seconds = 1;
    for (int64_t i = 1; i < n_restart && seconds < LAUNCH_PAUSE_SECONDS_MOST; i++)
        seconds *= 2;
    return (int)i64_min(seconds, LAUNCH_PAUSE_SECONDS_MOST);
}
