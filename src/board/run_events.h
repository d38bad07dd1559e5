/*
 * run_events - what a run tells beside its numbers: events, sampled texts, and the figures
 * of its ranks, all of bounded size however many there are.
 *
 * Events and texts are kept as JSON that jansson has read and written: valid, whatever
 * was in the file. The oldest go first. Figures of ranks are thinned: when there are too
 * many, every second one goes, so that those that stay cover the whole run evenly.
 */
#ifndef BOARD_RUN_EVENTS_H
#define BOARD_RUN_EVENTS_H

#include "base/base.h"
#include "board/board_text.h"

#include <jansson.h>

#define RUN_EVENTS_MOST 500
#define RUN_EVENTS_BYTES ((int64_t)2 << 20) // of all events, and of all texts
#define RUN_RANKS_MOST 512                  // moments with figures of ranks
#define RUN_RANK_ENTRIES_MOST 4096          // ranks of one moment
#define RUN_EVENT_NAME_BYTES 32

struct run_ring {                 // the newest JSON texts
    char *texts[RUN_EVENTS_MOST]; // malloc'ed; (first + i) % RUN_EVENTS_MOST
    double steps[RUN_EVENTS_MOST];
    int64_t first, n, n_bytes;
};

enum run_rank_figure { RUN_STEP_SECONDS, RUN_WAIT_SECONDS, RUN_RESIDENT, RUN_N_FIGURES };

struct run_moment {
    double step;
    float *figures[RUN_N_FIGURES]; // (n_entries) each, one allocation
    int64_t n_entries;
};

struct run_events {
    struct run_ring events, samples;
    struct run_moment moments[RUN_RANKS_MOST];
    int64_t n_moments, stride, n_seen; // of `stride` moments one is kept
    struct run_moment last_moment;     // the newest, kept or not: figures are its own
    int64_t ranks_per_entry;
    json_t *start; // the last "start" event; NULL: none
    char
        last_event[RUN_EVENT_NAME_BYTES]; // of those that tell how a run ended or goes on
    double last_event_step;
    char last_error[512];                  // of the last failure
    double last_save_step, last_save_time; // -1: none
    int64_t n_restarts; // start events but the first, or as the last one counts
};

void run_events_init(struct run_events *e);
void run_events_release(struct run_events *e);
/* Take in one line that has an "event" or "ranks". False: it is not JSON. */
bool run_events_add(struct run_events *e, const char *line, size_t n);

/* As JSON: the newest events and the texts, arrays in the order of the file; and
 * {"steps", "step_seconds", ...} of at most n_most moments. */
void run_ring_write(const struct run_ring *ring, struct board_text *out);
void run_ranks_write(const struct run_events *e, int64_t n_most, struct board_text *out);

/* The number at `key` of the last start; NAN: none. */
double run_start_number(const struct run_events *e, const char *key);
/* The text; NULL: none. Borrowed until the next event. */
const char *run_start_text(const struct run_events *e, const char *key);

#endif
