/*
 * trefoil pretrain - one process trains; a layout of several is started by mpirun, by
 * srun, by `trefoil launch`, or, when nobody did, by this command itself.
 */
#include "base/log.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "comm/comm.h"
#include "config/config.h"
#include "train/layout.h"
#include "train/train.h"

#include <stdio.h>

struct pretrain {
    const char *path;
    struct option_list overrides;
};

static int report(const struct error *err)
{
    if (err->kind == ERROR_STOPPED)
        log_warning("%s", err->text);
    else
        log_error("%s", err->text);
    return error_exit_code(err);
}

/* One of the processes of the job, or its only one. */
static int run_here(const struct pretrain *p, struct error *err)
{
    struct config cfg;
    struct comm *world;
    struct comm_launch launch = comm_launch_info();
    if (launch.rank > 0)
        log_set_level(LOG_WARNING); // rank 0 speaks for all
    if (config_load_for(&cfg, p->path, p->overrides.values, p->overrides.n_values,
                        launch.size, err) ||
        layout_check(&cfg, launch.size, err) || comm_world_open(&world, err))
        return -1;
    int rc = train_run(&cfg, world, err);
    comm_world_close(world);
    return rc;
}

int cmd_pretrain(int argc, char **argv)
{
    struct pretrain p = {0};
    const struct option_spec options[] = {
        {"config", 'c', OPTION_TEXT, &p.path, true, "FILE", "The YAML configuration."},
        {"override", 'o', OPTION_LIST, &p.overrides, false, "KEY=VALUE",
         "Set a key after the file, e.g. -o max_steps=100; may be repeated."},
    };
    const struct command cmd = {"trefoil pretrain",
                                "Train a GPT model as a YAML configuration says.",
                                options, ARRAY_LEN(options)};
    struct error err;
    int rc = options_parse(&cmd, argc, argv, &err);
    if (rc == 0)
        rc = run_here(&p, &err);
    options_list_release(&p.overrides);
    return rc >= 0 ? 0 : report(&err);
}
