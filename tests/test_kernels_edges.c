/*
 * What the table of cases cannot say: extreme values, kernels that must agree with one
 * another bit by bit, and facts that hold whatever the numbers.
 */
#include "kernel_test.h"

static bool is_reference(const struct kernels *k)
{
    return strcmp(k->name, "ref") == 0;
}

/* -- twins that must agree bit by bit ------------------------------------------------ */

/* y (N, C) = x (N, I) w^T with w (C, I), as a linear layer has it. */
static struct gemm linear_of(float *c, const float *x, const float *w, int64_t N,
                             int64_t C, int64_t I)
{
    return (struct gemm){.m = N,
                         .n = C,
                         .k = I,
                         .a = x,
                         .a_row = I,
                         .a_col = 1,
                         .b = w,
                         .b_row = 1,
                         .b_col = I,
                         .c = c,
                         .c_row = C,
                         .c_col = 1};
}

static void check_linear(const struct kernels *k, enum activation act, int64_t N,
                         int64_t C, int64_t I)
{
    float *x = floats_new_bell(N * I, 1), *w = floats_new_bell(C * I, 2);
    float *b = floats_new_bell(C, 3), *want = floats_new_set(N * C, NAN);
    float *c = floats_new_set(N * C, NAN), *y = floats_new_set(N * C, NAN);
    struct weight weight = {.data = w, .rows = C, .cols = I};
    struct linear l = {.w = &weight,
                       .x = x,
                       .y = c,
                       .bias = b,
                       .act = act,
                       .act_y = y,
                       .is_fused = true,
                       .N = N};
    struct gemm apart = linear_of(want, x, w, N, C, I);
    k->gemm(stream_of(k), &apart);
    k->linear_fwd(stream_of(k), &l);
    assert_same_floats(c, want, N * C, "the product of a linear with an activation");
    gelu_fwd(k, act, c, want, b, N, C);
    assert_same_floats(y, c, N * C, "linear with an activation");
    l.act = ACTIVATION_NONE;
    k->linear_fwd(stream_of(k), &l);
    for (int64_t i = 0; i < N * C; i++)
        want[i] += b[i % C];
    if (!is_reference(k)) // which adds in double
        assert_same_floats(c, want, N * C, "linear with a bias");
    float *all[] = {x, w, b, want, c, y};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
}

static void check_linear_twins(const struct kernels *k)
{
    static const int64_t shapes[][3] = {
        {1, 1, 1}, {5, 17, 33}, {64, 40, 300}, {1025, 19, 21}, {2300, 16, 7}};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        check_linear(k, i % 2 ? ACTIVATION_GELU_TANH : ACTIVATION_GELU, shapes[i][0],
                     shapes[i][1], shapes[i][2]);
}

static void test_linear__fused_has_the_bits_of_product_and_pass(void **state)
{
    (void)state;
    for_each_table(check_linear_twins);
}

static const int64_t twin_columns[] = {1, 3, 7, 16, 17, 127, 129, 768, 1000};

/* Rows of +-1 have variance 1. */
static void check_layernorm_epsilon(const struct kernels *k)
{
    static const float epsilons[] = {1e-12F, 1e-5F, 0.5F, 1};
    enum { C = 18 };
    float x[C], y[C], g[C], b[C], mean, rstd;
    floats_set(g, C, 1);
    floats_set(b, C, 0);
    for (int i = 0; i < C; i++)
        x[i] = i % 2 ? 1 : -1;
    for (size_t e = 0; e < ARRAY_LEN(epsilons); e++) {
        struct layernorm ln = {y, &mean, &rstd, x, g, b, 1, C, epsilons[e]};
        k->layernorm_fwd(stream_of(k), &ln);
        double want = 1 / sqrt(1 + (double)epsilons[e]);
        assert_close(rstd, want, 2e-7);
        for (int i = 0; i < C; i++)
            assert_close(y[i], want * (double)x[i], 2e-7);
    }
}

static void test_layernorm__adds_epsilon_to_the_variance(void **state)
{
    (void)state;
    for_each_table(check_layernorm_epsilon);
}

