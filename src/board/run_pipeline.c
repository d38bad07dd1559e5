#include "board/run_pipeline.h"

#include "base/fs.h"
#include "base/grow.h"
#include "parallel/schedule.h"
#include "parallel/simulate.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRACE_BYTES_MOST ((int64_t)64 << 20)
#define TRACE_LINE_BYTES 1024 // a span of ours is shorter
#define BOXES_MOST 8192
#define STAGES_MOST 64

static void put_box(struct board_text *out, int64_t stage, double start, double end,
                    const char *kind, const char *label)
{
    board_text_comma(out);
    board_text_print(out, "{\"stage\":%lld,\"start\":", (long long)stage);
    board_text_long_number(out, start);
    board_text_put(out, ",\"end\":");
    board_text_long_number(out, end);
    board_text_print(out, ",\"kind\":\"%s\",\"label\":\"%s\"}", kind, label);
}

/* -- the trace ----------------------------------------------------------------------- */

static const char *const kinds[] = {"forward", "backward", "optimizer", "loader"};

struct box {
    int64_t pid, stage;
    double start, end; // seconds
    size_t kind;
    int64_t micro; // -1: none
};

struct tracing {
    int64_t pid, stage; // of the process whose spans are read; stage -1: not drawn
    double step;        // the last one
    struct box *boxes;
    int64_t n_boxes, capacity, n_first; // n_first: where those of this process begin
    bool has_stage[STAGES_MOST];
};

/* A process is drawn if it is the first of its stage. */
static void take_process(struct tracing *t, const json_t *root)
{
    const char *name =
        json_string_value(json_object_get(json_object_get(root, "args"), "name"));
    const char *at = name ? strstr(name, " pp ") : NULL;
    long stage = at ? strtol(at + 4, NULL, 10) : -1;
    t->pid = json_integer_value(json_object_get(root, "pid"));
    t->stage = stage >= 0 && stage < STAGES_MOST && !t->has_stage[stage] ? stage : -1;
    t->n_first = t->n_boxes;
    if (t->stage >= 0)
        t->has_stage[t->stage] = true;
}

static void take_span(struct tracing *t, const json_t *root, const char *name)
{
    const json_t *args = json_object_get(root, "args");
    const json_t *micro = json_object_get(args, "micro");
    double start = json_number_value(json_object_get(root, "ts")) * 1e-6;
    double seconds = json_number_value(json_object_get(root, "dur")) * 1e-6;
    if (t->stage < 0 || json_integer_value(json_object_get(root, "tid")) != 0)
        return;
    if (strcmp(name, "step") == 0) { // of the steps of a process the last one stays
        t->n_boxes = t->n_first;
        t->step = json_number_value(json_object_get(args, "step"));
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strcmp(name, kinds[i]) == 0 && t->n_boxes < BOXES_MOST &&
            grow_array(&t->boxes, &t->capacity, t->n_boxes + 1, sizeof *t->boxes) == 0)
            t->boxes[t->n_boxes++] = (struct box){
                .pid = t->pid,
                .stage = t->stage,
                .start = start,
                .end = start + seconds,
                .kind = i,
                .micro = json_is_integer(micro) ? json_integer_value(micro) : -1};
}

static void take_trace_line(struct tracing *t, const char *line)
{
    json_t *root = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
    const char *name = json_string_value(json_object_get(root, "name"));
    if (name && strcmp(name, "process_name") == 0)
        take_process(t, root);
    else if (name)
        take_span(t, root, name);
    json_decref(root);
}

