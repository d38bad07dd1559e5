/*
 * Joining the job and making groups.
 *
 * Groups return MPI's errors instead of dying of them, so that a failure becomes a
 * sentence; the run-time system of MPI ends the job all the same when a process is lost.
 */
#include "base/beat.h"

#include "base/log.h"
#include "comm/comm_mpi.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Staging: COMM_STAGED blocks from each peer for each slot. Blocks are large enough to
 * make the price of a message small and small enough to be added out of the cache; groups
 * of many ranks have smaller ones, so that a slot takes SLOT_STAGING_BYTES at most, or 32
 * KB per rank where that is more (beyond 129 ranks). */
#define BLOCK_BYTES_MOST ((int64_t)512 << 10)
#define BLOCK_BYTES_LEAST ((int64_t)16 << 10)
#define SLOT_STAGING_BYTES ((int64_t)4 << 20)

/* Blocks under way: what is posted goes on while this rank computes, so the more the
 * better; but each is a request that every poll looks at. */
#define DEPTH_MOST 16
#define DEPTH_SHARED 128 // over all peers

int comm_mpi_check(int code, const char *what, struct error *err)
{
    char reason[MPI_MAX_ERROR_STRING + 1] = "";
    int n = 0;
    if (code == MPI_SUCCESS)
        return 0;
    MPI_Error_string(code, reason, &n);
    return error_set(err, ERROR_RUNTIME, "%s: %s", what, reason);
}

/* -- how this process was started ---------------------------------------------------- */

/* Each launcher gives its processes their rank and their number by variables. Both of a
 * row must be there: a batch script under Slurm sees SLURM_NTASKS too, and is one
 * process. The first row that matches wins: mpirun inside a Slurm job is mpirun. */
// clang-format off
static const struct {
    const char *rank, *size, *local_rank, *local_size, *job;
    bool has_mpi;
} launchers[] = {
    // Open MPI; MPICH and srun --mpi=pmi2; srun --mpi=pmix; MVAPICH; srun --mpi=none
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE", true},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, true},
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, "PMIX_NAMESPACE", true},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE", NULL, true},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, NULL, false},
};
// clang-format on

/* The value of a variable that holds a count; -1 when it is missing or something else. */
static int number_in(const char *variable)
{
    const char *text = variable ? getenv(variable) : NULL;
    char *end;
    if (!text || *text < '0' || *text > '9')
        return -1;
    long value = strtol(text, &end, 10);
    return *end == '\0' && value <= INT32_MAX ? (int)value : -1;
}

/* What follows the last point of the name of the job's directory. */
static int64_t restarts_in(const char *job)
{
    const char *point = strrchr(job, '.');
    int64_t n = point ? strtoll(point + 1, NULL, 10) : 0;
    return n > 0 ? n : 0;
}

struct comm_launch comm_launch_info(void)
{
    const char *ours = getenv(COMM_ENV_JOB);
    bool is_ours = ours && ours[0] == '/';
    for (size_t i = 0; i < ARRAY_LEN(launchers); i++) {
        int rank = number_in(launchers[i].rank);
        int size = number_in(launchers[i].size);
        if (rank >= 0 && rank < size)
            return (struct comm_launch){.launcher = launchers[i].size,
                                        .job = is_ours ? ours
                                               : launchers[i].job
                                                   ? getenv(launchers[i].job)
                                                   : NULL,
                                        .rank = rank,
                                        .size = size,
                                        .local_rank = number_in(launchers[i].local_rank),
                                        .local_size = number_in(launchers[i].local_size),
                                        .has_mpi = launchers[i].has_mpi,
                                        .is_ours = is_ours,
                                        .n_restarts = is_ours ? restarts_in(ours) : 0};
    }
    return (struct comm_launch){.size = 1, .local_rank = -1, .local_size = -1};
}

bool comm_is_launched(void)
{
    return comm_launch_info().size > 1;
}

/* -- groups -------------------------------------------------------------------------- */

static int64_t block_bytes_for(int size)
{
    int64_t block = SLOT_STAGING_BYTES / (COMM_STAGED * (size - 1)) / 4096 * 4096;
    return i64_max(BLOCK_BYTES_LEAST, i64_min(BLOCK_BYTES_MOST, block));
}

