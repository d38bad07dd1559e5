/*
 * trefoil pretrain - one process trains; a layout of several is started by mpirun, by
 * srun, by `trefoil launch`, or, when nobody did, by this command itself.
 */
#include "cli/cmd_pretrain.h"

#include "base/log.h"
#include "base/stop.h"
#include "ckpt/ckpt_past.h"
#include "cli/board_start.h"
#include "cli/cmd.h"
#include "cli/job_news.h"
#include "cli/options.h"
#include "cli/self_launch.h"
#include "comm/comm.h"
#include "config/config.h"
#include "data/text/text_dataset.h"
#include "device/device.h"
#include "launch/restart.h"
#include "parallel/layout.h"
#include "train/fit.h"
#include "train/train.h"
#include "train/usage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RESTARTS "max_restarts"
#define N_SUGGESTED 4 // layouts in place of one that does not fit

/* -- options ------------------------------------------------------------------------- */

int pretrain_options_parse(struct pretrain_options *o, int argc, char **argv,
                           struct error *err)
{
    *o = (struct pretrain_options){0};
    const struct option_spec options[] = {
        {"config", 'c', OPTION_TEXT, &o->path, true, "FILE",
         "The YAML file of this run."},
        {"override", 'o', OPTION_LIST, &o->overrides, false, "KEY=VALUE",
         "Override a key of the file, e.g. -o max_steps=100; may be repeated."},
        {"dry_run", 0, OPTION_FLAG, &o->is_dry, false, NULL,
         "Print the memory that each process would need, and exit."},
        {MAX_RESTARTS, 0, OPTION_INT, &o->max_restarts, false, "K",
         "If the run dies, restart it from its last checkpoint, at most K times."},
        {"oversubscribe", 0, OPTION_FLAG, &o->is_oversubscribed, false, NULL,
         "Allow more than 4 processes per processor."},
        {"board", 0, OPTION_FLAG, &o->has_board, false, NULL,
         "Show the run on a web page while it trains: starts trefoil board, which ends "
         "with this command."},
    };
    const struct command cmd = {
        "trefoil pretrain",
        "Train a GPT model: one YAML file per run. The processes of a parallel layout "
        "are "
        "started automatically, unless mpirun, srun or trefoil launch already did.",
        options, ARRAY_LEN(options)};
    return options_parse(&cmd, argc, argv, err);
}

void pretrain_options_release(struct pretrain_options *o)
{
    options_list_release(&o->overrides);
}

const struct config_sources pretrain_look_sources = {.look = text_dataset_look,
                                                     .past = ckpt_past};
/* The same, and files of JSON lines are prepared. */
static const struct config_sources pretrain_sources = {.look = text_dataset_prepare,
                                                       .past = ckpt_past};

int pretrain_options_load(const struct pretrain_options *o, struct config *cfg,
                          int64_t n_processes, struct error *err)
{
    return config_load_run(cfg, o->path, o->overrides.values, o->overrides.n_values,
                           n_processes,
                           o->is_dry ? &pretrain_look_sources : &pretrain_sources, err);
}

/* -- other layouts ------------------------------------------------------------------- */

struct attempt { // at the same options with other degrees
    const struct pretrain_options *options;
    int64_t n_processes;
};

static bool accepts(void *context, const struct grid_shape *shape)
{
    const struct attempt *a = context;
    const struct option_list *given = &a->options->overrides;
    const int degrees[] = {shape->dp, shape->pp, shape->sharding, shape->mp};
    static const char *const keys[] = {"dp_degree", "pp_degree",
                                       "sharding.sharding_degree", "mp_degree"};
    char settings[ARRAY_LEN(keys)][64];
    struct config cfg;
    struct error ignored;
    char **all = calloc((size_t)given->n_values + ARRAY_LEN(keys), sizeof *all);
    if (!all)
        return false;
    for (int i = 0; i < given->n_values; i++)
        all[i] = given->values[i];
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        snprintf(settings[i], sizeof settings[i], "Distributed.%s=%d", keys[i],
                 degrees[i]);
        all[(size_t)given->n_values + i] = settings[i];
    }
    bool is_good = config_load_run(&cfg, a->options->path, all,
                                   given->n_values + (int)ARRAY_LEN(keys), a->n_processes,
                                   &pretrain_look_sources, &ignored) == 0 &&
                   layout_check(&cfg, a->n_processes, &ignored) == 0;
    free(all);
    return is_good;
}

int pretrain_options_check_layout(const struct pretrain_options *o,
                                  const struct config *cfg, int64_t n_processes,
                                  struct error *err)
{
    struct attempt attempt = {.options = o, .n_processes = n_processes};
    struct grid_shape shape = layout_grid(cfg);
    char layout[128], others[512];
    int64_t wanted = config_n_processes(cfg);
    if (n_processes == 0 || n_processes == wanted || grid_size(&shape) != wanted)
        return layout_check(cfg, n_processes, err);
    grid_describe(&shape, layout, sizeof layout);
    enum log_level level = log_set_level(LOG_ERROR); // warnings are of the layout itself
    grid_suggest(&shape, n_processes, N_SUGGESTED, accepts, &attempt, others,
                 sizeof others);
    log_set_level(level);
    return error_set(err, ERROR_INPUT,
                     "the layout %s takes %lld process%s, but there %s %lld; %s%s",
                     layout, (long long)wanted, wanted == 1 ? "" : "es",
                     n_processes == 1 ? "is" : "are", (long long)n_processes,
                     others[0] ? "others of that size: "
                               : "this configuration has no other layout of that size",
                     others);
}

