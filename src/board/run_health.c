#include "board/run_facts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POINTS_LEAST 12   // logged losses before anything is said
#define RECENT 200        // that are looked at
#define TREND_PART 5      // of the run: its last fifth, in which a trend is looked for
#define SPIKE_POINTS 24   // in which a spike counts as now
#define SPIKE_SPREADS 8.0 // above the middle, by the usual distance from it
#define SPIKE_PART 0.1    // and by this part of the middle
#define FLAT_PART 0.001   // a fall of less, from one half to the other, is none
#define FLAT_SPREADS 0.1  // nor is one below this part of the usual distance
#define ABOVE_PART 0.02   // above where the run began, beside the usual distance
#define SHARES_POINTS 50  // logged steps over which shares are averaged
#define BUSY_SHARE 0.1    // a share from which on it is worth naming

const char *run_health_name(enum run_health health)
{
    static const char *const names[RUN_N_HEALTHS] = {"unknown", "healthy", "flat",
                                                     "spiking", "diverged"};
    return names[health];
}

/* -- the loss ------------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double middle_of(const double *values, int64_t n)
{
    double sorted[RECENT];
    CHECK(n > 0 && n <= RECENT, "%lld values", (long long)n);
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

/* The usual distance from the middle. */
static double spread_of(const double *values, int64_t n, double middle)
{
    double distances[RECENT];
    for (int64_t i = 0; i < n; i++)
        distances[i] = fabs(values[i] - middle);
    return middle_of(distances, n);
}

struct losses {
    double recent[RECENT]; // in order, finite ones
    double steps[RECENT];
    int64_t n;
    int64_t n_lost; // not finite, among the last ones
    bool is_lost;   // the last one is
    double first;   // middle of the first logged ones of the run
};

static void gather(const struct run_columns *c, struct losses *l)
{
    double early[POINTS_LEAST];
    int64_t n_early = 0;
    *l = (struct losses){.first = RUN_NONE};
    for (int64_t i = i64_max(0, c->n_rows - RECENT); i < c->n_rows; i++) {
        double loss = run_columns_at(c, i, RUN_LOSS);
        l->is_lost = !isfinite(loss);
        l->n_lost += l->is_lost;
        if (l->is_lost)
            continue;
        l->steps[l->n] = run_columns_at(c, i, RUN_STEP);
        l->recent[l->n++] = loss;
    }
    for (int64_t i = 0; i < c->n_rows && i < POINTS_LEAST; i++)
        if (isfinite(run_columns_at(c, i, RUN_LOSS)))
            early[n_early++] = run_columns_at(c, i, RUN_LOSS);
    if (n_early > 0)
        l->first = middle_of(early, n_early);
}

/* The last loss that stands out above those around it, if it is a recent one; -1. */
static int64_t find_spike(const struct losses *l, double middle, double spread)
{
    double bound = middle + fmax(SPIKE_SPREADS * spread, SPIKE_PART * fabs(middle));
    for (int64_t i = l->n - 1; i >= i64_max(0, l->n - SPIKE_POINTS); i--)
        if (l->recent[i] > bound)
            return i;
    return -1;
}

/* Middles of RECENT parts of the last fifth of the run, or its last points as they are
 * where these are fewer. Their number. */
static int64_t gather_trend(const struct run_columns *c, double *trend, double *n_steps)
{
    int64_t n_rows = i64_max(c->n_rows / TREND_PART, i64_min(c->n_rows, RECENT));
    int64_t first = c->n_rows - n_rows, n = 0, each = (n_rows + RECENT - 1) / RECENT;
    for (int64_t row = first; row < c->n_rows; row += each) {
        double sum = 0;
        int64_t n_here = 0;
        for (int64_t i = row; i < i64_min(row + each, c->n_rows); i++)
            if (isfinite(run_columns_at(c, i, RUN_LOSS))) {
                sum += run_columns_at(c, i, RUN_LOSS);
                n_here++;
            }
        if (n_here > 0)
            trend[n++] = sum / (double)n_here;
    }
    *n_steps =
        run_columns_at(c, c->n_rows - 1, RUN_STEP) - run_columns_at(c, first, RUN_STEP);
    return n;
}

/* Is the second half of the trend lower than the first? */
static void judge_slope(const struct run_columns *c, struct run_facts *facts)
{
    double trend[RECENT], steps;
    int64_t n = gather_trend(c, trend, &steps), half = n / 2;
    double before = middle_of(trend, half), after = middle_of(trend + half, n - half);
    double spread = spread_of(trend, n, middle_of(trend, n));
    if (before - after < fmax(FLAT_PART * fabs(before), FLAT_SPREADS * spread)) {
        facts->health = RUN_FLAT;
        snprintf(facts->health_text, sizeof facts->health_text,
                 "flat: from %.4g to %.4g over the last %.0f steps", before, after,
                 steps);
        return;
    }
    facts->health = RUN_HEALTHY;
    snprintf(facts->health_text, sizeof facts->health_text,
             "healthy: fell from %.4g to %.4g over the last %.0f steps", before, after,
             steps);
}

