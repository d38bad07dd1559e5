/*
 * The peak that was left out is RATE_TIMES_WIDTH / hidden_size: 5.2e-4 for 768 columns and
 * 1e-4 for 4096, where the GPT-3 paper has 6e-4 and 1.2e-4, and 2.1e-3 for 192, as
 * configs/laptop.yaml has.
 */
#include "config/config_rates.h"

#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RATE_TIMES_WIDTH 0.4
#define RATE_MAX 0.003

/* A tenth of `rate` as a person writes it: of 0.003 it is 0.0003, which is one bit less
 * than 0.003 / 10. */
static double tenth(double rate)
{
    char text[64];
    int digits = 0;
    do
        snprintf(text, sizeof text, "%.*e", digits, rate);
    while (strtod(text, NULL) != rate && ++digits < 17);
    char *exponent = strchr(text, 'e');
    CHECK(exponent, "a rate of %g", rate);
    long ten = strtol(exponent + 1, NULL, 10) - 1;
    snprintf(exponent, sizeof text - (size_t)(exponent - text), "e%ld", ten);
    return strtod(text, NULL);
}

void config_rates_derive(struct config *cfg, const struct config_origins *origins)
{
    struct config_lr *lr = &cfg->optimizer.lr;
    double width = (double)cfg->model.hidden_size;
    if (!lr->decay_steps)
        lr->decay_steps = cfg->max_steps;
    // 0 may be the value that was given
    if (!config_was_given(origins, config_key_at("Optimizer.lr.max_lr")))
        lr->max_lr = fmin(RATE_TIMES_WIDTH / width, RATE_MAX);
    if (!config_was_given(origins, config_key_at("Optimizer.lr.min_lr")))
        lr->min_lr = tenth(lr->max_lr);
}

void config_rates_warn(const struct config *cfg, const struct config_origins *origins)
{
    const struct config_lr *lr = &cfg->optimizer.lr;
    const struct config_key *key = config_key_at("Optimizer.lr.max_lr");
    const struct config_key *other = config_key_at("Optimizer.lr.min_lr");
    bool has_key = config_was_given(origins, key);
    bool has_both = has_key && config_was_given(origins, other);
    char where[CONFIG_WHERE_BYTES], aside[CONFIG_WHERE_BYTES];
    if (lr->max_lr >= lr->min_lr)
        return;
    config_where(origins, has_key ? key : other, where);
    config_where(origins, other, aside);
    log_warning("%s: max_lr %g is below min_lr %g%s%s%s: after the warm-up to max_lr the "
                "learning rate rises to min_lr, which it reaches at decay_steps, and "
                "stays there",
                where, lr->max_lr, lr->min_lr, has_both ? " (" : "",
                has_both ? aside : "", has_both ? ")" : "");
}
