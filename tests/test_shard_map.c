/*
 * Who owns which elements: everything once, cuts where they may be, and a rank's range of
 * a layer laid out as in the whole storage, so that it is moved by one copy.
 */
#include "test.h"

#include "device/kernels.h"
#include "model/gpt_params.h"
#include "params/shard_map.h"

enum { MAX_SIZE = 64 };

static const int sizes[] = {1, 2, 3, 5, 7, MAX_SIZE};

/* Odd sizes: rows shorter and longer than a chunk, and none a multiple of one. */
static const struct config_model odd_model = {.vocab_size = 301,
                                              .hidden_size = 36,
                                              .num_layers = 4,
                                              .num_attention_heads = 4,
                                              .ffn_hidden_size = 131,
                                              .max_position_embeddings = 47};

/* Parts of it as layouts make them: all, a share of tensor parallelism, the stages of a
 * pipeline, one with two chunks. */
static const struct param_part parts[] = {
    {.mp = 1, .has_embedding = true, .has_head = true, .n_chunks = 1, .chunks = {{0, 4}}},
    {.mp = 3,
     .mp_rank = 1,
     .has_embedding = true,
     .has_head = true,
     .n_chunks = 1,
     .chunks = {{0, 4}}},
    {.mp = 1, .has_embedding = true, .n_chunks = 1, .chunks = {{0, 1}}},
    {.mp = 1, .n_chunks = 1, .chunks = {{1, 3}}},
    {.mp = 1, .has_head = true, .n_chunks = 2, .chunks = {{1, 2}, {3, 4}}},
};

static const enum dtype types[][N_STORES] = {
    {DTYPE_F32, DTYPE_F32}, {DTYPE_F16, DTYPE_F16}, {DTYPE_BF16, DTYPE_F32}};

typedef void (*check_function)(const struct param_table *table, int size);

/* The check, for each part, types and number of processes. */
static void for_all(check_function check)
{
    for (size_t p = 0; p < ARRAY_LEN(parts); p++)
        for (size_t t = 0; t < ARRAY_LEN(types); t++) {
            struct param_table table;
            struct error err;
            assert_ok(gpt_param_table(&table, &odd_model, &parts[p], &err), err);
            param_table_set_types(&table, types[t][STORE_PARAMS], types[t][STORE_GRADS]);
            for (size_t s = 0; s < ARRAY_LEN(sizes); s++)
                check(&table, sizes[s]);
            param_table_release(&table);
        }
}

static struct shard_map map_of(const struct param_table *table, int size, int rank)
{
    struct shard_map map;
    struct error err;
    assert_ok(shard_map_init(&map, table, size, rank, &err), err);
    return map;
}

static void check_ownership(const struct param_table *table, int size)
{
    unsigned char *owners = calloc((size_t)table->n_flat, 1);
    assert_non_null(owners);
    for (int rank = 0; rank < size; rank++) {
        struct shard_map map = map_of(table, size, rank);
        for (int64_t i = 0; i < map.n_pieces; i++) {
            const struct shard_piece *piece = &map.pieces[i];
            const struct param *row = &table->params[piece->row];
            assert_true(piece->n > 0 && piece->first >= 0);
            assert_true(piece->first + piece->n <= row->n_elements);
            for (int64_t e = 0; e < piece->n; e++)
                owners[row->offset + piece->first + e]++;
        }
        shard_map_release(&map);
    }
    for (int64_t i = 0; i < table->n_params; i++)
        for (int64_t e = 0; e < table->params[i].n_elements; e++)
            assert_int_equal(owners[table->params[i].offset + e], 1);
    free(owners);
}

static void test_shard_map__every_element_has_one_owner(void **state)
{
    (void)state;
    for_all(check_ownership);
}

static void check_cuts(const struct param_table *table, int size)
{
    struct shard_map map = map_of(table, size, 0);
    for (int64_t i = 0; i < table->n_layers; i++) {
        const int64_t *cuts = map.cuts + i * (size + 1);
        const struct param_layer *l = &table->layers[i];
        int64_t first = l->first, end = l->end, row;
        assert_int_equal(cuts[0], first);
        assert_int_equal(cuts[size], end);
        for (int r = 1; r < size; r++) {
            assert_true(cuts[r] >= cuts[r - 1] && cuts[r] <= end);
            for (row = l->first_row; row + 1 < l->end_row; row++)
                if (table->params[row + 1].offset > cuts[r])
                    break;
            bool is_chunk =
                (cuts[r] - table->params[row].offset) % KERNEL_SQUARE_CHUNK == 0;
            assert_true(is_chunk || cuts[r] == end);
        }
        // each within half a chunk of where it is wanted
        for (int r = 0; r < size; r++)
            assert_close(cuts[r + 1] - cuts[r], (end - first) / size,
                         KERNEL_SQUARE_CHUNK + 2 * PARAM_ALIGN);
    }
    shard_map_release(&map);
}

static void test_shard_map__cuts_are_even_and_never_inside_a_sum_of_squares(void **state)
{
    (void)state;
    for_all(check_cuts);
}

/* Where the piece would be if its layer's storage began at 0. */
static int64_t place_in_layer(const struct param_table *table,
                              const struct shard_piece *piece, enum param_store store)
{
    const struct param *row = &table->params[piece->row];
    int64_t first_row = table->layers[row->layer].first_row;
    return row->in[store].at - table->params[first_row].in[store].at +
           piece->first * (int64_t)dtype_bytes(row->in[store].dtype);
}

