/*
 * trefoil selftest - on this machine, does a layout change the result?
 *
 * Trains a tiny model on one process, then under each layout (one process again, if it is
 * in the list), and compares. A row says how far the losses are apart and whether that
 * keeps what the layout promises; the exit code is 0 only if all do. --kernels and
 * --device try other things, see selftest_kernels.h and selftest_device.h.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/stop.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "cli/selftest_device.h"
#include "cli/selftest_kernels.h"
#include "cli/selftest_layout.h"
#include "cli/selftest_run.h"
#include "comm/comm.h"
#include "device/kernel_sets.h"

#include <stdio.h>
#include <string.h>

#define LAYOUTS_MOST 64
#define LAYOUTS_DEFAULT                                                                  \
    "1, recompute, pp2, pp3, pp2 v2, pp2 fthenb, dp2, sh2, sh2 stage2, sh2 stage3, "     \
    "mp2, "                                                                              \
    "dp2 mp2, dp2 mp2 pp2, sh2 stage3 pp2 recompute"
#define LAYOUTS_EMULATED "recompute, pp2, mp2"
#define STEPS_DEFAULT 5
#define STEPS_EMULATED 2
#define NOT_GIVEN INT64_MIN

/* -- the request --------------------------------------------------------------------- */

struct request {
    bool is_of_kernels;
    const char *layouts, *cpu_kernels; // layouts NULL: not given
    int64_t n_steps;                   // or NOT_GIVEN
    const char *device_name, *output;  // NULL: not given
    enum device_kind device;
    struct selftest_layout list[LAYOUTS_MOST];
    int n_layouts;
    int name_width; // of the longest
};

static int parse_layouts(struct request *r, struct error *err)
{
    for (const char *at = r->layouts;; at++) {
        size_t n = strcspn(at, ",;");
        if (r->n_layouts == LAYOUTS_MOST)
            return error_set(err, ERROR_INPUT, "--layouts: more than %d layouts",
                             LAYOUTS_MOST);
        struct selftest_layout *layout = &r->list[r->n_layouts++];
        if (selftest_layout_parse(layout, at, n, err))
            return -1;
        r->name_width = (int)i64_max(r->name_width, (int64_t)strlen(layout->name));
        at += n;
        if (*at == 0)
            return 0;
    }
}

static int check_request(struct request *r, struct error *err)
{
    bool is_emulated = r->device == DEVICE_EMULATED;
    if (!r->layouts)
        r->layouts = is_emulated ? LAYOUTS_EMULATED : LAYOUTS_DEFAULT;
    if (r->n_steps == NOT_GIVEN)
        r->n_steps = is_emulated ? STEPS_EMULATED : STEPS_DEFAULT;
    if (r->n_steps < 1 || r->n_steps > SELFTEST_STEPS_MOST)
        return error_set(err, ERROR_INPUT, "--steps must be between 1 and %d; it is %lld",
                         SELFTEST_STEPS_MOST, (long long)r->n_steps);
    if (comm_is_launched())
        return error_set(err, ERROR_INPUT,
                         "trefoil selftest starts its processes itself; run it without "
                         "mpirun or srun");
    return parse_layouts(r, err);
}

/* The set that all runs compute with; one that cannot run is refused before any does. */
static int check_kernels(const struct request *r, enum kernel_set *set, struct error *err)
{
    return kernel_set_parse(set, r->cpu_kernels, err) || kernels_use(*set, err) ? -1 : 0;
}

/* -- the table ----------------------------------------------------------------------- */

static void print_head(const struct request *r)
{
    printf("%-*s  %9s", r->name_width, "layout", "processes");
    for (int64_t i = 1; i <= r->n_steps; i++)
        printf("  %7s %2lld", "loss", (long long)i);
    printf("  %10s  %-6s  %-18s  %s\n", "difference", "bits", "promise", "verdict");
}

static void print_name(const struct request *r, const struct selftest_layout *layout)
{
    printf("%-*s  %9lld", r->name_width, layout->name,
           (long long)selftest_layout_processes(layout));
}

static void print_verdict(struct selftest_promise p, struct selftest_verdict v)
{
    char promise[64] = "same bits", difference[32] = "0";
    if (p.first > 0)
        snprintf(promise, sizeof promise, "%g, then %g", p.first, p.later);
    else if (p.later > 0)
        snprintf(promise, sizeof promise, "same, then %g", p.later);
    if (v.largest > 0)
        snprintf(difference, sizeof difference, "%.1e", v.largest);
    printf("  %10s  %-6s  %-18s  %s\n", difference, v.is_same ? "same" : "differ",
           promise, v.is_kept ? "kept" : "BROKEN");
}

static void print_row(const struct request *r, const struct selftest_layout *layout,
                      const struct selftest_curve *curve, struct selftest_verdict v)
{
    print_name(r, layout);
    for (int64_t i = 0; i < curve->n_steps; i++)
        printf("  %10.8f", curve->loss[i]);
    print_verdict(selftest_promise(layout), v);
    fflush(stdout);
}

static void print_failure(const struct request *r, const struct selftest_layout *layout,
                          const struct error *err)
{
    print_name(r, layout);
    puts("  FAILED");
    fflush(stdout);
    log_error("layout '%s' %s", layout->name, err->text);
}

/* -- running ------------------------------------------------------------------------- */

/* One row. *is_good: the run succeeded and kept its promise; -1 when the
 * self-test is to end. */
