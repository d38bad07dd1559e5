/*
 * Sums, gathers and messages of tensors on the emulated device, whose streams run late and
 * in several orders: through the host or between the devices, as TREFOIL_EMULATED says.
 * Bits are the processor's. With the argument "order" ranks start collectives in different
 * orders.
 */
#include "parallel_test.h"

#include "comm/grid.h"
#include "device/emulated/emulated_options.h"

/* What runs first of what may run: anything, what messages need, what they are for. */
static const char *const policies[] = {"random:5", "prefer:comm", "prefer:compute",
                                       "late"};

struct fixture {
    struct comm *world;
    struct grid grid; // all ranks along the data axis, or along the pipe
    struct device *dev;
};

/* -- tensors ------------------------------------------------------------------------- */

static struct stream *compute(const struct fixture *f)
{
    return device_stream(f->dev, STREAM_COMPUTE);
}

static void *tensor_new(const struct fixture *f, size_t bytes)
{
    void *x = f->dev->ops->alloc(f->dev, bytes);
    assert_non_null(x);
    return x;
}

static void tensor_free(const struct fixture *f, void *x, size_t bytes)
{
    device_free(f->dev, x, bytes);
}

/* A tensor that gets a host array's values, on the computing stream, some time. */
static void *tensor_of(const struct fixture *f, const void *values, size_t bytes)
{
    void *x = tensor_new(f, bytes);
    device_copy(compute(f), x, values, bytes, COPY_TO_DEVICE);
    return x;
}

/* Its values, over those at `values`; it is freed. */
static void tensor_take(const struct fixture *f, void *x, void *values, size_t bytes)
{
    device_copy(compute(f), values, x, bytes, COPY_TO_HOST);
    device_synchronize(compute(f));
    tensor_free(f, x, bytes);
}

static size_t float_bytes(int64_t n)
{
    return (size_t)(n + 1) * sizeof(float); // and a mark at the end
}

/* -- sums and gathers ---------------------------------------------------------------- */

static void test_allreduce__has_the_bits_of_the_processor(void **state)
{
    struct fixture *f = *state;
    struct comm *c = f->grid.data;
    struct error err;
    for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
        int64_t n = sizes[k];
        float *x = values_new(c, 0, n);
        float *t = tensor_of(f, x, float_bytes(n));
        assert_ok(comm_allreduce_f32(c, t, n, &err), err);
        tensor_take(f, t, x, float_bytes(n));
        assert_sums(x, 0, comm_size(c), 0, n);
        assert_true(x[n] == -77.0f);
        free(x);
    }
}

/* More than there is room for at once: it goes in segments. */
static void test_allreduce__of_a_long_tensor_goes_in_segments(void **state)
{
    struct fixture *f = *state;
    struct comm *c = f->grid.data;
    struct error err;
    int64_t n = comm_size(c) == 2 ? 17000001 : 3000001;
    float *x = values_new(c, 1, n);
    float *t = tensor_of(f, x, float_bytes(n));
    assert_ok(comm_allreduce_f32(c, t, n, &err), err);
    tensor_take(f, t, x, float_bytes(n));
    assert_sums(x, 1, comm_size(c), 0, n);
    assert_true(x[n] == -77.0f);
    free(x);
}

static void test_max_f32__is_the_largest_and_keeps_nan(void **state)
{
    struct fixture *f = *state;
    struct comm *c = f->grid.data;
    struct error err;
    enum { N = 517 };
    float x[N];
    for (int i = 0; i < N; i++)
        x[i] = value_at(2, comm_rank(c), i);
    x[5] = comm_rank(c) == comm_size(c) / 2 ? NAN : 1.0f;
    float *t = tensor_of(f, x, sizeof x);
    assert_ok(comm_max_f32(c, t, N, &err), err);
    tensor_take(f, t, x, sizeof x);
    for (int i = 0; i < N; i++) {
        float want = value_at(2, 0, i);
        for (int r = 1; r < comm_size(c); r++)
            want = fmaxf(want, value_at(2, r, i));
        assert_true(i == 5 ? isnan(x[i]) : x[i] == want);
    }
}