static int depth_for(int size)
{
    int64_t depth = DEPTH_SHARED / (size - 1);
    return (int)i64_max(COMM_STAGED, i64_min(DEPTH_MOST, depth));
}

static void group_layout(struct comm *c, struct arena *ar)
{
    size_t size = (size_t)c->size, n_streams = size * N_FLOWS;
    size_t n_requests = n_streams * (size_t)c->depth;
    size_t staging = COMM_STAGED * (size - 1) * (size_t)c->block_bytes;
    c->world_ranks = arena_bytes(ar, size * sizeof *c->world_ranks);
    c->parts = arena_bytes(ar, size * sizeof *c->parts);
    c->completed = arena_bytes(ar, n_requests * sizeof *c->completed);
    c->statuses = arena_bytes(ar, n_requests * sizeof *c->statuses);
    for (int i = 0; i < COMM_SLOTS; i++) {
        struct comm_slot *s = &c->slots[i];
        s->ranges = arena_bytes(ar, size * sizeof *s->ranges);
        s->streams = arena_bytes(ar, n_streams * sizeof *s->streams);
        s->mpi = arena_bytes(ar, n_requests * sizeof(MPI_Request));
    }
    for (int i = 0; i < COMM_SLOTS; i++)
        c->slots[i].staging = arena_bytes(ar, staging);
}

static int64_t whole_pages(int64_t n_bytes)
{
    enum { PAGE_BYTES = 4096 };
    return (n_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* Staging is touched up to the longest range of a rank, and all of it when that has as many
 * blocks as are staged (comm_collective.c). */
size_t comm_group_bytes(int size, int64_t n_bytes)
{
    struct comm c = {.size = size};
    struct arena measure;
    if (size < 2)
        return 0;
    c.block_bytes = block_bytes_for(size);
    c.depth = depth_for(size);
    int64_t range = (n_bytes + size - 1) / size, first = i64_min(range, c.block_bytes);
    int64_t second = i64_min(i64_max(range - first, 0), c.block_bytes);
    arena_measure(&measure);
    c.block_bytes = 0;
    group_layout(&c, &measure);
    return measure.used_bytes +
           (size_t)(COMM_SLOTS * (size - 1) * (whole_pages(first) + whole_pages(second)));
}

static int group_allocate(struct comm *c, struct error *err)
{
    struct arena measure;
    c->block_bytes = block_bytes_for(c->size);
    c->depth = depth_for(c->size);
    arena_measure(&measure);
    group_layout(c, &measure);
    if (arena_open_sparse(&c->memory, measure.used_bytes, "communication", err))
        return -1;
    group_layout(c, &c->memory);
    int n_requests = c->size * N_FLOWS * c->depth;
    for (int i = 0; i < COMM_SLOTS; i++)
        for (int k = 0; k < n_requests; k++)
            c->slots[i].mpi[k] = MPI_REQUEST_NULL;
    return 0;
}

/* A group of this process alone; NULL when there is no memory. */
static struct comm *group_new(struct comm_job *job, struct error *err)
{
    struct comm *c = calloc(1, sizeof *c);
    if (!c) {
        error_set(err, ERROR_RUNTIME, "no memory for a group of ranks");
        return NULL;
    }
    c->job = job;
    c->mpi = MPI_COMM_NULL;
    c->size = 1;
    c->queue_end = &c->queue;
    c->staged_end = &c->staged;
    return c;
}

int comm_alone_open(struct comm **group, struct comm_job *job, struct error *err)
{
    *group = group_new(job, err);
    return *group ? 0 : -1;
}

static void find_world_ranks(struct comm *c, MPI_Comm mpi)
{
    MPI_Group world, group;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Comm_group(mpi, &group);
    for (int r = 0; r < c->size; r++)
        MPI_Group_translate_ranks(group, 1, &r, world, &c->world_ranks[r]);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
}

int comm_group_open(struct comm **group, struct comm_job *job, MPI_Comm mpi,
                    struct error *err)
{
    struct comm *c = NULL;
    int rc = -1, size = 0;
    *group = NULL;
    if (comm_mpi_check(MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN),
                       "cannot make a group of ranks", err))
        goto done;
    MPI_Comm_size(mpi, &size);
    c = group_new(job, err);
    if (!c)
        goto done;
    if (size > 1) {
        c->size = size;
        MPI_Comm_rank(mpi, &c->rank);
        if (group_allocate(c, err))
            goto done;
        find_world_ranks(c, mpi);
        c->mpi = mpi;
        c->next = job->groups;
        job->groups = c;
        mpi = MPI_COMM_NULL;
    }
    *group = c;
    c = NULL;
    rc = 0;
done:
    free(c);
    if (mpi != MPI_COMM_NULL)
        MPI_Comm_free(&mpi);
    return rc;
}

void comm_group_close(struct comm *c)
{
    if (!c)
        return;
    if (c->mpi != MPI_COMM_NULL) {
        struct comm **link = &c->job->groups;
        while (*link != c)
            link = &(*link)->next;
        *link = c->next;
        MPI_Comm_free(&c->mpi);
    }
    arena_close(&c->memory);
    free(c);
}

/* -- the job ------------------------------------------------------------------------- */

/*
 * Between processes of one machine, Open MPI copies long messages by process_vm_readv().
 * Where a container forbids that call it tries, complains and falls back for each message
 * anew. So try the call first, and make Open MPI copy through shared memory where it
 * fails. What the user chose stays.
 */
static void avoid_forbidden_copies(void)
{
    char from = 1, to = 0;
    struct iovec local = {&to, 1}, remote = {&from, 1};
    if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1)
        return;
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
}

