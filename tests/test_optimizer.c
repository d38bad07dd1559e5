/*
 * The update and the norm: against plain loops in double, and against themselves when the
 * elements are shared out or the state lies on disk, to the last bit.
 */
#include "param_fixture.h"
#include "test.h"

#include "optim/optimizer.h"

#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { STEPS = 3 };

/* Rows shorter and longer than a chunk of squares, none a multiple of one. */
static const struct config_model small_model = {.vocab_size = 301,
                                                .hidden_size = 36,
                                                .num_layers = 2,
                                                .num_attention_heads = 4,
                                                .ffn_hidden_size = 131,
                                                .max_position_embeddings = 47};

static const struct config_optim adamw = {.weight_decay = 0.1,
                                          .adam_beta1 = 0.9,
                                          .adam_beta2 = 0.99,
                                          .adam_epsilon = 1e-8,
                                          .grad_clip = 1.0};

/* -- a model's storages without the model -------------------------------------------- */

struct world {
    struct param_table table;
    char *params, *grads; // as the table lays them out
};

/* Of several magnitudes, so that another order of adding shows. */
static float value_at(int64_t i, int64_t salt)
{
    static const float scales[] = {1.0F, 0.03F, 1.0F / 1024, 1.0F};
    uint64_t h = (uint64_t)(i * 31 + salt + 7) * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 29) * 0xBF58476D1CE4E5B9u;
    return ((float)(h >> 40) / 16777216.0F - 0.5F) * scales[h >> 20 & 3];
}

/* The row's elements become numbers that depend on `salt`. */
static void fill_row(const struct param *row, enum param_store store, char *base,
                     int64_t salt, float scale)
{
    enum { PART = 256 };
    enum dtype dtype = row->in[store].dtype;
    for (int64_t e = 0; e < row->n_elements; e += PART) {
        float x[PART];
        int64_t n = i64_min(PART, row->n_elements - e);
        for (int64_t i = 0; i < n; i++)
            x[i] = value_at(row->offset + e + i, salt) * scale;
        dtype_store(base + row->in[store].at + e * (int64_t)dtype_bytes(dtype), x, dtype,
                    n);
    }
}

static void fill_grads(struct world *w, int64_t step, float scale)
{
    for (int64_t i = 0; i < w->table.n_params; i++)
        fill_row(&w->table.params[i], STORE_GRADS, w->grads, 1000 + step, scale);
}

static struct world world_open(const struct config_model *m, enum dtype params,
                               enum dtype grads)
{
    struct world w;
    struct error err;
    assert_ok(gpt_param_table(&w.table, m, NULL, &err), err);
    param_table_set_types(&w.table, params, grads);
    w.params = calloc((size_t)w.table.n_bytes[STORE_PARAMS], 1);
    w.grads = calloc((size_t)w.table.n_bytes[STORE_GRADS], 1);
    assert_true(w.params && w.grads);
    for (int64_t i = 0; i < w.table.n_params; i++)
        fill_row(&w.table.params[i], STORE_PARAMS, w.params, 0, 0.2F);
    fill_grads(&w, 0, 1.0F);
    return w;
}

static void world_close(struct world *w)
{
    free(w->params);
    free(w->grads);
    param_table_release(&w->table);
}

/* -- the owners of its elements ----------------------------------------------------- */

enum { MAX_OWNERS = 5 };

struct owners { // as many optimizers as processes, in this one
    int n;
    struct shard_map maps[MAX_OWNERS];
    struct optimizer opts[MAX_OWNERS];
};

/* The master weights that the parameters of world_open() were rounded from. */
static void write_master(struct optimizer *o)
{
    struct error err;
    const struct shard_map *map = o->opt.map;
    for (int64_t i = 0; i < map->n_pieces && o->opt.has_master; i++) {
        const struct shard_piece *p = &map->pieces[i];
        int64_t first = map->table->params[p->row].offset + p->first;
        float *x = malloc((size_t)p->n * sizeof *x);
        assert_non_null(x);
        for (int64_t e = 0; e < p->n; e++)
            x[e] = 0.2F * value_at(first + e, 0);
        assert_ok(optimizer_write(o, OPTIMIZER_WEIGHTS, p->local, p->n, x, &err), err);
        free(x);
    }
}

