/*
 * First the plan: a few numbers that follow from the lengths (how many epochs, how many
 * samples). It says how large the arrays are, so a cached file is either exactly that
 * large or not ours. Then the arrays, in one block:
 *
 *     packed   documents (n_documents) | starts (n_samples, 2) | shuffle (n_samples)
 *     padded   documents (n_samples)
 */
#include "data/sample_index.h"

#include "base/clock.h"
#include "base/log.h"
#include "data/index_cache.h"
#include "data/np_random.h"

#include <stdlib.h>

#define LEAST_PADDED_TOKENS 2 // an input and its target

struct plan {
    int64_t first_doc, end_doc;  // of the part
    int64_t tokens_per_epoch;    // T
    int64_t documents_per_epoch; // D: all of the part, padded: those that are samples
    int64_t n_epochs;            // E
    int64_t n_samples;           // (E*T - 1) / S, padded: E*D
    int64_t n_documents;         // E*D
    int64_t n_values;            // of the block
};

static int empty_part(const struct corpus *corpus, const struct sample_index_options *opt,
                      int64_t n_docs, struct error *err)
{
    return error_set(
        err, ERROR_INPUT,
        "the %s part of '%s' is empty: with dataset.split %g,%g,%g it gets "
        "%lld of %lld documents and no tokens%s; give it a larger weight%s, or "
        "prepare the text as more documents",
        split_part_name(opt->part), corpus_input(corpus), opt->split[0], opt->split[1],
        opt->split[2], (long long)n_docs, (long long)corpus_n_documents(corpus),
        opt->mode == SAMPLES_PADDED ? " to predict" : "",
        opt->part == SPLIT_TRAIN ? "" : ", set eval_freq to 0 to do without");
}

static int too_large(const struct sample_index_options *opt, struct error *err)
{
    return error_set(err, ERROR_INPUT,
                     "%lld samples of %lld tokens are more than can be counted; lower "
                     "max_steps or global_batch_size",
                     (long long)opt->n_samples, (long long)opt->seq_len);
}

/* Samples of the first `epoch` epochs; packed, those that lie whole within their T tokens
 * each. */
static int64_t samples_before(enum config_sample_mode mode, int64_t epoch, int64_t T,
                              int64_t D, int64_t S)
{
    int64_t n;
    if (__builtin_mul_overflow(epoch, mode == SAMPLES_PADDED ? D : T, &n))
        return INT64_MAX;
    return mode == SAMPLES_PADDED || epoch == 0 ? n : (n - 1) / S;
}

static bool is_in_epoch(const struct corpus *corpus, enum config_sample_mode mode,
                        int64_t doc)
{
    return mode == SAMPLES_PACKED ||
           corpus_document_tokens(corpus, doc) >= LEAST_PADDED_TOKENS;
}

/* The epochs that n_samples take: packed, the least E with (E*T - 1) / S >= n, that is
 * E*T >= n*S + 1; padded, with E*D >= n. */
static int plan_epochs(struct plan *p, const struct sample_index_options *opt,
                       struct error *err)
{
    int64_t needed, last, n_values, T = p->tokens_per_epoch, D = p->documents_per_epoch;
    bool is_padded = opt->mode == SAMPLES_PADDED;
    if (__builtin_mul_overflow(opt->n_samples, is_padded ? 1 : opt->seq_len, &needed) ||
        __builtin_add_overflow(needed, is_padded ? D - 1 : T, &needed))
        return too_large(opt, err);
    p->n_epochs = needed / (is_padded ? D : T);
    if (__builtin_mul_overflow(p->n_epochs, T, &last) ||
        __builtin_mul_overflow(p->n_epochs, D, &p->n_documents))
        return too_large(opt, err);
    p->n_samples = samples_before(opt->mode, p->n_epochs, T, D, opt->seq_len);
    if (__builtin_mul_overflow(p->n_samples, is_padded ? 0 : 3, &n_values) ||
        __builtin_add_overflow(p->n_documents, n_values, &p->n_values) ||
        p->n_values > INT64_MAX / 16)
        return too_large(opt, err);
    return 0;
}

static int make_plan(struct plan *p, const struct corpus *corpus,
                     const struct sample_index_options *opt, struct error *err)
{
    int64_t bounds[SPLIT_PARTS + 1];
    *p = (struct plan){0};
    if (split_documents(opt->split, corpus_n_documents(corpus), bounds, err))
        return -1;
    p->first_doc = bounds[opt->part];
    p->end_doc = bounds[opt->part + 1];
    p->tokens_per_epoch = corpus_range_tokens(corpus, p->first_doc, p->end_doc);
    for (int64_t doc = p->first_doc; doc < p->end_doc; doc++)
        p->documents_per_epoch += is_in_epoch(corpus, opt->mode, doc);
    if (p->tokens_per_epoch == 0 || p->documents_per_epoch == 0)
        return empty_part(corpus, opt, p->end_doc - p->first_doc, err);
    return plan_epochs(p, opt, err);
}

