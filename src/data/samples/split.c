#include "data/samples/split.h"

#include "base/grow.h"
#include "data/samples/document_hash.h"

#include <math.h>
#include <stdlib.h>

#define HASHES_AT_ONCE 4096

const char *split_part_name(enum split_part part)
{
    static const char *const names[SPLIT_PARTS] = {"train", "valid", "test"};
    return names[part];
}

/* -- the two rules ------------------------------------------------------------------- */

static int check_weights(const double weights[SPLIT_PARTS], double *sum,
                         struct error *err)
{
    *sum = 0;
    for (int p = 0; p < SPLIT_PARTS; p++) {
        if (!isfinite(weights[p]) || weights[p] < 0)
            return error_set(err, ERROR_INPUT,
                             "dataset.split: weight %d is %g; weights must be finite and "
                             "not negative, for example 949,50,1",
                             p + 1, weights[p]);
        *sum += weights[p];
    }
    if (!(*sum > 0) || !isfinite(*sum))
        return error_set(err, ERROR_INPUT,
                         "dataset.split: the weights add up to %g; at least one must be "
                         "above 0, for example 949,50,1",
                         *sum);
    return 0;
}

int split_documents(const double weights[SPLIT_PARTS], int64_t n_documents,
                    int64_t bounds[SPLIT_PARTS + 1], struct error *err)
{
    double sum;
    if (check_weights(weights, &sum, err))
        return -1;
    bounds[0] = 0;
    for (int p = 0; p < SPLIT_PARTS; p++) // rint: halves to even, like Python's round
        bounds[p + 1] = bounds[p] + (int64_t)rint(weights[p] / sum * (double)n_documents);
    int64_t surplus = bounds[SPLIT_PARTS] - n_documents;
    for (int p = 1; p <= SPLIT_PARTS; p++)
        bounds[p] = i64_max(0, bounds[p] - surplus);
    return 0;
}

enum split_part split_part_of(const double weights[SPLIT_PARTS], uint64_t hash)
{
    double u = (double)(hash >> 11) * 0x1p-53; // exact
    double before_test = weights[SPLIT_TRAIN] + weights[SPLIT_VALID];
    double sum = before_test + weights[SPLIT_TEST];
    if (u < weights[SPLIT_TRAIN] / sum)
        return SPLIT_TRAIN;
    return u < before_test / sum ? SPLIT_VALID : SPLIT_TEST;
}

/* -- ranges -------------------------------------------------------------------------- */

static int add_range(struct split *s, const struct corpus *c, int64_t first, int64_t end,
                     struct error *err)
{
    if (first >= end)
        return 0;
    s->n_documents += end - first;
    s->n_tokens += corpus_range_tokens(c, first, end);
    if (s->n_ranges > 0 && s->ranges[s->n_ranges - 1].end == first) {
        s->ranges[s->n_ranges - 1].end = end;
        return 0;
    }
    if (grow_array(&s->ranges, &s->capacity, s->n_ranges + 1, sizeof *s->ranges))
        return error_set(err, ERROR_RUNTIME, "no memory for the documents of a part");
    s->ranges[s->n_ranges++] = (struct split_range){first, end};
    return 0;
}

static int add_matches(struct split *s, const struct corpus *c,
                       const struct split_options *opt, enum split_part part,
                       const struct index_map *map, struct error *err)
{
    int64_t hashes[HASHES_AT_ONCE];
    for (int64_t first = 0; first < map->n_values; first += HASHES_AT_ONCE) {
        int64_t n = i64_min(HASHES_AT_ONCE, map->n_values - first);
        if (index_map_read(map, first, n, hashes))
            return error_set(
                err, ERROR_RUNTIME,
                "the cached hashes '%s' were changed while they were in use; "
                "remove the file and start again",
                map->path);
        for (int64_t i = 0; i < n; i++)
            if (split_part_of(opt->weights, (uint64_t)hashes[i]) == part &&
                add_range(s, c, first + i, first + i + 1, err))
                return -1;
    }
    return 0;
}

static int find_by_hash(struct split *s, const struct corpus *c,
                        const struct split_options *opt, enum split_part part,
                        struct error *err)
{
    struct index_map map;
    if (opt->hashes)
        return add_matches(s, c, opt, part, opt->hashes, err);
    if (document_hash_open(&map, c, opt->cache_dir, err))
        return -1;
    int rc = add_matches(s, c, opt, part, &map, err);
    index_map_close(&map);
    return rc;
}

int split_open(struct split *s, const struct corpus *c, const struct split_options *opt,
               enum split_part part, struct error *err)
{
    int64_t bounds[SPLIT_PARTS + 1];
    *s = (struct split){0};
    if (split_documents(opt->weights, corpus_n_documents(c), bounds, err))
        return -1;
    int rc = opt->by == SPLIT_BY_DOCUMENT
                 ? find_by_hash(s, c, opt, part, err)
                 : add_range(s, c, bounds[part], bounds[part + 1], err);
    if (rc)
        split_close(s);
    return rc;
}

void split_close(struct split *s)
{
    free(s->ranges);
    *s = (struct split){0};
}

bool split_contains(const struct split *s, int64_t doc)
{
    int64_t low = 0, high = s->n_ranges; // the first range that ends after doc
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (s->ranges[middle].end <= doc)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->n_ranges && s->ranges[low].first <= doc;
}

/* -- without a cache ----------------------------------------------------------------- */

int split_count_tokens(const struct corpus *c, const struct split_options *opt,
                       int64_t n_tokens[SPLIT_PARTS], struct error *err)
{
    int64_t bounds[SPLIT_PARTS + 1], n = corpus_n_documents(c);
    if (split_documents(opt->weights, n, bounds, err))
        return -1;
    for (int p = 0; p < SPLIT_PARTS; p++)
        n_tokens[p] = opt->by == SPLIT_BY_DOCUMENT
                          ? 0
                          : corpus_range_tokens(c, bounds[p], bounds[p + 1]);
    if (opt->by == SPLIT_CONTIGUOUS)
        return 0;
    uint64_t *hashes = malloc((size_t)n * sizeof *hashes + 1);
    if (!hashes)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    int rc = document_hash_range(c, 0, n, hashes, err);
    for (int64_t doc = 0; doc < n && rc == 0; doc++)
        n_tokens[split_part_of(opt->weights, hashes[doc])] +=
            corpus_document_tokens(c, doc);
    free(hashes);
    return rc;
}
