/*
 * The numbers (how many epochs, how many samples) follow from the lengths; the order
 * itself is in tables, of which the one at hand is open and the next one is being made.
 */
#include "data/samples/sample_index.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_SAMPLES 16384 // at least, when an epoch has fewer
#define TABLES_KEPT 8       // files of each part in the cache, those in use besides

const char *split_part_name(enum split_part part)
{
    static const char *const names[SPLIT_PARTS] = {"train", "valid", "test"};
    return names[part];
}

int split_documents(const double weights[SPLIT_PARTS], int64_t n_documents,
                    int64_t bounds[SPLIT_PARTS + 1], struct error *err)
{
    double sum = 0;
    for (int p = 0; p < SPLIT_PARTS; p++) {
        if (!isfinite(weights[p]) || weights[p] < 0)
            return error_set(err, ERROR_INPUT,
                             "dataset.split: weight %d is %g; weights must be finite and "
                             "not negative, for example 949,50,1",
                             p + 1, weights[p]);
        sum += weights[p];
    }
    if (!(sum > 0) || !isfinite(sum))
        return error_set(err, ERROR_INPUT,
                         "dataset.split: the weights add up to %g; at least one must be "
                         "above 0, for example 949,50,1",
                         sum);
    bounds[0] = 0;
    for (int p = 0; p < SPLIT_PARTS; p++) // rint: halves to even, like Python's round
        bounds[p + 1] = bounds[p] + (int64_t)rint(weights[p] / sum * (double)n_documents);
    int64_t surplus = bounds[SPLIT_PARTS] - n_documents;
    for (int p = 1; p <= SPLIT_PARTS; p++)
        bounds[p] = i64_max(0, bounds[p] - surplus);
    return 0;
}

static int refuse_empty_part(const struct corpus *corpus,
                             const struct sample_index_options *opt, int64_t n_docs,
                             struct error *err)
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

static int refuse_too_large(const struct sample_index_options *opt, struct error *err)
{
    return error_set(err, ERROR_INPUT,
                     "%lld samples of %lld tokens are more than can be counted; lower "
                     "max_steps or global_batch_size",
                     (long long)opt->n_samples, (long long)opt->seq_len);
}

/* -- opening ------------------------------------------------------------------------ */

static int find_epochs(struct sample_epochs *e, const struct corpus *corpus,
                       const struct sample_index_options *opt, struct error *err)
{
    int64_t bounds[SPLIT_PARTS + 1];
    if (split_documents(opt->split, corpus_n_documents(corpus), bounds, err))
        return -1;
    *e = (struct sample_epochs){.corpus = corpus,
                                .mode = opt->mode,
                                .seq_len = opt->seq_len,
                                .seed = opt->seed,
                                .first_doc = bounds[opt->part],
                                .end_doc = bounds[opt->part + 1]};
    e->n_tokens = corpus_range_tokens(corpus, e->first_doc, e->end_doc);
    for (int64_t doc = e->first_doc; doc < e->end_doc; doc++)
        e->n_documents += sample_epochs_has(e, doc);
    if (e->n_tokens == 0 || e->n_documents == 0)
        return refuse_empty_part(corpus, opt, e->end_doc - e->first_doc, err);
    e->epochs_per_table =
        sample_table_epochs(e, opt->table_samples ? opt->table_samples : TABLE_SAMPLES);
    return 0;
}

/* The epochs that n_samples take, whole. A table more than that can be counted, too. */
static int find_samples(struct sample_index *index,
                        const struct sample_index_options *opt, struct error *err)
{
    const struct sample_epochs *e = &index->epochs;
    int64_t per_epoch = i64_max(e->n_tokens, e->n_documents), last, n;
    if (__builtin_mul_overflow(opt->n_samples, opt->seq_len, &n) || n > INT64_MAX / 64)
        return refuse_too_large(opt, err);
    index->n_epochs = sample_epochs_of(e, opt->n_samples - 1) + 1;
    if (__builtin_add_overflow(index->n_epochs, 2 * e->epochs_per_table, &last) ||
        __builtin_mul_overflow(last, per_epoch, &n) || n > INT64_MAX / 64)
        return refuse_too_large(opt, err);
    index->n_samples = sample_epochs_before(e, index->n_epochs);
    return 0;
}

