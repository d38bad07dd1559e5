#include "base/trace.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_LANES 64 // operations in flight beyond that share the last lane

struct trace {
    int64_t n_spans, n_most, n_dropped;
    struct trace_span spans[];
};

int trace_open(struct trace **trace, int64_t n_most, struct error *err)
{
    size_t bytes = (size_t)n_most * sizeof(struct trace_span);
    *trace = calloc(1, sizeof **trace + bytes);
    if (!*trace)
        return error_set(err, ERROR_RUNTIME, "out of memory for a trace of %zu bytes",
                         bytes);
    (*trace)->n_most = n_most;
    return 0;
}

void trace_close(struct trace *trace)
{
    free(trace);
}

double trace_begin(const struct trace *trace)
{
    return trace ? clock_seconds() : 0;
}

void trace_end(struct trace *trace, double start, const struct trace_span *span)
{
    if (!trace)
        return;
    if (trace->n_spans == trace->n_most) {
        trace->n_dropped++;
        return;
    }
    struct trace_span *kept = &trace->spans[trace->n_spans++];
    *kept = *span;
    kept->start = start;
    kept->seconds = clock_seconds() - start;
}

int64_t trace_n_spans(const struct trace *trace)
{
    return trace->n_spans;
}

int64_t trace_n_dropped(const struct trace *trace)
{
    return trace->n_dropped;
}

/* -- writing ------------------------------------------------------------------------- */

double trace_clock_map(const struct trace_clock *clock, double moment)
{
    double between = clock->moments[1] - clock->moments[0];
    double part = between > 0 ? (moment - clock->moments[0]) / between : 0;
    double ahead = clock->ahead[0] + part * (clock->ahead[1] - clock->ahead[0]);
    return moment - ahead - clock->zero;
}

/* Where two start together, the longer one holds the other. */
static int by_start(const void *a, const void *b)
{
    const struct trace_span *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

/* The first lane whose last operation is over. */
static int lane_for(const struct trace_span *span, double *lane_ends, int *n_lanes)
{
    int lane = 0;
    while (lane < *n_lanes && lane_ends[lane] > span->start)
        lane++;
    if (lane == MOST_LANES)
        lane--;
    else if (lane == *n_lanes)
        (*n_lanes)++;
    lane_ends[lane] = span->start + span->seconds;
    return lane;
}

static void write_args(FILE *out, const struct trace_span *span)
{
    const char *comma = "";
    fputs(",\"args\":{", out);
    if (span->group) {
        fprintf(out, "\"group\":\"%s\"", span->group);
        comma = ",";
    }
    for (int i = 0; i < TRACE_ARGS && span->args[i].key; i++) {
        fprintf(out, "%s\"%s\":%lld", comma, span->args[i].key,
                (long long)span->args[i].value);
        comma = ",";
    }
    fputc('}', out);
}

/* Times in microseconds, with nanoseconds after the point. */
static void write_span(FILE *out, const struct trace_span *span, int pid, int thread,
                       const struct trace_clock *clock)
{
    static const char *const categories[] = {"compute", "communication"};
    double start = trace_clock_map(clock, span->start);
    double end = trace_clock_map(clock, span->start + span->seconds);
    fprintf(out,
            ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,"
            "\"ts\":%.3f,\"dur\":%.3f",
            span->name, categories[span->track], pid, thread, 1e6 * start,
            1e6 * (end - start));
    write_args(out, span);
    fputc('}', out);
}

static void write_names(FILE *out, int pid, const char *name, int n_lanes)
{
    fprintf(out,
            ",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":"
            "\"%s\"}},\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%d,"
            "\"args\":{\"sort_index\":%d}}",
            pid, name, pid, pid);
    for (int thread = 0; thread <= n_lanes; thread++) {
        char number[16] = "";
        if (thread > 1)
            snprintf(number, sizeof number, " %d", thread);
        fprintf(out,
                ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                "\"args\":{\"name\":\"%s%s\"}},\n{\"name\":\"thread_sort_index\","
                "\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"sort_index\":%d}}",
                pid, thread, thread == 0 ? "compute" : "comm", number, pid, thread,
                thread);
    }
}

static void write_all(FILE *out, struct trace *trace, int pid, const char *name,
                      const struct trace_clock *clock)
{
    double lane_ends[MOST_LANES];
    int n_lanes = 0;
    qsort(trace->spans, (size_t)trace->n_spans, sizeof *trace->spans, by_start);
    for (int64_t i = 0; i < trace->n_spans; i++)
        if (trace->spans[i].track == TRACE_COMM)
            lane_for(&trace->spans[i], lane_ends, &n_lanes);
    write_names(out, pid, name, n_lanes);
    n_lanes = 0;
    for (int64_t i = 0; i < trace->n_spans; i++) {
        const struct trace_span *span = &trace->spans[i];
        int thread = 0;
        if (span->track == TRACE_COMM)
            thread = 1 + lane_for(span, lane_ends, &n_lanes);
        write_span(out, span, pid, thread, clock);
    }
}

int trace_render(struct trace *trace, int pid, const char *name,
                 const struct trace_clock *clock, char **text, size_t *n,
                 struct error *err)
{
    *text = NULL;
    *n = 0;
    FILE *out = open_memstream(text, n);
    bool is_whole = out != NULL;
    if (out) {
        write_all(out, trace, pid, name, clock);
        is_whole = !ferror(out);
        if (fclose(out))
            is_whole = false;
    }
    if (is_whole)
        return 0;
    free(*text);
    *text = NULL;
    return error_set(err, ERROR_RUNTIME, "out of memory for the text of %lld trace spans",
                     (long long)trace->n_spans);
}

size_t trace_frame(char *file, size_t n)
{
    static const char head[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    static const char tail[] = "\n]}\n";
    _Static_assert(TRACE_TEXT_AT == sizeof head - 1 - 2, "the head ends at the comma");
    _Static_assert(TRACE_FRAME_BYTES >= sizeof head + sizeof tail, "head and tail fit");
    size_t at = n > 0 ? TRACE_TEXT_AT + n : sizeof head - 1;
    memcpy(file, head, sizeof head - 1);
    memcpy(file + at, tail, sizeof tail - 1);
    return at + sizeof tail - 1;
}
