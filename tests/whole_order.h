/*
 * whole_order - the samples of a whole run listed at once: what the tables of a few
 * epochs must give, whatever their sizes, and what a blend must deal, from wherever.
 */
#ifndef TESTS_WHOLE_ORDER_H
#define TESTS_WHOLE_ORDER_H

#include "data/samples/np_random.h"
#include "data/samples/sample_index.h"

#include "test.h"

struct whole_order {
    int64_t n_epochs, n_samples, n_documents;
    int64_t *documents; // (n_documents)
    int64_t *starts;    // (n_samples, 2)
    int64_t *shuffle;   // (n_samples)
};

static inline int64_t whole_before(const struct sample_epochs *e, int64_t epoch)
{
    if (e->mode == SAMPLES_PADDED)
        return epoch * e->n_documents;
    return epoch == 0 ? 0 : (epoch * e->n_tokens - 1) / e->seq_len;
}

static inline void whole_shuffle(struct whole_order *w, const struct sample_epochs *e,
                                 int64_t epoch)
{
    struct np_random random;
    int64_t *next = w->documents + epoch * e->n_documents;
    for (int64_t doc = 0; doc < corpus_n_documents(e->corpus); doc++)
        if (split_contains(&e->split, doc) &&
            corpus_document_tokens(e->corpus, doc) >= e->least_tokens)
            *next++ = doc;
    np_random_init(&random, (uint32_t)(e->seed + epoch));
    np_random_shuffle(&random, w->documents + epoch * e->n_documents, e->n_documents);
    if (e->mode == SAMPLES_PADDED)
        return;
    int64_t first = whole_before(e, epoch), end = whole_before(e, epoch + 1);
    for (int64_t k = first; k < end; k++)
        w->shuffle[k] = k;
    np_random_shuffle(&random, w->shuffle + first, end - first);
}

static inline void whole_starts(struct whole_order *w, const struct sample_epochs *e)
{
    int64_t entry = 0, entry_start = 0;
    for (int64_t k = 0; k < w->n_samples; k++) {
        int64_t length;
        while (entry_start +
                   (length = corpus_document_tokens(e->corpus, w->documents[entry])) <=
               k * e->seq_len) {
            entry_start += length;
            entry++;
        }
        w->starts[2 * k] = entry;
        w->starts[2 * k + 1] = k * e->seq_len - entry_start;
    }
}

/* The epochs that at least n_samples take. */
static inline struct whole_order whole_order_make(const struct sample_epochs *e,
                                                  int64_t n_samples)
{
    struct whole_order w = {.n_epochs = 1};
    while (whole_before(e, w.n_epochs) < n_samples)
        w.n_epochs++;
    w.n_samples = whole_before(e, w.n_epochs);
    w.n_documents = w.n_epochs * e->n_documents;
    w.documents = calloc((size_t)w.n_documents + 1, sizeof *w.documents);
    w.starts = calloc((size_t)w.n_samples + 1, 2 * sizeof *w.starts);
    w.shuffle = calloc((size_t)w.n_samples + 1, sizeof *w.shuffle);
    for (int64_t epoch = 0; epoch < w.n_epochs; epoch++)
        whole_shuffle(&w, e, epoch);
    if (e->mode == SAMPLES_PACKED)
        whole_starts(&w, e);
    return w;
}

static inline void whole_order_release(struct whole_order *w)
{
    free(w->documents);
    free(w->starts);
    free(w->shuffle);
}

/* The tokens that the window at `pos` begins with, and how many they are. */
static inline int64_t whole_window(const struct whole_order *w,
                                   const struct sample_epochs *e, int64_t pos,
                                   int32_t *window)
{
    struct error err;
    bool is_packed = e->mode == SAMPLES_PACKED;
    int64_t entry = is_packed ? w->starts[2 * w->shuffle[pos]] : pos, n_window = 0;
    int64_t offset = is_packed ? w->starts[2 * w->shuffle[pos] + 1] : 0;
    for (; n_window < e->seq_len + 1; entry++, offset = 0) {
        int64_t doc = w->documents[entry];
        int64_t n = i64_min(e->seq_len + 1 - n_window,
                            corpus_document_tokens(e->corpus, doc) - offset);
        if (n > 0)
            assert_ok(corpus_read(e->corpus, doc, offset, n, window + n_window, &err),
                      err);
        n_window += n;
        if (!is_packed)
            break;
    }
    return n_window;
}

#endif