static void check_layernorm_twins(const struct kernels *k)
{
    enum { N = 5 };
    for (size_t i = 0; i < ARRAY_LEN(twin_columns); i++) {
        int64_t C = twin_columns[i];
        float *x = floats_new_bell(N * C, 1);
        float *g = floats_new_bell(C, 2), *b = floats_new_bell(C, 3);
        float *y = floats_new_set(N * C, NAN), *again = floats_new_set(N * C, NAN);
        float mean[N], rstd[N];
        layernorm_fwd(k, y, mean, rstd, x, g, b, N, C);
        layernorm_again(k, again, x, mean, rstd, g, b, N, C);
        assert_same_floats(again, y, N * C, "layernorm_again's y");
        float *all[] = {x, g, b, y, again};
        for (size_t f = 0; f < ARRAY_LEN(all); f++)
            free(all[f]);
    }
}

static void test_layernorm__again_gives_the_bits_of_forward(void **state)
{
    (void)state;
    for_each_table(check_layernorm_twins);
}

/* -- layer norm ---------------------------------------------------------------------- */

enum { WIDTH = 768 };

/* A constant row has variance 0: rstd is 1/sqrt(1e-5) and y is the bias, but for what
 * the rounding of the mean leaves, magnified by rstd. */
static void check_constant_rows(const struct kernels *k)
{
    static const float values[] = {0, 1, -3.3F, 1e-20F, 1000.1F};
    float *x = words_new(WIDTH), *y = words_new(WIDTH);
    float *g = floats_new_bell(WIDTH, 1), *b = floats_new_bell(WIDTH, 2);
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        float mean, rstd;
        double slack = 1e-6 * fabs((double)values[i]);
        floats_set(x, WIDTH, values[i]);
        layernorm_fwd(k, y, &mean, &rstd, x, g, b, 1, WIDTH);
        assert_close(mean, values[i], slack);
        assert_close(rstd, 316.227766, 1e-4 + 0.5 * 3.2e7 * slack * slack);
        for (int c = 0; c < WIDTH; c++)
            assert_close(y[c], b[c], 1e-7 + 317 * slack * fabs((double)g[c]));
    }
    free(x);
    free(y);
    free(g);
    free(b);
}

static void test_layernorm__constant_row_gives_the_bias(void **state)
{
    (void)state;
    for_each_table(check_constant_rows);
}

/* The variance is taken about the mean, so a large mean does not drown it. */
static void check_large_mean(const struct kernels *k)
{
    float *x = floats_new_bell(WIDTH, 4), *y = words_new(WIDTH);
    float *ones = floats_new_set(WIDTH, 1), *none = floats_new_set(WIDTH, 0);
    float mean, rstd, plain_rstd;
    layernorm_fwd(k, y, &mean, &plain_rstd, x, ones, none, 1, WIDTH);
    for (int c = 0; c < WIDTH; c++)
        x[c] += 4096;
    layernorm_fwd(k, y, &mean, &rstd, x, ones, none, 1, WIDTH);
    // adding 4096 rounds x itself to multiples of 2^-11
    assert_close(rstd, plain_rstd, 1e-4);
    free(x);
    free(y);
    free(ones);
    free(none);
}

static void test_layernorm__large_mean_leaves_the_variance(void **state)
{
    (void)state;
    for_each_table(check_large_mean);
}

/* -- cross-entropy ------------------------------------------------------------------- */

/* One logit 1e4 above the others: probability 1 there, 0 elsewhere, nothing infinite. */
static void check_spread_logits(const struct kernels *k)
{
    enum { V = 1000, TOP = 700 };
    static const int32_t targets[] = {TOP, 3};
    float *logits = floats_new_bell(2 * V, 6);
    float max[2], sum[2], target[2], weight[2] = {1, 0.5F};
    for (int r = 0; r < 2; r++) {
        for (int c = 0; c < V; c++)
            logits[r * V + c] -= 5000;
        logits[r * V + TOP] = 5000;
    }
    xent_max(k, max, logits, 2, V);
    xent_exp(k, sum, target, logits, max, targets, 2, V);
    xent_grad(k, logits, sum, targets, weight, 2, V);
    assert_true(max[0] == 5000 && sum[0] == 1 && sum[1] == 1 && target[0] == 0);
    assert_close(target[1], -10000, 4);
    for (int c = 0; c < V; c++) {
        assert_true(logits[c] == 0);
        assert_true(logits[V + c] == (c == TOP ? 0.5F : c == 3 ? -0.5F : 0));
    }
    free(logits);
}

