#include "test.h"

#include "base/fs.h"
#include "base/hook.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

/* What the commands of a test write, one file a line. */
static char *read_text(const char *dir, const char *name)
{
    char path[4096], *text = NULL;
    size_t n;
    struct error err;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return fs_read_all(path, 1 << 20, &text, &n, &err) ? NULL : text;
}

static void assert_text(const char *dir, const char *name, const char *expected)
{
    char *text = read_text(dir, name);
    assert_non_null(text);
    assert_string_equal(text, expected);
    free(text);
}

/* A command waits until it may go on, so that nothing rests on time. */
#define AWAIT_GO "until [ -e \"$TEST_DIR/go\" ]; do sleep 0.01; done; "

static void let_go(const char *dir)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/go", dir);
    close(open(path, O_CREAT | O_WRONLY, 0600));
}

static void remove_directory(char *dir)
{
    struct error err;
    assert_ok(fs_remove_tree(dir, &err), err);
    free(dir);
}

static void test_hook__what_happened_is_data_and_never_code(void **state)
{
    (void)state;
    static struct hook h;
    struct hook_event e;
    char *dir = test_make_directory();
    setenv("TEST_DIR", dir, 1);
    setenv("OMPI_COMM_WORLD_RANK", "3", 1);
    setenv("TREFOIL_JOB", "/x", 1);
    hook_init(&h, "printf '%s|%s|%s|%s' \"$TREFOIL_EVENT\" \"$TREFOIL_EVENT_MESSAGE\" "
                  "\"$OMPI_COMM_WORLD_RANK\" \"$TREFOIL_JOB\" > \"$TEST_DIR/out\"");
    hook_event_begin(&e, "failure");
    hook_event_set(&e, "MESSAGE", "%s",
                   "$(touch \"$TEST_DIR/bad\")`date`'\"; rm -rf x\n");
    hook_run(&h, &e);
    hook_finish(&h);
    assert_text(dir, "out", "failure|$(touch \"$TEST_DIR/bad\")`date`'\"; rm -rf x\n||");
    assert_null(read_text(dir, "bad"));
    unsetenv("OMPI_COMM_WORLD_RANK");
    unsetenv("TREFOIL_JOB");
    remove_directory(dir);
}

static void test_hook__events_wait_for_the_command_before(void **state)
{
    (void)state;
    static struct hook h;
    struct hook_event e;
    char *dir = test_make_directory();
    setenv("TEST_DIR", dir, 1);
    hook_init(&h, AWAIT_GO "echo \"$TREFOIL_EVENT\" >> \"$TEST_DIR/out\"");
    static const char *const names[] = {"a", "b", "c"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        hook_event_begin(&e, names[i]);
        hook_run(&h, &e);
        assert_int_equal(h.n_waiting, i);
    }
    let_go(dir);
    while (h.n_waiting > 0)
        hook_poll(&h);
    hook_finish(&h);
    assert_text(dir, "out", "a\nb\nc\n");
    remove_directory(dir);
}

static void test_hook__at_the_end_the_last_event_counts(void **state)
{
    (void)state;
    static struct hook h;
    struct hook_event e;
    enum log_level level = log_set_level(LOG_ERROR);
    char *dir = test_make_directory(), name[8];
    setenv("TEST_DIR", dir, 1);
    hook_init(&h, AWAIT_GO "echo \"$TREFOIL_EVENT\" >> \"$TEST_DIR/out\"");
    for (int i = 0; i < 7; i++) { // one runs, four wait, two are left out
        snprintf(name, sizeof name, "e%d", i);
        hook_event_begin(&e, name);
        hook_run(&h, &e);
    }
    assert_int_equal(h.n_waiting, HOOK_WAITING_MOST);
    let_go(dir);
    hook_finish(&h);
    assert_text(dir, "out", "e0\ne4\n");
    remove_directory(dir);
    log_set_level(level);
}

static void test_hook__that_fails_or_is_none_does_no_harm(void **state)
{
    (void)state;
    static struct hook h;
    struct hook_event e;
    enum log_level level = log_set_level(LOG_ERROR);
    static const char *const commands[] = {"exit 7", "kill -9 $$", "no-such-command", "",
                                           NULL};
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        hook_init(&h, commands[i]);
        hook_event_begin(&e, "end");
        hook_run(&h, &e);
        hook_finish(&h);
        assert_int_equal(h.pid, 0);
    }
    log_set_level(level);
}

static void test_hook__values_that_do_not_fit_are_cut(void **state)
{
    (void)state;
    static struct hook h;
    struct hook_event e;
    char *dir = test_make_directory(), *text = calloc(1, 20000);
    assert_non_null(text);
    memset(text, 'x', 19999);
    setenv("TEST_DIR", dir, 1);
    hook_init(&h, "echo $TREFOIL_EVENT ${#TREFOIL_EVENT_A} > \"$TEST_DIR/out\"");
    hook_event_begin(&e, "end");
    hook_event_set(&e, "A", "%s", text);
    hook_event_set(&e, "B", "%s", text);
    hook_run(&h, &e);
    hook_finish(&h);
    assert_text(dir, "out", "end 8157\n");
    free(text);
    remove_directory(dir);
}

/* kill(pid, 0) knows a dead process, too, until its end was asked for. */
static void assert_leaves_no_dead_process(struct hook *h, pid_t pid)
{
    for (int i = 0; i < 10000 && kill(pid, 0) == 0; i++) {
        hook_poll(h);
        poll(NULL, 0, 1);
    }
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
    assert_int_equal(h->n_killed, 0);
}

/* With what it has started: the reading end of a pipe sees when the last of them is gone. */
static void test_hook__a_command_that_takes_too_long_is_killed(void **state)
{
    (void)state;
    static struct hook h;
    struct hook_event e;
    enum log_level level = log_set_level(LOG_ERROR);
    char *dir = test_make_directory(), path[4096], byte;
    setenv("TEST_DIR", dir, 1);
    snprintf(path, sizeof path, "%s/pipe", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    hook_init(&h, "exec > \"$TEST_DIR/pipe\"; sleep 30 & echo; sleep 30");
    hook_event_begin(&e, "stall");
    hook_run(&h, &e);
    pid_t shell = h.pid;
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, &byte, 1), 1);
    hook_poll(&h);
    assert_int_equal(h.pid, shell);
    h.started -= HOOK_SECONDS;
    hook_poll(&h);
    assert_int_equal(h.pid, 0);
    assert_int_equal(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 10000), 1);
    assert_int_equal(read(fd, &byte, 1), 0);
    assert_leaves_no_dead_process(&h, shell);
    close(fd);
    remove_directory(dir);
    log_set_level(level);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hook__what_happened_is_data_and_never_code),
        cmocka_unit_test(test_hook__events_wait_for_the_command_before),
        cmocka_unit_test(test_hook__at_the_end_the_last_event_counts),
        cmocka_unit_test(test_hook__that_fails_or_is_none_does_no_harm),
        cmocka_unit_test(test_hook__values_that_do_not_fit_are_cut),
        cmocka_unit_test(test_hook__a_command_that_takes_too_long_is_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
