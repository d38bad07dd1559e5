/*
 * cmd_pretrain - the command line of trefoil pretrain, for the command itself and for
 * trefoil launch, which must know where a run saves to start it again.
 */
#ifndef CLI_CMD_PRETRAIN_H
#define CLI_CMD_PRETRAIN_H

#include "base/base.h"
#include "base/error.h"
#include "cli/options.h"
#include "config/config.h"

struct pretrain_options { // strings are argv's own
    const char *path;
    struct option_list overrides;
    bool is_dry;
    int64_t max_restarts;
    bool is_oversubscribed;
    bool has_board;
};

/* As options_parse(). To be released, whatever it returns. */
MUST_CHECK int pretrain_options_parse(struct pretrain_options *o, int argc, char **argv,
                                      struct error *err);
void pretrain_options_release(struct pretrain_options *o);

/* Where a run finds the values that its configuration leaves out; files of JSON lines are
 * not prepared. */
extern const struct config_sources pretrain_look_sources;

/* The configuration they mean in a job of n_processes. */
MUST_CHECK int pretrain_options_load(const struct pretrain_options *o, struct config *cfg,
                                     int64_t n_processes, struct error *err);

/* Refuse a layout that n_processes (0: as many as it wants) cannot run, with those that
 * these options would accept instead. *cfg is what they mean. */
MUST_CHECK int pretrain_options_check_layout(const struct pretrain_options *o,
                                             const struct config *cfg,
                                             int64_t n_processes, struct error *err);

#endif
