/*
 * Every kernel of every table, over the table of kernel_cases.h:
 *   - against the reference, at odd sizes;
 *   - against `generic`: the same bits;
 *   - in place, where the contract allows that: the same bits as out of place;
 *   - with 1, 2, 3 and 5 threads: the same bits;
 *   - on all samples and on some of them: a sample's bits do not depend on the others.
 *
 * An output that is to be overwritten starts as NaN, so that an element left out, or one
 * that is added to, shows; one that is to be added to starts with random numbers. Behind
 * every buffer lies a guard that must survive.
 */
#include "kernel_cases.h"

#define GUARD_BYTES 64
#define GUARD_BYTE 0xA5

/* -- sets of buffers ----------------------------------------------------------------- */

struct set { // the buffers of one call
    void *at[MAX_BUFFERS];
    size_t bytes[MAX_BUFFERS]; // 0: the case has no such buffer
};

static void set_open(struct set *set, const struct kernel_case *kc, const struct shape *s)
{
    memset(set, 0, sizeof *set);
    for (int i = 0; i < MAX_BUFFERS && kc->buffers[i].role != END; i++) {
        set->bytes[i] = (size_t)buffer_words(&kc->buffers[i], s) * 4;
        set->at[i] = words_new((int64_t)(set->bytes[i] + GUARD_BYTES) / 4);
        memset((char *)set->at[i] + set->bytes[i], GUARD_BYTE, GUARD_BYTES);
    }
}

static void set_close(struct set *set, const struct kernel_case *kc)
{
    unsigned char guard[GUARD_BYTES];
    memset(guard, GUARD_BYTE, sizeof guard);
    for (int i = 0; i < MAX_BUFFERS; i++) {
        if (set->at[i] && memcmp((char *)set->at[i] + set->bytes[i], guard, GUARD_BYTES))
            fail_msg("%s wrote past the end of buffer %d", kc->name, i);
        free(set->at[i]);
    }
}

static void set_copy(struct set *to, const struct set *from, const struct kernel_case *kc,
                     const struct shape *s)
{
    set_open(to, kc, s);
    for (int i = 0; i < MAX_BUFFERS; i++)
        if (from->bytes[i])
            memcpy(to->at[i], from->at[i], from->bytes[i]);
}

/* -- filling ------------------------------------------------------------------------- */

static int32_t whole_number(enum fill fill, int64_t i, const struct shape *s,
                            struct rng *r)
{
    if (fill == TOKENS)
        return (int32_t)rng_below(r, VOCAB);
    if (fill == POSITIONS)
        return (int32_t)(i % s->S);
    return (int32_t)(rng_below(r, s->C + 4) - 2); // targets, some in no column
}

/* Documents of single tokens in one sample, about 9 tokens in the next, about 90 in the
 * third; which of them comes first depends on the length. */
static void fill_first_keys(int32_t *first, int64_t n, const struct shape *s,
                            struct rng *r)
{
    static const int64_t lengths_about[] = {1, 9, 90};
    for (int64_t i = 0; i < n; i++) {
        int64_t q = i % s->S, kind = (i / s->S + s->S + s->S / 128) % 3;
        bool begins = q == 0 || rng_below(r, lengths_about[kind]) == 0;
        first[i] = begins ? (int32_t)q : first[i - 1];
    }
}

static void fill_buffer(void *at, int64_t n, const struct buffer *b,
                        const struct shape *s, struct rng *r)
{
    float *x = at;
    int32_t *whole = at;
    if (b->role == OUT || b->role == SCRATCH)
        floats_set(x, n, NAN);
    else if (b->fill == BELL)
        floats_bell(x, n, r);
    else if (b->fill == POSITIVE)
        for (int64_t i = 0; i < n; i++)
            x[i] = (float)rng_uniform(r, 0.01, 1);
    else if (b->fill == FIRST_KEYS)
        fill_first_keys(whole, n, s, r);
    else
        for (int64_t i = 0; i < n; i++)
            whole[i] = whole_number(b->fill, i, s, r);
}

static void set_open_filled(struct set *set, const struct kernel_case *kc,
                            const struct shape *s)
{
    struct rng r = {(uint64_t)(s->C * 1000003 + s->B * 1009 + s->S * 31 + s->D)};
    set_open(set, kc, s);
    for (int i = 0; i < MAX_BUFFERS && set->at[i]; i++)
        fill_buffer(set->at[i], (int64_t)set->bytes[i] / 4, &kc->buffers[i], s, &r);
    if (kc->prepare)
        kc->prepare(all_tables().at[0], s, set->at);
}

/* -- comparing ----------------------------------------------------------------------- */

static bool is_output(const struct buffer *b)
{
    return b->role == OUT || b->role == UPDATED;
}

