/* Evaluation of a stream: every token scored once, the same bits however it is cut. */
#include "model_fixture.h"
#include "test.h"

#include "base/log.h"
#include "model/gpt_params.h"
#include "train/evaluation.h"

#define VOCAB 31
#define WINDOW 8
#define N_TOKENS 61

struct fixture {
    struct config cfg;
    struct model model;
    int32_t tokens[N_TOKENS];
};

static int read_tokens(void *context, int64_t first, int64_t n, int32_t *tokens,
                       struct error *err)
{
    (void)err;
    assert_true(first >= 0 && n >= 1);
    memcpy(tokens, (int32_t *)context + first, (size_t)n * sizeof *tokens);
    return 0;
}

/* For micro-batches of B windows, n_micro of them a pass. */
static void open_gpt(struct fixture *f, int64_t B, int64_t n_micro)
{
    struct model *m = &f->model;
    struct error err;
    model_close(m);
    assert_ok(model_prepare(m, &f->cfg, B, n_micro, LAYOUT_EVALUATE, &err), err);
    assert_ok(model_start(m, 0.5, &err), err);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->cfg.model = (struct config_model){.vocab_size = VOCAB,
                                         .hidden_size = 16,
                                         .num_layers = 2,
                                         .num_attention_heads = 2,
                                         .ffn_hidden_size = 24,
                                         .norm_epsilon = 1e-5,
                                         .max_position_embeddings = 12};
    f->cfg.dataset.max_seq_len = WINDOW;
    f->cfg.seed = 5;
    kernels_set_threads(1);
    log_set_level(LOG_ERROR);
    for (int i = 0; i < N_TOKENS; i++)
        f->tokens[i] = (i * i * 3 + i) % VOCAB;
    open_gpt(f, 3, 1);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    model_close(&f->model);
    free(f);
    return 0;
}

static struct eval_stream stream_of(struct fixture *f, int64_t n)
{
    return (struct eval_stream){"tokens", n, read_tokens, f->tokens};
}

static double loss_of(struct fixture *f, int64_t n, int64_t stride)
{
    struct eval_stream stream = stream_of(f, n);
    struct eval_result r;
    struct error err;
    assert_ok(offline_eval(&r, &f->model.runner, VOCAB, stride, &stream, &err), err);
    assert_int_equal(r.n_scored, n - 1);
    assert_int_equal(r.n_windows, offline_eval_windows(n, WINDOW, stride));
    return r.loss;
}

static void forward(struct fixture *f, const struct batch *batch)
{
    struct error err;
    assert_ok(runner_forward(&f->model.runner, batch, &err), err);
}

/* -lnP of token `at` after the tokens from `first` on. */
static double loss_at(struct fixture *f, int64_t first, int64_t at)
{
    int64_t n = at - first;
    float mask[WINDOW] = {0};
    double sum;
    mask[n - 1] = 1.0F;
    struct batch batch = {.B = 1,
                          .S = n,
                          .tokens = f->tokens + first,
                          .targets = f->tokens + first + 1,
                          .loss_mask = mask,
                          .loss_sums = &sum};
    forward(f, &batch);
    return sum;
}

static void test_eval__is_the_mean_over_tokens_with_their_context(void **state)
{
    struct fixture *f = *state;
    static const int64_t strides[] = {1, 3, 7, WINDOW};
    static const int64_t lengths[] = {
        2, 5, WINDOW, WINDOW + 1, WINDOW + 2, 2 * WINDOW + 1, 30, N_TOKENS};
    for (size_t i = 0; i < ARRAY_LEN(strides); i++)
        for (size_t j = 0; j < ARRAY_LEN(lengths); j++) {
            int64_t n = lengths[j], stride = strides[i];
            double sum = 0;
            for (int64_t at = 1; at < n; at++) { // the first window that has the target
                int64_t over = at - WINDOW;
                int64_t w = over > 0 ? (over + stride - 1) / stride : 0;
                sum += loss_at(f, w * stride, at);
            }
            assert_close(loss_of(f, n, stride), sum / (double)(n - 1), 2e-6);
        }
}

static void test_eval__same_bits_for_any_batch_size(void **state)
{
    struct fixture *f = *state;
    double first = loss_of(f, N_TOKENS, 3);
    static const int64_t sizes[] = {1, 2, 5, 40};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        for (int64_t n_micro = 1; n_micro <= 3; n_micro++) {
            open_gpt(f, sizes[i], n_micro);
            assert_true(loss_of(f, N_TOKENS, 3) == first);
        }
}

static void test_eval__refuses_foreign_tokens_and_too_few(void **state)
{
    struct fixture *f = *state;
    struct eval_stream stream = stream_of(f, N_TOKENS), one = stream_of(f, 1);
    struct eval_result r;
    struct error err;
    assert_int_equal(offline_eval(&r, &f->model.runner, VOCAB, WINDOW, &one, &err), -1);
    assert_non_null(strstr(err.text, "at least two"));
    f->tokens[40] = VOCAB;
    assert_int_equal(offline_eval(&r, &f->model.runner, VOCAB, WINDOW, &stream, &err),
                     -1);
    assert_non_null(strstr(err.text, "token 40 is 31"));
    f->tokens[40] = -1;
    assert_int_equal(offline_eval(&r, &f->model.runner, VOCAB, WINDOW, &stream, &err),
                     -1);
    assert_non_null(strstr(err.text, "token 40 is -1"));
}

