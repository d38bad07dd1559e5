/*
 * Communication as a trace shows it: each operation from its start to its end on a lane
 * of its own, and on the compute track the time the process stood still for it.
 */
#include "comm/comm_mpi.h"

void comm_set_trace(struct comm *c, struct trace *trace)
{
    c->job->trace = trace;
}

static const char *name_of(const struct comm_request *req)
{
    static const char *const kinds[COMM_N_KINDS] = {
        [COMM_ALLREDUCE] = "all-reduce",
        [COMM_REDUCE_SCATTER] = "reduce-scatter",
        [COMM_ALLGATHER] = "all-gather",
    };
    static const char *const calls[] = {
        [COMM_SEND] = "send",
        [COMM_RECV] = "receive",
        [COMM_BCAST] = "broadcast",
        [COMM_BARRIER] = "barrier",
    };
    return kinds[req->kind] ? kinds[req->kind] : calls[req->call];
}

static struct trace_span span_of(const struct comm_request *req)
{
    const struct comm *c = req->comm;
    struct trace_span span = {.name = name_of(req), .group = c->name};
    bool is_collective = req->kind != COMM_P2P && req->kind != COMM_OTHER;
    if (is_collective) {
        int64_t n = req->bounds ? req->bounds[c->size] - req->bounds[0] : req->n;
        span.args[0] = (struct trace_arg){"bytes", n * (int64_t)req->elem_bytes};
        span.args[1] = (struct trace_arg){"ranks", c->size};
    } else {
        span.args[0] = (struct trace_arg){"bytes", req->n};
        span.args[1] = (struct trace_arg){"peer", req->peer};
    }
    return span;
}

void comm_trace_flight(const struct comm_request *req)
{
    if (!req->comm->job->trace)
        return;
    struct trace_span span = span_of(req);
    span.track = TRACE_COMM;
    trace_end(req->comm->job->trace, req->start, &span);
}

void comm_trace_wait(const struct comm_request *req, double start)
{
    if (!req->comm->job->trace)
        return;
    struct trace_span span = span_of(req);
    span.name = "wait";
    trace_end(req->comm->job->trace, start, &span);
}