static int run_layout(const struct request *r, struct selftest *st,
                      const struct selftest_layout *layout,
                      const struct selftest_curve *reference, bool *is_good,
                      struct error *err)
{
    struct selftest_curve curve;
    log_status("training as '%s' on %lld processes", layout->name,
               (long long)selftest_layout_processes(layout));
    int rc = selftest_run(st, layout, &curve, err);
    log_status_clear();
    *is_good = false;
    if (rc && err->kind == ERROR_STOPPED)
        return -1;
    if (rc) {
        print_failure(r, layout, err);
        return 0;
    }
    struct selftest_verdict v =
        selftest_judge(selftest_promise(layout), reference, &curve);
    print_row(r, layout, &curve, v);
    *is_good = v.is_kept;
    return 0;
}

static int run_reference(struct selftest *st, struct selftest_curve *curve,
                         struct error *err)
{
    struct selftest_layout one;
    log_status("training on one process");
    int rc = selftest_layout_parse(&one, "1", 1, err);
    if (rc == 0)
        rc = selftest_run(st, &one, curve, err);
    log_status_clear();
    return rc ? error_prefix(err, "the run on one process") : 0;
}

static int run_all(const struct request *r, struct selftest *st, int *n_bad,
                   struct error *err)
{
    struct selftest_curve reference;
    if (selftest_open(st, err) || run_reference(st, &reference, err))
        return -1;
    print_head(r);
    for (int i = 0; i < r->n_layouts; i++) {
        bool is_good = true;
        if (run_layout(r, st, &r->list[i], &reference, &is_good, err))
            return -1;
        *n_bad += is_good ? 0 : 1;
    }
    return 0;
}

/* What the table comes to. */
static int print_conclusion(const struct request *r, const struct selftest *st, int n_bad,
                            double seconds, struct error *err)
{
    if (n_bad > 0)
        return error_set(err, ERROR_RUNTIME,
                         "%d of %d layouts failed or broke their promise; logs and "
                         "metrics are kept in '%s'",
                         n_bad, r->n_layouts, st->dir);
    printf("%d of %d layouts keep their promise (%.0f s)\n", r->n_layouts, r->n_layouts,
           seconds);
    return print_check("the table", err);
}

static int try_device(const struct request *r, enum kernel_set set, struct error *err)
{
    char name[64];
    snprintf(name, sizeof name, "trefoil-selftest-%s.json", device_kind_name(r->device));
    return selftest_device(
        &(struct device_test_request){.kind = r->device,
                                      .cpu_kernels = set,
                                      .layouts = r->list,
                                      .n_layouts = r->n_layouts,
                                      .n_steps = r->n_steps,
                                      .output = r->output ? r->output : name},
        err);
}

static int run_selftest(struct request *r, struct error *err)
{
    struct selftest st = {.device = "cpu"};
    int n_bad = 0;
    double start = clock_seconds();
    if (check_kernels(r, &st.cpu_kernels, err) ||
        device_kind_parse(&r->device, r->device_name, err))
        return -1;
    if (r->is_of_kernels)
        return selftest_kernels(err);
    if (check_request(r, err))
        return -1;
    if (r->device != DEVICE_CPU)
        return try_device(r, st.cpu_kernels, err);
    st.n_steps = r->n_steps;
    stop_watch(STOP_COMMAND);
    int rc = run_all(r, &st, &n_bad, err);
    if (rc == 0)
        rc = print_conclusion(r, &st, n_bad, clock_seconds() - start, err);
    if (n_bad == 0 || err->kind == ERROR_STOPPED)
        selftest_close(&st);
    return rc;
}

int cmd_selftest(int argc, char **argv)
{
    struct request r = {.cpu_kernels = "auto", .n_steps = NOT_GIVEN, .name_width = 6};
    const struct option_spec options[] = {
        {"layouts", 0, OPTION_TEXT, &r.layouts, false, "LIST",
         "Layouts, separated by commas, made of the words dpN mpN ppN vN (chunks) shN "
         "(sharding) stageN tN (threads) fthenb sp recompute; by "
         "default: " LAYOUTS_DEFAULT "; with --device emulated: " LAYOUTS_EMULATED "."},
        {"cpu_kernels", 0, OPTION_TEXT, &r.cpu_kernels, false, "SET",
         "Instructions to compute with: auto, generic, avx2, avx512 or amx (auto)."},
        {"device", 0, OPTION_TEXT, &r.device_name, false, "cpu|gpu|emulated",
         "Try a device instead: its kernels against the reference, bits of products, "
         "layouts, bandwidths, rates of products and attention, and steps of 124M, 345M "
         "and 1.3B models, next to published ones. emulated: with toy sizes."},
        {"output", 0, OPTION_TEXT, &r.output, false, "FILE",
         "With --device: the JSON file that holds what was found "
         "(trefoil-selftest-DEVICE.json)."},
        {"kernels", 0, OPTION_FLAG, &r.is_of_kernels, false, NULL,
         "Show instead which sets of kernels this processor can run and what is chosen, "
         "and compare their bits."},
        {"steps", 0, OPTION_INT, &r.n_steps, false, "N",
         "Updates per run of a layout (5; with --device emulated 2)."},
    };
    const struct command cmd = {
        "trefoil selftest",
        "Train a tiny model under several parallel layouts and compare with one process.",
        options, ARRAY_LEN(options)};
    struct error err;
    int rc = options_parse(&cmd, argc, argv, &err);
    if (rc == 0)
        rc = run_selftest(&r, &err);
    if (rc >= 0)
        return 0;
    if (err.kind == ERROR_STOPPED)
        log_warning("%s", err.text);
    else
        log_error("%s", err.text);
    return error_exit_code(&err);
}
