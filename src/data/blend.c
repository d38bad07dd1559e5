/*
 * The choices are kept, and every BLEND_BLOCK of them how many each dataset has had; a
 * look-up counts the rest. Products are rounded before they are compared (this file is
 * compiled without contraction), so that ties fall the same way on every machine.
 */
#include "data/blend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* shares := weights / their sum. */
static int make_shares(double *shares, const double *weights, int64_t n,
                       struct error *err)
{
    double sum = 0;
    for (int64_t d = 0; d < n; d++) {
        if (!isfinite(weights[d]) || weights[d] <= 0)
            return error_set(err, ERROR_INPUT,
                             "dataset.weights: weight %lld is %g; weights must be finite "
                             "and above 0",
                             (long long)d + 1, weights[d]);
        sum += weights[d];
    }
    if (!isfinite(sum))
        return error_set(err, ERROR_INPUT,
                         "dataset.weights: the weights add up to more than a number can "
                         "be; divide all of them by the same number");
    for (int64_t d = 0; d < n; d++)
        shares[d] = weights[d] / sum;
    return 0;
}

static int64_t most_behind(const double *shares, const int64_t *had, int64_t n,
                           int64_t pos)
{
    double i = pos > 0 ? (double)pos : 1.0;
    double most = shares[0] * i - (double)had[0];
    int64_t best = 0;
    for (int64_t d = 1; d < n; d++) {
        double behind = shares[d] * i - (double)had[d];
        if (behind > most) {
            most = behind;
            best = d;
        }
    }
    return best;
}

static void deal(struct blend *b, const double *shares)
{
    int64_t D = b->n_datasets;
    for (int64_t pos = 0; pos < b->n_positions; pos++) {
        if (pos % BLEND_BLOCK == 0)
            memcpy(b->counts + pos / BLEND_BLOCK * D, b->totals,
                   (size_t)D * sizeof *b->totals);
        int64_t d = most_behind(shares, b->totals, D, pos);
        b->choices[pos] = (uint16_t)d;
        b->totals[d]++;
    }
}

int blend_init(struct blend *b, const double *weights, int64_t n_datasets,
               int64_t n_positions, struct error *err)
{
    double *shares = NULL;
    int64_t n_counts;
    int rc = -1;
    CHECK(n_datasets > 0 && n_datasets <= BLEND_MOST_DATASETS && n_positions >= 0,
          "%lld positions of %lld datasets", (long long)n_positions,
          (long long)n_datasets);
    *b = (struct blend){.n_datasets = n_datasets, .n_positions = n_positions};
    if (__builtin_mul_overflow(n_positions / BLEND_BLOCK + 1, n_datasets, &n_counts) ||
        n_counts > INT64_MAX / 16 || n_positions > INT64_MAX / 16) {
        error_set(err, ERROR_INPUT,
                  "%lld samples are more than can be counted; lower max_steps or "
                  "global_batch_size",
                  (long long)n_positions);
        goto done;
    }
    shares = calloc((size_t)n_datasets, sizeof *shares);
    b->choices = malloc((size_t)n_positions * sizeof *b->choices + 1);
    b->counts = malloc((size_t)n_counts * sizeof *b->counts);
    b->totals = calloc((size_t)n_datasets, sizeof *b->totals);
    if (!shares || !b->choices || !b->counts || !b->totals) {
        error_set(err, ERROR_RUNTIME,
                  "no memory for the blend of %lld datasets: %lld samples need %lld MB",
                  (long long)n_datasets, (long long)n_positions,
                  (long long)((n_positions * 2 + n_counts * 8) >> 20));
        goto done;
    }
    if (make_shares(shares, weights, n_datasets, err))
        goto done;
    deal(b, shares);
    rc = 0;
done:
    free(shares);
    if (rc)
        blend_release(b);
    return rc;
}

void blend_release(struct blend *b)
{
    free(b->choices);
    free(b->counts);
    free(b->totals);
    *b = (struct blend){0};
}

struct blend_turn blend_at(const struct blend *b, int64_t pos)
{
    CHECK(pos >= 0 && pos < b->n_positions, "position %lld of %lld", (long long)pos,
          (long long)b->n_positions);
    int64_t d = b->choices[pos], block = pos / BLEND_BLOCK;
    int64_t n = b->counts[block * b->n_datasets + d];
    for (int64_t i = block * BLEND_BLOCK; i < pos; i++)
        n += b->choices[i] == d;
    return (struct blend_turn){.dataset = d, .sample = n};
}
