#include "launch/job_options.h"

#include "base/thread.h"
#include "comm/comm.h"
#include "launch/mpiexec.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* -- lists --------------------------------------------------------------------------- */

/* A whole number without sign and of digits only, at most `most`; -1: it is not. */
static int64_t parse_count(const char *text, size_t n, int64_t most)
{
    int64_t value = n > 0 ? 0 : -1;
    for (size_t i = 0; i < n && value >= 0; i++) {
        value = isdigit((unsigned char)text[i]) ? value * 10 + (text[i] - '0') : -1;
        value = value > most ? -1 : value;
    }
    return value;
}

/* Names are letters, digits, '.', '-' and '_', and begin with a letter or digit: so that
 * none can be taken for an option. */
static bool is_host_name(const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] >= 128 ||
            (!isalnum((unsigned char)name[i]) && (i == 0 || !strchr(".-_", name[i]))))
            return false;
    return n > 0;
}

int64_t launch_hosts_spell(char *buf, size_t size, const char *hosts, struct error *err)
{
    int64_t total = 0;
    size_t used = 0;
    for (const char *at = hosts;; at++) {
        size_t n_all = strcspn(at, ","), n_name = strcspn(at, ",:");
        int64_t n_ranks =
            n_name == n_all
                ? 1
                : parse_count(at + n_name + 1, n_all - n_name - 1, LAUNCH_RANKS_MOST);
        if (!is_host_name(at, n_name) || n_ranks < 1)
            return error_set(err, ERROR_INPUT,
                             "--hosts: '%.*s' in '%.200s' is not NAME or NAME:RANKS",
                             (int)i64_min((int64_t)n_all, 200), at, hosts);
        total += n_ranks;
        int n = snprintf(buf + used, size - used, "%s%.*s:%lld", used ? "," : "",
                         (int)n_name, at, (long long)n_ranks);
        if (n < 0 || (size_t)n >= size - used)
            return error_set(err, ERROR_INPUT,
                             "--hosts is too long; write the hosts to a file and pass it "
                             "with --hostfile");
        used += (size_t)n;
        at += n_all;
        if (!*at)
            return total;
    }
}

const char *launch_hosts_next(const char *spelled, char name[256], int *n)
{
    if (!spelled || sscanf(spelled, "%255[^:]:%d", name, n) != 2)
        return NULL;
    spelled += strcspn(spelled, ",");
    return *spelled ? spelled + 1 : spelled;
}

int64_t launch_count_devices(const char *devices, struct error *err)
{
    int64_t n = 0;
    for (const char *at = devices;; at++) {
        at += strspn(at, " ");
        size_t n_digits = strspn(at, "0123456789");
        if (parse_count(at, n_digits, LAUNCH_RANKS_MOST - 1) != n)
            return error_set(err, ERROR_INPUT,
                             "--devices '%.200s' must list the local ranks, 0,1,2,... "
                             "without gaps; number %lld is not %lld",
                             devices, (long long)n + 1, (long long)n);
        n++;
        at += n_digits;
        at += strspn(at, " ");
        if (!*at)
            return n;
        if (*at != ',')
            return error_set(err, ERROR_INPUT,
                             "--devices '%.200s' must list the local ranks, separated by "
                             "commas",
                             devices);
    }
}

/* A host may be listed by its whole name or by the first part of it. */
static bool is_this_host(const char *name)
{
    char own[256] = "";
    gethostname(own, sizeof own - 1);
    size_t n = strcspn(own, ".");
    return strcmp(name, own) == 0 || strcmp(name, "localhost") == 0 ||
           (strncmp(name, own, n) == 0 && (name[n] == '\0' || name[n] == '.'));
}

int64_t launch_ranks_here(const struct launch_options *opt)
{
    char spelled[LAUNCH_HOSTS_BYTES], name[256];
    int64_t n_here = 0;
    int n;
    struct error ignored;
    if (!opt->hosts)
        return opt->hostfile ? 0 : opt->n_ranks;
    if (launch_hosts_spell(spelled, sizeof spelled, opt->hosts, &ignored) < 0)
        return 0;
    for (const char *at = spelled; (at = launch_hosts_next(at, name, &n));)
        n_here += is_this_host(name) ? n : 0;
    return i64_min(n_here, opt->n_ranks);
}

/* -- checks -------------------------------------------------------------------------- */

static int check_hosts(const struct launch_options *opt, struct error *err)
{
    char spelled[LAUNCH_HOSTS_BYTES];
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
    struct stat info;
    if (stat(path, &info) || access(path, R_OK))
        return error_set(err, ERROR_INPUT, "--hostfile: cannot read '%s': %s", path,
                         strerror(errno));
    if (S_ISREG(info.st_mode) && info.st_size == 0)
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

static int check_processors(const struct launch_options *opt, struct error *err)
{
    int64_t n = launch_ranks_here(opt);
    int n_processors = thread_processors();
    if (opt->is_oversubscribed || !thread_is_crowded(n))
        return 0;
    return error_set(err, ERROR_INPUT,
                     "too many ranks: %lld processes on this machine of %d processors, "
                     "where more than %d need --oversubscribe",
                     (long long)n, n_processors, RANKS_PER_PROCESSOR * n_processors);
}

int launch_check(const struct launch_options *opt, struct error *err)
{
    if (opt->n_ranks < 1 || opt->n_ranks > LAUNCH_RANKS_MOST)
        return error_set(err, ERROR_INPUT,
                         "the number of ranks must be 1 to %d, and is %lld",
                         LAUNCH_RANKS_MOST, (long long)opt->n_ranks);
    struct comm_launch me = comm_launch_info();
    if (me.local_size > 0)
        return error_set(err, ERROR_INPUT,
                         "this process is itself a rank of a job (%s is set); start the "
                         "job outside of it",
                         me.launcher);
    if (opt->hosts && opt->hostfile)
        return error_set(err, ERROR_INPUT, "--hosts and --hostfile exclude each other");
    if ((opt->hosts && check_hosts(opt, err)) ||
        (opt->hostfile && check_hostfile(opt->hostfile, err)) ||
        (opt->rsh && check_rsh(opt->rsh, err)))
        return -1;
    if (opt->log_dir && !opt->log_dir[0])
        return error_set(err, ERROR_INPUT, "--log_dir is empty");
    if (opt->max_restarts < 0 || opt->max_restarts > LAUNCH_RESTARTS_MOST)
        return error_set(err, ERROR_INPUT, "--max_restarts must be 0 to %d, and is %lld",
                         LAUNCH_RESTARTS_MOST, (long long)opt->max_restarts);
    return check_processors(opt, err);
}
