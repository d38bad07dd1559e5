#include "launch/hang.h"

#include <math.h>
#include <string.h>

#define ROWS_MOST 1000 // of a table: a job may have 100,000 ranks
#define NAMED_MOST 8   // culprits of a sentence

/* Seconds without any action, by phase, where hang_timeout is not given. Files may lie on
 * a disk that many share; what a rank does before its first step is seldom cut small. */
static const double default_bounds[BEAT_N_PHASES] = {
    [BEAT_START] = 300,    [BEAT_LOAD] = 600, [BEAT_STEP] = HANG_STEP_LEAST,
    [BEAT_EVALUATE] = 120, [BEAT_SAVE] = 600, [BEAT_END] = 300,
};

static bool is_starting(const struct seen_rank *r)
{
    return r->phase == BEAT_START || (r->phase == BEAT_STEP && r->n_steps == 0);
}

/* It may go on by itself, however long that takes. */
static bool may_get_there(const struct seen_rank *r)
{
    return r->condition == RANK_RUNS || r->condition == RANK_SWAPPED;
}

double hang_bound(const struct hang_rule *rule, const struct seen_rank *r)
{
    double bound = default_bounds[is_starting(r) ? BEAT_START : r->phase];
    if (rule->hang_timeout > 0) {
        bound = rule->hang_timeout;
        if (is_starting(r) && may_get_there(r))
            bound = fmax(bound, HANG_START_LEAST);
    } else if (r->phase == BEAT_STEP || r->phase == BEAT_EVALUATE) {
        bound = fmax(bound, HANG_STEPS * rule->median_step);
    }
    bool is_in_kernel = (r->phase == BEAT_SAVE || r->phase == BEAT_END) && // files
                        r->condition == RANK_UNINTERRUPTIBLE;
    double most = is_in_kernel ? HANG_STOP_SAVE_MOST : HANG_STOP_MOST;
    return rule->is_stopping ? fmin(bound, most) : bound;
}

/* A rank that waited for long and is stopped then is frozen since it was stopped. */
static double frozen_seconds(const struct seen_rank *r)
{
    return may_get_there(r) ? r->quiet : fmin(r->quiet, r->in_condition);
}

static bool is_waiting(const struct seen_rank *r)
{
    return may_get_there(r) && r->peer != BEAT_NOBODY;
}

/* All that have not done their work wait, and have for too long. */
static bool all_wait(const struct seen_rank *ranks, int n_ranks,
                     const struct hang_rule *rule, double *seconds)
{
    int n_waiting = 0;
    *seconds = 0;
    for (int i = 0; i < n_ranks; i++) {
        const struct seen_rank *r = &ranks[i];
        if (!r->is_seen)
            return false;
        if (r->is_over)
            continue;
        if (!is_waiting(r) || r->quiet <= hang_bound(rule, r))
            return false;
        *seconds = n_waiting == 0 ? r->quiet : fmin(*seconds, r->quiet);
        n_waiting++;
    }
    return n_waiting > 0;
}

/* Somebody makes progress: then so does the job, and who is out of reach may live. */
static bool any_moves(const struct seen_rank *ranks, int n_ranks,
                      const struct hang_rule *rule)
{
    for (int i = 0; i < n_ranks; i++)
        if (ranks[i].is_seen && !ranks[i].is_over && may_get_there(&ranks[i]) &&
            ranks[i].quiet <= hang_bound(rule, &ranks[i]))
            return true;
    return false;
}

static bool is_frozen(const struct seen_rank *r, bool job_moves)
{
    return r->is_seen && !r->is_over && !may_get_there(r) &&
           !(r->condition == RANK_OUT_OF_REACH && job_moves);
}

/* Somebody is frozen, if only for a moment: what else is quiet may be so for that. */
static bool any_frozen(const struct seen_rank *ranks, int n_ranks, bool job_moves)
{
    for (int i = 0; i < n_ranks; i++)
        if (is_frozen(&ranks[i], job_moves))
            return true;
    return false;
}