static uint16_t narrow(enum dtype dtype, float x)
{
    return dtype == DTYPE_F16 ? f32_to_f16(x) : f32_to_bf16(x);
}

static float widen(enum dtype dtype, uint16_t x)
{
    return dtype == DTYPE_F16 ? f16_to_f32(x) : bf16_to_f32(x);
}

static void test_halves__are_added_in_float_and_rounded_once(void **state)
{
    struct fixture *f = *state;
    struct comm *c = f->grid.data;
    struct error err;
    for (int d = 0; d < 2; d++) {
        enum dtype dtype = d ? DTYPE_BF16 : DTYPE_F16;
        int64_t n = 100003;
        size_t bytes = (size_t)n * sizeof(uint16_t);
        uint16_t *x = malloc(bytes);
        assert_non_null(x);
        for (int64_t i = 0; i < n; i++)
            x[i] = narrow(dtype, value_at(4, comm_rank(c), i));
        uint16_t *t = tensor_of(f, x, bytes);
        assert_ok(comm_allreduce(c, t, dtype, n, &err), err);
        tensor_take(f, t, x, bytes);
        for (int64_t i = 0; i < n; i++) {
            float sum = widen(dtype, narrow(dtype, value_at(4, 0, i)));
            for (int r = 1; r < comm_size(c); r++)
                sum += widen(dtype, narrow(dtype, value_at(4, r, i)));
            assert_int_equal(x[i], narrow(dtype, sum));
        }
        free(x);
    }
}

/* Ranges as they come and backwards: sums of what is mine, the rest untouched; then all. */
static void test_ranges__are_summed_and_gathered_by_their_owners(void **state)
{
    struct fixture *f = *state;
    struct comm *c = f->grid.data;
    struct error err;
    int64_t *bounds = bounds_new(c), n = 65537;
    int size = comm_size(c), *pieces = malloc((size_t)size * sizeof *pieces);
    assert_non_null(pieces);
    for (int way = 0; way < 2 * N_CUTS; way++) {
        bool is_backwards = way >= N_CUTS;
        for (int r = 0; r < size; r++)
            pieces[r] = is_backwards ? size - 1 - r : r;
        cut(way % N_CUTS, n, size, bounds);
        int mine = pieces[comm_rank(c)];
        float *x = values_new(c, way, n);
        float *t = tensor_of(f, x, float_bytes(n));
        assert_ok(comm_reduce_scatter(c, t, DTYPE_F32, bounds, pieces, &err), err);
        device_copy(compute(f), x, t, float_bytes(n), COPY_TO_HOST);
        device_synchronize(compute(f));
        assert_sums(x, way, size, bounds[mine], bounds[mine + 1]);
        for (int64_t i = 0; i < n; i++)
            if (i < bounds[mine] || i >= bounds[mine + 1])
                assert_true(x[i] == value_at(way, comm_rank(c), i));
        assert_ok(comm_allgather_pieces(c, t, sizeof *t, bounds, pieces, &err), err);
        tensor_take(f, t, x, float_bytes(n));
        assert_sums(x, way, size, bounds[0], bounds[size]);
        assert_true(x[n] == -77.0f);
        free(x);
    }
    free(pieces);
    free(bounds);
}

/* -- many at once -------------------------------------------------------------------- */

