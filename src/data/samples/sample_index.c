/*
 * The numbers (how many epochs, how many samples) follow from the lengths; the order
 * itself is in tables, of which the one at hand is open and the next one is being made.
 */
#include "data/samples/sample_index.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "data/samples/np_random.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_SAMPLES 16384   // at least, when an epoch has fewer
#define TABLES_KEPT 8         // files of each part in the cache, those in use besides
#define LEAST_PADDED_TOKENS 2 // an input and its target
#define MOST_DOCUMENTS ((int64_t)1 << 20) // of a table of several epochs
#define LONG_SECONDS 1.0                  // worth a line in the log

/* -- epochs -------------------------------------------------------------------------- */

static bool is_packed(const struct sample_epochs *e)
{
    return e->mode == SAMPLES_PACKED;
}

/* Whether a document is in an epoch at all. */
static bool has_document(const struct sample_epochs *e, int64_t doc)
{
    return corpus_document_tokens(e->corpus, doc) >= e->least_tokens;
}

int64_t sample_epochs_before(const struct sample_epochs *e, int64_t epoch)
{
    int64_t n;
    if (__builtin_mul_overflow(epoch, is_packed(e) ? e->n_tokens : e->n_documents, &n))
        return INT64_MAX;
    return !is_packed(e) || epoch == 0 ? n : (n - 1) / e->seq_len;
}

int64_t sample_epochs_of(const struct sample_epochs *e, int64_t pos)
{
    CHECK(e->n_documents > 0 && e->n_tokens > 0, "an epoch of nothing");
    if (!is_packed(e))
        return pos / e->n_documents;
    // the least epoch whose end, ((epoch + 1) * T - 1) / S, is above pos: the one that
    // the last token of the sample, (pos + 1) * S, lies in
    int64_t last;
    if (__builtin_mul_overflow(pos + 1, e->seq_len, &last))
        last = INT64_MAX;
    return last / e->n_tokens;
}

/* epochs_per_table for tables of about `n_samples`. */
static int64_t choose_table_epochs(const struct sample_epochs *e, int64_t n_samples)
{
    int64_t n;
    if (!is_packed(e))
        return i64_max(1, n_samples / e->n_documents);
    if (__builtin_mul_overflow(n_samples, e->seq_len, &n))
        n = INT64_MAX;
    return i64_max(1, i64_min(n / e->n_tokens, MOST_DOCUMENTS / e->n_documents));
}

static double table_bytes(const struct sample_epochs *e)
{
    double documents = (double)e->epochs_per_table * (double)e->n_documents;
    if (!is_packed(e))
        return 8 * documents;
    double samples =
        (double)e->epochs_per_table * (double)e->n_tokens / (double)e->seq_len;
    double before = // where the first sample begins
        (double)e->seq_len * (double)e->n_documents / (double)e->n_tokens;
    return 8 * (documents + before) + 24 * samples;
}

/* Of what making one takes besides, about. */
static double table_making_bytes(const struct sample_epochs *e)
{
    return is_packed(e) ? 8 * (double)e->n_documents : 0;
}

/* -- tables -------------------------------------------------------------------------- */

struct table_making {
    const struct sample_epochs *e;
    const struct sample_table *t;
    int64_t first_epoch, end_epoch; // of the table
    int64_t *before; // (D) documents of the epoch in which the first sample begins ...
    int64_t before_epoch; // ... when that is an earlier one
    int64_t n_before;     // the last ones of them are in the table
    int64_t offset;       // of the first sample in its first document
};

/* The documents of an epoch, shuffled; `random` goes on to its samples. */
static void shuffle_documents(const struct sample_epochs *e, int64_t epoch,
                              int64_t *documents, struct np_random *random)
{
    int64_t *next = documents;
    for (int64_t r = 0; r < e->split.n_ranges; r++)
        for (int64_t doc = e->split.ranges[r].first; doc < e->split.ranges[r].end; doc++)
            if (has_document(e, doc))
                *next++ = doc;
    np_random_init(random, (uint32_t)(e->seed + epoch));
    np_random_shuffle(random, documents, e->n_documents);
}

