#include "train/job_trace.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A viewer shows a few million spans; a process alone records no more than 11 MB. */
#define SPANS_OF_JOB ((int64_t)1 << 21)
#define SPANS_OF_RANK ((int64_t)1 << 17)

/* -- clocks -------------------------------------------------------------------------- */

static int send_now(struct comm *c, const void *x, int64_t n, int to, struct error *err)
{
    struct comm_request req;
    comm_send_bytes_start(c, x, n, to, 0, &req);
    return comm_wait(&req, err);
}

static int receive_now(struct comm *c, void *x, int64_t n, int from, struct error *err)
{
    struct comm_request req;
    comm_recv_bytes_start(c, x, n, from, 0, &req);
    return comm_wait(&req, err);
}

#define ROUND_TRIPS 16

/* Rank 0's side: the shortest round trip says how far ahead the clock of `rank` is. */
static int ask_for_time(struct comm *c, int rank, double *ahead, struct error *err)
{
    double shortest = 0;
    for (int i = 0; i < ROUND_TRIPS; i++) {
        double asked = clock_seconds(), theirs;
        if (send_now(c, "", 1, rank, err) ||
            receive_now(c, &theirs, sizeof theirs, rank, err))
            return -1;
        double seconds = clock_seconds() - asked;
        if (i > 0 && seconds >= shortest)
            continue;
        shortest = seconds;
        *ahead = theirs - (asked + seconds / 2);
    }
    return 0;
}

static int tell_time(struct comm *c, struct error *err)
{
    for (int i = 0; i < ROUND_TRIPS; i++) {
        char question;
        if (receive_now(c, &question, 1, 0, err))
            return -1;
        double now = clock_seconds();
        if (send_now(c, &now, sizeof now, 0, err))
            return -1;
    }
    return 0;
}

/* *ahead := how far this clock is ahead of rank 0's. One rank after the other, so that no
 * round trip waits for another. */
static int compare_clocks(struct comm *c, double *ahead, struct error *err)
{
    char host[256];
    *ahead = 0;
    if (comm_local_size(c) == comm_size(c))
        return 0;
    snprintf(host, sizeof host, "%s", comm_host(c));
    if (comm_bcast_bytes(c, host, sizeof host, 0, err))
        return -1;
    for (int r = 1; r < comm_size(c); r++) {
        double of_r = 0;
        if (comm_rank(c) == 0 &&
            (ask_for_time(c, r, &of_r, err) || send_now(c, &of_r, sizeof of_r, r, err)))
            return -1;
        if (comm_rank(c) == r &&
            (tell_time(c, err) || receive_now(c, ahead, sizeof *ahead, 0, err)))
            return -1;
    }
    if (strcmp(host, comm_host(c)) == 0)
        *ahead = 0; // the same clock
    return 0;
}

static int compare_clocks_now(struct job_trace *jt, int which, struct error *err)
{
    jt->clock.moments[which] = clock_seconds();
    return compare_clocks(jt->grid->world, &jt->clock.ahead[which], err);
}

/* -- opening ------------------------------------------------------------------------- */

int job_trace_open(struct job_trace *jt, const char *path, const struct grid *grid,
                   struct error *err)
{
    char empty[TRACE_FRAME_BYTES];
    struct comm *world = grid->world;
    int64_t n_most = i64_min(SPANS_OF_RANK, SPANS_OF_JOB / comm_size(world) + 1);
    *jt = (struct job_trace){.path = path, .grid = grid};
    if (path[0] == 0)
        return 0;
    jt->bounds = malloc((size_t)(comm_size(world) + 1) * sizeof *jt->bounds);
    int rc = jt->bounds ? trace_open(&jt->trace, n_most, err)
                        : error_set(err, ERROR_RUNTIME, "out of memory");
    // it can be written: better known now than at the end
    if (rc == 0 && comm_rank(world) == 0 && !fs_is_stream(path))
        rc = fs_write_output(path, empty, trace_frame(empty, 0), err);
    if (rc)
        error_prefix(err, "trace");
    if (comm_agree(world, rc, err))
        return -1;
    jt->clock.zero = clock_seconds();
    if (comm_bcast_bytes(world, &jt->clock.zero, sizeof jt->clock.zero, 0, err) ||
        compare_clocks_now(jt, 0, err))
        return -1;
    comm_set_trace(world, jt->trace);
    return 0;
}

