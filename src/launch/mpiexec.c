#include "launch/mpiexec.h"

#include "base/process.h"
#include "base/thread.h"
#include "comm/comm.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef TREFOIL_MPI_FLAVOUR
#define TREFOIL_MPI_FLAVOUR "openmpi"
#endif
#ifndef TREFOIL_MPIEXEC
#define TREFOIL_MPIEXEC "" // the build found none: the names of the dialect are tried
#endif

/*
 * Open MPI binds ranks to single cores by itself, which would put all threads of a rank
 * on one: ranks pin themselves (pin.h). Ranks beyond the number of processors are
 * refused unless oversubscription is allowed; on given hosts the given numbers hold.
 * SIGTERM, SIGINT and SIGHUP make mpirun kill its ranks after two seconds, saved or not:
 * it does not hear them (and has its children hear them again). The daemons look after
 * each other: a host that is gone is found after 60 s, not after the 480 s that are Open
 * MPI's choice, while a cable that is out for a moment does no harm.
 */
const struct mpiexec_dialect mpiexec_openmpi = {
    .name = "Open MPI",
    .package = "openmpi-bin",
    .names = {"mpiexec.openmpi", "mpirun.openmpi"},
    .always = "--bind-to none --mca oob_tcp_keepalive_time 20 "
              "--mca oob_tcp_keepalive_intvl 5 --mca oob_tcp_keepalive_probes 8",
    .one_host = "--oversubscribe",
    .as_root = "--allow-run-as-root",
    .hosts = "--host",
    .hostfile = "--hostfile",
    .rsh = "--mca plm_rsh_agent",
    .exported = "-x TREFOIL_LOG_DIR -x TREFOIL_WATCH -x TREFOIL_JOB",
    .daemon = "--mca orte_launch_agent",
    .deaf_to = {SIGTERM, SIGINT, SIGHUP, SIGUSR1},
};

/*
 * MPICH's Hydra kills all ranks the moment one dies, and then nobody can tell which was
 * first: on one machine, where the launcher sees that by itself, it is told not to.
 * SIGTERM it passes on and no more, but a second SIGINT and the first SIGHUP end it: it
 * does not hear those. Its launcher "rsh" adds no word of its own to the program that
 * reaches hosts, where "ssh" adds -x.
 */
const struct mpiexec_dialect mpiexec_mpich = {
    .name = "MPICH",
    .package = "mpich",
    .names = {"mpiexec.mpich", "mpiexec.hydra"},
    .one_host = "-disable-auto-cleanup",
    .hosts = "-hosts",
    .hostfile = "-f",
    .rsh = "-launcher rsh -launcher-exec",
    .rsh_arguments = "HYDRA_LAUNCHER_EXTRA_ARGS",
    .deaf_to = {SIGINT, SIGHUP, SIGUSR1},
};

const struct mpiexec_dialect *mpiexec_dialect(void)
{
    return strcmp(TREFOIL_MPI_FLAVOUR, "mpich") == 0 ? &mpiexec_mpich : &mpiexec_openmpi;
}

void mpiexec_make_deaf(const struct mpiexec_dialect *dialect)
{
    sigset_t deaf_to;
    sigemptyset(&deaf_to);
    for (const int *number = dialect->deaf_to; *number; number++)
        sigaddset(&deaf_to, *number);
    sigprocmask(SIG_SETMASK, &deaf_to, NULL);
}

/* -- what is asked for --------------------------------------------------------------- */

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

/* As execvp() would find it; false: nowhere. */
static bool find_program(const char *name, char *path, size_t size)
{
    const char *at = getenv("PATH"), *slash = strchr(name, '/') ? "" : "/";
    struct stat info;
    for (at = !*slash ? "" : at ? at : "/usr/bin:/bin"; *name; at++) {
        size_t n = strcspn(at, ":"); // an empty one is the current directory
        int n_path = snprintf(path, size, "%.*s%s%s", (int)(n ? n : *slash != 0),
                              n ? at : ".", slash, name);
        if (n_path > 0 && (size_t)n_path < size && stat(path, &info) == 0 &&
            S_ISREG(info.st_mode) && access(path, X_OK) == 0)
            return true;
        at += n;
        if (!*at)
            break;
    }
    return false;
}

