#include "cli/selftest_device.h"

#include "base/log.h"
#include "base/stop.h"
#include "cli/options.h"
#include "cli/report.h"
#include "device/kernel_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};

/* -- what it is ---------------------------------------------------------------------- */

static json_t *facts_of(const struct device_test *t)
{
    json_t *root = json_object(), *facts = json_object(), *host = json_object();
    struct utsname system;
    char capability[32];
    snprintf(capability, sizeof capability, "%d.%d", t->facts.major, t->facts.minor);
    report_set_text(facts, "name", t->facts.name);
    report_set_text(facts, "capability", capability);
    report_set_int(facts, "multiprocessors", t->facts.n_processors);
    report_set_int(facts, "memory_bytes", (int64_t)t->facts.memory_bytes);
    report_set_int(facts, "shared_bytes_per_block", (int64_t)t->facts.shared_bytes);
    report_set_text(facts, "libraries", t->facts.libraries);
    if (uname(&system) == 0) {
        report_set_text(host, "system", system.sysname);
        report_set_text(host, "release", system.release);
        report_set_text(host, "machine", system.machine);
    }
    report_set_text(host, "kernels", kernels_best(DTYPE_F32)->name);
    report_set_text(root, "format", "trefoil selftest --device, 1");
    report_set_text(root, "trefoil", TREFOIL_VERSION);
    report_set_text(root, "device", device_kind_name(t->kind));
    report_set(root, "gpu", facts);
    report_set(root, "host", host);
    return root;
}

static void print_facts(const struct device_test *t)
{
    char words[DEVICE_WORDS_BYTES];
    device_words(t->dev, words);
    printf("trefoil %s, device %s: %s\n", TREFOIL_VERSION, device_kind_name(t->kind),
           words);
}

/* -- kernels against the reference --------------------------------------------------- */

struct kernel_tally {
    struct device_test *t;
    int n, n_bad;
    double largest;
};

static void take_kernel(void *context, const char *kernel, double apart, double allowed)
{
    struct kernel_tally *tally = context;
    bool is_good = apart <= allowed;
    char note[64];
    snprintf(note, sizeof note, "allowed %.2g", allowed);
    tally->n++;
    tally->n_bad += is_good ? 0 : 1;
    if (apart > tally->largest)
        tally->largest = apart;
    device_report_row(
        &tally->t->report,
        &(struct device_row){.section = "kernel",
                             .what = kernel,
                             .type = dtype_name(tally->t->dev->dtype),
                             .value = apart,
                             .unit = "off",
                             .verdict = is_good ? VERDICT_GOOD : VERDICT_BAD,
                             .note = note,
                             .is_only_in_file = true});
}

static int check_kernels(struct device_test *t, struct error *err)
{
    struct kernel_tally tally = {.t = t};
    const struct kernels *tables[1];
    char what[64];
    kernels_list(tables, 1); // the reference is the first
    if (kernel_check_device(t->dev, tables[0], take_kernel, &tally, err))
        return -1;
    snprintf(what, sizeof what, "%d of %d near the reference", tally.n - tally.n_bad,
             tally.n);
    device_report_row(
        &t->report,
        &(struct device_row){.section = "kernels",
                             .what = what,
                             .type = dtype_name(t->dev->dtype),
                             .value = tally.largest,
                             .unit = "off at most",
                             .verdict = tally.n_bad ? VERDICT_BAD : VERDICT_GOOD});
    return 0;
}

/* -- do the bits of a row depend on how many there are? ------------------------------ */

