/*
 * event_record - one record of a file that TensorBoard reads: scalars, texts, histograms,
 * hyper-parameters.
 *
 * A record is its length, the sum of that, a message of protocol buffers, and the sum of
 * it (crc32c, masked). Nothing is allocated but by event_open(). A record too large for
 * its buffer is left out as a whole.
 */
#ifndef TRAIN_EVENT_RECORD_H
#define TRAIN_EVENT_RECORD_H

#include "base/base.h"
#include "base/error.h"

/* -- one record ---------------------------------------------------------------------- */

#define EVENT_BYTES_MOST ((size_t)1 << 20)
#define EVENT_HEAD_BYTES 12 // length, sum
#define EVENT_TAIL_BYTES 4  // sum

struct event_record { // under construction
    uint8_t *bytes;
    size_t n;
    bool is_full;       // it did not fit
    size_t summary;     // where its summary begins; 0: it has none yet
    uint32_t sums[256]; // of crc32c, by byte
};

MUST_CHECK int event_open(struct event_record *e, struct error *err);
void event_close(struct event_record *e); // one of zeros, too

/* crc32c of the n bytes, masked as records have it. */
uint32_t event_sum(const struct event_record *e, const void *bytes, size_t n);

/* Begin a record at the Unix time `wall`. */
void event_begin(struct event_record *e, double wall, int64_t step);
/* What it is: one of the first two, or any number of the others. */
void event_version(struct event_record *e);       // the first of every file
void event_session_start(struct event_record *e); // points of steps from here on are void
void event_scalar(struct event_record *e, const char *tag, float value);
/* Markdown. */
void event_text(struct event_record *e, const char *tag, const char *text, size_t n);
struct event_bucket {
    double left, right, count;
};
void event_histogram(struct event_record *e, const char *tag,
                     const struct event_bucket *rows, int n_rows);
/* Hyper-parameters: a list of them between its begin and its end. */
struct event_hparams { // where its messages begin
    size_t starts[5];
    double start_time;
};
struct event_hparams event_hparams_begin(struct event_record *e, double start_time);
void event_hparam_number(struct event_record *e, const char *key, double value);
void event_hparam_bool(struct event_record *e, const char *key, bool value);
void event_hparam_text(struct event_record *e, const char *key, const char *value);
void event_hparams_end(struct event_record *e, const struct event_hparams *list);
enum event_status { EVENT_SUCCEEDED = 1, EVENT_FAILED = 2 };
void event_session_end(struct event_record *e, enum event_status status, double end_time);
/* Complete it: e->bytes[0, e->n) is the record. False: it did not fit. */
bool event_end(struct event_record *e);

#endif
