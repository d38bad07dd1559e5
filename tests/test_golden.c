/*
 * The whole model against an independent double-precision computation in PyTorch: loss,
 * every gradient, ten AdamW steps. tests/golden/gpt_tiny.json is made by
 * tests/interop/make_golden.py.
 */
#include "golden.h"
#include "model_fixture.h"

#include "optim/lr.h"
#include "optim/optimizer.h"

struct fixture {
    struct golden g;
    struct model model;
    struct gpt *gpt; // the model's
    struct optimizer opt;
    struct config cfg;
    int32_t *tokens, *targets;
    float *mask;
    double *loss_sums;
};

static struct config config_of(const struct golden *g)
{
    return (struct config){
        .model = {.vocab_size = g->V,
                  .hidden_size = g->H,
                  .num_layers = g->L,
                  .num_attention_heads = g->A,
                  .ffn_hidden_size = g->F,
                  .norm_epsilon = 1e-5,
                  .max_position_embeddings = g->P},
        .optimizer = {.weight_decay = golden_number(g, "optimizer", "weight_decay"),
                      .adam_beta1 = golden_number(g, "optimizer", "adam_beta1"),
                      .adam_beta2 = golden_number(g, "optimizer", "adam_beta2"),
                      .adam_epsilon = golden_number(g, "optimizer", "adam_epsilon"),
                      .grad_clip = golden_number(g, "optimizer", "grad_clip"),
                      .lr = {.decay_steps = (int64_t)golden_lr(g, "decay_steps"),
                             .warmup_rate = golden_lr(g, "warmup_rate"),
                             .max_lr = golden_lr(g, "max_lr"),
                             .min_lr = golden_lr(g, "min_lr")}},
        .dataset = {.max_seq_len = g->S},
        .seed = 1,
    };
}

/* The model and the optimizer of golden_adam_loss(). */
static void set_adam(struct config *cfg, const struct golden *g)
{
    cfg->model.activation = MODEL_GELU;
    cfg->model.norm_epsilon = golden_number(g, "adam", "norm_epsilon");
    cfg->optimizer.name = OPTIMIZER_ADAM;
    cfg->optimizer.decay = DECAYED_ALL;
    cfg->optimizer.weight_decay = golden_number(g, "adam", "weight_decay");
    cfg->optimizer.grad_clip = 0;
}

/* For micro-batches of M samples; 0: all at once. */
static void setup(struct fixture *f, int64_t M, bool is_adam)
{
    struct error err;
    golden_load(&f->g);
    const struct golden *g = &f->g;
    f->cfg = config_of(g);
    if (is_adam)
        set_adam(&f->cfg, g);
    if (M == 0)
        M = g->B;
    struct model *m = &f->model;
    assert_ok(model_prepare(m, &f->cfg, M, g->B / M, LAYOUT_TRAIN, &err), err);
    assert_ok(model_start(m, 0.02, &err), err);
    f->gpt = &m->runner.gpt;
    struct optimizer_options opt = {
        .map = &m->layout.map, .dev = f->gpt->dev, .cfg = f->cfg.optimizer};
    assert_ok(optimizer_open(&f->opt, &opt, &err), err);
    assert_int_equal(f->gpt->params.table->n_params, g->n_params);
    for (int64_t i = 0; i < g->n_params; i++) {
        const struct param *row = &f->gpt->params.table->params[i];
        int64_t number = golden_find(g, row->name);
        size_t bytes = (size_t)row->n_elements * sizeof(float);
        float *x = malloc(bytes);
        assert_non_null(x);
        bool is_scaled = is_adam && strstr(row->name, ".mlp.fc.weight");
        float scale = is_scaled ? (float)golden_number(g, "adam", "fc_scale") : 1.0F;
        for (int64_t j = 0; j < row->n_elements; j++)
            x[j] = scale * golden_value(g, number, j);
        device_copy(f->gpt->s,
                    (float *)f->gpt->params.storage[STORE_PARAMS] + row->offset, x, bytes,
                    COPY_TO_DEVICE);
        free(x);
    }
    size_t N = (size_t)(g->B * g->S);
    f->tokens = malloc(N * sizeof *f->tokens);
    f->targets = malloc(N * sizeof *f->targets);
    f->mask = malloc(N * sizeof *f->mask);
    f->loss_sums = malloc((size_t)g->B * sizeof *f->loss_sums);
}

static void teardown(struct fixture *f)
{
    free(f->tokens);
    free(f->targets);
    free(f->mask);
    free(f->loss_sums);
    optimizer_close(&f->opt);
    model_close(&f->model);
    golden_release(&f->g);
}

