/*
 * The reader is the board's, so that both say the same of a run. What is not known is
 * left out.
 */
#include "cli/inspect_run.h"

#include "board/run.h"
#include "board/run_facts.h"
#include "cli/report.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

static void set_known(json_t *object, const char *key, double value)
{
    if (isfinite(value) && value == floor(value) && fabs(value) < 1e15)
        report_set_int(object, key, (int64_t)value);
    else if (isfinite(value))
        report_set(object, key, json_real(value));
}

static void set_words(json_t *object, const char *key, const char *text)
{
    if (text[0])
        report_set_text(object, key, text);
}

static json_t *describe(const struct run_facts *f)
{
    json_t *object = json_object();
    set_words(object, "limit", f->limit);
    set_words(object, "state", run_state_name(f->state));
    set_words(object, "note", f->note);
    set_known(object, "step", f->step);
    set_known(object, "steps_total", f->steps_total);
    set_known(object, "tokens", f->tokens);
    set_known(object, "loss", f->loss);
    set_known(object, "eval_loss", f->eval_loss);
    set_words(object, "loss_health", f->health_text);
    set_known(object, "tokens_per_second", f->tokens_per_second);
    set_known(object, "mfu", f->mfu);
    set_known(object, "step_seconds", f->step_seconds);
    set_known(object, "seconds_left", f->seconds_left);
    return object;
}

json_t *inspect_run(const char *dir, struct error *err)
{
    struct run_facts facts;
    struct run *run = calloc(1, sizeof *run);
    char *buffer = malloc(RUN_LINE_BYTES_MOST);
    json_t *object = NULL;
    if (!run || !buffer) {
        error_set(err, ERROR_RUNTIME, "out of memory for the run in '%s'", dir);
        goto done;
    }
    run_init(run, dir);
    while (run_refresh(run, buffer, RUN_LINE_BYTES_MOST, INT64_MAX))
        ;
    run_facts_of(run, (double)time(NULL), &facts);
    object = describe(&facts);
    run_release(run);
done:
    free(buffer);
    free(run);
    return object;
}