static int check_hosts(const struct launch_options *opt, struct error *err)
{
    char spelled[LAUNCH_HOSTS_BYTES];
    struct stat info;
    if (opt->hosts && opt->hostfile)
        return error_set(err, ERROR_INPUT, "--hosts and --hostfile exclude each other");
    int64_t n_places = opt->n_ranks;
    if (opt->hosts)
        n_places = launch_hosts_spell(spelled, sizeof spelled, opt->hosts, err);
    if (n_places >= 0 && n_places < opt->n_ranks)
        return error_set(err, ERROR_INPUT,
                         "--hosts '%.200s' has places for %lld ranks, and %lld are "
                         "wanted; say how many each takes, as in a:4,b:4",
                         opt->hosts, (long long)n_places, (long long)opt->n_ranks);
    if (opt->hostfile && (stat(opt->hostfile, &info) || access(opt->hostfile, R_OK)))
        return error_set(err, ERROR_INPUT, "--hostfile: cannot read '%s': %s",
                         opt->hostfile, strerror(errno));
    if (opt->hostfile && S_ISREG(info.st_mode) && info.st_size == 0)
        return error_set(err, ERROR_INPUT, "--hostfile '%s' names no host",
                         opt->hostfile);
    return n_places < 0 ? -1 : 0;
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
    if (find_program(program, path, sizeof path))
        return 0;
    return error_set(err, ERROR_INPUT, "--rsh: '%s' is not a program that can be run",
                     program);
}

int launch_check(const struct launch_options *opt, struct error *err)
{
    struct comm_launch me = comm_launch_info();
    int n_processors = thread_processors();
    if (opt->n_ranks < 1 || opt->n_ranks > LAUNCH_RANKS_MOST)
        return error_set(err, ERROR_INPUT,
                         "the number of ranks must be 1 to %d, and is %lld",
                         LAUNCH_RANKS_MOST, (long long)opt->n_ranks);
    if (me.local_size > 0)
        return error_set(err, ERROR_INPUT,
                         "this process is itself a rank of a job (%s is set); start the "
                         "job outside of it",
                         me.launcher);
    if (check_hosts(opt, err) || (opt->rsh && check_rsh(opt->rsh, err)))
        return -1;
    if (opt->log_dir && !opt->log_dir[0])
        return error_set(err, ERROR_INPUT, "--log_dir is empty");
    if (opt->max_restarts < 0 || opt->max_restarts > LAUNCH_RESTARTS_MOST)
        return error_set(err, ERROR_INPUT, "--max_restarts must be 0 to %d, and is %lld",
                         LAUNCH_RESTARTS_MOST, (long long)opt->max_restarts);
    int64_t n_here = launch_ranks_here(opt);
    if (opt->is_oversubscribed || !thread_is_crowded(n_here))
        return 0;
    return error_set(err, ERROR_INPUT,
                     "too many ranks: %lld processes on this machine of %d processors, "
                     "where more than %d need --oversubscribe",
                     (long long)n_here, n_processors, RANKS_PER_PROCESSOR * n_processors);
}

/* -- the command line ---------------------------------------------------------------- */

static void add_word(struct mpiexec_command *cmd, const char *word, size_t n)
{
    char **larger = realloc(cmd->words, ((size_t)cmd->n_words + 2) * sizeof *larger);
    cmd->words = larger ? larger : cmd->words;
    cmd->is_cut = cmd->is_cut || !larger || !(larger[cmd->n_words] = strndup(word, n));
    if (cmd->is_cut)
        return;
    cmd->words[++cmd->n_words] = NULL;
}

/* The words of `words`, and then `value` as one; nothing when either is NULL. */
static void add_option(struct mpiexec_command *cmd, const char *words, const char *value)
{
    for (size_t n; words && value && *words; words += n + (words[n] == ' ')) {
        n = strcspn(words, " ");
        add_word(cmd, words, n);
    }
    if (words && value && *value)
        add_word(cmd, value, strlen(value));
}

