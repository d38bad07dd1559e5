/*
 * kernel_buffers - the buffers of one call of a case: filled, copied, compared.
 *
 * An output that is to be overwritten starts as NaN, so that an element left out, or one
 * that is added to, shows; one that is to be added to starts with random numbers. Behind
 * every buffer lies a guard that must survive; or, on demand, a page that nobody may
 * touch, before it or behind it.
 */
#ifndef TESTS_KERNEL_BUFFERS_H
#define TESTS_KERNEL_BUFFERS_H

#include "kernel_cases.h"

#include <sys/mman.h>
#include <unistd.h>

#define GUARD_BYTES 64
#define GUARD_BYTE 0xA5

enum fence { FENCE_NONE, FENCE_BEFORE, FENCE_BEHIND };

struct set { // the buffers of one call
    void *at[MAX_BUFFERS];
    size_t bytes[MAX_BUFFERS];  // 0: the case has no such buffer
    char *pages[MAX_BUFFERS];   // with a fence: what is mapped, a page more at each end
    size_t mapped[MAX_BUFFERS]; // bytes
};

/* -- memory -------------------------------------------------------------------------- */

/* So many bytes between two pages that may not be touched, at one of them. */
static inline void fenced_open(struct set *set, int i, size_t bytes, enum fence fence)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE),
           inside = (bytes + page - 1) / page * page;
    char *pages =
        mmap(NULL, inside + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages + page, inside, PROT_READ | PROT_WRITE), 0);
    set->pages[i] = pages;
    set->mapped[i] = inside + 2 * page;
    set->at[i] = pages + page + (fence == FENCE_BEHIND ? inside - bytes : 0);
}

static inline void set_open(struct set *set, const struct kernel_case *kc,
                            const struct shape *s, enum fence fence)
{
    memset(set, 0, sizeof *set);
    for (int i = 0; i < MAX_BUFFERS && kc->buffers[i].role != END; i++) {
        const struct buffer *b = &kc->buffers[i];
        set->bytes[i] = (size_t)buffer_elements(b, s) * element_bytes(b, s);
        if (fence != FENCE_NONE) {
            fenced_open(set, i, set->bytes[i], fence);
            continue;
        }
        set->at[i] = words_new((int64_t)(set->bytes[i] + GUARD_BYTES + 3) / 4);
        memset((char *)set->at[i] + set->bytes[i], GUARD_BYTE, GUARD_BYTES);
    }
}

static inline void set_close(struct set *set, const struct kernel_case *kc)
{
    unsigned char guard[GUARD_BYTES];
    memset(guard, GUARD_BYTE, sizeof guard);
    for (int i = 0; i < MAX_BUFFERS && set->at[i]; i++) {
        if (set->pages[i]) {
            munmap(set->pages[i], set->mapped[i]);
            continue;
        }
        if (memcmp((char *)set->at[i] + set->bytes[i], guard, GUARD_BYTES))
            fail_msg("%s wrote past the end of buffer %d", kc->name, i);
        free(set->at[i]);
    }
}

static inline void set_copy_fenced(struct set *to, const struct set *from,
                                   const struct kernel_case *kc, const struct shape *s,
                                   enum fence fence)
{
    set_open(to, kc, s, fence);
    for (int i = 0; i < MAX_BUFFERS && to->at[i]; i++)
        memcpy(to->at[i], from->at[i], from->bytes[i]);
}

static inline void set_copy(struct set *to, const struct set *from,
                            const struct kernel_case *kc, const struct shape *s)
{
    set_copy_fenced(to, from, kc, s, FENCE_NONE);
}

/* -- filling ------------------------------------------------------------------------- */

static inline int32_t whole_number(enum filling fill, int64_t i, const struct shape *s,
                                   struct rng *r)
{
    if (fill == TOKENS)
        return (int32_t)rng_below(r, VOCAB + 1) - 1; // -1: no row here
    if (fill == POSITIONS)
        return (int32_t)(i % s->S);
    if (fill == KEY_ENDS) // of a sample: any of its keys, or all
        return (int32_t)(i % 3 == 2 ? s->S : 1 + (int64_t)rng_below(r, s->S));
    return (int32_t)(rng_below(r, s->C + 4) - 2); // targets, some in no column
}

/* Documents of single tokens in one sample, about 9 tokens in the next; long ones in the
 * third, of which the second begins with the last key of a tile, covers whole tiles, and
 * ends between two rows of a tile. Which of them comes first depends on the length. */
static inline void fill_first_keys(int32_t *first, int64_t n, const struct shape *s,
                                   struct rng *r)
{
    static const int64_t lengths_about[] = {1, 9, 90}; // the third's are after LONG_END
    enum { LONG_FIRST = 63, LONG_END = 260 };
    for (int64_t i = 0; i < n; i++) {
        int64_t q = i % s->S, kind = (i / s->S + s->S + s->S / 128) % 3;
        bool begins = q == 0 || rng_below(r, lengths_about[kind]) == 0;
        if (kind == 2 && q > 0 && q <= LONG_END)
            begins = q == LONG_FIRST || q == LONG_END;
        first[i] = begins ? (int32_t)q : first[i - 1];
    }
}

