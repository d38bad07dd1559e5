#include "launch/launch_words.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The words that follow `mark` in `said`; NULL: it is not there. */
static const char *after(const char *said, const char *mark)
{
    const char *at = said ? strstr(said, mark) : NULL;
    return at ? at + strlen(mark) : NULL;
}

/*
 * Open MPI: "... noticed that process rank 1 with PID 0 on node n exited on signal 9
 * (Killed)." MPICH: "=   PID 4711 RUNNING AT n", "=   EXIT CODE: 9", which is a wait
 * status, and "... TERMINATED WITH THE EXIT STRING: Killed (signal 9)".
 */
void launch_words_death(const char *said, struct launch_death *death)
{
    *death = (struct launch_death){.rank = -1, .pid = -1, .signal_number = -1};
    const char *at = after(said, "noticed that process rank ");
    const char *by = after(at, "exited on signal ");
    if (by) {
        death->rank = atoi(at);
        death->signal_number = atoi(by);
        return;
    }
    at = after(said, "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES");
    if (at && sscanf(at, " = PID %d RUNNING AT %255s = EXIT CODE: %d", &death->pid,
                     death->host, &death->signal_number) != 3)
        death->pid = -1;
    if (death->signal_number > 31) // its exit code, which it has told by itself
        death->signal_number = -1;
    at = after(after(said, "EXIT STRING: "), "(signal ");
    if (at)
        death->signal_number = atoi(at);
}

/*
 * Open MPI: "ORTE has lost communication with a remote daemon.", "HNP daemon   :
 * [[1,0],0] on node a", "Remote daemon: [[1,0],1] on node b". MPICH: "[mpiexec@a]
 * control_cb (...): assert (!closed) failed".
 */
bool launch_words_lost_host(const char *said, char host[256])
{
    const char *at = after(said, "lost communication with a remote daemon");
    host[0] = '\0';
    const char *name = after(after(at, "Remote daemon:"), "on node ");
    if (name && sscanf(name, "%255s", host) != 1)
        host[0] = '\0';
    return at || (after(said, "assert (!closed) failed") &&
                  !after(said, "BAD TERMINATION OF ONE OF"));
}

/* -- on one line --------------------------------------------------------------------- */

/* "[vm:4711] [[15526,0],0] ORTE_ERROR_LOG: words" begins at the words. */
static const char *skip_prefixes(const char *line, const char *end)
{
    static const char log_mark[] = "ORTE_ERROR_LOG: ";
    while (line < end) {
        if (isspace((unsigned char)*line)) {
            line++;
        } else if (*line == '[') {
            const char *close = memchr(line, ' ', (size_t)(end - line));
            line = close && close[-1] != ',' ? close : end;
        } else if (strncmp(line, log_mark, sizeof log_mark - 1) == 0) {
            line += sizeof log_mark - 1;
        } else {
            break;
        }
    }
    return line;
}

static bool is_frame(const char *line, const char *end)
{
    for (; line < end; line++)
        if (!strchr("-=*# \t", *line))
            return false;
    return true;
}

/* Here Open MPI begins to guess at length. */
static bool is_guess(const char *line, const char *end)
{
    static const char *const guesses[] = {"This usually is caused by", "This is usually"};
    for (size_t i = 0; i < ARRAY_LEN(guesses); i++)
        if ((size_t)(end - line) >= strlen(guesses[i]) &&
            strncmp(line, guesses[i], strlen(guesses[i])) == 0)
            return true;
    return false;
}

void launch_words_condense(const char *said, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (const char *line = said, *next; *line; line = next) {
        const char *end = strchr(line, '\n');
        end = end ? end : line + strlen(line);
        next = *end ? end + 1 : end;
        const char *in_file = strstr(line, " in file ");
        const char *from = skip_prefixes(line, end);
        const char *to = in_file && in_file < end ? in_file : end; // source lines
        char word[512];
        if (is_guess(from, end))
            return;
        snprintf(word, sizeof word, "%.*s", (int)(to > from ? to - from : 0), from);
        if (from >= to || is_frame(from, to) || strstr(text, word))
            continue;
        int n = snprintf(text + used, size - used, "%s%s", used ? " " : "", word);
        used += (size_t)i64_min(n, (int64_t)(size - used) - 1);
    }
}
