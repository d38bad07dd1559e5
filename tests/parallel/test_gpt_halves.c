/*
 * Backward's two halves apart, all weight halves last, on two ranks that share the model:
 * by tensor and sequence parallelism, and by the stages of ZeRO that take gradients away
 * after each micro-batch. Gradients have the bits of both halves together.
 */
#include "parallel_test.h"

#include "model_fixture.h"

enum { M = 2, N_MICRO = 3, B = M * N_MICRO, S = 34, N = B * S, L = 3, V = 101 };

struct way { // in which two ranks share a model
    const char *name;
    int mp, dp, sharding, stage;
    bool sequence_parallel;
};

static const struct way ways[] = {
    {"mp 2, sequences cut", 2, 1, 1, 1, true},
    {"ZeRO 2", 1, 1, 2, 2, false},
    {"ZeRO 3", 1, 1, 2, 3, false},
};

static struct config config_of(const struct way *way, enum dtype dtype)
{
    return (struct config){
        .model = {.vocab_size = V,
                  .hidden_size = 40,
                  .num_layers = L,
                  .num_attention_heads = 4,
                  .ffn_hidden_size = 150,
                  .hidden_dropout_prob = 0.1,
                  .embed_drop_rate = 0.1,
                  .attention_probs_dropout_prob = 0.1,
                  .norm_epsilon = 1e-5,
                  .max_position_embeddings = S},
        .dataset = {.max_seq_len = S},
        .distributed = {.dp_degree = way->dp,
                        .mp_degree = way->mp,
                        .pp_degree = 1,
                        .virtual_pp_degree = 1,
                        .pp_schedule = SCHEDULE_F_THEN_B,
                        .sequence_parallel = way->sequence_parallel,
                        .sharding = {.sharding_degree = way->sharding,
                                     .sharding_stage = way->stage}},
        .batch_size = {.global_batch_size = (int64_t)B * way->dp * way->sharding,
                       .local_batch_size = B,
                       .micro_batch_size = M,
                       .num_micro_batches = N_MICRO},
        .mix_precision = {.dtype = dtype},
        .seed = 77,
    };
}

static void open_model(struct model *m, struct comm *world, const struct config *cfg,
                       enum gpt_recompute recompute, bool splits_backward)
{
    struct error err;
    *m = (struct model){.cfg = *cfg};
    struct grid_shape shape = layout_grid(cfg);
    assert_ok(grid_open(&m->grid, world, &shape, &err), err);
    assert_ok(layout_init(&m->layout, &m->cfg, m->grid.coord, LAYOUT_TRAIN, &err), err);
    m->layout.model.recompute = recompute;
    m->layout.model.n_stashes = N_MICRO;
    m->layout.model.splits_backward = splits_backward;
    assert_ok(model_start(m, 0.05, &err), err);
    assert_ok(zero_spread_params(&m->runner.zero, &err), err);
}

/* The world stays open: it is the group's. */
static void close_model(struct model *m)
{
    runner_close(&m->runner);
    layout_release(&m->layout);
    grid_close(&m->grid);
}

struct text {
    int32_t tokens[N], targets[N];
    float mask[N];
    double loss_sums[B];
};

/* What a data rank reads: its own. */
static struct text text_of(int data_rank)
{
    struct text t = {{0}, {0}, {0}, {0}};
    for (int n = 0; n < N; n++) {
        t.tokens[n] = (n * 31 + n / 7 + data_rank * 13) % V;
        t.targets[n] = (n * 17 + n / 5 + data_rank * 29) % V;
        t.mask[n] = n % 7 == 0 ? 0.0F : 1.0F;
    }
    return t;
}

static struct batch micro_batch(const struct model *m, struct text *t, int micro)
{
    int b = micro * M;
    return (struct batch){.B = M,
                          .S = S,
                          .tokens = t->tokens + b * S,
                          .targets = t->targets + b * S,
                          .loss_mask = t->mask + b * S,
                          .loss_weight = 1.0F / N,
                          .loss_sums = t->loss_sums + b,
                          .step = 5,
                          .first_sample = m->grid.data_rank * B + b,
                          .is_training = true,
                          .accumulate = micro > 0,
                          .is_last = micro + 1 == N_MICRO};
}

