/*
 * What whole runs on the device show: that layouts keep their promise, that losses are near
 * the processor's, and how fast steps of real models are, next to what others published.
 */
#include "base/log.h"
#include "cli/selftest_device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEAR_THE_PROCESSOR 1e-5 // losses in float32, relatively
#define STEPS 12                // of a model that is measured
#define STEPS_BEFORE 2          // that are not counted

/* A run that fails says why on the terminal: its words may name machines and paths. One
 * that the plan refuses, for the GPU is too small for it, has not failed. */
static int note_failure(struct device_test *t, const char *section, const char *what,
                        const char *type, struct error *err)
{
    bool is_too_large = strstr(err->text, "not enough memory of the GPU") != NULL;
    if (err->kind == ERROR_STOPPED)
        return -1;
    device_report_row(
        &t->report,
        &(struct device_row){.section = section,
                             .what = what,
                             .type = type,
                             .verdict = is_too_large ? VERDICT_SKIPPED : VERDICT_BAD,
                             .note = is_too_large ? "by the plan, it needs more memory "
                                                    "than the GPU has"
                                                  : "the run failed"});
    if (!is_too_large)
        log_error("'%s' %s", what, err->text);
    return 0;
}

static int train(struct selftest *st, const struct selftest_layout *layout,
                 const char *device, struct selftest_curve *curve, struct error *err)
{
    st->device = device;
    log_status("training as '%s', device: %s", layout->name, device);
    int rc = selftest_run(st, layout, curve, err);
    log_status_clear();
    return rc;
}

/* -- layouts ------------------------------------------------------------------------- */

/* One process: near the processor's losses. */
static int compare_with_processor(struct device_test *t, struct selftest *st,
                                  struct selftest_curve *reference, struct error *err)
{
    struct selftest_layout one;
    struct selftest_curve processor;
    const char *type = dtype_name(DTYPE_F32);
    if (selftest_layout_parse(&one, "1", 1, err) ||
        train(st, &one, "cpu", &processor, err))
        return -1;
    if (train(st, &one, device_kind_name(t->kind), reference, err)) {
        reference->n_steps = 0;
        return note_failure(t, "layout", "one process", type, err);
    }
    struct selftest_verdict v =
        selftest_judge((struct selftest_promise){NEAR_THE_PROCESSOR, NEAR_THE_PROCESSOR},
                       &processor, reference);
    device_report_row(&t->report, &(struct device_row){
                                      .section = "layout",
                                      .what = "one process, as on the processor",
                                      .type = type,
                                      .value = v.largest,
                                      .unit = "off",
                                      .verdict = v.is_kept ? VERDICT_GOOD : VERDICT_BAD,
                                      .note = "losses; allowed 1e-05"});
    return 0;
}

static int try_layout(struct device_test *t, struct selftest *st,
                      const struct selftest_layout *layout,
                      const struct selftest_curve *reference, struct error *err)
{
    struct selftest_curve curve;
    struct selftest_promise promise = selftest_promise(layout);
    const char *type = dtype_name(DTYPE_F32);
    char note[64] = "same bits";
    int n = (int)selftest_layout_processes(layout);
    if (device_available(t->kind, DTYPE_F32, n, err)) {
        device_report_row(&t->report, &(struct device_row){.section = "layout",
                                                           .what = layout->name,
                                                           .type = type,
                                                           .verdict = VERDICT_SKIPPED,
                                                           .note = err->text});
        return 0;
    }
    if (train(st, layout, device_kind_name(t->kind), &curve, err))
        return note_failure(t, "layout", layout->name, type, err);
    if (promise.later > 0)
        snprintf(note, sizeof note, "losses; allowed %g, then %g", promise.first,
                 promise.later);
    struct selftest_verdict v = selftest_judge(promise, reference, &curve);
    device_report_row(&t->report, &(struct device_row){.section = "layout",
                                                       .what = layout->name,
                                                       .type = type,
                                                       .value = v.largest,
                                                       .unit = "off",
                                                       .verdict = v.is_kept ? VERDICT_GOOD
                                                                            : VERDICT_BAD,
                                                       .note = note});
    return 0;
}

