#include "launch/rank_status.h"

#include "base/fs.h"
#include "launch/proc_stat.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STEP_LINE "step %20lld\n" // 26 bytes, whatever the step
#define STATUS_BYTES_MOST 65536

void rank_status_path(char *buf, size_t size, const char *log_dir, int rank)
{
    snprintf(buf, size, "%s/" RANK_STATUS_NAME "%d", log_dir, rank);
}

int rank_of_status_file(const char *name)
{
    const size_t n = sizeof RANK_STATUS_NAME - 1;
    if (strncmp(name, RANK_STATUS_NAME, n) != 0 || name[n] < '0' || name[n] > '9')
        return -1;
    char *end;
    long rank = strtol(name + n, &end, 10);
    return *end == '\0' && rank <= INT_MAX ? (int)rank : -1;
}

void rank_log_path(char *buf, size_t size, const char *log_dir, int rank)
{
    snprintf(buf, size, "%s/workerlog.%d", log_dir, rank);
}

void rank_progress_path(char *buf, size_t size, const char *log_dir)
{
    snprintf(buf, size, "%s/progress", log_dir);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

uint64_t rank_start_ticks(pid_t pid)
{
    return proc_stat_field(pid, PROC_START_TICKS);
}

int rank_exit_signal(pid_t pid, uint64_t start_ticks)
{
    int wait_status = (int)proc_stat_field(pid, PROC_EXIT_CODE);
    bool is_it = rank_start_ticks(pid) == start_ticks;
    return is_it && WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
}

/* -- the rank's side ----------------------------------------------------------------- */

/* The value of a variable that is one word, or "-". */
static const char *word_in(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value && !strpbrk(value, " \n") ? value : "-";
}

int rank_status_create(const char *log_dir, int rank, struct error *err)
{
    char path[4096], text[1536], host[256] = "";
    gethostname(host, sizeof host - 1);
    int n = snprintf(text, sizeof text,
                     STEP_LINE "host %s\npid %d %" PRIu64 "\njob %s\nsession %.511s\n",
                     -1LL, host, (int)getpid(), rank_start_ticks(getpid()),
                     word_in("OMPI_MCA_ess_base_jobid"), word_in("PMIX_SERVER_TMPDIR"));
    if (n < 0 || (size_t)n >= sizeof text)
        return error_set(err, ERROR_RUNTIME, "the environment of rank %d is too long",
                         rank);
    rank_status_path(path, sizeof path, log_dir, rank);
    return fs_write_atomic(path, text, (size_t)n, err);
}

static int spare_fd = -1;

void rank_status_set_spare(int fd)
{
    spare_fd = fd;
}

static int append_to_file(const char *log_dir, int rank, const char *line)
{
    char path[4096];
    rank_status_path(path, sizeof path, log_dir, rank);
    int fd = open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int rc = fs_write_exact(fd, line, strlen(line));
    close(fd);
    return rc;
}

/* Whether the line arrived is not asked: nobody could be told. */
static void append_line(const char *log_dir, int rank, const char *line)
{
    char host[256] = "", text[2600];
    if (append_to_file(log_dir, rank, line) == 0 || spare_fd < 0)
        return;
    gethostname(host, sizeof host - 1);
    int n = snprintf(text, sizeof text, RANK_STATUS_MARK "%d %s %d %s", rank, host,
                     (int)getpid(), line);
    int unused = fs_write_exact(spare_fd, text, (size_t)i64_min(n, sizeof text - 1));
    (void)unused;
}

void rank_status_set_step(const char *log_dir, int rank, int64_t step)
{
    char path[4096], line[64];
    snprintf(line, sizeof line, STEP_LINE, (long long)step);
    rank_status_path(path, sizeof path, log_dir, rank);
    int fd = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    int unused = fs_pwrite_exact(fd, line, strlen(line), 0);
    (void)unused;
    close(fd);
}

void rank_status_failure(const char *log_dir, int rank, int64_t log_bytes, int exit_code,
                         bool is_lasting, const char *reason)
{
    char line[2200];
    snprintf(line, sizeof line, "failure %" PRId64 " %" PRId64 " %d %d %.2047s\n",
             now_ns(), log_bytes, exit_code, is_lasting, reason);
    for (char *c = line; c[0] && c[1]; c++) // the reason is one line of the file
        if (*c == '\n')
            *c = ' ';
    append_line(log_dir, rank, line);
}

void rank_status_end(const char *log_dir, int rank, int exit_code)
{
    char line[64];
    snprintf(line, sizeof line, "end %" PRId64 " %d\n", now_ns(), exit_code);
    append_line(log_dir, rank, line);
}

/* Digits of `value` at `at`; returns what follows them. snprintf() is not allowed in
 * signal handlers. */
static char *put_number(char *at, int64_t value)
{
    char digits[24];
    int n = 0;
    do
        digits[n++] = (char)('0' + value % 10);
    while (value /= 10);
    while (n)
        *at++ = digits[--n];
    return at;
}

void rank_status_crash(int fd, int signal_number)
{
    char line[64] = "signal ";
    char *at = put_number(line + strlen(line), now_ns());
    *at++ = ' ';
    at = put_number(at, signal_number);
    *at++ = '\n';
    int unused = fs_write_exact(fd, line, (size_t)(at - line));
    (void)unused;
}

/* -- the launcher's side ------------------------------------------------------------- */

/* Take over one of the last words, unless one came before. */
static void take_last_word(struct rank_status *s, const char *line)
{
    long long time_ns, log_bytes = 0;
    int code, is_lasting = 0, at = 0;
    enum rank_state state;
    if (s->state != RANK_RUNNING)
        return;
    if (sscanf(line, "failure %lld %lld %d %d %n", &time_ns, &log_bytes, &code,
               &is_lasting, &at) == 4 &&
        at > 0) {
        state = RANK_FAILED;
        snprintf(s->text, sizeof s->text, "%s", line + at);
    } else if (sscanf(line, "signal %lld %d", &time_ns, &code) == 2)
        state = RANK_CRASHED;
    else if (sscanf(line, "end %lld %d", &time_ns, &code) == 2)
        state = RANK_ENDED;
    else
        return;
    s->state = state;
    s->code = code;
    s->time_ns = time_ns;
    s->log_bytes = log_bytes;
    s->is_lasting = is_lasting != 0;
}

bool rank_status_parse(char *text, struct rank_status *s)
{
    *s = (struct rank_status){.step = -1};
    char *next;
    for (char *line = text; (next = strchr(line, '\n')); line = next + 1) {
        long long step;
        int pid;
        *next = '\0';
        if (sscanf(line, "step %lld", &step) == 1)
            s->step = step;
        else if (sscanf(line, "pid %d %" SCNu64, &pid, &s->start_ticks) == 2)
            s->pid = pid;
        else if (sscanf(line, "host %255s", s->host) != 1 &&
                 sscanf(line, "job %" SCNu32, &s->job) != 1 &&
                 sscanf(line, "session %511s", s->session) != 1)
            take_last_word(s, line);
    }
    if (strcmp(s->session, "-") == 0)
        s->session[0] = '\0';
    return s->pid > 0 && s->host[0];
}

int rank_status_parse_spare(const char *text, struct rank_status *s)
{
    int rank, pid, at = 0;
    char word[2600];
    *s = (struct rank_status){.step = -1};
    if (sscanf(text, "%d %255s %d %n", &rank, s->host, &pid, &at) != 3 || at == 0 ||
        rank < 0)
        return -1;
    s->pid = pid;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(text + at, "\n"), text + at);
    take_last_word(s, word);
    return s->state == RANK_RUNNING ? -1 : rank;
}

bool rank_status_read(const char *log_dir, int rank, struct rank_status *s)
{
    char path[4096];
    char *text;
    size_t n;
    struct error ignored; // a file that cannot be read yet is read at the next look
    rank_status_path(path, sizeof path, log_dir, rank);
    if (!fs_exists(path) || fs_read_all(path, STATUS_BYTES_MOST, &text, &n, &ignored))
        return false;
    bool is_whole = rank_status_parse(text, s);
    free(text);
    return is_whole;
}
