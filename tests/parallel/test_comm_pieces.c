/* Ranges that are owned out of order, and elements of 16 bits, on any number of ranks. */
#include "parallel_test.h"

#include "base/dtype.h"

/* -- ranges in another order --------------------------------------------------------- */

/* Ways to give the ranges to the ranks: as they come, backwards, turned round, mixed. */
enum { N_ORDERS = 4 };

static int *pieces_new(const struct comm *c, int way)
{
    int size = comm_size(c);
    int *pieces = malloc((size_t)size * sizeof *pieces);
    assert_non_null(pieces);
    for (int r = 0; r < size; r++) {
        int ways[N_ORDERS] = {r, size - 1 - r, (r + 1) % size,
                              r < size / 2 ? 2 * r + 1 : 2 * (r - size / 2)};
        pieces[r] = ways[way];
    }
    return pieces;
}

static void test_pieces__are_their_owners_in_any_order(void **state)
{
    struct comm *c = *state;
    struct error err;
    int64_t *bounds = bounds_new(c), n = 600011;
    for (int way = 0; way < N_CUTS; way++)
        for (int order = 0; order < N_ORDERS; order++) {
            int *pieces = pieces_new(c, order);
            cut(way, n, comm_size(c), bounds);
            int mine = pieces[comm_rank(c)];
            float *x = values_new(c, order, n);
            assert_ok(comm_reduce_scatter(c, x, DTYPE_F32, bounds, pieces, &err), err);
            assert_sums(x, order, comm_size(c), bounds[mine], bounds[mine + 1]);
            for (int64_t i = 0; i < n; i++)
                if (i < bounds[mine] || i >= bounds[mine + 1])
                    assert_true(x[i] == value_at(order, comm_rank(c), i));
            assert_ok(comm_allgather_pieces(c, x, sizeof *x, bounds, pieces, &err), err);
            assert_sums(x, order, comm_size(c), bounds[0], bounds[comm_size(c)]);
            assert_true(x[n] == -77.0f);
            free(x);
            free(pieces);
        }
    free(bounds);
}

/* -- elements of 16 bits ------------------------------------------------------------- */

static const enum dtype halves[] = {DTYPE_F16, DTYPE_BF16};

static float widen(enum dtype dtype, uint16_t x)
{
    return dtype == DTYPE_F16 ? f16_to_f32(x) : bf16_to_f32(x);
}

static uint16_t narrow(enum dtype dtype, float x)
{
    return dtype == DTYPE_F16 ? f32_to_f16(x) : f32_to_bf16(x);
}

static uint16_t half_at(enum dtype dtype, int r, int64_t i)
{
    return narrow(dtype, value_at(4, r, i));
}

/* In float, in rank order, rounded once. */
static uint16_t half_sum_at(enum dtype dtype, int size, int64_t i)
{
    float sum = widen(dtype, half_at(dtype, 0, i));
    for (int r = 1; r < size; r++)
        sum += widen(dtype, half_at(dtype, r, i));
    return narrow(dtype, sum);
}

static uint16_t *halves_new(const struct comm *c, enum dtype dtype, int64_t n)
{
    uint16_t *x = malloc((size_t)(n + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = half_at(dtype, comm_rank(c), i);
    x[n] = 0xBEEF;
    return x;
}

static void test_halves__are_added_in_float_and_rounded_once(void **state)
{
    struct comm *c = *state;
    struct error err;
    for (size_t d = 0; d < ARRAY_LEN(halves); d++)
        for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
            int64_t n = sizes[k];
            uint16_t *x = halves_new(c, halves[d], n);
            assert_ok(comm_allreduce(c, x, halves[d], n, &err), err);
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(x[i], half_sum_at(halves[d], comm_size(c), i));
            assert_int_equal(x[n], 0xBEEF);
            free(x);
        }
}

static void test_halves__have_the_same_bits_however_they_are_cut(void **state)
{
    struct comm *c = *state;
    struct comm_request reqs[2];
    struct error err;
    int64_t *bounds = bounds_new(c), n = 300007;
    for (int way = 0; way < 4; way++) {
        enum dtype dtype = halves[way % 2];
        int *pieces = pieces_new(c, way);
        uint16_t *x = halves_new(c, dtype, n), *y = halves_new(c, dtype, n);
        cut(way, n, comm_size(c), bounds);
        comm_reduce_scatter_start(c, x, dtype, bounds, pieces, &reqs[0]);
        comm_allreduce_start(c, y, dtype, n, &reqs[1]);
        assert_ok(comm_wait(&reqs[0], &err), err);
        comm_allgather_pieces_start(c, x, sizeof *x, bounds, pieces, &reqs[0]);
        assert_ok(comm_wait(&reqs[1], &err), err);
        assert_ok(comm_wait(&reqs[0], &err), err);
        assert_memory_equal(x, y, (size_t)n * sizeof *x);
        free(x);
        free(y);
        free(pieces);
    }
    free(bounds);
}

/* -- the counters -------------------------------------------------------------------- */

/* Of a range that is mine I send nothing in a reduce-scatter, and to all in a gather. */
static void test_volume__follows_type_and_owner(void **state)
{
    struct comm *c = *state;
    struct error err;
    struct comm_volume before = comm_volume(c);
    int64_t *bounds = bounds_new(c), n = 100000;
    int *pieces = pieces_new(c, 1), size = comm_size(c), mine = pieces[comm_rank(c)];
    uint16_t *x = halves_new(c, DTYPE_BF16, n);
    cut(3, n, size, bounds);
    assert_ok(comm_reduce_scatter(c, x, DTYPE_BF16, bounds, pieces, &err), err);
    assert_ok(comm_allgather_pieces(c, x, sizeof *x, bounds, pieces, &err), err);
    struct comm_volume after = comm_volume(c);
    int64_t n_mine = bounds[mine + 1] - bounds[mine];
    assert_int_equal(after.sent_bytes[COMM_REDUCE_SCATTER] -
                         before.sent_bytes[COMM_REDUCE_SCATTER],
                     size == 1 ? 0 : 2 * (n - n_mine));
    assert_int_equal(after.sent_bytes[COMM_ALLGATHER] - before.sent_bytes[COMM_ALLGATHER],
                     2 * n_mine * (size - 1));
    free(x);
    free(pieces);
    free(bounds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces__are_their_owners_in_any_order),
        cmocka_unit_test(test_halves__are_added_in_float_and_rounded_once),
        cmocka_unit_test(test_halves__have_the_same_bits_however_they_are_cut),
        cmocka_unit_test(test_volume__follows_type_and_owner),
    };
    return cmocka_run_group_tests_name("comm_pieces", tests, open_world, close_world);
}