/* The documents of one epoch and, when packed, its samples, each shuffled. */
static void shuffle_epoch(int64_t *documents, int64_t *shuffle, const struct plan *p,
                          const struct corpus *corpus,
                          const struct sample_index_options *opt, int64_t epoch)
{
    struct np_random random;
    int64_t T = p->tokens_per_epoch, D = p->documents_per_epoch, S = opt->seq_len;
    int64_t *next = documents + epoch * D;
    for (int64_t doc = p->first_doc; doc < p->end_doc; doc++)
        if (is_in_epoch(corpus, opt->mode, doc))
            *next++ = doc;
    np_random_init(&random, (uint32_t)(opt->seed + epoch));
    np_random_shuffle(&random, documents + epoch * D, D);
    if (opt->mode == SAMPLES_PADDED)
        return;
    int64_t first = samples_before(opt->mode, epoch, T, D, S);
    int64_t end = samples_before(opt->mode, epoch + 1, T, D, S);
    for (int64_t k = first; k < end; k++)
        shuffle[k] = k;
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
        shuffle_epoch(documents, shuffle, p, corpus, opt, epoch);
    if (opt->mode == SAMPLES_PACKED)
        place_starts(starts, documents, p, corpus, opt->seq_len);
}

static void mix_options(struct cache_key *key, const struct sample_index_options *opt,
                        int64_t n_epochs)
{
    for (int i = 0; i < SPLIT_PARTS; i++)
        cache_key_mix_f64(key, opt->split[i]);
    cache_key_mix_i64(key, opt->part);
    // 0 stands for padded, whose samples are cut when they are read: one index for every
    // S
    cache_key_mix_i64(key, opt->mode == SAMPLES_PADDED ? 0 : opt->seq_len);
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
    bool is_packed = opt->mode == SAMPLES_PACKED;
    *index = (struct sample_index){
        .corpus = corpus,
        .mode = opt->mode,
        .pad = opt->pad,
        .seq_len = opt->seq_len,
        .n_samples = p->n_samples,
        .n_epochs = p->n_epochs,
        .tokens_per_epoch = p->tokens_per_epoch,
        .documents_per_epoch = p->documents_per_epoch,
        .n_documents = p->n_documents,
        .documents = values,
        .starts = is_packed ? values + p->n_documents : NULL,
        .shuffle = is_packed ? values + p->n_documents + 2 * p->n_samples : NULL,
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
    return samples_before(index->mode, epoch, index->tokens_per_epoch,
                          index->documents_per_epoch, index->seq_len);
}

int64_t sample_index_epoch_of(const struct sample_index *index, int64_t pos)
{
    if (index->mode == SAMPLES_PADDED)
        return pos / index->documents_per_epoch;
    // the least epoch whose end, ((epoch + 1) * T - 1) / S, is above pos
    int64_t T = index->tokens_per_epoch, end = (pos + 1) * index->seq_len + 1;
    return (end + T - 1) / T - 1;
}

/* -- reading --------------------------------------------------------------------------
 */

/* Tokens [first, end) of the window begin their document at `first`. The window has one
 * token more than there are inputs. */
static void mark_document(struct sample *out, int64_t first, int64_t end, int64_t S)
{
    if (!out->document_start)
        return;
    for (int64_t s = first; s < i64_min(end, S); s++)
        out->document_start[s] = (int32_t)first;
}

static int read_packed(const struct sample_index *index, int64_t pos, struct sample *out,
                       struct error *err)
{
    const int64_t *start = index->starts + 2 * index->shuffle[pos];
    int64_t entry = start[0], offset = start[1], at = 0, S = index->seq_len;
    for (; at < S + 1; entry++, offset = 0) {
        int64_t doc = index->documents[entry];
        int64_t n =
            i64_min(S + 1 - at, corpus_document_tokens(index->corpus, doc) - offset);
        if (n > 0 && corpus_read(index->corpus, doc, offset, n, out->window + at, err))
            return -1;
        mark_document(out, at, at + n, S);
        at += n;
    }
    out->n_real = S + 1;
    return 0;
}

static int read_padded(const struct sample_index *index, int64_t pos, struct sample *out,
                       struct error *err)
{
    int64_t doc = index->documents[pos], S = index->seq_len;
    int64_t n = i64_min(S + 1, corpus_document_tokens(index->corpus, doc));
    if (corpus_read(index->corpus, doc, 0, n, out->window, err))
        return -1;
    for (int64_t s = n; s < S + 1; s++)
        out->window[s] = index->pad;
    mark_document(out, 0, S, S);
    out->n_real = n;
    return 0;
}

int sample_index_read(const struct sample_index *index, int64_t pos, struct sample *out,
                      struct error *err)
{
    CHECK(pos >= 0 && pos < index->n_samples, "position %lld of %lld", (long long)pos,
          (long long)index->n_samples);
    return index->mode == SAMPLES_PADDED ? read_padded(index, pos, out, err)
                                         : read_packed(index, pos, out, err);
}