static void test_sums__many_may_be_in_flight_and_be_waited_for_in_any_order(void **state)
{
    enum { N = 11 };
    static const int64_t lengths[N] = {300000, 1,     0, 70000, 5,     65536,
                                       2,      99999, 3, 8,     250001};
    struct fixture *f = *state;
    struct comm *c = f->grid.data;
    struct comm_request reqs[N];
    float *x[N], *t[N];
    struct error err;
    for (int b = 0; b < N; b++) {
        x[b] = values_new(c, b, lengths[b]);
        t[b] = tensor_of(f, x[b], float_bytes(lengths[b]));
        comm_allreduce_start(c, t[b], DTYPE_F32, lengths[b], &reqs[b]);
    }
    for (int k = 0; k < N; k++) {
        int b = (k * 5 + comm_rank(c)) % N;
        comm_progress(c);
        assert_ok(comm_wait(&reqs[b], &err), err);
        tensor_take(f, t[b], x[b], float_bytes(lengths[b]));
        assert_sums(x[b], b, comm_size(c), 0, lengths[b]);
        free(x[b]);
    }
}

/* A buffer that is used again at once: what it held before, and what it is given after,
 * is the computing stream's business. */
static void test_buffer__may_be_used_again_after_the_wait(void **state)
{
    struct fixture *f = *state;
    struct comm *c = f->grid.data;
    struct error err;
    int64_t n = 20001;
    float *t = tensor_new(f, float_bytes(n)), *kept = tensor_new(f, float_bytes(n));
    float *x = values_new(c, 0, n);
    for (int turn = 0; turn < 4; turn++) {
        struct comm_request req;
        for (int64_t i = 0; i < n; i++)
            x[i] = value_at(turn, comm_rank(c), i);
        device_copy(compute(f), t, x, float_bytes(n), COPY_TO_DEVICE);
        comm_allreduce_start(c, t, DTYPE_F32, n, &req);
        assert_ok(comm_wait(&req, &err), err);
        device_copy(compute(f), kept, t, float_bytes(n), COPY_ON_DEVICE);
        device_fill(compute(f), t, 0xFF, float_bytes(n));
        device_copy(compute(f), x, kept, float_bytes(n), COPY_TO_HOST);
        device_synchronize(compute(f));
        assert_sums(x, turn, comm_size(c), 0, n);
    }
    tensor_free(f, t, float_bytes(n));
    tensor_free(f, kept, float_bytes(n));
    free(x);
}

static void test_host_memory__may_be_passed_all_the_same(void **state)
{
    struct fixture *f = *state;
    struct comm *c = f->grid.data;
    struct error err;
    int64_t n = 65537;
    float *x = values_new(c, 0, n);
    double y = comm_rank(c) + 1;
    assert_ok(comm_allreduce_f32(c, x, n, &err), err);
    assert_ok(comm_sum_f64(c, &y, 1, &err), err);
    assert_sums(x, 0, comm_size(c), 0, n);
    assert_true(y == comm_size(c) * (comm_size(c) + 1) / 2.0);
    free(x);
}

/* -- messages ------------------------------------------------------------------------ */

/* Round the ring both ways at the same time: receives begin before the sends that the
 * other side needs first. */
static void test_messages__pass_round_the_ring_in_both_directions(void **state)
{
    static const int64_t lengths[] = {1, 7, 65537, 1500003};
    struct fixture *f = *state;
    struct comm *c = f->grid.pipe;
    struct error err;
    int size = comm_size(c), rank = comm_rank(c);
    int next = (rank + 1) % size, prev = (rank + size - 1) % size;
    for (size_t k = 0; k < ARRAY_LEN(lengths) && size > 1; k++) {
        int64_t n = lengths[k], bytes = n * (int64_t)sizeof(float);
        struct comm_request reqs[4];
        float *up = values_new(c, 0, n), *down = values_new(c, 1, n);
        float *t_up = tensor_of(f, up, float_bytes(n));
        float *t_down = tensor_of(f, down, float_bytes(n));
        float *from_prev = tensor_of(f, up, float_bytes(n));
        float *from_next = tensor_of(f, up, float_bytes(n));
        comm_recv_bytes_start(c, from_next, bytes, next, 31, &reqs[0]);
        comm_recv_bytes_start(c, from_prev, bytes, prev, 8, &reqs[1]);
        comm_send_bytes_start(c, t_up, bytes, next, 8, &reqs[2]);
        comm_send_bytes_start(c, t_down, bytes, prev, 31, &reqs[3]);
        for (int i = 0; i < 4; i++)
            assert_ok(comm_wait(&reqs[rank % 2 ? i : 3 - i], &err), err);
        tensor_take(f, from_prev, up, float_bytes(n));
        tensor_take(f, from_next, down, float_bytes(n));
        for (int64_t i = 0; i < n; i++) {
            assert_true(up[i] == value_at(0, prev, i));
            assert_true(down[i] == value_at(1, next, i));
        }
        tensor_free(f, t_up, float_bytes(n));
        tensor_free(f, t_down, float_bytes(n));
        free(up);
        free(down);
    }
}