void job_trace_close(struct job_trace *jt)
{
    if (jt->trace)
        comm_set_trace(jt->grid->world, NULL);
    trace_close(jt->trace);
    free(jt->bounds);
    *jt = (struct job_trace){0};
}

/* -- writing ------------------------------------------------------------------------- */

static int render_spans(struct job_trace *jt, char **text, size_t *n, struct error *err)
{
    char name[128];
    const struct grid_coord *at = &jt->grid->coord;
    int rank = comm_rank(jt->grid->world);
    snprintf(name, sizeof name, "rank %d (dp %d pp %d mp %d)", rank, at->dp, at->pp,
             at->mp);
    if (jt->grid->shape.sharding > 1)
        snprintf(name, sizeof name, "rank %d (dp %d pp %d sharding %d mp %d)", rank,
                 at->dp, at->pp, at->sharding, at->mp);
    return trace_render(jt->trace, rank, name, &jt->clock, text, n, err);
}

/* bounds[r] := where the text of rank r begins among all. [collective] */
static int place_texts(struct comm *world, size_t n_mine, int64_t *bounds,
                       struct error *err)
{
    int size = comm_size(world);
    memset(bounds, 0, (size_t)(size + 1) * sizeof *bounds);
    bounds[comm_rank(world) + 1] = (int64_t)n_mine;
    if (comm_sum_i64(world, bounds, size + 1, err))
        return -1;
    for (int r = 0; r < size; r++)
        bounds[r + 1] += bounds[r];
    return 0;
}

/* Rank 0's *file := memory for all texts. */
static int open_file(struct comm *world, size_t n, char **file, struct error *err)
{
    int rc = 0;
    if (comm_rank(world) == 0 && !(*file = malloc(n + TRACE_FRAME_BYTES)))
        rc = error_set(err, ERROR_RUNTIME,
                       "out of memory for a trace of %zu bytes; trace fewer steps", n);
    return comm_agree(world, rc, err);
}

static int gather_and_write(const struct job_trace *jt, const char *text, size_t n,
                            struct error *err)
{
    struct comm *world = jt->grid->world;
    int64_t *bounds = jt->bounds;
    char *file = NULL;
    if (place_texts(world, n, bounds, err))
        return -1;
    size_t n_all = (size_t)bounds[comm_size(world)];
    int rc = open_file(world, n_all, &file, err);
    if (rc == 0)
        rc = comm_gather_bytes(world, text, file ? file + TRACE_TEXT_AT : NULL, bounds, 0,
                               err);
    if (rc == 0) {
        if (file)
            rc = fs_write_output(jt->path, file, trace_frame(file, n_all), err);
        rc = comm_agree(world, rc, err);
    }
    free(file);
    return rc;
}

static int log_counts(const struct job_trace *jt, struct error *err)
{
    struct comm *world = jt->grid->world;
    int64_t counts[] = {trace_n_spans(jt->trace), trace_n_dropped(jt->trace)};
    if (comm_sum_i64(world, counts, ARRAY_LEN(counts), err))
        return -1;
    log_info("wrote trace '%s': %lld spans of %d rank%s", jt->path, (long long)counts[0],
             comm_size(world), comm_size(world) == 1 ? "" : "s");
    if (counts[1] > 0 && comm_rank(world) == 0)
        log_warning("the trace was full: the last %lld spans of the run are not in it; a "
                    "trace of fewer steps holds them all",
                    (long long)counts[1]);
    return 0;
}

int job_trace_write(struct job_trace *jt, struct error *err)
{
    char *text = NULL;
    size_t n = 0;
    if (!jt->trace)
        return 0;
    struct comm *world = jt->grid->world;
    comm_set_trace(world, NULL);
    if (compare_clocks_now(jt, 1, err))
        return -1;
    int rc = comm_agree(world, render_spans(jt, &text, &n, err), err);
    if (rc == 0)
        rc = gather_and_write(jt, text, n, err);
    if (rc == 0)
        rc = log_counts(jt, err);
    free(text);
    return rc;
}
