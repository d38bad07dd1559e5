/*
 * What is proposed when a run does not fit: changes that the configuration accepts, that
 * do fit, that are not made already, at most three, the cheapest first.
 */
#include "base/log.h"
#include "train/fit.h"

#include "test.h"

#include <math.h>

#define MOST_WORDS 32

/* The configuration that the "-o KEY=VALUE" of a text give, the defaults under them. */
static struct config load(const char *words, const char *more)
{
    struct config cfg;
    struct error err;
    char text[2048], *all[MOST_WORDS], *saved;
    int n = 0;
    snprintf(text, sizeof text, "%s %s", words, more);
    for (char *w = strtok_r(text, " ", &saved); w; w = strtok_r(NULL, " ", &saved))
        if (strcmp(w, "-o") != 0)
            all[n++] = w;
    assert_ok(config_load(&cfg, NULL, all, n, &err), err);
    return cfg;
}

static double needed_by(const struct config *cfg, int n_local)
{
    struct plan_memory mem;
    struct error err;
    int rank;
    assert_ok(fit_fullest(&mem, &rank, cfg, NULL, &err), err);
    return fit_needed(&mem, n_local);
}

/* Each proposal as a user would type it: loads, and fits. Returns their number. */
static int try_all(const char *base, int n_local, double available,
                   char words[FIT_CHANGES_BYTES])
{
    struct config cfg = load(base, "");
    char copy[FIT_CHANGES_BYTES], *saved;
    int n_changes = 0;
    fit_changes(words, &cfg, NULL, n_local, available, (double)INFINITY);
    snprintf(copy, sizeof copy, "%s", words);
    for (char *c = strtok_r(copy, ";", &saved); c; c = strtok_r(NULL, ";", &saved)) {
        n_changes++;
        if (strstr(c, "machines"))
            continue;
        *strrchr(c, '(') = 0;
        struct config changed = load(base, c);
        assert_true(needed_by(&changed, n_local) <= available);
    }
    return n_changes;
}

static void test_fit__proposes_what_is_accepted_and_fits(void **state)
{
    (void)state;
    static const double parts[] = {0.9, 0.6, 0.4, 0.25, 0.1, 0.03};
    static const char base[] = "batch_size.global_batch_size=16 "
                               "batch_size.local_batch_size=16 "
                               "batch_size.micro_batch_size=16";
    char words[FIT_CHANGES_BYTES];
    struct config cfg = load(base, "");
    double needed = needed_by(&cfg, 1);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        int n = try_all(base, 1, parts[i] * needed, words);
        assert_true(n >= 1 && n <= 3);
    }
    assert_int_equal(try_all(base, 1, 0.9 * needed, words), 3);
    assert_ptr_equal(strstr(words, "-o batch_size.micro_batch_size=8"), words); // cheap
    assert_int_equal(try_all(base, 1, 1e6, words), 0); // nothing helps
    assert_string_equal(words, "");
}

static void test_fit__does_not_propose_what_is_done(void **state)
{
    (void)state;
    static const char done[] = "batch_size.global_batch_size=4 "
                               "batch_size.local_batch_size=4 "
                               "batch_size.micro_batch_size=1 "
                               "use_recompute=True "
                               "recompute_granularity=full "
                               "mix_precision.dtype=bfloat16 ";
    char words[FIT_CHANGES_BYTES];
    struct config cfg = load(done, "");
    double needed = needed_by(&cfg, 1);
    for (double part = 0.9; part > 0.2; part -= 0.1) {
        assert_true(try_all(done, 1, part * needed, words) > 0);
        assert_null(strstr(words, "recompute"));
        assert_null(strstr(words, "micro_batch"));
        assert_null(strstr(words, "bfloat16"));
    }
}

static void test_fit__shards_what_data_ranks_hold_each(void **state)
{
    (void)state;
    static const char dp[] = "Distributed.dp_degree=8 "
                             "batch_size.global_batch_size=8 "
                             "batch_size.local_batch_size=1 "
                             "batch_size.micro_batch_size=1 "
                             "use_recompute=True "
                             "mix_precision.dtype=bfloat16 ";
    char words[FIT_CHANGES_BYTES];
    struct config cfg = load(dp, "");
    double needed = needed_by(&cfg, 8);
    assert_true(try_all(dp, 8, 0.7 * needed, words) >= 2);
    assert_non_null(strstr(words, "sharding_degree=8"));
    assert_non_null(strstr(words, "machines like this one"));
}

