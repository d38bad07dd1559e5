/*
 * The clock of a pipeline step: no schedule deadlocks however sends wait, and the bubble
 * is the one that theory and the published tables say.
 */
#include "schedule_fixture.h"

#include "parallel/simulate.h"

static const enum simulate_send sends[] = {SIMULATE_SEND_FREE, SIMULATE_SEND_BUFFERED,
                                           SIMULATE_SEND_BLOCKING};

static double makespan_of(const struct stage_lists *p, const struct simulate_cost *cost)
{
    struct simulate sim;
    struct error err;
    assert_ok(simulate_init(&sim, p->stages, cost, &err), err);
    double makespan = sim.makespan;
    simulate_release(&sim);
    return makespan;
}

static double makespan_of_shape(struct schedule_shape shape, struct simulate_cost cost)
{
    struct stage_lists p;
    stage_lists_init(&p, &shape);
    double makespan = makespan_of(&p, &cost);
    stage_lists_release(&p);
    return makespan;
}

/* -- every size ---------------------------------------------------------------------- */

/* T = m (f + b) + (p - 1) (f + b) / v. The times are whole numbers for every number of
 * chunks tried, so that sums are exact and equality means equality. */
static void check_makespan(const struct stage_lists *p)
{
    const struct schedule_shape *shape = &p->stages[0].shape;
    double pp = (double)shape->pp, m = (double)shape->micro_batches;
    double v = (double)shape->chunks, f = 168, b = 336;
    for (size_t i = 0; i < ARRAY_LEN(sends); i++) {
        struct simulate_cost cost = {.forward = f, .backward = b, .send = sends[i]};
        double expected = m * (f + b) + (pp - 1) * (f + b) / v;
        if (makespan_of(p, &cost) != expected)
            fail_msg("pp %g, chunks %g, micro-batches %g, kind %d, send %d: %g, not %g",
                     pp, v, m, shape->kind, sends[i], makespan_of(p, &cost), expected);
    }
}

static void test_simulate__no_send_order_deadlocks_and_the_bubble_is_minimal(void **state)
{
    (void)state;
    assert_true(stage_lists_for_each(check_makespan) > 2000);
}

/* Uneven times change when things happen, never whether: all three ways of sending end.
 */
static void check_uneven_times(const struct stage_lists *p)
{
    static const struct simulate_cost costs[] = {
        {1, 0, 3, 0}, {0, 1, 3, 0}, {1, 1, 100, 0}, {0, 0, 0, 0}};
    if (p->pp < 60 && (p->pp > 8 || p->stages[0].shape.micro_batches > 16))
        return;
    for (size_t i = 0; i < ARRAY_LEN(costs); i++)
        for (size_t j = 0; j < ARRAY_LEN(sends); j++) {
            struct simulate_cost cost = costs[i];
            cost.send = sends[j];
            assert_true(makespan_of(p, &cost) >= 0);
        }
}

static void test_simulate__ends_whatever_the_times_are(void **state)
{
    (void)state;
    stage_lists_for_each(check_uneven_times);
}

static void test_simulate__bubble_fractions_follow_both_conventions(void **state)
{
    (void)state;
    struct schedule_shape shape = {4, 1, 8, SCHEDULE_1F1B};
    struct simulate_cost cost = {.forward = 1, .backward = 2};
    struct stage_lists p;
    struct simulate sim;
    struct error err;
    stage_lists_init(&p, &shape);
    assert_ok(simulate_init(&sim, p.stages, &cost, &err), err);
    assert_close(simulate_bubble_of_ideal(&sim), 3.0 / 8, 1e-15);
    assert_close(simulate_bubble_of_total(&sim), 3.0 / 11, 1e-15);
    for (int i = 0; i < 4; i++)
        assert_close(sim.stages[i].busy, 24, 0);
    simulate_release(&sim);
    stage_lists_release(&p);
}

/* -- latency ------------------------------------------------------------------------- */

/* Each direction exposes a latency on the way through the pipeline, p - 1, and then in
 * 1F1B once a micro-batch, except once in p; interleaved 1F1B only on the way. */
static void test_simulate__latency_costs_what_the_closed_forms_say(void **state)
{
    (void)state;
    double f = 96, b = 192, c = 1;
    for (size_t i = 0; i < ARRAY_LEN(sends); i++)
        for (int64_t pp = 2; pp <= 16; pp++)
            for (int64_t m = 1; m <= 64; m++) {
                struct schedule_shape shape = {pp, 1, m, SCHEDULE_1F1B};
                struct simulate_cost cost = {f, b, c, sends[i]};
                int64_t once_in_p = i64_round_up(m - 1, pp) / pp;
                double expected = (double)(m + pp - 1) * (f + b) +
                                  2 * c * (double)(pp - 1 + m - 1 - once_in_p);
                assert_close(makespan_of_shape(shape, cost), expected, 0);
                if (m % pp || m == pp)
                    continue;
                shape.chunks = 3;
                expected = (double)m * (f + b) + (double)(pp - 1) * (f + b) / 3 +
                           2 * c * (double)(3 * pp - 1);
                assert_close(makespan_of_shape(shape, cost), expected, 0);
            }
}

/* arXiv 2401.10241v1, tables 5, 8 and 9: the bubble of 1F1B as printed, and of
 * interleaved 1F1B with every message counted (the paper leaves most of its latencies
 * out). */
