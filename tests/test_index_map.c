/* An index that the processes of a machine share: one makes it, the others get it. */
#include "base/fs.h"
#include "data/samples/index_cache.h"
#include "test.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHILDREN = 4, VALUES = 100 };

static int measure(void *context, int64_t *n, struct error *err)
{
    (void)context;
    (void)err;
    *n = VALUES;
    return 0;
}

/* Long enough for the others to come and wait. */
static void fill_slowly(void *context, int64_t *values)
{
    static const struct timespec nap = {.tv_nsec = 200000000};
    (void)context;
    nanosleep(&nap, NULL);
    for (int i = 0; i < VALUES; i++)
        values[i] = i * i;
}

/* Open it, say so, and hold it until the parent lets go. */
static void use_map(const char *dir, int told, int held)
{
    struct error err;
    struct cache_key key;
    struct index_map map;
    char unused;
    if (cache_key_init(&key, &err))
        _exit(1);
    cache_key_mix_string(&key, "test");
    struct index_place place = {.dir = dir, .kind = "test", .key = &key, .n_keep = 1};
    struct index_maker maker = {.measure = measure, .fill = fill_slowly};
    if (index_map_open(&map, &place, &maker, &err) || map.n_values != VALUES ||
        map.values[VALUES - 1] != (VALUES - 1) * (VALUES - 1) || write(told, "x", 1) != 1)
        _exit(1);
    _exit(read(held, &unused, 1) == 0 ? 0 : 1);
}

static void test_index_map__is_had_by_all_while_one_holds_it(void **state)
{
    struct error err;
    int told[2], held[2], status;
    char got;
    char *dir = test_make_directory();
    (void)state;
    assert_int_equal(pipe(told) | pipe(held), 0);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            close(held[1]);
            alarm(120); // those that wait without end go by themselves
            use_map(dir, told[1], held[0]);
        }
    }
    close(told[1]);
    for (int i = 0; i < CHILDREN; i++)
        assert_int_equal(read(told[0], &got, 1), 1);
    close(held[1]);
    for (int i = 0; i < CHILDREN; i++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    close(told[0]);
    close(held[0]);
    assert_ok(fs_remove_tree(dir, &err), err);
    free(dir);
}

static void open_map(struct index_map *map, const char *dir, const char *kind)
{
    struct error err;
    struct cache_key key;
    assert_ok(cache_key_init(&key, &err), err);
    struct index_place place = {.dir = dir, .kind = kind, .key = &key, .n_keep = 1};
    struct index_maker maker = {.measure = measure, .fill = fill_slowly};
    assert_ok(index_map_open(map, &place, &maker, &err), err);
    cache_key_release(&key);
}

static void test_index_map__does_not_wait_for_who_locks_a_made_file(void **state)
{
    struct error err;
    struct index_map map;
    char path[INDEX_PATH_BYTES];
    int64_t values[2];
    char *dir = test_make_directory();
    (void)state;
    open_map(&map, dir, "test");
    snprintf(path, sizeof path, "%s", map.path);
    index_map_close(&map);
    int fd = open(path, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    alarm(120);
    open_map(&map, dir, "test");
    alarm(0);
    assert_true(map.was_there);
    assert_int_equal(index_map_read(&map, VALUES - 2, 2, values), 0);
    assert_int_equal(values[1], (VALUES - 1) * (VALUES - 1));
    assert_int_equal(index_map_read(&map, VALUES - 1, 2, values), -1);
    index_map_close(&map);
    close(fd);
    assert_ok(fs_remove_tree(dir, &err), err);
    free(dir);
}

static void touch(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    close(fd);
}

/* A kind of this process's own: other runs of the test may go on beside it. */
static void test_index_map__removes_what_killed_runs_left_in_memory(void **state)
{
    static const char hex[] = "0123456789abcdef0123456789abcde";
    struct error err;
    struct index_map map;
    char kind[32], left[128], used[128];
    char *dir = test_make_directory();
    (void)state;
    if (access("/dev/shm", W_OK))
        skip();
    snprintf(kind, sizeof kind, "test%d", (int)getpid());
    snprintf(left, sizeof left, "/dev/shm/trefoil-%u-%s-%s0", (unsigned)geteuid(), kind,
             hex);
    snprintf(used, sizeof used, "/dev/shm/trefoil-%u-%s-%s1", (unsigned)geteuid(), kind,
             hex);
    touch(left);
    touch(used);
    int fd = open(used, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_SH), 0);
    open_map(&map, dir, kind);
    index_map_close(&map);
    assert_false(fs_exists(left));
    assert_true(fs_exists(used));
    unlink(used);
    close(fd);
    assert_ok(fs_remove_tree(dir, &err), err);
    free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index_map__is_had_by_all_while_one_holds_it),
        cmocka_unit_test(test_index_map__does_not_wait_for_who_locks_a_made_file),
        cmocka_unit_test(test_index_map__removes_what_killed_runs_left_in_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