/* Smaller micro-batches make a bfloat16 model add its gradients in float32, unless told. */
static void test_fit__knows_what_micro_batches_do_to_gradients(void **state)
{
    (void)state;
    static const char one[] = "batch_size.global_batch_size=4 "
                              "batch_size.local_batch_size=4 "
                              "batch_size.micro_batch_size=4 "
                              "use_recompute=True "
                              "mix_precision.dtype=bfloat16 ";
    static const char four[] = "batch_size.micro_batch_size=1 ";
    static const char narrow[] = "batch_size.micro_batch_size=1 "
                                 "mix_precision.fp32_grads=False ";
    char words[FIT_CHANGES_BYTES], base[512];
    struct config whole = load(one, ""), cut = load(one, four), told = load(one, narrow);
    struct plan plan;
    struct error err;
    assert_ok(plan_init(&plan, &whole, (struct grid_coord){0}, &err), err);
    double matrices = 2.0 * (double)plan.layout.table.n_elements; // about
    plan_release(&plan);
    double more = needed_by(&cut, 1) - needed_by(&told, 1);
    assert_true(more > 0.5 * matrices && more < matrices);
    snprintf(base, sizeof base, "%s%s", one, four);
    assert_true(try_all(base, 1, needed_by(&told, 1) + 1e6, words) > 0);
    assert_ptr_equal(strstr(words, "-o mix_precision.fp32_grads=False ("), words);
}

static void test_fit__fewer_layers_leave_none_to_keep(void **state)
{
    (void)state;
    static const char kept[] = "Model.num_layers=8 no_recompute_layers=[7] "
                               "use_recompute=True";
    char words[FIT_CHANGES_BYTES];
    struct config cfg = load(kept, "");
    double needed = needed_by(&cfg, 1);
    bool has_fewer = false;
    for (double part = 0.9; part > 0.02; part *= 0.7) {
        try_all(kept, 1, part * needed, words);
        has_fewer |= strstr(words, "Model.num_layers") != NULL;
    }
    assert_true(has_fewer);
}

static void test_fit__knows_the_divisors_of_great_batches(void **state)
{
    (void)state;
    static const char prime[] = "batch_size.global_batch_size=16777213 "
                                "batch_size.local_batch_size=16777213 "
                                "batch_size.micro_batch_size=16777213";
    static const char power[] = "batch_size.global_batch_size=16777216 "
                                "batch_size.local_batch_size=16777216 "
                                "batch_size.micro_batch_size=16777216";
    static const char square[] = "batch_size.global_batch_size=36 "
                                 "batch_size.local_batch_size=36 "
                                 "batch_size.micro_batch_size=9";
    char words[FIT_CHANGES_BYTES];
    struct config cfg = load(prime, "Model.num_layers=1");
    fit_changes(words, &cfg, NULL, 1, 1e11, (double)INFINITY);
    assert_string_equal(words, ""); // its only one, 1, gives too many micro-batches
    cfg = load(power, "Model.num_layers=1");
    fit_changes(words, &cfg, NULL, 1, 0.3 * needed_by(&cfg, 1), (double)INFINITY);
    assert_non_null(strstr(words, "-o batch_size.micro_batch_size=4194304 "));
    cfg = load(square, "");
    fit_changes(words, &cfg, NULL, 1, 0.99 * needed_by(&cfg, 1), (double)INFINITY);
    assert_non_null(strstr(words, "-o batch_size.micro_batch_size=6 "));
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fit__proposes_what_is_accepted_and_fits),
        cmocka_unit_test(test_fit__does_not_propose_what_is_done),
        cmocka_unit_test(test_fit__shards_what_data_ranks_hold_each),
        cmocka_unit_test(test_fit__knows_what_micro_batches_do_to_gradients),
        cmocka_unit_test(test_fit__fewer_layers_leave_none_to_keep),
        cmocka_unit_test(test_fit__knows_the_divisors_of_great_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
