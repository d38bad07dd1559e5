/*
 * launch_plan - what a job of `trefoil launch ... pretrain` means, and what of it can be
 * refused before any host is reached.
 */
#ifndef CLI_LAUNCH_PLAN_H
#define CLI_LAUNCH_PLAN_H

#include "base/base.h"
#include "base/error.h"
#include "cli/cmd_pretrain.h"
#include "config/config.h"
#include "launch/launch.h"

/* The options and the configuration of `argv`, from "pretrain" on, checked for the job of
 * *opt: the file, the layout, room on this machine. Returns 0, -1 with *err, or 1 when
 * help was asked for and printed. *options is to be released in any case. (A test program
 * that has ranks of its own defines its own.) */
MUST_CHECK int launch_plan_pretrain(struct pretrain_options *options, struct config *cfg,
                                    const struct launch_options *opt, int argc,
                                    char **argv, struct error *err);

#endif
