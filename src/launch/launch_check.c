/* What a job needs beside a good command. */
#include "base/fs.h"
#include "launch/launch.h"
#include "launch/launch_command.h"
#include "launch/mpiexec_process.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

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

/* Open MPI takes the program as a list with ':' between and cuts it at spaces. */
static int check_rsh(const char *rsh, struct error *err)
{
    char path[PATH_MAX];
    if (rsh[strcspn(rsh, " \t\n:,")] != '\0')
        return error_set(err, ERROR_INPUT,
                         "--rsh '%s' must be one program, and its path have no spaces, "
                         "colons or commas",
                         rsh);
    if (!mpiexec_find_program(rsh, path, sizeof path))
        return error_set(err, ERROR_INPUT, "--rsh '%s' is not a program that can be run",
                         rsh);
    return 0;
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
    return 0;
}
