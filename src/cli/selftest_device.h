/*
 * selftest_device - `trefoil selftest --device`: all that only a machine with the device
 * can show, in one table and one file (device_report.h).
 */
#ifndef CLI_SELFTEST_DEVICE_H
#define CLI_SELFTEST_DEVICE_H

#include "cli/device_models.h"
#include "cli/device_report.h"
#include "cli/selftest_run.h"
#include "device/device.h"

#define DEVICE_MODELS_MOST 3

struct device_test {
    enum device_kind kind;
    bool is_emulated;   // toy sizes
    struct device *dev; // open for the type that is tried
    struct gpu_facts facts;
    struct device_report report;
    const struct device_model *models;
    double product_rate[DEVICE_MODELS_MOST][DTYPE_BF16 + 1]; // FLOP/s; 0: not known
};

struct device_test_request {
    enum device_kind kind;
    enum kernel_set cpu_kernels;
    const struct selftest_layout *layouts;
    int n_layouts;
    int64_t n_steps;    // of a layout's run
    const char *output; // the file
};

/* The whole of it. ERROR_INPUT when there is no such device, ERROR_RUNTIME when anything
 * is bad. */
MUST_CHECK int selftest_device(const struct device_test_request *r, struct error *err);

/* -- its parts ----------------------------------------------------------------------- */

/* On t->dev, for its type: bandwidths (once), products and attention. */
MUST_CHECK int selftest_bandwidth(struct device_test *t, struct error *err);
MUST_CHECK int selftest_rates(struct device_test *t, struct error *err);

/* By runs of this program; t->dev is closed. */
MUST_CHECK int selftest_device_layouts(struct device_test *t,
                                       const struct device_test_request *r,
                                       struct error *err);
MUST_CHECK int selftest_device_steps(struct device_test *t,
                                     const struct device_test_request *r,
                                     struct error *err);

/* n numbers of the device's type, or floats, of fresh memory of the device; NULL: there is
 * not enough. */
void *device_numbers(struct device *dev, int64_t n, enum dtype dtype);

#endif
