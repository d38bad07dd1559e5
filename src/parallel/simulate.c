/*
 * Every stage has a clock and a place in its list. Stages are advanced in turn, each
 * until it has to wait for something that a neighbour has not done yet; when none
 * advances, all are done or they wait for each other. Times follow from the order alone,
 * so the turn in which stages are looked at does not show in the result.
 *
 * A stage takes activations from one neighbour and gradients from one, in the order of
 * sending, so a message is found by its number in the receiver's mailbox of that payload.
 */
#include "parallel/simulate.h"

#include <stdlib.h>
#include <string.h>

struct message {
    double posted, sent; // when
    int32_t tag_posted, tag_sent;
};

struct mailbox { // the messages of one payload to one stage
    struct message *messages;
    int64_t capacity, n_posted, n_sent, n_taken;
};

struct player { // a stage at work
    const struct schedule *schedule;
    double clock;
    int64_t at;      // the next action
    bool is_sending; // in a send that has begun and waits
    int64_t n_sent[N_PAYLOADS];
    struct mailbox inbox[N_PAYLOADS];
};

struct game {
    const struct simulate_cost *cost;
    struct simulate *sim;
    struct player *players;   // (pp)
    struct message *messages; // (pp, 2, steps): all mailboxes
    int pp;
};

enum outcome { MOVED, WAITING };

/* -- one action ---------------------------------------------------------------------- */

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* When message i, posted and sent, is there. */
static double arrival(const struct game *g, const struct mailbox *box, int64_t i)
{
    CHECK(box->messages[i].tag_posted == box->messages[i].tag_sent,
          "message %lld is posted with tag %d and sent with tag %d", (long long)i,
          box->messages[i].tag_posted, box->messages[i].tag_sent);
    return later(box->messages[i].posted, box->messages[i].sent) + g->cost->latency;
}

static enum outcome play_post(struct player *p, const struct schedule_action *a)
{
    struct mailbox *box = &p->inbox[a->payload];
    CHECK(box->n_posted < box->capacity, "%lld receives", (long long)box->n_posted);
    box->messages[box->n_posted].posted = p->clock;
    box->messages[box->n_posted++].tag_posted = a->tag;
    return MOVED;
}

static enum outcome send_message(const struct game *g, struct player *p,
                                 const struct schedule_action *a)
{
    struct mailbox *box = &g->players[a->peer].inbox[a->payload];
    if (!p->is_sending) {
        CHECK(box->n_sent < box->capacity, "%lld sends", (long long)box->n_sent);
        box->messages[box->n_sent].sent = p->clock;
        box->messages[box->n_sent++].tag_sent = a->tag;
        p->n_sent[a->payload]++;
    }
    p->is_sending =
        g->cost->send == SIMULATE_SEND_BLOCKING && box->n_posted < box->n_sent;
    if (p->is_sending)
        return WAITING;
    if (g->cost->send == SIMULATE_SEND_BLOCKING)
        p->clock = later(p->clock, box->messages[box->n_sent - 1].posted);
    return MOVED;
}

/* Whether the send buffer for the output of `a` is free, and from when. */
static enum outcome wait_for_send_buffer(const struct game *g, const struct player *p,
                                         const struct schedule_action *a, double *when)
{
    int64_t i = p->n_sent[a->payload] - SCHEDULE_SEND_SLOTS; // the last to leave from it
    if (g->cost->send != SIMULATE_SEND_BUFFERED || a->slot_out < 0 || i < 0)
        return MOVED;
    int stage = p->schedule->stage;
    int to = a->payload == PAYLOAD_ACTIVATION ? (stage + 1) % g->pp
                                              : (stage + g->pp - 1) % g->pp;
    const struct mailbox *box = &g->players[to].inbox[a->payload];
    if (box->n_posted <= i)
        return WAITING;
    *when = later(*when, arrival(g, box, i));
    return MOVED;
}

static enum outcome play_compute(const struct game *g, struct player *p,
                                 const struct schedule_action *a)
{
    struct mailbox *box = &p->inbox[a->payload];
    double start = p->clock;
    if (a->slot_in >= 0 && box->n_sent <= box->n_taken)
        return WAITING;
    if (wait_for_send_buffer(g, p, a, &start) == WAITING)
        return WAITING;
    if (a->slot_in >= 0) {
        CHECK(box->n_taken < box->n_posted, "stage %d takes what it has not posted",
              p->schedule->stage);
        start = later(start, arrival(g, box, box->n_taken++));
    }
    bool is_backward = a->op == OP_BACKWARD;
    double all = is_backward ? g->cost->backward : g->cost->forward;
    double time = all / (double)p->schedule->shape.chunks;
    struct simulate_stage *log = &g->sim->stages[p->schedule->stage];
    log->spans[log->n_spans++] = (struct simulate_span){.start = start,
                                                        .end = start + time,
                                                        .micro = a->micro,
                                                        .chunk = a->chunk,
                                                        .is_backward = is_backward};
    log->busy += time;
    p->clock = start + time;
    return MOVED;
}

