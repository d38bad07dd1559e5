#include "base/thread.h"

#include <omp.h>
#include <signal.h>
#include <sys/mman.h>

int thread_start(pthread_t *thread, void *(*run)(void *), void *context)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); // inherited by the new thread
    int failure = pthread_create(thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

int thread_team_size(void)
{
    enum { SMALL_THINGS = 1 << 20 }; // of OpenMP and of the C library
    pthread_attr_t attributes;
    size_t stack = 8 << 20;
    int n = omp_get_max_threads();
    if (n <= 1)
        return 1;
    if (pthread_attr_init(&attributes) == 0) {
        pthread_attr_getstacksize(&attributes, &stack);
        pthread_attr_destroy(&attributes);
    }
    size_t n_bytes = (size_t)(n - 1) * stack + SMALL_THINGS;
    void *probe = mmap(NULL, n_bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (probe == MAP_FAILED)
        return 1;
    munmap(probe, n_bytes);
    return n;
}

int thread_processors(void)
{
    // OpenMP's number: with OMP_PROC_BIND this thread alone is bound to one of them
    return omp_get_num_procs();
}

cpu_set_t thread_processor_set(void)
{
    cpu_set_t all;
    CPU_ZERO(&all);
#pragma omp parallel
    {
        cpu_set_t mine;
        if (sched_getaffinity(0, sizeof mine, &mine) == 0) {
#pragma omp critical
            CPU_OR(&all, &all, &mine);
        }
    }
    return all;
}

bool thread_is_crowded(int64_t n_ranks)
{
    return n_ranks > (int64_t)RANKS_PER_PROCESSOR * thread_processors();
}