static void owners_open(struct owners *o, const struct world *w, int n,
                        const struct config_optim *cfg, const char *dir)
{
    struct error err;
    o->n = n;
    for (int r = 0; r < n; r++) {
        assert_ok(shard_map_init(&o->maps[r], &w->table, n, r, &err), err);
        struct optimizer_options opt = {
            .map = &o->maps[r],
            .dev = device_cpu(DTYPE_F32),
            .cfg = *cfg,
            .has_master = w->table.params[0].in[STORE_PARAMS].dtype != DTYPE_F32,
            .offload_dir = dir};
        assert_ok(optimizer_open(&o->opts[r], &opt, &err), err);
        write_master(&o->opts[r]);
    }
}

static void owners_close(struct owners *o)
{
    for (int r = 0; r < o->n; r++) {
        optimizer_close(&o->opts[r]);
        shard_map_release(&o->maps[r]);
    }
}

/* The optimizer's own norm of one owner; of several what its sums over ranks give: squares
 * summed over the owners in order, then rows. */
static double owners_norm(struct owners *o, const struct world *w)
{
    struct shard_store grads = {.store = STORE_GRADS, .whole = w->grads};
    const int64_t *chunks = o->opts[0].row_chunks;
    double norm, total = 0, rows[64] = {0};
    struct error err;
    assert_true(w->table.n_params <= (int64_t)ARRAY_LEN(rows));
    for (int r = 0; r < o->n; r++)
        assert_ok(optimizer_norm(&o->opts[r], &grads, &norm, &err), err);
    for (int64_t i = 0; i < w->table.n_params; i++)
        for (int64_t c = chunks[i]; c < chunks[i + 1]; c++) {
            double square = o->opts[0].squares[c];
            for (int r = 1; r < o->n; r++)
                square += o->opts[r].squares[c];
            rows[w->table.params[i].number] += square;
        }
    for (int64_t i = 0; i < w->table.n_params; i++)
        total += rows[i];
    return o->n > 1 ? sqrt(total) : norm;
}

static struct optimizer_update update_of(const struct shard_store *params,
                                         const struct shard_store *grads, int64_t number,
                                         double norm)
{
    return (struct optimizer_update){.params = params,
                                     .grads = grads,
                                     .lr = 1e-2 / (double)number,
                                     .grad_norm = norm,
                                     .grad_scale = 0.25,
                                     .number = number};
}

/* Some steps; returns the sum of the norms. */
static double owners_train(struct owners *o, struct world *w)
{
    struct shard_store params = {.store = STORE_PARAMS, .whole = w->params};
    struct shard_store grads = {.store = STORE_GRADS, .whole = w->grads};
    struct error err;
    double norms = 0;
    for (int64_t step = 1; step <= STEPS; step++) {
        fill_grads(w, step, 1.0F);
        double norm = owners_norm(o, w) * 0.25;
        norms += norm;
        struct optimizer_update u = update_of(&params, &grads, step, norm);
        for (int r = 0; r < o->n; r++)
            assert_ok(optimizer_step(&o->opts[r], &u, &err), err);
    }
    return norms;
}

/* A buffer of all owners together, by the flat buffer; the caller frees it. */
static float *whole_buffer(struct owners *o, int tensor)
{
    struct error err;
    const struct param_table *table = o->maps[0].table;
    float *x = calloc((size_t)table->n_flat, sizeof *x);
    assert_non_null(x);
    for (int r = 0; r < o->n; r++)
        for (int64_t i = 0; i < o->maps[r].n_pieces; i++) {
            const struct shard_piece *p = &o->maps[r].pieces[i];
            float *to = x + table->params[p->row].offset + p->first;
            assert_ok(optimizer_read(&o->opts[r], tensor, p->local, p->n, to, &err), err);
        }
    return x;
}

