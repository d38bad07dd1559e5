/* Sums, gathers, messages and agreement on any number of ranks. */
#include "parallel_test.h"

#include "base/base.h"

/* -- sums ---------------------------------------------------------------------------- */

static void test_values__tell_one_order_of_adding_from_another(void **state)
{
    (void)state;
    int64_t n_different = 0;
    for (int64_t i = 0; i < 1000; i++) {
        float forth = (value_at(0, 0, i) + value_at(0, 1, i)) + value_at(0, 2, i);
        float back = (value_at(0, 2, i) + value_at(0, 1, i)) + value_at(0, 0, i);
        n_different += forth != back;
    }
    assert_true(n_different > 100);
}

static void test_allreduce__adds_in_rank_order(void **state)
{
    struct comm *c = *state;
    struct error err;
    for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
        int64_t n = sizes[k];
        float *x = values_new(c, 0, n);
        assert_ok(comm_allreduce_f32(c, x, n, &err), err);
        assert_sums(x, 0, comm_size(c), 0, n);
        assert_true(x[n] == -77.0f);
        free(x);
    }
}

static void
test_allreduce__many_may_be_in_flight_and_be_waited_for_in_any_order(void **state)
{
    enum { N = 11 };
    static const int64_t lengths[N] = {300000, 1,     0, 70000, 5,     65536,
                                       2,      99999, 3, 8,     250001};
    struct comm *c = *state;
    struct comm_request reqs[N];
    float *x[N];
    struct error err;
    for (int turn = 0; turn < 3; turn++) {
        for (int b = 0; b < N; b++) {
            x[b] = values_new(c, b, lengths[b]);
            comm_allreduce_start(c, x[b], DTYPE_F32, lengths[b], &reqs[b]);
        }
        for (int k = 0; k < N; k++) {
            // Backwards, in strides, and differently on each rank.
            int b = turn == 0   ? N - 1 - k
                    : turn == 1 ? k * 5 % N
                                : (k + comm_rank(c)) % N;
            if (k % 2)
                comm_test(&reqs[b]);
            comm_progress(c);
            assert_ok(comm_wait(&reqs[b], &err), err);
            assert_sums(x[b], b, comm_size(c), 0, lengths[b]);
            free(x[b]);
        }
    }
}

static void test_allreduce__is_found_done_by_testing_alone(void **state)
{
    struct comm *c = *state;
    struct comm_request req;
    struct error err;
    int64_t n = 200003;
    float *x = values_new(c, 3, n);
    comm_allreduce_start(c, x, DTYPE_F32, n, &req);
    while (!comm_test(&req))
        ;
    assert_ok(comm_wait(&req, &err), err);
    assert_sums(x, 3, comm_size(c), 0, n);
    free(x);
}

/* -- ranges -------------------------------------------------------------------------- */

static void
test_reduce_scatter__gives_each_owner_its_sums_and_leaves_the_rest(void **state)
{
    struct comm *c = *state;
    struct error err;
    int64_t *bounds = bounds_new(c);
    for (size_t k = 0; k < ARRAY_LEN(sizes); k++)
        for (int way = 0; way < N_CUTS; way++) {
            int64_t n = sizes[k];
            cut(way, n, comm_size(c), bounds);
            int64_t begin = bounds[comm_rank(c)], end = bounds[comm_rank(c) + 1];
            float *x = values_new(c, way, n);
            assert_ok(comm_reduce_scatter_f32(c, x, bounds, &err), err);
            assert_sums(x, way, comm_size(c), begin, end);
            for (int64_t i = 0; i < n; i++)
                if (i < begin || i >= end)
                    assert_true(x[i] == value_at(way, comm_rank(c), i));
            free(x);
        }
    free(bounds);
}

static void test_allgather__gives_everyone_what_the_owners_hold(void **state)
{
    struct comm *c = *state;
    struct error err;
    int64_t *bounds = bounds_new(c);
    int64_t n = 400001;
    for (int way = 0; way < N_CUTS; way++) {
        cut(way, n, comm_size(c), bounds);
        float *x = values_new(c, way, n);
        assert_ok(comm_allgather_f32(c, x, bounds, &err), err);
        for (int r = 0; r < comm_size(c); r++)
            for (int64_t i = bounds[r]; i < bounds[r + 1]; i++)
                assert_true(x[i] == value_at(way, r, i));
        for (int64_t i = 0; i < bounds[0]; i++)
            assert_true(x[i] == value_at(way, comm_rank(c), i));
        for (int64_t i = bounds[comm_size(c)]; i < n; i++)
            assert_true(x[i] == value_at(way, comm_rank(c), i));
        free(x);
    }
    free(bounds);
}