/* Losses and gradients of one golden step. */
static double run_step(struct fixture *f, int64_t step)
{
    const struct golden *g = &f->g;
    int64_t N = g->B * g->S;
    for (int64_t n = 0; n < N; n++) {
        int64_t at = n / g->S * (g->S + 1) + n % g->S;
        f->tokens[n] = (int32_t)golden_token(g, step, at);
        f->targets[n] = (int32_t)golden_token(g, step, at + 1);
        f->mask[n] = 1.0F;
    }
    double sum = 0;
    struct error err;
    struct batch batch = {.B = g->B,
                          .S = g->S,
                          .tokens = f->tokens,
                          .targets = f->targets,
                          .loss_mask = f->mask,
                          .loss_weight = 1.0F / (float)N,
                          .loss_sums = f->loss_sums,
                          .step = step};
    assert_ok(runner_train(&f->model.runner, &batch, &err), err);
    assert_ok(runner_finish_grads(&f->model.runner, &err), err);
    for (int64_t b = 0; b < g->B; b++)
        sum += f->loss_sums[b];
    return sum / (double)N;
}

static void check_row(const struct fixture *f, int64_t i, enum param_store store,
                      const char *what)
{
    const struct param *row = &f->gpt->params.table->params[i];
    const float *tensor = (float *)f->gpt->params.storage[store] + row->offset;
    float *x = tensor_copy(f->gpt, tensor, (size_t)row->n_elements * sizeof *x);
    golden_check(&f->g, what, golden_find(&f->g, row->name), x, 1e-5);
    free(x);
}

static void check_first_step(int64_t M)
{
    struct fixture f;
    setup(&f, M, false);
    double loss = run_step(&f, 0);
    assert_close(loss, f.g.loss, 2e-7 * f.g.loss);
    for (int64_t i = 0; i < f.g.n_params; i++) {
        check_row(&f, i, STORE_GRADS, "gradients");
    }
    teardown(&f);
}

static void test_golden__loss_and_every_gradient_are_pytorchs(void **state)
{
    (void)state;
    check_first_step(3);
}

static void test_golden__micro_batches_add_up_to_the_same_gradients(void **state)
{
    (void)state;
    check_first_step(1);
}

static void test_golden__ten_adamw_steps_are_pytorchs(void **state)
{
    (void)state;
    struct fixture f;
    struct error err;
    setup(&f, 0, false);
    struct zero *zero = &f.model.runner.zero;
    for (int64_t step = 0; step < f.g.n_steps; step++) {
        struct golden_step want = golden_step(&f.g, step);
        double loss = run_step(&f, step);
        double norm;
        assert_ok(optimizer_norm(&f.opt, &zero->grads, &norm, &err), err);
        double lr = lr_at(&f.cfg.optimizer.lr, step + 1);
        assert_close(loss, want.loss, 1e-6 * want.loss);
        assert_close(norm, want.grad_norm, 1e-5 * want.grad_norm);
        assert_close(lr, want.lr, 1e-12 * want.lr);
        struct optimizer_update update = {.params = &zero->params,
                                          .grads = &zero->grads,
                                          .lr = lr,
                                          .grad_norm = norm,
                                          .grad_scale = 1,
                                          .number = step + 1};
        assert_ok(optimizer_step(&f.opt, &update, &err), err);
    }
    for (int64_t i = 0; i < f.g.n_params; i++) {
        check_row(&f, i, STORE_PARAMS, "parameters_after");
    }
    teardown(&f);
}

static void test_golden__twenty_steps_of_adam_with_exact_gelu_are_pytorchs(void **state)
{
    (void)state;
    struct fixture f;
    struct error err;
    setup(&f, 0, true);
    struct zero *zero = &f.model.runner.zero;
    double lr = golden_number(&f.g, "adam", "lr");
    assert_int_equal(golden_n_adam(&f.g), 20);
    for (int64_t step = 0; step < golden_n_adam(&f.g); step++) {
        double want = golden_adam_loss(&f.g, step);
        assert_close(run_step(&f, step), want, 1e-6 * want);
        struct optimizer_update update = {.params = &zero->params,
                                          .grads = &zero->grads,
                                          .lr = lr,
                                          .grad_scale = 1,
                                          .number = step + 1};
        assert_ok(optimizer_step(&f.opt, &update, &err), err);
    }
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden__loss_and_every_gradient_are_pytorchs),
        cmocka_unit_test(test_golden__micro_batches_add_up_to_the_same_gradients),
        cmocka_unit_test(test_golden__ten_adamw_steps_are_pytorchs),
        cmocka_unit_test(test_golden__twenty_steps_of_adam_with_exact_gelu_are_pytorchs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
