/*
 * trefoil board - runs on a web page: live, finished or dead, one or several.
 *
 * A process of its own that only reads the directories it is given, so that whatever
 * happens to it, or is asked of it, training does not notice.
 */
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/stop.h"
#include "board/board.h"
#include "board/board_page.h"
#include "board/board_server.h"
#include "cli/cmd.h"
#include "cli/options.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define TICK_SECONDS 1.0

struct request {
    struct option_list dirs;
    const char *listen, *token, *save;
    int64_t port;
};

/* -- serving ------------------------------------------------------------------------- */

static bool is_v6(const char *address)
{
    return strchr(address, ':') != NULL;
}

/* The address to open, with the token where one is needed; and for people who are on
 * another machine the line that brings the port to them. */
static int print_address(const struct request *r, const struct board_server *server,
                         struct error *err)
{
    const struct board_guard *guard = board_server_guard(server);
    const struct passwd *user = getpwuid(geteuid());
    const char *name = is_v6(r->listen) ? "[::1]" : "127.0.0.1";
    int port = board_server_port(server);
    char given[256];
    if (is_v6(r->listen))
        snprintf(given, sizeof given, "[%s]", r->listen);
    else
        snprintf(given, sizeof given, "%s", r->listen);
    bool is_any = strcmp(r->listen, "0.0.0.0") == 0 || strcmp(r->listen, "::") == 0;
    printf("http://%s:%d/%s%s\n", is_any ? guard->host : given, port,
           guard->token[0] ? "?token=" : "", guard->token);
    if (guard->is_local)
        printf("from another machine: ssh -L %d:%s:%d %s%s%s and open "
               "http://127.0.0.1:%d/%s%s\n",
               port, name, port, user ? user->pw_name : "", user ? "@" : "", guard->host,
               port, guard->token[0] ? "?token=" : "", guard->token);
    return print_check("the address", err);
}

static void sleep_until(double moment)
{
    double seconds = moment - clock_seconds();
    if (seconds <= 0)
        return;
    struct timespec part = {.tv_sec = (time_t)seconds};
    part.tv_nsec = (long)((seconds - (double)part.tv_sec) * 1e9);
    nanosleep(&part, NULL); // a signal ends it: that is what it is asked for
}

static int serve(const struct request *r, struct board *b, struct error *err)
{
    const struct board_server_options options = {
        .address = r->listen, .port = r->port, .token = r->token};
    struct board_server *server;
    if (board_server_open(&server, b, &options, err))
        return -1;
    int rc = print_address(r, server, err);
    for (double next = clock_seconds(); rc == 0 && !stop_is_wanted();) {
        bool has_more = board_refresh(b);
        if (has_more && clock_seconds() < next)
            continue;
        board_server_tick(server);
        next = clock_seconds() + TICK_SECONDS;
        if (!has_more)
            sleep_until(next);
    }
    board_server_close(server);
    return rc;
}

/* -- saving -------------------------------------------------------------------------- */

static int save(const struct request *r, struct board *b, struct error *err)
{
    struct board_text data = {0}, page = {0};
    bool all[BOARD_RUNS_MOST];
    int rc = -1;
    memset(all, true, sizeof all);
    while (board_refresh(b))
        if (stop_check(err))
            return -1;
    if (b->n_runs == 0) {
        error_set(err, ERROR_INPUT,
                  "'%s' holds no run: there is no " RUN_FILE_NAME " in it, nor in a "
                  "directory in it",
                  r->dirs.values[0]);
        goto done;
    }
    board_write_saved(b, all, &data);
    if (board_page_save(&data, &page, err) == 0)
        rc = fs_write_output(r->save, page.bytes, (size_t)page.n, err);
done:
    board_text_release(&data);
    board_text_release(&page);
    return rc;
}

/* -- the command --------------------------------------------------------------------- */

static int run_board(void *context, struct error *err)
{
    const struct request *r = context;
    struct board b;
    if (r->port < -1 || r->port > 65535)
        return error_set(err, ERROR_INPUT, "--port must be 0 to 65535");
    stop_watch(STOP_COMMAND);
    int rc = board_init(&b, r->dirs.values, r->dirs.n_values, err);
    if (rc == 0)
        rc = r->save ? save(r, &b, err) : serve(r, &b, err);
    board_release(&b);
    return rc;
}

int cmd_board(int argc, char **argv)
{
    struct request r = {.listen = "127.0.0.1", .port = -1};
    const struct option_spec specs[] = {
        {"dir", 0, OPTION_OPERANDS, &r.dirs, true, "DIR",
         "Output directories of runs, or directories that hold such."},
        {"port", 0, OPTION_INT, &r.port, false, "PORT",
         "Port to listen on; 0 takes any (6060, or the next that is free)."},
        {"listen", 0, OPTION_TEXT, &r.listen, false, "ADDRESS",
         "Address to listen on (127.0.0.1, this machine alone); another one needs a "
         "token."},
        {"token", 0, OPTION_TEXT, &r.token, false, "TOKEN",
         "What a reader must know; made and printed where it is needed and left out."},
        {"save", 0, OPTION_TEXT, &r.save, false, "FILE",
         "Write the page with all data inside to one HTML file, and serve nothing."},
    };
    const struct command command = {"trefoil board",
                                    "Show runs on a web page, live or finished.", specs,
                                    (int)ARRAY_LEN(specs)};
    int code = command_run(&command, argc, argv, run_board, &r);
    options_list_release(&r.dirs);
    return code;
}
