/*
 * First the plan: a few numbers that follow from the lengths (how many epochs, how many
 * samples). It says how large the arrays are, so a cached file is either exactly that
 * large or not ours. Then the three arrays, in one block:
 *
 *     documents (n_documents) | starts (n_samples, 2) | shuffle (n_samples)
 */
#include "data/sample_index.h"

#include "base/clock.h"
#include "base/log.h"
#include "data/index_cache.h"
#include "data/np_random.h"

#include <stdlib.h>

struct plan {
    int64_t first_doc, end_doc; // of the part
    int64_t tokens_per_epoch;   // T
    int64_t n_epochs;           // E
    int64_t n_samples;          // (E*T - 1) / S
    int64_t n_documents;        // E * (end_doc - first_doc)
    int64_t n_values;           // of the block
};

static int empty_part(const struct corpus *corpus, const struct sample_index_options *opt,
                      int64_t n_docs, struct error *err)
{
    return error_set(
        err, ERROR_INPUT,
        "the %s part of '%s' is empty: with dataset.split %g,%g,%g it gets "
        "%lld of %lld documents and no tokens; give it a larger weight%s, or "
        "prepare the text as more documents",
        split_part_name(opt->part), corpus_input(corpus), opt->split[0], opt->split[1],
        opt->split[2], (long long)n_docs, (long long)corpus_n_documents(corpus),
        opt->part == SPLIT_TRAIN ? "" : ", set eval_freq to 0 to do without");
}

static int too_large(const struct sample_index_options *opt, struct error *err)
{
    return error_set(err, ERROR_INPUT,
                     "%lld samples of %lld tokens are more than can be counted; lower "
                     "max_steps or global_batch_size",
                     (long long)opt->n_samples, (long long)opt->seq_len);
}

/* Samples that lie whole within the first `epoch` epochs of T tokens. */
static int64_t samples_before(int64_t epoch, int64_t T, int64_t S)
{
    return epoch > 0 ? (epoch * T - 1) / S : 0;
}

static int make_plan(struct plan *p, const struct corpus *corpus,
                     const struct sample_index_options *opt, struct error *err)
{
    int64_t bounds[SPLIT_PARTS + 1], needed, last, sample_values;
    *p = (struct plan){0};
    if (split_documents(opt->split, corpus_n_documents(corpus), bounds, err))
        return -1;
    p->first_doc = bounds[opt->part];
    p->end_doc = bounds[opt->part + 1];
    int64_t n_docs = p->end_doc - p->first_doc;
    p->tokens_per_epoch = corpus_range_tokens(corpus, p->first_doc, p->end_doc);
    if (p->tokens_per_epoch == 0)
        return empty_part(corpus, opt, n_docs, err);
    /* The least E with (E*T - 1) / S >= n, that is E*T >= n*S + 1. */
    if (__builtin_mul_overflow(opt->n_samples, opt->seq_len, &needed) ||
        __builtin_add_overflow(needed, p->tokens_per_epoch, &needed))
        return too_large(opt, err);
    p->n_epochs = needed / p->tokens_per_epoch;
    if (__builtin_mul_overflow(p->n_epochs, p->tokens_per_epoch, &last) ||
        __builtin_mul_overflow(p->n_epochs, n_docs, &p->n_documents))
        return too_large(opt, err);
    p->n_samples = samples_before(p->n_epochs, p->tokens_per_epoch, opt->seq_len);
    if (__builtin_mul_overflow(p->n_samples, 3, &sample_values) ||
        __builtin_add_overflow(p->n_documents, sample_values, &p->n_values) ||
        p->n_values > INT64_MAX / 16)
        return too_large(opt, err);
    return 0;
}

/* The documents and the samples of one epoch, each shuffled. */
static void shuffle_epoch(int64_t *documents, int64_t *shuffle, const struct plan *p,
                          const struct sample_index_options *opt, int64_t epoch)
{
    struct np_random random;
    int64_t T = p->tokens_per_epoch, n_docs = p->end_doc - p->first_doc;
    int64_t first = samples_before(epoch, T, opt->seq_len);
    int64_t end = samples_before(epoch + 1, T, opt->seq_len);
    for (int64_t i = 0; i < n_docs; i++)
        documents[epoch * n_docs + i] = p->first_doc + i;
    for (int64_t k = first; k < end; k++)
        shuffle[k] = k;
    np_random_init(&random, (uint32_t)(opt->seed + epoch));
    np_random_shuffle(&random, documents + epoch * n_docs, n_docs);
    np_random_shuffle(&random, shuffle + first, end - first);
}

static void place_starts(int64_t *starts, const int64_t *documents, const struct plan *p,
                         const struct corpus *corpus, int64_t S)
{
    int64_t entry = 0, entry_start = 0; // the entry's first token in the stream
    for (int64_t k = 0; k < p->n_samples; k++) {
        int64_t length;
        while (entry_start +
                   (length = corpus_document_tokens(corpus, documents[entry])) <=
               k * S) {
            entry_start += length;
            entry++;
        }
        starts[2 * k] = entry;
        starts[2 * k + 1] = k * S - entry_start;
    }
}

static void build(int64_t *values, const struct plan *p, const struct corpus *corpus,
                  const struct sample_index_options *opt)
{
    int64_t *documents = values;
    int64_t *starts = documents + p->n_documents;
    int64_t *shuffle = starts + 2 * p->n_samples;
    for (int64_t epoch = 0; epoch < p->n_epochs; epoch++)
        shuffle_epoch(documents, shuffle, p, opt, epoch);
    place_starts(starts, documents, p, corpus, opt->seq_len);
}

