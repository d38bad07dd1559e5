#include "board/run_facts.h"

#include "base/clock.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WINDOW 200          // logged steps over which the pace is taken
#define AWAY_SECONDS 16.0   // without a beat, a process of another machine is gone
#define SILENT_SECONDS 60.0 // without a line, however short the steps are
#define SILENT_STEPS 10.0   // the same in logged steps

const char *run_state_name(enum run_state state)
{
    static const char *const names[RUN_N_STATES] = {"empty",    "unreadable", "starting",
                                                    "training", "evaluating", "saving",
                                                    "finished", "stopped",    "dead"};
    return names[state];
}

/* Add a sentence to the note. */
static void PRINTF_LIKE(2, 3) say(struct run_facts *facts, const char *fmt, ...)
{
    size_t n = strlen(facts->note);
    va_list args;
    if (n > 0 && n + 2 < sizeof facts->note)
        n += (size_t)snprintf(facts->note + n, sizeof facts->note - n, "; ");
    va_start(args, fmt);
    vsnprintf(facts->note + n, sizeof facts->note - n, fmt, args);
    va_end(args);
}

/* -- numbers ------------------------------------------------------------------------- */

static double last_of(const struct run_columns *c, enum run_column column)
{
    return c->n_rows > 0 ? run_columns_at(c, c->n_rows - 1, column) : RUN_NONE;
}

/* Seconds a step takes by the clock, evaluation and saving included, over the last
 * logged steps; their own cost where lines have no time. */
static double pace_of(const struct run *run)
{
    const struct run_columns *c = &run->steps;
    int64_t n = c->n_rows, first = i64_max(0, n - WINDOW);
    double start =
        run->events.last_event[0] ? run_start_number(&run->events, "step") : RUN_NONE;
    if (n == 0)
        return RUN_NONE;
    while (first < n - 1 && run_columns_at(c, first, RUN_STEP) <= start)
        first++; // of the run before it was resumed
    double steps = last_of(c, RUN_STEP) - run_columns_at(c, first, RUN_STEP);
    double seconds = last_of(c, RUN_TIME) - run_columns_at(c, first, RUN_TIME);
    double cost = last_of(c, RUN_BATCH_COST);
    return steps > 0 && seconds > 0 && isfinite(seconds) ? seconds / steps : cost;
}

static void count(const struct run *run, struct run_facts *facts)
{
    const struct run_columns *c = &run->steps;
    facts->step = last_of(c, RUN_STEP);
    if (c->n_rows == 0 && isfinite(run->line_step))
        facts->step = run->line_step;
    facts->tokens = last_of(c, RUN_TOKENS);
    facts->loss = last_of(c, RUN_LOSS);
    facts->eval_loss = last_of(&run->evals, RUN_EVAL_LOSS);
    facts->tokens_per_second = last_of(c, RUN_IPS_TOTAL);
    facts->mfu = last_of(c, RUN_MFU);
    facts->steps_total = run_start_number(&run->events, "steps_total");
    if (isnan(facts->steps_total)) {
        double configured = run_config_number(&run->config, "max_steps");
        facts->steps_total = configured > 0 ? configured : RUN_NONE;
    }
    facts->step_seconds = pace_of(run);
    facts->seconds_left = RUN_NONE;
    if (facts->steps_total >= facts->step)
        facts->seconds_left = (facts->steps_total - facts->step) * facts->step_seconds;
}

/* -- alive or not -------------------------------------------------------------------- */

static bool is_alive(const struct run *run)
{
    if (run->lock.state == CKPT_LOCK_AWAY)
        return clock_seconds() - run->beat_changed < AWAY_SECONDS;
    return run->lock.state == CKPT_LOCK_HELD;
}

/* Whether `step` is one after which the key's work is due. */
static bool is_due(const struct run *run, const char *key, double step)
{
    double every = run_config_number(&run->config, key);
    return every >= 1 && step > 0 && fmod(step, every) == 0;
}

/* Nobody says that an evaluation has begun. But it comes after its step, and tells its
 * result; and a checkpoint after that. */