void run_health_of(const struct run *run, struct run_facts *facts)
{
    struct losses l;
    size_t size = sizeof facts->health_text;
    gather(&run->steps, &l);
    if (l.is_lost) {
        facts->health = RUN_DIVERGED;
        snprintf(facts->health_text, size,
                 "diverged: the loss is not a finite number since %lld logged step%s",
                 (long long)l.n_lost, l.n_lost == 1 ? "" : "s");
        return;
    }
    if (l.n < POINTS_LEAST) {
        snprintf(facts->health_text, size, "too few logged steps to judge: %lld of %d",
                 (long long)l.n, POINTS_LEAST);
        return;
    }
    double middle = middle_of(l.recent, l.n), spread = spread_of(l.recent, l.n, middle);
    int64_t n_last = i64_min(l.n, POINTS_LEAST);
    double last = middle_of(l.recent + l.n - n_last, n_last);
    double noise = spread_of(l.recent + l.n - n_last, n_last, last);
    if (last > l.first + ABOVE_PART * fabs(l.first) + noise &&
        run->steps.n_rows > 2 * POINTS_LEAST) {
        facts->health = RUN_DIVERGED;
        snprintf(facts->health_text, size,
                 "diverged: %.4g now, and %.4g when the run began", last, l.first);
        return;
    }
    int64_t spike = find_spike(&l, middle, spread);
    if (spike >= 0) {
        facts->health = RUN_SPIKING;
        snprintf(facts->health_text, size,
                 "spiking: %.4g at step %.0f, where %.4g is usual", l.recent[spike],
                 l.steps[spike], middle);
        return;
    }
    judge_slope(&run->steps, facts);
}

/* -- what limits it ------------------------------------------------------------------ */

/* Mean over the last logged steps; NAN: no step has it. */
static double recent_mean(const struct run_columns *c, enum run_column column)
{
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = i64_max(0, c->n_rows - SHARES_POINTS); i < c->n_rows; i++) {
        double x = run_columns_at(c, i, column);
        if (isfinite(x)) {
            sum += x;
            n++;
        }
    }
    return n > 0 ? sum / (double)n : RUN_NONE;
}

/* The rank that the others wait for: it is slower than the middle of them, and waits
 * least. -1: none stands out. */
static int64_t find_straggler(const struct run_moment *m)
{
    int64_t slowest = -1;
    double sum = 0, most = 0;
    for (int64_t i = 0; i < m->n_entries; i++) {
        double busy =
            (double)(m->figures[RUN_STEP_SECONDS][i] - m->figures[RUN_WAIT_SECONDS][i]);
        if (!isfinite(busy))
            return -1;
        sum += busy;
        if (busy > most) {
            most = busy;
            slowest = i;
        }
    }
    double mean = m->n_entries > 1 ? (sum - most) / (double)(m->n_entries - 1) : most;
    return most > 1.25 * mean ? slowest : -1;
}

static void tell_waiting(const struct run *run, double waiting, struct run_facts *facts)
{
    int64_t straggler = find_straggler(&run->events.last_moment);
    int n = snprintf(facts->limit, sizeof facts->limit,
                     "Waiting for other processes: %.0f %% of each step's time",
                     100 * waiting);
    if (straggler >= 0)
        snprintf(facts->limit + n, sizeof facts->limit - (size_t)n,
                 "; %s %lld computes longer than the others",
                 run->events.ranks_per_entry > 1 ? "group of ranks" : "rank",
                 (long long)straggler);
}

void run_limit_of(const struct run *run, struct run_facts *facts)
{
    const struct run_columns *c = &run->steps;
    double reader = recent_mean(c, RUN_SHARE_READER);
    double waiting = recent_mean(c, RUN_SHARE_WAITING);
    double compute = recent_mean(c, RUN_SHARE_COMPUTE);
    double optimizer = recent_mean(c, RUN_SHARE_OPTIMIZER);
    double mfu = recent_mean(c, RUN_MFU);
    size_t size = sizeof facts->limit;
    if (isnan(reader))
        reader = recent_mean(c, RUN_READER_COST) / recent_mean(c, RUN_BATCH_COST);
    if (reader >= BUSY_SHARE && !(waiting > reader)) {
        snprintf(
            facts->limit, size,
            "Reading data: %.0f %% of each step's time is spent waiting for the next "
            "batch",
            100 * reader);
    } else if (waiting >= BUSY_SHARE && !(waiting < optimizer)) {
        tell_waiting(run, waiting, facts);
    } else if (optimizer >= 2 * BUSY_SHARE) {
        snprintf(facts->limit, size,
                 "Memory bandwidth: %.0f %% of each step's time goes to the optimizer; "
                 "more samples a step would make it smaller",
                 100 * optimizer);
    } else if (isfinite(compute)) {
        int n = snprintf(facts->limit, size,
                         "Arithmetic: %.0f %% of each step's time is computation",
                         100 * compute);
        if (isfinite(mfu))
            snprintf(facts->limit + n, size - (size_t)n,
                     ", at %.0f %% of the rate of products that this machine reached",
                     100 * mfu);
    } else if (isfinite(reader)) {
        snprintf(facts->limit, size,
                 "Arithmetic: only %.1f %% of each step's time is spent reading data",
                 100 * reader);
    }
}
