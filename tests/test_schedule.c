/*
 * The lists of actions, one by one: everything is computed once and in order, buffers and
 * stashes are never used twice at a time, what one stage sends is what the other expects.
 * The clock is in test_simulate.c.
 */
#include "schedule_fixture.h"

static struct schedule make(int64_t pp, int64_t chunks, int64_t m,
                            enum config_schedule kind, int stage)
{
    struct schedule_shape shape = {pp, chunks, m, kind};
    struct schedule s;
    struct error err;
    assert_ok(schedule_init(&s, &shape, stage, &err), err);
    return s;
}

static bool is_compute(const struct schedule_action *a)
{
    return a->op == OP_FORWARD || a->op == OP_BACKWARD;
}

/* -- properties of every list -------------------------------------------------------- */

/* Each chunk runs its micro-batches 0, 1, 2, ... forward and backward, each once, each
 * backward after its forward; the numbers in flight are the reported ones. */
static void check_compute(const struct schedule *s)
{
    int n_forward[8] = {0}, n_backward[8] = {0}, most[8] = {0};
    int all = 0, most_of_all = 0, chunks = (int)s->shape.chunks;
    for (int64_t i = 0; i < s->n_actions; i++) {
        const struct schedule_action *a = &s->actions[i];
        int c = a->chunk;
        if (a->op == OP_FORWARD) {
            assert_int_equal(a->micro, n_forward[c]++);
            all++;
        } else if (a->op == OP_BACKWARD) {
            assert_int_equal(a->micro, n_backward[c]++);
            assert_true(n_backward[c] <= n_forward[c]);
            all--;
        }
        most[c] = (int)i64_max(most[c], n_forward[c] - n_backward[c]);
        most_of_all = (int)i64_max(most_of_all, all);
    }
    for (int c = 0; c < chunks; c++) {
        assert_int_equal(n_forward[c], s->shape.micro_batches);
        assert_int_equal(n_backward[c], s->shape.micro_batches);
        assert_int_equal(schedule_max_in_flight(s, c), most[c]);
    }
    assert_int_equal(schedule_max_in_flight(s, SCHEDULE_ALL_CHUNKS), most_of_all);
}

/* No stash is filled while it is full, none is emptied by another micro-batch. */
static void check_stashes(const struct schedule *s)
{
    int n = schedule_max_in_flight(s, SCHEDULE_ALL_CHUNKS);
    int64_t *holds = calloc((size_t)n, sizeof *holds); // 1 + which, or 0
    assert_non_null(holds);
    for (int64_t i = 0; i < s->n_actions; i++) {
        const struct schedule_action *a = &s->actions[i];
        if (!is_compute(a))
            continue;
        assert_in_range(a->stash, 0, n - 1);
        int64_t which = 1 + a->chunk * s->shape.micro_batches + a->micro;
        assert_int_equal(holds[a->stash], a->op == OP_FORWARD ? 0 : which);
        holds[a->stash] = a->op == OP_FORWARD ? which : 0;
    }
    free(holds);
}

/* A receive is posted into a free buffer, taken by the compute it is for, and no more are
 * posted at once than there are buffers. */
static void check_receives(const struct schedule *s)
{
    const struct schedule_action *posted[N_PAYLOADS][SCHEDULE_RECV_SLOTS] = {0};
    int n_posted[N_PAYLOADS] = {0}, most[N_PAYLOADS] = {0};
    for (int64_t i = 0; i < s->n_actions; i++) {
        const struct schedule_action *a = &s->actions[i];
        if (a->op == OP_POST_RECV) {
            assert_null(posted[a->payload][a->slot]);
            posted[a->payload][a->slot] = a;
            n_posted[a->payload]++;
        } else if (is_compute(a) && a->slot_in >= 0) {
            const struct schedule_action *in = posted[a->payload][a->slot_in];
            assert_non_null(in);
            assert_int_equal(in->micro, a->micro);
            assert_int_equal(in->chunk, a->chunk);
            posted[a->payload][a->slot_in] = NULL;
            n_posted[a->payload]--;
        }
        most[a->payload] = (int)i64_max(most[a->payload], n_posted[a->payload]);
    }
    for (int k = 0; k < N_PAYLOADS; k++) {
        assert_int_equal(n_posted[k], 0);
        assert_true(most[k] <= SCHEDULE_RECV_SLOTS);
    }
}

/* Input and output exist except at the ends of the model; an output is sent before the
 * next compute, from the buffer that it was written to. */
