/*
 * document_hash - a 64-bit hash of each document's tokens.
 *
 *     hash = XXH64, seed 0, of the token ids as 32-bit little-endian integers
 *
 * The hash depends on the document's content alone, not on its place, its file or the
 * type of the tokens there. Equal documents have equal hashes. docs/data.md describes the
 * rule for other programs: it must never change.
 */
#ifndef DATA_SAMPLES_DOCUMENT_HASH_H
#define DATA_SAMPLES_DOCUMENT_HASH_H

#include "base/base.h"
#include "base/error.h"
#include "data/samples/corpus.h"
#include "data/samples/index_cache.h"

/* hashes[d - first] := the hash of document d, for first <= d < end. Reads the documents
 * on all threads. */
MUST_CHECK int document_hash_range(const struct corpus *c, int64_t first, int64_t end,
                                   uint64_t *hashes, struct error *err);

/* Map the hashes of all documents, 64-bit patterns in document order. They come from
 * `cache_dir` ("" or NULL: .trefoil_cache beside the data), or are made and put there:
 * one process of a machine makes them for all. Release with index_map_close(). */
MUST_CHECK int document_hash_open(struct index_map *map, const struct corpus *c,
                                  const char *cache_dir, struct error *err);

#endif
