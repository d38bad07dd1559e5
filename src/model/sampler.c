#include "model/sampler.h"

#include "base/philox.h"

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
    for (int64_t i = 1; i < V; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

/* Heavier first; equal ones by id, so that the order never depends on the sort. */
static int compare(const void *a, const void *b)
{
    const struct sampler_candidate *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight < y->weight ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

/* The leading candidates that top_k and top_p leave; *total := their weight. */
static int64_t cut(const struct sampler *s, double *total)
{
    const struct sampler_candidate *c = s->candidates;
    int64_t n = s->top_k > 0 ? i64_min(s->top_k, s->V) : s->V;
    double all = 0;
    for (int64_t i = 0; i < s->V; i++)
        all += c[i].weight;
    int64_t kept = 0;
    *total = 0;
    while (kept < n && (kept == 0 || *total < s->top_p * all))
        *total += c[kept++].weight;
    return kept;
}

int32_t sampler_next(struct sampler *s, const float *logits, int64_t draw)
{
    int32_t best = likeliest(logits, s->V);
    if (s->temperature <= 0)
        return best;
    for (int64_t i = 0; i < s->V; i++) {
        double shifted = (double)logits[i] - (double)logits[best];
        s->candidates[i] =
            (struct sampler_candidate){exp(shifted / s->temperature), (int32_t)i};
    }
    qsort(s->candidates, (size_t)s->V, sizeof *s->candidates, compare);
    double total;
    int64_t kept = cut(s, &total);
    struct philox_key key = philox_key(s->seed, PHILOX_SAMPLE_TOKEN, 0);
    double left = (double)philox_uniform(key, (uint64_t)draw, 0) * total;
    int64_t i = 0;
    while (i + 1 < kept && left >= s->candidates[i].weight)
        left -= s->candidates[i++].weight;
    return s->candidates[i].id;
}