/* Open MPI asks its network library first, which looks for 0.2 s at a machine whose own
 * memory is all that a job on one machine needs. What the user chose stays. */
static void prefer_shared_memory(void)
{
    const char *n_ranks = getenv("OMPI_COMM_WORLD_SIZE");
    const char *n_here = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    if (n_ranks && n_here && strcmp(n_ranks, n_here) == 0)
        setenv("OMPI_MCA_pml", "ob1", 0);
}

#ifdef OPEN_MPI
#define MPI_LIBRARY "Open MPI"
#else
#define MPI_LIBRARY "MPICH"
#endif

/* Debian's Open MPI knows PMIx alone, MPICH PMI-2. */
static const char *srun_plugin(void)
{
    return strcmp(MPI_LIBRARY, "Open MPI") == 0 ? "pmix" : "pmi2";
}

static int check_launch(const struct comm_launch *launch, struct error *err)
{
    if (launch->has_mpi)
        return 0;
    return error_set(err, ERROR_INPUT,
                     "srun started %d tasks that cannot connect: start them with "
                     "'srun --mpi=%s', which fits %s ('srun --mpi=list' shows what this "
                     "machine has), or with mpiexec",
                     launch->size, srun_plugin(), MPI_LIBRARY);
}

/* A launcher of another MPI library leaves every process alone in a world of its own. */
static int check_world_size(const struct comm_job *job, const struct comm_launch *launch,
                            struct error *err)
{
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size == launch->size)
        return 0;
    char srun[64] = "";
    if (getenv("SLURM_STEP_NUM_TASKS"))
        snprintf(srun, sizeof srun, "'srun --mpi=%s' or ", srun_plugin());
    return error_set(err, ERROR_INPUT,
                     "the launcher started %d processes (%s=%d), but %s, which this "
                     "program was built with, sees %d: start it with %sthe mpiexec of "
                     "that library",
                     launch->size, launch->launcher, launch->size, job->library, size,
                     srun);
}

void comm_library_words(char words[COMM_LIBRARY_BYTES])
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    int n = 0;
    MPI_Get_library_version(text, &n); // allowed before MPI_Init()
    text[strcspn(text, ",\n")] = '\0';
    for (char *tab = strchr(text, '\t'); tab; tab = strchr(tab, '\t'))
        *tab = ' ';
    snprintf(words, COMM_LIBRARY_BYTES, "%.*s", COMM_LIBRARY_BYTES - 1, text);
}

static void find_neighbours(struct comm_job *job)
{
    MPI_Comm local;
    MPI_Comm_rank(MPI_COMM_WORLD, &job->world_rank);
    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                            &local) != MPI_SUCCESS)
        return;
    MPI_Comm_rank(local, &job->local_rank);
    MPI_Comm_size(local, &job->local_size);
    MPI_Comm_free(&local);
    job->is_oversubscribed = job->local_size > get_nprocs();
}

