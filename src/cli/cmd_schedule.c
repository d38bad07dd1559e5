/*
 * trefoil schedule - draw a pipeline schedule, and say what it costs.
 */
#include "base/log.h"
#include "base/log_view.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "parallel/schedule_draw.h"
#include "parallel/simulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define MAX_STAGES 64
#define MAX_MICRO_BATCHES 65536
#define MAX_FORWARDS 2000000 // of all stages, chunks and micro-batches
#define MAX_RATIO 100        // of forward and backward, either way

struct request {
    struct schedule_shape shape;
    const char *kind, *svg;
    double forward, backward;
};

/* -- checks -------------------------------------------------------------------------- */

static int check_count(const char *option, int64_t value, int64_t most, struct error *err)
{
    if (value >= 1 && value <= most)
        return 0;
    return error_set(err, ERROR_INPUT, "--%s must be between 1 and %lld; it is %lld",
                     option, (long long)most, (long long)value);
}

static int parse_kind(struct request *r, struct error *err)
{
    static const struct {
        const char *name;
        enum config_schedule kind;
    } kinds[] = {{"1F1B", SCHEDULE_1F1B}, {"F-then-B", SCHEDULE_F_THEN_B}};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strcasecmp(r->kind, kinds[i].name) == 0) {
            r->shape.kind = kinds[i].kind;
            return 0;
        }
    return error_set(err, ERROR_INPUT, "--schedule must be 1F1B or F-then-B; it is '%s'",
                     r->kind);
}

static int check_request(struct request *r, struct error *err)
{
    double ratio = r->backward / r->forward;
    if (check_count("pp", r->shape.pp, MAX_STAGES, err) ||
        check_count("chunks", r->shape.chunks, SCHEDULE_DRAW_MAX_CHUNKS, err) ||
        check_count("micro", r->shape.micro_batches, MAX_MICRO_BATCHES, err) ||
        parse_kind(r, err))
        return -1;
    int64_t n_forwards = r->shape.pp * r->shape.chunks * r->shape.micro_batches;
    if (n_forwards > MAX_FORWARDS)
        return error_set(err, ERROR_INPUT,
                         "--pp x --chunks x --micro must be at most %d; it is %lld",
                         MAX_FORWARDS, (long long)n_forwards);
    // written so that nan is refused too
    if (!(r->forward > 0 && r->backward > 0 && ratio <= MAX_RATIO &&
          ratio >= 1.0 / MAX_RATIO))
        return error_set(err, ERROR_INPUT,
                         "--forward and --backward must be above 0 and neither more than "
                         "%d times the other; they are %g and %g",
                         MAX_RATIO, r->forward, r->backward);
    return schedule_check(&r->shape, err);
}

/* -- output -------------------------------------------------------------------------- */

/* "7 stashes (a 4, b 3)": what a stage keeps from forward to backward at once. */
static void print_stage(const struct schedule *s, const struct simulate *sim)
{
    int all = schedule_max_in_flight(s, SCHEDULE_ALL_CHUNKS);
    double busy = sim->stages[s->stage].busy;
    printf("stage %-2d  busy %g, idle %g; in flight at most %d micro-batch%s", s->stage,
           busy, sim->makespan - busy, all, all == 1 ? "" : "es");
    for (int c = 0; s->shape.chunks > 1 && c < s->shape.chunks; c++)
        printf("%s%c %d", c == 0 ? " over all chunks; chunk " : ", ", 'a' + c,
               schedule_max_in_flight(s, c));
    putchar('\n');
}

static void print_costs(const struct schedule *stages, const struct simulate *sim)
{
    printf(
        "\ntime    %g\n"
        "bubble  %.2f %% of that time (idle / total)\n"
        "        %.2f %% of the time without it (idle / compute, as Megatron counts)\n\n",
        sim->makespan, 100 * simulate_bubble_of_total(sim),
        100 * simulate_bubble_of_ideal(sim));
    for (int i = 0; i < sim->pp; i++)
        print_stage(&stages[i], sim);
}

static int print_all(const struct request *r, const struct schedule *stages,
                     const struct simulate *sim, struct error *err)
{
    struct log_view view = log_view_of(STDOUT_FILENO);
    int columns = view.is_terminal && view.columns == 0 ? 80 : view.columns;
    struct schedule_draw draw = {.shape = &r->shape,
                                 .sim = sim,
                                 .forward = r->forward,
                                 .backward = r->backward,
                                 .n_columns = columns,
                                 .has_colour = view.is_coloured};
    if (r->svg && schedule_draw_svg(&draw, r->svg, err))
        return -1;
    if (schedule_draw_text(&draw, stdout, err))
        return -1;
    print_costs(stages, sim);
    return print_check("the schedule", err);
}

static int run_schedule(void *context, struct error *err)
{
    struct request *r = context;
    struct schedule stages[MAX_STAGES] = {0};
    struct simulate sim = {0};
    int rc = check_request(r, err);
    for (int i = 0; rc == 0 && i < r->shape.pp; i++)
        rc = schedule_init(&stages[i], &r->shape, i, err);
    const struct simulate_cost cost = {.forward = r->forward, .backward = r->backward};
    if (rc == 0)
        rc = simulate_init(&sim, stages, &cost, err);
    if (rc == 0)
        rc = print_all(r, stages, &sim, err);
    simulate_release(&sim);
    for (int i = 0; i < MAX_STAGES; i++)
        schedule_release(&stages[i]);
    return rc;
}

int cmd_schedule(int argc, char **argv)
{
    struct request r = {
        .shape = {.chunks = 1}, .kind = "1F1B", .forward = 1, .backward = 2};
    const struct option_spec specs[] = {
        {"pp", 0, OPTION_INT, &r.shape.pp, true, "N", "Pipeline stages (pp_degree)."},
        {"chunks", 0, OPTION_INT, &r.shape.chunks, false, "N",
         "Chunks of layers per stage (virtual_pp_degree; 1)."},
        {"micro", 0, OPTION_INT, &r.shape.micro_batches, true, "N",
         "Micro-batches per step."},
        {"schedule", 0, OPTION_TEXT, &r.kind, false, "1F1B|F-then-B",
         "1F1B (default) or F-then-B."},
        {"forward", 0, OPTION_NUMBER, &r.forward, false, "TIME",
         "Time of one micro-batch's forward pass through a stage (1)."},
        {"backward", 0, OPTION_NUMBER, &r.backward, false, "TIME",
         "Time of its backward pass (2)."},
        {"svg", 0, OPTION_TEXT, &r.svg, false, "FILE", "Also write the picture as SVG."},
    };
    const struct command command = {
        "trefoil schedule", "Draw a pipeline schedule with its bubble and memory.", specs,
        (int)ARRAY_LEN(specs)};
    return command_run(&command, argc, argv, run_schedule, &r);
}
