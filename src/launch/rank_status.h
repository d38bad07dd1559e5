/*
 * rank_status - what a rank tells its launcher: the file LOG_DIR/.status.N.
 *
 * Text, one fact a line. The file appears whole when the rank starts; later facts are
 * appended, each by one write, so that a rank that dies leaves whole lines. The step
 * stands first, in a field of fixed width that is overwritten in place: by a rank that
 * fails, and for all of them by the launcher, which sees their steps (launch_watch.h).
 *
 *     step                    12
 *     host node7
 *     pid 4711 8812345            pid, start time in clock ticks (pids are used again)
 *     job 234422273               of Open MPI, - otherwise
 *     session /tmp/ompi.../pid.9  its directory, - otherwise
 *     failure 1668... 2048 3 0 cannot read ...  time, log size before, exit code, whether
 *                                               it would come again, reason
 *     signal 1668... 11                         time, signal
 *     end 1668... 0                             time, exit code
 *
 * The first of the last three counts: what follows a failure is its consequence.
 */
#ifndef LAUNCH_RANK_STATUS_H
#define LAUNCH_RANK_STATUS_H

#include "base/base.h"
#include "base/error.h"

#include <sys/types.h>

enum rank_state {
    RANK_RUNNING, // no last word
    RANK_FAILED,  // said why; code is its exit code
    RANK_CRASHED, // caught a deadly signal; code is the signal
    RANK_ENDED,   // wrote its end mark; code is its exit code
};

struct rank_status {
    int64_t step; // -1: not known
    char host[256];
    pid_t pid;
    uint64_t start_ticks;
    uint32_t job;      // 0: none
    char session[512]; // "": none
    enum rank_state state;
    int code;
    int64_t time_ns;   // of the last word, CLOCK_REALTIME
    int64_t log_bytes; // RANK_FAILED: size of the log before the reason was written to it
    bool is_lasting;   // RANK_FAILED: a job that is started again fails again
    char text[2048];   // RANK_FAILED: the reason
};

#define RANK_STATUS_NAME ".status." // and the rank

/* LOG_DIR/.status.N and LOG_DIR/workerlog.N; a path that does not fit is cut, and then
 * does not open. */
void rank_status_path(char *buf, size_t size, const char *log_dir, int rank);
void rank_log_path(char *buf, size_t size, const char *log_dir, int rank);

/* The file that is there while the launcher's log is a terminal: rank 0 leaves its
 * progress in it, at most RANK_PROGRESS_BYTES of text, and the launcher shows it. */
#define RANK_PROGRESS_BYTES 256
void rank_progress_path(char *buf, size_t size, const char *log_dir);

/* -- the rank's side ----------------------------------------------------------------- */

/* Write the file of this process. */
MUST_CHECK int rank_status_create(const char *log_dir, int rank, struct error *err);
/* Last words that the file does not take (the disk is full, the directory was removed) go
 * to descriptor `fd`, as "MARK RANK HOST PID WORD". */
#define RANK_STATUS_MARK "trefoil-status: "
void rank_status_set_spare(int fd);
/* These cannot report errors to anybody and say nothing when they fail. */
void rank_status_set_step(const char *log_dir, int rank, int64_t step);
void rank_status_failure(const char *log_dir, int rank, int64_t log_bytes, int exit_code,
                         bool is_lasting, const char *reason);
void rank_status_end(const char *log_dir, int rank, int exit_code);
/* The line of a crash into an open file; may be called in a signal handler. */
void rank_status_crash(int fd, int signal_number);

/* -- the launcher's side ------------------------------------------------------------- */

/* False when the rank has not written it (yet). */
bool rank_status_read(const char *log_dir, int rank, struct rank_status *status);
/* The same from the text of the file, which is modified. */
bool rank_status_parse(char *text, struct rank_status *status);

/* What the text behind RANK_STATUS_MARK says, and of which rank; -1: nothing. */
int rank_status_parse_spare(const char *text, struct rank_status *status);

/* The rank whose status file has this name in its directory; -1: it is another file. */
int rank_of_status_file(const char *name);

/* When process `pid` of this machine began, in clock ticks; 0: there is none. */
uint64_t rank_start_ticks(pid_t pid);
/* The signal that ended that process, while its parent has not asked; 0: not known. */
int rank_exit_signal(pid_t pid, uint64_t start_ticks);

#endif