static void test_allgather__moves_elements_of_any_size(void **state)
{
    struct comm *c = *state;
    struct error err;
    int64_t *bounds = bounds_new(c);
    uint16_t x[1000];
    cut(3, 1000, comm_size(c), bounds);
    for (int i = 0; i < 1000; i++)
        x[i] = (uint16_t)(i * 8 + comm_rank(c));
    assert_ok(comm_allgather(c, x, sizeof x[0], bounds, &err), err);
    for (int r = 0; r < comm_size(c); r++)
        for (int64_t i = bounds[r]; i < bounds[r + 1]; i++)
            assert_int_equal(x[i], i * 8 + r);
    free(bounds);
}

static void test_reduce_scatter__and_allgather_make_an_allreduce_bit_for_bit(void **state)
{
    struct comm *c = *state;
    struct comm_request reqs[2];
    struct error err;
    int64_t *bounds = bounds_new(c);
    int64_t n = 700001;
    for (int way = 0; way < 4; way++) {
        cut(way, n, comm_size(c), bounds);
        float *x = values_new(c, way, n), *y = values_new(c, way, n);
        comm_reduce_scatter_start(c, x, DTYPE_F32, bounds, NULL, &reqs[0]);
        comm_allreduce_start(c, y, DTYPE_F32, n, &reqs[1]);
        assert_ok(comm_wait(&reqs[0], &err), err);
        comm_allgather_start(c, x, sizeof *x, bounds, &reqs[0]);
        assert_ok(comm_wait(&reqs[1], &err), err);
        assert_ok(comm_wait(&reqs[0], &err), err);
        assert_memory_equal(x, y, (size_t)n * sizeof *x);
        free(x);
        free(y);
    }
    free(bounds);
}

/* -- other types --------------------------------------------------------------------- */

static void test_sum_f64__adds_in_rank_order(void **state)
{
    struct comm *c = *state;
    struct error err;
    enum { N = 1003 };
    double x[N];
    for (int i = 0; i < N; i++)
        x[i] = (double)value_at(1, comm_rank(c), i) * 1.000000001;
    assert_ok(comm_sum_f64(c, x, N, &err), err);
    for (int i = 0; i < N; i++) {
        double want = (double)value_at(1, 0, i) * 1.000000001;
        for (int r = 1; r < comm_size(c); r++)
            want += (double)value_at(1, r, i) * 1.000000001;
        assert_memory_equal(&x[i], &want, sizeof want);
    }
}

static void test_max_f32__is_the_largest_and_keeps_nan(void **state)
{
    struct comm *c = *state;
    struct error err;
    enum { N = 517 };
    float x[N];
    for (int i = 0; i < N; i++)
        x[i] = value_at(2, comm_rank(c), i);
    x[5] = comm_rank(c) == comm_size(c) / 2 ? NAN : 1.0f;
    x[6] = -INFINITY;
    assert_ok(comm_max_f32(c, x, N, &err), err);
    for (int i = 0; i < N; i++) {
        float want = value_at(2, 0, i);
        for (int r = 1; r < comm_size(c); r++)
            want = fmaxf(want, value_at(2, r, i));
        if (i != 5 && i != 6)
            assert_true(x[i] == want);
    }
    assert_true(isnan(x[5]));
    assert_true(x[6] == -INFINITY);
}

static void test_i64__sums_and_maxima_are_exact(void **state)
{
    struct comm *c = *state;
    struct error err;
    int64_t size = comm_size(c);
    int64_t sum[2] = {INT64_C(1) << 55, comm_rank(c)};
    int64_t most[2] = {-5 - comm_rank(c), (INT64_C(1) << 60) + comm_rank(c)};
    assert_ok(comm_sum_i64(c, sum, 2, &err), err);
    assert_ok(comm_max_i64(c, most, 2, &err), err);
    assert_true(sum[0] == size << 55 && sum[1] == size * (size - 1) / 2);
    assert_true(most[0] == -5 && most[1] == (INT64_C(1) << 60) + size - 1);
}

/* -- messages ------------------------------------------------------------------------ */

