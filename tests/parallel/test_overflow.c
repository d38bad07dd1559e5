/*
 * A gradient that overflows on one rank of several: that step is left out on all ranks,
 * that step only, and they go on with the same weights.
 *
 * The program defines the hook that the library calls when gradients are complete; there
 * it spoils one of them, and looks at the parameters, which are those that the steps so
 * far have made.
 */
#include "data_fixture.h"
#include "parallel_test.h"

#include "model/gpt_params.h"
#include "optim/lr.h"
#include "train/state.h"
#include "train/step.h"

enum { DIR_BYTES = 512 };
enum { STEPS = 6, SPOILED = 3 }; // counted from 0

static struct {      // what the hook has seen in the run that goes on
    int64_t spoiled; // step whose gradients are spoiled, or -1
    int64_t n_calls;
    uint64_t params[STEPS]; // hash of what this rank owns, before each step's update
    double scale[STEPS];
    int64_t n_skipped[STEPS], bad_steps[STEPS];
    double rate[STEPS];    // of the step before
    double largest[STEPS]; // that a parameter was moved by, in the step before
    float *last;           // parameters as they were then
} seen;

static uint64_t hash_bytes(uint64_t h, const void *data, size_t n)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 1099511628211u;
    return h;
}

/* Of all parameters and moments that this rank owns. */
static uint64_t hash_state(struct train *t)
{
    struct error err;
    uint64_t h = 1469598103934665603u;
    for (int64_t i = 0; i < t->plan.layout.map.n_pieces; i++) {
        const struct shard_piece *piece = &t->plan.layout.map.pieces[i];
        float *x = malloc((size_t)piece->n * sizeof *x);
        assert_non_null(x);
        for (int kind = 0; kind < update_rule_n_tensors(t->optimizer.rule); kind++) {
            assert_ok(state_read(t, kind, piece, 0, piece->n, x, &err), err);
            h = hash_bytes(h, x, (size_t)piece->n * sizeof *x);
        }
        free(x);
    }
    return h;
}

/* All ranks that hold the same numbers, or none of them, have the same hash. */
static void assert_equal_over(struct comm *c, uint64_t hash)
{
    struct error err;
    int64_t both[] = {(int64_t)(hash >> 1), -(int64_t)(hash >> 1)};
    assert_ok(comm_max_i64(c, both, 2, &err), err);
    assert_true(both[0] == -both[1]);
}

/* The largest change of a parameter since the last call; *last is kept for the next. */
static double largest_move(struct train *t, float **last)
{
    struct error err;
    double largest = 0;
    bool is_first = !*last;
    if (is_first)
        *last = calloc((size_t)t->plan.layout.map.n_local, sizeof **last);
    assert_non_null(*last);
    for (int64_t i = 0; i < t->plan.layout.map.n_pieces; i++) {
        const struct shard_piece *piece = &t->plan.layout.map.pieces[i];
        for (int64_t e = 0; e < piece->n; e++) {
            float x, *then = *last + piece->local + e;
            assert_ok(state_read(t, OPTIMIZER_WEIGHTS, piece, e, 1, &x, &err), err);
            largest = fmax(largest, is_first ? 0.0 : fabs((double)(x - *then)));
            *then = x;
        }
    }
    return largest;
}

/* Replaces the library's, which does nothing. */
void train_grads_hook(struct train *t)
{
    int64_t step = t->step;
    assert_true(step == seen.n_calls && step < STEPS);
    seen.n_calls++;
    seen.params[step] = hash_state(t);
    seen.scale[step] = t->scaler.scale;
    seen.n_skipped[step] = t->scaler.n_skipped;
    seen.bad_steps[step] = t->scaler.bad_steps;
    seen.rate[step] = lr_at(&t->cfg.optimizer.lr, step);
    seen.largest[step] = largest_move(t, &seen.last);
    assert_equal_over(t->grid.dp, seen.params[step]);
    bool is_here =
        t->grid.is_first_stage && t->grid.coord.mp == 1 && t->grid.data_rank == 1;
    if (step == seen.spoiled && is_here)
        ((float *)t->runner.gpt.params.weights[STORE_GRADS][GPT_WORD_WEIGHT].data)[7] =
            INFINITY;
}

/* -- a run -------------------------------------------------------------------------- */

struct place { // of the data and the results, the same on every rank
    struct comm *world;
    char dir[DIR_BYTES];
};

static int make_place(void **state)
{
    static struct place place;
    struct error err;
    void *world;
    if (open_world(&world))
        return -1;
    place.world = world;
    log_set_level(LOG_ERROR);
    if (comm_rank(world) == 0) {
        int64_t lengths[40];
        for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
            lengths[i] = 50;
        char *dir = test_make_directory();
        snprintf(place.dir, sizeof place.dir, "%s", dir);
        free(dir);
        test_write_dataset(test_path(place.dir, "words"), DATASET_MEGATRON, lengths,
                           ARRAY_LEN(lengths), 0);
    }
    *state = &place;
    return comm_bcast_bytes(world, place.dir, sizeof place.dir, 0, &err);
}

static int remove_place(void **state)
{
    struct place *place = *state;
    struct error err;
    int rc = comm_agree(place->world, 0, &err);
    if (rc == 0 && comm_rank(place->world) == 0)
        rc = fs_remove_tree(place->dir, &err);
    comm_world_close(place->world);
    return rc;
}

