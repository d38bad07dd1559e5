#include "data/formats/fleetx_idx.h"

#include <stdlib.h>

/* Documents without a token are counted on top of one for each token. */
#define MOST_EMPTY (1 << 20)

/* *values := the integers of a one-dimensional array (malloc'ed); *n is -1, and *values
 * NULL, when the archive does not have it. */
static int read_array(const struct npz *z, const char *array, int64_t most,
                      int64_t **values, int64_t *n, struct error *err)
{
    struct npz_member m;
    bool is_there;
    *values = NULL;
    *n = -1;
    if (npz_find(z, array, &m, &is_there, err))
        return -1;
    return is_there ? npz_read_numbers(z, &m, most, values, n, err) : 0;
}

/* Lengths -> running sum, in place. */
static int sum_lengths(int64_t *lens, int64_t n, const char *name, struct error *err)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        if (lens[i] < 0 || __builtin_add_overflow(sum, lens[i], &sum))
            return error_set(err, ERROR_INPUT,
                             "'%s[lens]': element %lld is %lld, which is no length", name,
                             (long long)i, (long long)lens[i]);
        lens[i] = sum;
    }
    return 0;
}

/* Sentence boundaries -> running sum of tokens, in place: docs[i] becomes the end of
 * document i, for one element less. */
static int sum_documents(int64_t *docs, int64_t n_docs, const int64_t *sentence_ends,
                         int64_t n_sentences, const char *name, struct error *err)
{
    for (int64_t i = 0; i < n_docs; i++)
        if ((i == 0 && docs[0] != 0) || (i > 0 && docs[i] < docs[i - 1]) ||
            docs[i] > n_sentences || (i == n_docs - 1 && docs[i] != n_sentences))
            return error_set(err, ERROR_INPUT,
                             "'%s[docs]': element %lld is %lld, but boundaries go from 0 "
                             "up to the number of lens, %lld",
                             name, (long long)i, (long long)docs[i],
                             (long long)n_sentences);
    for (int64_t i = 0; i + 1 < n_docs; i++)
        docs[i] = docs[i + 1] == 0 ? 0 : sentence_ends[docs[i + 1] - 1];
    return 0;
}

int fleetx_idx_read(struct fleetx_idx *idx, const struct npz *z, int64_t n_tokens,
                    struct error *err)
{
    int64_t *lens = NULL, *docs = NULL, n_lens, n_docs;
    int rc = -1;
    *idx = (struct fleetx_idx){0};
    if (read_array(z, "lens", n_tokens + MOST_EMPTY, &lens, &n_lens, err) ||
        read_array(z, "docs", n_lens + MOST_EMPTY, &docs, &n_docs, err))
        goto done;
    if (!lens || n_docs == 0) {
        error_set(err, ERROR_INPUT, "'%s' has no %s in it", z->name,
                  lens ? "boundaries in the array docs" : "array lens");
        goto done;
    }
    if (sum_lengths(lens, n_lens, z->name, err) ||
        (docs && sum_documents(docs, n_docs, lens, n_lens, z->name, err)))
        goto done;
    idx->n_tokens = n_lens == 0 ? 0 : lens[n_lens - 1];
    idx->n_documents = docs ? n_docs - 1 : n_lens;
    idx->document_ends = docs ? docs : lens;
    rc = 0;
done:
    if (rc || docs)
        free(lens);
    if (rc)
        free(docs);
    return rc;
}

void fleetx_idx_release(struct fleetx_idx *idx)
{
    free(idx->document_ends);
    *idx = (struct fleetx_idx){0};
}
