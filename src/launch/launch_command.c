#include "launch/launch_command.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef TREFOIL_MPI_FLAVOUR
#define TREFOIL_MPI_FLAVOUR "openmpi"
#endif

static const char *const no_words[] = {NULL};

/*
 * Open MPI binds ranks to single cores by itself, which would put all threads of a rank
 * on one: ranks pin themselves (pin.h). Ranks beyond the number of processors are
 * refused unless oversubscription is allowed; on given hosts the given numbers hold.
 * SIGTERM, SIGINT and SIGHUP make mpirun kill its ranks after two seconds, saved or not:
 * it does not hear them (and has its children hear them again). The daemons look after
 * each other: a host that is gone is found after 60 s, not after the 480 s that are Open
 * MPI's choice, while a cable that is out for a moment does no harm.
 */
static const char *const openmpi_names[] = {"mpiexec.openmpi", "mpirun.openmpi", NULL};
static const char *const openmpi_always[] = {"--bind-to",
                                             "none",
                                             "--mca",
                                             "oob_tcp_keepalive_time",
                                             "20",
                                             "--mca",
                                             "oob_tcp_keepalive_intvl",
                                             "5",
                                             "--mca",
                                             "oob_tcp_keepalive_probes",
                                             "8",
                                             NULL};
static const int openmpi_deaf_to[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, 0};
static const char *const openmpi_one_host[] = {"--oversubscribe", NULL};
static const char *const openmpi_rsh[] = {"--mca", "plm_rsh_agent", NULL};

const struct launch_dialect launch_dialect_openmpi = {
    .name = "Open MPI",
    .package = "openmpi-bin",
    .names = openmpi_names,
    .n_ranks = "-n",
    .hosts = "--host",
    .hostfile = "--hostfile",
    .rsh = openmpi_rsh,
    .always = openmpi_always,
    .one_host = openmpi_one_host,
    .as_root = "--allow-run-as-root",
    .rank = "OMPI_COMM_WORLD_RANK",
    .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
    .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
    .export_option = "-x",
    .deaf_to = openmpi_deaf_to,
    .daemon_parameter = "orte_launch_agent",
    .daemon = "orted",
    .stop_signal = SIGUSR2,
    .kills_job = true,
};

/*
 * MPICH's Hydra kills all ranks the moment one dies, and then nobody can tell which was
 * first: on one machine, where the launcher sees that by itself, it is told not to.
 * SIGTERM it passes on and no more, but a second SIGINT and the first SIGHUP end it: it
 * does not hear those. Its launcher "rsh" adds no word of its own to the program that
 * reaches hosts, where "ssh" adds -x.
 */
static const char *const mpich_names[] = {"mpiexec.mpich", "mpiexec.hydra", NULL};
static const char *const mpich_one_host[] = {"-disable-auto-cleanup", NULL};
static const int mpich_deaf_to[] = {SIGINT, SIGHUP, SIGUSR1, 0};
static const char *const mpich_rsh[] = {"-launcher", "rsh", "-launcher-exec", NULL};

const struct launch_dialect launch_dialect_mpich = {
    .name = "MPICH",
    .package = "mpich",
    .names = mpich_names,
    .n_ranks = "-n",
    .hosts = "-hosts",
    .hostfile = "-f",
    .rsh = mpich_rsh,
    .rsh_arguments = "HYDRA_LAUNCHER_EXTRA_ARGS",
    .always = no_words,
    .one_host = mpich_one_host,
    .as_root = NULL,
    .rank = "PMI_RANK",
    .local_rank = "MPI_LOCALRANKID",
    .local_size = "MPI_LOCALNRANKS",
    .export_option = NULL,
    .deaf_to = mpich_deaf_to,
    .stop_signal = SIGTERM,
    .kills_job = false,
};

const struct launch_dialect *launch_dialect(void)
{
    bool is_mpich = strcmp(TREFOIL_MPI_FLAVOUR, "mpich") == 0;
    return is_mpich ? &launch_dialect_mpich : &launch_dialect_openmpi;
}

/* -- words --------------------------------------------------------------------------- */

static int add_word(struct launch_command *cmd, const char *word, struct error *err)
{
    if (cmd->n_words + 2 > cmd->n_allocated) {
        int n = cmd->n_allocated * 2 + 16;
        char **larger = realloc(cmd->words, (size_t)n * sizeof *larger);
        if (!larger)
            return error_set(err, ERROR_RUNTIME, "out of memory for a command line");
        cmd->words = larger;
        cmd->n_allocated = n;
    }
    char *copy = strdup(word);
    if (!copy)
        return error_set(err, ERROR_RUNTIME, "out of memory for a command line");
    cmd->words[cmd->n_words++] = copy;
    cmd->words[cmd->n_words] = NULL;
    return 0;
}

static int add_words(struct launch_command *cmd, const char *const *words,
                     struct error *err)
{
    for (; *words; words++)
        if (add_word(cmd, *words, err))
            return -1;
    return 0;
}

/* "name value", or nothing when the value is NULL. */
static int add_option(struct launch_command *cmd, const char *name, const char *value,
                      struct error *err)
{
    if (!value)
        return 0;
    return add_word(cmd, name, err) || add_word(cmd, value, err) ? -1 : 0;
}