static void test_xent__spread_of_1e4_gives_exact_zeros_and_ones(void **state)
{
    (void)state;
    for_each_table(check_spread_logits);
}

/* The vocabulary cut in two, as over two processes: maxima and sums combined between the
 * passes give the gradient of the whole. */
static void check_split_vocabulary(const struct kernels *k)
{
    enum { V = 100, CUT = 37 };
    static const int32_t targets[] = {5, 5, 99};
    for (size_t r = 0; r < ARRAY_LEN(targets); r++) {
        float *whole = floats_new_bell(V, 10 + r), *parts = words_new(V);
        float max[3], sum[3], target[3], weight = 0.7F;
        int32_t second_target = targets[r] - CUT;
        memcpy(parts, whole, V * sizeof *parts);
        xent_max(k, &max[0], whole, 1, V);
        xent_max(k, &max[1], parts, 1, CUT);
        xent_max(k, &max[2], parts + CUT, 1, V - CUT);
        assert_true(max[0] == fmaxf(max[1], max[2]));
        xent_exp(k, &sum[0], &target[0], whole, &max[0], &targets[r], 1, V);
        xent_exp(k, &sum[1], &target[1], parts, &max[0], &targets[r], 1, CUT);
        xent_exp(k, &sum[2], &target[2], parts + CUT, &max[0], &second_target, 1,
                 V - CUT);
        assert_close(sum[0], sum[1] + sum[2], 1e-6 * (double)sum[0]);
        assert_true(target[0] == target[1] + target[2]);
        xent_grad(k, whole, &sum[0], &targets[r], &weight, 1, V);
        xent_grad(k, parts, &sum[0], &targets[r], &weight, 1, CUT);
        xent_grad(k, parts + CUT, &sum[0], &second_target, &weight, 1, V - CUT);
        assert_same_floats(parts, whole, V, "gradient of a cut row");
        free(whole);
        free(parts);
    }
}

static void test_xent__parts_of_a_row_combine_to_the_whole(void **state)
{
    (void)state;
    for_each_table(check_split_vocabulary);
}

/* The first column of the maximum; none where the maximum is another part's. */
static void check_top(const struct kernels *k)
{
    float logits[] = {1, 7, 7, -2, 5, 5, -3, -3, -3, 2, 2, NAN};
    float max[] = {7, 6, -3, 2};
    int32_t column[4];
    k->xent_top(stream_of(k),
                &(struct xent){
                    .column = column, .logits = logits, .row_max = max, .R = 4, .V = 3});
    assert_true(column[0] == 1 && column[1] == -1 && column[2] == 0 && column[3] == 0);
}

static void test_xent_top__is_the_first_of_equal_ones(void **state)
{
    (void)state;
    for_each_table(check_top);
}

/* -- attention ----------------------------------------------------------------------- */

enum { L = 150, HEADS = 2, SIZE = 16, HIDDEN = HEADS * SIZE };

struct attention_run {
    struct attention at;
    float *qkv, *out, *lse;
};

static struct attention_run attention_open(uint64_t seed)
{
    struct attention_run run = {.qkv = floats_new_bell(L * 3 * HIDDEN, seed),
                                .out = floats_new_set(L * HIDDEN, NAN),
                                .lse = floats_new_set(HEADS * L, NAN)};
    run.at = (struct attention){.B = 1,
                                .S = L,
                                .A = HEADS,
                                .D = SIZE,
                                .out = run.out,
                                .lse = run.lse,
                                .drop = dropout_none()};
    return run;
}

static void attention_close(struct attention_run *run)
{
    free(run->qkv);
    free(run->out);
    free(run->lse);
}

/* Later tokens, however large, leave no bit of earlier rows changed. */
static void check_causality(const struct kernels *k)
{
    enum { CHANGED = 70 };
    struct attention_run run = attention_open(1), other = attention_open(1);
    for (int64_t i = CHANGED * 3 * HIDDEN; i < L * 3 * HIDDEN; i++)
        other.qkv[i] *= -20;
    attention_fwd(k, run.at, run.qkv);
    attention_fwd(k, other.at, other.qkv);
    assert_same_floats(other.out, run.out, CHANGED * HIDDEN, "rows before the change");
    assert_same_floats(other.lse, run.lse, CHANGED, "lse before the change");
    assert_true(other.out[CHANGED * HIDDEN] != run.out[CHANGED * HIDDEN]);
    attention_close(&run);
    attention_close(&other);
}