static void test_eval__a_model_without_numbers_is_an_error(void **state)
{
    struct fixture *f = *state;
    struct eval_stream stream = stream_of(f, N_TOKENS);
    struct eval_result r;
    struct error err;
    ((float *)f->model.runner.gpt.params.storage[STORE_PARAMS])[0] = NAN;
    f->tokens[0] = 0; // whose embedding that is
    assert_int_equal(offline_eval(&r, &f->model.runner, VOCAB, WINDOW, &stream, &err),
                     -1);
    assert_non_null(strstr(err.text, "gives no numbers"));
}

/* -- the likeliest token ------------------------------------------------------------- */

/* likeliest[s] after the first window's tokens, for all s but `skipped`. */
static void find_likeliest(struct fixture *f, int64_t skipped, int32_t *likeliest)
{
    float mask[WINDOW];
    double sum;
    for (int64_t s = 0; s < WINDOW; s++)
        mask[s] = s == skipped ? 0.0F : 1.0F;
    struct batch batch = {.B = 1,
                          .S = WINDOW,
                          .tokens = f->tokens,
                          .targets = f->tokens + 1,
                          .loss_mask = mask,
                          .loss_sums = &sum,
                          .likeliest = likeliest};
    forward(f, &batch);
}

/* -lnP of `id` after token s of the first window. */
static double loss_of_id(struct fixture *f, int64_t s, int32_t id)
{
    int32_t targets[WINDOW] = {0};
    float mask[WINDOW] = {0};
    double sum;
    targets[s] = id;
    mask[s] = 1.0F;
    struct batch batch = {.B = 1,
                          .S = WINDOW,
                          .tokens = f->tokens,
                          .targets = targets,
                          .loss_mask = mask,
                          .loss_sums = &sum};
    forward(f, &batch);
    return sum;
}

static void test_likeliest__has_the_smallest_loss(void **state)
{
    struct fixture *f = *state;
    int32_t likeliest[WINDOW] = {[2] = 77};
    find_likeliest(f, 2, likeliest);
    assert_int_equal(likeliest[2], 77); // does not count: left alone
    for (int64_t s = 0; s < WINDOW; s++) {
        double least = loss_of_id(f, s, s == 2 ? 0 : likeliest[s]);
        for (int32_t id = 0; id < VOCAB && s != 2; id++)
            assert_true(loss_of_id(f, s, id) >= least);
    }
}

static void test_likeliest__is_the_lowest_of_equal_ones(void **state)
{
    struct fixture *f = *state;
    const int32_t low = 5, high = 9, last = WINDOW - 1; // ids that the window has not
    int64_t H = f->model.runner.gpt.dims.H;
    float *wte = f->model.runner.gpt.params.weights[STORE_PARAMS][GPT_WORD_WEIGHT].data;
    int32_t likeliest[WINDOW];
    find_likeliest(f, -1, likeliest);
    for (int64_t c = 0; c < H; c++)
        wte[high * H + c] = 2 * wte[likeliest[last] * H + c];
    find_likeliest(f, -1, likeliest);
    assert_int_equal(likeliest[last], high);
    memcpy(wte + low * H, wte + high * H, (size_t)H * sizeof *wte);
    find_likeliest(f, -1, likeliest);
    assert_int_equal(likeliest[last], low);
}

/* -- words --------------------------------------------------------------------------- */

static void test_cloze__last_word_and_what_stands_before(void **state)
{
    (void)state;
    static const struct {
        const char *text, *context, *word; // context NULL: there is none
    } cases[] = {
        {"one two three", "one two", "three"},
        {"  one two\t\nthree \n", "one two", "three"},
        {"a b", "a", "b"},
        {"word", NULL, NULL},
        {" word ", NULL, NULL},
        {"", NULL, NULL},
        {" \n ", NULL, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *text = cases[i].text;
        size_t c, n_c, w, n_w;
        bool is_there = cloze_split(text, strlen(text), &c, &n_c, &w, &n_w);
        assert_int_equal(is_there, cases[i].context != NULL);
        if (!is_there)
            continue;
        assert_int_equal(n_c, strlen(cases[i].context));
        assert_memory_equal(text + c, cases[i].context, n_c);
        assert_int_equal(n_w, strlen(cases[i].word));
        assert_memory_equal(text + w, cases[i].word, n_w);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_eval__is_the_mean_over_tokens_with_their_context),
        TEST(test_eval__same_bits_for_any_batch_size),
        TEST(test_eval__refuses_foreign_tokens_and_too_few),
        TEST(test_eval__a_model_without_numbers_is_an_error),
        TEST(test_likeliest__has_the_smallest_loss),
        TEST(test_likeliest__is_the_lowest_of_equal_ones),
        TEST(test_cloze__last_word_and_what_stands_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
