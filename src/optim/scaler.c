#include "optim/scaler.h"

#define LARGEST_SCALE 1e30

void scaler_update(struct scaler *s, bool is_finite)
{
    if (is_finite) {
        s->bad_steps = 0;
        s->good_steps++;
        if (s->is_dynamic && s->good_steps % SCALER_CLEAN_STEPS == 0 &&
            s->scale < LARGEST_SCALE)
            s->scale *= 2;
        return;
    }
    s->good_steps = 0;
    s->bad_steps++;
    s->n_skipped++;
    if (s->is_dynamic && s->bad_steps % SCALER_BAD_STEPS == 0 && s->scale > 1)
        s->scale = s->scale > 2 ? s->scale / 2 : 1;
}

bool scaler_is_hopeless(const struct scaler *s)
{
    return s->bad_steps >= SCALER_HOPELESS_STEPS && (s->scale <= 1 || !s->is_dynamic);
}