static enum outcome play_action(const struct game *g, struct player *p)
{
    const struct schedule_action *a = &p->schedule->actions[p->at];
    switch (a->op) {
    case OP_POST_RECV:
        return play_post(p, a);
    case OP_SEND:
        return send_message(g, p, a);
    case OP_FORWARD:
    case OP_BACKWARD:
        break;
    }
    return play_compute(g, p, a);
}

/* -- the whole ----------------------------------------------------------------------- */

static bool is_done(const struct player *p)
{
    return p->at == p->schedule->n_actions;
}

static int deadlock(const struct player *p, struct error *err)
{
    static const char *const names[] = {"post a receive", "run a forward",
                                        "run a backward", "send"};
    const struct schedule_action *a = &p->schedule->actions[p->at];
    return error_set(err, ERROR_RUNTIME,
                     "the pipeline schedule deadlocks: stage %d waits in action %lld of "
                     "%lld, to %s of micro-batch %d, chunk %d",
                     p->schedule->stage, (long long)p->at,
                     (long long)p->schedule->n_actions, names[a->op], a->micro, a->chunk);
}

static int play(struct game *g, struct error *err)
{
    bool has_moved = true;
    while (has_moved) {
        has_moved = false;
        for (int i = 0; i < g->pp; i++)
            while (!is_done(&g->players[i]) && play_action(g, &g->players[i]) == MOVED) {
                g->players[i].at++;
                has_moved = true;
            }
    }
    for (int i = 0; i < g->pp; i++)
        if (!is_done(&g->players[i]))
            return deadlock(&g->players[i], err);
    for (int i = 0; i < g->pp; i++)
        g->sim->makespan = later(g->sim->makespan, g->players[i].clock);
    return 0;
}

static int allocate(struct game *g, int64_t n_steps, struct error *err)
{
    size_t pp = (size_t)g->pp, n = 2 * (size_t)n_steps; // two directions
    g->players = calloc(pp, sizeof *g->players);
    g->messages = calloc(pp * n, sizeof *g->messages);
    g->sim->stages = calloc(pp, sizeof *g->sim->stages);
    g->sim->spans = calloc(pp * n, sizeof *g->sim->spans);
    if (g->players && g->messages && g->sim->stages && g->sim->spans)
        return 0;
    error_set(err, ERROR_RUNTIME, "out of memory to simulate %d stages of %lld actions",
              g->pp, (long long)n);
    return -1;
}

static void deal(struct game *g, const struct schedule *stages, int64_t n_steps)
{
    for (int i = 0; i < g->pp; i++) {
        CHECK(stages[i].stage == i, "the schedule of stage %d at %d", stages[i].stage, i);
        g->players[i].schedule = &stages[i];
        g->sim->stages[i].spans = g->sim->spans + 2 * n_steps * i;
        for (int j = 0; j < N_PAYLOADS; j++)
            g->players[i].inbox[j] = (struct mailbox){
                .messages = g->messages + n_steps * (2 * i + j), .capacity = n_steps};
    }
}

int simulate_init(struct simulate *sim, const struct schedule *stages,
                  const struct simulate_cost *cost, struct error *err)
{
    const struct schedule_shape *shape = &stages[0].shape;
    int64_t n_steps = shape->chunks * shape->micro_batches;
    struct game g = {.cost = cost, .sim = sim, .pp = (int)shape->pp};
    *sim = (struct simulate){.pp = g.pp};
    int rc = -1;
    if (allocate(&g, n_steps, err))
        goto done;
    deal(&g, stages, n_steps);
    if (play(&g, err))
        goto done;
    rc = 0;
done:
    free(g.players);
    free(g.messages);
    if (rc)
        simulate_release(sim);
    return rc;
}

void simulate_release(struct simulate *sim)
{
    free(sim->stages);
    free(sim->spans);
    memset(sim, 0, sizeof *sim);
}

static double total_busy(const struct simulate *sim)
{
    double busy = 0;
    for (int i = 0; i < sim->pp; i++)
        busy += sim->stages[i].busy;
    return busy;
}

double simulate_bubble_of_total(const struct simulate *sim)
{
    double all = sim->makespan * sim->pp;
    return (all - total_busy(sim)) / all;
}

double simulate_bubble_of_ideal(const struct simulate *sim)
{
    double busy = total_busy(sim);
    return (sim->makespan * sim->pp - busy) / busy;
}
