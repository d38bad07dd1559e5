#include "model/sampler.h"

#include "base/philox.h"
#include "base/real.h"

#include <math.h>
#include <stdlib.h>

int sampler_init(struct sampler *s, int64_t V, struct error *err)
{
    s->V = V;
    s->candidates = malloc((size_t)V * sizeof *s->candidates);
    if (!s->candidates)
        return error_set(err, ERROR_RUNTIME, "out of memory for %lld candidates",
                         (long long)V);
    return 0;
}

void sampler_release(struct sampler *s)
{
    free(s->candidates);
    s->candidates = NULL;
}

static int32_t likeliest(const float *logits, int64_t V)
{
    int64_t best = 0;
    bool has_nan = isnan(logits[0]);
    for (int64_t i = 1; i < V; i++) {
        has_nan = has_nan || isnan(logits[i]);
        if (logits[i] > logits[best])
            best = i;
    }
    return has_nan || isinf(logits[best]) ? SAMPLER_NO_NUMBERS : (int32_t)best;
}

/* -- drawing ------------------------------------------------------------------------- */

/* Heavier first; equal ones by id, so that the order never depends on how it is made. */
static bool comes_before(const struct sampler_candidate *a,
                         const struct sampler_candidate *b)
{
    return a->weight != b->weight ? a->weight > b->weight : a->id < b->id;
}

/* c[0, n) is a heap but for c[i]: let that sink to its place. */
static void heap_sink(struct sampler_candidate *c, int64_t i, int64_t n)
{
    struct sampler_candidate moved = c[i];
    for (int64_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && comes_before(&c[child + 1], &c[child]))
            child++;
        if (!comes_before(&c[child], &moved))
            break;
        c[i] = c[child];
        i = child;
    }
    c[i] = moved;
}

/* Take the first of the heap c[0, n) to c[n - 1]. */
static void heap_pop(struct sampler_candidate *c, int64_t n)
{
    struct sampler_candidate first = c[0];
    c[0] = c[n - 1];
    heap_sink(c, 0, n - 1);
    c[n - 1] = first;
}

/* The likeliest candidates that top_k and top_p leave, the last of them at the end of
 * the list of all: their number, and *total := their weight. Since few are left as a
 * rule, only these are put in order. */
static int64_t select_candidates(const struct sampler *s, double all, double *total)
{
    struct sampler_candidate *c = s->candidates;
    int64_t most = s->top_k > 0 ? i64_min(s->top_k, s->V) : s->V, kept = 0;
    for (int64_t i = s->V / 2 - 1; i >= 0; i--)
        heap_sink(c, i, s->V);
    *total = 0;
    while (kept < most && (kept == 0 || *total < s->top_p * all)) {
        heap_pop(c, s->V - kept);
        kept++;
        *total += c[s->V - kept].weight;
    }
    return kept;
}

/* Candidate [first, end) at the place `left` of their weights laid end to end. */
static int32_t candidate_at(const struct sampler *s, int64_t first, int64_t end,
                            double left)
{
    int64_t i = first;
    while (i + 1 < end && left >= s->candidates[i].weight)
        left -= s->candidates[i++].weight;
    return s->candidates[i].id;
}

int32_t sampler_next(struct sampler *s, const float *logits, int64_t draw)
{
    int32_t best = likeliest(logits, s->V);
    double total = 0;
    int64_t kept = s->V;
    if (s->temperature <= 0 || best == SAMPLER_NO_NUMBERS)
        return best;
    for (int64_t i = 0; i < s->V; i++) {
        double shifted = (double)logits[i] - (double)logits[best];
        double weight = real_exp(shifted / s->temperature);
        s->candidates[i] = (struct sampler_candidate){weight, (int32_t)i};
        total += weight;
    }
    if (s->top_k > 0 || s->top_p < 1)
        kept = select_candidates(s, total, &total);
    struct philox_key key = philox_key(s->seed, PHILOX_SAMPLE_TOKEN, 0);
    double left = (double)philox_uniform(key, (uint64_t)draw, 0) * total;
    return candidate_at(s, s->V - kept, s->V, left);
}
