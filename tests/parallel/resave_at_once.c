/*
 * The program, with one more save: a resumed run writes its state again before anything
 * changes it. Linked with the program's main(), it replaces the hook that the library
 * calls in every step when gradients are complete, which is before the first update.
 */
#include "train/checkpoints.h"
#include "train/step.h"

void train_grads_hook(struct train *t)
{
    struct error err;
    bool is_resumed = t->first_step > 0 && t->step == t->first_step;
    if (is_resumed && checkpoints_save(t, true, &err))
        comm_abort(t->grid.world, error_exit_code(&err));
}