static void test_attention__later_tokens_do_not_change_earlier_rows(void **state)
{
    (void)state;
    for_each_table(check_causality);
}

/* q = 0 makes all visible keys equal: lse is the logarithm of their number. */
static void check_equal_scores(const struct kernels *k)
{
    struct attention_run run = attention_open(2);
    for (int64_t s = 0; s < L; s++)
        floats_set(run.qkv + s * 3 * HIDDEN, HIDDEN, 0);
    attention_fwd(k, run.at, run.qkv);
    double sum = 0;
    for (int64_t q = 0; q < L; q++) {
        sum += (double)run.qkv[q * 3 * HIDDEN + 2 * HIDDEN];
        assert_close(run.out[q * HIDDEN], sum / (double)(q + 1), 1e-6);
        assert_close(run.lse[q], log((double)(q + 1)), 1e-6);
    }
    attention_close(&run);
}

static void test_attention__equal_scores_give_the_mean_of_the_values(void **state)
{
    (void)state;
    for_each_table(check_equal_scores);
}

/* Scores of thousands: key 80 wins for every query that sees it, key 0 before that. */
static void check_huge_scores(const struct kernels *k)
{
    struct attention_run run = attention_open(3);
    for (int64_t s = 0; s < L; s++) {
        float *row = run.qkv + s * 3 * HIDDEN;
        floats_set(row, HIDDEN, 50);
        floats_set(row + HIDDEN, HIDDEN, s == 80 ? 60 : s == 0 ? 10 : -60);
    }
    attention_fwd(k, run.at, run.qkv);
    for (int64_t q = 0; q < L; q++) {
        const float *v = run.qkv + (q < 80 ? 0 : 80) * 3 * HIDDEN + 2 * HIDDEN;
        for (int64_t c = 0; c < HIDDEN; c++)
            assert_close(run.out[q * HIDDEN + c], v[c], 1e-6);
        assert_close(run.lse[q], q < 80 ? 2000 : 12000, 1e-2);
    }
    attention_close(&run);
}

static void test_attention__huge_scores_pick_one_value(void **state)
{
    (void)state;
    for_each_table(check_huge_scores);
}

static void check_decode(const struct kernels *k)
{
    struct attention_run run = attention_open(4);
    attention_fwd(k, run.at, run.qkv);
    static const int64_t rows[] = {0, 1, 63, 127, 128, L - 1};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int64_t n_keys = rows[i] + 1;
        float out[HIDDEN], *scores = words_new(HEADS * n_keys);
        k->attention_decode(
            stream_of(k), &(struct attention_decode){.out = out,
                                                     .q = run.qkv + rows[i] * 3 * HIDDEN,
                                                     .keys = run.qkv + HIDDEN,
                                                     .values = run.qkv + 2 * HIDDEN,
                                                     .kv_row = 3 * HIDDEN,
                                                     .scores = scores,
                                                     .n_keys = n_keys,
                                                     .A = HEADS,
                                                     .A_kv = HEADS,
                                                     .D = SIZE});
        for (int64_t c = 0; c < HIDDEN; c++)
            assert_close(out[c], run.out[rows[i] * HIDDEN + c], 2e-6);
        free(scores);
    }
    attention_close(&run);
}

static void test_attention_decode__gives_the_rows_of_attention(void **state)
{
    (void)state;
    for_each_table(check_decode);
}

/* -- a NaN must reach the loss, where the run can see it ----------------------------- */

