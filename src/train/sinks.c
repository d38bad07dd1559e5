#include "train/sinks.h"

#include "base/log.h"
#include "comm/comm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sinks_open(struct sinks *s, const struct config *cfg, const char *config_json,
                int64_t first_step)
{
    const char *output_dir = cfg->save_load.output_dir;
    struct error err;
    s->has_tensorboard = s->has_prometheus = s->has_hook = false;
    s->loss = (double)NAN;
    s->tells_failures = !comm_launch_info().is_ours;
    if (!realpath(output_dir, s->output_dir))
        snprintf(s->output_dir, sizeof s->output_dir, "%s", output_dir);
    if (cfg->tensorboard) {
        s->has_tensorboard = tensorboard_open(&s->tensorboard, output_dir, first_step,
                                              config_json, &err) == 0;
        if (!s->has_tensorboard) {
            log_warning("tensorboard: %s; the run goes on without its files", err.text);
            tensorboard_close(&s->tensorboard);
        }
    }
    if (cfg->prometheus_file[0]) {
        s->has_prometheus =
            prometheus_open(&s->prometheus, cfg->prometheus_file, output_dir, &err) == 0;
        if (!s->has_prometheus)
            log_warning("prometheus_file: %s; the run goes on without it", err.text);
    }
    s->has_hook = cfg->on_event[0] != 0;
    hook_init(&s->hook, cfg->on_event);
}

void sinks_close(struct sinks *s)
{
    if (s->has_hook)
        hook_finish(&s->hook);
    if (s->has_tensorboard)
        tensorboard_close(&s->tensorboard);
    if (s->has_prometheus)
        prometheus_close(&s->prometheus);
    s->has_tensorboard = s->has_prometheus = s->has_hook = false;
}

/* -- on_event ------------------------------------------------------------------------ */

/* What the user's command is told a record is; NULL: it is not told of it. */
static const char *event_of(const struct sinks *s, const struct record *r)
{
    static const char *const names[][2] = {{"save", "save"},
                                           {"save_failed", "save_failed"},
                                           {"end", "end"},
                                           {"stopped", "end"}};
    const char *event = record_find_text(r, "event");
    const struct record_field *diverged = record_find(r, "diverged");
    for (size_t i = 0; event && i < ARRAY_LEN(names); i++)
        if (strcmp(event, names[i][0]) == 0)
            return names[i][1];
    if (!event || strcmp(event, "failure") != 0 || !s->tells_failures)
        return NULL;
    return diverged && diverged->value.truth ? "divergence" : "failure";
}

static void run_hook(struct sinks *s, const struct record *r)
{
    struct hook_event e;
    const char *name = event_of(s, r), *path = record_find_text(r, "path");
    const char *message = record_find_text(r, "error");
    hook_poll(&s->hook);
    if (!name)
        return;
    hook_event_begin(&e, name);
    hook_event_set(&e, "STEP", "%lld", (long long)r->step);
    hook_event_set(&e, "TIME", "%.3f", r->time);
    hook_event_set(&e, "OUTPUT_DIR", "%s", s->output_dir);
    if (isfinite(s->loss))
        hook_event_set(&e, "LOSS", "%.9g", s->loss);
    if (path)
        hook_event_set(&e, "CHECKPOINT", "%s", path);
    if (strcmp(name, "end") == 0)
        hook_event_set(&e, "STATUS", "%s", message ? "stopped" : "finished");
    if (message)
        hook_event_set(&e, "MESSAGE", "%s", message);
    hook_run(&s->hook, &e);
}

void sinks_take(struct sinks *s, const struct record *r)
{
    const struct record_field *loss = record_find(r, "loss");
    if (loss)
        s->loss = loss->type == RECORD_REAL ? loss->value.real : (double)NAN;
    if (s->has_tensorboard)
        tensorboard_take(&s->tensorboard, r);
    if (s->has_prometheus)
        prometheus_take(&s->prometheus, r);
    if (s->has_hook)
        run_hook(s, r);
}
