/* What a watcher sees of communication: what this rank waits for, and for whom. */
#include "comm/comm_mpi.h"

#include "base/beat.h"

static enum beat_action action_of(const struct comm_request *req)
{
    static const enum beat_action kinds[COMM_N_KINDS] = {
        [COMM_ALLREDUCE] = BEAT_REDUCE,
        [COMM_REDUCE_SCATTER] = BEAT_REDUCE,
        [COMM_ALLGATHER] = BEAT_GATHER,
    };
    static const enum beat_action calls[] = {
        [COMM_SEND] = BEAT_SEND,
        [COMM_RECV] = BEAT_RECEIVE,
        [COMM_BCAST] = BEAT_BROADCAST,
        [COMM_BARRIER] = BEAT_BARRIER,
    };
    bool is_message = req->kind == COMM_P2P || req->kind == COMM_OTHER;
    return is_message ? calls[req->call] : kinds[req->kind];
}

/* The rank of the group; -1: any of them. MPI's own trees carry broadcasts and barriers,
 * and do not tell who is late. */
static int holder_of(const struct comm_request *req)
{
    if (req->kind != COMM_P2P && req->kind != COMM_OTHER)
        return comm_collective_holder(req);
    return req->call == COMM_SEND || req->call == COMM_RECV ? req->peer : -1;
}

void comm_beat_wait(const struct comm_request *req)
{
    int holder = holder_of(req);
    beat_wait(action_of(req),
              holder >= 0 ? req->comm->world_ranks[holder] : BEAT_EVERYBODY);
}
