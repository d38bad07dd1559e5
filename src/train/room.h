/*
 * room - whether the processes of a layout have room on this machine, processors and
 * memory, asked before any of them is started.
 */
#ifndef TRAIN_ROOM_H
#define TRAIN_ROOM_H

#include "base/error.h"
#include "config/config.h"

/* Refuse a run of which this machine would get n_ranks (0: not known) and has no room for
 * them, ranks and memory in one sentence: ERROR_INPUT when there are too many ranks
 * (launch_is_crowded()) and the user does not want that, else ERROR_RUNTIME. */
MUST_CHECK int room_check(int64_t n_ranks, bool is_oversubscribed,
                          const struct config *cfg, struct error *err);

#endif
