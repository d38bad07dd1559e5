/*
 * restart - whether a job that died is started again, when, and from where.
 *
 * Two budgets, kept apart: all restarts of a job, which its user sets, and those in a row
 * that brought no newer checkpoint. A machine that fails now and then costs restarts only;
 * a job that dies at the same place each time is found by the second, however large the
 * first is.
 *
 * A run that has saved a checkpoint since it was first started resumes from output_dir,
 * by the rule of ckpt_find.h; one that has not is started as the user started it. Whether
 * it has saved is seen from the checkpoint that output_dir stands for: another one than
 * at the start. A run that continues output_dir resumes from there in any case.
 */
#ifndef LAUNCH_RESTART_H
#define LAUNCH_RESTART_H

#include "base/base.h"
#include "base/error.h"
#include "ckpt/ckpt_manifest.h"
#include "config/config.h"

#define RESTART_IDLE_MOST 3 // in a row without a newer checkpoint
#define RESTART_PAUSE_SECONDS_MOST 30

struct restart {
    int64_t most;        // restarts that the user allows
    int64_t n_restarts;  // so far
    int64_t n_idle;      // the last of them, without a newer checkpoint
    int64_t newest_step; // of a checkpoint so far; -1: none
};

/* Counted as a restart; the user's are used up; restarts do not help. */
enum restart_decision { RESTART_AGAIN, RESTART_SPENT, RESTART_LOOP };

/* The job has died of something that a restart may mend, and its newest checkpoint is of
 * `step` (-1: there is none). */
enum restart_decision restart_decide(struct restart *r, int64_t step);
/* Seconds before restart number n_restart, counted from 1: 1, 2, 4, ... */
int restart_pause(int64_t n_restart);

struct resume_point {
    char output_dir[CONFIG_PATH_BYTES];
    bool continues_old;          // the run was started from output_dir itself
    char first[CKPT_HASH_BYTES]; // of the checkpoint output_dir stood for at the start
    char **words; // argv, then the words that continue the run; NULL-terminated
    int n_argv;
    char setting[CONFIG_PATH_BYTES + 128]; // "save_load.ckpt_dir=..."
};

/* For the run that `argv` starts: the NULL-terminated words from the command's name on,
 * which are borrowed and mean *cfg. */
MUST_CHECK int resume_point_init(struct resume_point *r, const struct config *cfg,
                                 char *const *argv, struct error *err);
/* Zeros are fine too. */
void resume_point_release(struct resume_point *r);
/* When no process of the job lives: the words to start it with, borrowed until the next
 * call, and the step of the newest checkpoint that it goes on from; -1: none. */
MUST_CHECK int resume_point_next(struct resume_point *r, char *const **argv,
                                 int64_t *step, struct error *err);

#endif
