/*
 * trace - what this process did and when, for a Chrome/Perfetto trace.
 *
 * A span has a name, a start, a length and up to three numbers. Spans of the compute
 * track are what the process itself was busy with or waited for, one inside the other;
 * those of the communication track are operations in flight, which overlap, so they are
 * spread over as many lanes as were in use at once.
 *
 * Recording is a store into memory allocated by trace_open(); when that is full, later
 * spans are counted and dropped. A trace of NULL records nothing and costs a comparison.
 *
 *     double start = trace_begin(trace);
 *     ...
 *     trace_end(trace, start, &(struct trace_span){.name = "layer", .args = {{"n", 3}}});
 *
 * Threads: one at a time.
 */
#ifndef BASE_TRACE_H
#define BASE_TRACE_H

#include "base/base.h"
#include "base/error.h"

#define TRACE_ARGS 3

enum trace_track { TRACE_COMPUTE, TRACE_COMM };

struct trace_arg {
    const char *key; // NULL: none, and none after it
    int64_t value;
};

/* Strings are literals: they are kept by address and written as they are. */
struct trace_span {
    const char *name;
    const char *group; // of ranks, for communication; NULL: none
    struct trace_arg args[TRACE_ARGS];
    enum trace_track track;
    double start, seconds; // clock_seconds(); filled by trace_end()
};

struct trace; // opaque

/* A trace of up to n_most spans. trace_close() takes NULL. */
MUST_CHECK int trace_open(struct trace **trace, int64_t n_most, struct error *err);
void trace_close(struct trace *trace);

/* The moment a span starts. */
double trace_begin(const struct trace *trace);
/* The span ends now. */
void trace_end(struct trace *trace, double start, const struct trace_span *span);

int64_t trace_n_spans(const struct trace *trace);
int64_t trace_n_dropped(const struct trace *trace);

/* -- writing ------------------------------------------------------------------------- */

/* How the clock of this process becomes that of the trace: at `moments[i]` it was
 * `ahead[i]` seconds ahead; in between, and beyond, the difference grows evenly. */
struct trace_clock {
    double moments[2], ahead[2];
    double zero; // in the trace's clock: the moment that is written as 0
};
double trace_clock_map(const struct trace_clock *clock, double moment);

/* The spans as elements of a JSON array, each after a comma and a new line: process `pid`
 * called `name`, compute in thread 0, communication in threads 1 and on. *text is
 * malloc'ed, caller frees. Orders the spans by start. */
MUST_CHECK int trace_render(struct trace *trace, int pid, const char *name,
                            const struct trace_clock *clock, char **text, size_t *n,
                            struct error *err);

/* Make a file of texts: one after the other they stand at file + TRACE_TEXT_AT, n bytes
 * in all. The head replaces the first comma. The buffer holds n + TRACE_FRAME_BYTES;
 * returns the file's size. With n 0: a trace of nothing. */
#define TRACE_TEXT_AT 38
#define TRACE_FRAME_BYTES 48
size_t trace_frame(char *file, size_t n);

#endif
