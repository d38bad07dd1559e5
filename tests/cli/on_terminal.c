/*
 * on_terminal COLUMNS PATTERN COMMAND... - run a command on a terminal of that width (0:
 * one that does not tell), copy what it shows to standard output, and press Ctrl-C once
 * when PATTERN has been shown ("" for never). The exit code is the command's, or 128 and
 * the signal that ended it.
 */
#include <errno.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The end of what was shown, enough to find a pattern in. */
struct shown {
    char text[65536];
    size_t n;
};

static void keep(struct shown *s, const char *bytes, size_t n)
{
    size_t room = sizeof s->text - 1;
    if (s->n + n > room) {
        size_t kept = s->n > room / 2 ? room / 2 : s->n;
        memmove(s->text, s->text + s->n - kept, kept);
        s->n = kept;
    }
    memcpy(s->text + s->n, bytes, n);
    s->n += n;
    s->text[s->n] = '\0';
}

static void copy_until_end(int terminal, const char *pattern)
{
    static struct shown shown;
    char buf[4096];
    int is_pressed = pattern[0] == '\0';
    for (ssize_t n; (n = read(terminal, buf, sizeof buf)) > 0 || errno == EINTR;) {
        if (n <= 0)
            continue;
        fwrite(buf, 1, (size_t)n, stdout);
        fflush(stdout);
        keep(&shown, buf, (size_t)n);
        if (!is_pressed && strstr(shown.text, pattern))
            is_pressed = write(terminal, "\003", 1) == 1;
    }
}

int main(int argc, char **argv)
{
    int terminal, status;
    if (argc < 4)
        return 2;
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)atoi(argv[1])};
    pid_t child = forkpty(&terminal, NULL, NULL, &size);
    if (child < 0)
        return 3;
    if (child == 0) {
        execvp(argv[3], argv + 3);
        _exit(127);
    }
    copy_until_end(terminal, argv[2]);
    if (waitpid(child, &status, 0) != child)
        return 3;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