static int add_hosts(struct launch_command *cmd, const struct launch_dialect *dialect,
                     const struct launch_options *opt, struct error *err)
{
    if (!opt->hosts && !opt->hostfile)
        return add_words(cmd, dialect->one_host, err);
    if (opt->hosts) {
        size_t size = 8 * strlen(opt->hosts) + 8; // ":1" more for each name
        char *spelled = malloc(size);
        if (!spelled)
            return error_set(err, ERROR_RUNTIME, "out of memory for a list of hosts");
        int rc = launch_hosts_spell(spelled, size, opt->hosts, err) < 0 ||
                         add_option(cmd, dialect->hosts, spelled, err)
                     ? -1
                     : 0;
        free(spelled);
        if (rc)
            return -1;
    }
    return add_option(cmd, dialect->hostfile, opt->hostfile, err);
}

/* The program that reaches hosts, called as PROGRAM ARGUMENTS HOST COMMAND. */
static int add_rsh(struct launch_command *cmd, const struct launch_dialect *dialect,
                   const char *rsh, struct error *err)
{
    if (add_words(cmd, dialect->rsh, err) || add_word(cmd, rsh, err))
        return -1;
    if (dialect->rsh_arguments) // they go by the environment
        cmd->words[cmd->n_words - 1][strcspn(rsh, " ")] = '\0';
    return 0;
}

void launch_make_deaf(const struct launch_dialect *dialect)
{
    sigset_t deaf_to;
    sigemptyset(&deaf_to);
    for (const int *number = dialect->deaf_to; *number; number++)
        sigaddset(&deaf_to, *number);
    sigprocmask(SIG_SETMASK, &deaf_to, NULL);
}

/* Daemons of other hosts are started by this program, which is there since ranks are. A
 * path with a space in it would be cut there. */
static int add_daemon(struct launch_command *cmd, const struct launch_dialect *dialect,
                      const char *program, struct error *err)
{
    char words[PATH_MAX + 64];
    if (!dialect->daemon || strchr(program, ' '))
        return 0;
    snprintf(words, sizeof words, "%s " LAUNCH_DAEMON_WORDS " %s", program,
             dialect->daemon);
    return add_word(cmd, "--mca", err) ||
                   add_option(cmd, dialect->daemon_parameter, words, err)
               ? -1
               : 0;
}

int launch_command_build(struct launch_command *cmd, const struct launch_dialect *dialect,
                         const char *mpiexec, const char *program,
                         const struct launch_options *opt, bool is_root,
                         char *const *argv, struct error *err)
{
    char n_ranks[24];
    snprintf(n_ranks, sizeof n_ranks, "%lld", (long long)opt->n_ranks);
    *cmd = (struct launch_command){0};
    bool failed = add_word(cmd, mpiexec, err) || add_words(cmd, dialect->always, err) ||
                  add_daemon(cmd, dialect, program, err) ||
                  add_hosts(cmd, dialect, opt, err);
    if (!failed && is_root && dialect->as_root)
        failed = add_word(cmd, dialect->as_root, err);
    if (!failed && opt->rsh)
        failed = add_rsh(cmd, dialect, opt->rsh, err);
    if (!failed && dialect->export_option)
        failed =
            add_option(cmd, dialect->export_option, LAUNCH_ENV_LOG_DIR, err) ||
            add_option(cmd, dialect->export_option, LAUNCH_ENV_WATCH, err) ||
            add_option(cmd, dialect->export_option, LAUNCH_ENV_JOB, err) ||
            add_option(cmd, dialect->export_option,
                       opt->is_oversubscribed ? LAUNCH_ENV_OVERSUBSCRIBE : NULL, err);
    if (!failed)
        failed = add_option(cmd, dialect->n_ranks, n_ranks, err) ||
                 add_word(cmd, program, err);
    for (; !failed && *argv; argv++)
        failed = add_word(cmd, *argv, err);
    if (failed)
        launch_command_release(cmd);
    return failed ? -1 : 0;
}

void launch_command_release(struct launch_command *cmd)
{
    for (int i = 0; i < cmd->n_words; i++)
        free(cmd->words[i]);
    free(cmd->words);
    *cmd = (struct launch_command){0};
}

/* -- lists --------------------------------------------------------------------------- */

/* A whole number without sign and of digits only, at most `most`; -1: it is not. */
static int64_t parse_count(const char *text, size_t n, int64_t most)
{
    int64_t value = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = value * 10 + (text[i] - '0');
        if (value > most)
            return -1;
    }
    return n > 0 ? value : -1;
}

/* Names are letters, digits, '.', '-' and '_', and begin with a letter or digit: so that
 * none can be taken for an option. */
static bool is_host_name(const char *name, size_t n)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    static const char marks[] = ".-_";
    for (size_t i = 0; i < n; i++)
        if (!name[i] || (!strchr(plain, name[i]) && (i == 0 || !strchr(marks, name[i]))))
            return false;
    return n > 0;
}

int64_t launch_hosts_spell(char *buf, size_t size, const char *hosts, struct error *err)
{
    int64_t total = 0;
    size_t used = 0;
    for (const char *at = hosts;; at++) {
        size_t n_all = strcspn(at, ",");
        size_t n_name = strcspn(at, ",:");
        int64_t n_ranks =
            n_name == n_all
                ? 1
                : parse_count(at + n_name + 1, n_all - n_name - 1, LAUNCH_RANKS_MOST);
        if (!is_host_name(at, n_name) || n_ranks < 1)
            return error_set(err, ERROR_INPUT,
                             "--hosts: '%.*s' in '%.200s' is not NAME or NAME:RANKS",
                             (int)(n_all > 200 ? 200 : n_all), at, hosts);
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
