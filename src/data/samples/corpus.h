/*
 * corpus - the documents to train on: one or several datasets as one list.
 *
 * A dataset is a pair of files, Megatron's X.bin + X.idx or FleetX's X_ids.npy +
 * X_idx.npz (or the older single X_ids.npz). `input` names what to open:
 *   - a directory: every dataset in it (not below it), sorted bytewise by prefix; their
 *     documents follow each other in that order;
 *   - a prefix X, of which exactly one format exists;
 *   - either file of a dataset.
 * Several inputs follow each other in the order they are given. A document is what the
 * index file calls one: all its sentences when it was split.
 *
 * Everything that follows from the sizes and the index is checked by corpus_open(); the
 * token ids by corpus_check_tokens(). Tokens are read with pread, so a file that is cut
 * short while it is in use gives an error, not a signal.
 *
 * Threads: after opening, corpus_read() from any number of them.
 */
#ifndef DATA_SAMPLES_CORPUS_H
#define DATA_SAMPLES_CORPUS_H

#include "base/base.h"
#include "base/error.h"

struct corpus; // opaque

#define CORPUS_FINGERPRINT_BYTES 33 // 32 hexadecimal digits and NUL

MUST_CHECK int corpus_open(struct corpus **out, const char *input, struct error *err);
/* The same of n_inputs > 0 inputs, as one list of documents. */
MUST_CHECK int corpus_open_list(struct corpus **out, const char *const *inputs,
                                int64_t n_inputs, struct error *err);
void corpus_close(struct corpus *c); // NULL is fine

/* -- facts (cannot fail) ------------------------------------------------------------- */

int64_t corpus_n_documents(const struct corpus *c);
int64_t corpus_n_tokens(const struct corpus *c);
/* Tokens of document `doc`, 0 <= doc < n_documents. May be 0. */
int64_t corpus_document_tokens(const struct corpus *c, int64_t doc);
/* Tokens of the documents [begin, end). */
int64_t corpus_range_tokens(const struct corpus *c, int64_t begin, int64_t end);
/* What was opened, as it was given; several inputs with commas between them. */
const char *corpus_input(const struct corpus *c);

/* Names the content: 32 hexadecimal digits that depend on the names of the files (without
 * their directory), their sizes and all document lengths, not on time stamps. To be kept
 * with a checkpoint and compared when it is resumed. */
void corpus_fingerprint(const struct corpus *c, char hex[CORPUS_FINGERPRINT_BYTES]);

/* -- end of document ----------------------------------------------------------------- */

/* Reconcile the configured eos_token_id (-1: left empty) with the one in the datasets'
 * X.meta.json, if any. *eos is -1 when neither knows; different values are an error. */
MUST_CHECK int corpus_resolve_eos(const struct corpus *c, int64_t configured,
                                  int64_t *eos, struct error *err);

/* -- tokens -------------------------------------------------------------------------- */

/* Refuse a corpus with a token id outside [0, vocab_size): the error names the file, the
 * position and the id. Reads all tokens once; the largest id is kept in `cache_dir` (""
 * or NULL: .trefoil_cache beside the data), so that later starts need not. From then on
 * corpus_read() refuses such ids, which files that change may have. */
MUST_CHECK int corpus_check_tokens(struct corpus *c, int64_t vocab_size,
                                   const char *cache_dir, struct error *err);

/* tokens[0..n) := the n tokens of `doc` from `offset` on; the range lies in it. */
MUST_CHECK int corpus_read(const struct corpus *c, int64_t doc, int64_t offset, int64_t n,
                           int32_t *tokens, struct error *err);

/* -- for the index cache ------------------------------------------------------------- */

struct cache_key;
/* Mix everything that identifies the files into `key`: their full names, sizes and times
 * of last change, and all document lengths. */
void corpus_mix_key(const struct corpus *c, struct cache_key *key);
/* The directory used for caches when none is configured. */
const char *corpus_default_cache_dir(const struct corpus *c);

#endif