/* More than there are places for on the way, of one tag: they arrive in order. */
static void test_messages__of_one_tag_arrive_in_the_order_sent(void **state)
{
    enum { N = 20, TAG = 2 };
    struct fixture *f = *state;
    struct comm *c = f->grid.pipe;
    struct comm_request reqs[N];
    struct error err;
    int64_t numbers[N], *t;
    if (comm_size(c) == 1 || comm_rank(c) > 1)
        return;
    for (int i = 0; i < N; i++)
        numbers[i] = comm_rank(c) == 0 ? i : -1;
    t = tensor_of(f, numbers, sizeof numbers);
    for (int i = 0; i < N; i++)
        if (comm_rank(c) == 0)
            comm_send_bytes_start(c, &t[i], sizeof t[i], 1, TAG, &reqs[i]);
        else
            comm_recv_bytes_start(c, &t[i], sizeof t[i], 0, TAG, &reqs[i]);
    for (int i = N - 1; i >= 0; i--)
        assert_ok(comm_wait(&reqs[i], &err), err);
    tensor_take(f, t, numbers, sizeof numbers);
    for (int i = 0; i < N; i++)
        assert_int_equal(numbers[i], i);
}

/* As a pipeline does: a buffer is filled again as soon as its send was waited for, and
 * received into again as soon as what it held was copied on. */
static void test_messages__use_their_buffers_again(void **state)
{
    enum { N = 30001, TURNS = 6 };
    struct fixture *f = *state;
    struct comm *c = f->grid.pipe;
    struct error err;
    int size = comm_size(c), next = (comm_rank(c) + 1) % size;
    int prev = (comm_rank(c) + size - 1) % size;
    size_t bytes = N * sizeof(float);
    if (size == 1)
        return;
    float *out = tensor_new(f, bytes), *in = tensor_new(f, bytes);
    float *kept[TURNS], *x = values_new(c, 0, N);
    for (int turn = 0; turn < TURNS; turn++) {
        struct comm_request recv, send;
        kept[turn] = tensor_new(f, bytes);
        for (int64_t i = 0; i < N; i++)
            x[i] = value_at(turn, comm_rank(c), i);
        comm_recv_bytes_start(c, in, (int64_t)bytes, prev, 2 * turn, &recv);
        device_copy(compute(f), out, x, bytes, COPY_TO_DEVICE);
        comm_send_bytes_start(c, out, (int64_t)bytes, next, 2 * turn, &send);
        assert_ok(comm_wait(&recv, &err), err);
        device_copy(compute(f), kept[turn], in, bytes, COPY_ON_DEVICE);
        device_fill(compute(f), in, 0xFF, bytes);
        assert_ok(comm_wait(&send, &err), err);
        device_fill(compute(f), out, 0xFF, bytes);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        tensor_take(f, kept[turn], x, bytes);
        for (int64_t i = 0; i < N; i++)
            assert_true(x[i] == value_at(turn, prev, i));
    }
    tensor_free(f, out, bytes);
    tensor_free(f, in, bytes);
    free(x);
}

