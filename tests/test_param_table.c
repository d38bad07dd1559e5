/* The parameter table: counts of the published models, names, order, alignment. */
#include "param_fixture.h"
#include "test.h"

#include "params/param_draw.h"

static struct config_model make_model(int64_t V, int64_t P, int64_t H, int64_t L,
                                      int64_t A)
{
    return (struct config_model){.vocab_size = V,
                                 .max_position_embeddings = P,
                                 .hidden_size = H,
                                 .num_layers = L,
                                 .num_attention_heads = A,
                                 .ffn_hidden_size = 4 * H};
}

static void test_param_table__counts_match_the_published_models(void **state)
{
    (void)state;
    static const struct {
        int64_t V, P, H, L, A, n_elements;
    } models[] = {
        {50304, 1024, 1024, 24, 16, 354871296},
        {50304, 1024, 2048, 24, 16, 1313722368},
        {50304, 1024, 4096, 32, 32, 6654402560},
        {51200, 1024, 12288, 96, 96, 174603264000},
        {51200, 2048, 12288, 96, 96, 174615846912},
        {51200, 1024, 1024, 4, 2, 103864320},
    };
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        struct config_model m =
            make_model(models[i].V, models[i].P, models[i].H, models[i].L, models[i].A);
        struct param_table table;
        struct error err;
        assert_ok(gpt_param_table(&table, &m, NULL, &err), err);
        assert_int_equal(table.n_elements, models[i].n_elements);
        assert_int_equal(table.n_params, 4 + 12 * models[i].L);
        param_table_release(&table);
    }
}

static void test_param_table__rows_tile_the_flat_buffer_in_layer_order(void **state)
{
    (void)state;
    struct config_model m = make_model(7, 5, 6, 3, 2);
    m.ffn_hidden_size = 11;
    struct param_table table;
    struct error err;
    assert_ok(gpt_param_table(&table, &m, NULL, &err), err);

    int64_t end = 0, n_elements = 0;
    int layer = 0;
    for (int64_t i = 0; i < table.n_params; i++) {
        const struct param *p = &table.params[i];
        int64_t product = 1;
        for (int d = 0; d < p->n_dims; d++)
            product *= p->shape[d];
        assert_int_equal(product, p->n_elements);
        assert_int_equal(p->offset, i64_round_up(end, PARAM_ALIGN));
        assert_true(p->layer == layer || p->layer == layer + 1);
        assert_true(p->split_dim >= -1 && p->split_dim < p->n_dims);
        assert_ptr_equal(find_param(&table, p->name), p);
        end = p->offset + p->n_elements;
        layer = p->layer;
        n_elements += p->n_elements;
    }
    assert_int_equal(layer, 4);
    assert_int_equal(table.n_elements, n_elements);
    assert_int_equal(table.n_flat, i64_round_up(end, PARAM_ALIGN));
    param_table_release(&table);
}

