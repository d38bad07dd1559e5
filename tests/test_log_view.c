/* How lines of the log look on a terminal. */
#include "base/log_view.h"
#include "test.h"

#include <pty.h>
#include <unistd.h>

#define HEAD "[2022-07-27 12:42:46,601] [    INFO] - "
#define STEP                                                                             \
    "global step 37, epoch: 0, batch: 36, loss: 10.966741562, avg_reader_cost: 0.00038 " \
    "sec, avg_batch_cost: 0.28452 sec, speed: 3.51 step/s, ips_total: 28792 tokens/s, "  \
    "ips: 3599 tokens/s, learning rate: 1.05556e-07"

static void assert_shown(struct log_view view, const char *line, const char *expected)
{
    char shown[1024];
    assert_true(strlen(line) + LOG_VIEW_MORE_BYTES < sizeof shown);
    size_t n = log_view_line(&view, line, strlen(line), shown);
    shown[n] = '\0';
    assert_string_equal(shown, expected);
}

static void test_line__is_whole_where_there_is_room(void **state)
{
    (void)state;
    assert_shown((struct log_view){0}, HEAD STEP "\n", HEAD STEP "\n");
    assert_shown((struct log_view){.columns = 250}, HEAD STEP "\n", HEAD STEP "\n");
    assert_shown((struct log_view){.columns = 250, .is_coloured = true}, HEAD STEP "\n",
                 "\033[32m[2022-07-27 12:42:46,601] [    INFO]\033[0m - " STEP "\n");
}

static void test_step__loses_what_is_missed_least(void **state)
{
    (void)state;
    assert_shown((struct log_view){.columns = 80}, HEAD STEP "\n",
                 "[12:42:46] global step 37, loss: 10.966741562, ips_total: 28792 "
                 "tokens/s\n");
    assert_shown((struct log_view){.columns = 40}, HEAD STEP "\n",
                 "[12:42:46] global step 37, loss: 10.966741562\n");
    assert_shown(
        (struct log_view){.columns = 110}, HEAD STEP "\n",
        "[12:42:46] global step 37, epoch: 0, loss: 10.966741562, ips_total: 28792 "
        "tokens/s, learning rate: 1.05556e-07\n");
    // never wider than the terminal, down to what is always shown
    for (int columns = 46; columns < 260; columns++) {
        char shown[1024];
        struct log_view view = {.columns = columns};
        size_t n = log_view_line(&view, HEAD STEP "\n", strlen(HEAD STEP "\n"), shown);
        assert_true(n <= (size_t)columns + 1 && shown[n - 1] == '\n');
    }
}

static void test_sentence__is_never_cut(void **state)
{
    (void)state;
    const char *warning =
        "[2022-07-27 12:42:46,601] [ WARNING] - cannot save, speed: low, "
        "and more words than forty columns hold\n";
    assert_shown(
        (struct log_view){.columns = 40}, warning,
        "[12:42:46] WARNING - cannot save, speed: low, and more words than forty "
        "columns hold\n");
    assert_shown((struct log_view){.columns = 40, .is_coloured = true},
                 "[2022-07-27 12:42:46,601] [   ERROR] - no\n",
                 "\033[31m[12:42:46] ERROR\033[0m - no\n");
}

static void test_other_text__stays_as_it_is(void **state)
{
    static const char *const texts[] = {
        "",
        "\n",
        "[",
        "a library says something that is far wider than the terminal\n",
        "[2022-07-27 12:42:46,601] [ strange] - no level\n",
        "[2022-07-27 12:42:46,601] [    INFO]"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        assert_shown((struct log_view){.columns = 20, .is_coloured = true}, texts[i],
                     texts[i]);
}

static void test_terminal__environment_has_its_say(void **state)
{
    int master, terminal;
    struct winsize size = {.ws_row = 24, .ws_col = 93};
    (void)state;
    assert_int_equal(openpty(&master, &terminal, NULL, NULL, &size), 0);
    setenv("TERM", "xterm", 1);
    unsetenv("COLUMNS");
    unsetenv("NO_COLOR");
    struct log_view view = log_view_of(terminal);
    assert_true(view.is_terminal && view.is_coloured && view.is_redrawable);
    assert_int_equal(view.columns, 93);
    setenv("COLUMNS", "132", 1);
    assert_int_equal(log_view_of(terminal).columns, 132);
    setenv("COLUMNS", "wide", 1);
    assert_int_equal(log_view_of(terminal).columns, 93);
    setenv("NO_COLOR", "", 1); // counts only when it holds something
    assert_true(log_view_of(terminal).is_coloured);
    setenv("NO_COLOR", "1", 1);
    view = log_view_of(terminal);
    assert_true(!view.is_coloured && view.is_redrawable);
    unsetenv("NO_COLOR");
    setenv("TERM", "dumb", 1);
    view = log_view_of(terminal);
    assert_true(view.is_terminal && !view.is_coloured && !view.is_redrawable);
    close(master);
    close(terminal);
}

static void test_file__is_shown_as_it_is(void **state)
{
    int ends[2];
    (void)state;
    assert_int_equal(pipe(ends), 0);
    setenv("COLUMNS", "40", 1);
    struct log_view view = log_view_of(ends[1]);
    assert_true(!view.is_terminal && !view.is_coloured && view.columns == 0);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line__is_whole_where_there_is_room),
        cmocka_unit_test(test_step__loses_what_is_missed_least),
        cmocka_unit_test(test_sentence__is_never_cut),
        cmocka_unit_test(test_other_text__stays_as_it_is),
        cmocka_unit_test(test_terminal__environment_has_its_say),
        cmocka_unit_test(test_file__is_shown_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
