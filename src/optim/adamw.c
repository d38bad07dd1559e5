/* AdamW, and Adam, which decays through the gradient: the formulas are the kernel's. */
#include "optim/optimizer.h"

#include "base/real.h"

static void update_moments(struct stream *s, const struct update_range *range,
                           const struct update_step *step, bool is_l2)
{
    const struct config_optim *cfg = step->cfg;
    struct adamw_rule rule = {
        .lr = step->lr,
        .beta1 = cfg->adam_beta1,
        .beta2 = cfg->adam_beta2,
        .epsilon = cfg->adam_epsilon,
        .decay = step->decay,
        .bias1 = 1.0 - real_power(cfg->adam_beta1, step->number),
        .bias2 = 1.0 - real_power(cfg->adam_beta2, step->number),
        .grad_scale = step->grad_scale,
        .is_l2 = is_l2,
    };
    s->dev->k->adamw(s, &(struct adamw){.rule = rule,
                                        .master = range->weights,
                                        .param = range->param,
                                        .param_dtype = range->param_dtype,
                                        .grad = range->grad,
                                        .grad_dtype = range->grad_dtype,
                                        .exp_avg = range->states[0],
                                        .exp_avg_sq = range->states[1],
                                        .n = range->n});
}

static void update_adamw(struct stream *s, const struct update_range *range,
                         const struct update_step *step)
{
    update_moments(s, range, step, false);
}

static void update_adam(struct stream *s, const struct update_range *range,
                        const struct update_step *step)
{
    update_moments(s, range, step, true);
}

#define MOMENTS                                                                          \
    .n_states = 2, .states = {                                                           \
                       {"exp_avg", "the first moments"},                                 \
                       {"exp_avg_sq", "the second moments"},                             \
    }

const struct update_rule update_rule_adamw = {MOMENTS, .update = update_adamw};
const struct update_rule update_rule_adam = {MOMENTS, .update = update_adam};