void *device_numbers(struct device *dev, int64_t n, enum dtype dtype)
{
    enum { PART = 4093 }; // no size of a row: rows differ
    struct stream *s = device_stream(dev, STREAM_COMPUTE);
    struct philox_key key = philox_key(5, PHILOX_SAMPLE_TOKEN, 0);
    float numbers[PART];
    uint32_t stored[PART];
    size_t each = dtype_bytes(dtype);
    char *memory = dev->ops->alloc(dev, (size_t)n * each);
    for (uint32_t i = 0; i < PART; i++)
        numbers[i] = 2 * philox_uniform(key, i, 0) - 1;
    dtype_store(stored, numbers, dtype, PART);
    for (int64_t i = 0; memory && i < n; i += PART)
        device_copy(s, memory + (size_t)i * each, stored,
                    (size_t)i64_min(PART, n - i) * each, COPY_TO_DEVICE);
    return memory;
}

struct row_shape {
    int64_t O, I, N; // a weight, and the rows of a whole product
};

static void multiply(struct device *dev, void *y, const void *x, const struct weight *w,
                     int64_t N, bool is_backward)
{
    struct stream *s = device_stream(dev, STREAM_COMPUTE);
    if (is_backward)
        dev->k->linear_bwd_input(s, &(struct linear_bwd_input){.dx = y,
                                                               .dx_dtype = dev->dtype,
                                                               .dy = x,
                                                               .dy_row = w->rows,
                                                               .w = w,
                                                               .N = N});
    else
        dev->k->linear_fwd(
            s, &(struct linear){.w = w, .x = x, .y = y, .y_dtype = dev->dtype, .N = N});
}

/* *n_other := of so many numbers of rows, with how many other bits than the whole has. */
static int count_other_rows(struct device *dev, const struct row_shape *shape,
                            bool is_backward, int *n_other, struct error *err)
{
    static const int64_t parts[] = {1, 3, 64, 100, 255, 512};
    struct stream *s = device_stream(dev, STREAM_COMPUTE);
    int64_t in = is_backward ? shape->O : shape->I,
            out = is_backward ? shape->I : shape->O;
    size_t each = dtype_bytes(dev->dtype), bytes = (size_t)(shape->N * out) * each;
    size_t w_bytes = (size_t)(shape->O * shape->I) * each;
    char *whole = malloc(bytes), *part = malloc(bytes);
    void *x = device_numbers(dev, shape->N * in, dev->dtype),
         *y = dev->ops->alloc(dev, bytes);
    struct weight w = {.data = device_numbers(dev, shape->O * shape->I, dev->dtype),
                       .dtype = dev->dtype,
                       .rows = shape->O,
                       .cols = shape->I,
                       .version = 1};
    int rc = 0;
    *n_other = 0;
    if (!whole || !part || !x || !y || !w.data) {
        error_set(err, ERROR_RUNTIME, "not enough memory for products");
        rc = -1;
    }
    for (int i = (int)ARRAY_LEN(parts); i >= 0 && rc == 0; i--) {
        int64_t N = i == (int)ARRAY_LEN(parts) ? shape->N : parts[i];
        size_t n_bytes = (size_t)(N * out) * each;
        if (N > shape->N)
            continue;
        multiply(dev, y, x, &w, N, is_backward);
        device_copy(s, part, y, n_bytes, COPY_TO_HOST);
        device_synchronize(s);
        if (N == shape->N)
            memcpy(whole, part, n_bytes);
        *n_other += memcmp(part, whole, n_bytes) != 0;
        rc = device_check(dev, err);
    }
    if (x)
        device_free(dev, x, (size_t)(shape->N * in) * each);
    if (y)
        device_free(dev, y, bytes);
    if (w.data)
        device_free(dev, w.data, w_bytes);
    free(whole);
    free(part);
    return rc;
}