static void describe(char *text, size_t n, const struct kernel_case *kc,
                     const struct kernels *k, const struct shape *s, int buffer)
{
    snprintf(text, n,
             "%s of %s, buffer %d, B %lld S %lld C %lld A %lld D %lld dropout %g",
             kc->name, k->name, buffer, (long long)s->B, (long long)s->S, (long long)s->C,
             (long long)s->A, (long long)s->D, s->rate);
}

static double element(const struct buffer *b, const void *at, int64_t i)
{
    if (b->extent == SIZE_SQUARES)
        return ((const double *)at)[i];
    return (double)((const float *)at)[i];
}

static void assert_close_buffer(const struct buffer *b, const void *got, const void *want,
                                int64_t n_words, const char *what)
{
    int64_t n = b->extent == SIZE_SQUARES ? n_words / 2 : n_words;
    double mean = 0;
    for (int64_t i = 0; i < n; i++)
        mean += fabs(element(b, want, i)) / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double g = element(b, got, i), w = element(b, want, i);
        double allowed = b->tolerance * (fabs(w) + mean) + b->floor;
        if (!(fabs(g - w) <= allowed))
            fail_msg("%s: element %lld of %lld is %.9g, not %.9g; off by %.3g, allowed "
                     "%.3g",
                     what, (long long)i, (long long)n, g, w, fabs(g - w), allowed);
    }
}

static void assert_close_sets(const struct kernel_case *kc, const struct kernels *k,
                              const struct shape *s, const struct set *got,
                              const struct set *want)
{
    char what[200];
    for (int i = 0; i < MAX_BUFFERS && got->at[i]; i++) {
        if (!is_output(&kc->buffers[i]))
            continue;
        describe(what, sizeof what, kc, k, s, i);
        assert_close_buffer(&kc->buffers[i], got->at[i], want->at[i],
                            (int64_t)want->bytes[i] / 4, what);
    }
}

static void assert_same_sets(const struct kernel_case *kc, const struct kernels *k,
                             const struct shape *s, const struct set *got,
                             const struct set *want)
{
    char what[200];
    for (int i = 0; i < MAX_BUFFERS && got->at[i]; i++) {
        if (!is_output(&kc->buffers[i]))
            continue;
        describe(what, sizeof what, kc, k, s, i);
        assert_same_floats(got->at[i], want->at[i], (int64_t)want->bytes[i] / 4, what);
    }
}

/* -- the tests ----------------------------------------------------------------------- */

/* Calls `check` for every case and every `stride`-th shape of its family, with one thread
 * unless `check` asks for more: small calls on a busy machine wait long for a second. */
static void for_each_case(int64_t stride,
                          void (*check)(const struct kernel_case *kc,
                                        const struct shape *s, const struct set *inputs))
{
    for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
        struct shape s;
        for (int64_t i = 0; shape_at(cases[c].family, i, &s); i += stride) {
            struct set inputs;
            kernels_set_threads(1);
            set_open_filled(&inputs, &cases[c], &s);
            check(&cases[c], &s, &inputs);
            set_close(&inputs, &cases[c]);
        }
    }
}

static void check_against_reference(const struct kernel_case *kc, const struct shape *s,
                                    const struct set *inputs)
{
    struct tables t = all_tables();
    struct set want, got;
    set_copy(&want, inputs, kc, s);
    kc->run(t.at[0], s, want.at);
    for (int i = 1; i < t.n; i++) {
        set_copy(&got, inputs, kc, s);
        kc->run(t.at[i], s, got.at);
        assert_close_sets(kc, t.at[i], s, &got, &want);
        set_close(&got, kc);
    }
    set_close(&want, kc);
}

static void test_kernels__agree_with_the_reference_at_odd_sizes(void **state)
{
    (void)state;
    for_each_case(1, check_against_reference);
}

static void check_against_generic(const struct kernel_case *kc, const struct shape *s,
                                  const struct set *inputs)
{
    struct tables t = emulated_tables_too();
    struct set want, got;
    assert_string_equal(t.at[1]->name, "generic");
    set_copy(&want, inputs, kc, s);
    kc->run(t.at[1], s, want.at);
    for (int i = 2; i < t.n; i++) {
        set_copy(&got, inputs, kc, s);
        kc->run(t.at[i], s, got.at);
        assert_same_sets(kc, t.at[i], s, &got, &want);
        set_close(&got, kc);
    }
    set_close(&want, kc);
}

static void test_kernels__of_every_table_have_the_bits_of_generic(void **state)
{
    (void)state;
    for_each_case(1, check_against_generic);
}

/* Run with outputs put where `pairs` says; they must hold the bits of `want`. */
static void check_aliased(const struct kernel_case *kc, const struct kernels *k,
                          const struct shape *s, const struct set *inputs,
                          const struct set *want, const struct pair *pairs, int n_pairs)
{
    struct set got, aliased;
    set_copy(&got, inputs, kc, s);
    aliased = got;
    for (int i = 0; i < n_pairs; i++)
        aliased.at[pairs[i].out] = got.at[pairs[i].in];
    kc->run(k, s, aliased.at);
    assert_same_sets(kc, k, s, &aliased, want);
    set_close(&got, kc);
}

