/*
 * launch_watch - the launcher as the watcher of its job (job_watch.h).
 *
 * Where the system has no shared memory to give the job goes on unwatched, with a
 * warning.
 */
#ifndef LAUNCH_LAUNCH_WATCH_H
#define LAUNCH_LAUNCH_WATCH_H

#include "base/base.h"
#include "launch/job_watch.h"

struct launch_watch {
    struct job_watch job;
    const char *log_dir;               // borrowed
    bool is_log_temporary;             // nobody will find it
    char contact[WATCH_CONTACT_BYTES]; // for other hosts; "": none
    char sentence[2048];               // why the job was ended; "": it does not hang
};

/* Before the ranks are started. */
void launch_watch_open(struct launch_watch *w, const char *job_id, int64_t n_ranks,
                       const char *log_dir);
/* Ranks may be started on other hosts: their watchers are told where to report. */
void launch_watch_listen(struct launch_watch *w);
/* Whether mpiexec may start ranks on other hosts by itself: inside a batch system. */
bool launch_watch_may_spread(void);
void launch_watch_close(struct launch_watch *w);

/* Ten times a second. is_stopping: a signal asked the job to stop. What is found is told
 * on the terminal. */
void launch_watch_tick(struct launch_watch *w, bool is_stopping);
/* The job hangs and must end; launch_watch.sentence says why. */
bool launch_watch_has_hung(const struct launch_watch *w);
/* A rank hangs in the kernel, as on a disk that does not answer: whoever touches the log
 * directory may, too. */
bool launch_watch_found_hung_disk(const struct launch_watch *w);
/* The step rank r is in, or was when it was last seen; -1: none, or not known. */
int64_t launch_watch_step(const struct launch_watch *w, int r);
/* Write the steps the ranks were last seen in to their status files, when none of them
 * lives any more: they do not do that themselves at every step. */
void launch_watch_record_steps(struct launch_watch *w);

#endif
