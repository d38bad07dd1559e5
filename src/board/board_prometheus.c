/*
 * board_prometheus - the runs of the board as Prometheus reads them: /metrics.
 */
#include "board/board.h"
#include "board/run_facts.h"
#include "train/prometheus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double last_of(const struct run *run, enum run_column column)
{
    const struct run_columns *c = &run->steps;
    return c->n_rows > 0 ? run_columns_at(c, c->n_rows - 1, column) : RUN_NONE;
}

static bool is_running(enum run_state state)
{
    return state == RUN_STARTING || state == RUN_TRAINING || state == RUN_EVALUATING ||
           state == RUN_SAVING;
}

/* The figures of ranks as doubles, which the caller frees; NULL: none, or no memory. */
static double *copy_figures(const struct run_moment *m, struct prometheus_run *p)
{
    int64_t n = m->n_entries;
    double *all = n > 0 ? malloc((size_t)(RUN_N_FIGURES * n) * sizeof *all) : NULL;
    if (!all)
        return NULL;
    for (int f = 0; f < RUN_N_FIGURES; f++)
        for (int64_t i = 0; i < n; i++)
            all[f * n + i] = (double)m->figures[f][i];
    p->n_ranks = n;
    p->rank_seconds = all + RUN_STEP_SECONDS * n;
    p->rank_wait = all + RUN_WAIT_SECONDS * n;
    p->rank_resident = all + RUN_RESIDENT * n;
    return all;
}

static void fill(struct prometheus_run *p, const struct run *run, double now)
{
    struct run_facts f;
    const struct run_events *e = &run->events;
    run_facts_of(run, now, &f);
    p->version = run_start_text(e, "version");
    p->layout = run_start_text(e, "layout");
    p->running = is_running(f.state) ? 1 : 0;
    p->step = f.step;
    p->steps_total = f.steps_total;
    p->tokens = f.tokens;
    p->flops = last_of(run, RUN_FLOPS);
    p->loss = f.loss;
    p->eval_loss = f.eval_loss;
    p->grad_norm = last_of(run, RUN_GRAD_NORM);
    p->learning_rate = last_of(run, RUN_LR);
    p->loss_scale = last_of(run, RUN_LOSS_SCALE);
    p->step_seconds = last_of(run, RUN_BATCH_COST);
    p->tokens_per_second = f.tokens_per_second;
    p->mfu = f.mfu;
    p->share_compute = last_of(run, RUN_SHARE_COMPUTE);
    p->share_waiting = last_of(run, RUN_SHARE_WAITING);
    p->share_reader = last_of(run, RUN_SHARE_READER);
    p->share_optimizer = last_of(run, RUN_SHARE_OPTIMIZER);
    p->last_update = run->last_time > 0 ? run->last_time : RUN_NONE;
    p->last_checkpoint = e->last_save_time > 0 ? e->last_save_time : RUN_NONE;
    p->restarts = (double)e->n_restarts;
}

/* Called with the mutex held. Runs are labelled by their directories, of which there is
 * one each. */
static void write_text(const struct prometheus_run *runs, int n, struct board_text *out)
{
    size_t n_bytes = prometheus_text(runs, n, NULL, 0);
    char *text = malloc(n_bytes + 1);
    if (text && prometheus_text(runs, n, text, n_bytes + 1) == n_bytes)
        board_text_add(out, text, n_bytes);
    else
        out->is_broken = true;
    free(text);
}

void board_write_prometheus(const struct board *b, struct board_text *out)
{
    int n = (int)b->n_runs;
    struct prometheus_run *runs = calloc((size_t)n + 1, sizeof *runs);
    double **figures = calloc((size_t)n + 1, sizeof *figures);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (!runs || !figures)
        out->is_broken = true;
    for (int i = 0; !out->is_broken && i < n; i++) {
        const struct run *run = b->runs[i];
        runs[i] = prometheus_run_of(run->dir);
        fill(&runs[i], run, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
        figures[i] = copy_figures(&run->events.last_moment, &runs[i]);
    }
    if (!out->is_broken)
        write_text(runs, n, out);
    for (int i = 0; figures && i < n; i++)
        free(figures[i]);
    free(figures);
    free(runs);
}
