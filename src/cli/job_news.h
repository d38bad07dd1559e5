/*
 * job_news - what a launcher sees of a run of pretrain, for those who watch the run: a
 * line in its metrics.jsonl, and the user's command of on_event.
 *
 * Rank 0 tells what it can by itself (train/sinks.h). This is for stalls, and for failures
 * that it may not have survived; of those it wrote a line for there is no second one.
 */
#ifndef CLI_JOB_NEWS_H
#define CLI_JOB_NEWS_H

#include "base/hook.h"
#include "config/config.h"
#include "launch/mpiexec.h"

struct job_news {
    char output_dir[CONFIG_PATH_BYTES];
    char on_event[CONFIG_PATH_BYTES];
    struct hook hook;
};

/* For the run of *cfg. */
void job_news_init(struct job_news *n, const struct config *cfg);
/* launch_options.tell: a struct job_news is its context. */
pid_t job_news_tell(void *context, const struct launch_news *news);
/* Wait for the command of the last news. One of zeros, too. */
void job_news_finish(struct job_news *n);

#endif
