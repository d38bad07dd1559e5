#include "board/run_events.h"

#include "board/run_scan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENT_BYTES 65536 // of one event as JSON; a longer one is shown by its name

static const char *const figure_names[RUN_N_FIGURES] = {"step_seconds", "wait_seconds",
                                                        "resident_bytes"};

/* -- rings --------------------------------------------------------------------------- */

static void drop_oldest(struct run_ring *ring)
{
    char **text = &ring->texts[ring->first];
    ring->n_bytes -= (int64_t)strlen(*text);
    free(*text);
    *text = NULL;
    ring->first = (ring->first + 1) % RUN_EVENTS_MOST;
    ring->n--;
}

/* Takes over `text`; NULL, where memory was short, is left out. */
static void ring_add(struct run_ring *ring, char *text, double step)
{
    if (!text)
        return;
    int64_t n_bytes = (int64_t)strlen(text);
    while (ring->n == RUN_EVENTS_MOST ||
           (ring->n > 0 && ring->n_bytes + n_bytes > RUN_EVENTS_BYTES))
        drop_oldest(ring);
    int64_t at = (ring->first + ring->n++) % RUN_EVENTS_MOST;
    ring->texts[at] = text;
    ring->steps[at] = step;
    ring->n_bytes += n_bytes;
}

/* A run that goes back to `step` samples anew from there on. */
static void ring_cut(struct run_ring *ring, double step)
{
    while (ring->n > 0) {
        int64_t at = (ring->first + ring->n - 1) % RUN_EVENTS_MOST;
        if (ring->steps[at] < step)
            break;
        ring->n_bytes -= (int64_t)strlen(ring->texts[at]);
        free(ring->texts[at]);
        ring->texts[at] = NULL;
        ring->n--;
    }
}

void run_ring_write(const struct run_ring *ring, struct board_text *out)
{
    board_text_put(out, "[");
    for (int64_t i = 0; i < ring->n; i++) {
        board_text_comma(out);
        board_text_put(out, ring->texts[(ring->first + i) % RUN_EVENTS_MOST]);
    }
    board_text_put(out, "]");
}

/* -- ranks --------------------------------------------------------------------------- */

static void moment_release(struct run_moment *m)
{
    free(m->figures[0]);
    *m = (struct run_moment){0};
}

/* The figures of `ranks` into *m: as many entries as the longest array has; NAN where one
 * is shorter. */
static bool read_moment(struct run_moment *m, const json_t *ranks, double step)
{
    size_t n = 0;
    *m = (struct run_moment){.step = step};
    for (int f = 0; f < RUN_N_FIGURES; f++) {
        size_t n_here = json_array_size(json_object_get(ranks, figure_names[f]));
        n = n_here > n ? n_here : n;
    }
    if (n == 0 || n > RUN_RANK_ENTRIES_MOST)
        return false;
    float *all = malloc(RUN_N_FIGURES * n * sizeof *all);
    if (!all)
        return false;
    m->n_entries = (int64_t)n;
    for (int f = 0; f < RUN_N_FIGURES; f++) {
        const json_t *array = json_object_get(ranks, figure_names[f]);
        m->figures[f] = all + (size_t)f * n;
        for (size_t i = 0; i < n; i++) {
            const json_t *x = json_array_get(array, i);
            m->figures[f][i] = json_is_number(x) ? (float)json_number_value(x) : NAN;
        }
    }
    return true;
}

static bool copy_moment(struct run_moment *to, const struct run_moment *from)
{
    size_t n = (size_t)from->n_entries;
    float *all = malloc(RUN_N_FIGURES * n * sizeof *all);
    if (!all)
        return false;
    memcpy(all, from->figures[0], RUN_N_FIGURES * n * sizeof *all);
    *to = *from;
    for (size_t f = 0; f < RUN_N_FIGURES; f++)
        to->figures[f] = all + f * n;
    return true;
}

/* A run that goes back to `step`. */
static void cut_moments(struct run_events *e, double step)
{
    while (e->n_moments > 0 && e->moments[e->n_moments - 1].step >= step)
        moment_release(&e->moments[--e->n_moments]);
}

static void thin_out(struct run_events *e)
{
    int64_t n = 0;
    for (int64_t i = 0; i < e->n_moments; i++)
        if (i % 2 == 0)
            e->moments[n++] = e->moments[i];
        else
            moment_release(&e->moments[i]);
    e->n_moments = n;
    e->stride *= 2;
}

static void add_ranks(struct run_events *e, const json_t *root, double step)
{
    struct run_moment moment;
    const json_t *ranks = json_object_get(root, "ranks");
    const json_t *per_entry = json_object_get(ranks, "ranks_per_entry");
    if (!per_entry)
        per_entry = json_object_get(root, "ranks_per_entry");
    if (!read_moment(&moment, ranks, step))
        return;
    cut_moments(e, step);
    e->ranks_per_entry = json_is_integer(per_entry) ? json_integer_value(per_entry) : 1;
    moment_release(&e->last_moment);
    e->last_moment = moment;
    if (e->n_seen++ % e->stride)
        return;
    if (e->n_moments == RUN_RANKS_MOST)
        thin_out(e);
    if (copy_moment(&e->moments[e->n_moments], &moment))
        e->n_moments++;
}

