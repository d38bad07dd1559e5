/*
 * sinks - who is told of every record of a run besides metrics.jsonl: TensorBoard's files,
 * a file for Prometheus, and the user's command of on_event.
 *
 * None of them can hold up a run or end it: what cannot be written is a warning.
 *
 * on_event is run for "save", "save_failed", "divergence", "failure" and "end" (done, or
 * stopped by a signal). In a job of our launcher failures are the launcher's to tell, who
 * also sees ranks that die without a word, and stalls (launch/job_news.h).
 */
#ifndef TRAIN_SINKS_H
#define TRAIN_SINKS_H

#include "base/hook.h"
#include "config/config.h"
#include "train/prometheus.h"
#include "train/record.h"
#include "train/tensorboard.h"

struct sinks {
    bool has_tensorboard, has_prometheus, has_hook;
    bool tells_failures; // by the hook
    struct tensorboard tensorboard;
    struct prometheus_file prometheus;
    struct hook hook;
    char output_dir[PATH_MAX]; // absolute, where it can be found out
    double loss;               // of the last logged step
};

/* Of rank 0, when metrics.jsonl is open. config_json: of *cfg, which is borrowed. */
void sinks_open(struct sinks *s, const struct config *cfg, const char *config_json,
                int64_t first_step);
/* Never waits. */
void sinks_take(struct sinks *s, const struct record *r);
/* Waits for the command of the last event, no longer than HOOK_SECONDS twice. One of zeros,
 * too. */
void sinks_close(struct sinks *s);

#endif