/* All forwards, then all backwards; halves apart in a model that was opened for it. */
static void train_step(struct model *m)
{
    static const enum gpt_half both[] = {GPT_BWD_BOTH},
                               apart[] = {GPT_BWD_INPUT, GPT_BWD_WEIGHT};
    struct gpt *g = &m->runner.gpt;
    struct text t = text_of(m->grid.data_rank);
    struct error err;
    zero_start_step(&m->runner.zero);
    gpt_start_step(g);
    for (int i = 0; i < N_MICRO; i++) {
        struct batch batch = micro_batch(m, &t, i);
        gpt_chunk_forward(g, 0, &batch, &g->stashes[i], NULL, NULL);
    }
    for (int h = 0; h < (g->splits_backward ? 2 : 1); h++)
        for (int i = 0; i < N_MICRO; i++) {
            struct batch batch = micro_batch(m, &t, i);
            gpt_chunk_backward(g, 0, &batch, &g->stashes[i], NULL,
                               g->splits_backward ? apart[h] : both[h]);
        }
    gpt_finish_grads(g);
    assert_ok(runner_finish_grads(&m->runner, &err), err);
}

/* The gradients that this rank owns, piece by piece; the caller frees them. */
static char *owned_grads(const struct model *m, size_t *n_bytes)
{
    const struct shard_map *map = &m->layout.map;
    char *all = calloc(1, (size_t)map->n_local_bytes[STORE_GRADS]);
    assert_non_null(all);
    *n_bytes = (size_t)map->n_local_bytes[STORE_GRADS];
    for (int64_t i = 0; i < map->n_pieces; i++) {
        const struct shard_piece *piece = &map->pieces[i];
        const struct param *row = &map->table->params[piece->row];
        size_t bytes = (size_t)piece->n * dtype_bytes(row->in[STORE_GRADS].dtype);
        void *x = tensor_copy(&m->runner.gpt,
                              shard_piece_at(map, &m->runner.zero.grads, piece), bytes);
        memcpy(all + piece->local_at[STORE_GRADS], x, bytes);
        free(x);
    }
    return all;
}

/* Two steps: what the first leaves behind is in the second one's way. */
static char *run(struct comm *world, const struct config *cfg,
                 enum gpt_recompute recompute, bool splits_backward, size_t *n_bytes)
{
    struct model m;
    open_model(&m, world, cfg, recompute, splits_backward);
    train_step(&m);
    train_step(&m);
    char *grads = owned_grads(&m, n_bytes);
    close_model(&m);
    return grads;
}

static void compare(struct comm *world, const struct way *way, enum dtype dtype,
                    enum gpt_recompute recompute)
{
    struct config cfg = config_of(way, dtype);
    size_t n, n_apart, n_zeros = 0;
    char *together = run(world, &cfg, recompute, false, &n);
    char *apart = run(world, &cfg, recompute, true, &n_apart);
    assert_int_equal(n, n_apart);
    for (size_t i = 0; i < n; i++) {
        n_zeros += together[i] == 0;
        if (together[i] != apart[i])
            fail_msg("%s, %s, recompute %d: byte %zu of %zu differs", way->name,
                     dtype_name(dtype), (int)recompute, i, n);
    }
    assert_true(n_zeros < n / 2); // of each gradient some bytes are
    free(together);
    free(apart);
}

static void test_halves__apart_give_the_bits_of_both_together(void **state)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16};
    static const enum gpt_recompute all[] = {RECOMPUTE_NOTHING, RECOMPUTE_BLOCK};
    for (size_t w = 0; w < ARRAY_LEN(ways); w++)
        for (size_t d = 0; d < ARRAY_LEN(types); d++)
            for (size_t r = 0; r < ARRAY_LEN(all); r++)
                compare(*state, &ways[w], types[d], all[r]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_halves__apart_give_the_bits_of_both_together),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
