#include "parallel/pipeline.h"

static void layout_buffers(struct pipeline *p, struct arena *ar, int64_t pp, int64_t n,
                           enum dtype dtype)
{
    p->n_bytes = n * (int64_t)dtype_bytes(dtype);
    if (pp == 1)
        return;
    size_t bytes = (size_t)p->n_bytes;
    p->dx = arena_bytes(ar, bytes);
    for (int payload = 0; payload < N_PAYLOADS; payload++) {
        for (int i = 0; i < SCHEDULE_RECV_SLOTS; i++)
            p->recv[payload][i] = arena_bytes(ar, bytes);
        for (int i = 0; i < SCHEDULE_SEND_SLOTS; i++)
            p->send[payload][i] = arena_bytes(ar, bytes);
    }
}

size_t pipeline_bytes(int64_t pp, int64_t n, enum dtype dtype)
{
    struct pipeline measured = {0};
    struct arena ar;
    arena_measure(&ar);
    layout_buffers(&measured, &ar, pp, n, dtype);
    return ar.used_bytes;
}

int pipeline_open(struct pipeline *p, struct device *dev, struct comm *group,
                  const struct schedule_shape *shape, int64_t n, enum dtype dtype,
                  struct error *err)
{
    *p = (struct pipeline){.dev = dev, .group = group};
    if (schedule_init(&p->schedule, shape, comm_rank(group), err))
        return -1;
    if (device_arena_open(dev, &p->arena, pipeline_bytes(shape->pp, n, dtype), NULL,
                          "the pipeline", err)) {
        schedule_release(&p->schedule);
        return -1;
    }
    layout_buffers(p, &p->arena, shape->pp, n, dtype);
    return 0;
}

void pipeline_close(struct pipeline *p)
{
    schedule_release(&p->schedule);
    if (p->dev)
        device_arena_close(p->dev, &p->arena);
    *p = (struct pipeline){0};
}

/* -- messages ------------------------------------------------------------------------ */

static void post_recv(struct pipeline *p, const struct schedule_action *a)
{
    comm_recv_bytes_start(p->group, p->recv[a->payload][a->slot], p->n_bytes, a->peer,
                          a->tag, &p->recv_request[a->payload][a->slot]);
}

static void start_send(struct pipeline *p, const struct schedule_action *a)
{
    comm_send_bytes_start(p->group, p->send[a->payload][a->slot], p->n_bytes, a->peer,
                          a->tag, &p->send_request[a->payload][a->slot]);
    p->is_sending[a->payload][a->slot] = true;
}

/* A send buffer is free when what it last held has left. */
static int wait_for_send(struct pipeline *p, int payload, int slot, struct error *err)
{
    if (!p->is_sending[payload][slot])
        return 0;
    p->is_sending[payload][slot] = false;
    return comm_wait(&p->send_request[payload][slot], err);
}

static int wait_for_all_sends(struct pipeline *p, struct error *err)
{
    int rc = 0;
    for (int payload = 0; payload < N_PAYLOADS; payload++)
        for (int slot = 0; slot < SCHEDULE_SEND_SLOTS; slot++)
            if (wait_for_send(p, payload, slot, err))
                rc = -1;
    return rc;
}

/* -- one step ------------------------------------------------------------------------ */

/* The input of a compute action, or NULL; and its output's buffer, free to be written. */
static int buffers_of(struct pipeline *p, const struct schedule_action *a, void **in,
                      void **out, struct error *err)
{
    *in = *out = NULL;
    if (a->slot_in >= 0) {
        if (comm_wait(&p->recv_request[a->payload][a->slot_in], err))
            return -1;
        *in = p->recv[a->payload][a->slot_in];
    }
    if (a->slot_out >= 0) {
        if (wait_for_send(p, (int)a->payload, a->slot_out, err))
            return -1;
        *out = p->send[a->payload][a->slot_out];
    }
    return 0;
}

