#include "base/thread.h"

#include <errno.h>
#include <omp.h>
#include <signal.h>
#include <stdlib.h>
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

static void *pass_gate(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

int thread_check(int n)
{
    enum { SMALL_STACK = 64 << 10 };
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_attr_t attributes;
    int n_started = 0, failure = 0;
    pthread_t *threads = n > 0 ? malloc((size_t)n * sizeof *threads) : NULL;
    if (!threads)
        return n > 0 ? ENOMEM : 0;
    if (pthread_attr_init(&attributes)) {
        free(threads);
        return ENOMEM;
    }
    pthread_attr_setstacksize(&attributes, SMALL_STACK);
    pthread_mutex_lock(&gate); // holds those that are started, until all are
    while (n_started < n && failure == 0) {
        failure = pthread_create(&threads[n_started], &attributes, pass_gate, &gate);
        n_started += failure == 0;
    }
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < n_started; i++)
        pthread_join(threads[i], NULL);
    pthread_attr_destroy(&attributes);
    free(threads);
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
    return thread_check(n - 1) ? 1 : n;
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
