/*
 * What tests of the emulated device share: memory with contents, launches, and children
 * that die.
 */
#ifndef TESTS_EMULATED_EMULATED_TEST_H
#define TESTS_EMULATED_EMULATED_TEST_H

#include "device/emulated/emulated_memory.h"
#include "device/emulated/emulated_options.h"
#include "device/gpu/gpu_runtime.h"
#include "emulated/emulated_kernels.h"
#include "test.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static inline int start_device(void **state)
{
    struct gpu_facts facts;
    struct error err;
    (void)state;
    assert_ok(gpu_start(0, 1, &facts, &err), err);
    return 0;
}

static inline int stop_device(void **state)
{
    (void)state;
    gpu_stop();
    return 0;
}

/* n floats of device memory, with contents unless x is NULL. */
static inline float *device_floats(const float *x, size_t n)
{
    float *on_device = gpu_alloc(n * sizeof *x);
    assert_non_null(on_device);
    if (x)
        gpu_copy(STREAM_COMPUTE, on_device, x, n * sizeof *x, COPY_TO_DEVICE);
    return on_device;
}

static inline void read_device(void *to, const void *from, size_t bytes)
{
    gpu_copy(STREAM_COMPUTE, to, from, bytes, COPY_TO_HOST); // not pinned: it waits
}

struct launch_of {
    const char *name;
    gpu_kernel *kernel;
    uint32_t blocks, threads;
    size_t shared_bytes;
};
#define LAUNCH_OF(kernel, ...)                                                           \
    (struct launch_of)                                                                   \
    {                                                                                    \
#kernel, kernel, __VA_ARGS__                                                     \
    }

static inline void launch_on(enum stream_name s, struct launch_of of, const void *args,
                             size_t args_bytes)
{
    gpu_launch(s, &(struct gpu_launch){.kernel = of.kernel,
                                       .name = of.name,
                                       .blocks = {of.blocks, 1, 1},
                                       .threads = of.threads,
                                       .shared_bytes = of.shared_bytes,
                                       .args = args,
                                       .args_bytes = args_bytes});
}

static inline void launch_vector(struct launch_of of, float *y, const float *x, int64_t n)
{
    struct vector_args a = {y, x, n};
    launch_on(STREAM_COMPUTE, of, &a, sizeof a);
}

/* Runs f in a child, which has to die of a signal after it said `words`. */
static inline void assert_dies(void (*f)(void), const char *words)
{
    int ends[2], status;
    char text[16384];
    size_t n = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        dup2(ends[1], STDERR_FILENO);
        for (int i = 1; i < NSIG; i++)
            signal(i, SIG_DFL); // cmocka's handlers are for the parent
        emulated_memory_watch();
        f();
        _exit(0);
    }
    close(ends[1]);
    ssize_t got;
    while ((got = read(ends[0], text + n, sizeof text - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!strstr(text, words) || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        fail_msg("status %d, said: %s\nexpected: %s", status, text, words);
}

#endif
