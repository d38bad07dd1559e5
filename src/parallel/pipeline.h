/*
 * pipeline - executes a schedule: messages between stages, compute by the caller.
 *
 * Owns the buffers that messages pass through, and nothing else; a stage computes in the
 * caller's two functions. Receives are in flight before they are needed and sends do not
 * hold up the stage. With one stage there are no messages and no buffers.
 *
 * Layer: base, comm, parallel/schedule <- here. Knows no model: arrays of n numbers, in
 * the model's type forward, in float32 backward.
 */
#ifndef PARALLEL_PIPELINE_H
#define PARALLEL_PIPELINE_H

#include "base/arena.h"
#include "comm/comm.h"
#include "parallel/schedule.h"

struct pipeline {
    struct comm *group; // the stages, rank = stage; borrowed
    struct schedule schedule;
    int64_t n_bytes[N_PAYLOADS]; // of a message
    void *recv[N_PAYLOADS][SCHEDULE_RECV_SLOTS];
    void *send[N_PAYLOADS][SCHEDULE_SEND_SLOTS];
    float *dx; // the gradient that the first piece computes and nobody wants
    struct comm_request recv_request[N_PAYLOADS][SCHEDULE_RECV_SLOTS];
    struct comm_request send_request[N_PAYLOADS][SCHEDULE_SEND_SLOTS];
    bool is_sending[N_PAYLOADS][SCHEDULE_SEND_SLOTS];
    struct arena arena;
};

struct pipeline_work { // what a stage does; micro and chunk say with which data
    void *context;
    /* x_in: (n), NULL for the model's first piece; x_out: (n), NULL for its last. */
    void (*forward)(void *context, int chunk, int micro, int stash, const void *x_in,
                    void *x_out);
    /* dx: (n), in the gradient of x_out (for the last piece: anything), out of x_in; NULL
     * when there is but one stage, whose gradients concern nobody else. */
    void (*backward)(void *context, int chunk, int micro, int stash, float *dx);
};

/* Bytes of the buffers of a stage. */
size_t pipeline_bytes(int64_t pp, int64_t n, enum dtype dtype);
MUST_CHECK int pipeline_open(struct pipeline *p, struct comm *group,
                             const struct schedule_shape *shape, int64_t n,
                             enum dtype dtype, struct error *err);
void pipeline_close(struct pipeline *p);

/* One step: every action of the schedule. [collective] */
MUST_CHECK int pipeline_run(struct pipeline *p, const struct pipeline_work *work,
                            struct error *err);

/* Forward alone, of n_micro micro-batches, all in stash 0. [collective] */
MUST_CHECK int pipeline_run_forward(struct pipeline *p, int n_micro,
                                    const struct pipeline_work *work, struct error *err);

#endif
