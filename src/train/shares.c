#include "train/shares.h"

#include "base/clock.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#define RANKS_EVERY_SECONDS 5.0

enum { RANK_STEP, RANK_WAIT, RANK_RESIDENT, N_RANK_FIGURES };

int shares_open(struct shares *s, struct comm *world, struct error *err)
{
    size_t n = (size_t)comm_size(world);
    *s = (struct shares){.world = world};
    s->bounds = calloc(n + 1, sizeof *s->bounds);
    if (comm_rank(world) == 0) {
        s->gathered = calloc(n * N_RANK_FIGURES, sizeof *s->gathered);
        s->ranks = calloc(1, sizeof *s->ranks);
    }
    if (!s->bounds || (comm_rank(world) == 0 && (!s->gathered || !s->ranks)))
        return error_set(err, ERROR_RUNTIME, "out of memory for the figures of %zu ranks",
                         n);
    for (size_t r = 0; r <= n; r++)
        s->bounds[r] = (int64_t)(r * N_RANK_FIGURES * sizeof *s->gathered);
    return 0;
}

void shares_close(struct shares *s)
{
    free(s->bounds);
    free(s->gathered);
    free(s->ranks);
    *s = (struct shares){0};
}

/* -- the time of a step -------------------------------------------------------------- */

static void count_seconds(struct shares *s)
{
    double now = clock_seconds();
    s->seconds += now - s->mark;
    s->rank_seconds += now - s->mark;
    s->mark = now;
}

void shares_start_step(struct shares *s)
{
    s->is_in_step = true;
    s->mark = clock_seconds();
    s->waited_before = comm_waited(s->world);
}

void shares_end_step(struct shares *s)
{
    count_seconds(s);
    s->rank_waited += comm_waited(s->world) - s->waited_before;
    s->rank_steps++;
    s->is_in_step = false;
}

struct share_span shares_begin(const struct shares *s)
{
    return (struct share_span){clock_seconds(), comm_waited(s->world)};
}

void shares_end(struct shares *s, struct share_span span, enum share what)
{
    if (!s->is_in_step)
        return;
    double waited = comm_waited(s->world) - span.waited;
    s->own[SHARE_WAITING] += waited;
    s->own[what] += clock_seconds() - span.start - waited;
}

/* -- all ranks ----------------------------------------------------------------------- */

void shares_give(struct shares *s, double figures[SHARES_FIGURES])
{
    count_seconds(s);
    memcpy(figures, s->own, sizeof s->own);
    figures[N_SHARES] = s->seconds;
}

void shares_take(struct shares *s, const double sums[SHARES_FIGURES], bool is_logged)
{
    for (int i = 0; i < N_SHARES; i++)
        s->mean[i] = sums[N_SHARES] > 0 ? sums[i] / sums[N_SHARES] : 0;
    if (!is_logged)
        return;
    memset(s->own, 0, sizeof s->own);
    s->seconds = 0;
}

/* -- rank by rank -------------------------------------------------------------------- */

bool shares_ranks_due(const struct shares *s)
{
    return s->told_at == 0 || clock_seconds() - s->told_at >= RANKS_EVERY_SECONDS;
}

int64_t shares_condense(const double *x, int64_t n, int64_t stride, bool is_mean,
                        double *out)
{
    int64_t each = (n + SHARES_MOST_ENTRIES - 1) / SHARES_MOST_ENTRIES;
    for (int64_t first = 0; first < n; first += each) {
        int64_t end = i64_min(first + each, n);
        double sum = 0, most = x[first * stride];
        for (int64_t i = first; i < end; i++) {
            sum += x[i * stride];
            most = x[i * stride] > most ? x[i * stride] : most;
        }
        out[first / each] = is_mean ? sum / (double)(end - first) : most;
    }
    return each;
}

int shares_gather_ranks(struct shares *s, struct error *err)
{
    double steps = (double)i64_max(1, s->rank_steps);
    double mine[N_RANK_FIGURES] = {
        [RANK_STEP] = s->rank_seconds / steps,
        [RANK_WAIT] = s->rank_waited / steps,
        [RANK_RESIDENT] = (double)memory_resident_bytes(),
    };
    s->rank_seconds = s->rank_waited = 0;
    s->rank_steps = 0;
    s->told_at = clock_seconds();
    if (comm_gather_bytes(s->world, mine, s->gathered, s->bounds, 0, err))
        return -1;
    if (comm_rank(s->world) > 0)
        return 0;
    struct shares_ranks *all = s->ranks;
    int64_t n = comm_size(s->world);
    shares_condense(s->gathered + RANK_STEP, n, N_RANK_FIGURES, false, all->step_seconds);
    shares_condense(s->gathered + RANK_WAIT, n, N_RANK_FIGURES, true, all->wait_seconds);
    all->ranks_per_entry = shares_condense(s->gathered + RANK_RESIDENT, n, N_RANK_FIGURES,
                                           false, all->resident_bytes);
    all->n_entries = (n + all->ranks_per_entry - 1) / all->ranks_per_entry;
    return 0;
}