/* Parameters and state are the same bits. */
static void assert_same(struct owners *a, const struct world *wa, struct owners *b,
                        const struct world *wb)
{
    int first = a->opts[0].opt.has_master ? OPTIMIZER_WEIGHTS : OPTIMIZER_WEIGHTS + 1;
    assert_memory_equal(wa->params, wb->params, (size_t)wa->table.n_bytes[STORE_PARAMS]);
    for (int k = first; k < update_rule_n_tensors(a->opts[0].rule); k++) {
        float *x = whole_buffer(a, k);
        float *y = whole_buffer(b, k);
        assert_memory_equal(x, y, (size_t)wa->table.n_flat * sizeof *x);
        free(x);
        free(y);
    }
}

static const enum dtype types[][N_STORES] = {{DTYPE_F32, DTYPE_F32},
                                             {DTYPE_F16, DTYPE_F16},
                                             {DTYPE_BF16, DTYPE_BF16},
                                             {DTYPE_F16, DTYPE_F32}};

static void test_optimizer__owners_do_not_change_a_bit(void **state)
{
    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(types); t++)
        for (int n = 2; n <= MAX_OWNERS; n++) {
            struct world alone = world_open(&small_model, types[t][0], types[t][1]);
            struct world shared = world_open(&small_model, types[t][0], types[t][1]);
            struct owners one, many;
            owners_open(&one, &alone, 1, &adamw, NULL);
            owners_open(&many, &shared, n, &adamw, NULL);
            double norm = owners_train(&one, &alone);
            double norm_shared = owners_train(&many, &shared);
            assert_memory_equal(&norm, &norm_shared, sizeof norm);
            assert_same(&one, &alone, &many, &shared);
            owners_close(&one);
            owners_close(&many);
            world_close(&alone);
            world_close(&shared);
        }
}

/* -- storages that hold only what is owned ------------------------------------------ */

/* Move each piece between the whole storage and the owned one. */
static void move_pieces(const struct shard_map *map, const struct shard_store *to,
                        const struct shard_store *from)
{
    for (int64_t i = 0; i < map->n_pieces; i++) {
        const struct shard_piece *p = &map->pieces[i];
        enum dtype dtype = map->table->params[p->row].in[to->store].dtype;
        memcpy(shard_piece_at(map, to, p), shard_piece_at(map, from, p),
               (size_t)p->n * dtype_bytes(dtype));
    }
}

static void test_optimizer__owned_storages_give_the_bits_of_whole_ones(void **state)
{
    (void)state;
    struct error err;
    struct world alone = world_open(&small_model, DTYPE_F16, DTYPE_F16);
    struct world shared = world_open(&small_model, DTYPE_F16, DTYPE_F16);
    struct owners one, many;
    owners_open(&one, &alone, 1, &adamw, NULL);
    owners_open(&many, &shared, 3, &adamw, NULL);
    struct shard_store whole_p = {.store = STORE_PARAMS, .whole = alone.params};
    struct shard_store whole_g = {.store = STORE_GRADS, .whole = alone.grads};
    struct optimizer_update u = update_of(&whole_p, &whole_g, 1, 0.5);
    assert_ok(optimizer_step(&one.opts[0], &u, &err), err);
    for (int r = 0; r < many.n; r++) {
        const struct shard_map *map = &many.maps[r];
        char *p = calloc((size_t)map->n_local_bytes[STORE_PARAMS], 1);
        char *g = calloc((size_t)map->n_local_bytes[STORE_GRADS], 1);
        assert_true(p && g);
        struct shard_store in_p = {.store = STORE_PARAMS, .whole = shared.params};
        struct shard_store in_g = {.store = STORE_GRADS, .whole = shared.grads};
        struct shard_store owned_p = {.store = STORE_PARAMS, .owned = p};
        // a storage whose embedding is whole, as stages 2 and 3 have it
        void *layers[16] = {shared.grads};
        assert_true(map->table->n_layers <= 16);
        struct shard_store owned_g = {.store = STORE_GRADS, .owned = g, .layers = layers};
        move_pieces(map, &owned_p, &in_p);
        move_pieces(map, &(struct shard_store){.store = STORE_GRADS, .owned = g}, &in_g);
        u = update_of(&owned_p, &owned_g, 1, 0.5);
        assert_ok(optimizer_step(&many.opts[r], &u, &err), err);
        move_pieces(map, &in_p, &owned_p);
        free(p);
        free(g);
    }
    assert_same(&one, &alone, &many, &shared);
    owners_close(&one);
    owners_close(&many);
    world_close(&alone);
    world_close(&shared);
}

