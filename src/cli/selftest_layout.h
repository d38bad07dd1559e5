/*
 * selftest_layout - a layout in words, and what it promises.
 *
 *     "1"             one process
 *     "dp2 mp2 pp2"   degrees of data, tensor and pipeline parallelism
 *     "pp2 v2"        two chunks of layers a stage (virtual_pp_degree)
 *     "pp2 fthenb"    the F-then-B schedule
 *     "mp2 sp"        sequence parallelism
 *     "1 t2"          two threads per process
 *
 * A layout is not part of the result. How near to one process it stays is promised by
 * what it cuts: a pipeline moves work and changes no sum, so every bit is the same; data
 * parallelism adds gradients in another order, so the loss before the first update is the
 * same and later ones are near, sharded or not; tensor parallelism cuts sums inside a
 * layer; recomputation computes the same again.
 *
 * Pure.
 */
#ifndef CLI_SELFTEST_LAYOUT_H
#define CLI_SELFTEST_LAYOUT_H

#include "base/base.h"
#include "base/error.h"

#define SELFTEST_STEPS_MOST 50

struct selftest_layout {
    char name[64]; // the words as given, single spaces
    int64_t dp, mp, pp, chunks, threads;
    int64_t sharding, stage;
    bool f_then_b, sequence_parallel, recompute;
};

/* Of one process, or of the n_bytes at `words`; unknown words are ERROR_INPUT. */
MUST_CHECK int selftest_layout_parse(struct selftest_layout *layout, const char *words,
                                     size_t n_bytes, struct error *err);
int64_t selftest_layout_processes(const struct selftest_layout *layout);

struct selftest_promise { // the most that losses may differ, relatively; 0: not a bit
    double first, later;  // at step 1; at any other
};
struct selftest_promise selftest_promise(const struct selftest_layout *layout);

/* What a run reported, 9 digits each. */
struct selftest_curve {
    int64_t n_steps;
    double loss[SELFTEST_STEPS_MOST], grad_norm[SELFTEST_STEPS_MOST];
};

struct selftest_verdict {
    double largest; // relative difference of a loss
    bool is_same;   // all losses and gradient norms, digit for digit
    bool is_kept;   // the promise; a run of other length or without numbers keeps none
};
struct selftest_verdict selftest_judge(struct selftest_promise promise,
                                       const struct selftest_curve *reference,
                                       const struct selftest_curve *run);

#endif
