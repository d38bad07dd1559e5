/*
 * memory_table - the memory of the processes of a run as a table, a row a rank.
 */
#ifndef TRAIN_MEMORY_TABLE_H
#define TRAIN_MEMORY_TABLE_H

#include "train/plan.h"

/* A row for each rank, to the log; with `peak`, if not NULL, the measured peak of each in
 * bytes beside the prediction. Many equal rows are told as one. */
void memory_table_log(const struct plan_memory *rows, const double *peak, int n);

#endif