static void test_message__passes_round_the_ring_in_both_directions(void **state)
{
    struct comm *c = *state;
    struct error err;
    int size = comm_size(c), rank = comm_rank(c);
    int next = (rank + 1) % size, prev = (rank + size - 1) % size;
    if (size == 1)
        return;
    for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
        int64_t n = sizes[k];
        struct comm_request reqs[4];
        float *up = values_new(c, 0, n), *down = values_new(c, 1, n);
        float *from_prev = values_new(c, 2, n), *from_next = values_new(c, 2, n);
        comm_send_bytes_start(c, up, n * (int64_t)sizeof(float), next, 7, &reqs[0]);
        comm_send_bytes_start(c, down, n * (int64_t)sizeof(float), prev, 31999, &reqs[1]);
        comm_recv_bytes_start(c, from_next, n * (int64_t)sizeof(float), next, 31999,
                              &reqs[2]);
        comm_recv_bytes_start(c, from_prev, n * (int64_t)sizeof(float), prev, 7,
                              &reqs[3]);
        for (int i = 0; i < 4; i++)
            assert_ok(comm_wait(&reqs[i], &err), err);
        for (int64_t i = 0; i < n; i++) {
            assert_true(from_prev[i] == value_at(0, prev, i));
            assert_true(from_next[i] == value_at(1, next, i));
        }
        assert_true(from_prev[n] == -77.0f && from_next[n] == -77.0f);
        free(up);
        free(down);
        free(from_prev);
        free(from_next);
    }
}

static void test_message__of_one_tag_arrive_in_the_order_sent(void **state)
{
    enum { N = 20, TO = 0, TAG = 1 };
    struct comm *c = *state;
    struct comm_request reqs[N];
    struct error err;
    int64_t numbers[N];
    if (comm_size(c) == 1 || comm_rank(c) > 1)
        return;
    for (int i = 0; i < N; i++) {
        numbers[i] = comm_rank(c) == 1 ? i : -1;
        if (comm_rank(c) == 1)
            comm_send_bytes_start(c, &numbers[i], sizeof numbers[i], TO, TAG, &reqs[i]);
        else
            comm_recv_bytes_start(c, &numbers[i], sizeof numbers[i], 1, TAG, &reqs[i]);
    }
    for (int i = N - 1; i >= 0; i--)
        assert_ok(comm_wait(&reqs[i], &err), err);
    for (int i = 0; i < N; i++)
        assert_int_equal(numbers[i], i);
}

static void test_message__can_be_awaited_while_a_sum_is_in_flight(void **state)
{
    struct comm *c = *state;
    struct comm_request sum, message;
    struct error err;
    int64_t n = 900001;
    float *x = values_new(c, 0, n), y[3] = {0};
    comm_allreduce_start(c, x, DTYPE_F32, n, &sum);
    if (comm_rank(c) == 0)
        for (int r = 1; r < comm_size(c); r++) {
            comm_send_bytes_start(c, (const float[]){1, 2, 3}, 3 * (int64_t)sizeof(float),
                                  r, 0, &message);
            assert_ok(comm_wait(&message, &err), err);
        }
    else {
        comm_recv_bytes_start(c, y, 3 * (int64_t)sizeof(float), 0, 0, &message);
        assert_ok(comm_wait(&message, &err), err);
        assert_true(y[0] == 1 && y[1] == 2 && y[2] == 3);
    }
    assert_ok(comm_wait(&sum, &err), err);
    assert_sums(x, 0, comm_size(c), 0, n);
    free(x);
}

static void test_bcast__every_rank_can_be_the_root(void **state)
{
    struct comm *c = *state;
    struct error err;
    for (int root = 0; root < comm_size(c); root++) {
        char text[100] = "";
        if (comm_rank(c) == root)
            snprintf(text, sizeof text, "from %d", root);
        assert_ok(comm_bcast_bytes(c, text, sizeof text, root, &err), err);
        assert_int_equal(atoi(text + 5), root);
        assert_ok(comm_agree(c, 0, &err), err);
    }
}

static void test_gather__takes_a_different_length_from_each_rank(void **state)
{
    struct comm *c = *state;
    struct error err;
    int root = comm_size(c) - 1;
    int64_t *bounds = bounds_new(c);
    for (int r = 0; r < comm_size(c); r++)
        bounds[r + 1] = bounds[r] + r * 3;
    char mine[64], all[256];
    memset(mine, 'a' + comm_rank(c), sizeof mine);
    memset(all, '-', sizeof all);
    assert_ok(
        comm_gather_bytes(c, mine, comm_rank(c) == root ? all : NULL, bounds, root, &err),
        err);
    for (int r = 0; r < comm_size(c) && comm_rank(c) == root; r++)
        for (int64_t i = bounds[r]; i < bounds[r + 1]; i++)
            assert_int_equal(all[i], 'a' + r);
    free(bounds);
}