/* -- state on disk ------------------------------------------------------------------ */

/* A directory on a disk: where temporary ones are in memory, below the current one. */
static int make_disk_directory(void **state)
{
    char *dir = test_make_directory();
    struct statfs st;
    if (statfs(dir, &st) == 0 && (st.f_type == TMPFS_MAGIC || st.f_type == RAMFS_MAGIC)) {
        rmdir(dir);
        snprintf(dir, 4096, "./trefoil-test-XXXXXX");
        assert_non_null(mkdtemp(dir));
    }
    *state = dir;
    return 0;
}

/* Nothing may be left in it. */
static int remove_directory(void **state)
{
    int rc = rmdir(*state);
    free(*state);
    return rc;
}

static void compare_offload(const struct config_model *m, const char *dir, int n)
{
    struct world memory = world_open(m, DTYPE_F16, DTYPE_F16);
    struct world disk = world_open(m, DTYPE_F16, DTYPE_F16);
    struct owners a, b;
    owners_open(&a, &memory, n, &adamw, NULL);
    owners_open(&b, &disk, n, &adamw, dir);
    double norm_a = owners_train(&a, &memory), norm_b = owners_train(&b, &disk);
    assert_memory_equal(&norm_a, &norm_b, sizeof norm_a);
    assert_same(&a, &memory, &b, &disk);
    owners_close(&a);
    owners_close(&b);
    world_close(&memory);
    world_close(&disk);
}

static void test_optimizer__state_on_disk_gives_the_bits_of_memory(void **state)
{
    struct config_model several_windows = small_model; // 5 of 4 MB for each buffer
    several_windows.vocab_size = 8501;
    several_windows.hidden_size = 512;
    compare_offload(&small_model, *state, 3);
    compare_offload(&several_windows, *state, 1);
}

static void test_optimizer__says_what_it_keeps_in_memory_and_on_disk(void **state)
{
    (void)state;
    struct config_model m = small_model;
    m.vocab_size = 90001;
    m.hidden_size = 512;
    struct param_table table;
    struct shard_map map;
    struct error err;
    assert_ok(gpt_param_table(&table, &m, NULL, &err), err);
    assert_ok(shard_map_init(&map, &table, 2, 1, &err), err);
    struct optimizer_options opt = {
        .map = &map, .dev = device_cpu(DTYPE_F32), .has_master = true};
    size_t each = (size_t)map.n_local * sizeof(float);
    struct optimizer_memory kept = optimizer_measure(&opt);
    opt.offload_dir = ".";
    struct optimizer_memory offloaded = optimizer_measure(&opt);
    assert_int_equal(kept.offloaded, 0);
    assert_int_equal(offloaded.offloaded, 3 * each);
    assert_true(kept.resident >= 3 * each);
    assert_true(offloaded.resident < kept.resident - 3 * each +
                                         3 * OFFLOAD_WINDOWS * OFFLOAD_WINDOW_BYTES + 1);
    shard_map_release(&map);
    param_table_release(&table);
}

/* -- the formulas ------------------------------------------------------------------- */

struct plain { // in double, one array a quantity, by the flat buffer
    double *p, *m, *v;
};