struct hang hang_judge(const struct seen_rank *ranks, int n_ranks,
                       const struct hang_rule *rule, bool *is_culprit)
{
    struct hang hang = {.culprit = -1};
    bool job_moves = any_moves(ranks, n_ranks, rule);
    bool has_frozen = any_frozen(ranks, n_ranks, job_moves);
    for (int i = 0; i < n_ranks; i++) {
        const struct seen_rank *r = &ranks[i];
        bool is_suspect = has_frozen ? is_frozen(r, job_moves)
                                     : r->is_seen && !r->is_over && may_get_there(r);
        is_culprit[i] =
            is_suspect && !is_waiting(r) && frozen_seconds(r) > hang_bound(rule, r);
        if (!is_culprit[i])
            continue;
        hang.decision = has_frozen || rule->hang_timeout > 0 ? HANG_ENDS : HANG_NAMED;
        hang.seconds = fmax(hang.seconds, frozen_seconds(r));
        if (hang.culprit < 0)
            hang.culprit = i;
    }
    if (hang.culprit < 0 && !has_frozen &&
        all_wait(ranks, n_ranks, rule, &hang.seconds)) {
        hang.decision = HANG_ENDS;
        hang.is_deadlock = true;
    }
    return hang;
}

/* -- words --------------------------------------------------------------------------- */

static const struct {
    const char *words, *word; // of a sentence, of a table
} conditions[N_RANK_CONDITIONS] = {
    [RANK_RUNS] = {"is running", "running"},
    [RANK_SWAPPED] = {"is swapped out", "swapped"},
    [RANK_STOPPED] = {"is stopped", "stopped"},
    [RANK_UNINTERRUPTIBLE] = {"is uninterruptible (disk or network file system)",
                              "uninterruptible"},
    [RANK_GONE] = {"is gone", "gone"},
    [RANK_OUT_OF_REACH] = {"is out of reach (its host or the network)", "out of reach"},
};

static void peer_text(char *buf, size_t size, int peer)
{
    if (peer >= 0)
        snprintf(buf, size, "rank %d", peer);
    else
        snprintf(buf, size, "%s", peer == BEAT_EVERYBODY ? "all" : "-");
}

static void action_text(char *buf, size_t size, const struct seen_rank *r)
{
    const char *name = beat_action_name(r->action);
    if (r->action == BEAT_FORWARD || r->action == BEAT_BACKWARD)
        snprintf(buf, size, "%s of block %lld", name, (long long)r->detail);
    else
        snprintf(buf, size, "%s", name);
}

void hang_table(FILE *out, const struct seen_rank *ranks, int n_ranks)
{
    fprintf(out, "%6s %-16s %8s %-8s %-20s %-10s %-15s %s\n", "rank", "host", "step",
            "phase", "does", "waits for", "state", "for");
    for (int i = 0; i < n_ranks && i < ROWS_MOST; i++) {
        const struct seen_rank *r = &ranks[i];
        char peer[24], action[48], step[24] = "-";
        if (!r->is_seen || r->is_over) {
            fprintf(out, "%6d %-16s %s\n", i, r->host ? r->host : "-",
                    r->is_over ? "has ended" : "has not begun");
            continue;
        }
        peer_text(peer, sizeof peer, r->peer);
        action_text(action, sizeof action, r);
        if (r->step >= 0)
            snprintf(step, sizeof step, "%lld", (long long)r->step);
        fprintf(out, "%6d %-16s %8s %-8s %-20s %-10s %-15s %.1f s\n", i, r->host, step,
                beat_phase_name(r->phase), action, peer, conditions[r->condition].word,
                r->quiet);
    }
    if (n_ranks > ROWS_MOST)
        fprintf(out, "   and %d more\n", n_ranks - ROWS_MOST);
}

void hang_sentence(char *buf, size_t size, const struct seen_rank *ranks, int n_ranks,
                   const struct hang *hang, const bool *is_culprit)
{
    size_t used = 0;
    int n_named = 0;
    buf[0] = '\0';
    if (hang->is_deadlock) {
        snprintf(buf, size, "all ranks wait for each other");
        return;
    }
    for (int i = 0; i < n_ranks; i++) {
        if (!is_culprit[i] || n_named++ >= NAMED_MOST)
            continue;
        int n = snprintf(buf + used, size - used, "%srank %d on %s %s", used ? ", " : "",
                         i, ranks[i].host, conditions[ranks[i].condition].words);
        used += n > 0 && (size_t)n < size - used ? (size_t)n : size - used - 1;
    }
    if (n_named > NAMED_MOST)
        snprintf(buf + used, size - used, ", and %d more", n_named - NAMED_MOST);
}
