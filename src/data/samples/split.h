/*
 * split - the documents of a corpus that belong to one part: train, valid or test.
 *
 * Contiguous (dataset.split_by: contiguous): the documents in their order, divided as
 * FleetX and Megatron do it; each part is one range.
 *
 * By document (dataset.split_by: document): the upper 53 bits of the document's hash
 * (document_hash.h) make a fraction u in [0, 1). With weights a, b, c and the sum
 * s = a + b + c in doubles, the part is train if u < a / s, valid if u < (a + b) / s and
 * test otherwise. The order, the files and the other documents have no influence.
 *
 * Memory: 16 bytes per range. By document, a part of weight w has about w * (1 - w) ranges
 * per document, for example 0.05.
 */
#ifndef DATA_SAMPLES_SPLIT_H
#define DATA_SAMPLES_SPLIT_H

#include "base/base.h"
#include "base/error.h"
#include "config/config.h"
#include "data/samples/corpus.h"
#include "data/samples/index_cache.h"

#define SPLIT_PARTS 3

enum split_part { SPLIT_TRAIN, SPLIT_VALID, SPLIT_TEST };

/* "train", "valid", "test". */
const char *split_part_name(enum split_part part);

/* Contiguous: part p is [bounds[p], bounds[p+1]). Weights are normalised, each part gets
 * round(w * n) documents (halves to even), and what rounding gave too much or too little is
 * taken from every boundary; where that would put one before document 0, it is 0 here.
 * Weights must be finite, not negative, and not all zero. */
MUST_CHECK int split_documents(const double weights[SPLIT_PARTS], int64_t n_documents,
                               int64_t bounds[SPLIT_PARTS + 1], struct error *err);

/* By document: the part of a document with this hash. Weights as above. */
enum split_part split_part_of(const double weights[SPLIT_PARTS], uint64_t hash);

struct split_options {
    double weights[SPLIT_PARTS]; // of train, valid, test
    enum config_split_by by;
    const struct index_map *hashes; // by document_hash_open(); NULL: it is called here
    const char *cache_dir; // for that; "" or NULL: .trefoil_cache beside the data
};

struct split_range {
    int64_t first, end; // documents, first < end
};

struct split {                  // read-only outside of split.c
    struct split_range *ranges; // ascending, not adjacent
    int64_t n_ranges, capacity;
    int64_t n_documents; // of all ranges
    int64_t n_tokens;
};

/* Find the documents of a part, which may be none. By document, all tokens are read unless
 * their hashes are in the cache. */
MUST_CHECK int split_open(struct split *s, const struct corpus *c,
                          const struct split_options *opt, enum split_part part,
                          struct error *err);
void split_close(struct split *s); // a struct of zeros is fine

/* Whether document `doc` belongs to the part; any number is fine. */
bool split_contains(const struct split *s, int64_t doc);

/* n_tokens[p] := tokens of part p. By document, the documents are read; the cache is not
 * used. */
MUST_CHECK int split_count_tokens(const struct corpus *c, const struct split_options *opt,
                                  int64_t n_tokens[SPLIT_PARTS], struct error *err);

#endif
