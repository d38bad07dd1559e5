/*
 * encode_batch - some text on its way to becoming tokens.
 *
 * A batch is filled by one thread, encoded by another, and read by a third; whoever holds
 * it owns it whole. It is a row of records, each a text that is encoded on its own: a
 * document, a stretch of one, or a line of JSON that has a document in it.
 */
#ifndef DATA_TEXT_ENCODE_BATCH_H
#define DATA_TEXT_ENCODE_BATCH_H

#include "base/base.h"
#include "base/error.h"
#include "text/encoder.h"

enum encode_record_kind {
    RECORD_STRETCH,  // of a document that goes on in the next record
    RECORD_DOCUMENT, // a document, or its last stretch
    RECORD_JSON,     // a line of JSON; encoding makes it one of the others
    RECORD_BLANK,    // nothing at all
    RECORD_BAD,      // a line that is no document
};

struct encode_record {
    enum encode_record_kind kind;
    const char *path; // of its file; borrowed
    int64_t line;     // in the file, for JSON lines
    size_t bytes_end; // in the batch; it begins where the one before ends
    int64_t tokens_end;
    char *reason; // of a bad line, malloc'ed
};

struct encode_batch { // all zero is empty
    char *bytes;
    size_t n_bytes; // the ones after the last record are an open one's
    int64_t bytes_capacity;
    struct encode_record *records;
    int64_t n_records, records_capacity;
    struct token_list tokens;
    int64_t n_encoded; // records whose tokens are there: all, unless encoding failed
    bool is_encoded;
    bool has_failed; // encoding failed, as `failure` says
    struct error failure;
};

/* -- filling ------------------------------------------------------------------------- */

/* Add to the open record. */
MUST_CHECK int encode_batch_append(struct encode_batch *b, const char *bytes, size_t n,
                                   struct error *err);
size_t encode_batch_open_bytes(const struct encode_batch *b);
/* Close the open record after its first n bytes; the rest begins the next one. */
MUST_CHECK int encode_batch_close_record(struct encode_batch *b, size_t n,
                                         enum encode_record_kind kind, const char *path,
                                         int64_t line, struct error *err);
/* Forget the open record, and record a bad line instead. */
MUST_CHECK int encode_batch_bad_line(struct encode_batch *b, const char *path,
                                     int64_t line, const char *reason, struct error *err);
/* Move the open record from one batch to the end of another. */
MUST_CHECK int encode_batch_move_open(struct encode_batch *to, struct encode_batch *from,
                                      struct error *err);

/* -- encoding ------------------------------------------------------------------------ */

/* Encode every record; json_key is for lines of JSON. A failure is stored in the batch,
 * so that it is reported when the batches before it are done. */
void encode_batch_encode(struct encode_batch *b, struct encoder *e, const char *json_key,
                         bool with_special);

/* -- the end ------------------------------------------------------------------------- */

/* Empty again. Keeps its memory unless that is unusually large, which is freed. */
void encode_batch_reset(struct encode_batch *b);
void encode_batch_release(struct encode_batch *b);

#endif