/* Where the first sample begins, when that is in an epoch before the table's. */
static int find_beginning(struct table_making *m, struct error *err)
{
    const struct sample_epochs *e = m->e;
    int64_t token = m->t->first_sample * e->seq_len;
    struct np_random random;
    m->before_epoch = token / e->n_tokens;
    if (m->before_epoch == m->first_epoch)
        return 0;
    m->before = malloc((size_t)e->n_documents * sizeof *m->before);
    if (!m->before)
        return error_set(err, ERROR_RUNTIME,
                         "no memory to shuffle %lld documents: %lld MB",
                         (long long)e->n_documents, (long long)(e->n_documents >> 17));
    shuffle_documents(e, m->before_epoch, m->before, &random);
    int64_t entry = 0, length, begin = m->before_epoch * e->n_tokens;
    while (begin + (length = corpus_document_tokens(e->corpus, m->before[entry])) <=
           token) {
        begin += length;
        entry++;
    }
    m->n_before = e->n_documents - entry;
    m->offset = token - begin;
    return 0;
}

static int measure_table(void *context, int64_t *n_values, struct error *err)
{
    struct table_making *m = context;
    const struct sample_epochs *e = m->e;
    if (is_packed(e) && find_beginning(m, err))
        return -1;
    int64_t whole = m->end_epoch - (m->before ? m->before_epoch + 1 : m->first_epoch);
    int64_t n_documents = m->n_before + whole * e->n_documents;
    *n_values = 1 + n_documents + (is_packed(e) ? 3 * m->t->n_samples : 0);
    return 0;
}

static void place_starts(int64_t *starts, const int64_t *documents,
                         const struct table_making *m)
{
    // places count from the first document's first token
    int64_t entry = 0, entry_start = 0, S = m->e->seq_len;
    for (int64_t k = 0; k < m->t->n_samples; k++) {
        int64_t length, at = m->offset + k * S;
        while (entry_start +
                   (length = corpus_document_tokens(m->e->corpus, documents[entry])) <=
               at) {
            entry_start += length;
            entry++;
        }
        starts[2 * k] = entry;
        starts[2 * k + 1] = at - entry_start;
    }
}

static void fill_table(void *context, int64_t *values)
{
    struct table_making *m = context;
    const struct sample_epochs *e = m->e;
    int64_t D = e->n_documents, epoch = m->before ? m->before_epoch + 1 : m->first_epoch;
    double start = clock_seconds();
    values[0] = m->n_before + (m->end_epoch - epoch) * D;
    int64_t *documents = values + 1;
    int64_t *starts = documents + values[0], *shuffle = starts + 2 * m->t->n_samples;
    if (m->before && m->n_before > 0)
        memcpy(documents, m->before + D - m->n_before,
               (size_t)m->n_before * sizeof *documents);
    for (int64_t *at = documents + m->n_before; epoch < m->end_epoch; epoch++, at += D) {
        struct np_random random;
        shuffle_documents(e, epoch, at, &random);
        if (!is_packed(e) || epoch < m->first_epoch)
            continue;
        int64_t first = sample_epochs_before(e, epoch) - m->t->first_sample;
        int64_t end = sample_epochs_before(e, epoch + 1) - m->t->first_sample;
        for (int64_t k = first; k < end; k++)
            shuffle[k] = k;
        np_random_shuffle(&random, shuffle + first, end - first);
    }
    if (is_packed(e))
        place_starts(starts, documents, m);
    if (clock_seconds() - start > LONG_SECONDS)
        log_info("the order of the %lld samples of epochs %lld to %lld made in %.1f s",
                 (long long)m->t->n_samples, (long long)m->first_epoch,
                 (long long)m->end_epoch - 1, clock_seconds() - start);
}

/* Whether the mapped array can be this table; where its arrays begin, if so. */
static bool find_arrays(struct sample_table *t, const struct sample_epochs *e)
{
    int64_t n = t->map.n_values, more = is_packed(e) ? 3 * t->n_samples : 0;
    if (index_map_read(&t->map, 0, 1, &t->n_documents) || t->n_documents < 0 ||
        t->n_documents != n - 1 - more)
        return false;
    t->documents = 1;
    t->starts = t->documents + t->n_documents;
    t->shuffle = t->starts + 2 * t->n_samples;
    return true;
}

/* The table of the epochs from number * epochs_per_table on. `place` has no key yet: `key`
 * is a name of all that the tables depend on. */
