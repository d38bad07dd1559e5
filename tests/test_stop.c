/* Signals that ask a process to stop: what counts, and what it answers. */
#include "base/stop.h"
#include "test.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Run `body` in a child with its standard error in `said`; the wait status. */
static int in_child(void (*body)(void), char *said, size_t size)
{
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        for (int s = 1; s < NSIG; s++)
            signal(s, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        body();
        _exit(0);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; (got = read(ends[0], said + n, size - 1 - n)) > 0;)
        n += (size_t)got;
    said[n] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void wait_until_again(void)
{
    struct timespec pause = {.tv_sec = STOP_AGAIN_SECONDS, .tv_nsec = 10000000};
    while (nanosleep(&pause, &pause))
        ;
}

static void must(int holds)
{
    if (!holds)
        _exit(1);
}

static void take_each(void)
{
    stop_watch(STOP_ALONE);
    stop_set_moment(STOP_IN_STEP, 4711);
    must(!stop_is_wanted());
    raise(SIGUSR1);
    must(stop_signal() == SIGUSR1);
    raise(SIGTERM); // at once: the same wish
    raise(SIGHUP);
    raise(SIGINT);
    must(stop_signal() == SIGUSR1);
}

static void test_first_signal__is_answered_and_the_next_ones_are_the_same(void **state)
{
    char said[4096];
    (void)state;
    assert_int_equal(in_child(take_each, said, sizeof said), 0);
    const char *answer =
        "] [ WARNING] - SIGUSR1: finishing step 4711; again to stop now\n";
    assert_non_null(strstr(said, answer));
    assert_string_equal(strstr(said, answer), answer); // nothing follows
}

static void repeat_late(void)
{
    stop_watch(STOP_ALONE);
    raise(SIGTERM);
    wait_until_again();
    raise(SIGINT);
}

static void test_late_second__ends_by_that_signal(void **state)
{
    char said[4096];
    (void)state;
    int status = in_child(repeat_late, said, sizeof said);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    assert_non_null(strstr(said, "SIGTERM: ending before the first step; again to stop"));
    assert_non_null(strstr(said, "SIGINT again: ended at once"));
}

static void repeat_in_rank(void)
{
    stop_watch(STOP_RANK);
    raise(SIGTERM);
    wait_until_again();
    raise(SIGTERM);
    raise(SIGHUP);
    raise(SIGINT);
    must(stop_signal() == SIGTERM);
}

static void test_rank__takes_any_number_for_one_and_says_nothing(void **state)
{
    char said[4096];
    (void)state;
    assert_int_equal(in_child(repeat_in_rank, said, sizeof said), 0);
    assert_string_equal(said, "");
}

static void repeat_in_first_rank(void)
{
    stop_watch(STOP_RANK);
    stop_watch(STOP_FIRST_RANK);
    stop_set_moment(STOP_IN_EVALUATION, 20);
    raise(SIGINT);
    raise(SIGINT);
}

static void test_first_rank__answers_without_offering_more(void **state)
{
    char said[4096];
    (void)state;
    assert_int_equal(in_child(repeat_in_first_rank, said, sizeof said), 0);
    assert_non_null(strstr(said, "SIGINT: finishing the evaluation after step 20\n"));
}

static void keep_ignoring(void)
{
    signal(SIGHUP, SIG_IGN);
    stop_watch(STOP_ALONE);
    raise(SIGHUP);
    must(!stop_is_wanted());
}

static void test_nohup__stays(void **state)
{
    char said[4096];
    (void)state;
    assert_int_equal(in_child(keep_ignoring, said, sizeof said), 0);
    assert_string_equal(said, "");
}

static volatile sig_atomic_t n_other;

static void on_other(int signal_number)
{
    (void)signal_number;
    n_other++;
}

static void leave_to_other(void)
{
    signal(SIGUSR1, on_other);
    stop_watch(STOP_RANK);
    raise(SIGUSR1);
    must(!stop_is_wanted() && n_other == 1);
}

static void test_usr1__is_left_to_who_has_it(void **state)
{
    char said[4096];
    (void)state;
    assert_int_equal(in_child(leave_to_other, said, sizeof said), 0);
}

static void stop_command(void)
{
    struct error err;
    stop_watch(STOP_COMMAND);
    must(stop_check(&err) == 0);
    raise(SIGINT);
    must(stop_check(&err) == -1 && error_exit_code(&err) == 3);
    must(strstr(err.text, "SIGINT") != NULL);
}

static void test_command__stops_with_a_sentence(void **state)
{
    char said[4096];
    (void)state;
    assert_int_equal(in_child(stop_command, said, sizeof said), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_signal__is_answered_and_the_next_ones_are_the_same),
        cmocka_unit_test(test_late_second__ends_by_that_signal),
        cmocka_unit_test(test_rank__takes_any_number_for_one_and_says_nothing),
        cmocka_unit_test(test_first_rank__answers_without_offering_more),
        cmocka_unit_test(test_nohup__stays),
        cmocka_unit_test(test_usr1__is_left_to_who_has_it),
        cmocka_unit_test(test_command__stops_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