int selftest_device_layouts(struct device_test *t, const struct device_test_request *r,
                            struct error *err)
{
    struct selftest st = {.n_steps = r->n_steps, .cpu_kernels = r->cpu_kernels};
    struct selftest_curve reference;
    int rc = selftest_open(&st, err);
    if (rc == 0)
        rc = compare_with_processor(t, &st, &reference, err);
    for (int i = 0; i < r->n_layouts && rc == 0 && reference.n_steps > 0; i++)
        rc = try_layout(t, &st, &r->layouts[i], &reference, err);
    selftest_close(&st);
    return rc;
}

/* -- steps --------------------------------------------------------------------------- */

struct step_figures {
    double flops; // of a step
    double plan_bytes, memory_bytes;
    double seconds; // of the steps that count
    int n_steps;
};

/* The first number of an array, or the number itself. */
static double number_of(const json_t *value)
{
    return json_number_value(json_is_array(value) ? json_array_get(value, 0) : value);
}

static int take_line(void *context, const json_t *line)
{
    struct step_figures *f = context;
    const json_t *flops = json_object_get(line, "flops_per_step");
    if (flops) {
        f->flops = json_number_value(flops);
        f->plan_bytes = number_of(json_object_get(line, "device_plan_bytes"));
    }
    if (!json_object_get(line, "loss"))
        return 0;
    f->memory_bytes = number_of(json_object_get(line, "device_memory_bytes"));
    if (f->n_steps++ >= STEPS_BEFORE)
        f->seconds += json_number_value(json_object_get(line, "batch_cost"));
    return 0;
}

static void step_row(struct device_test *t, const char *what, const char *type,
                     double value, const char *unit, const char *note)
{
    device_report_row(&t->report, &(struct device_row){.section = "step",
                                                       .what = what,
                                                       .type = type,
                                                       .value = value,
                                                       .unit = unit,
                                                       .note = note});
}

static void report_steps(struct device_test *t, int model, enum dtype dtype,
                         const struct step_figures *f)
{
    const struct device_model *d = &t->models[model];
    const char *type = dtype_name(dtype);
    int n = f->n_steps - STEPS_BEFORE;
    double seconds = f->seconds / n, rate = f->flops / seconds;
    double peak = device_peak(t->facts.name, dtype);
    double products = t->product_rate[model][dtype];
    char what[64], note[96];
    snprintf(what, sizeof what, "%s, %lld x %lld tokens", d->name, (long long)d->B,
             (long long)d->S);
    snprintf(note, sizeof note, "%.4g s per step%s%s", seconds,
             d->is_recompute ? ", recomputation" : "",
             t->is_emulated ? "; emulated: says nothing of a GPU" : "");
    step_row(t, what, type, (double)(d->B * d->S) / seconds, "tokens/s", note);
    if (products > 0 && !t->is_emulated)
        step_row(t, what, type, 100 * rate / products, "% of MFU",
                 "of the rate of its own products, see above");
    if (peak > 0)
        step_row(t, what, type, 100 * rate / peak, "% of MFU",
                 "of the peak in NVIDIA's data sheet");
    if (f->memory_bytes > 0) {
        snprintf(note, sizeof note, "of the GPU's; the plan said %.4g GB",
                 f->plan_bytes / 1e9);
        bool is_good = f->memory_bytes <= 1.05 * f->plan_bytes;
        device_report_row(&t->report, &(struct device_row){
                                          .section = "step",
                                          .what = what,
                                          .type = type,
                                          .value = f->memory_bytes / 1e9,
                                          .unit = "GB",
                                          .verdict = is_good ? VERDICT_GOOD : VERDICT_BAD,
                                          .note = note});
    }
}

#define SETTINGS_MOST 16
#define SETTING_BYTES 96

