#include "cli/board_start.h"

#include "base/fs.h"
#include "base/process.h"
#include "board/board_server.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* In the child. In a process group of its own: Ctrl-C is for the run, which goes on for a
 * while and is watched while it ends. */
static void become_board(pid_t parent, const char *output_dir)
{
    char dir[PATH_MAX]; // a name that begins with a dash is no option
    snprintf(dir, sizeof dir, "%s%s", output_dir[0] == '-' ? "./" : "", output_dir);
    const char *const words[] = {"trefoil", "board", dir, NULL};
    int null = open("/dev/null", O_RDONLY);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(0); // it ended before it could be asked for
    setpgid(0, 0);
    setenv(BOARD_START_ENV, "1", 1); // what it prints goes to the log of a run
    process_restore_signals();
    if (null >= 0)
        dup2(null, STDIN_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execv("/proc/self/exe", (char *const *)(uintptr_t)words);
    _exit(127);
}

int board_start(const char *output_dir, struct error *err)
{
    if (getenv(BOARD_START_ENV))
        return 0;
    if (!board_server_is_there())
        return error_set(err, ERROR_INPUT,
                         "--board: this program was built without the board's server "
                         "(-DBOARD=OFF); trefoil top shows a run in a terminal");
    if (fs_make_directories(output_dir, err))
        return -1;
    pid_t parent = getpid();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        become_board(parent, output_dir);
    if (child < 0 || setenv(BOARD_START_ENV, "1", 1))
        return process_fork_failed(err, "the board", errno);
    return 0;
}