/* The file of the run's trace, in its directory; NULL: there is none to be read. */
static FILE *open_trace(const struct run *run, struct stat *now)
{
    const char *path = run_config_value(&run->config, "trace"), *slash;
    char here[PATH_MAX];
    struct error ignored;
    if (!path || !path[0])
        return NULL;
    slash = strrchr(path, '/');
    path = slash ? slash + 1 : path;
    if (!path[0] || strcmp(path, "..") == 0 ||
        fs_join(here, sizeof here, run->dir, path, &ignored))
        return NULL;
    int fd = open(here, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    FILE *file =
        fstat(fd, now) == 0 && S_ISREG(now->st_mode) && now->st_size <= TRACE_BYTES_MOST
            ? fdopen(fd, "r")
            : NULL;
    if (!file)
        close(fd);
    return file;
}

static void draw_trace(FILE *file, struct board_text *out)
{
    struct tracing t = {.stage = -1};
    char line[TRACE_LINE_BYTES], label[32];
    double first = RUN_LOST;
    while (fgets(line, sizeof line, file))
        if (line[0] == '{' && !strstr(line, "\"displayTimeUnit\""))
            take_trace_line(&t, line);
    for (int64_t i = 0; i < t.n_boxes; i++)
        first = fmin(first, t.boxes[i].start);
    if (t.n_boxes > 0)
        board_text_put(out, "{\"boxes\":[");
    for (int64_t i = 0; i < t.n_boxes; i++) {
        const struct box *b = &t.boxes[i];
        label[0] = 0;
        if (b->micro >= 0)
            snprintf(label, sizeof label, "%lld", (long long)b->micro);
        put_box(out, b->stage, b->start - first, b->end - first,
                strcmp(kinds[b->kind], "loader") == 0 ? "reader" : kinds[b->kind], label);
    }
    if (t.n_boxes > 0) {
        board_text_put(out, "],\"traced\":true,\"step\":");
        board_text_long_number(out, t.step);
        board_text_put(out, ",\"unit\":\"seconds\"}");
    }
    free(t.boxes);
}

void run_pipeline_refresh(struct run *run)
{
    struct run_traced *t = &run->traced;
    struct stat now = {0};
    FILE *file = open_trace(run, &now);
    int64_t changed_ns = (int64_t)now.st_mtim.tv_sec * 1000000000 + now.st_mtim.tv_nsec;
    bool is_same = file && now.st_ino == t->inode && now.st_dev == t->device &&
                   now.st_size == t->n_bytes && changed_ns == t->changed_ns;
    if (!is_same || t->drawing.is_broken) {
        board_text_release(&t->drawing);
        *t = (struct run_traced){0};
    }
    if (file && !is_same) {
        *t = (struct run_traced){.inode = now.st_ino,
                                 .device = now.st_dev,
                                 .n_bytes = now.st_size,
                                 .changed_ns = changed_ns};
        draw_trace(file, &t->drawing);
    }
    if (file)
        fclose(file);
}

/* -- the schedule -------------------------------------------------------------------- */

/* False: the configuration does not say, or says too much to be drawn. */
static bool shape_of(const struct run *run, struct schedule_shape *shape)
{
    const struct run_config *c = &run->config;
    const char *kind = run_config_value(c, "Distributed.pp_schedule");
    double pp = run_config_number(c, "Distributed.pp_degree");
    double chunks = run_config_number(c, "Distributed.virtual_pp_degree");
    double micro = run_config_number(c, "batch_size.num_micro_batches");
    double batches = run_config_number(c, "batch_size.gradient_accumulation");
    struct error ignored;
    if (batches > 1) // older runs have no such key
        micro *= batches;
    if (!(pp >= 1 && pp <= STAGES_MOST && chunks >= 1 && micro >= 1 &&
          pp * chunks * micro * 2 <= BOXES_MOST))
        return false;
    *shape = (struct schedule_shape){.pp = (int64_t)pp,
                                     .chunks = (int64_t)chunks,
                                     .micro_batches = (int64_t)micro,
                                     .kind = kind && strcasecmp(kind, "F-then-B") == 0
                                                 ? SCHEDULE_F_THEN_B
                                                 : SCHEDULE_1F1B};
    return schedule_check(shape, &ignored) == 0;
}

static void put_spans(const struct simulate *sim, struct board_text *out)
{
    char label[32];
    for (int stage = 0; stage < sim->pp; stage++)
        for (int64_t i = 0; i < sim->stages[stage].n_spans; i++) {
            const struct simulate_span *span = &sim->stages[stage].spans[i];
            snprintf(label, sizeof label, "%d", (int)span->micro);
            put_box(out, stage, span->start, span->end,
                    span->is_backward ? "backward" : "forward", label);
        }
}

static void write_computed(const struct run *run, struct board_text *out)
{
    const struct simulate_cost cost = {.forward = 1, .backward = 2};
    struct schedule stages[STAGES_MOST] = {0};
    struct simulate sim = {0};
    struct schedule_shape shape = {0};
    struct error ignored;
    bool is_known = shape_of(run, &shape);
    for (int i = 0; is_known && i < shape.pp; i++)
        is_known = schedule_init(&stages[i], &shape, i, &ignored) == 0;
    board_text_put(out, "{\"boxes\":[");
    if (is_known && simulate_init(&sim, stages, &cost, &ignored) == 0)
        put_spans(&sim, out);
    board_text_put(out, "],\"traced\":false,\"step\":null,\"unit\":\"forward\"}");
    simulate_release(&sim);
    for (int i = 0; i < STAGES_MOST; i++)
        schedule_release(&stages[i]);
}

void run_pipeline_write(const struct run *run, struct board_text *out)
{
    const struct board_text *drawing = &run->traced.drawing;
    if (drawing->n > 0 && !drawing->is_broken)
        board_text_add(out, drawing->bytes, (size_t)drawing->n);
    else
        write_computed(run, out);
}
