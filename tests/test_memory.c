/* What the process uses, measured on itself; what is available, on made-up machines. */
#include "base/memory.h"
#include "test.h"

#include "base/fs.h"

#include <limits.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define SLACK (8 * MIB) // the kernel's counts lag behind

static void assert_near(uint64_t actual, uint64_t expected)
{
    if (actual + SLACK < expected || expected + SLACK < actual)
        fail_msg("%llu bytes, expected about %llu", (unsigned long long)actual,
                 (unsigned long long)expected);
}

static void *map(size_t n, int flags)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    return p;
}

static void test_used__follows_what_is_touched_and_given_back(void **state)
{
    (void)state;
    size_t n = 100 * MIB;
    uint64_t resident = memory_resident_bytes();
    void *p = map(n, MAP_PRIVATE);
    assert_near(memory_resident_bytes(), resident); // addresses are no memory
    memset(p, 1, n);
    assert_near(memory_resident_bytes(), resident + n);
    assert_int_equal(munmap(p, n), 0);
    assert_near(memory_resident_bytes(), resident);
    assert_true(memory_peak_bytes() + SLACK >= resident + n);
}

static void test_used__counts_shared_memory(void **state)
{
    (void)state;
    size_t n = 50 * MIB;
    uint64_t resident = memory_resident_bytes();
    void *p = map(n, MAP_SHARED);
    memset(p, 1, n);
    assert_near(memory_resident_bytes(), resident + n);
    assert_int_equal(munmap(p, n), 0);
}