int mpiexec_command_build(struct mpiexec_command *cmd,
                          const struct mpiexec_dialect *dialect, const char *mpiexec,
                          const char *program, const struct launch_options *opt,
                          bool is_root, char *const *argv, struct error *err)
{
    char n_ranks[24], daemon[PATH_MAX + 64], hosts[LAUNCH_HOSTS_BYTES];
    bool has_hosts = opt->hosts || opt->hostfile;
    size_t n_rsh = opt->rsh ? strcspn(opt->rsh, dialect->rsh_arguments ? " " : "") : 0;
    *cmd = (struct mpiexec_command){0};
    snprintf(n_ranks, sizeof n_ranks, "%lld", (long long)opt->n_ranks);
    // daemons of other hosts are started by this program, which is there since ranks are
    snprintf(daemon, sizeof daemon, "%s " MPIEXEC_DAEMON_WORDS " orted", program);
    if (opt->hosts && launch_hosts_spell(hosts, sizeof hosts, opt->hosts, err) < 0)
        return -1;
    add_option(cmd, "", mpiexec);
    add_option(cmd, dialect->always, "");
    add_option(cmd, dialect->daemon, strchr(program, ' ') ? NULL : daemon);
    add_option(cmd, has_hosts ? NULL : dialect->one_host, "");
    add_option(cmd, dialect->hosts, opt->hosts ? hosts : NULL);
    add_option(cmd, dialect->hostfile, opt->hostfile);
    add_option(cmd, is_root ? dialect->as_root : NULL, "");
    if (opt->rsh) {
        add_option(cmd, dialect->rsh, "");
        add_word(cmd, opt->rsh, n_rsh);
    }
    if (dialect->exported) {
        add_option(cmd, dialect->exported, "");
        add_option(cmd, "-x", opt->is_oversubscribed ? "TREFOIL_OVERSUBSCRIBE" : NULL);
        add_option(cmd, "-x", opt->has_output ? "TREFOIL_OUTPUT" : NULL);
    }
    add_option(cmd, "-n", n_ranks);
    add_option(cmd, "", program);
    for (; *argv; argv++)
        add_word(cmd, *argv, strlen(*argv));
    if (!cmd->is_cut)
        return 0;
    mpiexec_command_release(cmd);
    return error_set(err, ERROR_RUNTIME, "out of memory for a command line");
}

void mpiexec_command_release(struct mpiexec_command *cmd)
{
    for (int i = 0; i < cmd->n_words; i++)
        free(cmd->words[i]);
    free(cmd->words);
    *cmd = (struct mpiexec_command){0};
}

int mpiexec_find(const struct mpiexec_dialect *dialect, char *path, size_t size,
                 struct error *err)
{
    if (find_program(TREFOIL_MPIEXEC, path, size) ||
        find_program(dialect->names[0], path, size) ||
        find_program(dialect->names[1], path, size))
        return 0;
    return error_set(err, ERROR_RUNTIME,
                     "several processes need the mpiexec of %s, which this program was "
                     "built with; neither %s nor %s was found; on Debian: apt install %s",
                     dialect->name, dialect->names[0], dialect->names[1],
                     dialect->package);
}

/* -- the process --------------------------------------------------------------------- */