/* What numbers are filled in: as the buffer says; the same with an infinity or a NaN here
 * and there; of all kinds; or so small that products are subnormal. */
enum numbers { NUMBERS_PLAIN, NUMBERS_HOLES, NUMBERS_ANY, NUMBERS_SMALL };

static inline float number_for(const struct buffer *b, enum numbers numbers,
                               struct rng *r)
{
    if (b->fill == POSITIVE)
        return (float)rng_uniform(r, 0.01, 1);
    if (numbers == NUMBERS_HOLES && rng_below(r, 300) == 0)
        return rng_below(r, 3) == 0 ? NAN : rng_below(r, 2) == 0 ? INFINITY : -INFINITY;
    return numbers == NUMBERS_ANY     ? rng_any(r)
           : numbers == NUMBERS_SMALL ? rng_small(r)
                                      : rng_bell(r);
}

static inline void fill_buffer(void *at, int64_t n, const struct buffer *b,
                               const struct shape *s, enum numbers numbers, struct rng *r)
{
    int32_t *whole = at;
    if (b->role == OUT || b->role == SCRATCH) {
        memset(at, 0xFF, (size_t)n * element_bytes(b, s)); // NaN in every type
        return;
    }
    if (b->fill == FIRST_KEYS)
        fill_first_keys(whole, n, s, r);
    for (int64_t i = 0; i < n && b->fill != FIRST_KEYS; i++) {
        if (b->type == OF_INT)
            whole[i] = whole_number(b->fill, i, s, r);
        else
            set_element(at, b->type == OF_T ? s->dtype : DTYPE_F32, i,
                        number_for(b, numbers, r));
    }
}

static inline void set_open_numbers(struct set *set, const struct kernel_case *kc,
                                    const struct shape *s, enum numbers numbers)
{
    struct rng r = {(uint64_t)(s->C * 1000003 + s->B * 1009 + s->S * 31 + s->D)};
    set_open(set, kc, s, FENCE_NONE);
    for (int i = 0; i < MAX_BUFFERS && set->at[i]; i++)
        fill_buffer(set->at[i], buffer_elements(&kc->buffers[i], s), &kc->buffers[i], s,
                    numbers, &r);
    if (kc->prepare)
        kc->prepare(all_tables().at[0], s, set->at);
}

static inline void set_open_filled(struct set *set, const struct kernel_case *kc,
                                   const struct shape *s)
{
    set_open_numbers(set, kc, s, NUMBERS_PLAIN);
}

/* -- comparing ----------------------------------------------------------------------- */

static inline bool is_output(const struct buffer *b)
{
    return b->role == OUT || b->role == UPDATED;
}

static inline void describe(char *text, size_t n, const struct kernel_case *kc,
                            const struct kernels *k, const struct shape *s, int buffer)
{
    snprintf(text, n,
             "%s of %s in %s, buffer %d, B %lld S %lld C %lld A %lld of %lld D %lld "
             "dropout %g",
             kc->name, k->name, dtype_name(s->dtype), buffer, (long long)s->B,
             (long long)s->S, (long long)s->C, (long long)s->A_kv, (long long)s->A,
             (long long)s->D, s->rate);
}

static inline double number_at(const struct buffer *b, const struct shape *s,
                               const void *at, int64_t i)
{
    if (b->type == OF_DOUBLE)
        return ((const double *)at)[i];
    if (b->type == OF_INT)
        return (double)((const int32_t *)at)[i];
    return (double)element(at, b->type == OF_T ? s->dtype : DTYPE_F32, i);
}

/* Bit by bit, but for NaNs, of which sign and payload are nobody's promise. */
static inline void assert_same_buffer(const struct buffer *b, const struct shape *s,
                                      const void *got, const void *want, size_t bytes,
                                      const char *what)
{
    size_t each = element_bytes(b, s);
    if (memcmp(got, want, bytes) == 0)
        return;
    for (size_t i = 0; i < bytes / each; i++) {
        double g = number_at(b, s, got, (int64_t)i),
               w = number_at(b, s, want, (int64_t)i);
        bool same = memcmp((const char *)got + i * each, (const char *)want + i * each,
                           each) == 0;
        if (!same && !(isnan(g) && isnan(w)))
            fail_msg("%s: element %zu of %zu is %.9g (%a), not %.9g (%a)", what, i,
                     bytes / each, g, g, w, w);
    }
}

static inline void assert_same_sets(const struct kernel_case *kc, const struct kernels *k,
                                    const struct shape *s, const struct set *got,
                                    const struct set *want)
{
    char what[200];
    for (int i = 0; i < MAX_BUFFERS && got->at[i]; i++) {
        if (!is_output(&kc->buffers[i]))
            continue;
        describe(what, sizeof what, kc, k, s, i);
        assert_same_buffer(&kc->buffers[i], s, got->at[i], want->at[i], want->bytes[i],
                           what);
    }
}

#endif