static int make_or_map_table(struct sample_table *t, const struct sample_epochs *e,
                             int64_t number, struct index_place place, const char *key,
                             struct error *err)
{
    struct cache_key whole_key;
    struct table_making m = {.e = e,
                             .t = t,
                             .first_epoch = number * e->epochs_per_table,
                             .end_epoch = (number + 1) * e->epochs_per_table};
    *t = (struct sample_table){.map.fd = -1, .number = -1};
    t->first_sample = sample_epochs_before(e, m.first_epoch);
    t->n_samples = sample_epochs_before(e, m.end_epoch) - t->first_sample;
    if (cache_key_init(&whole_key, err))
        return -1;
    cache_key_mix_string(&whole_key, key);
    cache_key_mix_i64(&whole_key, number);
    place.key = &whole_key;
    struct index_maker maker = {
        .context = &m, .measure = measure_table, .fill = fill_table};
    int rc = index_map_open(&t->map, &place, &maker, err);
    cache_key_release(&whole_key);
    free(m.before);
    if (rc == 0 && !find_arrays(t, e)) {
        rc = error_set(err, ERROR_RUNTIME,
                       "the cached index '%s' is no table of samples; remove it",
                       t->map.path);
        index_map_close(&t->map);
    }
    t->number = rc ? -1 : number;
    return rc;
}

static void close_table(struct sample_table *t)
{
    index_map_close(&t->map);
    *t = (struct sample_table){.map.fd = -1, .number = -1};
}

/* -- opening ------------------------------------------------------------------------- */

static int refuse_empty_part(const struct corpus *corpus,
                             const struct sample_index_options *opt, int64_t n_docs,
                             struct error *err)
{
    bool is_by_document = opt->split_by == SPLIT_BY_DOCUMENT;
    return error_set(
        err, ERROR_INPUT,
        "the %s part of '%s' is empty: with dataset.split %g,%g,%g%s it gets "
        "%lld of %lld documents and no tokens%s; %sgive it a larger weight%s, or "
        "prepare the text as more documents",
        split_part_name(opt->part), corpus_input(corpus), opt->split[0], opt->split[1],
        opt->split[2], is_by_document ? " and dataset.split_by document" : "",
        (long long)n_docs, (long long)corpus_n_documents(corpus),
        opt->mode == SAMPLES_PADDED ? " to predict" : "",
        is_by_document ? "set dataset.split_by to contiguous, " : "",
        opt->part == SPLIT_TRAIN ? "" : ", set eval_freq to 0 to do without");
}

static int refuse_too_large(int64_t n_samples, int64_t seq_len, struct error *err)
{
    return error_set(err, ERROR_INPUT,
                     "%lld samples of %lld tokens are more than can be counted; lower "
                     "max_steps or global_batch_size",
                     (long long)n_samples, (long long)seq_len);
}

static int find_epochs(struct sample_epochs *e, const struct corpus *corpus,
                       const struct sample_index_options *opt, struct error *err)
{
    struct split_options split = {
        .by = opt->split_by, .hashes = opt->hashes, .cache_dir = opt->cache_dir};
    bool needs_two = opt->mode == SAMPLES_PADDED && !opt->pad_loss;
    memcpy(split.weights, opt->split, sizeof split.weights);
    *e = (struct sample_epochs){.corpus = corpus,
                                .mode = opt->mode,
                                .seq_len = opt->seq_len,
                                .seed = opt->seed,
                                .least_tokens = needs_two ? LEAST_PADDED_TOKENS : 0};
    if (split_open(&e->split, corpus, &split, opt->part, err))
        return -1;
    e->n_tokens = e->split.n_tokens;
    for (int64_t r = 0; r < e->split.n_ranges; r++)
        for (int64_t doc = e->split.ranges[r].first; doc < e->split.ranges[r].end; doc++)
            e->n_documents += has_document(e, doc);
    if (e->n_tokens == 0 || e->n_documents == 0)
        return refuse_empty_part(corpus, opt, e->split.n_documents, err);
    e->epochs_per_table =
        choose_table_epochs(e, opt->table_samples ? opt->table_samples : TABLE_SAMPLES);
    return 0;
}