static const struct {
    int64_t pp, m;
    double forward, backward_input, backward_weight, latency, bubble;
    int64_t chunks;
    double bubble_interleaved; // 0: not known
    double parts;              // of a stage that the times are of
} published[] = {
    {8, 24, 18.522, 18.086, 9.337, .601, .2431, 3, .1090, 1},
    {8, 32, 18.513, 18.086, 9.331, .626, .1985, 3, .0847, 1},
    {8, 64, 18.546, 18.097, 9.321, .762, .1240, 3, .0461, 1},
    {8, 24, 29.718, 29.444, 19.927, .527, .2347, 4, .0827, 1},
    {8, 32, 29.802, 29.428, 19.530, .577, .1898, 4, .0644, 1},
    {8, 64, 29.935, 29.621, 19.388, .535, .1091, 4, .0328, 1},
    {16, 48, 11.347, 11.248, 8.132, .377, .2552, 3, .1136, 1},
    {16, 64, 11.307, 11.254, 8.101, .379, .2082, 3, .0878, 1},
    {16, 128, 11.325, 11.308, 8.109, .378, .1251, 3, .0459, 1},
    {32, 96, 10.419, 10.207, 7.715, .408, .2646, 2, .1528, 1},
    {32, 128, 10.408, 10.204, 7.703, .408, .2168, 2, .1192, 1},
    {32, 256, 10.402, 10.248, 7.698, .460, .1352, 2, .0641, 1},
    {16, 48, 14.407, 14.380, 9.676, 1.610, .2668, 0, 0, 2},
    {16, 64, 14.412, 14.393, 9.688, 1.621, .2206, 0, 0, 2},
    {16, 128, 14.316, 14.306, 9.639, 1.619, .1390, 0, 0, 2},
    {24, 72, 6.763, 6.969, 5.251, .755, .2699, 0, 0, 2},
    {24, 96, 6.783, 6.984, 5.259, .758, .2229, 0, 0, 2},
    {24, 192, 6.785, 6.990, 5.260, .770, .1403, 0, 0, 2},
    {32, 96, 9.458, 9.748, 7.288, .879, .2676, 0, 0, 2},
    {32, 128, 9.469, 9.744, 7.306, .892, .2204, 0, 0, 2},
    {32, 256, 9.447, 9.644, 7.193, .887, .1362, 0, 0, 2},
};

static void check_published(size_t row, int64_t chunks, double bubble)
{
    double parts = published[row].parts;
    struct simulate_cost cost = {.forward = parts * published[row].forward,
                                 .backward = parts * (published[row].backward_input +
                                                      published[row].backward_weight),
                                 .latency = published[row].latency,
                                 .send = SIMULATE_SEND_BUFFERED};
    struct schedule_shape shape = {published[row].pp, chunks, published[row].m,
                                   SCHEDULE_1F1B};
    double makespan = makespan_of_shape(shape, cost);
    double compute = (double)published[row].m * (cost.forward + cost.backward);
    char expected[16], found[16];
    snprintf(expected, sizeof expected, "%.4f", bubble);
    snprintf(found, sizeof found, "%.4f", (makespan - compute) / makespan);
    if (strcmp(expected, found) != 0)
        fail_msg("row %zu, chunks %d: %s, not %s", row, (int)chunks, found, expected);
}

static void test_simulate__reproduces_the_published_bubbles(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(published); i++) {
        check_published(i, 1, published[i].bubble);
        if (published[i].chunks)
            check_published(i, published[i].chunks, published[i].bubble_interleaved);
    }
}

/* -- the detector -------------------------------------------------------------------- */

/* Move every receive to just before the compute that takes it: the order of a naive
 * executor, in which two neighbours that both send wait for each other. */
static void post_late(struct schedule *s)
{
    struct schedule_action *late = malloc((size_t)s->n_actions * sizeof *late);
    assert_non_null(late);
    int64_t n = 0, next[N_PAYLOADS] = {0};
    for (int64_t i = 0; i < s->n_actions; i++) {
        const struct schedule_action *a = &s->actions[i];
        if (a->op == OP_POST_RECV)
            continue;
        if (a->op != OP_SEND && a->slot_in >= 0) {
            int64_t *at = &next[a->payload];
            while (s->actions[*at].op != OP_POST_RECV ||
                   s->actions[*at].payload != a->payload)
                ++*at;
            late[n++] = s->actions[(*at)++];
        }
        late[n++] = *a;
    }
    assert_int_equal(n, s->n_actions);
    memcpy(s->actions, late, (size_t)n * sizeof *late);
    free(late);
}

static void test_simulate__finds_the_deadlock_of_receives_posted_late(void **state)
{
    (void)state;
    struct schedule_shape shape = {2, 1, 4, SCHEDULE_1F1B};
    struct simulate_cost cost = {1, 1, 0, SIMULATE_SEND_BLOCKING};
    struct stage_lists p;
    struct simulate sim;
    struct error err;
    stage_lists_init(&p, &shape);
    for (int i = 0; i < p.pp; i++)
        post_late(&p.stages[i]);
    assert_int_equal(simulate_init(&sim, p.stages, &cost, &err), -1);
    assert_non_null(strstr(err.text, "deadlocks: stage 0 waits in action"));
    cost.send = SIMULATE_SEND_FREE;
    assert_ok(simulate_init(&sim, p.stages, &cost, &err), err);
    simulate_release(&sim);
    stage_lists_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_simulate__no_send_order_deadlocks_and_the_bubble_is_minimal),
        cmocka_unit_test(test_simulate__ends_whatever_the_times_are),
        cmocka_unit_test(test_simulate__bubble_fractions_follow_both_conventions),
        cmocka_unit_test(test_simulate__latency_costs_what_the_closed_forms_say),
        cmocka_unit_test(test_simulate__reproduces_the_published_bubbles),
        cmocka_unit_test(test_simulate__finds_the_deadlock_of_receives_posted_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