/* -- a wrong order ------------------------------------------------------------------- */

/* Rank 0 starts a sum of one group first and the others that of another one. */
static int start_in_different_orders(struct fixture *f)
{
    struct comm *first = f->grid.data, *second = f->grid.dp;
    struct comm_request reqs[2];
    struct error err;
    float *t = tensor_new(f, 2 * 4096);
    if (comm_rank(f->world) == 0) {
        first = f->grid.dp;
        second = f->grid.data;
    }
    comm_allreduce_start(first, t, DTYPE_F32, 1024, &reqs[0]);
    comm_allreduce_start(second, t + 1024, DTYPE_F32, 1024, &reqs[1]);
    if (comm_wait(&reqs[0], &err) || comm_wait(&reqs[1], &err))
        return 1;
    device_synchronize(compute(f));
    return 0;
}

/* -- fixtures ------------------------------------------------------------------------ */

static struct fixture fixture; // of the group of tests that runs

static void open_fixture(struct comm *world, bool is_pipe, const char *policy)
{
    struct grid_shape shape = {1, 1, 1, 1};
    struct error err;
    fixture =
        (struct fixture){.world = world, .dev = device_of(DEVICE_EMULATED, DTYPE_F32)};
    *(is_pipe ? &shape.pp : &shape.dp) = comm_size(world);
    struct device_request request = {.local_rank = comm_local_rank(world),
                                     .n_local = comm_local_size(world)};
    assert_ok(device_open(fixture.dev, &request, &err), err);
    assert_int_equal(emulated_streams(policy), 0);
    assert_ok(grid_open(&fixture.grid, world, &shape, &err), err);
    assert_ok(grid_use_device(&fixture.grid, fixture.dev, &err), err);
}

static void close_fixture(void)
{
    grid_close(&fixture.grid);
    device_close(fixture.dev);
}

static int hand_over(void **state)
{
    *state = &fixture;
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest sums[] = {
        cmocka_unit_test(test_allreduce__has_the_bits_of_the_processor),
        cmocka_unit_test(test_max_f32__is_the_largest_and_keeps_nan),
        cmocka_unit_test(test_halves__are_added_in_float_and_rounded_once),
        cmocka_unit_test(test_ranges__are_summed_and_gathered_by_their_owners),
        cmocka_unit_test(test_sums__many_may_be_in_flight_and_be_waited_for_in_any_order),
        cmocka_unit_test(test_buffer__may_be_used_again_after_the_wait),
        cmocka_unit_test(test_host_memory__may_be_passed_all_the_same),
    };
    const struct CMUnitTest long_sums[] = {
        cmocka_unit_test(test_allreduce__of_a_long_tensor_goes_in_segments),
    };
    const struct CMUnitTest messages[] = {
        cmocka_unit_test(test_messages__pass_round_the_ring_in_both_directions),
        cmocka_unit_test(test_messages__of_one_tag_arrive_in_the_order_sent),
        cmocka_unit_test(test_messages__use_their_buffers_again),
    };
    bool is_wrong = argc > 1 && strcmp(argv[1], "order") == 0;
    void *world = NULL;
    int rc = open_world(&world);
    for (size_t i = 0; i < ARRAY_LEN(policies) && rc == 0; i++) {
        open_fixture(world, false, policies[i]);
        if (is_wrong)
            return start_in_different_orders(&fixture);
        rc = cmocka_run_group_tests_name("sums", sums, hand_over, NULL);
        if (i == 0 && rc == 0)
            rc = cmocka_run_group_tests_name("long sums", long_sums, hand_over, NULL);
        close_fixture();
        open_fixture(world, true, policies[i]);
        rc = rc ? rc : cmocka_run_group_tests_name("messages", messages, hand_over, NULL);
        close_fixture();
    }
    comm_world_close(world);
    return rc;
}
