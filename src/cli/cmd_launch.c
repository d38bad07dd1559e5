#include "base/log.h"
#include "base/process.h"
#include "base/stop.h"
#include "cli/cmd.h"
#include "cli/cmd_pretrain.h"
#include "cli/job_news.h"
#include "cli/options.h"
#include "cli/script_names.h"
#include "cli/self_launch.h"
#include "device/device.h"
#include "launch/launch.h"
#include "launch/launch_devices.h"
#include "launch/mpiexec.h"
#include "launch/restart.h"
#include "train/fit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_NOT_GIVEN INT64_MIN

/* The commands that know how to be one rank of several. */
static const char *const parallel_commands[] = {"pretrain", "eval", "generate"};

#define OVERSUBSCRIBE "oversubscribe"
#define VISIBLE "CUDA_VISIBLE_DEVICES"

/* Where the options of launch end and the command begins: all options but one take a
 * value, and --help ends them wherever it stands. */
static int find_command(int argc, char **argv)
{
    int i = 1;
    while (i < argc && argv[i][0] == '-') {
        bool is_alone = strchr(argv[i], '=') || strcmp(argv[i], "--help") == 0 ||
                        strcmp(argv[i], "--" OVERSUBSCRIBE) == 0 ||
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
    int64_t n_devices = devices ? launch_devices_count(devices, err) : n_given;
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

/* Give the ranks their GPUs. A job on the processor (is_optional) may list some that are
 * not there. */
static int select_devices(const struct launch_options *opt, bool is_optional,
                          struct error *err)
{
    char list[LAUNCH_VISIBLE_BYTES];
    struct error why;
    if (!opt->devices)
        return 0;
    if (opt->hosts || opt->hostfile)
        return is_optional
                   ? 0
                   : error_set(err, ERROR_INPUT,
                               "--devices chooses GPUs of this machine: with --hosts or "
                               "--hostfile give -n, and set " VISIBLE " on each host");
    if (launch_devices_visible(opt->devices, getenv(VISIBLE), list, sizeof list, &why)) {
        if (!is_optional)
            *err = why;
        return is_optional ? 0 : -1;
    }
    if (setenv(VISIBLE, list, 1))
        return error_set(err, ERROR_RUNTIME, "cannot set " VISIBLE ": %s",
                         strerror(errno));
    return 0;
}

/* What can be refused before any host is reached: the file, the layout, memory of this
 * machine. 0, -1 with *err, or 1 when help was asked for and printed. */
static int plan_job(struct pretrain_options *options, struct config *cfg,
                    struct launch_options *opt, int argc, char **argv, struct error *err)
{
    int rc = pretrain_options_parse(options, argc, argv, err);
    if (rc)
        return rc;
    if (options->is_dry)
        return error_set(err, ERROR_INPUT,
                         "trefoil launch: --dry_run starts no processes, so there is "
                         "nothing to launch: trefoil pretrain -c FILE --dry_run, with -o "
                         "Distributed.dp_degree=N for N data ranks");
    stop_watch(STOP_COMMAND); // JSON lines may take hours to prepare
    enum log_level level = log_set_level(LOG_ERROR); // the ranks will warn
    rc = pretrain_options_load(options, cfg, opt->n_ranks, err);
    log_set_level(level);
    if (rc == 0)
        rc = select_devices(opt, cfg->device == DEVICE_CPU, err);
    opt->is_oversubscribed = opt->is_oversubscribed || options->is_oversubscribed;
    return rc || pretrain_options_check_layout(options, cfg, opt->n_ranks, err) ||
                   device_available(cfg->device, cfg->mix_precision.dtype,
                                    (int)launch_ranks_here(opt), err) ||
                   fit_check_machine(launch_ranks_here(opt), opt->is_oversubscribed, cfg,
                                     err)
               ? -1
               : 0;
}

/* The --device of eval or generate, which refuse an unknown one. */
static enum device_kind device_option(char *const *argv)
{
    static const char name[] = "--device", joined[] = "--device=";
    const char *word = NULL;
    enum device_kind kind;
    struct error ignored;
    for (int i = 1; argv[i]; i++)
        if (strcmp(argv[i], name) == 0)
            word = argv[i + 1];
        else if (strncmp(argv[i], joined, strlen(joined)) == 0)
            word = argv[i] + strlen(joined);
    return device_kind_parse(&kind, word, &ignored) ? DEVICE_CPU : kind;
}

/* A job of pretrain, whose runs go on from their own checkpoints. */
static int launch_pretrain(struct launch_options *opt, int argc, char **argv,
                           struct error *err)
{
    struct pretrain_options options = {0};
    struct config cfg;
    struct resume_point point = {0};
    struct job_news news = {0};
    int rc = plan_job(&options, &cfg, opt, argc, argv, err);
    if (rc == 0 && opt->max_restarts > 0) {
        rc = resume_point_init(&point, &cfg, argv, err);
        opt->resume = &point;
    }
    if (rc == 0) {
        job_news_init(&news, &cfg);
        opt->tell = job_news_tell;
        opt->tell_context = &news;
        rc = launch_run(opt, argv, err) ? -1 : 0;
    }
    opt->resume = NULL; // these were this function's
    opt->tell = NULL;
    job_news_finish(&news);
    resume_point_release(&point);
    pretrain_options_release(&options);
    return rc;
}

static int launch(struct launch_options *opt, int argc, char **argv, struct error *err)
{
    struct launch_options any_crowd = *opt; // pretrain tells of it together with memory
    bool is_pretrain = strcmp(argv[0], "pretrain") == 0;
    any_crowd.is_oversubscribed = opt->is_oversubscribed || is_pretrain;
    if (launch_check(&any_crowd, err))
        return -1;
    if (is_pretrain)
        return launch_pretrain(opt, argc, argv, err);
    if (select_devices(opt, device_option(argv) == DEVICE_CPU, err))
        return -1;
    // the others print results; rank 0 of several hosts, which may be on any, to its log
    opt->has_output = !opt->hosts && !opt->hostfile;
    return launch_run(opt, argv, err) ? -1 : 0;
}

/* MPIEXEC_DAEMON_WORDS: how mpiexec has its daemon started on another host. */
static int become_daemon(char **argv)
{
    process_restore_signals();
    mpiexec_make_deaf(mpiexec_dialect());
    execvp(argv[0], argv);
    fprintf(stderr, "cannot run '%s': %s\n", argv[0], strerror(errno));
    return 127;
}

int cmd_launch(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "daemon") == 0)
        return become_daemon(argv + 2);
    struct launch_options opt = {0};
    int64_t n = N_NOT_GIVEN;
    const char *command = NULL; // which is not parsed as an option
    const struct option_spec options[] = {
        {"n", 'n', OPTION_INT, &n, false, "N", "The number of processes."},
        {"devices", 0, OPTION_TEXT, &opt.devices, false, "0,1,...",
         "The GPUs of this machine, by index, one for each process: N of them. On a "
         "processor only their number counts."},
        {"hosts", 0, OPTION_TEXT, &opt.hosts, false, "A,B:4",
         "Hosts, each with its number of processes."},
        {"hostfile", 0, OPTION_TEXT, &opt.hostfile, false, "FILE",
         "A host file in the format of the MPI library."},
        {"rsh", 0, OPTION_TEXT, &opt.rsh, false, "PROGRAM",
         "Reaches hosts in place of ssh, called as PROGRAM ARGUMENTS HOST COMMAND; may "
         "have arguments, as in \"ssh -F FILE\"."},
        {"log_dir", 0, OPTION_TEXT, &opt.log_dir, false, "DIR",
         "Where workerlog.N of each process goes; ./" LAUNCH_LOG_DIR
         " unless given. Hosts must share it."},
        {"max_restarts", 0, OPTION_INT, &opt.max_restarts, false, "K",
         "If the job dies, restart it from its last checkpoint, at most K times."},
        {OVERSUBSCRIBE, 0, OPTION_FLAG, &opt.is_oversubscribed, false, NULL,
         "Allow more than 4 processes per processor of a host."},
        {"command", 0, OPTION_OPERAND, &command, false, "pretrain|eval|generate",
         "What to run, followed by its own options."},
    };
    const struct command cmd = {"trefoil launch",
                                "Run a command on several processes: trefoil launch "
                                "[options] pretrain -c FILE ...",
                                options, ARRAY_LEN(options)};
    struct error err;
    int at = find_command(argc, argv);
    int rc = options_parse(&cmd, at, argv, &err);
    argv[at] = (char *)(uintptr_t)command_of_script(argv[at]);
    if (rc == 0)
        rc = check_command(argv[at], &err) ||
                     count_ranks(n, opt.devices, &opt.n_ranks, &err)
                 ? -1
                 : launch(&opt, argc - at, argv + at, &err);
    return rc < 0 ? self_launch_fail(&err) : 0;
}