static int make_table_key(struct sample_index *index,
                          const struct sample_index_options *opt, struct error *err)
{
    struct cache_key key;
    if (cache_key_init(&key, err))
        return -1;
    corpus_mix_key(index->epochs.corpus, &key);
    for (int i = 0; i < SPLIT_PARTS; i++)
        cache_key_mix_f64(&key, opt->split[i]);
    cache_key_mix_i64(&key, opt->part);
    // 0 stands for padded, whose samples are cut when they are read: one table for every
    // S
    cache_key_mix_i64(&key, opt->mode == SAMPLES_PADDED ? 0 : opt->seq_len);
    cache_key_mix_i64(&key, index->epochs.epochs_per_table);
    cache_key_mix_i64(&key, opt->seed);
    cache_key_hex(&key, index->key);
    cache_key_release(&key);
    return 0;
}

int sample_index_open(struct sample_index *index, const struct corpus *corpus,
                      const struct sample_index_options *opt, struct error *err)
{
    *index = (struct sample_index){
        .pad = opt->pad, .part = opt->part, .table = {.map.fd = -1, .number = -1}};
    CHECK(opt->seq_len > 0 && opt->n_samples > 0, "S %lld, samples %lld",
          (long long)opt->seq_len, (long long)opt->n_samples);
    if (opt->seed < 0 || opt->seed > UINT32_MAX)
        return error_set(err, ERROR_INPUT, "seed is %lld; it must lie in 0..%u",
                         (long long)opt->seed, UINT32_MAX);
    if (find_epochs(&index->epochs, corpus, opt, err) || find_samples(index, opt, err) ||
        make_table_key(index, opt, err))
        return -1;
    index->cache_dir =
        strdup(opt->cache_dir && opt->cache_dir[0] ? opt->cache_dir
                                                   : corpus_default_cache_dir(corpus));
    return index->cache_dir ? 0 : error_set(err, ERROR_RUNTIME, "out of memory");
}

/* -- tables ------------------------------------------------------------------------- */

static int64_t table_of(const struct sample_index *index, int64_t pos)
{
    return sample_epochs_of(&index->epochs, pos) / index->epochs.epochs_per_table;
}

static int open_table(struct sample_table *t, const struct sample_index *index,
                      int64_t number, struct error *err)
{
    struct index_place place = {.dir = index->cache_dir,
                                .kind = split_part_name(index->part),
                                .n_keep = TABLES_KEPT,
                                .is_quiet = index->is_reported};
    return sample_table_open(t, &index->epochs, number, place, index->key, err);
}

struct ahead { // one table, opened by a thread
    const struct sample_index *index;
    int64_t number;
    pthread_t thread;
    struct sample_table table;
    int rc;
    struct error err;
};

static void *ahead_main(void *arg)
{
    struct ahead *a = arg;
    a->rc = open_table(&a->table, a->index, a->number, &a->err);
    return NULL;
}

/* Without a thread the table is made when it is needed. */
static void ahead_start(struct sample_index *index, int64_t number)
{
    struct ahead *a = calloc(1, sizeof *a);
    if (!a)
        return;
    a->index = index;
    a->number = number;
    if (pthread_create(&a->thread, NULL, ahead_main, a))
        free(a);
    else
        index->ahead = a;
}

/* What was made ahead becomes the table at hand if it is `number`, and goes otherwise. */
static void ahead_take(struct sample_index *index, int64_t number)
{
    struct ahead *a = index->ahead;
    if (!a)
        return;
    pthread_join(a->thread, NULL);
    if (a->rc == 0 && a->number == number)
        index->table = a->table;
    else if (a->rc == 0)
        sample_table_close(&a->table);
    free(a);
    index->ahead = NULL;
}

static int use_table(struct sample_index *index, int64_t number, struct error *err)
{
    if (index->table.number == number)
        return 0;
    sample_table_close(&index->table);
    ahead_take(index, number);
    if (index->table.number != number && open_table(&index->table, index, number, err))
        return -1;
    index->is_reported = true;
    return 0;
}

static void look_ahead(struct sample_index *index, int64_t pos)
{
    const struct sample_table *t = &index->table;
    if (!index->ahead && pos - t->first_sample >= t->n_samples / 2 &&
        t->number < table_of(index, index->n_samples - 1))
        ahead_start(index, t->number + 1);
}

void sample_index_close(struct sample_index *index)
{
    ahead_take(index, -1);
    sample_table_close(&index->table);
    free(index->cache_dir);
    *index = (struct sample_index){.table = {.map.fd = -1, .number = -1}};
}

double sample_index_bytes(const struct sample_index *index)
{
    bool is_one = table_of(index, index->n_samples - 1) == 0;
    return sample_table_bytes(&index->epochs) * (is_one ? 1 : 2);
}