static int check_rows(struct device_test *t, struct error *err)
{
    static const struct row_shape real[] = {{2304, 768, 1000},
                                            {768, 3072, 1000},
                                            {4096, 1024, 2000},
                                            {2048, 8192, 1000},
                                            {0}};
    static const struct row_shape toy[] = {{24, 40, 70}, {33, 17, 5}, {0}};
    for (const struct row_shape *s = t->is_emulated ? toy : real; s->N > 0; s++)
        for (int backward = 0; backward < 2; backward++) {
            char what[64];
            int n_other;
            if (count_other_rows(t->dev, s, backward, &n_other, err))
                return -1;
            snprintf(what, sizeof what, "%s, %lld x %lld",
                     backward ? "by input" : "forward", (long long)s->O, (long long)s->I);
            device_report_row(
                &t->report,
                &(struct device_row){
                    .section = "rows' bits",
                    .what = what,
                    .type = dtype_name(t->dev->dtype),
                    .verdict = n_other ? VERDICT_BAD : VERDICT_GOOD,
                    .note = n_other ? "a row's bits depend on the number of rows: losses "
                                      "depend on the micro-batch size"
                                    : "any number of rows gives a row's bits"});
        }
    return 0;
}

/* -- all of it ----------------------------------------------------------------------- */

static int stopped(struct error *err)
{
    if (!stop_is_wanted())
        return 0;
    return error_set(err, ERROR_STOPPED, "stopped by %s",
                     stop_signal_name(stop_signal()));
}

/* What is tried in this process, for one type. */
static int try_type(struct device_test *t, enum dtype dtype, struct error *err)
{
    const struct device_request request = {.n_local = 1};
    t->dev = device_of(t->kind, dtype);
    if (device_available(t->kind, dtype, 1, err)) {
        device_report_row(&t->report, &(struct device_row){.section = "kernels",
                                                           .what = "all",
                                                           .type = dtype_name(dtype),
                                                           .verdict = VERDICT_SKIPPED,
                                                           .note = err->text});
        return 0;
    }
    if (device_open(t->dev, &request, err))
        return -1;
    int rc = check_kernels(t, err);
    if (rc == 0)
        rc = check_rows(t, err);
    if (rc == 0 && dtype == DTYPE_F32)
        rc = selftest_bandwidth(t, err);
    if (rc == 0)
        rc = selftest_rates(t, err);
    device_close(t->dev);
    return rc ? rc : stopped(err);
}

static int open_test(struct device_test *t, struct error *err)
{
    const struct device_request request = {.n_local = 1};
    t->dev = device_of(t->kind, DTYPE_F32);
    if (device_available(t->kind, DTYPE_F32, 1, err) ||
        device_open(t->dev, &request, err))
        return -1;
    t->facts = *t->dev->facts;
    print_facts(t);
    device_close(t->dev);
    return device_report_open(&t->report, facts_of(t), err);
}

static int try_all(struct device_test *t, const struct device_test_request *r,
                   struct error *err)
{
    for (size_t i = 0; i < ARRAY_LEN(dtypes); i++)
        if (try_type(t, dtypes[i], err))
            return -1;
    return selftest_device_layouts(t, r, err) || selftest_device_steps(t, r, err) ? -1
                                                                                  : 0;
}

int selftest_device(const struct device_test_request *r, struct error *err)
{
    struct device_test t = {.kind = r->kind, .is_emulated = r->kind == DEVICE_EMULATED};
    struct error unwritten;
    t.models = device_models(t.is_emulated);
    stop_watch(STOP_COMMAND);
    if (kernels_start(err) || open_test(&t, err)) {
        device_report_close(&t.report);
        return -1;
    }
    int rc = try_all(&t, r, err);
    // what was found until something failed is worth sending, too
    if (rc && err->kind != ERROR_STOPPED)
        device_report_row(&t.report, &(struct device_row){.section = "end",
                                                          .what = "not everything ran",
                                                          .verdict = VERDICT_BAD});
    if (device_report_write(&t.report, r->output, &unwritten)) {
        if (rc)
            log_error("%s", unwritten.text);
        else
            *err = unwritten;
        rc = -1;
    }
    if (rc == 0 && t.report.n_rows[VERDICT_BAD] > 0)
        rc = error_set(err, ERROR_RUNTIME,
                       "%d rows are bad: do not train on this device before they are "
                       "understood; please report them with '%s'",
                       t.report.n_rows[VERDICT_BAD], r->output);
    device_report_close(&t.report);
    return rc ? rc : print_check("the table", err);
}
