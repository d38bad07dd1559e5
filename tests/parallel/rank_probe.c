/*
 * rank_probe - a stand-in for trefoil whose ranks do as they are told:
 *
 *     rank_probe launch [options] eval ACTION [RANK]
 *
 * starts itself by the real `launch` command; each rank then does ACTION. Where a rank is
 * named, it alone misbehaves, at step 3, while the others wait for it in a collective.
 */
#include "base/beat.h"
#include "base/log.h"
#include "base/process.h"
#include "base/stop.h"
#include "cli/cmd.h"
#include "comm/comm.h"
#include "launch/worker.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct probe {
    struct comm *world;
    int rank;
    int culprit; // RANK, or -1
    int n_lines; // that it logs in a step
};

static void pause_ms(long ms)
{
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static int do_hello(struct probe *p, struct error *err)
{
    int64_t sum = p->rank;
    cpu_set_t mine;
    sched_getaffinity(0, sizeof mine, &mine);
    if (comm_sum_i64(p->world, &sum, 1, err))
        return -1;
    log_info("hello from rank %d of %d on %s, sum %lld, threads %d, processors %d",
             p->rank, comm_size(p->world), comm_host(p->world), (long long)sum,
             worker_threads(), CPU_COUNT(&mine));
    return 0;
}

/* Steps until a signal comes; then a save that takes longer than mpirun would wait. */
static int do_train(struct probe *p, struct error *err)
{
    stop_watch(STOP_RANK);
    for (int64_t step = 1; step < 1200; step++) {
        int64_t is_stopped = stop_is_wanted();
        beat_step(step);
        if (comm_max_i64(p->world, &is_stopped, 1, err))
            return -1;
        if (is_stopped) {
            char name[64];
            pause_ms(1600);
            snprintf(name, sizeof name, "saved.%d", p->rank);
            FILE *f = fopen(name, "we");
            if (!f || fclose(f))
                return error_set(err, ERROR_RUNTIME, "cannot write '%s'", name);
            return error_set(err, ERROR_STOPPED, "saved at step %lld", (long long)step);
        }
        if (step == 2)
            log_info("training");
        for (int i = 0; i < p->n_lines; i++)
            log_info("%0200d", i);
        pause_ms(50);
    }
    return 0;
}

/* It prints more than a slow terminal takes. */
static int do_talk(struct probe *p, struct error *err)
{
    p->n_lines = 100;
    return do_train(p, err);
}

static int do_wait(struct probe *p, struct error *err)
{
    log_info("waiting");
    for (int seconds = 0; seconds < 120; seconds++)
        pause_ms(1000);
    return error_set(err, ERROR_RUNTIME, "rank %d waited in vain", p->rank);
}

/* A job that does not stop when it is asked to. */
static int do_deaf(struct probe *p, struct error *err)
{
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    return do_wait(p, err);
}

static int do_abort(struct probe *p, struct error *err)
{
    if (p->rank == p->culprit) {
        error_set(err, ERROR_INPUT, "cannot read 'tokens'\nthe disk is gone");
        comm_abort_with(p->world, err);
    }
    return comm_agree(p->world, 0, err);
}

static int do_agree(struct probe *p, struct error *err)
{
    int rc = 0;
    if (p->rank == p->culprit)
        rc = error_set(err, ERROR_RUNTIME, "the loss is not finite");
    return comm_agree(p->world, rc, err);
}

static int do_crash(struct probe *p, struct error *err)
{
    if (p->rank == p->culprit)
        raise(SIGSEGV);
    return comm_agree(p->world, 0, err);
}

static int do_kill(struct probe *p, struct error *err)
{
    if (p->rank == p->culprit)
        raise(SIGKILL);
    return comm_agree(p->world, 0, err);
}

/* For a control group with a limit, in which the kernel ends this rank. */
static int do_hog(struct probe *p, struct error *err)
{
    enum { PIECE_BYTES = 1 << 20, N_PIECES = 1 << 10 };
    for (int i = 0; p->rank == p->culprit && i < N_PIECES; i++) {
        char *piece = malloc(PIECE_BYTES);
        if (piece)
            memset(piece, 1, PIECE_BYTES);
    }
    return comm_agree(p->world, 0, err);
}

/* What an exit() in some library looks like. */
static int do_exit(struct probe *p, struct error *err)
{
    if (p->rank == p->culprit)
        exit(7);
    return comm_agree(p->world, 0, err);
}

/* The rank says that it failed and then does not get away. */
static int do_linger(struct probe *p, struct error *err)
{
    if (p->rank == p->culprit) {
        error_set(err, ERROR_RUNTIME, "stuck");
        worker_report_failure(err);
        return do_wait(p, err);
    }
    return comm_agree(p->world, 0, err);
}

static const struct {
    const char *name;
    int (*run)(struct probe *p, struct error *err);
} actions[] = {
    {"hello", do_hello},   {"train", do_train}, {"wait", do_wait}, {"abort", do_abort},
    {"agree", do_agree},   {"crash", do_crash}, {"kill", do_kill}, {"exit", do_exit},
    {"linger", do_linger}, {"deaf", do_deaf},   {"hog", do_hog},   {"talk", do_talk},
};

static int run_action(const char *name, const char *culprit, struct error *err)
{
    struct probe p = {.culprit = culprit ? atoi(culprit) : -1};
    int rc;
    if (comm_world_open(&p.world, err))
        return -1;
    p.rank = comm_rank(p.world);
    beat_remove_name();
    rc = error_set(err, ERROR_INPUT, "unknown action '%s'", name);
    comm_on_abort(p.world, worker_report_failure);
    beat_step(3);
    for (size_t i = 0; i < ARRAY_LEN(actions); i++)
        if (strcmp(name, actions[i].name) == 0)
            rc = actions[i].run(&p, err);
    beat_outcome(rc ? error_exit_code(err) : 0);
    comm_world_close(p.world);
    return rc;
}

int main(int argc, char **argv)
{
    struct error err;
    process_begin();
    if (argc > 1 && strcmp(argv[1], "launch") == 0)
        return cmd_launch(argc - 1, argv + 1);
    if (argc < 3) {
        fprintf(stderr, "usage: %s launch [options] eval ACTION [RANK]\n", argv[0]);
        return 2;
    }
    int rc = worker_start(&err);
    if (rc == 0)
        rc = run_action(argv[2], argv[3], &err);
    return worker_finish(rc, &err);
}
