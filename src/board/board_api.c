/*
 * board_api - the answers of the board, as JSON.
 *
 * A table of paths leads to functions that write a body. Parameters are read as numbers
 * and names of a table; what is neither is refused with a sentence.
 */
#include "board/board.h"
#include "board/board_page.h"
#include "board/run_facts.h"
#include "board/run_pipeline.h"
#include "train/prometheus.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POINTS_DEFAULT 800
#define POINTS_SAVED 1000      // of each curve of a saved page
#define POINTS_SAVED_LEAST 100 // where it has many runs
#define RUNS_SAVED_WHOLE 8     // with which curves have all of these points
#define MOMENTS_DEFAULT 200

static double wall_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* -- parameters ---------------------------------------------------------------------- */

static int refuse(struct board_answer *answer, int status, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

static int refuse(struct board_answer *answer, int status, const char *fmt, ...)
{
    char sentence[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, args);
    va_end(args);
    board_text_reset(&answer->body);
    answer->status = status;
    answer->type = "application/json";
    board_text_put(&answer->body, "{\"error\":");
    board_text_string(&answer->body, sentence, strlen(sentence));
    board_text_put(&answer->body, "}\n");
    return -1;
}

/* A number in [least, most]; `absent` where the parameter is not there. */
static int number_of(const struct board_request *request, const char *name, double absent,
                     double least, double most, double *x, struct board_answer *answer)
{
    const char *text = request->value(request->context, name);
    char *end;
    *x = absent;
    if (!text || !text[0])
        return 0;
    *x = strtod(text, &end);
    if (*end || !(*x >= least && *x <= most))
        return refuse(answer, 400, "%s must be a number from %g to %g", name, least,
                      most);
    return 0;
}

static struct run *run_of(struct board *b, const struct board_request *request,
                          struct board_answer *answer)
{
    double number;
    if (b->n_runs == 0) {
        refuse(answer, 404, "there is no run");
        return NULL;
    }
    if (number_of(request, "run", 0, 0, (double)(b->n_runs - 1), &number, answer))
        return NULL;
    return b->runs[(int64_t)number];
}

static int column_of(const struct board_request *request, const char *name, int absent,
                     int first, int end, int *column, struct board_answer *answer)
{
    const char *text = request->value(request->context, name);
    *column = text ? run_column_of(text, strlen(text)) : absent;
    if (*column >= first && *column < end)
        return 0;
    return refuse(answer, 400, "%s must be one of the board's keys, from %s to %s", name,
                  run_column_name((enum run_column)first),
                  run_column_name((enum run_column)(end - 1)));
}

/* "0,2": the runs with these numbers; all of them where it is not there. */
static int runs_of(const struct board *b, const struct board_request *request,
                   bool *which, struct board_answer *answer)
{
    const char *p = request->value(request->context, "runs");
    char *end;
    for (int64_t i = 0; i < BOARD_RUNS_MOST; i++)
        which[i] = !p && i < b->n_runs;
    while (p && *p) {
        long number = strtol(p, &end, 10);
        if (end == p || (*end && *end != ',') || number < 0 || number >= b->n_runs)
            return refuse(answer, 400,
                          "runs must be numbers of runs below %lld, with "
                          "commas between them",
                          (long long)b->n_runs);
        which[number] = true;
        p = *end ? end + 1 : end;
    }
    return 0;
}

/* -- runs ---------------------------------------------------------------------------- */

static void put_text(struct board_text *out, const char *key, const char *text)
{
    board_text_key(out, key);
    board_text_string(out, text, strlen(text));
}

static void put_number(struct board_text *out, const char *key, double x)
{
    board_text_key(out, key);
    board_text_long_number(out, x);
}

/* The last start, without what only the figures of ranks need. */
static void write_start(const struct run *run, struct board_text *out)
{
    const char *key;
    json_t *value;
    board_text_key(out, "start");
    if (!run->events.start) {
        board_text_put(out, "null");
        return;
    }
    board_text_put(out, "{");
    json_object_foreach(run->events.start, key, value)
    {
        char *text = json_is_array(value) || json_is_object(value)
                         ? NULL
                         : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        if (!text)
            continue;
        board_text_comma(out);
        board_text_string(out, key, strlen(key));
        board_text_put(out, ":");
        board_text_put(out, text);
        free(text);
    }
    board_text_put(out, "}");
}

static void write_run(const struct run *run, int64_t number, struct board_text *out)
{
    struct run_facts f;
    run_facts_of(run, wall_seconds(), &f);
    board_text_print(out, "{\"run\":%lld", (long long)number);
    put_text(out, "name", run->name);
    put_text(out, "path", run->dir);
    put_text(out, "state", run_state_name(f.state));
    put_text(out, "note", f.note);
    put_number(out, "step", f.step);
    put_number(out, "steps_total", f.steps_total);
    put_number(out, "tokens", f.tokens);
    put_number(out, "seconds_left", f.seconds_left);
    put_number(out, "step_seconds", f.step_seconds);
    put_number(out, "loss", f.loss);
    board_text_key(out, "loss_health");
    board_text_put(out, "{");
    put_text(out, "state", run_health_name(f.health));
    put_text(out, "text", f.health_text);
    board_text_put(out, "}");
    put_number(out, "eval_loss", f.eval_loss);
    put_number(out, "tokens_per_second", f.tokens_per_second);
    put_number(out, "mfu", f.mfu);
    put_text(out, "limit", f.limit);
    put_number(out, "last_time", run->last_time > 0 ? run->last_time : RUN_NONE);
    board_text_print(out, ",\"read_bytes\":%lld,\"file_bytes\":%lld",
                     (long long)run->file.offset, (long long)run->file.n_bytes);
    write_start(run, out);
    board_text_put(out, "}");
}

static void write_runs(const struct board *b, const bool *which, struct board_text *out)
{
    board_text_put(out, "[");
    for (int64_t i = 0; i < b->n_runs; i++)
        if (!which || which[i]) {
            board_text_comma(out);
            write_run(b->runs[i], i, out);
        }
    board_text_put(out, "]");
}

void board_write_runs(struct board *b, struct board_text *out)
{
    pthread_mutex_lock(&b->mutex);
    write_runs(b, NULL, out);
    pthread_mutex_unlock(&b->mutex);
}

static int answer_runs(struct board *b, const struct board_request *request,
                       struct board_answer *answer)
{
    (void)request;
    write_runs(b, NULL, &answer->body);
    return 0;
}

/* -- series -------------------------------------------------------------------------- */

enum series_part { SERIES_X, SERIES_MIN, SERIES_MAX, SERIES_MEAN, SERIES_N_PARTS };

static double part_of(const struct run_bucket *bucket, enum series_part part)
{
    if (part == SERIES_X)
        return bucket->x;
    if (bucket->n == 0)
        return RUN_NONE;
    return part == SERIES_MIN   ? bucket->min
           : part == SERIES_MAX ? bucket->max
                                : bucket->sum / (double)bucket->n;
}

static int write_series(const struct run *run, enum run_column y, enum run_column x,
                        double from, double to, int64_t n, struct board_text *out)
{
    static const char *const names[SERIES_N_PARTS] = {"x", "min", "max", "mean"};
    const struct run_columns *c = y == RUN_EVAL_LOSS ? &run->evals : &run->steps;
    struct run_series series;
    if (run_columns_series(c, y, x, from, to, n, &series))
        return -1;
    board_text_put(out, "{");
    for (int part = 0; part < SERIES_N_PARTS; part++) {
        board_text_key(out, names[part]);
        board_text_put(out, "[");
        for (int64_t i = 0; i < series.n_buckets; i++) {
            double value = part_of(&series.buckets[i], (enum series_part)part);
            if (i > 0)
                board_text_put(out, ",");
            if (part == SERIES_X)
                board_text_long_number(out, value);
            else
                board_text_number(out, value);
        }
        board_text_put(out, "]");
    }
    board_text_print(out, ",\"count\":%lld}", (long long)series.n_points);
    run_series_release(&series);
    return 0;
}

static int answer_series(struct board *b, const struct board_request *request,
                         struct board_answer *answer)
{
    const struct run *run = run_of(b, request, answer);
    double from, to, n;
    int x, y;
    if (!run ||
        column_of(request, "y", RUN_LOSS, RUN_N_AXES, RUN_N_COLUMNS, &y, answer) ||
        column_of(request, "x", RUN_STEP, 0, RUN_N_AXES, &x, answer) ||
        number_of(request, "from", -RUN_LOST, -RUN_LOST, RUN_LOST, &from, answer) ||
        number_of(request, "to", RUN_LOST, -RUN_LOST, RUN_LOST, &to, answer) ||
        number_of(request, "n", POINTS_DEFAULT, 1, RUN_BUCKETS_MOST, &n, answer))
        return -1;
    if (write_series(run, (enum run_column)y, (enum run_column)x, from, to, (int64_t)n,
                     &answer->body))
        return refuse(answer, 500, "there is no memory for these points");
    return 0;
}

/* -- the rest of a run ------------------------------------------------------------------ */

static int answer_config(struct board *b, const struct board_request *request,
                         struct board_answer *answer)
{
    const struct run *run = run_of(b, request, answer);
    if (!run)
        return -1;
    run_config_write(&run->config, &answer->body);
    return 0;
}

static int answer_ranks(struct board *b, const struct board_request *request,
                        struct board_answer *answer)
{
    const struct run *run = run_of(b, request, answer);
    double n;
    if (!run || number_of(request, "n", MOMENTS_DEFAULT, 1, RUN_RANKS_MOST, &n, answer))
        return -1;
    run_ranks_write(&run->events, (int64_t)n, &answer->body);
    return 0;
}

static int answer_events(struct board *b, const struct board_request *request,
                         struct board_answer *answer)
{
    const struct run *run = run_of(b, request, answer);
    if (!run)
        return -1;
    run_ring_write(&run->events.events, &answer->body);
    return 0;
}

static int answer_samples(struct board *b, const struct board_request *request,
                          struct board_answer *answer)
{
    const struct run *run = run_of(b, request, answer);
    if (!run)
        return -1;
    run_ring_write(&run->events.samples, &answer->body);
    return 0;
}

static int answer_schedule(struct board *b, const struct board_request *request,
                           struct board_answer *answer)
{
    struct run *run = run_of(b, request, answer);
    if (!run)
        return -1;
    run_pipeline_refresh(run);
    run_pipeline_write(run, &answer->body);
    return 0;
}

/* -- several runs -------------------------------------------------------------------- */

/* Whether the runs among `which` differ in `key`, or only some of them have it. */
static bool is_different(const struct board *b, const bool *which, const char *key)
{
    const char *first = NULL;
    bool has_first = false;
    for (int64_t i = 0; i < b->n_runs; i++) {
        const char *value = which[i] ? run_config_value(&b->runs[i]->config, key) : NULL;
        if (!which[i])
            continue;
        if (has_first && (!value != !first || (value && strcmp(value, first) != 0)))
            return true;
        first = value;
        has_first = true;
    }
    return false;
}

static void write_difference(const struct board *b, const bool *which, const char *key,
                             struct board_text *out)
{
    board_text_comma(out);
    board_text_put(out, "{");
    put_text(out, "key", key);
    board_text_key(out, "values");
    board_text_put(out, "[");
    for (int64_t i = 0; i < b->n_runs; i++) {
        const char *value = which[i] ? run_config_value(&b->runs[i]->config, key) : NULL;
        if (!which[i])
            continue;
        board_text_comma(out);
        if (value)
            board_text_string(out, value, strlen(value));
        else
            board_text_put(out, "null");
    }
    board_text_put(out, "]}");
}

/* Keys in the order of the first run that has them. */
static void write_diff(const struct board *b, const bool *which, struct board_text *out)
{
    board_text_put(out, "[");
    for (int64_t i = 0; i < b->n_runs; i++) {
        const struct run_config *config = &b->runs[i]->config;
        for (int64_t k = 0; which[i] && k < config->n_lines; k++) {
            const char *key = config->lines[k].key;
            bool is_known = false;
            for (int64_t j = 0; j < i && !is_known; j++)
                is_known = which[j] && run_config_value(&b->runs[j]->config, key);
            if (!is_known && is_different(b, which, key))
                write_difference(b, which, key, out);
        }
    }
    board_text_put(out, "]");
}

static int answer_diff(struct board *b, const struct board_request *request,
                       struct board_answer *answer)
{
    bool which[BOARD_RUNS_MOST];
    if (runs_of(b, request, which, answer))
        return -1;
    write_diff(b, which, &answer->body);
    return 0;
}

/* -- saved --------------------------------------------------------------------------- */

/* "y": {"step": {...}, "tokens": ...}: those of which there is any point. */
static void write_saved_series(const struct run *run, int64_t n_points,
                               struct board_text *out)
{
    board_text_put(out, "{");
    for (int y = RUN_N_AXES; y < RUN_N_COLUMNS; y++) {
        board_text_key(out, run_column_name((enum run_column)y));
        board_text_put(out, "{");
        for (int x = 0; x < RUN_N_AXES; x++) {
            board_text_key(out, run_column_name((enum run_column)x));
            if (write_series(run, (enum run_column)y, (enum run_column)x, -RUN_LOST,
                             RUN_LOST, n_points, out))
                out->is_broken = true;
        }
        board_text_put(out, "}");
    }
    board_text_put(out, "}");
}

static void write_saved_config(const struct run *run, struct board_text *out)
{
    run_config_write(&run->config, out);
}

static void write_saved_ranks(const struct run *run, struct board_text *out)
{
    run_ranks_write(&run->events, MOMENTS_DEFAULT, out);
}

static void write_saved_events(const struct run *run, struct board_text *out)
{
    run_ring_write(&run->events.events, out);
}

static void write_saved_samples(const struct run *run, struct board_text *out)
{
    run_ring_write(&run->events.samples, out);
}

/* The key of a run's part. */
static void put_run(struct board_text *out, int64_t number)
{
    board_text_comma(out);
    board_text_print(out, "\"%lld\":", (long long)number);
}

static void write_saved(const struct board *b, const bool *which, struct board_text *out)
{
    static const struct {
        const char *key;
        void (*write)(const struct run *run, struct board_text *out);
    } parts[] = {{"config", write_saved_config},
                 {"ranks", write_saved_ranks},
                 {"events", write_saved_events},
                 {"samples", write_saved_samples},
                 {"schedule", run_pipeline_write}};
    int64_t n_runs = 1;
    for (int64_t i = 0; i < b->n_runs; i++)
        n_runs += which[i];
    int64_t n_points =
        i64_min(POINTS_SAVED,
                i64_max(POINTS_SAVED_LEAST, POINTS_SAVED * RUNS_SAVED_WHOLE / n_runs));
    board_text_put(out, "{");
    put_number(out, "saved_at", wall_seconds());
    board_text_key(out, "runs");
    write_runs(b, which, out);
    board_text_key(out, "diff");
    write_diff(b, which, out);
    board_text_key(out, "series");
    board_text_put(out, "{");
    for (int64_t i = 0; i < b->n_runs; i++)
        if (which[i]) {
            put_run(out, i);
            write_saved_series(b->runs[i], n_points, out);
        }
    board_text_put(out, "}");
    for (int64_t i = 0; i < b->n_runs; i++)
        if (which[i])
            run_pipeline_refresh(b->runs[i]);
    for (size_t p = 0; p < ARRAY_LEN(parts); p++) {
        board_text_key(out, parts[p].key);
        board_text_put(out, "{");
        for (int64_t i = 0; i < b->n_runs; i++)
            if (which[i]) {
                put_run(out, i);
                parts[p].write(b->runs[i], out);
            }
        board_text_put(out, "}");
    }
    board_text_put(out, "}");
}

/* jansson writes '<' as it is. In JSON that stands in strings alone, where its escape
 * means the same and cannot end a script. */
static void escape_html(struct board_text *t)
{
    struct board_text safe = {0};
    for (int64_t i = 0, start = 0; i <= t->n; i++)
        if (i == t->n || t->bytes[i] == '<') {
            board_text_add(&safe, t->bytes + start, (size_t)(i - start));
            if (i < t->n)
                board_text_put(&safe, "\\u003c");
            start = i + 1;
        }
    safe.is_broken = safe.is_broken || t->is_broken;
    board_text_release(t);
    *t = safe;
}

void board_write_saved(struct board *b, const bool *which, struct board_text *out)
{
    pthread_mutex_lock(&b->mutex);
    write_saved(b, which, out);
    pthread_mutex_unlock(&b->mutex);
    escape_html(out);
}

static int answer_save(struct board *b, const struct board_request *request,
                       struct board_answer *answer)
{
    struct board_text data = {0};
    bool which[BOARD_RUNS_MOST];
    struct error err;
    if (runs_of(b, request, which, answer))
        return -1;
    write_saved(b, which, &data);
    escape_html(&data);
    int rc = board_page_save(&data, &answer->body, &err);
    board_text_release(&data);
    if (rc)
        return refuse(answer, 500, "%s", err.text);
    answer->type = "text/html; charset=utf-8";
    snprintf(answer->file_name, sizeof answer->file_name,
             "attachment; filename=\"trefoil-board.html\"");
    return 0;
}

static int answer_metrics(struct board *b, const struct board_request *request,
                          struct board_answer *answer)
{
    (void)request;
    board_write_prometheus(b, &answer->body);
    answer->type = PROMETHEUS_CONTENT_TYPE;
    return 0;
}

/* -- all answers --------------------------------------------------------------------- */

static const struct {
    const char *path;
    int (*answer)(struct board *b, const struct board_request *request,
                  struct board_answer *answer);
} routes[] = {
    // clang-format off
    {"/api/runs", answer_runs},
    {"/api/series", answer_series},
    {"/api/config", answer_config},
    {"/api/diff", answer_diff},
    {"/api/ranks", answer_ranks},
    {"/api/events", answer_events},
    {"/api/samples", answer_samples},
    {"/api/schedule", answer_schedule},
    {"/metrics", answer_metrics},
    {"/save", answer_save},
    // clang-format on
};

void board_answer(struct board *b, const struct board_request *request,
                  struct board_answer *answer)
{
    *answer = (struct board_answer){.status = 200, .type = "application/json"};
    size_t i = 0;
    while (i < ARRAY_LEN(routes) && strcmp(routes[i].path, request->path) != 0)
        i++;
    if (i == ARRAY_LEN(routes)) {
        refuse(answer, 404, "the board has nothing at this path");
        return;
    }
    pthread_mutex_lock(&b->mutex);
    routes[i].answer(b, request, answer);
    pthread_mutex_unlock(&b->mutex);
    if (answer->body.is_broken)
        refuse(answer, 500, "there is no memory for this answer");
}
