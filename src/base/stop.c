/*
 * The handler does all of it, so that it works while the process is deep in a GEMM, a
 * message or a disk: it keeps the signal, and answers by one write(). Any thread may run
 * it; the moment of the first signal, set once, decides which one was the first.
 */
#include "base/stop.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

/* A signal handler can reach nothing else. */
static atomic_int wanted_by, role_now, moment_now;
static atomic_llong step_now;
static _Atomic double first_seconds; // clock_seconds() of the first signal; 0: none
static bool is_watching;

static const struct {
    int number;
    const char *name;
} signals[] = {
    {SIGINT, "SIGINT"},
    {SIGTERM, "SIGTERM"},
    {SIGHUP, "SIGHUP"},
    {SIGUSR1, "SIGUSR1"},
};

const char *stop_signal_name(int signal_number)
{
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        if (signals[i].number == signal_number)
            return signals[i].name;
    return "a signal";
}

/* -- the handler --------------------------------------------------------------------- */

static void answer_signal(int signal_number)
{
    static const char *const ends[] = {
        [STOP_AT_START] = "ending before the first step",
        [STOP_IN_STEP] = "finishing step ",
        [STOP_IN_EVALUATION] = "finishing the evaluation after step ",
        [STOP_IN_SAVE] = "finishing the checkpoint of step ",
    };
    int role = atomic_load(&role_now), moment = atomic_load(&moment_now);
    char number[LOG_NUMBER_BYTES] = "";
    if (role != STOP_ALONE && role != STOP_FIRST_RANK)
        return;
    if (moment != STOP_AT_START)
        log_number(number, atomic_load(&step_now));
    const char *const words[] = {stop_signal_name(signal_number), ": ", ends[moment],
                                 number, role == STOP_ALONE ? "; again to stop now" : ""};
    log_from_handler(LOG_WARNING, words, ARRAY_LEN(words));
}

static void end_now(int signal_number)
{
    const char *const words[] = {stop_signal_name(signal_number),
                                 " again: ended at once, nothing more is saved"};
    if (atomic_load(&role_now) == STOP_ALONE)
        log_from_handler(LOG_WARNING, words, ARRAY_LEN(words));
    sigset_t mine;
    sigemptyset(&mine);
    sigaddset(&mine, signal_number);
    signal(signal_number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &mine, NULL);
    raise(signal_number);
}

static void on_signal(int signal_number)
{
    int reason = errno;
    double now = clock_seconds(), first = 0;
    if (atomic_compare_exchange_strong(&first_seconds, &first, now)) {
        atomic_store(&wanted_by, signal_number);
        answer_signal(signal_number);
    } else if (now - first >= STOP_AGAIN_SECONDS &&
               atomic_load(&role_now) < STOP_FIRST_RANK)
        end_now(signal_number);
    errno = reason;
}

/* -- watching ------------------------------------------------------------------------ */

/* Is the signal somebody else's? */
static bool is_taken(int signal_number)
{
    struct sigaction now;
    if (sigaction(signal_number, NULL, &now))
        return true;
    if (signal_number == SIGHUP)
        return now.sa_handler == SIG_IGN;
    return signal_number == SIGUSR1 && now.sa_handler != SIG_DFL;
}

void stop_watch(enum stop_role role)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigfillset(&action.sa_mask); // one answer at a time
    atomic_store(&role_now, (int)role);
    if (is_watching)
        return;
    is_watching = true;
    sigset_t watched;
    sigemptyset(&watched);
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        if (!is_taken(signals[i].number)) {
            sigaction(signals[i].number, &action, NULL);
            sigaddset(&watched, signals[i].number);
        }
    // whoever started this process may have held them back
    pthread_sigmask(SIG_UNBLOCK, &watched, NULL);
}

void stop_set_moment(enum stop_moment moment, int64_t step)
{
    atomic_store(&step_now, step);
    atomic_store(&moment_now, (int)moment);
}

int stop_signal(void)
{
    return atomic_load(&wanted_by);
}

bool stop_is_wanted(void)
{
    return stop_signal() != 0;
}

int stop_check(struct error *err)
{
    if (!stop_is_wanted())
        return 0;
    return error_set(err, ERROR_UNSAVED, "stopped by %s; nothing was written",
                     stop_signal_name(stop_signal()));
}
