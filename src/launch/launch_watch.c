#include "launch/launch_watch.h"

#include "base/log.h"
#include "launch/launch_command.h"
#include "launch/rank_status.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void launch_watch_open(struct launch_watch *w, const char *job_id, int64_t n_ranks,
                       const char *log_dir)
{
    char path[PATH_MAX];
    struct error err;
    *w = (struct launch_watch){.log_dir = log_dir};
    beat_sweep();
    beat_path(path, sizeof path, job_id);
    if (job_watch_open(&w->job, path, (int)n_ranks, &err)) {
        log_warning("the job is not watched for hangs: %s", err.text);
        return;
    }
    w->job.here.job = job_id;
    w->job.here.rank_variable = launch_dialect()->rank;
    atomic_store(&w->job.here.file->watcher, (int)getpid());
}

void launch_watch_listen(struct launch_watch *w)
{
    struct error err;
    if (!w->job.seen)
        return;
    if (job_watch_listen(&w->job, &err))
        log_warning("ranks of other hosts are not watched for hangs: %s", err.text);
    else
        watch_server_contact(&w->job.others, w->contact);
}

bool launch_watch_may_spread(void)
{
    static const char *const batch[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID",
                                        "PE_HOSTFILE", "OMPI_MCA_orte_default_hostfile"};
    for (size_t i = 0; i < ARRAY_LEN(batch); i++)
        if (getenv(batch[i]))
            return true;
    return false;
}

void launch_watch_close(struct launch_watch *w)
{
    job_watch_close(&w->job);
}

static void print_table(const struct launch_watch *w)
{
    char *table = job_watch_table(&w->job);
    if (table)
        log_warning("%s", table);
    free(table);
}

/* For the message with which the job ends. */
static void write_sentence(struct launch_watch *w)
{
    const struct hang *hang = &w->job.hang;
    char who[1024], step[40] = "", log[PATH_MAX], where[PATH_MAX + 64] = "";
    int r = hang->culprit;
    job_watch_sentence(&w->job, who, sizeof who);
    rank_log_path(log, sizeof log, w->log_dir, r >= 0 ? r : 0);
    if (r >= 0 && w->job.seen[r].step >= 0)
        snprintf(step, sizeof step, " at step %lld", (long long)w->job.seen[r].step);
    if (!w->is_log_temporary)
        snprintf(where, sizeof where, "; stacks are in the logs, as in '%s'", log);
    snprintf(w->sentence, sizeof w->sentence,
             "%s%s: the job made no progress for %.1f s and was ended%.700s", who, step,
             hang->seconds, where);
}

void launch_watch_tick(struct launch_watch *w, bool is_stopping)
{
    char who[1024];
    switch (job_watch_tick(&w->job, is_stopping, w->log_dir)) {
    case HANG_NONE:
        break;
    case HANG_NAMED:
        print_table(w);
        job_watch_sentence(&w->job, who, sizeof who);
        log_warning("%s and makes no progress; the job goes on, and is ended in such a "
                    "case where hang_timeout is set",
                    who);
        break;
    case HANG_ENDS:
        print_table(w);
        write_sentence(w);
        break;
    }
}

bool launch_watch_has_hung(const struct launch_watch *w)
{
    return w->sentence[0] != '\0';
}

bool launch_watch_found_hung_disk(const struct launch_watch *w)
{
    int r = w->job.hang.culprit;
    return launch_watch_has_hung(w) && r >= 0 &&
           w->job.seen[r].condition == RANK_UNINTERRUPTIBLE;
}

int64_t launch_watch_step(const struct launch_watch *w, int r)
{
    return w->job.seen && w->job.seen[r].is_seen ? w->job.seen[r].step : -1;
}

void launch_watch_record_steps(struct launch_watch *w)
{
    if (w->job.seen)
        host_watch_look(&w->job.here, w->job.seen); // what they wrote is still there
    for (int r = 0; w->job.seen && r < w->job.here.n_ranks; r++)
        if (w->job.seen[r].is_seen && w->job.seen[r].step >= 0)
            rank_status_set_step(w->log_dir, r, w->job.seen[r].step);
}
