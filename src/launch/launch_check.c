/* What a job needs beside a good command. */
#include "base/fs.h"
#include "base/thread.h"
#include "launch/launch.h"
#include "launch/launch_command.h"
#include "launch/mpiexec_process.h"
#include "launch/pin.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int check_hosts(const struct launch_options *opt, struct error *err)
{
    char spelled[65536];
    int64_t n_places = launch_hosts_spell(spelled, sizeof spelled, opt->hosts, err);
    if (n_places < 0)
        return -1;
    if (n_places < opt->n_ranks)
        return error_set(err, ERROR_INPUT,
                         "--hosts '%.200s' has places for %lld ranks, and %lld are "
                         "wanted; say how many each takes, as in a:4,b:4",
                         opt->hosts, (long long)n_places, (long long)opt->n_ranks);
    return 0;
}

static int check_hostfile(const char *path, struct error *err)
{
    char *text;
    size_t n;
    if (fs_read_all(path, 64 << 20, &text, &n, err)) {
        err->kind = ERROR_INPUT;
        return error_prefix(err, "--hostfile");
    }
    bool is_empty = text[strspn(text, " \t\r\n")] == '\0';
    free(text);
    if (is_empty)
        return error_set(err, ERROR_INPUT, "--hostfile '%s' names no host", path);
    return 0;
}

/* A program and its arguments. Both libraries cut them at spaces, whatever quotes say,
 * and Open MPI takes what is between colons for alternatives. */
static int check_rsh(const char *rsh, struct error *err)
{
    char path[PATH_MAX], program[PATH_MAX];
    size_t n = strcspn(rsh, " ");
    if (rsh[strcspn(rsh, "\t\n:,'\"\\")] != '\0' || n == 0 || n >= sizeof program)
        return error_set(err, ERROR_INPUT,
                         "--rsh '%s' must be a program and its arguments with spaces "
                         "between them, without quotes, colons or commas",
                         rsh);
    snprintf(program, sizeof program, "%.*s", (int)n, rsh);
    if (!mpiexec_find_program(program, path, sizeof path))
        return error_set(err, ERROR_INPUT, "--rsh: '%s' is not a program that can be run",
                         program);
    return 0;
}

/* A host may be listed by its whole name or by the first part of it. */
static bool is_this_host(const char *name, const char *own)
{
    size_t n = strcspn(own, ".");
    return strcmp(name, own) == 0 || strcmp(name, "localhost") == 0 ||
           (strncmp(name, own, n) == 0 && (name[n] == '\0' || name[n] == '.'));
}

int64_t launch_ranks_here(const struct launch_options *opt)
{
    char spelled[65536], name[256], own[256] = "";
    int64_t n_here = 0;
    struct error ignored;
    if (!opt->hosts)
        return opt->hostfile ? 0 : opt->n_ranks;
    gethostname(own, sizeof own - 1);
    if (launch_hosts_spell(spelled, sizeof spelled, opt->hosts, &ignored) < 0)
        return 0;
    for (char *at = spelled; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        int n;
        if (sscanf(at, "%255[^:]:%d", name, &n) == 2 && is_this_host(name, own))
            n_here += n;
    }
    return n_here < opt->n_ranks ? n_here : opt->n_ranks;
}

bool launch_is_crowded(int64_t n_ranks)
{
    return n_ranks > (int64_t)LAUNCH_RANKS_PER_PROCESSOR * thread_processors();
}

static int check_processors(const struct launch_options *opt, struct error *err)
{
    int64_t n = launch_ranks_here(opt);
    if (opt->is_oversubscribed || !launch_is_crowded(n))
        return 0;
    return error_set(err, ERROR_INPUT,
                     "too many ranks: %lld processes on this machine of %d processors, "
                     "where more than %d need --oversubscribe",
                     (long long)n, thread_processors(),
                     LAUNCH_RANKS_PER_PROCESSOR * thread_processors());
}

int launch_check(const struct launch_options *opt, struct error *err)
{
    if (opt->n_ranks < 1 || opt->n_ranks > LAUNCH_RANKS_MOST)
        return error_set(err, ERROR_INPUT,
                         "the number of ranks must be 1 to %d, and is %lld",
                         LAUNCH_RANKS_MOST, (long long)opt->n_ranks);
    if (getenv(launch_dialect()->local_size))
        return error_set(err, ERROR_INPUT,
                         "this process is itself a rank of a job (%s is set); start the "
                         "job outside of it",
                         launch_dialect()->local_size);
    if (opt->hosts && opt->hostfile)
        return error_set(err, ERROR_INPUT, "--hosts and --hostfile exclude each other");
    if (opt->hosts && check_hosts(opt, err))
        return -1;
    if (opt->hostfile && check_hostfile(opt->hostfile, err))
        return -1;
    if (opt->rsh && check_rsh(opt->rsh, err))
        return -1;
    if (opt->log_dir && !opt->log_dir[0])
        return error_set(err, ERROR_INPUT, "--log_dir is empty");
    if (opt->max_restarts < 0 || opt->max_restarts > LAUNCH_RESTARTS_MOST)
        return error_set(err, ERROR_INPUT, "--max_restarts must be 0 to %d, and is %lld",
                         LAUNCH_RESTARTS_MOST, (long long)opt->max_restarts);
    return check_processors(opt, err);
}
