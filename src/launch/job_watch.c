#include "launch/job_watch.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define STACK_SECONDS 0.7 // for ranks to write their stacks before they are killed

int job_watch_open(struct job_watch *w, const char *path, int n_ranks, struct error *err)
{
    *w = (struct job_watch){.hang = {.culprit = -1}, .others = {.fd = -1}};
    if (host_watch_open(&w->here, path, n_ranks, err))
        return -1;
    w->seen = calloc((size_t)n_ranks, sizeof *w->seen);
    w->is_culprit = calloc((size_t)n_ranks, sizeof *w->is_culprit);
    if (w->seen && w->is_culprit)
        return 0;
    job_watch_close(w);
    return error_set(err, ERROR_RUNTIME, "out of memory to watch %d ranks", n_ranks);
}

int job_watch_listen(struct job_watch *w, struct error *err)
{
    return watch_server_open(&w->others, w->here.n_ranks, err);
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
    while (r + 1 < w->here.n_ranks && !w->seen[r].is_seen)
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

/* -- the verdict --------------------------------------------------------------------- */

static bool is_news(const struct hang *before, const struct hang *now)
{
    return now->decision != HANG_NONE &&
           (before->decision != now->decision || before->culprit != now->culprit);
}

/* The stacks are on their way; then everything ends. */
static void finish(struct job_watch *w)
{
    if (w->is_killed || clock_seconds() - w->ended_since < STACK_SECONDS)
        return;
    w->is_killed = true;
    host_watch_kill(&w->here);
}

enum hang_decision job_watch_tick(struct job_watch *w, bool is_stopping,
                                  const char *log_dir)
{
    if (!w->seen)
        return HANG_NONE;
    if (w->ended_since > 0) {
        finish(w);
        return HANG_NONE;
    }
    host_watch_look(&w->here, w->seen);
    watch_server_serve(&w->others, w->seen);
    time_steps(w);
    double here = host_watch_timeout(&w->here);
    struct hang_rule rule = {.hang_timeout = here > 0 ? here : w->others.hang_timeout,
                             .median_step = median_step(w),
                             .is_stopping = is_stopping};
    struct hang before = w->hang;
    w->hang = hang_judge(w->seen, w->here.n_ranks, &rule, w->is_culprit);
    if (!is_news(&before, &w->hang))
        return HANG_NONE;
    if (w->hang.decision == HANG_ENDS) {
        w->ended_since = clock_seconds();
        watch_server_end(&w->others);
        host_watch_stacks(&w->here, w->seen, log_dir);
    }
    return w->hang.decision;
}

char *job_watch_table(const struct job_watch *w)
{
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    if (!out)
        return NULL;
    fprintf(out, "no progress for %.1f s:\n", w->hang.seconds);
    hang_table(out, w->seen, w->here.n_ranks);
    if (fclose(out) == 0) {
        text[n - 1] = '\0'; // the last line's end
        return text;
    }
    free(text);
    return NULL;
}

void job_watch_sentence(const struct job_watch *w, char *buf, size_t size)
{
    hang_sentence(buf, size, w->seen, w->here.n_ranks, &w->hang, w->is_culprit);
}
