/*
 * schedule - what a pipeline stage does in one step, as a list of actions.
 *
 * A pure function of (pp, chunks, micro-batches, kind, stage): no clock, no messages, no
 * model. Another file executes the list, parallel/simulate.h runs it against a cost
 * model, parallel/schedule_draw.h draws it.
 *
 * Kinds (enum config_schedule):
 *   SCHEDULE_1F1B      a warm-up of forwards, then one forward, one backward in turn, then
 *                      the backwards left. With chunks > 1 interleaved: a chunk runs pp
 *                      micro-batches, then the next chunk runs the same pp, and so on.
 *   SCHEDULE_F_THEN_B  all forwards, then all backwards.
 * In both, each chunk takes its micro-batches in the order 0, 1, 2, ..., forward and
 * backward, so that gradients are accumulated in one order whatever the schedule.
 *
 * Messages. Activations go to the next stage, gradients to the previous one, in a ring:
 * the last stage's chunk c feeds the first stage's chunk c + 1. Between two stages,
 * messages of one payload are sent in the order in which they are received.
 *
 * Executing the list, in order:
 *   POST_RECV  start a receive from `peer` into receive buffer `slot` of that payload.
 *   FORWARD,   wait for the receive in `slot_in` (-1: there is none), and, if the output
 *   BACKWARD   is to be sent, for the earlier send from `slot_out` to leave it (-1: the
 *              output stays here); compute. The receive buffer is free from then on: an
 *              input that backward needs again must have been copied to the stash.
 *   SEND       send buffer `slot` of that payload to `peer`; need not wait.
 *
 * No execution deadlocks, whether a SEND waits until its receive is posted, or the next
 * use of its buffer does, or nobody: the strictest of these is simulated for every size,
 * and the others only leave waits out.
 */
#ifndef PARALLEL_SCHEDULE_H
#define PARALLEL_SCHEDULE_H

#include "base/base.h"
#include "base/error.h"
#include "config/config.h"

#define SCHEDULE_MAX_STAGES 4096
#define SCHEDULE_MAX_CHUNKS 1024
#define SCHEDULE_MAX_STEPS (1 << 20) // chunks x micro-batches
#define SCHEDULE_TAG_END 16384       // tags are 0 <= tag < this, below MPI's least limit
#define SCHEDULE_RECV_SLOTS 2        // receive buffers of each payload
#define SCHEDULE_SEND_SLOTS 2        // send buffers of each payload

enum schedule_op { OP_POST_RECV, OP_FORWARD, OP_BACKWARD, OP_SEND };

enum schedule_payload { PAYLOAD_ACTIVATION, PAYLOAD_GRADIENT, N_PAYLOADS };

struct schedule_action {
    enum schedule_op op;
    enum schedule_payload payload; // of messages; of compute: what it takes in
    int32_t micro;                 // 0 <= micro < micro_batches
    int32_t chunk;    // of this stage, that computes, or takes in or has made the message
    int32_t peer;     // messages: the other stage; -1 for compute
    int32_t tag;      // messages: equal on both sides
    int32_t slot;     // messages: the receive or the send buffer of that payload
    int32_t slot_in;  // compute: the receive buffer of its input, or -1
    int32_t slot_out; // compute: the send buffer of its output, or -1
    int32_t stash;    // compute: from forward to backward, < schedule_max_in_flight(all)
};

struct schedule_shape {
    int64_t pp;            // stages
    int64_t chunks;        // virtual_pp_degree
    int64_t micro_batches; // of a step
    enum config_schedule kind;
};

struct schedule {
    struct schedule_shape shape;
    int stage;
    struct schedule_action *actions; // owned
    int64_t n_actions;
    int32_t *max_in_flight; // owned; by chunk, then of all chunks together
};

/* Whether there is such a schedule; the sentence of a refusal says what would do. */
MUST_CHECK int schedule_check(const struct schedule_shape *shape, struct error *err);

/* The list of one stage; 0 <= stage < pp. schedule_release() frees it. */
MUST_CHECK int schedule_init(struct schedule *s, const struct schedule_shape *shape,
                             int stage, struct error *err);
void schedule_release(struct schedule *s);

/* Stashes that exist at once, exactly: of one chunk, or of all with SCHEDULE_ALL_CHUNKS.
 * An action's `stash` numbers a pool of the latter; an executor that keeps the chunks
 * apart may take micro % (the chunk's number) instead, for a chunk ends its micro-batches
 * in the order in which it begins them. */
#define SCHEDULE_ALL_CHUNKS (-1)
int schedule_max_in_flight(const struct schedule *s, int chunk);

/* The tag of a message, from its micro-batch and the chunk that receives it; distinct for
 * any two that can be under way at the same time. */
int32_t schedule_tag(const struct schedule_shape *shape, enum schedule_payload payload,
                     int64_t micro, int64_t receiving_chunk);

#endif
