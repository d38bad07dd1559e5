/*
 * Products are rounded before they are compared (this file is compiled without
 * contraction), so that ties fall the same way on every machine.
 */
#include "data/samples/blend.h"

#include "data/samples/index_cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_KIND "blend"
#define DEALS_BETWEEN_KEPT ((int64_t)1 << 26)
#define KEPT_FILES 64

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

/* -- counts that are kept ------------------------------------------------------------ */

static size_t row_bytes(const struct blend *b)
{
    return (size_t)b->n_datasets * sizeof *b->had;
}

static int make_blend_key(const struct blend *b, struct cache_key *key)
{
    struct error err;
    if (cache_key_init(key, &err))
        return -1;
    cache_key_mix_i64(key, b->keep_every);
    for (int64_t d = 0; d < b->n_datasets; d++)
        cache_key_mix_f64(key, b->shares[d]);
    return 0;
}

/* Whether row i of `rows` can be what was had before position i * keep_every. */
static bool is_sound(const struct blend *b, const int64_t *row, int64_t i)
{
    int64_t sum = 0;
    for (int64_t d = 0; d < b->n_datasets; d++)
        if (row[d] < 0 || __builtin_add_overflow(sum, row[d], &sum))
            return false;
    return sum == i * b->keep_every;
}

/* Without a file the counts begin with those before position 0. */
static int load_kept(struct blend *b, struct error *err)
{
    struct cache_key key;
    int64_t n = 0;
    if (b->cache_dir && make_blend_key(b, &key) == 0) {
        index_cache_load(b->cache_dir, KEPT_KIND, &key, &b->kept, &n);
        cache_key_release(&key);
    }
    bool is_good = b->kept && n > 0 && n % b->n_datasets == 0;
    for (int64_t i = 0; is_good && i < n / b->n_datasets; i++)
        is_good = is_sound(b, b->kept + i * b->n_datasets, i);
    if (!is_good) {
        free(b->kept);
        n = b->n_datasets;
        b->kept = calloc(1, row_bytes(b));
        if (!b->kept)
            return error_set(err, ERROR_RUNTIME, "out of memory");
    }
    b->n_kept = n / b->n_datasets;
    return 0;
}

/* Without memory for it they are not kept, which costs time later on. */
static void keep_counts(struct blend *b)
{
    struct cache_key key;
    int64_t *larger = realloc(b->kept, (size_t)(b->n_kept + 1) * row_bytes(b));
    if (!larger)
        return;
    b->kept = larger;
    memcpy(b->kept + b->n_kept * b->n_datasets, b->had, row_bytes(b));
    b->n_kept++;
    if (!b->cache_dir || make_blend_key(b, &key))
        return;
    index_cache_store(b->cache_dir, KEPT_KIND, &key, b->kept, b->n_kept * b->n_datasets,
                      KEPT_FILES);
    cache_key_release(&key);
}

/* -- dealing ------------------------------------------------------------------------- */

static void deal_block(struct blend *b)
{
    if (b->n_dealt == b->n_kept * b->keep_every)
        keep_counts(b);
    b->first = b->n_dealt;
    for (int64_t i = 0; i < BLEND_BLOCK; i++) {
        int64_t d = most_behind(b->shares, b->had, b->n_datasets, b->n_dealt++);
        b->turns[i] = (struct blend_turn){.dataset = d, .sample = b->had[d]++};
    }
}

/* Begin at the last counts at or before `pos`, unless what was dealt lies between. */
static void go_near(struct blend *b, int64_t pos)
{
    int64_t i = i64_min(pos / b->keep_every, b->n_kept - 1);
    if (b->n_dealt <= pos && b->n_dealt >= i * b->keep_every)
        return;
    memcpy(b->had, b->kept + i * b->n_datasets, row_bytes(b));
    b->n_dealt = i * b->keep_every;
}

struct blend_turn blend_at(struct blend *b, int64_t pos)
{
    CHECK(pos >= 0, "position %lld", (long long)pos);
    if (pos < b->first || pos >= b->n_dealt) {
        go_near(b, pos);
        while (b->n_dealt <= pos)
            deal_block(b);
    }
    return b->turns[pos - b->first];
}

int64_t blend_most(const struct blend *b, int64_t d, int64_t n)
{
    if (n > INT64_MAX / 4) // which as a double is the same number
        return n;
    // who is chosen is behind, or level: so nobody gets further ahead than by one
    return i64_min(n, (int64_t)ceil(b->shares[d] * (double)n) + 1);
}

/* -- opening ------------------------------------------------------------------------- */

int blend_init(struct blend *b, const double *weights, int64_t n_datasets,
               const char *cache_dir, struct error *err)
{
    CHECK(n_datasets > 0 && n_datasets <= BLEND_MOST_DATASETS, "%lld datasets",
          (long long)n_datasets);
    *b = (struct blend){
        .n_datasets = n_datasets,
        .keep_every =
            i64_max(1, DEALS_BETWEEN_KEPT / n_datasets / BLEND_BLOCK) * BLEND_BLOCK,
        .shares = calloc((size_t)n_datasets, sizeof *b->shares),
        .had = calloc((size_t)n_datasets, sizeof *b->had),
        .turns = calloc(BLEND_BLOCK, sizeof *b->turns),
        .cache_dir = cache_dir ? strdup(cache_dir) : NULL,
    };
    int rc = -1;
    if (!b->shares || !b->had || !b->turns || (cache_dir && !b->cache_dir))
        error_set(err, ERROR_RUNTIME, "out of memory");
    else if (make_shares(b->shares, weights, n_datasets, err) == 0)
        rc = load_kept(b, err);
    if (rc)
        blend_release(b);
    return rc;
}

void blend_release(struct blend *b)
{
    free(b->shares);
    free(b->had);
    free(b->turns);
    free(b->kept);
    free(b->cache_dir);
    *b = (struct blend){0};
}
