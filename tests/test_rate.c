/* The rate of products of several processes, on made-up machines. */
#include "test.h"
#include "train/rate.h"

#include "base/control_group.h"
#include "base/fs.h"

#include <limits.h>
#include <math.h>

#define MOST_RANKS 8
#define ONE_CORE 100.0

/* Rank r of a host: the processors are the bits of `set`. */
static struct rate_rank rank_on(const char *host, unsigned set, double n_threads,
                                double quota, double flops)
{
    struct rate_rank r = {.flops = flops, .n_threads = n_threads, .quota = quota};
    for (int i = 0; i < 4; i++)
        r.processors[i] = (unsigned char)(set >> (8 * i));
    snprintf(r.host, sizeof r.host, "%s", host);
    return r;
}

struct job {
    const char *what;
    int n_ranks, n_hosts;
    unsigned set; // of every rank; 0: rank r has processor r of its host alone
    double n_threads, quota, flops, expected;
};

static const struct job jobs[] = {
    {"1 rank on 2 processors", 1, 1, 3, 1, (double)INFINITY, ONE_CORE, 100},
    {"2 ranks on 2 processors", 2, 1, 3, 1, (double)INFINITY, ONE_CORE, 200},
    {"4 ranks on 2 processors", 4, 1, 3, 1, (double)INFINITY, ONE_CORE, 200},
    {"8 ranks on 2 processors", 8, 1, 3, 1, (double)INFINITY, ONE_CORE, 200},
    {"8 ranks on 2 hosts of 2", 8, 2, 3, 1, (double)INFINITY, ONE_CORE, 400},
    {"4 ranks pinned to one each", 4, 1, 0, 1, (double)INFINITY, ONE_CORE, 400},
    {"1 rank, 2 threads, a quota of 1", 1, 1, 3, 2, 1, 2 * ONE_CORE, 100},
    {"2 ranks, a quota of 1.5", 2, 1, 3, 1, 1.5, ONE_CORE, 150},
    {"1 thread under a quota of 1.5", 1, 1, 3, 1, 1.5, ONE_CORE, 100},
    // two threads took turns when they were measured
    {"2 threads on 1 processor", 1, 1, 1, 2, (double)INFINITY, ONE_CORE, 100},
    {"4 GPUs of a host of 1 processor", 4, 1, 1, 0, (double)INFINITY, ONE_CORE, 400},
};

static void test_rate__is_bounded_by_the_processors_of_each_host(void **state)
{
    (void)state;
    for (size_t j = 0; j < ARRAY_LEN(jobs); j++) {
        const struct job *job = &jobs[j];
        struct rate_rank ranks[MOST_RANKS];
        for (int r = 0; r < job->n_ranks; r++)
            ranks[r] = rank_on(r % job->n_hosts ? "b" : "a",
                               job->set ? job->set : 1U << r / job->n_hosts,
                               job->n_threads, job->quota, job->flops);
        double together = rate_together(ranks, job->n_ranks);
        if (fabs(together - job->expected) > 1e-9)
            fail_msg("%s: %g, expected %g", job->what, together, job->expected);
    }
}

/* -- quotas -------------------------------------------------------------------------- */

static void put(const char *root, const char *name, const char *text)
{
    char path[PATH_MAX];
    struct error err;
    assert_ok(fs_join(path, sizeof path, root, name, &err), err);
    char *slash = strrchr(path, '/');
    *slash = 0;
    assert_ok(fs_make_directories(path, &err), err);
    *slash = '/';
    assert_ok(fs_write_atomic(path, text, strlen(text), &err), err);
}

struct machine {
    const char *what;
    double processors;
    const char *files[6][2];
};

static const struct machine machines[] = {
    {"says nothing", (double)INFINITY, {{0}}},
    {"limits nothing",
     (double)INFINITY,
     {{"proc/self/cgroup", "0::/a\n"}, {"sys/fs/cgroup/a/cpu.max", "max 100000\n"}}},
    {"limits a group above more tightly",
     1.5,
     {{"proc/self/cgroup", "0::/a/b\n"},
      {"sys/fs/cgroup/a/b/cpu.max", "400000 100000\n"},
      {"sys/fs/cgroup/a/cpu.max", "75000 50000\n"}}},
    {"has groups of version 1",
     0.5,
     {{"proc/self/cgroup", "4:cpu,cpuacct:/a\n3:cpuset:/b\n0::/\n"},
      {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
      {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "50000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"}}},
};

static void test_quota__is_the_least_of_all_groups(void **state)
{
    (void)state;
    for (size_t m = 0; m < ARRAY_LEN(machines); m++) {
        const struct machine *machine = &machines[m];
        struct error err;
        char *root = test_make_directory();
        for (size_t i = 0; i < ARRAY_LEN(machine->files) && machine->files[i][0]; i++)
            put(root, machine->files[i][0], machine->files[i][1]);
        double n = control_group_processors(root);
        assert_ok(fs_remove_tree(root, &err), err);
        free(root);
        if (n != machine->processors)
            fail_msg("a machine that %s: %g processors, expected %g", machine->what, n,
                     machine->processors);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate__is_bounded_by_the_processors_of_each_host),
        cmocka_unit_test(test_quota__is_the_least_of_all_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
