/*
 * ZeRO over rows of a model that is no GPT: types that alternate within a layer, a matrix
 * in float32 that does not decay, an accumulated vector after it, a tied table. Values are
 * small whole numbers, whose sums are exact in any type and order.
 */
#include "parallel_test.h"

#include "comm/grid.h"
#include "parallel/zero.h"

enum { MICRO_BATCHES = 2, BLOCKS = 3 };

static const int64_t dims[] = {0, 1031, 517, 29};

#define TYPED STORED_TYPED, GRAD_OVERWRITTEN, INIT_NORMAL
#define FLOAT STORED_F32, GRAD_OVERWRITTEN, INIT_NORMAL
#define ADDED STORED_F32, GRAD_ACCUMULATED, INIT_ZEROS
#define TABLE STORED_TYPED, GRAD_BY_ROWS, INIT_NORMAL

static const struct param_spec embedding_rows[] = {
    {"table", {1, 3}, PARAM_ROWS, TABLE, 1, true, 1, -1, OWNED_BY_DATA_RANKS, 0, {0}}};
static const struct param_spec block_rows[] = {
    {"a", {1, 3}, PARAM_MATRIX, TYPED, 1, true, 1, -1, OWNED_BY_DATA_RANKS, 0, {0}},
    {"b", {2, 3}, PARAM_MATRIX, FLOAT, 1, false, 1, -1, OWNED_BY_DATA_RANKS, 1, {0}},
    {"c", {3}, PARAM_VECTOR, ADDED, 1, true, 1, -1, OWNED_BY_DATA_RANKS, 2, {0}},
    {"d", {2, 2}, PARAM_MATRIX, TYPED, 1, true, 1, -1, OWNED_BY_DATA_RANKS, 3, {0}},
    {"e", {1}, PARAM_VECTOR, ADDED, 1, false, 1, -1, OWNED_BY_DATA_RANKS, 4, {0}}};
static const struct param_spec norm_rows[] = {
    {"norm", {3}, PARAM_VECTOR, ADDED, 1, false, 1, -1, OWNED_BY_DATA_RANKS, 0, {0}}};
static const struct param_spec head_rows[] = {{.tie = {true, LAYER_EMBEDDING, 0}}};

static const struct param_model model = {
    .layers = {{embedding_rows, 1}, {block_rows, 5}, {norm_rows, 1}, {head_rows, 1}},
    .n_blocks = BLOCKS,
    .dims = dims};

static float number_at(int64_t row, int64_t e, int rank, int micro)
{
    return (float)((row * 3 + e * 7 + rank + micro * 2) % 5 - 1);
}

/* The store's weight of a row: its number for (rank, micro), set or added. */
static void write_row(const struct params *p, enum param_store store, int64_t row,
                      int rank, int micro, bool adds)
{
    const struct weight *w = &p->weights[store][row];
    for (int64_t e = 0; e < w->rows * w->cols; e++) {
        char *at = (char *)w->data + e * (int64_t)dtype_bytes(w->dtype);
        float x = 0, value = number_at(row, e, rank, micro);
        if (adds)
            dtype_load(&x, at, w->dtype, 1);
        x += value;
        dtype_store(at, &x, w->dtype, 1);
    }
}

struct world {
    struct grid grid;
    struct param_table table;
    struct shard_map map;
    struct params params;
    struct zero zero;
    void *storage[N_STORES];
};

static void world_open(struct world *w, struct comm *world, int stage)
{
    struct error err;
    int size = comm_size(world), dp = size % 2 == 0 && size > 2 ? 2 : 1;
    struct grid_shape shape = {.dp = dp, .pp = 1, .sharding = size / dp, .mp = 1};
    struct param_part whole = param_part_whole(BLOCKS);
    assert_ok(grid_open(&w->grid, world, &shape, &err), err);
    assert_ok(param_table_init(&w->table, &model, &whole, &err), err);
    param_table_set_types(&w->table, DTYPE_BF16, DTYPE_BF16);
    assert_ok(
        shard_map_init(&w->map, &w->table, shape.sharding, w->grid.coord.sharding, &err),
        err);
    assert_ok(params_init(&w->params, &w->table, &err), err);
    for (int s = 0; s < N_STORES; s++) {
        w->storage[s] = calloc((size_t)w->table.n_bytes[s], 1);
        assert_non_null(w->storage[s]);
        if (stage < (s == STORE_PARAMS ? 3 : 2))
            params_bind(&w->params, (enum param_store)s, w->storage[s]);
    }
    struct zero_options opt = {.stage = stage,
                               .map = &w->map,
                               .data = w->grid.data,
                               .sharding = w->grid.sharding,
                               .dp = w->grid.dp,
                               .tied = w->grid.tied,
                               .dev = device_cpu(DTYPE_BF16)};
    assert_ok(zero_open(&w->zero, &w->params, &opt, &err), err);
}

