/*
 * shares - where the time of steps goes, on this rank and on average over all.
 *
 * A step's time is the reader's (waiting for the next batch), computing (forward and
 * backward), the optimizer's (norm of the gradients, update), or waiting: whatever is
 * spent in comm_wait(), in which of the others it may happen. What is left over, little,
 * has no name. Evaluation and saving are not part of a step.
 *
 * The figures of all ranks are summed in the message that sums the losses, so they cost
 * no message of their own: they cover the time from the losses of the last logged step to
 * those of this one. Figures rank by rank are gathered at logged steps, five seconds
 * apart at least.
 *
 *     shares_start_step(s);
 *     struct share_span span = shares_begin(s);
 *     ...
 *     shares_end(s, span, SHARE_COMPUTE);
 *     shares_end_step(s);
 */
#ifndef TRAIN_SHARES_H
#define TRAIN_SHARES_H

#include "comm/comm.h"

enum share { SHARE_COMPUTE, SHARE_WAITING, SHARE_READER, SHARE_OPTIMIZER, N_SHARES };
#define SHARES_FIGURES (N_SHARES + 1) // and all of the time

#define SHARES_MOST_ENTRIES 256 // of the figures by rank: many ranks share an entry

struct shares_ranks { // on rank 0, by rank, or by ranks_per_entry of them
    int64_t n_entries, ranks_per_entry;
    double step_seconds[SHARES_MOST_ENTRIES]; // of a step, the largest of the entry
    double wait_seconds[SHARES_MOST_ENTRIES]; // of it, the mean of the entry
    double resident_bytes[SHARES_MOST_ENTRIES];
};

struct shares {
    struct comm *world; // borrowed
    bool is_in_step;    // spans outside of steps, in an evaluation, do not count
    double mark;        // up to where the step's time is counted
    double seconds, own[N_SHARES];
    double mean[N_SHARES]; // of all ranks, 0 to 1, as last spread

    double rank_seconds, rank_waited; // of this rank since its last figures
    double waited_before;             // comm_waited() when the step began
    int64_t rank_steps;
    double told_at;             // when the figures by rank were last told
    double *gathered;           // (world, 3) on rank 0, owned
    int64_t *bounds;            // (world + 1) owned
    struct shares_ranks *ranks; // on rank 0, owned
};

/* shares_close() takes a half-opened one, and one of zeros. (local) */
MUST_CHECK int shares_open(struct shares *s, struct comm *world, struct error *err);
void shares_close(struct shares *s);

void shares_start_step(struct shares *s);
void shares_end_step(struct shares *s);

struct share_span {
    double start, waited;
};
struct share_span shares_begin(const struct shares *s);
/* What was not waiting since then is `what`'s. */
void shares_end(struct shares *s, struct share_span span, enum share what);

/* This rank's figures, for the message; and s->mean from their sums over all ranks. With
 * is_logged the next ones begin here. */
void shares_give(struct shares *s, double figures[SHARES_FIGURES]);
void shares_take(struct shares *s, const double sums[SHARES_FIGURES], bool is_logged);

/* Whether it is time for figures by rank; rank 0 decides. (local) */
bool shares_ranks_due(const struct shares *s);
/* Of all ranks since the last time, in s->ranks of rank 0. [collective] */
MUST_CHECK int shares_gather_ranks(struct shares *s, struct error *err);

/* n numbers become at most SHARES_MOST_ENTRIES, each the largest or the mean of
 * ranks_per_entry of them (fewer in the last), which is returned. In place is fine. */
int64_t shares_condense(const double *x, int64_t n, int64_t stride, bool is_mean,
                        double *out);

#endif