static void plain_step(struct plain *s, const struct world *w,
                       const struct config_optim *cfg, const struct optimizer_update *u)
{
    bool is_clipped = cfg->grad_clip > 0 && u->grad_norm > cfg->grad_clip;
    double scale = u->grad_scale * (is_clipped ? cfg->grad_clip / u->grad_norm : 1.0);
    for (int64_t i = 0; i < w->table.n_params; i++) {
        const struct param *row = &w->table.params[i];
        const float *grads = (const float *)(const void *)w->grads;
        bool decays =
            cfg->decay == DECAYED_ALL || (row->n_dims > 1 && row->init == INIT_NORMAL);
        double decay = decays ? cfg->weight_decay : 0;
        for (int64_t e = row->offset; e < row->offset + row->n_elements; e++) {
            double g = (double)grads[e] * scale;
            if (cfg->name == OPTIMIZER_ADAM)
                g += decay * s->p[e];
            s->m[e] = cfg->adam_beta1 * s->m[e] + (1 - cfg->adam_beta1) * g;
            s->v[e] = cfg->adam_beta2 * s->v[e] + (1 - cfg->adam_beta2) * g * g;
            double m_hat = s->m[e] / (1 - pow(cfg->adam_beta1, (double)u->number));
            double v_hat = s->v[e] / (1 - pow(cfg->adam_beta2, (double)u->number));
            double move = m_hat / (sqrt(v_hat) + cfg->adam_epsilon);
            if (cfg->name == OPTIMIZER_ADAMW)
                move += decay * s->p[e];
            s->p[e] -= u->lr * row->lr_scale * move;
        }
    }
}

static double plain_norm(const struct world *w)
{
    double sum = 0;
    for (int64_t i = 0; i < w->table.n_params; i++) {
        const float *g =
            (const float *)(const void *)w->grads + w->table.params[i].offset;
        for (int64_t e = 0; e < w->table.params[i].n_elements; e++)
            sum += (double)g[e] * (double)g[e];
    }
    return sqrt(sum);
}

static void compare_with_plain(const struct config_optim *cfg, float grad_size)
{
    struct world w = world_open(&small_model, DTYPE_F32, DTYPE_F32);
    struct shard_store params = {.store = STORE_PARAMS, .whole = w.params};
    struct shard_store grads = {.store = STORE_GRADS, .whole = w.grads};
    size_t n = (size_t)w.table.n_flat;
    struct plain s = {calloc(n, sizeof(double)), calloc(n, sizeof(double)),
                      calloc(n, sizeof(double))};
    const float *p = (const float *)(const void *)w.params;
    struct owners one;
    struct error err;
    assert_true(s.p && s.m && s.v);
    for (size_t i = 0; i < n; i++)
        s.p[i] = (double)p[i];
    for (int64_t i = 0; i < w.table.n_params; i++)
        w.table.params[i].lr_scale = 1.0 + 0.5 * (double)(i % 3);
    owners_open(&one, &w, 1, cfg, NULL);
    for (int64_t step = 1; step <= 10; step++) {
        fill_grads(&w, step, grad_size);
        double norm = owners_norm(&one, &w), expected = plain_norm(&w);
        assert_close(norm, expected, 1e-12 * expected);
        struct optimizer_update u = update_of(&params, &grads, step, norm * 0.25);
        assert_ok(optimizer_step(&one.opts[0], &u, &err), err);
        plain_step(&s, &w, cfg, &u);
    }
    for (size_t i = 0; i < n; i++)
        assert_close(p[i], s.p[i], 2e-6);
    owners_close(&one);
    free(s.p);
    free(s.m);
    free(s.v);
    world_close(&w);
}

static void test_optimizer__adamw_and_adam_are_what_the_formulas_say(void **state)
{
    (void)state;
    struct config_optim cfg = adamw;
    for (int name = OPTIMIZER_ADAMW; name <= OPTIMIZER_ADAM; name++) {
        cfg.name = (enum config_optimizer)name;
        cfg.grad_clip = 1.0;
        compare_with_plain(&cfg, 1.0F);   // clipped
        compare_with_plain(&cfg, 0.001F); // not
        cfg.grad_clip = 0;
        compare_with_plain(&cfg, 1.0F);
        cfg.decay = DECAYED_ALL;
        compare_with_plain(&cfg, 1.0F);
        cfg.decay = DECAYED_MATRICES;
    }
}

/* -- what else it promises ---------------------------------------------------------- */