static void check_in_place(const struct kernel_case *kc, const struct shape *s,
                           const struct set *inputs)
{
    struct tables t = all_tables();
    const struct pair *pairs = kc->in_place;
    bool can_combine = kc->n_in_place == 2 && pairs[0].out != pairs[1].out;
    for (int i = 0; i < t.n && kc->n_in_place > 0; i++) {
        struct set want;
        set_copy(&want, inputs, kc, s);
        kc->run(t.at[i], s, want.at);
        for (int p = 0; p < kc->n_in_place; p++)
            check_aliased(kc, t.at[i], s, inputs, &want, &pairs[p], 1);
        if (can_combine)
            check_aliased(kc, t.at[i], s, inputs, &want, pairs, 2);
        set_close(&want, kc);
    }
}

static void test_kernels__in_place_gives_the_same_bits(void **state)
{
    (void)state;
    for_each_case(1, check_in_place);
}

static void check_threads(const struct kernel_case *kc, const struct shape *s,
                          const struct set *inputs)
{
    static const int more_threads[] = {2, 3, 5};
    struct tables t = all_tables();
    for (int i = 1; i < t.n; i++) { // the reference has one thread
        struct set want, got;
        kernels_set_threads(1);
        set_copy(&want, inputs, kc, s);
        kc->run(t.at[i], s, want.at);
        for (size_t n = 0; n < ARRAY_LEN(more_threads); n++) {
            kernels_set_threads(more_threads[n]);
            set_copy(&got, inputs, kc, s);
            kc->run(t.at[i], s, got.at);
            assert_same_sets(kc, t.at[i], s, &got, &want);
            set_close(&got, kc);
        }
        set_close(&want, kc);
    }
}

static void test_kernels__number_of_threads_does_not_change_a_bit(void **state)
{
    (void)state;
    for_each_case(5, check_threads);
}

/* Run on the samples first .. first + n alone: their outputs must hold the bits that
 * they have in `want`, the result of all samples. */
static void check_part(const struct kernel_case *kc, const struct kernels *k,
                       const struct shape *s, const struct set *inputs,
                       const struct set *want, int64_t first, int64_t n)
{
    struct shape part = *s;
    part.B = n;
    part.first_sample += first;
    struct set whole, got, expected = *want;
    set_copy(&whole, inputs, kc, s);
    got = whole;
    for (int i = 0; i < MAX_BUFFERS && got.at[i]; i++) {
        if (kc->buffers[i].share == WHOLE)
            continue;
        size_t skip = (size_t)(first * extent_of(kc->buffers[i].extent, s)) * 4;
        got.at[i] = (char *)whole.at[i] + skip;
        expected.at[i] = (char *)want->at[i] + skip;
        expected.bytes[i] = (size_t)buffer_words(&kc->buffers[i], &part) * 4;
    }
    kc->run(k, &part, got.at);

    char what[200];
    for (int i = 0; i < MAX_BUFFERS && got.at[i]; i++) {
        if (kc->buffers[i].share == WHOLE || !is_output(&kc->buffers[i]))
            continue;
        describe(what, sizeof what, kc, k, &part, i);
        assert_same_floats(got.at[i], expected.at[i], (int64_t)expected.bytes[i] / 4,
                           what);
    }
    set_close(&whole, kc);
}

static void check_samples_alone(const struct kernel_case *kc, const struct shape *s,
                                const struct set *inputs)
{
    struct tables t = all_tables();
    for (int i = 0; i < t.n && s->B > 1; i++) {
        struct set want;
        set_copy(&want, inputs, kc, s);
        kc->run(t.at[i], s, want.at);
        check_part(kc, t.at[i], s, inputs, &want, 0, 1);
        check_part(kc, t.at[i], s, inputs, &want, s->B - 1, 1);
        check_part(kc, t.at[i], s, inputs, &want, s->B / 2, s->B - s->B / 2);
        set_close(&want, kc);
    }
}

static void test_kernels__bits_of_a_sample_do_not_depend_on_its_neighbours(void **state)
{
    (void)state;
    for_each_case(3, check_samples_alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels__agree_with_the_reference_at_odd_sizes),
        cmocka_unit_test(test_kernels__of_every_table_have_the_bits_of_generic),
        cmocka_unit_test(test_kernels__in_place_gives_the_same_bits),
        cmocka_unit_test(test_kernels__number_of_threads_does_not_change_a_bit),
        cmocka_unit_test(test_kernels__bits_of_a_sample_do_not_depend_on_its_neighbours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
