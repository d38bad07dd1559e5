/* board_start - `trefoil board` beside a run, for `pretrain --board`. */
#ifndef CLI_BOARD_START_H
#define CLI_BOARD_START_H

#include "base/base.h"
#include "base/error.h"

/* Set for the processes of a job whose starter has a board already. */
#define BOARD_START_ENV "TREFOIL_BOARD"

/* Start `trefoil board output_dir` as a process of its own, which ends when this one does,
 * however that ends. The directory is made. Nothing is done where BOARD_START_ENV says
 * that there is one. What it prints goes to standard error. */
MUST_CHECK int board_start(const char *output_dir, struct error *err);

#endif
