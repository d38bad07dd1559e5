/*
 * Does a layout fit a number of processes, and if not, which ones do?
 *
 * Layouts of n processes are the ordered factorizations of n into four degrees. They are
 * ranked by how far each degree is from the one asked for, in powers of two; dp counts
 * half, because it is the degree that people change first.
 */
#include "comm/grid.h"

#include <math.h>
#include <stdio.h>

#define N_SUGGESTED 4
#define N_CONSIDERED 64 // of which those that suit are suggested

static const struct {
    const char *name; // in sentences
    const char *key;  // in configurations
    size_t member;
    double weight; // of a change
} axes[] = {
    {"dp", "dp_degree", offsetof(struct grid_shape, dp), 0.5},
    {"pp", "pp_degree", offsetof(struct grid_shape, pp), 1},
    {"sharding", "sharding_degree", offsetof(struct grid_shape, sharding), 1},
    {"mp", "mp_degree", offsetof(struct grid_shape, mp), 1},
};

static int degree_of(const struct grid_shape *shape, size_t axis)
{
    return *(const int *)(const void *)((const char *)shape + axes[axis].member);
}

/* -- texts --------------------------------------------------------------------------- */

/* Append to a text of text_bytes, cutting what does not fit. */
static void append(char *text, size_t text_bytes, size_t *used, const char *separator,
                   const char *more)
{
    int n =
        snprintf(text + *used, text_bytes - *used, "%s%s", *used ? separator : "", more);
    *used += (size_t)i64_min(n, (int64_t)(text_bytes - *used) - 1);
}

void grid_describe(const struct grid_shape *shape, char *text, size_t text_bytes)
{
    size_t used = 0;
    char degree[64];
    snprintf(text, text_bytes, "dp 1");
    for (size_t i = 0; i < ARRAY_LEN(axes); i++) {
        if (degree_of(shape, i) == 1)
            continue;
        snprintf(degree, sizeof degree, "%s %d", axes[i].name, degree_of(shape, i));
        append(text, text_bytes, &used, " x ", degree);
    }
}

/* -- the nearest layouts ------------------------------------------------------------- */

struct candidate {
    double distance;
    struct grid_shape shape;
};

struct candidates { // the n nearest so far, nearest first
    const struct grid_shape *wanted;
    struct candidate list[N_CONSIDERED];
    int n;
};

static double distance_between(const struct grid_shape *a, const struct grid_shape *b)
{
    double sum = 0;
    for (size_t i = 0; i < ARRAY_LEN(axes); i++)
        sum += axes[i].weight * fabs(log2(degree_of(a, i)) - log2(degree_of(b, i)));
    return sum;
}

static void candidates_offer(struct candidates *best, struct grid_shape shape)
{
    struct candidate new = {distance_between(best->wanted, &shape), shape};
    int at = best->n;
    while (at > 0 && new.distance < best->list[at - 1].distance - 1e-9) // rounding
        at--;
    if (at == N_CONSIDERED)
        return;
    best->n = (int)i64_min(best->n + 1, N_CONSIDERED);
    for (int i = best->n - 1; i > at; i--)
        best->list[i] = best->list[i - 1];
    best->list[at] = new;
}

#define N_PROCESSES_MOST (1 << 20) // that suggestions are made for
#define N_DIVISORS_MOST 240        // of any number up to that

/* The divisors of n in ascending order; returns how many. */
static int divisors_of(int n, int *divisors)
{
    int n_small = 0, n_all = 0;
    for (int d = 1; (int64_t)d * d <= n; d++)
        if (n % d == 0)
            divisors[n_small++] = d;
    n_all = n_small;
    for (int i = n_small - 1; i >= 0; i--)
        if (n / divisors[i] != divisors[i])
            divisors[n_all++] = n / divisors[i];
    return n_all;
}

static void find_nearest(struct candidates *best, int n)
{
    int divisors[N_DIVISORS_MOST];
    int n_divisors = divisors_of(n, divisors);
    for (int i = 0; i < n_divisors; i++)
        for (int k = 0; k < n_divisors; k++) {
            int mp = divisors[i], pp = divisors[k];
            if ((n / mp) % pp != 0)
                continue;
            int rest = n / mp / pp;
            for (int s = 0; s < n_divisors && divisors[s] <= rest; s++)
                if (rest % divisors[s] == 0)
                    candidates_offer(best, (struct grid_shape){.dp = rest / divisors[s],
                                                               .pp = pp,
                                                               .sharding = divisors[s],
                                                               .mp = mp});
        }
}

void grid_suggest(const struct grid_shape *shape, int64_t n_processes, int n_most,
                  grid_accept_fn *accepts, void *context, char *text, size_t text_bytes)
{
    struct candidates best = {.wanted = shape};
    char layout[128];
    size_t used = 0;
    text[0] = '\0';
    if (n_processes < 1 || n_processes > N_PROCESSES_MOST)
        return;
    find_nearest(&best, (int)n_processes);
    for (int i = 0; i < best.n && n_most > 0; i++) {
        if (accepts && !accepts(context, &best.list[i].shape))
            continue;
        n_most--;
        grid_describe(&best.list[i].shape, layout, sizeof layout);
        append(text, text_bytes, &used, "; ", layout);
    }
}

/* -- the check ----------------------------------------------------------------------- */

static int check_degrees(const struct grid_shape *shape, struct error *err)
{
    for (size_t i = 0; i < ARRAY_LEN(axes); i++)
        if (degree_of(shape, i) < (i == 0 ? 0 : 1))
            return error_set(err, ERROR_INPUT, "%s is %d; a degree is at least 1",
                             axes[i].key, degree_of(shape, i));
    return 0;
}

int grid_fit(struct grid_shape *shape, int64_t n_processes, struct error *err)
{
    struct grid_shape asked = *shape;
    bool has_dp = shape->dp != 0;
    char layout[128], others[512], need[64];
    if (check_degrees(shape, err))
        return -1;
    if (!has_dp)
        asked.dp = 1;
    int64_t size = grid_size(&asked);
    if (size == n_processes || (!has_dp && n_processes % size == 0)) {
        shape->dp = has_dp ? shape->dp : (int)(n_processes / size);
        return 0;
    }
    grid_describe(&asked, layout, sizeof layout);
    grid_suggest(&asked, n_processes, N_SUGGESTED, NULL, NULL, others, sizeof others);
    if (size == INT64_MAX)
        snprintf(need, sizeof need, "more processes than can be counted");
    else
        snprintf(need, sizeof need, "%s%lld process%s", has_dp ? "" : "a multiple of ",
                 (long long)size, size == 1 ? "" : "es");
    return error_set(err, ERROR_INPUT, "the layout %s takes %s, but there %s %lld%s%s",
                     layout, need, n_processes == 1 ? "is" : "are",
                     (long long)n_processes, others[0] ? "; others of that size: " : "",
                     others);
}
