/* Reading past the page cache gives what reading through it gives. */
#include "base/fs.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_BYTES ((size_t)5 * FS_DIRECT_UNIT + 1234)

struct fixture {
    char *dir, path[4096];
    uint8_t bytes[N_BYTES];
    uint8_t *room;
    int fd; // past the cache; -1 where the file system cannot
};

static int open_fixture(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct error err;
    f->dir = test_make_directory();
    f->room = aligned_alloc(FS_DIRECT_UNIT, FS_DIRECT_BYTES(6 * FS_DIRECT_UNIT));
    for (size_t i = 0; i < N_BYTES; i++)
        f->bytes[i] = (uint8_t)(i * 131 + i / 256);
    assert_ok(fs_join(f->path, sizeof f->path, f->dir, "file", &err), err);
    assert_ok(fs_write_atomic(f->path, f->bytes, N_BYTES, &err), err);
    f->fd = open(f->path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    *state = f;
    return 0;
}

static int close_fixture(void **state)
{
    struct fixture *f = *state;
    if (f->fd >= 0)
        close(f->fd);
    unlink(f->path);
    rmdir(f->dir);
    free(f->dir);
    free(f->room);
    free(f);
    return 0;
}

static void test_direct__gives_the_bytes_of_any_place(void **state)
{
    static const size_t places[] = {0,    1,    511,  512,  4088,           4095,
                                    4096, 4097, 8191, 8192, N_BYTES - 4096, N_BYTES - 1};
    static const size_t sizes[] = {1, 7, 512, 4095, 4096, 4097, 12288, N_BYTES};
    struct fixture *f = *state;
    if (f->fd < 0)
        skip();
    for (size_t p = 0; p < ARRAY_LEN(places); p++)
        for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
            size_t n = sizes[s], at = places[p];
            if (at + n > N_BYTES)
                n = N_BYTES - at;
            const uint8_t *got = fs_pread_direct(f->fd, f->room, n, (off_t)at);
            assert_non_null(got);
            assert_memory_equal(got, f->bytes + at, n);
        }
}

static void test_direct__does_not_read_past_the_end(void **state)
{
    struct fixture *f = *state;
    if (f->fd < 0)
        skip();
    for (size_t at = N_BYTES - 5000; at < N_BYTES + 5000; at += 311) {
        errno = 0;
        size_t n = at < N_BYTES ? N_BYTES - at + 1 : 1;
        assert_null(fs_pread_direct(f->fd, f->room, n, (off_t)at));
        assert_int_equal(errno, ENODATA);
    }
}

static void test_direct__says_what_failed(void **state)
{
    struct fixture *f = *state;
    errno = 0;
    assert_null(fs_pread_direct(-1, f->room, 1, 0));
    assert_int_equal(errno, EBADF);
}

static void test_is_cached__follows_the_cache(void **state)
{
    struct fixture *f = *state;
    int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fs_pread_exact(fd, f->room, N_BYTES, 0), 0);
    assert_true(fs_is_cached(fd));
    if (f->fd >= 0) { // a disk, and not memory that nothing can leave
        assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
        assert_false(fs_is_cached(fd));
    }
    close(fd);
}

static void test_is_cached__knows_files_without_pages(void **state)
{
    struct fixture *f = *state;
    assert_false(fs_is_cached(-1));
    assert_int_equal(truncate(f->path, 0), 0);
    int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_false(fs_is_cached(fd));
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_direct__gives_the_bytes_of_any_place,
                                        open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(test_direct__does_not_read_past_the_end,
                                        open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(test_direct__says_what_failed, open_fixture,
                                        close_fixture),
        cmocka_unit_test_setup_teardown(test_is_cached__follows_the_cache, open_fixture,
                                        close_fixture),
        cmocka_unit_test_setup_teardown(test_is_cached__knows_files_without_pages,
                                        open_fixture, close_fixture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
