#include "data/samples/sample_table.h"

#include "base/clock.h"
#include "base/log.h"
#include "data/samples/np_random.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_PADDED_TOKENS 2             // an input and its target
#define MOST_DOCUMENTS ((int64_t)1 << 20) // of a table of several epochs
#define LONG_SECONDS 1.0                  // worth a line in the log

/* -- arithmetic --------------------------------------------------------------------- */

static bool is_packed(const struct sample_epochs *e)
{
    return e->mode == SAMPLES_PACKED;
}

bool sample_epochs_has(const struct sample_epochs *e, int64_t doc)
{
    return is_packed(e) || corpus_document_tokens(e->corpus, doc) >= LEAST_PADDED_TOKENS;
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
    if (!is_packed(e))
        return pos / e->n_documents;
    // the least epoch whose end, ((epoch + 1) * T - 1) / S, is above pos: the one that
    // the last token of the sample, (pos + 1) * S, lies in
    int64_t last;
    if (__builtin_mul_overflow(pos + 1, e->seq_len, &last))
        last = INT64_MAX;
    return last / e->n_tokens;
}

int64_t sample_table_epochs(const struct sample_epochs *e, int64_t n_samples)
{
    int64_t n;
    if (!is_packed(e))
        return i64_max(1, n_samples / e->n_documents);
    if (__builtin_mul_overflow(n_samples, e->seq_len, &n))
        n = INT64_MAX;
    return i64_max(1, i64_min(n / e->n_tokens, MOST_DOCUMENTS / e->n_documents));
}

double sample_table_bytes(const struct sample_epochs *e)
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

double sample_table_making_bytes(const struct sample_epochs *e)
{
    return is_packed(e) ? 8 * (double)e->n_documents : 0;
}

/* -- making ------------------------------------------------------------------------- */

struct making {
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
    for (int64_t doc = e->first_doc; doc < e->end_doc; doc++)
        if (sample_epochs_has(e, doc))
            *next++ = doc;
    np_random_init(random, (uint32_t)(e->seed + epoch));
    np_random_shuffle(random, documents, e->n_documents);
}

/* Where the first sample begins, when that is in an epoch before the table's. */
static int find_beginning(struct making *m, struct error *err)
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
    struct making *m = context;
    const struct sample_epochs *e = m->e;
    if (is_packed(e) && find_beginning(m, err))
        return -1;
    int64_t whole = m->end_epoch - (m->before ? m->before_epoch + 1 : m->first_epoch);
    int64_t n_documents = m->n_before + whole * e->n_documents;
    *n_values = 1 + n_documents + (is_packed(e) ? 3 * m->t->n_samples : 0);
    return 0;
}

static void place_starts(int64_t *starts, const int64_t *documents,
                         const struct making *m)
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
    struct making *m = context;
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

/* -- opening ------------------------------------------------------------------------ */

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

int sample_table_open(struct sample_table *t, const struct sample_epochs *e,
                      int64_t number, struct index_place place, const char *key,
                      struct error *err)
{
    struct cache_key whole_key;
    struct making m = {.e = e,
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

void sample_table_close(struct sample_table *t)
{
    index_map_close(&t->map);
    *t = (struct sample_table){.map.fd = -1, .number = -1};
}