static size_t addresses_in_use(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void test_available__counts_addresses_in_use_against_their_limit(void **state)
{
    (void)state;
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    if (before.rlim_cur != RLIM_INFINITY)
        skip();
    assert_true(memory_available_bytes() > 0);
    void *p = map(100 * MIB, MAP_PRIVATE);
    limit = before;
    limit.rlim_cur = addresses_in_use() + 50 * MIB;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    uint64_t available = memory_available_bytes();
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(munmap(p, 100 * MIB), 0);
    assert_in_range(available, 1, 50 * MIB);
}

/* -- made-up machines ---------------------------------------------------------------- */

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

struct machine_file {
    const char *name, *text;
};

struct machine {
    const char *what;
    uint64_t available; // or the number of kills
    struct machine_file files[10];
};

static const struct machine machines[] = {
    {"says nothing", UINT64_MAX, {{0}}},
    {"has no groups",
     3000 * 1024,
     {{"proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    3000 kB\n"}}},
    {"limits nobody",
     3000 * 1024,
     {{"proc/meminfo", "MemAvailable: 3000 kB\n"},
      {"proc/self/cgroup", "0::/a\n"},
      {"sys/fs/cgroup/a/memory.max", "max\n"},
      {"sys/fs/cgroup/a/memory.current", "100\n"}}},
    {"limits the group, which can give back files",
     5000 - (4000 - 1500),
     {{"proc/meminfo", "MemAvailable: 3000 kB\n"},
      {"proc/self/cgroup", "0::/a/b\n"},
      {"sys/fs/cgroup/a/b/memory.max", "5000\n"},
      {"sys/fs/cgroup/a/b/memory.current", "4000\n"},
      {"sys/fs/cgroup/a/b/memory.stat", "anon 7\ninactive_file 1500\n"}}},
    {"limits a group above more tightly",
     2000 - 1900,
     {{"proc/self/cgroup", "0::/a/b/c\n"},
      {"sys/fs/cgroup/a/b/c/memory.max", "5000\n"},
      {"sys/fs/cgroup/a/b/c/memory.current", "4000\n"},
      {"sys/fs/cgroup/a/memory.max", "2000\n"},
      {"sys/fs/cgroup/a/memory.current", "1900\n"}}},
    {"shows a container only its own group, at the top",
     700,
     {{"proc/self/cgroup", "0::/docker/0123\n"},
      {"sys/fs/cgroup/memory.max", "1000\n"},
      {"sys/fs/cgroup/memory.current", "300\n"}}},
    {"has a group past its limit",
     0,
     {{"proc/self/cgroup", "0::/a\n"},
      {"sys/fs/cgroup/a/memory.max", "1000\n"},
      {"sys/fs/cgroup/a/memory.current", "1001\n"}}},
    {"has groups of the first kind",
     1000 - (900 - 50),
     {{"proc/meminfo", "MemAvailable: 3000 kB\n"},
      {"proc/self/cgroup", "5:cpu:/x\n4:memory:/a\n0::/\n"},
      {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
      {"sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n"},
      {"sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000\n"},
      {"sys/fs/cgroup/memory/a/memory.usage_in_bytes", "900\n"},
      {"sys/fs/cgroup/memory/a/memory.stat",
       "inactive_file 2\ntotal_inactive_file 50\n"}}},
};

static void test_available__is_the_least_that_anything_allows(void **state)
{
    (void)state;
    for (size_t m = 0; m < ARRAY_LEN(machines); m++) {
        const struct machine *machine = &machines[m];
        struct error err;
        char *root = test_make_directory();
        for (size_t i = 0; i < ARRAY_LEN(machine->files) && machine->files[i].name; i++)
            put(root, machine->files[i].name, machine->files[i].text);
        uint64_t available = memory_available_under(root);
        assert_ok(fs_remove_tree(root, &err), err);
        free(root);
        if (available != machine->available)
            fail_msg("a machine that %s: %llu, expected %llu", machine->what,
                     (unsigned long long)available,
                     (unsigned long long)machine->available);
    }
}

/* -- kills --------------------------------------------------------------------------- */

static const struct machine killers[] = {
    {"says nothing", UINT64_MAX, {{0}}},
    {"counts for itself alone", 4, {{"proc/vmstat", "nr_free_pages 1\noom_kill 4\n"}}},
    {"has a group that counts, and others above it",
     2,
     {{"proc/vmstat", "oom_kill 9\n"},
      {"proc/self/cgroup", "0::/a/b\n"},
      {"sys/fs/cgroup/a/b/memory.events", "low 7\noom 3\noom_kill 2\n"},
      {"sys/fs/cgroup/a/memory.events", "oom_kill 1\n"}}},
    {"shows a container only its own group, at the top",
     5,
     {{"proc/vmstat", "oom_kill 9\n"},
      {"proc/self/cgroup", "0::/docker/0123\n"},
      {"sys/fs/cgroup/memory.events", "oom_kill 5\n"}}},
    {"has groups of the first kind",
     3,
     {{"proc/vmstat", "oom_kill 9\n"},
      {"proc/self/cgroup", "4:memory:/a\n0::/\n"},
      {"sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\noom_kill 0\n"},
      {"sys/fs/cgroup/memory/a/memory.oom_control",
       "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"}}},
};

static void test_oom_kills__are_those_of_the_nearest_group(void **state)
{
    (void)state;
    for (size_t m = 0; m < ARRAY_LEN(killers); m++) {
        const struct machine *machine = &killers[m];
        struct error err;
        char *root = test_make_directory();
        for (size_t i = 0; i < ARRAY_LEN(machine->files) && machine->files[i].name; i++)
            put(root, machine->files[i].name, machine->files[i].text);
        uint64_t n = memory_oom_kills_under(root);
        assert_ok(fs_remove_tree(root, &err), err);
        free(root);
        if (n != machine->available)
            fail_msg("a machine that %s: %llu", machine->what, (unsigned long long)n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_used__follows_what_is_touched_and_given_back),
        cmocka_unit_test(test_used__counts_shared_memory),
        cmocka_unit_test(test_available__counts_addresses_in_use_against_their_limit),
        cmocka_unit_test(test_available__is_the_least_that_anything_allows),
        cmocka_unit_test(test_oom_kills__are_those_of_the_nearest_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