/* Only calls that are allowed between fork() and exec(). */
static void become_mpiexec(const struct mpiexec_dialect *dialect, char **words,
                           int output, int results, pid_t parent)
{
    static const char complaint[] = "it could not be executed\n";
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(results, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    process_restore_signals();
    mpiexec_make_deaf(dialect);
    execv(words[0], words);
    ssize_t unused = write(STDERR_FILENO, complaint, sizeof complaint - 1);
    (void)unused;
    _exit(127);
}

int mpiexec_open(struct mpiexec_process *m, const struct mpiexec_dialect *dialect,
                 const struct mpiexec_command *cmd, bool has_results, struct error *err)
{
    int ends[2] = {-1, -1}, result_ends[2] = {-1, -1};
    pid_t parent = getpid();
    *m = (struct mpiexec_process){.pid = -1, .pidfd = -1, .output = -1, .results = -1};
    if (pipe2(ends, O_CLOEXEC) == 0 &&
        (!has_results || pipe2(result_ends, O_CLOEXEC) == 0) && (m->pid = fork()) == 0)
        become_mpiexec(dialect, cmd->words, ends[1],
                       has_results ? result_ends[1] : ends[1], parent);
    if (m->pid > 0)
        m->pidfd = pidfd_open(m->pid, 0);
    int why = errno;
    m->output = ends[0];
    m->results = result_ends[0];
    fcntl(m->output, F_SETFL, O_NONBLOCK);
    fcntl(m->results, F_SETFL, O_NONBLOCK);
    close(ends[1]);
    close(result_ends[1]);
    if (m->pidfd >= 0)
        return 0;
    return process_fork_failed(err, cmd->words[0], why);
}

bool mpiexec_listen(struct mpiexec_process *m, const char *mark,
                    void (*take)(void *context, const char *line), void *context)
{
    char buf[4096];
    ssize_t n = read(m->output, buf, sizeof buf);
    for (ssize_t i = 0; i < n || (i == 0 && n == 0 && m->n_line > 0); i++) {
        if (n > 0)
            m->line[m->n_line++] = buf[i];
        if (n > 0 && buf[i] != '\n' && m->n_line < sizeof m->line - 1)
            continue;
        m->line[m->n_line] = '\0'; // a line, or the end within one
        if (strncmp(m->line, mark, strlen(mark)) == 0)
            take(context, m->line + strlen(mark));
        else if (!m->is_heard)
            m->n_said += (size_t)i64_min(
                snprintf(m->said + m->n_said, sizeof m->said - m->n_said, "%s", m->line),
                (int64_t)(sizeof m->said - m->n_said) - 1);
        m->n_line = 0;
    }
    return n > 0;
}

void mpiexec_close(struct mpiexec_process *m)
{
    const int fds[] = {m->pidfd, m->output, m->results};
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* -- its words ----------------------------------------------------------------------- */

/* Open MPI: "... noticed that process rank 1 with PID 0 on node n exited on signal 9
 * (Killed)." MPICH: "=   PID 4711 RUNNING AT n". */
void mpiexec_told_death(const char *said, int *rank, int *pid, char host[256],
                        int *signal_number)
{
    const char *death = strstr(said, "noticed that process rank ");
    const char *by = death ? strstr(death, "exited on signal ") : NULL;
    const char *process = strstr(said, "=   PID ");
    *rank = by ? atoi(death + strlen("noticed that process rank ")) : -1;
    *signal_number = by ? atoi(by + strlen("exited on signal ")) : 0;
    *pid = -1;
    host[0] = '\0';
    if (process && sscanf(process, "=   PID %d RUNNING AT %255s", pid, host) != 2)
        *pid = -1;
}

/* Whether only Open MPI's long guesses, or the report of mpiexec's own kills, follow. */
static bool is_last_line(const char *line)
{
    static const char *const heads[] = {"This usually is", "This is usually",
                                        "Primary job  terminated",
                                        "mpiexec detected that one or more processes",
                                        "mpirun detected that one or more processes"};
    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        if (strncmp(line, heads[i], strlen(heads[i])) == 0)
            return true;
    return false;
}

/* Lines that are the same for every failure. */
static bool is_standard(const char *words)
{
    static const char *const parts[] = {
        "sent help message",        "Set MCA parameter \"orte_base_help",
        "ORTE_ERROR_LOG",           "reported by process",
        "on a NULL communicator",   "Unknown error",
        "MPI_ERRORS_ARE_FATAL",     "and potentially your MPI job",
        "Local abort before MPI_I", "Forwarding signal",
    };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (strstr(words, parts[i]))
            return true;
    return false;
}

/* Past the frame and the process "[host:4711] " at the beginning of a line. */
static const char *skip_head(const char *line, const char *end)
{
    static const char frame[] = "-=*# \t\r";
    line += strspn(line, frame);
    size_t n = strcspn(line, "] \n");
    if (line[0] == '[' && line[n] == ']' && memchr(line, ':', n))
        line += n + 1 + strspn(line + n + 1, frame);
    return line < end ? line : end;
}

/* With single spaces, and without the place in the library's source: an error that passes
 * through several functions is one. */
static void copy_line(char *words, size_t size, const char *line, const char *end)
{
    size_t n = 0;
    for (; line < end && n + 1 < size; line++)
        if (*line != ' ' || (n > 0 && words[n - 1] != ' '))
            words[n++] = *line;
    words[n] = '\0';
    char *place = strstr(words, " in file ");
    if (place && strstr(place, " at line "))
        *place = '\0';
}

void mpiexec_condense(const char *said, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (const char *line = said, *end; *line; line = *end ? end + 1 : end) {
        char words[512];
        end = line + strcspn(line, "\n");
        line = skip_head(line, end);
        if (line == end)
            continue; // a frame
        if (is_last_line(line))
            return;
        copy_line(words, sizeof words, line, end);
        if (is_standard(words) || strstr(text, words))
            continue; // or said before
        int n = snprintf(text + used, size - used, "%s%s", used ? " " : "", words);
        used += (size_t)i64_min(n, (int64_t)(size - used) - 1);
    }
}
