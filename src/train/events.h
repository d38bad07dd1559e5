/*
 * events - what happens in a run besides steps and evaluations, as objects in
 * metrics.jsonl with an "event", and what the log says before the first step.
 *
 *     start        a process of the run starts: what it is going to do, on what
 *     save         a checkpoint is complete: its path
 *     save_failed  why one is not
 *     skipped      a step whose gradients overflowed float16, and the loss scale after it
 *     sample       what the model makes of one of eval_prompts
 *     layers       the norm of the gradients of each layer, when TensorBoard's files are
 *                  written
 *     stopped      a signal ended the run
 *     failure      why it failed
 *     end          all steps are done
 *
 * A launcher adds failures of ranks that could not say so themselves, and stalls. A line
 * that cannot be written is a warning: events are informative. All are rank 0's and do
 * nothing elsewhere.
 */
#ifndef TRAIN_EVENTS_H
#define TRAIN_EVENTS_H

#include "train/train.h"

/* output_dir/config.yaml: the configuration of this process. (local) */
MUST_CHECK int events_write_config(const struct train *t, struct error *err);
/* Gather what the first event says of all ranks, write it, and say in the log what is
 * ahead: steps, epochs, tokens, time. [collective] */
MUST_CHECK int events_start(struct train *t, struct error *err);

void events_save(struct train *t, int64_t step, const char *path, double seconds);
void events_save_failed(struct train *t, int64_t step, const char *reason);
void events_skipped(struct train *t, int64_t step, double scale);
/* Of prompt i of t->prompts. */
void events_sample(struct train *t, int64_t i);
/* The figures of t->shares.ranks. */
void events_ranks(struct train *t);
/* The norms of the gradients of all layers, when the step just reported is one that tells
 * them: the first, the last, and every tenth of those that are logged. */
void events_layers(struct train *t, const struct metrics_step *step);
/* How the run ended: with rc and, unless that is 0, *err; `signal` 0: by none. */
void events_end(struct train *t, int rc, int signal, const struct error *err);

#endif