double sample_index_making_bytes(const struct sample_index *index)
{
    bool is_one = table_of(index, index->n_samples - 1) == 0;
    return is_one ? 0 : sample_table_making_bytes(&index->epochs);
}

/* -- reading ------------------------------------------------------------------------ */

/* Tokens [first, end) of the window begin their document at `first`. The window has one
 * token more than there are inputs. */
static void mark_document(struct sample *out, int64_t first, int64_t end, int64_t S)
{
    if (!out->document_start)
        return;
    for (int64_t s = first; s < i64_min(end, S); s++)
        out->document_start[s] = (int32_t)first;
}

static int refuse_damaged_table(const struct sample_index *index, struct error *err)
{
    return error_set(err, ERROR_RUNTIME,
                     "the sample index '%s' was changed while it was in use; remove it "
                     "and start again",
                     index->table.map.path);
}

/* A mapped file is not ours alone: what it says is looked at before it is used. */
static bool find_document(const struct sample_index *index, int64_t entry, int64_t *doc)
{
    const struct sample_table *t = &index->table;
    return entry >= 0 && entry < t->n_documents &&
           index_map_read(&t->map, t->documents + entry, 1, doc) == 0 &&
           *doc >= index->epochs.first_doc && *doc < index->epochs.end_doc;
}

/* Where sample number at_table begins: an entry of the documents, an offset in it. */
static bool find_start(const struct sample_index *index, int64_t at_table,
                       int64_t start[2])
{
    const struct sample_table *t = &index->table;
    int64_t k;
    return index_map_read(&t->map, t->shuffle + at_table, 1, &k) == 0 && k >= 0 &&
           k < t->n_samples && index_map_read(&t->map, t->starts + 2 * k, 2, start) == 0;
}

static int read_packed(const struct sample_index *index, int64_t at_table,
                       struct sample *out, struct error *err)
{
    const struct corpus *corpus = index->epochs.corpus;
    int64_t start[2], doc, at = 0, S = index->epochs.seq_len;
    if (!find_start(index, at_table, start))
        return refuse_damaged_table(index, err);
    int64_t entry = start[0], offset = start[1];
    for (; at < S + 1; entry++, offset = 0) {
        if (!find_document(index, entry, &doc))
            return refuse_damaged_table(index, err);
        int64_t length = corpus_document_tokens(corpus, doc);
        if (offset < 0 || offset > length)
            return refuse_damaged_table(index, err);
        int64_t n = i64_min(S + 1 - at, length - offset);
        if (n > 0 && corpus_read(corpus, doc, offset, n, out->window + at, err))
            return -1;
        mark_document(out, at, at + n, S);
        at += n;
    }
    out->n_real = S + 1;
    return 0;
}

static int read_padded(const struct sample_index *index, int64_t at_table,
                       struct sample *out, struct error *err)
{
    int64_t doc, S = index->epochs.seq_len;
    if (!find_document(index, at_table, &doc))
        return refuse_damaged_table(index, err);
    int64_t n = i64_min(S + 1, corpus_document_tokens(index->epochs.corpus, doc));
    if (corpus_read(index->epochs.corpus, doc, 0, n, out->window, err))
        return -1;
    for (int64_t s = n; s < S + 1; s++)
        out->window[s] = index->pad;
    mark_document(out, 0, S, S);
    out->n_real = n;
    return 0;
}

/* Whether the arithmetic of its epoch and of a table more can be done. */
static bool can_count(const struct sample_index *index, int64_t pos)
{
    const struct sample_epochs *e = &index->epochs;
    int64_t per_table, most = INT64_MAX / 64 / e->seq_len;
    return pos < most &&
           !__builtin_mul_overflow(e->epochs_per_table,
                                   i64_max(e->n_tokens, e->n_documents), &per_table) &&
           per_table < INT64_MAX / 64;
}

int sample_index_read(struct sample_index *index, int64_t pos, struct sample *out,
                      struct error *err)
{
    CHECK(pos >= 0, "position %lld", (long long)pos);
    if (!can_count(index, pos))
        return error_set(err, ERROR_INPUT,
                         "sample %lld is past counting; is the checkpoint that the run "
                         "goes on from damaged?",
                         (long long)pos);
    if (use_table(index, table_of(index, pos), err))
        return -1;
    look_ahead(index, pos);
    pos -= index->table.first_sample;
    return index->epochs.mode == SAMPLES_PADDED ? read_padded(index, pos, out, err)
                                                : read_packed(index, pos, out, err);
}
