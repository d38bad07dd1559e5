/*
 * How the hosts of ranks whose devices are peers reach each other (struct device_link),
 * over MPI: for the emulated device, which has nothing else.
 */
#include "base/beat.h"
#include "comm/comm_mpi.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NOTE_TAG (COMM_LINK_TAG + 3)

struct link_message {
    MPI_Request mpi;
};

static int group_rank(const struct comm_link *l, int rank)
{
    return l->ranks[0] >= 0 ? l->ranks[rank] : rank;
}

static void *link_post(struct comm_link *l, void *x, size_t bytes, int peer, bool is_send)
{
    struct link_message *m = malloc(sizeof *m);
    CHECK(m && bytes <= INT32_MAX, "a message of %zu bytes", bytes);
    int r = group_rank(l, peer), n = (int)bytes;
    int code = is_send ? MPI_Issend(x, n, MPI_BYTE, r, l->tag, l->comm->mpi, &m->mpi)
                       : MPI_Irecv(x, n, MPI_BYTE, r, l->tag, l->comm->mpi, &m->mpi);
    if (code != MPI_SUCCESS)
        l->comm->mpi_error = code;
    return m;
}

static void *link_send(void *context, const void *x, size_t bytes, int to)
{
    return link_post(context, (void *)(uintptr_t)x, bytes, to, true); // only read
}

static void *link_recv(void *context, void *x, size_t bytes, int from)
{
    return link_post(context, x, bytes, from, false);
}

static bool link_is_over(void *context, void *message)
{
    struct comm_link *l = context;
    struct link_message *m = message;
    int is_over = 0;
    int code = MPI_Test(&m->mpi, &is_over, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) {
        struct error err;
        comm_mpi_check(code, "communication with the other ranks failed", &err);
        comm_abort_with(l->comm, &err);
    }
    if (is_over)
        free(m);
    return is_over;
}

/* Notes are small: MPI takes them at once. Those that it has not sent yet are kept. */
struct comm_note {
    struct comm_note *next;
    MPI_Request mpi;
    char bytes[];
};

void comm_forget_notes(struct comm_job *job)
{
    struct comm_note **link = &job->notes;
    while (*link) {
        struct comm_note *note = *link;
        int is_over = 0;
        if (MPI_Test(&note->mpi, &is_over, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
            !is_over) {
            link = &note->next;
            continue;
        }
        *link = note->next;
        free(note);
    }
}

static void link_tell(void *context, const void *bytes, size_t n, int to)
{
    struct comm_job *job = ((struct comm_link *)context)->comm->job;
    struct comm_note *note = malloc(sizeof *note + n);
    CHECK(note, "no memory for %zu bytes", n);
    memcpy(note->bytes, bytes, n);
    comm_forget_notes(job);
    if (MPI_Isend(note->bytes, (int)n, MPI_BYTE, to, NOTE_TAG, MPI_COMM_WORLD,
                  &note->mpi) != MPI_SUCCESS) {
        free(note);
        return;
    }
    note->next = job->notes;
    job->notes = note;
}

static bool link_hear(void *context, void *bytes, size_t n, int *from)
{
    int is_there = 0;
    MPI_Status status;
    (void)context;
    if (MPI_Iprobe(MPI_ANY_SOURCE, NOTE_TAG, MPI_COMM_WORLD, &is_there, &status) !=
            MPI_SUCCESS ||
        !is_there)
        return false;
    *from = status.MPI_SOURCE;
    return MPI_Recv(bytes, (int)n, MPI_BYTE, *from, NOTE_TAG, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE) == MPI_SUCCESS;
}

static void link_wait(void *context)
{
    static const struct timespec nap = {.tv_nsec = 20000};
    struct comm_link *l = context;
    nanosleep(&nap, NULL);
    if (beat_must_end())
        comm_abort(l->comm, COMM_EXIT_BY_WATCHER); // a watcher has said why
}

static void __attribute__((noreturn)) link_fail(void *context, const struct error *err)
{
    comm_abort_with(((struct comm_link *)context)->comm, err);
}

struct device_link comm_link_for_device(struct comm_link *l)
{
    return (struct device_link){.context = l,
                                .name = l->comm->name ? l->comm->name : "?",
                                .world_ranks = l->world_ranks,
                                .send = link_send,
                                .recv = link_recv,
                                .is_over = link_is_over,
                                .tell = link_tell,
                                .hear = link_hear,
                                .wait = link_wait,
                                .fail = link_fail};
}
