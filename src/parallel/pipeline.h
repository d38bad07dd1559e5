/*
 * pipeline - executes a schedule: messages between stages, compute by the caller.
 *
 * Owns the buffers that messages pass through, and nothing else: it hands the caller one
 * task after the other, and sends and receives between them. Receives are in flight
 * before they are needed and sends do not hold up the stage. With one stage there are no
 * messages and no buffers.
 *
 * Knows no model: messages are arrays of n numbers of the model's type, forward and
 * backward.
 */
#ifndef PARALLEL_PIPELINE_H
#define PARALLEL_PIPELINE_H

#include "base/arena.h"
#include "comm/comm.h"
#include "parallel/schedule.h"

struct pipeline {
    struct comm *group; // the stages, rank = stage; borrowed
    struct schedule schedule;
    int64_t n_bytes; // of a message
    void *recv[N_PAYLOADS][SCHEDULE_RECV_SLOTS];
    void *send[N_PAYLOADS][SCHEDULE_SEND_SLOTS];
    void *dx; // the gradient that the first chunk computes, not used
    struct comm_request recv_request[N_PAYLOADS][SCHEDULE_RECV_SLOTS];
    struct comm_request send_request[N_PAYLOADS][SCHEDULE_SEND_SLOTS];
    bool is_sending[N_PAYLOADS][SCHEDULE_SEND_SLOTS];
    struct device *dev; // borrowed
    struct arena arena;

    int64_t next;                  // of the schedule's actions, or of forward's tasks
    int n_forward;                 // micro-batches of a pass forward; 0: by the schedule
    bool has_output;               // forward: the task at hand leaves a message,
    struct schedule_action output; // this one
};

struct pipeline_task {   // what a stage computes next
    enum schedule_op op; // OP_FORWARD or OP_BACKWARD
    int chunk, micro, stash;
    const void *x_in; // forward: (n), NULL for the model's first chunk
    void *x_out;      // forward: (n), NULL for its last
    void *dx;         // backward: (n), in the gradient of x_out (for the last chunk:
                      // anything), out of x_in; NULL when there is but one stage, whose
                      // gradients concern nobody else
};

/* Bytes of the buffers of a stage. */
size_t pipeline_bytes(int64_t pp, int64_t n, enum dtype dtype);
MUST_CHECK int pipeline_open(struct pipeline *p, struct device *dev, struct comm *group,
                             const struct schedule_shape *shape, int64_t n,
                             enum dtype dtype, struct error *err);
void pipeline_close(struct pipeline *p);

/* Begin one step: every action of the schedule. */
void pipeline_start(struct pipeline *p);
/* Begin forward alone, of n_micro micro-batches, all in stash 0. */
void pipeline_start_forward(struct pipeline *p, int n_micro);

/* The task before is computed. 1: *task is the next one, its input is there; 0: there are
 * no more, and all messages have left; -1: an error. [collective] */
MUST_CHECK int pipeline_next(struct pipeline *p, struct pipeline_task *task,
                             struct error *err);

#endif
