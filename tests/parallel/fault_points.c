/*
 * The program with faults on demand: linked with the program's main(), it replaces the
 * weak ckpt_failpoint() of the library.
 *
 *     TREFOIL_FAULT=CKPT_AT_FILE_SYNCED:1:0:kill    rank 1, first time: SIGKILL
 *     TREFOIL_FAULT=CKPT_AT_COPIED:0:2:28           rank 0, third time: errno 28
 */
#include "ckpt/ckpt_failpoint.h"
#include "comm/comm.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAILPOINT_NAME(name) #name,
static const char *const names[] = {CKPT_FAILPOINTS(FAILPOINT_NAME)};

struct fault {
    char name[64], what[16];
    int rank, visit;
};

static bool read_fault(struct fault *f)
{
    const char *text = getenv("TREFOIL_FAULT");
    return text &&
           sscanf(text, "%63[^:]:%d:%d:%15s", f->name, &f->rank, &f->visit, f->what) == 4;
}

int ckpt_failpoint(enum ckpt_failpoint at)
{
    static atomic_int n_visits; // of the one that is asked for
    struct fault f;
    if (!read_fault(&f) || strcmp(f.name, names[at]) != 0 ||
        f.rank != comm_launch_info().rank || atomic_fetch_add(&n_visits, 1) != f.visit)
        return 0;
    if (strcmp(f.what, "kill") == 0)
        kill(getpid(), SIGKILL);
    errno = atoi(f.what);
    return -1;
}
