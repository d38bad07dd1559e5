/*
 * trefoil top - what the board's first screen says, in a terminal: once a second on one,
 * and once where the output goes elsewhere.
 */
#include "base/log_view.h"
#include "base/stop.h"
#include "board/board.h"
#include "board/top_screen.h"
#include "cli/cmd.h"
#include "cli/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* Another screen than the shell's, without a cursor; and back. */
#define SCREEN_BEGIN "\033[?1049h\033[?25l"
#define SCREEN_END "\033[?25h\033[?1049l"

struct request {
    struct option_list dirs;
};

static bool shows_unicode(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *value = getenv(names[i]);
        if (value && value[0])
            return strstr(value, "UTF-8") || strstr(value, "utf8");
    }
    return false;
}

/* Asked each time: the terminal may have got another size. */
static struct top_screen screen_of(const struct log_view *view)
{
    struct winsize size = {0};
    struct top_screen screen = {.columns = view->columns,
                                .is_coloured = view->is_coloured,
                                .has_blocks = shows_unicode()};
    if (view->is_redrawable && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
        screen.columns = size.ws_col > 0 ? size.ws_col : view->columns;
        screen.rows = size.ws_row > 1 ? size.ws_row - 1 : 0;
    }
    return screen;
}

/* Lines are written over the old ones, each cleared behind its end: nothing flickers. */
static void redraw(const struct board_text *text)
{
    fputs("\033[H", stdout);
    for (int64_t i = 0; i < text->n; i++) {
        if (text->bytes[i] == '\n')
            fputs("\033[K", stdout);
        putchar(text->bytes[i]);
    }
    fputs("\033[J", stdout);
}

static int show(struct board *b, struct error *err)
{
    struct log_view view = log_view_of(STDOUT_FILENO);
    struct board_text text = {0};
    int rc = 0;
    bool is_live = view.is_redrawable;
    if (is_live)
        fputs(SCREEN_BEGIN, stdout);
    while (rc == 0) {
        bool has_more = board_refresh(b);
        while (has_more && !is_live && !stop_is_wanted())
            has_more = board_refresh(b);
        struct top_screen screen = screen_of(&view);
        board_text_reset(&text);
        top_screen_write(&screen, b, &text);
        if (is_live)
            redraw(&text);
        else
            fwrite(text.bytes, 1, (size_t)text.n, stdout);
        rc = print_check("the screen", err);
        if (!is_live || stop_is_wanted())
            break;
        if (!has_more) // a signal ends the sleep: that is what it asks for
            nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
        if (stop_is_wanted())
            break;
    }
    if (is_live) {
        fputs(SCREEN_END, stdout);
        if (rc == 0)
            rc = print_check("the screen", err);
    }
    board_text_release(&text);
    return rc;
}

static int run_top(void *context, struct error *err)
{
    const struct request *r = context;
    struct board b;
    stop_watch(STOP_COMMAND);
    int rc = board_init(&b, r->dirs.values, r->dirs.n_values, err);
    if (rc == 0)
        rc = show(&b, err);
    board_release(&b);
    return rc;
}

int cmd_top(int argc, char **argv)
{
    struct request r = {.dirs = {0}};
    const struct option_spec specs[] = {
        {"dir", 0, OPTION_OPERANDS, &r.dirs, true, "DIR",
         "Output directories of runs, or directories that hold such."},
    };
    const struct command command = {
        "trefoil top", "Show runs in the terminal, live or finished; Ctrl-C ends it.",
        specs, (int)ARRAY_LEN(specs)};
    int code = command_run(&command, argc, argv, run_top, &r);
    options_list_release(&r.dirs);
    return code;
}