static void mix_options(struct cache_key *key, const struct sample_index_options *opt,
                        int64_t n_epochs)
{
    for (int i = 0; i < SPLIT_PARTS; i++)
        cache_key_mix_f64(key, opt->split[i]);
    cache_key_mix_i64(key, opt->part);
    cache_key_mix_i64(key, opt->seq_len);
    cache_key_mix_i64(key, n_epochs);
    cache_key_mix_i64(key, opt->seed);
}

static int build_and_store(int64_t **values, const struct plan *p,
                           const struct corpus *corpus,
                           const struct sample_index_options *opt, const char *cache_dir,
                           const struct cache_key *key, struct error *err)
{
    double start = clock_seconds();
    *values = calloc((size_t)p->n_values + 1, sizeof **values);
    if (!*values)
        return error_set(err, ERROR_RUNTIME,
                         "no memory for the sample index of the %s part: %lld samples "
                         "in %lld epochs need %lld MB",
                         split_part_name(opt->part), (long long)p->n_samples,
                         (long long)p->n_epochs, (long long)(p->n_values >> 17));
    log_status("building the sample index of the %s part", split_part_name(opt->part));
    build(*values, p, corpus, opt);
    log_status_clear();
    log_info("%s samples: %lld in %lld epochs of %lld tokens, index built in %.1f s",
             split_part_name(opt->part), (long long)p->n_samples, (long long)p->n_epochs,
             (long long)p->tokens_per_epoch, clock_seconds() - start);
    index_cache_store(cache_dir, split_part_name(opt->part), key, *values, p->n_values);
    return 0;
}

static int check_options(const struct sample_index_options *opt, struct error *err)
{
    CHECK(opt->seq_len > 0 && opt->n_samples > 0, "S %lld, samples %lld",
          (long long)opt->seq_len, (long long)opt->n_samples);
    if (opt->seed < 0 || opt->seed > UINT32_MAX)
        return error_set(err, ERROR_INPUT, "seed is %lld; it must lie in 0..%u",
                         (long long)opt->seed, UINT32_MAX);
    return 0;
}

static void fill_index(struct sample_index *index, const struct corpus *corpus,
                       const struct sample_index_options *opt, const struct plan *p,
                       int64_t *values)
{
    *index = (struct sample_index){
        .corpus = corpus,
        .seq_len = opt->seq_len,
        .n_samples = p->n_samples,
        .n_epochs = p->n_epochs,
        .tokens_per_epoch = p->tokens_per_epoch,
        .n_documents = p->n_documents,
        .documents = values,
        .starts = values + p->n_documents,
        .shuffle = values + p->n_documents + 2 * p->n_samples,
        .values = values,
    };
}

int sample_index_open(struct sample_index *index, const struct corpus *corpus,
                      const struct sample_index_options *opt, struct error *err)
{
    struct plan plan;
    struct cache_key key;
    int64_t *values, n_values;
    const char *cache_dir = opt->cache_dir && opt->cache_dir[0]
                                ? opt->cache_dir
                                : corpus_default_cache_dir(corpus);
    *index = (struct sample_index){0};
    if (check_options(opt, err) || make_plan(&plan, corpus, opt, err) ||
        cache_key_init(&key, err))
        return -1;
    corpus_mix_key(corpus, &key);
    mix_options(&key, opt, plan.n_epochs);
    index_cache_load(cache_dir, split_part_name(opt->part), &key, &values, &n_values);
    bool is_cached = values && n_values == plan.n_values;
    int rc = 0;
    if (!is_cached) {
        free(values);
        rc = build_and_store(&values, &plan, corpus, opt, cache_dir, &key, err);
    }
    cache_key_release(&key);
    if (rc == 0) {
        fill_index(index, corpus, opt, &plan, values);
        index->came_from_cache = is_cached;
    }
    return rc;
}

void sample_index_close(struct sample_index *index)
{
    free(index->values);
    *index = (struct sample_index){0};
}

int64_t sample_index_epoch_start(const struct sample_index *index, int64_t epoch)
{
    return samples_before(epoch, index->tokens_per_epoch, index->seq_len);
}

int64_t sample_index_epoch_of(const struct sample_index *index, int64_t pos)
{
    // the least epoch whose end, ((epoch + 1) * T - 1) / S, is above pos
    int64_t T = index->tokens_per_epoch, end = (pos + 1) * index->seq_len + 1;
    return (end + T - 1) / T - 1;
}

int sample_index_read(const struct sample_index *index, int64_t pos, int32_t *window,
                      struct error *err)
{
    CHECK(pos >= 0 && pos < index->n_samples, "position %lld of %lld", (long long)pos,
          (long long)index->n_samples);
    const int64_t *start = index->starts + 2 * index->shuffle[pos];
    int64_t entry = start[0], offset = start[1];
    for (int64_t left = index->seq_len + 1; left > 0; entry++, offset = 0) {
        int64_t doc = index->documents[entry];
        int64_t n = i64_min(left, corpus_document_tokens(index->corpus, doc) - offset);
        if (n > 0 && corpus_read(index->corpus, doc, offset, n, window, err))
            return -1;
        window += n;
        left -= n;
    }
    return 0;
}