static int scheduled_task(struct pipeline *p, const struct schedule_action *a,
                          struct pipeline_task *task, struct error *err)
{
    void *in, *out;
    if (buffers_of(p, a, &in, &out, err))
        return -1;
    *task = (struct pipeline_task){
        .op = a->op, .chunk = a->chunk, .micro = a->micro, .stash = a->stash};
    if (a->op == OP_FORWARD) {
        task->x_in = in;
        task->x_out = out;
        return 1;
    }
    task->dx = out ? out : p->dx;
    if (in)
        device_copy(device_stream(p->dev, STREAM_COMPUTE), task->dx, in,
                    (size_t)p->n_bytes, COPY_ON_DEVICE);
    return 1;
}

void pipeline_start(struct pipeline *p)
{
    p->next = 0;
    p->n_forward = 0;
}

static int next_of_schedule(struct pipeline *p, struct pipeline_task *task,
                            struct error *err)
{
    while (p->next < p->schedule.n_actions) {
        const struct schedule_action *a = &p->schedule.actions[p->next++];
        if (a->op == OP_POST_RECV)
            post_recv(p, a);
        else if (a->op == OP_SEND)
            start_send(p, a);
        else
            return scheduled_task(p, a, task, err);
        comm_progress(p->group);
    }
    return wait_for_all_sends(p, err);
}

/* -- forward alone ------------------------------------------------------------------- */

void pipeline_start_forward(struct pipeline *p, int n_micro)
{
    CHECK(n_micro > 0, "%d micro-batches", n_micro);
    p->next = 0;
    p->n_forward = n_micro;
    p->has_output = false;
}

static int receive_now(struct pipeline *p, int from, int tag, struct error *err)
{
    struct comm_request request;
    comm_recv_bytes_start(p->group, p->recv[PAYLOAD_ACTIVATION][0], p->n_bytes, from, tag,
                          &request);
    return comm_wait(&request, err);
}

static int forward_task(struct pipeline *p, int chunk, int micro, int slot,
                        struct pipeline_task *task, struct error *err)
{
    const struct schedule_shape *shape = &p->schedule.shape;
    int pp = (int)shape->pp, stage = p->schedule.stage;
    bool is_first = stage == 0 && chunk == 0;
    bool is_last = stage == pp - 1 && chunk == (int)shape->chunks - 1;
    int to = (stage + 1) % pp, from = (stage + pp - 1) % pp;
    int to_chunk = stage == pp - 1 ? chunk + 1 : chunk;
    if (!is_first &&
        receive_now(p, from, schedule_tag(shape, PAYLOAD_ACTIVATION, micro, chunk), err))
        return -1;
    if (!is_last && wait_for_send(p, PAYLOAD_ACTIVATION, slot, err))
        return -1;
    *task = (struct pipeline_task){
        .op = OP_FORWARD,
        .chunk = chunk,
        .micro = micro,
        .x_in = is_first ? NULL : p->recv[PAYLOAD_ACTIVATION][0],
        .x_out = is_last ? NULL : p->send[PAYLOAD_ACTIVATION][slot]};
    p->has_output = !is_last;
    p->output = (struct schedule_action){
        .payload = PAYLOAD_ACTIVATION,
        .peer = to,
        .tag = schedule_tag(shape, PAYLOAD_ACTIVATION, micro, to_chunk),
        .slot = slot};
    return 1;
}

/* Every stage goes through (group of pp micro-batches, chunk, micro-batch) in the same
 * order, so what one waits for is what its neighbour does next. */
static int next_of_forward(struct pipeline *p, struct pipeline_task *task,
                           struct error *err)
{
    int64_t pp = p->schedule.shape.pp, chunks = p->schedule.shape.chunks, i = p->next++;
    if (p->has_output)
        start_send(p, &p->output);
    p->has_output = false;
    if (i == chunks * p->n_forward)
        return wait_for_all_sends(p, err);
    int64_t first = i / (chunks * pp) * pp, n = i64_min(pp, p->n_forward - first);
    int64_t at = i - first * chunks;
    return forward_task(p, (int)(at / n), (int)(first + at % n),
                        (int)(i % SCHEDULE_SEND_SLOTS), task, err);
}

int pipeline_next(struct pipeline *p, struct pipeline_task *task, struct error *err)
{
    if (p->n_forward > 0)
        return next_of_forward(p, task, err);
    if (p->next > 0)
        comm_progress(p->group); // a task has just ended
    return next_of_schedule(p, task, err);
}
