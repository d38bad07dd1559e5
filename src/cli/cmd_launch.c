#include "base/log.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "cli/pretrain_options.h"
#include "cli/resume_point.h"
#include "cli/self_launch.h"
#include "launch/launch.h"

#include <string.h>

#define N_NOT_GIVEN INT64_MIN

/* The commands that know how to be one rank of several. */
static const char *const parallel_commands[] = {"pretrain", "eval", "generate"};

/* Where the options of launch end and the command begins: all options take a value, and
 * --help ends them wherever it stands. */
static int find_command(int argc, char **argv)
{
    int i = 1;
    while (i < argc && argv[i][0] == '-') {
        bool is_alone = strchr(argv[i], '=') || strcmp(argv[i], "--help") == 0 ||
                        strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--version") == 0;
        is_alone |= argv[i][1] != '-' && strlen(argv[i]) > 2; // -n8
        i += is_alone ? 1 : 2;
    }
    return i < argc ? i : argc;
}

static int check_command(const char *command, struct error *err)
{
    if (!command)
        return error_set(err, ERROR_INPUT,
                         "trefoil launch: the command is missing, as in: trefoil launch "
                         "-n 2 pretrain -c FILE");
    for (size_t i = 0; i < ARRAY_LEN(parallel_commands); i++)
        if (strcmp(command, parallel_commands[i]) == 0)
            return 0;
    return error_set(err, ERROR_INPUT,
                     "trefoil launch: '%s' is not a command that runs on several "
                     "processes; pretrain, eval and generate are",
                     command);
}

/* The number of ranks from -n, from the list of --devices, or from both when they agree.
 */
static int count_ranks(int64_t n_given, const char *devices, int64_t *n_ranks,
                       struct error *err)
{
    int64_t n_devices = devices ? launch_count_devices(devices, err) : n_given;
    if (devices && n_devices < 0)
        return -1;
    if (n_devices == N_NOT_GIVEN)
        return error_set(err, ERROR_INPUT,
                         "trefoil launch: say how many processes to start, with -n N");
    if (n_given != N_NOT_GIVEN && n_given != n_devices)
        return error_set(err, ERROR_INPUT,
                         "trefoil launch: -n %lld and --devices '%.200s' disagree",
                         (long long)n_given, devices);
    *n_ranks = n_devices;
    return 0;
}

/* The job of `argv`, whose runs of pretrain go on from their own checkpoints. */
static int launch_again(struct launch_options *opt, int argc, char **argv,
                        struct error *err)
{
    struct pretrain_options options;
    struct config cfg;
    struct resume_point point = {0};
    int code = 0;
    int rc = pretrain_options_parse(&options, argc, argv, err);
    log_set_level(LOG_ERROR); // the ranks will warn
    if (rc == 0)
        rc = pretrain_options_load(&options, &cfg, opt->n_ranks, err);
    log_set_level(LOG_INFO);
    if (rc == 0)
        rc = resume_point_init(&point, &cfg, argv, err);
    struct launch_resume resume = resume_point_for_launch(&point);
    opt->resume = &resume;
    if (rc < 0)
        code = error_exit_code(err);
    else if (rc == 0)
        code = launch_run(opt, argv, err);
    opt->resume = NULL;
    resume_point_release(&point);
    pretrain_options_release(&options);
    return code;
}

/* A dry run is of one process, and it prints. */
static int refuse_dry_run(int argc, char **argv, struct error *err)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--dry_run") == 0)
            return error_set(err, ERROR_INPUT,
                             "trefoil launch: --dry_run starts no processes, so there is "
                             "nothing to launch: trefoil pretrain -c FILE --dry_run, "
                             "with -o Distributed.dp_degree=N for N data ranks");
    return 0;
}

static int launch(struct launch_options *opt, int argc, char **argv, struct error *err)
{
    bool is_pretrain = strcmp(argv[0], "pretrain") == 0;
    if (launch_check(opt, err) || (is_pretrain && refuse_dry_run(argc, argv, err)))
        return error_exit_code(err);
    if (is_pretrain && opt->max_restarts > 0)
        return launch_again(opt, argc, argv, err);
    // the others print results; rank 0 of several hosts, which may be on any, to its log
    bool has_hosts = opt->hosts || opt->hostfile;
    return is_pretrain || has_hosts ? launch_run(opt, argv, err)
                                    : self_launch_printing(opt, argv, err);
}

int cmd_launch(int argc, char **argv)
{
    struct launch_options opt = {0};
    int64_t n = N_NOT_GIVEN;
    const char *devices = NULL;
    const struct option_spec options[] = {
        {"n", 'n', OPTION_INT, &n, false, "N", "The number of processes."},
        {"devices", 0, OPTION_TEXT, &devices, false, "0,1,...",
         "The local ranks; their number is N."},
        {"hosts", 0, OPTION_TEXT, &opt.hosts, false, "A,B:4",
         "Hosts, with the processes each may take."},
        {"hostfile", 0, OPTION_TEXT, &opt.hostfile, false, "FILE",
         "A file of hosts, as the MPI library reads it."},
        {"rsh", 0, OPTION_TEXT, &opt.rsh, false, "PROGRAM",
         "Starts a command on another host, in place of ssh."},
        {"log_dir", 0, OPTION_TEXT, &opt.log_dir, false, "DIR",
         "Where workerlog.N of each process goes; ./" LAUNCH_LOG_DIR
         " unless given. Hosts must share it."},
        {"max_restarts", 0, OPTION_INT, &opt.max_restarts, false, "K",
         "If the job dies, start it again from its newest checkpoint, K times at most."},
    };
    const struct command cmd = {"trefoil launch",
                                "Run a command on several processes: trefoil launch "
                                "[options] pretrain -c FILE ...",
                                options, ARRAY_LEN(options)};
    struct error err;
    int at = find_command(argc, argv), code = 0;
    int rc = options_parse(&cmd, at, argv, &err);
    if (rc == 0)
        rc = check_command(argv[at], &err) || count_ranks(n, devices, &opt.n_ranks, &err)
                 ? -1
                 : 0;
    if (rc < 0)
        code = error_exit_code(&err);
    else if (rc == 0)
        code = launch(&opt, argc - at, argv + at, &err);
    if (code == 75)
        log_warning("%s", err.text);
    else if (code)
        log_error("%s", err.text);
    return code;
}