static void test_optimizer__16_bit_parameters_are_the_rounded_master_weights(void **state)
{
    (void)state;
    struct world w = world_open(&small_model, DTYPE_BF16, DTYPE_BF16);
    struct owners one;
    owners_open(&one, &w, 1, &adamw, NULL);
    owners_train(&one, &w);
    const struct param *row = find_param(&w.table, "layers.1.mlp.fc.weight");
    float *master = whole_buffer(&one, OPTIMIZER_WEIGHTS);
    int64_t n_inexact = 0;
    const uint16_t *stored = (const uint16_t *)(void *)(w.params + row->in[0].at);
    for (int64_t e = 0; e < row->n_elements; e++) {
        float x = master[row->offset + e], rounded = bf16_to_f32(stored[e]);
        assert_int_equal(stored[e], f32_to_bf16(x));
        n_inexact += rounded < x || rounded > x;
    }
    free(master);
    assert_true(n_inexact > row->n_elements / 2);
    owners_close(&one);
    world_close(&w);
}

struct visits {
    int next; // even: before layer next / 2; odd: after
};

static void before_layer(void *context, int i)
{
    struct visits *v = context;
    assert_int_equal(v->next++, 2 * i);
}

static void after_layer(void *context, int i)
{
    struct visits *v = context;
    assert_int_equal(v->next++, 2 * i + 1);
}

/* Also of layers of which this process owns nothing: others wait for it there. */
static void test_optimizer__tells_of_every_layer_in_order(void **state)
{
    (void)state;
    struct error err;
    struct world w = world_open(&small_model, DTYPE_F32, DTYPE_F32);
    struct owners many;
    struct shard_store params = {.store = STORE_PARAMS, .whole = w.params};
    struct shard_store grads = {.store = STORE_GRADS, .whole = w.grads};
    owners_open(&many, &w, 5, &adamw, NULL);
    for (int r = 0; r < 5; r++) {
        struct visits visits = {0};
        struct optimizer_update u = update_of(&params, &grads, 1, 1);
        u.before_layer = before_layer;
        u.on_layer = after_layer;
        u.context = &visits;
        assert_ok(optimizer_step(&many.opts[r], &u, &err), err);
        assert_int_equal(visits.next, 2 * many.maps[r].table->n_layers);
    }
    owners_close(&many);
    world_close(&w);
}

static bool has_finite_norm(struct owners *o, const struct world *w)
{
    return isfinite(owners_norm(o, w));
}

static void test_optimizer__a_gradient_that_is_not_finite_shows_in_the_norm(void **state)
{
    (void)state;
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    for (size_t t = 0; t < ARRAY_LEN(types); t++)
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
            struct world w = world_open(&small_model, types[t][0], types[t][1]);
            const struct param *row = find_param(&w.table, "layers.0.attn.qkv.weight");
            enum dtype dtype = row->in[STORE_GRADS].dtype;
            struct owners many;
            owners_open(&many, &w, 3, &adamw, NULL);
            assert_true(has_finite_norm(&many, &w));
            dtype_store(w.grads + row->in[STORE_GRADS].at +
                            1234 * (int64_t)dtype_bytes(dtype),
                        &bad[i], dtype, 1);
            assert_false(has_finite_norm(&many, &w));
            owners_close(&many);
            world_close(&w);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimizer__owners_do_not_change_a_bit),
        cmocka_unit_test(test_optimizer__owned_storages_give_the_bits_of_whole_ones),
        cmocka_unit_test_setup_teardown(
            test_optimizer__state_on_disk_gives_the_bits_of_memory, make_disk_directory,
            remove_directory),
        cmocka_unit_test(test_optimizer__says_what_it_keeps_in_memory_and_on_disk),
        cmocka_unit_test(test_optimizer__adamw_and_adam_are_what_the_formulas_say),
        cmocka_unit_test(
            test_optimizer__16_bit_parameters_are_the_rounded_master_weights),
        cmocka_unit_test(test_optimizer__tells_of_every_layer_in_order),
        cmocka_unit_test(test_optimizer__a_gradient_that_is_not_finite_shows_in_the_norm),
    };
    kernels_set_threads(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
