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
#include "cli/board_start.h"
#include "cli/cmd.h"
#include "cli/options.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TICK_SECONDS 1.0

struct request {
    struct option_list dirs;
    const char *listen, *token, *token_file, *save;
    int64_t port;
    bool has_no_token;
};

/* -- the token ----------------------------------------------------------------------- */

struct token {
    char text[BOARD_TOKEN_BYTES]; // "": none is asked for
    char file[PATH_MAX];          // that holds it, or ""
    const char *place;            // for those who do not have it
};

/* The file that every board of this user shares. Where it cannot be created, this board has
 * a token of its own: it is not served without one. */
static int load_own_token(struct token *t, struct error *err)
{
    const char *state = getenv("XDG_STATE_HOME");
    struct error reason;
    t->place = state && state[0] == '/'
                   ? "in $XDG_STATE_HOME/" BOARD_TOKEN_NAME " of the user who started it"
                   : "in ~/.local/state/" BOARD_TOKEN_NAME " of the user who started it";
    if (board_token_path(t->file, sizeof t->file, &reason) == 0 &&
        board_token_create(t->file, &reason) == 0)
        return board_token_read(t->file, t->text, err);
    log_warning("the token cannot be kept, so the next start has another one: %s; "
                "--token_file FILE names another place",
                reason.text);
    t->place = "known only to those who see what it printed";
    t->file[0] = 0;
    return board_token_make(t->text, err);
}

/* Other users can read the words of a process: the token does not stay there. */
static void hide_word(const char *word)
{
    memset((char *)(uintptr_t)word, 'x', strlen(word));
}

static int load_token(const struct request *r, struct token *t, struct error *err)
{
    *t = (struct token){.place = ""};
    if ((r->token != NULL) + (r->token_file != NULL) + r->has_no_token > 1)
        return error_set(err, ERROR_INPUT,
                         "--token, --token_file and --no_token exclude each other: give "
                         "one of them");
    if (r->has_no_token)
        return 0;
    if (r->token) {
        t->place = "known to the user who started it with --token";
        int rc = board_token_take(t->text, r->token, "--token", err);
        hide_word(r->token);
        return rc;
    }
    if (r->token_file && !r->token_file[0])
        return error_set(
            err, ERROR_INPUT,
            "--token_file names no file: leave it out, and the token is kept "
            "in your home directory");
    if (!r->token_file)
        return load_own_token(t, err);
    t->place = "in the file that its user named with --token_file";
    snprintf(t->file, sizeof t->file, "%s", r->token_file);
    if (board_token_create(t->file, err))
        return -1;
    return board_token_read(t->file, t->text, err);
}

/* -- serving ------------------------------------------------------------------------- */

static bool is_v6(const char *address)
{
    return strchr(address, ':') != NULL;
}

/* Beside a run, standard output is the log of the run, which others may read and which is
 * kept: there the token is shown on a terminal only. */
static bool may_print_token(void)
{
    return isatty(STDOUT_FILENO) || !getenv(BOARD_START_ENV);
}

static void warn_of_readers(const struct token *t, const struct board_guard *guard)
{
    struct stat st;
    if (!t->text[0])
        log_warning("--no_token: %s can read these runs",
                    guard->is_local ? "every user of this machine"
                                    : "everybody who can reach this address");
    else if (may_print_token() && fstat(STDOUT_FILENO, &st) == 0 && S_ISREG(st.st_mode) &&
             (st.st_mode & (S_IRGRP | S_IROTH)))
        log_warning(
            "the address with its token goes to a file of mode %03o, which others "
            "may read: make it private",
            (unsigned)(st.st_mode & 0777));
}

/* The address to open, with the token; the file of the token; and for people who are on
 * another machine the line that brings the port to them. */
static int print_address(const struct request *r, const struct token *t,
                         const struct board_server *server, struct error *err)
{
    const struct board_guard *guard = board_server_guard(server);
    const struct passwd *user = getpwuid(geteuid());
    const char *name = is_v6(r->listen) ? "[::1]" : "127.0.0.1";
    int port = board_server_port(server);
    char given[256], query[BOARD_TOKEN_BYTES + 16] = "";
    if (is_v6(r->listen))
        snprintf(given, sizeof given, "[%s]", r->listen);
    else
        snprintf(given, sizeof given, "%s", r->listen);
    if (t->text[0] && may_print_token())
        snprintf(query, sizeof query, "?token=%s", t->text);
    bool is_any = strcmp(r->listen, "0.0.0.0") == 0 || strcmp(r->listen, "::") == 0;
    printf("http://%s:%d/%s\n", is_any ? guard->host : given, port, query);
    if (guard->is_local)
        printf("from another machine: ssh -L %d:%s:%d %s%s%s and open "
               "http://127.0.0.1:%d/%s\n",
               port, name, port, user ? user->pw_name : "", user ? "@" : "", guard->host,
               port, query);
    if (t->file[0])
        printf("%s is in '%s', which only you can read\n",
               query[0] ? "the token" : "add ?token=TOKEN to the address: the token",
               t->file);
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
    struct token token;
    struct board_server *server;
    if (load_token(r, &token, err))
        return -1;
    const struct board_server_options options = {.address = r->listen,
                                                 .port = r->port,
                                                 .token = token.text,
                                                 .token_place = token.place};
    if (board_server_open(&server, b, &options, err))
        return -1;
    warn_of_readers(&token, board_server_guard(server));
    int rc = print_address(r, &token, server, err);
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
         "Address to listen on (127.0.0.1: every user of this machine can connect, and "
         "needs the token)."},
        {"token", 0, OPTION_TEXT, &r.token, false, "TOKEN",
         "What a reader must know, as Authorization: Bearer or ?token= (kept in "
         "--token_file)."},
        {"token_file", 0, OPTION_TEXT, &r.token_file, false, "FILE",
         "File of the token, made where it is not there, for its owner alone "
         "(~/.local/state/" BOARD_TOKEN_NAME ")."},
        {"no_token", 0, OPTION_FLAG, &r.has_no_token, false, NULL,
         "Answer without a token: everybody who can connect can read the runs."},
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
