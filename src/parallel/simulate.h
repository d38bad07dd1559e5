/*
 * simulate - a pipeline step by the clock of a cost model.
 *
 * Runs the lists of all stages as their executors would: a stage does one action after
 * the other; a compute action takes the time of its kind and first waits for its message;
 * a message takes `latency` from the moment when it is sent and its receive is posted,
 * and occupies nobody. A deadlock is reported, not entered.
 */
#ifndef PARALLEL_SIMULATE_H
#define PARALLEL_SIMULATE_H

#include "base/base.h"
#include "base/error.h"
#include "parallel/schedule.h"

enum simulate_send {
    SIMULATE_SEND_FREE,     // never waits
    SIMULATE_SEND_BUFFERED, // the next use of its send buffer waits until it has arrived
    SIMULATE_SEND_BLOCKING, // waits until its receive is posted
};

struct simulate_cost {
    double forward;  // of one micro-batch through all the chunks of a stage
    double backward; // the same, backward
    double latency;  // of a message
    enum simulate_send send;
};

struct simulate_span { // one compute action
    double start, end;
    int32_t micro, chunk;
    bool is_backward;
};

struct simulate_stage {
    struct simulate_span *spans; // in order
    int64_t n_spans;
    double busy; // sum of the spans; makespan - busy is idle
};

struct simulate {
    int pp;
    double makespan; // last end - first start, over all stages
    struct simulate_stage *stages;
    struct simulate_span *spans; // of all stages
};

/* Run the schedules of all pp stages (stages[i].stage == i). An error is a deadlock,
 * which names a stage and what it waits for, or memory. simulate_release() frees. */
MUST_CHECK int simulate_init(struct simulate *sim, const struct schedule *stages,
                             const struct simulate_cost *cost, struct error *err);
void simulate_release(struct simulate *sim);

/* Idle time as a fraction of the makespan, mean of the stages: (p-1)/(m+p-1) for 1F1B. */
double simulate_bubble_of_total(const struct simulate *sim);
/* The same time against the compute time: (p-1)/m for 1F1B. */
double simulate_bubble_of_ideal(const struct simulate *sim);

#endif