static void test_param_table__rows_say_shape_split_and_decay(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int n_dims;
        int64_t shape[PARAM_MAX_DIMS];
        int split_dim, layer;
        enum param_init init;
        bool decays;
    } expected[] = {
        {"embedding.word.weight", 2, {7, 6}, 0, 0, INIT_NORMAL, true},
        {"embedding.position.weight", 2, {5, 6}, -1, 0, INIT_NORMAL, true},
        {"layers.0.ln1.weight", 1, {6}, -1, 1, INIT_ONES, false},
        {"layers.0.ln1.bias", 1, {6}, -1, 1, INIT_ZEROS, false},
        {"layers.0.attn.qkv.bias", 3, {3, 2, 3}, 1, 1, INIT_ZEROS, false},
        {"layers.0.attn.proj.bias", 1, {6}, -1, 1, INIT_ZEROS, false},
        {"layers.0.ln2.weight", 1, {6}, -1, 1, INIT_ONES, false},
        {"layers.0.ln2.bias", 1, {6}, -1, 1, INIT_ZEROS, false},
        {"layers.0.mlp.fc.bias", 1, {11}, 0, 1, INIT_ZEROS, false},
        {"layers.0.mlp.proj.bias", 1, {6}, -1, 1, INIT_ZEROS, false},
        {"layers.0.attn.qkv.weight", 4, {3, 2, 3, 6}, 1, 1, INIT_NORMAL, true},
        {"layers.0.attn.proj.weight", 2, {6, 6}, 1, 1, INIT_NORMAL, true},
        {"layers.0.mlp.fc.weight", 2, {11, 6}, 0, 1, INIT_NORMAL, true},
        {"layers.0.mlp.proj.weight", 2, {6, 11}, 1, 1, INIT_NORMAL, true},
        {"final_norm.weight", 1, {6}, -1, 2, INIT_ONES, false},
        {"final_norm.bias", 1, {6}, -1, 2, INIT_ZEROS, false},
    };
    struct config_model m = make_model(7, 5, 6, 1, 2);
    m.ffn_hidden_size = 11;
    struct param_table table;
    struct error err;
    assert_ok(gpt_param_table(&table, &m, NULL, &err), err);
    assert_int_equal(table.n_params, ARRAY_LEN(expected));
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        const struct param *p = &table.params[i];
        assert_string_equal(p->name, expected[i].name);
        assert_int_equal(p->n_dims, expected[i].n_dims);
        assert_memory_equal(p->shape, expected[i].shape, sizeof p->shape);
        assert_int_equal(p->split_dim, expected[i].split_dim);
        assert_int_equal(p->layer, expected[i].layer);
        assert_int_equal(p->init, expected[i].init);
        assert_int_equal(p->decays, expected[i].decays);
    }
    assert_null(find_param(&table, "layers.1.ln1.weight"));
    param_table_release(&table);
}

/* Found by halving: with so many layers, a walk over all rows for each takes minutes. */
static void test_param_table__layers_are_found_among_very_many(void **state)
{
    (void)state;
    enum { L = 40000 };
    struct config_model m = make_model(7, 5, 6, L, 2);
    struct param_part part = param_part_whole(L);
    struct param_table table;
    struct error err;
    part.chunks[0].first = 3; // a stage of a pipeline, its embedding for the head
    part.has_embedding = false;
    assert_ok(gpt_param_table(&table, &m, &part, &err), err);
    assert_int_equal(table.n_layers, L - 3 + 2);
    for (int block = -1; block <= L; block++) {
        int i = param_table_layer(&table, LAYER_BLOCK, block);
        assert_int_equal(i, block < 3 || block == L ? -1 : block - 2);
        if (i >= 0)
            assert_int_equal(table.layers[i].block, block);
    }
    int64_t next = 0;
    for (int i = 0; i < table.n_layers; i++) {
        const struct param_layer *l = &table.layers[i];
        assert_int_equal(l->first_row, next);
        assert_int_equal(l->end_row - l->first_row, i == 0 ? 1 : i == L - 3 + 1 ? 2 : 12);
        next = l->end_row;
    }
    assert_int_equal(next, table.n_params);
    param_table_release(&table);
}

/* The head's matrix is the word embedding: a stage that has one of them holds it, and one
 * of the two counts it. */
static void test_param_table__a_tied_row_is_held_where_it_is_used(void **state)
{
    (void)state;
    static const struct {
        bool has_embedding, has_head;
        int64_t n_rows; // of the embedding
        int embedding, final_norm, head;
    } cases[] = {
        {true, true, 2, 0, 4, 0},
        {true, false, 2, 0, -1, -1},
        {false, true, 1, 0, 4, 0},
        {false, false, 0, -1, -1, -1},
    };
    struct config_model m = make_model(7, 5, 6, 3, 2);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct param_part part = param_part_whole(3);
        struct param_table table;
        struct error err;
        part.has_embedding = cases[i].has_embedding;
        part.has_head = cases[i].has_head;
        assert_ok(gpt_param_table(&table, &m, &part, &err), err);
        assert_int_equal(param_table_layer(&table, LAYER_EMBEDDING, 0),
                         cases[i].embedding);
        assert_int_equal(param_table_layer(&table, LAYER_FINAL_NORM, 0),
                         cases[i].final_norm);
        assert_int_equal(param_table_layer(&table, LAYER_HEAD, 0), cases[i].head);
        for (int64_t r = 0; r < table.n_params; r++) {
            const struct param *p = &table.params[r];
            bool is_word = strcmp(p->name, "embedding.word.weight") == 0;
            assert_int_equal(p->is_tied, is_word);
            assert_int_equal(p->is_counted, !is_word || part.has_embedding);
            assert_int_equal(table.layers[p->layer].is_late,
                             p->layer == cases[i].embedding);
        }
        if (cases[i].n_rows > 0)
            assert_int_equal(table.layers[0].end_row, cases[i].n_rows);
        param_table_release(&table);
    }
}