/* The epochs that n_samples take, whole. A table more than that can be counted, too. */
int sample_index_need(struct sample_index *index, int64_t n_samples, struct error *err)
{
    const struct sample_epochs *e = &index->epochs;
    int64_t per_epoch = i64_max(e->n_tokens, e->n_documents), last, n;
    if (__builtin_mul_overflow(n_samples, e->seq_len, &n) || n > INT64_MAX / 64)
        return refuse_too_large(n_samples, e->seq_len, err);
    index->n_epochs = sample_epochs_of(e, n_samples - 1) + 1;
    if (__builtin_add_overflow(index->n_epochs, 2 * e->epochs_per_table, &last) ||
        __builtin_mul_overflow(last, per_epoch, &n) || n > INT64_MAX / 64)
        return refuse_too_large(n_samples, e->seq_len, err);
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
    if (opt->pad_loss) // other documents
        cache_key_mix_string(&key, "pad_loss");
    cache_key_mix_i64(&key, index->epochs.epochs_per_table);
    cache_key_mix_i64(&key, opt->seed);
    if (opt->split_by == SPLIT_BY_DOCUMENT) { // contiguous: the weights suffice
        cache_key_mix_string(&key, "document");
        for (int64_t r = 0; r < index->epochs.split.n_ranges; r++) {
            cache_key_mix_i64(&key, index->epochs.split.ranges[r].first);
            cache_key_mix_i64(&key, index->epochs.split.ranges[r].end);
        }
    }
    cache_key_hex(&key, index->key);
    cache_key_release(&key);
    return 0;
}

int sample_index_open(struct sample_index *index, const struct corpus *corpus,
                      const struct sample_index_options *opt, struct error *err)
{
    *index = (struct sample_index){
        .pad = opt->pad, .part = opt->part, .table = {.map.fd = -1, .number = -1}};
    index->end_is_padding = opt->pad_loss ? opt->eos : -1;
    CHECK(opt->seq_len > 0 && opt->n_samples > 0, "S %lld, samples %lld",
          (long long)opt->seq_len, (long long)opt->n_samples);
    if (opt->seed < 0 || opt->seed > UINT32_MAX)
        return error_set(err, ERROR_INPUT, "seed is %lld; it must lie in 0..%u",
                         (long long)opt->seed, UINT32_MAX);
    int rc = -1;
    if (find_epochs(&index->epochs, corpus, opt, err) ||
        sample_index_need(index, opt->n_samples, err) || make_table_key(index, opt, err))
        goto done;
    index->cache_dir =
        strdup(opt->cache_dir && opt->cache_dir[0] ? opt->cache_dir
                                                   : corpus_default_cache_dir(corpus));
    rc = index->cache_dir ? 0 : error_set(err, ERROR_RUNTIME, "out of memory");
done:
    if (rc)
        split_close(&index->epochs.split);
    return rc;
}

/* -- the table at hand, and the next ------------------------------------------------- */

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
    return make_or_map_table(t, &index->epochs, number, place, index->key, err);
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
    if (thread_start(&a->thread, ahead_main, a))
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
        close_table(&a->table);
    free(a);
    index->ahead = NULL;
}

static int use_table(struct sample_index *index, int64_t number, struct error *err)
{
    if (index->table.number == number)
        return 0;
    close_table(&index->table);
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
    close_table(&index->table);
    split_close(&index->epochs.split);
    free(index->cache_dir);
    *index = (struct sample_index){.table = {.map.fd = -1, .number = -1}};
}

double sample_index_bytes(const struct sample_index *index)
{
    bool is_one = table_of(index, index->n_samples - 1) == 0;
    return table_bytes(&index->epochs) * (is_one ? 1 : 2);
}

double sample_index_making_bytes(const struct sample_index *index)
{
    bool is_one = table_of(index, index->n_samples - 1) == 0;
    return is_one ? 0 : table_making_bytes(&index->epochs);
}

double sample_index_list_bytes(const struct sample_index *index)
{
    return (double)index->epochs.split.capacity * sizeof(struct split_range);
}

/* -- reading ------------------------------------------------------------------------- */

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
           split_contains(&index->epochs.split, *doc);
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
    bool is_whole = n > 0 && n == corpus_document_tokens(index->epochs.corpus, doc);
    out->n_real = n - (is_whole && out->window[n - 1] == index->end_is_padding);
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