static void check_messages_of_compute(const struct schedule *s)
{
    const struct schedule_action *to_send = NULL;
    for (int64_t i = 0; i < s->n_actions; i++) {
        const struct schedule_action *a = &s->actions[i];
        bool is_start = s->stage == 0 && a->chunk == 0;
        bool is_end = s->stage == s->shape.pp - 1 && a->chunk == s->shape.chunks - 1;
        bool is_forward = a->op == OP_FORWARD;
        if (is_compute(a)) {
            assert_null(to_send);
            assert_int_equal(a->slot_in >= 0, is_forward ? !is_start : !is_end);
            assert_int_equal(a->slot_out >= 0, is_forward ? !is_end : !is_start);
            to_send = a->slot_out >= 0 ? a : NULL;
        } else if (a->op == OP_SEND) {
            assert_non_null(to_send);
            assert_int_equal(a->slot, to_send->slot_out);
            assert_int_equal(a->micro, to_send->micro);
            assert_int_equal(a->chunk, to_send->chunk);
            assert_int_equal(a->payload, to_send->payload);
            to_send = NULL;
        }
    }
    assert_null(to_send);
}

/* The next message of a payload, from *at on, to or from `peer`; NULL after the last. */
static const struct schedule_action *next_message(const struct schedule *s, int64_t *at,
                                                  enum schedule_op op,
                                                  enum schedule_payload payload)
{
    while (*at < s->n_actions) {
        const struct schedule_action *a = &s->actions[(*at)++];
        if (a->op == op && a->payload == payload)
            return a;
    }
    return NULL;
}

/* What `from` sends is, in that order, what its neighbour posts; no tag comes twice. */
static void check_pair(const struct stage_lists *p, int from,
                       enum schedule_payload payload)
{
    int to =
        payload == PAYLOAD_ACTIVATION ? (from + 1) % p->pp : (from + p->pp - 1) % p->pp;
    bool seen[SCHEDULE_TAG_END] = {false};
    int64_t i = 0, j = 0;
    for (;;) {
        const struct schedule_action *sent =
            next_message(&p->stages[from], &i, OP_SEND, payload);
        const struct schedule_action *posted =
            next_message(&p->stages[to], &j, OP_POST_RECV, payload);
        assert_int_equal(sent == NULL, posted == NULL);
        if (!sent)
            return;
        assert_int_equal(sent->peer, to);
        assert_int_equal(posted->peer, from);
        assert_int_equal(sent->tag, posted->tag);
        assert_int_equal(sent->micro, posted->micro);
        assert_int_equal(sent->tag, schedule_tag(&p->stages[to].shape, payload,
                                                 posted->micro, posted->chunk));
        assert_in_range(sent->tag, 0, SCHEDULE_TAG_END - 1);
        assert_false(seen[sent->tag]);
        seen[sent->tag] = true;
    }
}

static void check_lists(const struct stage_lists *p)
{
    for (int i = 0; i < p->pp; i++) {
        check_compute(&p->stages[i]);
        check_stashes(&p->stages[i]);
        check_receives(&p->stages[i]);
        check_messages_of_compute(&p->stages[i]);
        check_pair(p, i, PAYLOAD_ACTIVATION);
        check_pair(p, i, PAYLOAD_GRADIENT);
    }
}

static void test_schedule__every_list_is_complete_ordered_and_matched(void **state)
{
    (void)state;
    assert_true(stage_lists_for_each(check_lists) > 2000);
}

/* -- how much is in flight ----------------------------------------------------------- */

static void check_in_flight(const struct stage_lists *p)
{
    for (int i = 0; i < p->pp; i++) {
        const struct schedule *s = &p->stages[i];
        int64_t pp = s->shape.pp, v = s->shape.chunks, m = s->shape.micro_batches;
        int64_t expected = m * v;
        if (s->shape.kind == SCHEDULE_1F1B && v == 1)
            expected = i64_min(m, pp - i);
        else if (s->shape.kind == SCHEDULE_1F1B && m > pp)
            expected = i64_min(m * v, 2 * (pp - i - 1) + (v - 1) * pp + 1);
        assert_int_equal(schedule_max_in_flight(s, SCHEDULE_ALL_CHUNKS), expected);
    }
}

static void test_schedule__holds_no_more_in_flight_than_its_kind_needs(void **state)
{
    (void)state;
    stage_lists_for_each(check_in_flight);
}

/* -- exact orders -------------------------------------------------------------------- */

/* "F0.0 F1.0 B0.0": kind, micro-batch, chunk of the compute actions. */
static void write_order(const struct schedule *s, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (int64_t i = 0; i < s->n_actions; i++)
        if (is_compute(&s->actions[i]))
            used +=
                (size_t)snprintf(text + used, size - used, "%s%c%d.%d", used ? " " : "",
                                 s->actions[i].op == OP_FORWARD ? 'F' : 'B',
                                 s->actions[i].micro, s->actions[i].chunk);
}

