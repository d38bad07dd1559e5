#include "cli/job_news.h"

#include "base/fs.h"
#include "base/log.h"
#include "train/record.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_BYTES 8192
#define TAIL_BYTES 65536 // holds the last line of any metrics.jsonl

void job_news_init(struct job_news *n, const struct config *cfg)
{
    snprintf(n->output_dir, sizeof n->output_dir, "%s", cfg->save_load.output_dir);
    snprintf(n->on_event, sizeof n->on_event, "%s", cfg->on_event);
    hook_init(&n->hook, n->on_event);
}

void job_news_finish(struct job_news *n)
{
    hook_finish(&n->hook);
}

/* The last line of the file is an event of a failure: rank 0 was able to tell. */
static bool tells_failure(int fd)
{
    struct stat st;
    bool tells = false;
    if (fstat(fd, &st) || st.st_size < 2)
        return false;
    size_t n = (size_t)i64_min(st.st_size, TAIL_BYTES);
    char *tail = malloc(n);
    if (tail && fs_pread_exact(fd, tail, n, (off_t)(st.st_size - (off_t)n)) == 0) {
        tail[n - 1] = 0; // instead of the newline
        const char *line = strrchr(tail, '\n');
        tells = strstr(line ? line : tail, "\"event\": \"failure\"") != NULL;
    }
    free(tail);
    return tells;
}

/* A run that has not written any line has no reader yet: nothing is created for it. */
static void append_line(const struct job_news *n, const struct record *r, bool is_failure)
{
    char path[PATH_MAX], line[LINE_BYTES];
    struct error err;
    int64_t bytes = record_json(r, line, sizeof line);
    if (bytes < 0 || fs_join(path, sizeof path, n->output_dir, "metrics.jsonl", &err))
        return;
    int fd = open(path, O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    if (!(is_failure && tells_failure(fd)) && fs_write_exact(fd, line, (size_t)bytes))
        log_warning("cannot write '%s': %s", path, strerror(errno));
    close(fd);
}

static void run_hook(struct job_news *n, const struct launch_news *news,
                     const struct record *r)
{
    struct hook_event e;
    char output_dir[PATH_MAX];
    if (!realpath(n->output_dir, output_dir))
        snprintf(output_dir, sizeof output_dir, "%s", n->output_dir);
    hook_event_begin(&e, news->is_stall      ? "stall"
                         : news->is_diverged ? "divergence"
                                             : "failure");
    hook_event_set(&e, "STEP", "%lld", (long long)r->step);
    hook_event_set(&e, "TIME", "%.3f", r->time);
    hook_event_set(&e, "OUTPUT_DIR", "%s", output_dir);
    if (news->rank >= 0)
        hook_event_set(&e, "RANK", "%d", news->rank);
    hook_event_set(&e, "MESSAGE", "%s", news->text);
    hook_run(&n->hook, &e);
}

pid_t job_news_tell(void *context, const struct launch_news *news)
{
    struct job_news *n = context;
    struct record r;
    if (!news) {
        hook_poll(&n->hook);
        return n->hook.pid;
    }
    record_begin(&r, i64_max(news->step, 0));
    record_text(&r, "event", news->is_stall ? "stall" : "failure");
    if (news->rank >= 0)
        record_i64(&r, "rank", news->rank);
    else
        record_null(&r, "rank");
    if (!news->is_stall)
        record_bool(&r, "diverged", news->is_diverged);
    record_text(&r, "error", news->text);
    append_line(n, &r, !news->is_stall);
    run_hook(n, news, &r);
    return n->hook.pid;
}
