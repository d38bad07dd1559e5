/*
 * run_scan - a line of metrics.jsonl as numbers, fast.
 *
 * A file of a million steps has 300 MB, of which a few keys are wanted. So a line is
 * looked through by hand: keys that the table names become numbers, other values are
 * stepped over. What the scanner does not take for an object goes to jansson, which then
 * decides.
 */
#ifndef BOARD_RUN_SCAN_H
#define BOARD_RUN_SCAN_H

#include "base/base.h"

#include <jansson.h>
#include <math.h>

/* What is kept of every logged step. The axes come first; they are kept as doubles, the
 * rest as floats. */
enum run_column {
    RUN_STEP,
    RUN_TOKENS,
    RUN_TIME,
    RUN_FLOPS,
    RUN_N_AXES,
    RUN_LOSS = RUN_N_AXES,
    RUN_LR,
    RUN_GRAD_NORM,
    RUN_LOSS_SCALE,
    RUN_BATCH_COST,
    RUN_READER_COST,
    RUN_IPS_TOTAL,
    RUN_MFU,
    RUN_SHARE_COMPUTE,
    RUN_SHARE_WAITING,
    RUN_SHARE_READER,
    RUN_SHARE_OPTIMIZER,
    RUN_N_STEP_COLUMNS,
    RUN_EVAL_LOSS = RUN_N_STEP_COLUMNS, // in a table of its own
    RUN_N_COLUMNS,
};

/* The key in the file, and in requests; borrowed. */
const char *run_column_name(enum run_column column);
/* -1: no column has this name. */
int run_column_of(const char *name, size_t n);

enum run_line { // what a line is
    RUN_LINE_BAD,
    RUN_LINE_STEP,  // it has a loss
    RUN_LINE_EVAL,  // it has an eval_loss
    RUN_LINE_EVENT, // it has an "event", or "ranks": for jansson
    RUN_LINE_OTHER, // an object that says nothing to us
};

/* A value that is not there, and one that is null, as the writer says of what is not
 * finite. */
#define RUN_NONE ((double)NAN)
#define RUN_LOST ((double)INFINITY)

struct run_values {
    double at[RUN_N_COLUMNS];
};

struct run_scan {       // what one line teaches about the next; of zeros at first
    int8_t guesses[32]; // 1 + the column of the i-th key, 0: another key
};

/* Look through the n bytes of a line, its end left out. */
enum run_line run_scan_line(struct run_scan *scan, const char *line, size_t n,
                            struct run_values *values);

/* The line by jansson; NULL: it is no object. A byte of zero, which jansson lets pass in
 * places, makes it none. */
json_t *run_scan_load(const char *line, size_t n);

#endif