static void check_layer_bytes(const struct shard_map *map, int i, enum param_store store,
                              const int64_t *bounds)
{
    int64_t n_bytes, at = shard_map_local_at(map, i, store, &n_bytes);
    int64_t range = bounds[map->rank + 1] - bounds[map->rank];
    assert_int_equal(bounds[0], 0);
    assert_int_equal(bounds[map->rank] % 2, 0);
    // what is owned ends with its last element, a range where the next one begins
    assert_true(n_bytes <= range);
    assert_true(range - n_bytes < PARAM_ALIGN * (int64_t)sizeof(float));
    assert_true(at + n_bytes <= map->n_local_bytes[store]);
    for (int64_t p = map->layer_pieces[i]; p < map->layer_pieces[i + 1]; p++)
        assert_int_equal(map->pieces[p].local_at[store] - at,
                         place_in_layer(map->table, &map->pieces[p], store) -
                             bounds[map->rank]);
}

static void check_local(const struct param_table *table, int size)
{
    int64_t bounds[MAX_SIZE + 1];
    for (int rank = 0; rank < size; rank++) {
        struct shard_map map = map_of(table, size, rank);
        int64_t end = 0;
        for (int64_t i = 0; i < map.n_pieces; i++) {
            assert_true(map.pieces[i].local >= end);
            assert_int_equal(map.pieces[i].local % PARAM_ALIGN, 0);
            end = map.pieces[i].local + map.pieces[i].n;
        }
        assert_true(end <= map.n_local && map.n_local - end < PARAM_ALIGN);
        assert_int_equal(map.layer_pieces[table->n_layers], map.n_pieces);
        for (int i = 0; i < table->n_layers; i++)
            for (int s = 0; s < N_STORES; s++) {
                shard_map_bounds(&map, i, (enum param_store)s, bounds);
                check_layer_bytes(&map, i, (enum param_store)s, bounds);
            }
        shard_map_release(&map);
    }
}

static void
test_shard_map__what_is_owned_of_a_layer_is_one_copy_of_its_range(void **state)
{
    (void)state;
    for_all(check_local);
}

static void test_shard_map__alone_the_pieces_are_the_rows(void **state)
{
    (void)state;
    struct param_table table;
    struct error err;
    assert_ok(gpt_param_table(&table, &odd_model, NULL, &err), err);
    struct shard_map map = map_of(&table, 1, 0);
    assert_int_equal(map.n_pieces, table.n_params);
    for (int64_t i = 0; i < map.n_pieces; i++) {
        assert_int_equal(map.pieces[i].row, i);
        assert_int_equal(map.pieces[i].first, 0);
        assert_int_equal(map.pieces[i].n, table.params[i].n_elements);
        assert_int_equal(map.pieces[i].local, table.params[i].offset);
    }
    assert_int_equal(map.n_local, table.n_flat);
    shard_map_release(&map);
    param_table_release(&table);
}

/* Each element gets its own number; a piece must lead to the right ones in every store.
 */
static void test_shard_piece__leads_to_the_same_element_in_every_store(void **state)
{
    (void)state;
    struct param_table table;
    struct error err;
    assert_ok(gpt_param_table(&table, &odd_model, NULL, &err), err);
    float *whole = calloc((size_t)table.n_flat, sizeof *whole);
    assert_non_null(whole);
    for (int64_t i = 0; i < table.n_flat; i++)
        whole[i] = (float)i;
    for (int rank = 0; rank < 3; rank++) {
        struct shard_map map = map_of(&table, 3, rank);
        float *owned = calloc((size_t)map.n_local, sizeof *owned);
        assert_non_null(owned);
        void *layers[16] = {whole}; // only the embedding is whole
        assert_true(table.n_layers <= 16);
        int64_t rest = map.pieces[map.layer_pieces[1]].local_at[STORE_GRADS];
        struct shard_store stores[] = {
            {.store = STORE_GRADS, .whole = whole},
            {.store = STORE_GRADS, .owned = owned},
            {.store = STORE_GRADS, .owned = owned, .layers = layers},
            {.store = STORE_GRADS,
             .owned = (char *)owned + rest,
             .owned_from = rest,
             .layers = layers},
        };
        for (int64_t i = 0; i < map.n_pieces; i++) {
            const struct shard_piece *p = &map.pieces[i];
            const struct param *row = &table.params[p->row];
            const float *from = whole + row->offset + p->first;
            memcpy(shard_piece_at(&map, &stores[1], p), from,
                   (size_t)p->n * sizeof *from);
            assert_ptr_equal(shard_piece_at(&map, &stores[0], p), from);
            assert_memory_equal(shard_piece_at(&map, &stores[1], p), from,
                                (size_t)p->n * sizeof *from);
            const void *expected =
                shard_piece_at(&map, &stores[row->layer == 0 ? 0 : 1], p);
            assert_ptr_equal(shard_piece_at(&map, &stores[2], p), expected);
            assert_ptr_equal(shard_piece_at(&map, &stores[3], p), expected);
        }
        free(owned);
        shard_map_release(&map);
    }
    free(whole);
    param_table_release(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shard_map__every_element_has_one_owner),
        cmocka_unit_test(test_shard_map__cuts_are_even_and_never_inside_a_sum_of_squares),
        cmocka_unit_test(
            test_shard_map__what_is_owned_of_a_layer_is_one_copy_of_its_range),
        cmocka_unit_test(test_shard_map__alone_the_pieces_are_the_rows),
        cmocka_unit_test(test_shard_piece__leads_to_the_same_element_in_every_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