/* -- agreement ----------------------------------------------------------------------- */

/* Agree, with the ranks for which is_failing is true failing. */
static int agree_with(struct comm *c, bool is_failing, struct error *err)
{
    int rc = 0;
    memset(err, 0, sizeof *err);
    if (is_failing)
        rc = error_set(err, comm_rank(c) % 2 ? ERROR_INPUT : ERROR_STOPPED,
                       "no room for '%d'", comm_rank(c));
    return comm_agree(c, rc, err);
}

static void test_agree__is_silent_when_all_is_well(void **state)
{
    struct comm *c = *state;
    struct error err;
    assert_int_equal(agree_with(c, false, &err), 0);
    assert_string_equal(err.text, "");
}

static void test_agree__tells_everyone_who_failed_and_why(void **state)
{
    struct comm *c = *state;
    struct error err;
    char want[512];
    for (int bad = 0; bad < comm_size(c); bad++) {
        assert_int_equal(agree_with(c, comm_rank(c) == bad, &err), -1);
        if (comm_size(c) == 1)
            snprintf(want, sizeof want, "no room for '0'");
        else
            snprintf(want, sizeof want, "rank %d on %s: no room for '%d'", bad,
                     comm_host(c), bad);
        assert_string_equal(err.text, want);
        assert_int_equal(err.kind, bad % 2 ? ERROR_INPUT : ERROR_STOPPED);
    }
}

static void test_agree__names_the_lowest_of_several(void **state)
{
    struct comm *c = *state;
    struct error err;
    char want[512];
    if (comm_size(c) < 3)
        return;
    int n_failing = comm_size(c) - 1; // all but rank 0
    assert_int_equal(agree_with(c, comm_rank(c) > 0, &err), -1);
    snprintf(want, sizeof want,
             "rank 1 on %s, the first of %d that failed: no room for '1'", comm_host(c),
             n_failing);
    assert_string_equal(err.text, want);
}

static void test_volume__counts_what_was_sent(void **state)
{
    struct comm *c = *state;
    struct error err;
    struct comm_volume before = comm_volume(c);
    double waited = comm_waited(c);
    int64_t n = 60 * 1000, size = comm_size(c); // 60: divisible by up to 5 ranks
    float *x = values_new(c, 0, n);
    assert_ok(comm_allreduce_f32(c, x, n, &err), err);
    struct comm_volume after = comm_volume(c);
    assert_int_equal(after.sent_bytes[COMM_ALLREDUCE] - before.sent_bytes[COMM_ALLREDUCE],
                     2 * 4 * n / size * (size - 1));
    assert_int_equal(after.n_operations[COMM_ALLREDUCE],
                     before.n_operations[COMM_ALLREDUCE] + 1);
    assert_true(comm_waited(c) >= waited);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values__tell_one_order_of_adding_from_another),
        cmocka_unit_test(test_allreduce__adds_in_rank_order),
        cmocka_unit_test(
            test_allreduce__many_may_be_in_flight_and_be_waited_for_in_any_order),
        cmocka_unit_test(test_allreduce__is_found_done_by_testing_alone),
        cmocka_unit_test(
            test_reduce_scatter__gives_each_owner_its_sums_and_leaves_the_rest),
        cmocka_unit_test(test_allgather__gives_everyone_what_the_owners_hold),
        cmocka_unit_test(test_allgather__moves_elements_of_any_size),
        cmocka_unit_test(
            test_reduce_scatter__and_allgather_make_an_allreduce_bit_for_bit),
        cmocka_unit_test(test_sum_f64__adds_in_rank_order),
        cmocka_unit_test(test_max_f32__is_the_largest_and_keeps_nan),
        cmocka_unit_test(test_i64__sums_and_maxima_are_exact),
        cmocka_unit_test(test_message__passes_round_the_ring_in_both_directions),
        cmocka_unit_test(test_message__of_one_tag_arrive_in_the_order_sent),
        cmocka_unit_test(test_message__can_be_awaited_while_a_sum_is_in_flight),
        cmocka_unit_test(test_bcast__every_rank_can_be_the_root),
        cmocka_unit_test(test_gather__takes_a_different_length_from_each_rank),
        cmocka_unit_test(test_agree__is_silent_when_all_is_well),
        cmocka_unit_test(test_agree__tells_everyone_who_failed_and_why),
        cmocka_unit_test(test_agree__names_the_lowest_of_several),
        cmocka_unit_test(test_volume__counts_what_was_sent),
    };
    return cmocka_run_group_tests_name("comm", tests, open_world, close_world);
}