struct drawn {
    const struct param_table *table;
    float values[2][4096]; // by the flat buffer
    int time;
};

static int take_drawn(void *context, const struct shard_piece *piece, int64_t first,
                      int64_t n, const float *x, struct error *err)
{
    struct drawn *d = context;
    int64_t at = d->table->params[piece->row].offset + piece->first + first;
    (void)err;
    memcpy(&d->values[d->time][at], x, (size_t)n * sizeof *x);
    return 0;
}

static void test_param_draw__a_row_scales_its_deviation(void **state)
{
    (void)state;
    struct config_model m = make_model(7, 5, 6, 1, 2);
    struct param_table table;
    struct shard_map map;
    struct error err;
    static struct drawn d;
    assert_ok(gpt_param_table(&table, &m, NULL, &err), err);
    assert_ok(shard_map_init(&map, &table, 1, 0, &err), err);
    assert_true(table.n_flat <= 4096);
    for (d.time = 0; d.time < 2; d.time++) {
        d.table = &table;
        for (int64_t i = 0; i < table.n_params; i++)
            table.params[i].init_scale = d.time == 0 ? 1 : (double)(1 << (i % 3));
        assert_ok(param_draw(&map, 1, 0.5, take_drawn, &d, &err), err);
    }
    for (int64_t i = 0; i < table.n_params; i++) {
        const struct param *p = &table.params[i];
        for (int64_t e = p->offset; e < p->offset + p->n_elements; e++)
            assert_close(d.values[1][e],
                         (double)d.values[0][e] *
                             (p->init == INIT_NORMAL ? p->init_scale : 1),
                         1e-6);
    }
    shard_map_release(&map);
    param_table_release(&table);
}

static void test_param_table__refuses_what_cannot_be_laid_out(void **state)
{
    (void)state;
    const struct {
        struct config_model model;
        const char *says;
    } cases[] = {
        {make_model(0, 5, 6, 1, 2), "vocab_size is 0"},
        {make_model(7, 5, 6, 0, 2), "num_layers is 0"},
        {make_model(7, 5, 6, INT64_MAX, 2), "num_layers"},
        {make_model(7, 5, 6, 1, 4), "not a multiple"},
        {make_model(INT64_MAX / 8, 5, 4, 1, 2), "too large"},
        {make_model(INT64_MAX / 16, 5, 4, 1, 2), "too large"},
        {make_model(7, INT64_MAX, 4, 1, 2), "too large"},
        {make_model(7, 5, (int64_t)1 << 32, 1, 1), "too large"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct param_table table;
        struct error err;
        assert_int_equal(gpt_param_table(&table, &cases[i].model, NULL, &err), -1);
        assert_int_equal(err.kind, ERROR_INPUT);
        if (!strstr(err.text, cases[i].says))
            fail_msg("case %zu: '%s' does not say '%s'", i, err.text, cases[i].says);
        param_table_release(&table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_param_table__counts_match_the_published_models),
        cmocka_unit_test(test_param_table__rows_tile_the_flat_buffer_in_layer_order),
        cmocka_unit_test(test_param_table__rows_say_shape_split_and_decay),
        cmocka_unit_test(test_param_table__layers_are_found_among_very_many),
        cmocka_unit_test(test_param_table__a_tied_row_is_held_where_it_is_used),
        cmocka_unit_test(test_param_draw__a_row_scales_its_deviation),
        cmocka_unit_test(test_param_table__refuses_what_cannot_be_laid_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
