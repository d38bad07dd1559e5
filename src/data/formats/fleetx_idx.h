/*
 * fleetx_idx - document lengths from FleetX's X_idx.npz (or the old X_ids.npz):
 *
 *     lens  tokens of each sentence (int32 by FleetX; any integers are read)
 *     docs  first sentence of each document, and the number of sentences; without it
 *           every sentence is a document
 */
#ifndef DATA_FORMATS_FLEETX_IDX_H
#define DATA_FORMATS_FLEETX_IDX_H

#include "base/base.h"
#include "base/error.h"
#include "data/formats/npz.h"

struct fleetx_idx {
    int64_t n_documents;
    int64_t n_tokens;
    int64_t *document_ends; // (n_documents) running sum of tokens; owned
};

/* n_tokens, how many ids there are, bounds how many lengths are believed. */
MUST_CHECK int fleetx_idx_read(struct fleetx_idx *idx, const struct npz *archive,
                               int64_t n_tokens, struct error *err);
void fleetx_idx_release(struct fleetx_idx *idx);

#endif