static void check_nan_survives(const struct kernels *k)
{
    enum { C = 40, BAD = 21 };
    float x[C], y[C], g[C], b[C], mean, rstd, max, sum, target;
    int32_t zero = 0;
    floats_set(x, C, 0.5F);
    floats_set(g, C, 1);
    floats_set(b, C, 0);
    x[BAD] = NAN;
    gelu_fwd(k, ACTIVATION_GELU_TANH, y, x, b, 1, C);
    gelu_fwd(k, ACTIVATION_GELU, y, x, b, 1, C);
    assert_true(isnan(y[BAD]) && isfinite(y[BAD + 1]));
    layernorm_fwd(k, y, &mean, &rstd, x, g, b, 1, C);
    assert_true(isnan(y[0]) && isnan(y[BAD]));
    xent_max(k, &max, x, 1, C);
    xent_exp(k, &sum, &target, x, &max, &zero, 1, C);
    assert_true(isnan(sum));

    struct attention_run run = attention_open(5);
    run.qkv[10 * 3 * HIDDEN + HIDDEN] = NAN; // key 10 of head 0
    attention_fwd(k, run.at, run.qkv);
    assert_true(isfinite(run.out[9 * HIDDEN]) && isnan(run.out[10 * HIDDEN]));
    assert_true(isnan(run.out[(L - 1) * HIDDEN]));
    attention_close(&run);
}

static void test_kernels__nan_is_not_lost(void **state)
{
    (void)state;
    for_each_table(check_nan_survives);
}

/* -- flat kernels -------------------------------------------------------------------- */

/* The first step from zero moments moves by lr against the sign of g, whatever its size;
 * where g is 0 only the decay acts. */
static void check_first_adamw_step(const struct kernels *k)
{
    static const float g[] = {1, -1, 1e-3F, -1e5F, 0};
    float p[] = {2, 2, 2, 2, 2}, m[5] = {0}, v[5] = {0};
    struct adamw_rule rule = {.lr = 0.1,
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .epsilon = 1e-8,
                              .decay = 0.01,
                              .bias1 = 0.1,
                              .bias2 = 0.05,
                              .grad_scale = 1};
    k->adamw(
        stream_of(k),
        &(struct adamw){
            .rule = rule, .master = p, .grad = g, .exp_avg = m, .exp_avg_sq = v, .n = 5});
    for (int i = 0; i < 5; i++) {
        double sign = g[i] > 0 ? 1 : g[i] < 0 ? -1 : 0;
        assert_close(p[i], 2 * (1 - 0.1 * 0.01) - 0.1 * sign, 2e-6);
        assert_close(m[i], 0.1 * (double)g[i], 2e-7 * fabs((double)g[i]));
    }
}

static void test_adamw__first_step_moves_by_the_rate(void **state)
{
    (void)state;
    for_each_table(check_first_adamw_step);
}

static void check_square_range(const struct kernels *k)
{
    float x[3] = {1e30F, 3e-30F, -1e30F};
    double partial = -1;
    k->sum_squares(stream_of(k), &(struct sum_squares){&partial, x, DTYPE_F32, 3});
    assert_close(partial, 2e60, 1e54);
    k->sum_squares(stream_of(k), &(struct sum_squares){&partial, x + 1, DTYPE_F32, 1});
    assert_close(partial, 9e-60, 1e-66);
}

static void test_sum_squares__neither_overflows_nor_underflows(void **state)
{
    (void)state;
    for_each_table(check_square_range);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layernorm__adds_epsilon_to_the_variance),
        cmocka_unit_test(test_linear__fused_has_the_bits_of_product_and_pass),
        cmocka_unit_test(test_layernorm__again_gives_the_bits_of_forward),
        cmocka_unit_test(test_layernorm__constant_row_gives_the_bias),
        cmocka_unit_test(test_layernorm__large_mean_leaves_the_variance),
        cmocka_unit_test(test_xent__spread_of_1e4_gives_exact_zeros_and_ones),
        cmocka_unit_test(test_xent__parts_of_a_row_combine_to_the_whole),
        cmocka_unit_test(test_xent_top__is_the_first_of_equal_ones),
        cmocka_unit_test(test_attention__later_tokens_do_not_change_earlier_rows),
        cmocka_unit_test(test_attention__equal_scores_give_the_mean_of_the_values),
        cmocka_unit_test(test_attention__huge_scores_pick_one_value),
        cmocka_unit_test(test_attention_decode__gives_the_rows_of_attention),
        cmocka_unit_test(test_kernels__nan_is_not_lost),
        cmocka_unit_test(test_adamw__first_step_moves_by_the_rate),
        cmocka_unit_test(test_sum_squares__neither_overflows_nor_underflows),
    };
    kernels_set_threads(1); // small calls on a busy machine wait long for a second
    return cmocka_run_group_tests(tests, NULL, NULL);
}
