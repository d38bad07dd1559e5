/*
 * The program with faults on demand: linked with the program's main(), it replaces the
 * weak functions of the library that do nothing.
 *
 *     TREFOIL_FAULT=CKPT_AT_FILE_SYNCED:1:0:kill    rank 1, first time: SIGKILL
 *     TREFOIL_FAULT=CKPT_AT_COPIED:0:2:28           rank 0, third time: errno 28
 *     TREFOIL_FAULT=CKPT_AT_FILE_WRITTEN:0:2:sleep  rank 0, third time: 1 s longer,
 * counted from the spoiled step if there is one TREFOIL_FAULT=CKPT_AT_COMMITTED:0:1:peer
 * rank 0, second time: rank 1 is killed TREFOIL_FAULT=...,... several
 *     TREFOIL_SPOILED_STEP=5                        rank 0's gradients of step 5 are none
 *     TREFOIL_PAUSED_STEP=5                         in step 5 rank 0 makes the file
 * `paused` and waits until it is removed
 */
#include "ckpt/ckpt_failpoint.h"
#include "comm/comm.h"
#include "model/gpt_params.h"
#include "train/step.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FAULTS_MOST 4

#define FAILPOINT_NAME(name) #name,
static const char *const names[] = {CKPT_FAILPOINTS(FAILPOINT_NAME)};

struct fault {
    char name[64], what[16];
    int rank, visit;
};

/* Fault number i of the list. */
static bool read_fault(int i, struct fault *f)
{
    const char *text = getenv("TREFOIL_FAULT");
    for (; text && i > 0; i--) {
        text = strchr(text, ',');
        text = text ? text + 1 : NULL;
    }
    return text && sscanf(text, "%63[^:]:%d:%d:%15[^,]", f->name, &f->rank, &f->visit,
                          f->what) == 4;
}

/* Every rank leaves its number in the working directory, which they share. */
static void note_pid(int rank)
{
    char name[32];
    snprintf(name, sizeof name, "pid.%d", rank);
    FILE *f = fopen(name, "we");
    if (!f || fprintf(f, "%d\n", (int)getpid()) < 0 || fclose(f))
        abort();
}

/* Kill rank 1 and stay here until the job is ended because of it. */
static void kill_peer(void)
{
    const struct timespec pause = {.tv_sec = 30};
    int pid = 0;
    FILE *f = fopen("pid.1", "re");
    if (f && fscanf(f, "%d", &pid) == 1 && pid > 1)
        kill(pid, SIGKILL);
    nanosleep(&pause, NULL);
    abort();
}

/* Until the file is there (or gone), two minutes at most. */
static void await_file(const char *name, bool is_there)
{
    const struct timespec moment = {.tv_nsec = 10000000};
    for (int i = 0; i < 12000 && (access(name, F_OK) == 0) != is_there; i++)
        nanosleep(&moment, NULL);
}

static void make_file(const char *name)
{
    FILE *f = fopen(name, "we");
    if (!f || fclose(f))
        abort();
}

/* Where a step is spoiled, until that has happened and for a moment more. */
static int do_sleep(void)
{
    const struct timespec pause = {.tv_sec = 1};
    if (getenv("TREFOIL_SPOILED_STEP"))
        await_file("spoiled", true);
    return nanosleep(&pause, NULL);
}

static int do_fault(const struct fault *f)
{
    if (strcmp(f->what, "kill") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(f->what, "peer") == 0)
        kill_peer();
    if (strcmp(f->what, "sleep") == 0)
        return do_sleep();
    errno = atoi(f->what);
    return -1;
}

int ckpt_failpoint(enum ckpt_failpoint at)
{
    static atomic_int n_visits[FAULTS_MOST]; // of what each of them asks for
    struct fault f;
    for (int i = 0; i < FAULTS_MOST && read_fault(i, &f); i++)
        if (strcmp(f.name, names[at]) == 0 && f.rank == comm_launch_info().rank &&
            atomic_fetch_add(&n_visits[i], 1) == f.visit)
            return do_fault(&f);
    return 0;
}

void train_grads_hook(struct train *t)
{
    const char *step = getenv("TREFOIL_SPOILED_STEP");
    const char *paused = getenv("TREFOIL_PAUSED_STEP");
    int rank = comm_rank(t->grid.world);
    if (t->step == t->first_step && getenv("TREFOIL_FAULT"))
        note_pid(rank);
    if (paused && t->step + 1 == atoll(paused) && rank == 0) {
        make_file("paused");
        await_file("paused", false);
    }
    if (step && t->step + 1 == atoll(step) && rank == 0) {
        ((float *)t->runner.gpt.params.weights[STORE_GRADS][GPT_WORD_WEIGHT].data)[7] =
            NAN;
        make_file("spoiled");
    }
}