/* -- words --------------------------------------------------------------------------- */

/* The words of argv for the processes of a job: --max_restarts is for their launcher.
 * NULL-terminated; the array is malloc'ed, the words are borrowed. NULL: no memory. */
static char **job_words(char *const *argv)
{
    static const char name[] = "--" MAX_RESTARTS;
    size_t n = 0, n_kept = 0;
    while (argv[n])
        n++;
    char **words = calloc(n + 1, sizeof *words);
    for (size_t i = 0; words && i < n; i++) {
        bool has_value =
            strncmp(argv[i], name, strlen(name)) == 0 && argv[i][strlen(name)] == '=';
        if (strcmp(argv[i], name) == 0)
            i++; // its value is the next word
        else if (!has_value)
            words[n_kept++] = argv[i];
    }
    return words;
}

/* -- the command --------------------------------------------------------------------- */

struct pretrain {
    struct pretrain_options options;
    char **argv; // all words of the command
    struct config cfg;
    char **job_argv; // those for the processes of a job that may be started again
    struct resume_point resume_point;
    struct job_news news; // of a job that is started here
};

/* For a job that is started here. */
static int plan_restarts(struct pretrain *p, struct self_launch_plan *job,
                         struct error *err)
{
    p->job_argv = job_words(p->argv);
    if (!p->job_argv)
        return error_set(err, ERROR_RUNTIME, "out of memory for a command line");
    if (resume_point_init(&p->resume_point, &p->cfg, p->job_argv, err))
        return -1;
    job->max_restarts = p->options.max_restarts;
    job->resume = &p->resume_point;
    return 0;
}

static int plan_pretrain(void *context, int64_t n_processes, struct self_launch_plan *job,
                         struct error *err)
{
    struct pretrain *p = context;
    const struct config *cfg = &p->cfg;
    if (n_processes == 0)
        stop_watch(STOP_ALONE); // JSON lines may take hours to prepare
    if (pretrain_options_load(&p->options, &p->cfg, n_processes > 0 ? n_processes : 1,
                              err) ||
        pretrain_options_check_layout(&p->options, cfg, n_processes, err))
        return -1;
    int64_t n_wanted = config_n_processes(cfg);
    if (n_processes == 0 &&
        device_available(cfg->device, cfg->mix_precision.dtype, (int)n_wanted, err))
        return -1;
    if (n_processes == 0 && n_wanted > 1 &&
        fit_check_machine(n_wanted, p->options.is_oversubscribed, cfg, err))
        return -1;
    if (p->options.max_restarts != 0 && n_processes > 0)
        return error_set(err, ERROR_INPUT,
                         "trefoil pretrain: --max_restarts is for who starts the job: "
                         "give it to trefoil launch, before pretrain");
    if (p->options.max_restarts != 0 && plan_restarts(p, job, err))
        return -1;
    if (p->options.has_board && comm_launch_info().rank == 0 &&
        board_start(cfg->save_load.output_dir, err))
        return -1;
    job_news_init(&p->news, cfg);
    job->tell = job_news_tell;
    job->tell_context = &p->news;
    job->n_processes = n_wanted;
    job->is_oversubscribed = p->options.is_oversubscribed;
    job->num_threads = cfg->num_threads;
    job->cpu_kernels = cfg->cpu_kernels;
    job->hang_timeout = cfg->hang_timeout;
    snprintf(job->log_dir, sizeof job->log_dir, "%s/log", cfg->save_load.output_dir);
    job->log_dir_key = "save_load.output_dir";
    return 0;
}

static int run_pretrain(void *context, struct comm *world, struct error *err)
{
    const struct pretrain *p = context;
    return train_run(&p->cfg, world, err);
}

/* Under mpirun every process comes here: one prints, for the layout of all. */
static int dry_run(struct pretrain *p, struct error *err)
{
    struct comm_launch launch = comm_launch_info();
    if (pretrain_options_load(&p->options, &p->cfg, launch.size, err) ||
        layout_check(&p->cfg, launch.size > 1 ? launch.size : 0, err) ||
        (launch.rank == 0 && usage_dry_run(&p->cfg, err)))
        return -1;
    return print_check("the memory table", err);
}

static int fail(const struct error *err)
{
    log_error("%s", err->text);
    return error_exit_code(err);
}

static int pretrain(struct pretrain *p)
{
    const struct self_launch command = {
        .argv = p->argv, .context = p, .plan = plan_pretrain, .run = run_pretrain};
    struct error err;
    if (!p->options.is_dry) {
        if (comm_launch_info().is_ours || comm_is_launched())
            stop_watch(STOP_RANK); // as early as the others may be asked to stop
        return self_launch(&command);
    }
    return dry_run(p, &err) ? fail(&err) : 0;
}

int cmd_pretrain(int argc, char **argv)
{
    struct pretrain p = {.argv = argv};
    struct error err;
    int rc = pretrain_options_parse(&p.options, argc, argv, &err);
    int code = rc == 0 ? pretrain(&p) : rc < 0 ? fail(&err) : 0;
    job_news_finish(&p.news);
    resume_point_release(&p.resume_point);
    free(p.job_argv);
    pretrain_options_release(&p.options);
    return code;
}
