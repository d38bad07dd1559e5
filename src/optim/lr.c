#include "optim/lr.h"

#include "base/real.h"

#include <math.h>

double lr_at(const struct config_lr *lr, int64_t update)
{
    double k = (double)update, decay = (double)lr->decay_steps;
    double warmup = lr->warmup_rate * decay;
    if (warmup > 0 && k <= warmup)
        return lr->max_lr * k / warmup;
    if (k > decay)
        return lr->min_lr;
    double fraction = decay > warmup ? (k - warmup) / (decay - warmup) : 1.0;
    double share = 0.5 * (1.0 + real_sin_cos(M_PI * fraction).cos);
    return lr->min_lr + share * (lr->max_lr - lr->min_lr);
}

double lr_highest(const struct config_lr *lr, int64_t first, int64_t last)
{
    // monotonic within the warm-up, within the decay, and after it
    int64_t warmup = (int64_t)(lr->warmup_rate * (double)lr->decay_steps);
    const int64_t turns[] = {
        first, last, warmup, warmup + 1, lr->decay_steps, lr->decay_steps + 1};
    double highest = 0;
    for (size_t i = 0; i < ARRAY_LEN(turns); i++)
        if (turns[i] >= first && turns[i] <= last)
            highest = fmax(highest, lr_at(lr, turns[i]));
    return highest;
}