/* comm_agree() needs a world that works everywhere: this is for the time before. */
static int agree_to_join(struct comm **world, int rc, struct error *err)
{
    int status = rc;
    MPI_Allreduce(MPI_IN_PLACE, &status, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (rc || status == 0)
        return rc;
    comm_group_close(*world);
    *world = NULL;
    return error_set(err, ERROR_RUNTIME,
                     "another rank could not join the job; its own message says why");
}

static int join_mpi(struct comm **world, struct comm_job *job,
                    const struct comm_launch *launch, struct error *err)
{
    int provided = MPI_THREAD_SINGLE;
    MPI_Comm mpi;
    if (check_launch(launch, err))
        return -1;
    avoid_forbidden_copies();
    prefer_shared_memory();
    beat_wait(BEAT_JOIN, BEAT_EVERYBODY);
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
        return error_set(err, ERROR_RUNTIME, "MPI cannot start (MPI_Init_thread failed)");
    job->uses_mpi = true;
    if (provided < MPI_THREAD_FUNNELED)
        return error_set(err, ERROR_RUNTIME,
                         "this MPI library does not allow threads (MPI_THREAD_FUNNELED)");
    comm_library_words(job->library);
    if (check_world_size(job, launch, err))
        return -1;
    beat_count();
    find_neighbours(job);
    beat_count();
    if (comm_mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &mpi), "cannot join the job", err))
        return -1;
    beat_count();
    int rc = agree_to_join(world, comm_group_open(world, job, mpi, err), err);
    beat_go_on();
    return rc;
}

static void job_close(struct comm_job *job)
{
    if (job->uses_mpi) {
        beat_enter(BEAT_END);
        beat_wait(BEAT_LEAVE, BEAT_EVERYBODY);
        MPI_Finalize();
        beat_go_on();
    }
    free(job);
}

int comm_world_open(struct comm **world, struct error *err)
{
    struct comm_launch launch = comm_launch_info();
    struct comm_job *job = calloc(1, sizeof *job);
    *world = NULL;
    if (!job)
        return error_set(err, ERROR_RUNTIME, "no memory to join a job");
    job->local_size = 1;
    job->airborne_end = &job->airborne;
    job->dev = device_cpu(DTYPE_F32);
    job->ops = job->dev->ops;
    job->stream = device_stream(job->dev, STREAM_COMM);
    if (gethostname(job->host, sizeof job->host - 1))
        snprintf(job->host, sizeof job->host, "unknown host");
    snprintf(job->library, sizeof job->library, "none");
    int rc = launch.size > 1 ? join_mpi(world, job, &launch, err)
                             : comm_alone_open(world, job, err);
    if (rc)
        job_close(job);
    return rc;
}

void comm_world_close(struct comm *world)
{
    if (!world)
        return;
    struct comm_job *job = world->job;
    struct error err;
    CHECK(job->n_in_flight == 0, "%d operations in flight", job->n_in_flight);
    // the peers cannot be reached, so they cannot be waited for
    if (comm_mpi_check(world->mpi_error, "communication with the other ranks failed",
                       &err))
        comm_abort_with(world, &err);
    comm_release_device(job); // where nobody has
    comm_group_close(world);
    CHECK(!job->groups, "a group of %d ranks is still open", job->groups->size);
    job_close(job);
}

void comm_abort(struct comm *c, int exit_code)
{
    // MPICH's mpiexec drops what a rank has just said when it aborts: give it time to read
    static const struct timespec nap = {.tv_nsec = 50000000};
    if (c && c->job->uses_mpi) {
        nanosleep(&nap, NULL);
        MPI_Abort(MPI_COMM_WORLD, exit_code);
    }
    exit(exit_code);
}

void comm_on_abort(struct comm *c, void (*report)(const struct error *err))
{
    c->job->report_abort = report;
}

void comm_abort_with(struct comm *c, const struct error *err)
{
    if (c && c->job->report_abort)
        c->job->report_abort(err);
    else
        log_error("%s", err->text);
    comm_abort(c, error_exit_code(err));
}

bool comm_is_broken(const struct comm *c)
{
    for (const struct comm *group = c->job->groups; group; group = group->next)
        if (group->mpi_error)
            return true;
    return false;
}