static void world_close(struct world *w)
{
    zero_close(&w->zero);
    params_release(&w->params);
    shard_map_release(&w->map);
    param_table_release(&w->table);
    grid_close(&w->grid);
    for (int s = 0; s < N_STORES; s++)
        free(w->storage[s]);
}

/* As a model's backward does: layer by layer, the last first; late ones at the end. */
static void make_grads(struct world *w)
{
    int rank = comm_rank(w->grid.data);
    bool is_taken = w->params.owner.takes_grads;
    zero_start_step(&w->zero);
    for (int m = 0; m < MICRO_BATCHES; m++)
        for (int i = w->table.n_layers - 1; i >= 0; i--) {
            const struct param_layer *l = &w->table.layers[i];
            bool is_last = m + 1 == MICRO_BATCHES;
            params_open_layer(&w->params, l->kind, l->block, i - 1, true);
            for (int64_t r = l->first_row; r < l->end_row; r++)
                write_row(&w->params, STORE_GRADS, r, rank, m,
                          w->table.params[r].grad == GRAD_ACCUMULATED ||
                              (m > 0 && !(is_taken && !l->is_late)));
            params_close_layer(&w->params, l->kind, l->block, true, is_last);
        }
}

static void check_grads(const struct world *w)
{
    for (int64_t i = 0; i < w->map.n_pieces; i++) {
        const struct shard_piece *piece = &w->map.pieces[i];
        enum dtype dtype = w->table.params[piece->row].in[STORE_GRADS].dtype;
        const char *x = shard_piece_at(&w->map, &w->zero.grads, piece);
        for (int64_t e = 0; e < piece->n; e++) {
            float got, want = 0;
            for (int r = 0; r < comm_size(w->grid.data); r++)
                for (int m = 0; m < MICRO_BATCHES; m++)
                    want += number_at(piece->row, piece->first + e, r, m);
            dtype_load(&got, x + e * (int64_t)dtype_bytes(dtype), dtype, 1);
            if (got < want || got > want)
                fail_msg("row %lld, element %lld: %g, the sum is %g",
                         (long long)piece->row, (long long)(piece->first + e),
                         (double)got, (double)want);
        }
    }
}

static void test_zero__sums_rows_of_any_types(void **state)
{
    struct error err;
    for (int stage = 0; stage <= (comm_size(*state) > 1 ? 3 : 0); stage++) {
        struct world w;
        world_open(&w, *state, stage);
        for (int i = 0; i < w.table.n_layers; i++) // a, b and c, d, e
            assert_int_equal(w.zero.layers[i].n_runs,
                             w.table.layers[i].kind == LAYER_BLOCK ? 4 : 1);
        for (int step = 0; step < 2; step++) {
            memset(w.storage[STORE_GRADS], 0, (size_t)w.table.n_bytes[STORE_GRADS]);
            make_grads(&w);
            assert_ok(zero_finish_grads(&w.zero, &err), err);
            check_grads(&w);
        }
        world_close(&w);
    }
}

static void test_zero__gathers_rows_of_any_types(void **state)
{
    enum { MOST = 517 * 517 };
    static float x[MOST];
    struct error err;
    for (int stage = 0; stage <= (comm_size(*state) > 1 ? 3 : 0); stage++) {
        struct world w;
        world_open(&w, *state, stage);
        for (int64_t i = 0; i < w.map.n_pieces; i++) {
            const struct shard_piece *piece = &w.map.pieces[i];
            assert_true(piece->n <= MOST);
            for (int64_t e = 0; e < piece->n; e++)
                x[e] = number_at(piece->row, piece->first + e, 0, 0);
            assert_ok(zero_write_params(&w.zero, piece, 0, piece->n, x, &err), err);
        }
        assert_ok(zero_spread_params(&w.zero, &err), err);
        for (int i = 0; i < w.table.n_layers; i++) {
            const struct param_layer *l = &w.table.layers[i];
            params_open_layer(&w.params, l->kind, l->block,
                              i + 1 < w.table.n_layers ? i + 1 : -1, false);
            for (int64_t r = l->first_row; r < l->end_row; r++) {
                const struct weight *p = &w.params.weights[STORE_PARAMS][r];
                dtype_load(x, p->data, p->dtype, p->rows * p->cols);
                for (int64_t e = 0; e < p->rows * p->cols; e++)
                    assert_close(x[e], number_at(r, e, 0, 0), 0);
            }
            params_close_layer(&w.params, l->kind, l->block, false, false);
        }
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zero__sums_rows_of_any_types),
        cmocka_unit_test(test_zero__gathers_rows_of_any_types),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