struct settings {
    char text[SETTINGS_MOST][SETTING_BYTES];
    const char *list[SETTINGS_MOST + 1];
    int n;
};

static void set(struct settings *s, const char *key, int64_t value)
{
    CHECK(s->n < SETTINGS_MOST, "%d settings", s->n);
    snprintf(s->text[s->n], SETTING_BYTES, "%s=%lld", key, (long long)value);
    s->list[s->n] = s->text[s->n];
    s->list[++s->n] = NULL;
}

static void set_text(struct settings *s, const char *key, const char *value)
{
    CHECK(s->n < SETTINGS_MOST, "%d settings", s->n);
    snprintf(s->text[s->n], SETTING_BYTES, "%s=%s", key, value);
    s->list[s->n] = s->text[s->n];
    s->list[++s->n] = NULL;
}

static void settings_of(struct settings *s, const struct device_model *d,
                        enum dtype dtype)
{
    *s = (struct settings){0};
    set(s, "Model.vocab_size", d->V);
    set(s, "Model.hidden_size", d->H);
    set(s, "Model.num_layers", d->L);
    set(s, "Model.num_attention_heads", d->A);
    set(s, "Model.max_position_embeddings", d->S);
    set(s, "dataset.max_seq_len", d->S);
    set(s, "batch_size.global_batch_size", d->B);
    set(s, "batch_size.micro_batch_size", d->B);
    set_text(s, "mix_precision.dtype", dtype_name(dtype));
}

static int measure_steps(struct device_test *t, struct selftest *st, int model,
                         enum dtype dtype, struct error *err)
{
    const struct device_model *d = &t->models[model];
    struct settings settings;
    struct selftest_layout one;
    struct step_figures f = {0};
    if (selftest_layout_parse(&one, "1", 1, err))
        return -1;
    one.recompute = d->is_recompute;
    settings_of(&settings, d, dtype);
    st->settings = settings.list;
    log_status("training %s in %s", d->name, dtype_name(dtype));
    int rc = selftest_train(st, &one, err);
    log_status_clear();
    st->settings = NULL;
    if (rc == 0)
        rc = selftest_lines(st, take_line, &f, err);
    if (rc)
        return note_failure(t, "step", d->name, dtype_name(dtype), err);
    if (f.n_steps > STEPS_BEFORE && f.seconds > 0)
        report_steps(t, model, dtype, &f);
    return 0;
}

/* -- what others published ----------------------------------------------------------- */

static void report_anchors(struct device_test *t)
{
    for (const struct device_anchor *a = device_anchors(); a->system; a++) {
        char what[64];
        snprintf(what, sizeof what, "%s, %s, %s", a->system, a->model, a->hardware);
        device_report_row(
            &t->report,
            &(struct device_row){.section = "published",
                                 .what = what,
                                 .value = a->tokens_per_second,
                                 .unit = "tokens/s per GPU",
                                 .note = a->source,
                                 .is_only_in_file = !strstr(t->facts.name, a->hardware)});
    }
}

int selftest_device_steps(struct device_test *t, const struct device_test_request *r,
                          struct error *err)
{
    struct selftest st = {.n_steps = t->is_emulated ? STEPS_BEFORE + 1 : STEPS,
                          .cpu_kernels = r->cpu_kernels,
                          .device = device_kind_name(t->kind)};
    struct error unused;
    bool has_bf16 = device_available(t->kind, DTYPE_BF16, 1, &unused) == 0;
    enum dtype dtype = has_bf16 ? DTYPE_BF16 : DTYPE_F16;
    int rc = selftest_open(&st, err);
    for (int i = 0; t->models[i].name && rc == 0; i++)
        rc = measure_steps(t, &st, i, dtype, err);
    if (rc == 0) // the smallest in float32, too
        rc = measure_steps(t, &st, 0, DTYPE_F32, err);
    if (rc == 0)
        report_anchors(t);
    selftest_close(&st);
    return rc;
}
