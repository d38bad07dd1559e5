#include "train/lr_warn.h"

#include "base/log.h"
#include "optim/lr.h"

#define LOW_SHARE 0.01 // of max_lr

void lr_warn(const struct config *cfg, int64_t first_step)
{
    const struct config_lr *lr = &cfg->optimizer.lr;
    double warmup = lr->warmup_rate * (double)lr->decay_steps;
    // a resumed run may end in the low part of a schedule that fits the whole run
    int64_t from = lr->decay_steps < cfg->max_steps ? first_step + 1 : 1;
    double highest = lr_highest(lr, from, cfg->max_steps);
    double percent = lr->max_lr > 0 ? 100 * highest / lr->max_lr : 0;
    if (highest == 0)
        log_warning(
            "the learning rate of every step is 0, so nothing will be learnt: set "
            "Optimizer.lr.max_lr and min_lr");
    else if (warmup > 0 && (double)cfg->max_steps < warmup)
        log_warning(
            "the run ends at step %lld, inside the warm-up of %g steps "
            "(Optimizer.lr.warmup_rate %g x decay_steps %lld): its highest "
            "learning rate is %g, %.3g %% of max_lr; to warm up within the run, set "
            "decay_steps to 0, which means max_steps",
            (long long)cfg->max_steps, warmup, lr->warmup_rate,
            (long long)lr->decay_steps, highest, percent);
    else if (highest < LOW_SHARE * lr->max_lr)
        log_warning("the highest learning rate of steps %lld to %lld is %g, %.3g %% of "
                    "Optimizer.lr.max_lr, because decay_steps is %lld; 0 means max_steps",
                    (long long)from, (long long)cfg->max_steps, highest, percent,
                    (long long)lr->decay_steps);
}

void lr_log_change(const struct config *cfg, const json_t *then, int64_t step)
{
    const json_t *old = json_object_get(json_object_get(then, "Optimizer"), "lr");
    struct config_lr lr = {
        .decay_steps = json_integer_value(json_object_get(old, "decay_steps")),
        .warmup_rate = json_number_value(json_object_get(old, "warmup_rate")),
        .max_lr = json_number_value(json_object_get(old, "max_lr")),
        .min_lr = json_number_value(json_object_get(old, "min_lr"))};
    double now = lr_at(&cfg->optimizer.lr, step + 1), before = lr_at(&lr, step + 1);
    if (old && now != before)
        log_info(
            "the learning rate of step %lld is %g; by the checkpoint's configuration "
            "it would be %g",
            (long long)step + 1, now, before);
}
