/*
 * The words of MPI are bounded and stripped of frames, repetitions and standard phrases
 * (mpiexec_condense()). The remedy is the first that applies: a limit that is too low, then
 * settings in the environment, then general advice.
 */
#include "launch/join_failure.h"

#include "base/beat.h"
#include "base/fs.h"
#include "launch/job_files.h"
#include "launch/mpiexec.h"
#include "launch/worker.h"

#include <ctype.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LOG_TAIL_BYTES 4096
#define LOGS_MAX 64 // that are read
#define WORDS_BYTES 900
#define NAMED_MAX 4                       // variables of a remedy
#define ENOUGH_BYTES ((uint64_t)16 << 20) // of shared memory, for a small job
#define FEW_PROCESSES 64
#define FILE_LIMIT_BYTES ((uint64_t)64 << 20) // below it, a limit is worth a word

/* -- the log of a rank ---------------------------------------------------------------- */

/* Whether the line is one of our own log: "[2026-11-19 ...". */
static bool is_own_line(const char *line)
{
    return line[0] == '[' && isdigit((unsigned char)line[1]) &&
           isdigit((unsigned char)line[2]) && isdigit((unsigned char)line[3]) &&
           isdigit((unsigned char)line[4]) && line[5] == '-';
}

/* The last lines of the log that are not ours. */
static void read_log_tail(const char *path, char tail[LOG_TAIL_BYTES + 1])
{
    char text[LOG_TAIL_BYTES + 1];
    struct stat info;
    size_t used = 0;
    tail[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        return;
    bool is_file = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    off_t from =
        is_file && info.st_size > LOG_TAIL_BYTES ? info.st_size - LOG_TAIL_BYTES : 0;
    ssize_t n = is_file ? pread(fd, text, LOG_TAIL_BYTES, from) : 0;
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *line = from > 0 ? text + strcspn(text, "\n") : text;
    for (size_t length; *line; line += length) {
        length = strcspn(line, "\n");
        length += line[length] == '\n';
        if (is_own_line(line))
            continue;
        memcpy(tail + used, line, length);
        tail[used += length] = '\0';
    }
}

/* -- which rank ---------------------------------------------------------------------- */

static bool is_joining(const struct seen_rank *seen)
{
    return seen->is_seen && seen->action == BEAT_JOIN && seen->peer != BEAT_NOBODY;
}

/* It left by exit() or _exit(). */
static bool has_left(const struct seen_rank *seen)
{
    if (seen->state == BEAT_FAILED)
        return seen->reason &&
               strncmp(seen->reason, WORKER_JOIN_ENDED, strlen(WORKER_JOIN_ENDED)) == 0;
    return seen->state == BEAT_ALIVE && seen->condition == RANK_GONE &&
           seen->exit_signal == 0 && (seen->exit_code != 0 || seen->oom != OOM_COUNTED);
}

/* MPI's words on it are in the log. */
static bool has_logged(const char *log_dir, int rank)
{
    char path[PATH_MAX], tail[LOG_TAIL_BYTES + 1];
    job_files_log_path(path, sizeof path, log_dir, rank);
    read_log_tail(path, tail);
    return strstr(tail, "MPI_Init_thread") != NULL;
}

int join_failure_find(const struct seen_rank *ranks, int n_ranks, const char *log_dir,
                      int rank, int number)
{
    if (!is_joining(&ranks[rank]) || ranks[rank].oom == OOM_COUNTED)
        return -1;
    if (has_left(&ranks[rank]))
        return number ? -1 : rank;
    if (number != SIGTERM && number != SIGKILL)
        return -1;
    for (int r = 0; r < n_ranks; r++)
        if (is_joining(&ranks[r]) && has_left(&ranks[r]))
            return r;
    for (int r = 0; r < n_ranks && r < LOGS_MAX; r++)
        if (is_joining(&ranks[r]) && has_logged(log_dir, r))
            return r;
    return number == SIGTERM ? rank : -1;
}

/* -- what MPI said ------------------------------------------------------------------- */

/* Both sources on one line; "nothing" where both are silent. */
static void collect_words(char words[WORDS_BYTES], const char *said, const char *log)
{
    char tail[LOG_TAIL_BYTES + 1], rest[WORDS_BYTES];
    read_log_tail(log, tail);
    mpiexec_condense(said, words, WORDS_BYTES);
    mpiexec_condense(tail, rest, sizeof rest);
    size_t used = strlen(words);
    if (rest[0] && !strstr(words, rest))
        snprintf(words + used, WORDS_BYTES - used, "%s%.*s", used ? " " : "",
                 (int)(WORDS_BYTES - used), rest);
    if (!words[0])
        snprintf(words, WORDS_BYTES, said[0] || tail[0] ? "that it failed" : "nothing");
}

/* -- what helps ---------------------------------------------------------------------- */

/* Variables of MPI and of the libraries below it that this environment sets, but not the
 * launcher's own. Returns their number. */
static int name_variables(char *buf, size_t size)
{
    static const char *const heads[] = {"OMPI_MCA_", "MPIR_CVAR_", "MPICH_",
                                        "PMIX_MCA_", "UCX_",       "FI_"};
    static const char *const ours[] = {"OMPI_MCA_orte_local_tmpdir_base=",
                                       "UCX_HANDLE_ERRORS="};
    size_t used = 0;
    int n = 0;
    buf[0] = '\0';
    for (char **at = environ; *at && n < NAMED_MAX; at++) {
        bool is_theirs = false;
        for (size_t i = 0; i < ARRAY_LEN(heads); i++)
            is_theirs |= strncmp(*at, heads[i], strlen(heads[i])) == 0;
        for (size_t i = 0; i < ARRAY_LEN(ours); i++)
            is_theirs = is_theirs && strncmp(*at, ours[i], strlen(ours[i])) != 0;
        if (!is_theirs || used + 100 >= size)
            continue;
        used += (size_t)i64_min(
            snprintf(buf + used, size - used, "%s%.90s", n ? ", " : "", *at), 99);
        n++;
    }
    return n;
}

static void write_remedy(char *buf, size_t size)
{
    char names[400];
    struct rlimit files, processes;
    struct statvfs shared;
    const char *dir = beat_directory();
    uint64_t total = UINT64_MAX, left = UINT64_MAX;
    if (statvfs(dir, &shared) == 0) {
        total = (uint64_t)shared.f_blocks * shared.f_frsize;
        left = (uint64_t)shared.f_bavail * shared.f_frsize;
    }
    if (getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur < FILE_LIMIT_BYTES)
        snprintf(
            buf, size,
            "files are limited to %llu kB here, which is too little for MPI's shared "
            "memory: raise the limit (ulimit -f unlimited)",
            (unsigned long long)(files.rlim_cur >> 10));
    else if (getrlimit(RLIMIT_NPROC, &processes) == 0 &&
             processes.rlim_cur < FEW_PROCESSES && geteuid() != 0)
        snprintf(buf, size,
                 "the limit of this user's processes and threads is %llu: raise it "
                 "(ulimit -u)",
                 (unsigned long long)processes.rlim_cur);
    else if (left < ENOUGH_BYTES)
        snprintf(
            buf, size,
            "'%s' has %llu kB, of which %llu are free, and MPI puts its shared memory "
            "there: make it larger (docker run --shm-size=1g)",
            dir, (unsigned long long)(total >> 10), (unsigned long long)(left >> 10));
    else if (name_variables(names, sizeof names) > 0)
        snprintf(buf, size, "try without these variables of the environment: %s", names);
    else
        snprintf(buf, size,
                 "check the settings of the MPI library (its variables and files such as "
                 "~/.openmpi/mca-params.conf) and the network interfaces");
}

int join_failure_explain(int rank, const struct seen_rank *seen, const char *said,
                         const char *log, const char *where, struct error *err)
{
    char words[WORDS_BYTES], remedy[600], code[40] = "";
    int number = seen->state == BEAT_FAILED ? seen->code : seen->exit_code;
    collect_words(words, said, log);
    write_remedy(remedy, sizeof remedy);
    if (seen->state == BEAT_CRASHED)
        snprintf(code, sizeof code, ", and mpiexec the others");
    else if (number)
        snprintf(code, sizeof code, " with exit code %d", number);
    return error_set(err, ERROR_RUNTIME,
                     "rank %d on %s could not join the job: MPI_Init ended %s%s; "
                     "%s; MPI said: %s%s",
                     rank, seen->host,
                     seen->state == BEAT_CRASHED ? "a rank" : "the process", code, remedy,
                     words, where);
}