static void test_schedule__runs_in_the_published_orders(void **state)
{
    (void)state;
    static const struct {
        struct schedule_shape shape;
        int stage;
        const char *order;
    } cases[] = {
        {{1, 1, 3, SCHEDULE_1F1B}, 0, "F0.0 B0.0 F1.0 B1.0 F2.0 B2.0"},
        {{4, 1, 3, SCHEDULE_1F1B}, 3, "F0.0 B0.0 F1.0 B1.0 F2.0 B2.0"},
        {{4, 1, 3, SCHEDULE_1F1B}, 2, "F0.0 F1.0 B0.0 F2.0 B1.0 B2.0"},
        {{4, 1, 3, SCHEDULE_1F1B}, 0, "F0.0 F1.0 F2.0 B0.0 B1.0 B2.0"},
        {{2, 1, 2, SCHEDULE_F_THEN_B}, 1, "F0.0 F1.0 B0.0 B1.0"},
        {{2, 2, 4, SCHEDULE_1F1B},
         0,
         "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 "
         "B3.0"},
        {{2, 2, 4, SCHEDULE_1F1B},
         1,
         "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 "
         "B3.0"},
        {{2, 2, 2, SCHEDULE_1F1B}, 1, "F0.0 F1.0 F0.1 F1.1 B0.1 B1.1 B0.0 B1.0"},
        {{2, 2, 4, SCHEDULE_F_THEN_B},
         0,
         "F0.0 F1.0 F0.1 F1.1 F2.0 F3.0 F2.1 F3.1 B0.1 B1.1 B0.0 B1.0 B2.1 B3.1 B2.0 "
         "B3.0"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct schedule_shape *shape = &cases[i].shape;
        struct schedule s = make(shape->pp, shape->chunks, shape->micro_batches,
                                 shape->kind, cases[i].stage);
        char order[512];
        write_order(&s, order, sizeof order);
        assert_string_equal(order, cases[i].order);
        schedule_release(&s);
    }
}

static void test_schedule__posts_receives_before_it_computes_or_sends(void **state)
{
    (void)state;
    struct schedule s = make(4, 1, 8, SCHEDULE_1F1B, 1);
    for (int i = 0; i < 2 * SCHEDULE_RECV_SLOTS; i++)
        assert_int_equal(s.actions[i].op, OP_POST_RECV);
    // forward 0 takes micro-batch 0, posts micro-batch 2 at once, then sends
    assert_int_equal(s.actions[4].op, OP_FORWARD);
    assert_int_equal(s.actions[5].op, OP_POST_RECV);
    assert_int_equal(s.actions[5].micro, 2);
    assert_int_equal(s.actions[5].slot, s.actions[4].slot_in);
    assert_int_equal(s.actions[6].op, OP_SEND);
    schedule_release(&s);
}

/* -- tags and refusals --------------------------------------------------------------- */

static void test_schedule__tags_stay_small_however_many_micro_batches(void **state)
{
    (void)state;
    struct schedule_shape shape = {4, 8, 100000, SCHEDULE_1F1B};
    for (int64_t micro = 0; micro < shape.micro_batches; micro++) {
        int32_t tag = schedule_tag(&shape, PAYLOAD_GRADIENT, micro, 7);
        assert_in_range(tag, 0, SCHEDULE_TAG_END - 1);
        // far more apart than messages that can meet
        for (int64_t other = micro + 1; other <= micro + 200; other += 33)
            assert_int_not_equal(tag, schedule_tag(&shape, PAYLOAD_GRADIENT, other, 7));
    }
}

static void test_schedule__a_refusal_says_what_would_do(void **state)
{
    (void)state;
    static const struct {
        int64_t pp, chunks, micro_batches;
        const char *says;
    } cases[] = {
        {0, 1, 1, "0 stages"},
        {-4, 1, 1, "between 1 and 4096"},
        {1000000000, 1, 1, "1000000000 stages"},
        {4, 0, 8, "0 chunks"},
        {4, INT64_MAX, 8, "between 1 and 1024"},
        {4, 1, 0, "0 micro-batches"},
        {4, 2, INT64_MAX, "between 1 and 524288"},
        {4, 2, 6, "use 4 or 8 micro-batches, or 1 chunk per stage"},
        {4, 2, 3, "use 4 micro-batches, or 1 chunk per stage"},
        {1, 2, 4, "use 1 chunk, or 2 stages or more"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct schedule_shape shape = {cases[i].pp, cases[i].chunks,
                                       cases[i].micro_batches, SCHEDULE_1F1B};
        struct schedule s;
        struct error err;
        assert_int_equal(schedule_init(&s, &shape, 0, &err), -1);
        assert_int_equal(err.kind, ERROR_INPUT);
        if (!strstr(err.text, cases[i].says))
            fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedule__every_list_is_complete_ordered_and_matched),
        cmocka_unit_test(test_schedule__holds_no_more_in_flight_than_its_kind_needs),
        cmocka_unit_test(test_schedule__runs_in_the_published_orders),
        cmocka_unit_test(test_schedule__posts_receives_before_it_computes_or_sends),
        cmocka_unit_test(test_schedule__tags_stay_small_however_many_micro_batches),
        cmocka_unit_test(test_schedule__a_refusal_says_what_would_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
