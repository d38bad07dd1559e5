#include "cli/launch_plan.h"

#include "base/log.h"
#include "train/room.h"

static int refuse_dry_run(const struct pretrain_options *options, struct error *err)
{
    if (!options->is_dry)
        return 0;
    return error_set(err, ERROR_INPUT,
                     "trefoil launch: --dry_run starts no processes, so there is nothing "
                     "to launch: trefoil pretrain -c FILE --dry_run, with "
                     "-o Distributed.dp_degree=N for N data ranks");
}

int launch_plan_pretrain(struct pretrain_options *options, struct config *cfg,
                         const struct launch_options *opt, int argc, char **argv,
                         struct error *err)
{
    int rc = pretrain_options_parse(options, argc, argv, err);
    if (rc || refuse_dry_run(options, err))
        return rc ? rc : -1;
    enum log_level level = log_set_level(LOG_ERROR); // the ranks will warn
    rc = pretrain_options_load(options, cfg, opt->n_ranks, err);
    log_set_level(level);
    bool is_oversubscribed = opt->is_oversubscribed || options->is_oversubscribed;
    if (rc || pretrain_options_check_layout(options, cfg, opt->n_ranks, err) ||
        room_check(launch_ranks_here(opt), is_oversubscribed, cfg, err))
        return -1;
    return 0;
}