static enum run_state phase_of(const struct run *run, const struct run_facts *facts)
{
    double start = run_start_number(&run->events, "step");
    bool has_logged = run->steps.n_rows > 0 && !(facts->step <= start);
    if (!has_logged && strcmp(run->events.last_event, "start") == 0)
        return RUN_STARTING;
    if (run->steps.n_rows == 0)
        return RUN_STARTING;
    double evaluated = last_of(&run->evals, RUN_STEP);
    if (run_config_number(&run->config, "eval_iters") > 0 &&
        is_due(run, "eval_freq", facts->step) && !(evaluated >= facts->step))
        return RUN_EVALUATING;
    if (is_due(run, "save_load.save_steps", facts->step) && run->events.start &&
        run->events.last_save_step < facts->step)
        return RUN_SAVING;
    return RUN_TRAINING;
}

static void tell_silence(const struct run *run, struct run_facts *facts)
{
    double every = fmax(1, run_config_number(&run->config, "logging_freq"));
    double usual = fmax(SILENT_SECONDS, SILENT_STEPS * every * facts->step_seconds);
    if (facts->state != RUN_STARTING && facts->age > usual)
        say(facts, "no line for %.0f s, though its process lives and a step takes %.3g s",
            facts->age, facts->step_seconds);
}

static void judge_gone(const struct run *run, struct run_facts *facts)
{
    const struct run_events *e = &run->events;
    bool is_whole = facts->step >= facts->steps_total;
    if (strcmp(e->last_event, "end") == 0) {
        facts->state = RUN_FINISHED;
    } else if (strcmp(e->last_event, "failure") == 0 ||
               strcmp(e->last_event, "diverged") == 0) {
        facts->state = RUN_DEAD;
        say(facts, "it failed%s%.400s", e->last_error[0] ? ": " : "", e->last_error);
    } else if (run->lock.state == CKPT_LOCK_LEFT || run->lock.state == CKPT_LOCK_AWAY) {
        facts->state = RUN_DEAD;
        say(facts,
            "process %lld on %.200s is gone and has not said why: it was killed, or "
            "its machine went down",
            (long long)run->lock.pid, run->lock.host);
    } else if (strcmp(e->last_event, "stopped") == 0) {
        facts->state = RUN_STOPPED;
    } else {
        facts->state = is_whole ? RUN_FINISHED : RUN_STOPPED;
    }
    facts->seconds_left = facts->state == RUN_FINISHED ? 0 : RUN_NONE;
}

static void tell_file(const struct run *run, struct run_facts *facts)
{
    const struct run_file *file = &run->file;
    if (file->offset < file->n_bytes && !file->is_partial)
        say(facts, "%.0f %% of its file is read",
            100.0 * (double)file->offset / (double)file->n_bytes);
    if (file->n_bad > 0)
        say(facts, "%lld line%s no JSON and left out", (long long)file->n_bad,
            file->n_bad == 1 ? " is" : "s are");
    if (file->n_long > 0)
        say(facts, "%lld line%s too long and left out", (long long)file->n_long,
            file->n_long == 1 ? " is" : "s are");
    if (file->first_skipped > 0)
        say(facts, "the first of these is line %lld of " RUN_FILE_NAME,
            (long long)file->first_skipped);
    if (run->is_out_of_memory)
        say(facts, "there is no memory for all of its steps");
}

void run_facts_of(const struct run *run, double now, struct run_facts *facts)
{
    *facts = (struct run_facts){.health = RUN_HEALTH_UNKNOWN};
    count(run, facts);
    facts->age = run->last_time > 0 ? fmax(0, now - run->last_time) : RUN_NONE;
    if (run->file.is_broken) {
        facts->state = RUN_UNREADABLE;
        say(facts, "%s", run->file.problem);
    } else if (is_alive(run)) {
        facts->state = phase_of(run, facts);
        tell_silence(run, facts);
    } else if (run->file.n_lines == 0 && run->lock.state == CKPT_LOCK_FREE) {
        facts->state = RUN_EMPTY;
    } else {
        judge_gone(run, facts);
    }
    tell_file(run, facts);
    run_health_of(run, facts);
    run_limit_of(run, facts);
}
