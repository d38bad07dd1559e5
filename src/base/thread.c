#include "base/thread.h"

#include <omp.h>
#include <signal.h>

int thread_start(pthread_t *thread, void *(*run)(void *), void *context)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); // inherited by the new thread
    int failure = pthread_create(thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
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