static void run(const struct place *place, char *const *layout, int n_layout,
                int64_t spoiled)
{
    static const char *const fixed[] = {
        "seed=5",
        "num_threads=1",
        "eval_freq=0",
        "save_load.save_steps=-1",
        "batch_size.global_batch_size=4",
        "batch_size.micro_batch_size=1",
        "dataset.split=1,0,0",
        "dataset.max_seq_len=16",
        "Model.vocab_size=257",
        "Model.hidden_size=16",
        "Model.num_layers=2",
        "Model.num_attention_heads=2",
        "Model.max_position_embeddings=16",
        "Optimizer.lr.max_lr=1e-3",
        "Optimizer.lr.decay_steps=100",
        "Optimizer.lr.warmup_rate=0.01",
        "mix_precision.use_pure_fp16=True",
    };
    enum { MAX_SETTINGS = 32 };
    char *settings[MAX_SETTINGS], steps[64], input[DIR_BYTES + 64],
        output[DIR_BYTES + 64];
    struct config cfg;
    struct error err;
    int n = 0;
    snprintf(steps, sizeof steps, "max_steps=%d", STEPS);
    snprintf(input, sizeof input, "dataset.input_dir=%s", place->dir);
    snprintf(output, sizeof output, "save_load.output_dir=%s/out", place->dir);
    settings[n++] = steps;
    settings[n++] = input;
    settings[n++] = output;
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
        settings[n++] = (char *)(uintptr_t)fixed[i];
    for (int i = 0; i < n_layout; i++)
        settings[n++] = layout[i];
    assert_ok(config_load_for(&cfg, NULL, settings, n, comm_size(place->world), &err),
              err);
    memset(&seen, 0, sizeof seen);
    seen.spoiled = spoiled;
    assert_ok(train_run(&cfg, place->world, &err), err);
    assert_int_equal(seen.n_calls, STEPS);
    free(seen.last);
}

/* Every step changes the state, but for the spoiled one. */
static void check_steps(const struct place *place)
{
    for (int64_t step = 0; step < STEPS; step++) {
        bool is_after = seen.spoiled >= 0 && step > seen.spoiled;
        if (step > 0)
            assert_int_equal(seen.params[step] == seen.params[step - 1],
                             is_after && step - 1 == seen.spoiled);
        assert_int_equal(seen.n_skipped[step], is_after);
        assert_int_equal(seen.bad_steps[step], is_after && step == seen.spoiled + 1);
        assert_close(seen.scale[step], 32768, 0); // one overflow does not halve it
        assert_equal_over(place->world, (uint64_t)seen.n_skipped[step] << 1);
    }
}

/* The lines of metrics.jsonl that hold `text`, on rank 0. */
static int count_lines(const struct place *place, const char *text)
{
    char *data, path[DIR_BYTES + 64];
    size_t n_bytes;
    struct error err;
    int n = 0;
    snprintf(path, sizeof path, "%s/out/metrics.jsonl", place->dir);
    assert_ok(fs_read_all(path, 1 << 20, &data, &n_bytes, &err), err);
    for (const char *p = data; (p = strstr(p, text)); p++)
        n++;
    free(data);
    return n;
}

static void check_layout(const struct place *place, char *const *layout, int n_layout)
{
    uint64_t clean[SPOILED + 1];
    run(place, layout, n_layout, -1);
    check_steps(place);
    memcpy(clean, seen.params, sizeof clean);
    run(place, layout, n_layout, SPOILED);
    check_steps(place);
    assert_memory_equal(clean, seen.params, sizeof clean);
    if (comm_rank(place->world) > 0)
        return;
    assert_int_equal(count_lines(place, "\"skipped\": true"), 1);
    assert_int_equal(count_lines(place, "\"step\": 4, \"epoch\": 0, \"batch\": 3, "), 1);
    assert_int_equal(count_lines(place, "\"grad_norm\": null"), 1);
    assert_int_equal(count_lines(place, "\"skipped\": false"), STEPS - 1);
}

#define LAYOUT(...)                                                                      \
    (char *[]){__VA_ARGS__}, (int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *))

static char mp2[] = "Distributed.mp_degree=2", pp2[] = "Distributed.pp_degree=2",
            sharded[] = "Distributed.sharding.sharding_degree=2",
            stage2[] = "Distributed.sharding.sharding_stage=2",
            stage3[] = "Distributed.sharding.sharding_stage=3";

static void test_overflow__on_one_rank_of_dp2_mp2_pp2_skips_that_step_on_all(void **state)
{
    check_layout(*state, LAYOUT(mp2, pp2));
}

static void test_overflow__of_a_shard_skips_that_step_on_all(void **state)
{
    check_layout(*state, LAYOUT(mp2, pp2, sharded, stage2));
    check_layout(*state, LAYOUT(mp2, pp2, sharded, stage3));
}

/* Adam's first step moves every parameter by the rate, whatever the gradient; its second
 * one, taken for the first, would move them by three quarters of it. */
static void test_overflow__a_skipped_step_is_no_step_of_the_optimizer(void **state)
{
    run(*state, LAYOUT(mp2, pp2), 0);
    check_steps(*state);
    assert_close(seen.largest[1], 0, 0);
    assert_close(seen.largest[2], seen.rate[2], 0.05 * seen.rate[2]);
    assert_true(seen.rate[2] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_overflow__on_one_rank_of_dp2_mp2_pp2_skips_that_step_on_all),
        cmocka_unit_test(test_overflow__of_a_shard_skips_that_step_on_all),
        cmocka_unit_test(test_overflow__a_skipped_step_is_no_step_of_the_optimizer),
    };
    return cmocka_run_group_tests_name("overflow", tests, make_place, remove_place);
}
