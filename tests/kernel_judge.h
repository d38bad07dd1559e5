/*
 * kernel_judge - what every table's kernels have to do on a case of kernel_cases.h: come
 * near the reference, give the same bits in place, and the same for a sample whatever its
 * neighbours.
 *
 * What is rounded to 16 bits is the reference's to the last bit almost everywhere: both
 * compute the same number to some 20 bits, which rarely fall on two sides of what is
 * rounded up and down. A rounding that is left out, or done twice, or in another place,
 * changes a good part of the elements; so they are counted over all shapes, and only few
 * may differ, none by more than a unit.
 */
#ifndef TESTS_KERNEL_JUDGE_H
#define TESTS_KERNEL_JUDGE_H

#include "kernel_buffers.h"

/* -- near the reference -------------------------------------------------------------- */

struct tally { // of the elements of one buffer of a case in 16 bits, over all shapes
    int64_t n, n_off;
};

/* A unit in the last place, as a part of the number. */
static inline double unit_of(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? 0 : dtype == DTYPE_F16 ? 0x1p-10 : 0x1p-7;
}

static inline double mean_size(const struct buffer *b, const struct shape *s,
                               const void *at, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += fabs(number_at(b, s, at, i));
    return n > 0 ? sum / (double)n : 0;
}

/* How many units of the mean an element may be off that is a sum of rounded numbers. One
 * of these that is rounded the other way counts as many as it is larger than the mean. */
#ifndef TEST_INNER_UNITS
#define TEST_INNER_UNITS 1
#endif

/* What is in 16 bits, or a sum of what is, may be a unit off at times. */
static inline void assert_close_buffer(const struct buffer *b, const struct shape *s,
                                       const void *got, const void *want,
                                       struct tally *tally, const char *what)
{
    int64_t n = buffer_elements(b, s);
    bool is_stored = b->type == OF_T && s->dtype != DTYPE_F32;
    bool is_exact = b->tolerance <= 0 && b->floor <= 0;
    double mean = mean_size(b, s, want, n), unit = unit_of(s->dtype);
    for (int64_t i = 0; i < n; i++) {
        double g = number_at(b, s, got, i), w = number_at(b, s, want, i);
        double allowed = b->tolerance * (fabs(w) + mean) + b->floor;
        double units = is_exact ? 0
                                : (is_stored ? fabs(w) : 0) +
                                      (b->has_inner ? TEST_INNER_UNITS * mean : 0);
        double most = allowed + unit * units + (is_stored && !is_exact ? 0x1p-24 : 0);
        if (!(fabs(g - w) <= most))
            fail_msg("%s: element %lld of %lld is %.9g, not %.9g; off by %.3g, allowed "
                     "%.3g",
                     what, (long long)i, (long long)n, g, w, fabs(g - w), most);
        tally->n_off += fabs(g - w) > allowed;
    }
    tally->n += n;
}

/* How many elements in a thousand may differ. A float that sums rounded numbers differs
 * when one of them does. */
static inline int64_t most_off(const struct buffer *b, enum dtype dtype)
{
    if (b->type != OF_T)
        return b->has_inner ? 300 : 0;
    return dtype == DTYPE_F16 ? 30 : 8;
}

static inline void assert_few_off(const struct kernel_case *kc, const struct kernels *k,
                                  enum dtype dtype, const struct tally *tallies)
{
    for (int i = 0; i < MAX_BUFFERS && kc->buffers[i].role != END; i++) {
        const struct tally *t = &tallies[i];
        if (t->n_off * 1000 > t->n * most_off(&kc->buffers[i], dtype))
            fail_msg("%s of %s in %s: %lld of the %lld elements of buffer %d are not the "
                     "reference's: is something rounded that is not there, or the other "
                     "way round?",
                     kc->name, k->name, dtype_name(dtype), (long long)t->n_off,
                     (long long)t->n, i);
    }
}

static inline void check_shape(const struct kernel_case *kc, const struct shape *s,
                               const struct tables *t,
                               struct tally tallies[][MAX_BUFFERS])
{
    struct set inputs, want;
    char what[200];
    set_open_filled(&inputs, kc, s);
    set_copy(&want, &inputs, kc, s);
    kc->run(t->at[0], s, want.at);
    for (int i = 1; i < t->n; i++) {
        struct set got;
        set_copy(&got, &inputs, kc, s);
        kc->run(t->at[i], s, got.at);
        for (int b = 0; b < MAX_BUFFERS && got.at[b]; b++) {
            if (!is_output(&kc->buffers[b]))
                continue;
            describe(what, sizeof what, kc, t->at[i], s, b);
            assert_close_buffer(&kc->buffers[b], s, got.at[b], want.at[b], &tallies[i][b],
                                what);
        }
        set_close(&got, kc);
    }
    set_close(&want, kc);
    set_close(&inputs, kc);
}

/* -- in place ------------------------------------------------------------------------ */

/* Run with outputs put where `pairs` says; they must hold the bits of `want`. */
static inline void check_aliased(const struct kernel_case *kc, const struct kernels *k,
                                 const struct shape *s, const struct set *inputs,
                                 const struct set *want, const struct pair *pairs,
                                 int n_pairs)
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

static inline void check_in_place(const struct kernel_case *kc, const struct shape *s,
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
            if (s->dtype == DTYPE_F32 || !pairs[p].is_f32_only)
                check_aliased(kc, t.at[i], s, inputs, &want, &pairs[p], 1);
        if (can_combine)
            check_aliased(kc, t.at[i], s, inputs, &want, pairs, 2);
        set_close(&want, kc);
    }
}

/* -- samples ------------------------------------------------------------------------- */

/* Run on the samples first .. first + n alone: their outputs must hold the bits that
 * they have in `want`, the result of all samples. */
static inline void check_part(const struct kernel_case *kc, const struct kernels *k,
                              const struct shape *s, const struct set *inputs,
                              const struct set *want, int64_t first, int64_t n)
{
    struct shape part = *s;
    part.B = n;
    part.first_sample += first;
    struct set whole, got;
    set_copy(&whole, inputs, kc, s);
    got = whole;
    size_t skip[MAX_BUFFERS] = {0};
    for (int i = 0; i < MAX_BUFFERS && got.at[i]; i++) {
        const struct buffer *b = &kc->buffers[i];
        if (b->share == PER_SAMPLE)
            skip[i] = (size_t)(first * extent_of(b->extent, s)) * element_bytes(b, s);
        got.at[i] = (char *)whole.at[i] + skip[i];
    }
    kc->run(k, &part, got.at);

    char what[200];
    for (int i = 0; i < MAX_BUFFERS && got.at[i]; i++) {
        const struct buffer *b = &kc->buffers[i];
        if (b->share == WHOLE || !is_output(b))
            continue;
        describe(what, sizeof what, kc, k, &part, i);
        assert_same_buffer(b, s, got.at[i], (char *)want->at[i] + skip[i],
                           (size_t)buffer_elements(b, &part) * element_bytes(b, s), what);
    }
    set_close(&whole, kc);
}

static inline void check_samples_alone(const struct kernel_case *kc,
                                       const struct shape *s, const struct set *inputs)
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

#endif
