#include "launch/job_watch.h"

#include "base/clock.h"
#include "base/log.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define STACK_SECONDS 0.7 // for ranks to write their stacks before they are killed

int job_watch_open(struct job_watch *w, const char *path, int n_ranks, struct error *err)
{
    *w = (struct job_watch){
        .n_ranks = n_ranks, .hang = {.culprit = -1}, .others = {.fd = -1}};
    beat_sweep();
    if (host_watch_open(&w->here, path, n_ranks, err))
        return -1;
    w->seen = calloc((size_t)n_ranks, sizeof *w->seen);
    w->is_culprit = calloc((size_t)n_ranks, sizeof *w->is_culprit);
    if (w->seen && w->is_culprit)
        return 0;
    job_watch_close(w);
    return error_set(err, ERROR_RUNTIME, "out of memory to watch %d ranks", n_ranks);
}

void job_watch_listen(struct job_watch *w, char contact[WATCH_CONTACT_BYTES])
{
    struct error err;
    if (watch_server_open(&w->others, w->n_ranks, &err))
        log_warning("ranks of other hosts are not watched: %s", err.text);
    watch_server_contact(&w->others, contact);
}

void job_watch_close(struct job_watch *w)
{
    watch_server_close(&w->others);
    host_watch_close(&w->here);
    free(w->seen);
    free(w->is_culprit);
    *w = (struct job_watch){0};
}

/* -- steps --------------------------------------------------------------------------- */

static int compare_seconds(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median_step(const struct job_watch *w)
{
    double sorted[JOB_WATCH_STEPS];
    size_t n = (size_t)i64_min(w->n_timed, JOB_WATCH_STEPS);
    if (n == 0)
        return 0;
    memcpy(sorted, w->steps, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_seconds);
    return sorted[n / 2];
}

/* Ranks are never further apart than a step: one of them tells for all. */
static void time_steps(struct job_watch *w)
{
    int r = 0;
    while (r + 1 < w->n_ranks && !w->seen[r].is_seen)
        r++;
    int64_t n = w->seen[r].n_steps;
    double now = clock_seconds();
    if (n == w->n_steps)
        return;
    if (w->step_since > 0 && n > w->n_steps) // of a rank that is heard of later: not
        w->steps[w->n_timed++ % JOB_WATCH_STEPS] =
            (now - w->step_since) / (double)(n - w->n_steps);
    w->n_steps = n;
    w->step_since = now;
}

/* -- what is seen -------------------------------------------------------------------- */

void job_watch_look(struct job_watch *w, int stop_signal)
{
    int n_seen = 0;
    enum watch_order order = w->is_ended   ? WATCH_END
                             : stop_signal ? WATCH_STOP
                                           : WATCH_ON;
    host_watch_look(&w->here, w->seen);
    watch_server_serve(&w->others, order, w->seen);
    for (int r = 0; r < w->n_ranks; r++)
        n_seen += w->seen[r].is_seen;
    if (n_seen > w->n_seen)
        w->begun_at = clock_seconds();
    w->n_seen = n_seen;
    time_steps(w);
    if (stop_signal) // in a rank SIGUSR1 is MPICH's
        host_watch_ask_to_stop(&w->here, stop_signal == SIGUSR1 ? SIGTERM : stop_signal);
}

/* When this rank failed; 0: it did not, as far as is known. */
static int64_t failure_time(const struct seen_rank *r)
{
    bool failed = r->state == BEAT_CRASHED || (r->state == BEAT_FAILED && r->reason) ||
                  (r->state == BEAT_ALIVE && r->condition == RANK_GONE);
    return r->is_seen && failed ? r->said_ns : 0;
}

int job_watch_first_failure(const struct seen_rank *seen, int n_ranks)
{
    int first = -1;
    for (int r = 0; r < n_ranks; r++) {
        int64_t t = failure_time(&seen[r]);
        if (t > 0 && (first < 0 || t < failure_time(&seen[first])))
            first = r;
    }
    return first;
}

int job_watch_first_unfinished(const struct seen_rank *seen, int n_ranks)
{
    for (int r = 0; r < n_ranks; r++)
        if (!seen[r].is_seen || seen[r].state != BEAT_ENDED)
            return r;
    return -1;
}

/* -- hangs --------------------------------------------------------------------------- */

void job_watch_kill(struct job_watch *w)
{
    w->is_ended = true;
    host_watch_kill(&w->here);
}

static char *make_table(const struct job_watch *w)
{
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    if (!out)
        return NULL;
    fprintf(out, "no progress for %.1f s:\n", w->hang.seconds);
    hang_table(out, w->seen, w->n_ranks);
    if (fclose(out) == 0) {
        text[n - 1] = '\0'; // the last line's end
        return text;
    }
    free(text);
    return NULL;
}

enum hang_decision job_watch_judge(struct job_watch *w, bool is_stopping, char **table,
                                   char *who, size_t size)
{
    if (w->ended_since > 0) { // the stacks are on their way; then everything ends
        if (clock_seconds() - w->ended_since > STACK_SECONDS)
            job_watch_kill(w);
        return HANG_NONE;
    }
    double here = host_watch_timeout(&w->here);
    struct hang_rule rule = {.hang_timeout = here > 0 ? here : w->others.hang_timeout,
                             .median_step = median_step(w),
                             .is_stopping = is_stopping};
    struct hang before = w->hang;
    w->hang = hang_judge(w->seen, w->n_ranks, &rule, w->is_culprit);
    if (w->hang.decision == HANG_NONE ||
        (before.decision == w->hang.decision && before.culprit == w->hang.culprit))
        return HANG_NONE; // no news
    if (w->hang.decision == HANG_ENDS) {
        w->ended_since = clock_seconds();
        w->is_ended = true;
        host_watch_stacks(&w->here, w->seen);
    }
    *table = make_table(w);
    hang_sentence(who, size, w->seen, w->n_ranks, &w->hang, w->is_culprit);
    return w->hang.decision;
}