static void write_figure(const struct run_events *e, enum run_rank_figure figure,
                         int64_t stride, struct board_text *out)
{
    board_text_key(out, figure_names[figure]);
    board_text_put(out, "[");
    for (int64_t i = 0; i < e->n_moments; i += stride) {
        const struct run_moment *m = &e->moments[i];
        board_text_comma(out);
        board_text_put(out, "[");
        for (int64_t r = 0; r < m->n_entries; r++) {
            board_text_comma(out);
            board_text_number(out, (double)m->figures[figure][r]);
        }
        board_text_put(out, "]");
    }
    board_text_put(out, "]");
}

void run_ranks_write(const struct run_events *e, int64_t n_most, struct board_text *out)
{
    int64_t stride = e->n_moments > n_most ? (e->n_moments + n_most - 1) / n_most : 1;
    const json_t *plan = json_object_get(e->start, "plan_bytes");
    board_text_put(out, "{\"steps\":[");
    for (int64_t i = 0; i < e->n_moments; i += stride) {
        board_text_comma(out);
        board_text_long_number(out, e->moments[i].step);
    }
    board_text_put(out, "]");
    for (int f = 0; f < RUN_N_FIGURES; f++)
        write_figure(e, (enum run_rank_figure)f, stride, out);
    board_text_key(out, "plan_bytes");
    board_text_put(out, "[");
    for (size_t i = 0; i < json_array_size(plan); i++) {
        board_text_comma(out);
        board_text_long_number(out, json_number_value(json_array_get(plan, i)));
    }
    board_text_print(out, "],\"ranks_per_entry\":%lld}", (long long)e->ranks_per_entry);
}

/* -- events -------------------------------------------------------------------------- */

static void take_start(struct run_events *e, json_t *root, double step)
{
    const json_t *restarts = json_object_get(root, "restarts");
    if (e->start)
        e->n_restarts++;
    if (json_is_integer(restarts))
        e->n_restarts = json_integer_value(restarts);
    json_decref(e->start);
    e->start = json_incref(root);
    ring_cut(&e->samples, step + 1);
    cut_moments(e, step + 1);
}

/* Those after which a run is not what it was. */
static bool is_turn(const char *event)
{
    static const char *const turns[] = {"start",   "stall", "failure",
                                        "stopped", "end",   "diverged"};
    for (size_t i = 0; i < ARRAY_LEN(turns); i++)
        if (strcmp(event, turns[i]) == 0)
            return true;
    return false;
}

static void take_event(struct run_events *e, json_t *root, const char *event, double step)
{
    const char *error = json_string_value(json_object_get(root, "error"));
    if (strcmp(event, "start") == 0)
        take_start(e, root, step);
    if (strcmp(event, "failure") == 0 && error)
        snprintf(e->last_error, sizeof e->last_error, "%s", error);
    if (strcmp(event, "save") == 0) {
        e->last_save_step = step;
        e->last_save_time = json_number_value(json_object_get(root, "time"));
    }
    if (is_turn(event)) {
        snprintf(e->last_event, sizeof e->last_event, "%s", event);
        e->last_event_step = step;
    }
}

/* A sample is {step, prompt, text}; the event of a start goes without its long arrays. */
static char *dump_event(const json_t *root, const char *event)
{
    char *text = json_dumps(root, JSON_COMPACT);
    if (!text || strlen(text) <= EVENT_BYTES)
        return text;
    free(text);
    json_t *brief =
        json_pack("{s:O?, s:O?, s:s, s:s}", "step", json_object_get(root, "step"), "time",
                  json_object_get(root, "time"), "event", event, "note",
                  "this event is too long to be shown");
    text = json_dumps(brief, JSON_COMPACT);
    json_decref(brief);
    return text;
}

bool run_events_add(struct run_events *e, const char *line, size_t n)
{
    json_t *root = run_scan_load(line, n);
    if (!root)
        return false;
    const json_t *name = json_object_get(root, "event");
    double step = json_number_value(json_object_get(root, "step"));
    if (json_is_object(json_object_get(root, "ranks")))
        add_ranks(e, root, step);
    if (json_is_string(name)) {
        const char *event = json_string_value(name);
        take_event(e, root, event, step);
        bool is_sample = strcmp(event, "sample") == 0;
        if (is_sample || strcmp(event, "layers") != 0)
            ring_add(is_sample ? &e->samples : &e->events, dump_event(root, event), step);
    }
    json_decref(root);
    return true;
}

void run_events_init(struct run_events *e)
{
    *e = (struct run_events){
        .stride = 1, .ranks_per_entry = 1, .last_save_step = -1, .last_save_time = -1};
}

void run_events_release(struct run_events *e)
{
    while (e->events.n > 0)
        drop_oldest(&e->events);
    while (e->samples.n > 0)
        drop_oldest(&e->samples);
    cut_moments(e, -RUN_LOST);
    moment_release(&e->last_moment);
    json_decref(e->start);
    run_events_init(e);
}

double run_start_number(const struct run_events *e, const char *key)
{
    const json_t *value = json_object_get(e->start, key);
    return json_is_number(value) ? json_number_value(value) : RUN_NONE;
}

const char *run_start_text(const struct run_events *e, const char *key)
{
    return json_string_value(json_object_get(e->start, key));
}
