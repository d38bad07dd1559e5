/*
 * board - the runs below some directories, read again and again, and what is answered
 * about them.
 *
 * A directory is a run's, or holds directories of runs. Runs have numbers in the order in
 * which they are found, which stay: whoever asks names a run by its number, never by a
 * path.
 *
 * Threads: the functions of one board take turns by themselves. A long file is read in
 * pieces, and requests are answered in between.
 */
#ifndef BOARD_BOARD_H
#define BOARD_BOARD_H

#include "base/base.h"
#include "base/error.h"
#include "board/board_text.h"
#include "board/run.h"

#include <pthread.h>

#define BOARD_RUNS_MOST 256

struct board { // members are the board's own
    pthread_mutex_t mutex;
    struct run *runs[BOARD_RUNS_MOST];
    int64_t n_runs;
    char *const *dirs; // borrowed
    int n_dirs;
    double looked; // clock_seconds() of the last look for new runs
    uint64_t version;
    char *buffer;
};

/* The directories must be there, and `dirs` stays. */
MUST_CHECK int board_init(struct board *b, char *const *dirs, int n_dirs,
                          struct error *err);
void board_release(struct board *b);

/* Read what is new, a piece of each run. True: there is more to read at once. */
bool board_refresh(struct board *b);
/* Grows whenever an answer may be another one. */
uint64_t board_version(struct board *b);

/* -- answers ------------------------------------------------------------------------- */

struct board_request {
    const char *path;
    /* The value of a parameter; NULL: it is not there. */
    const char *(*value)(void *context, const char *name);
    void *context;
};

struct board_answer {
    int status;          // of HTTP
    const char *type;    // of the body; borrowed
    char file_name[320]; // Content-Disposition of what is to be kept; "": none
    struct board_text body;
};

/* What HTTP GET is answered, the page itself apart; the body is to be released. Opens
 * nothing that the request names. */
void board_answer(struct board *b, const struct board_request *request,
                  struct board_answer *answer);

/* [{"run": 0, ...}, ...], as /api/runs. */
void board_write_runs(struct board *b, struct board_text *out);

/* The runs among 0 .. n_runs - 1 that `which` has, as one JSON object: all that the page
 * shows. `which` is of BOARD_RUNS_MOST. */
void board_write_saved(struct board *b, const bool *which, struct board_text *out);

/* The runs as Prometheus reads them; board_prometheus.c. For the answers: the board's turn
 * is the caller's. */
void board_write_prometheus(const struct board *b, struct board_text *out);

#endif
