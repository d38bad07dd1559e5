/* Files: which errors are whose, and names that somebody planted. */
#include "test.h"

#include "base/fs.h"
#include "base/log.h"
#include "data/formats/out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET "somebody else's"

struct place {
    char *dir;
    char secret[4096], link[4096], target[4096];
};

/* A directory with a file of somebody else's, and the path that is going to be written.
 */
static void make_place(struct place *p)
{
    struct error err;
    p->dir = test_make_directory();
    snprintf(p->secret, sizeof p->secret, "%s/secret", p->dir);
    snprintf(p->target, sizeof p->target, "%s/x.bin", p->dir);
    snprintf(p->link, sizeof p->link, "%s/x.bin.tmp", p->dir);
    assert_ok(fs_write_atomic(p->secret, SECRET, strlen(SECRET), &err), err);
}

static void remove_place(struct place *p)
{
    struct error err;
    assert_ok(fs_remove_tree(p->dir, &err), err);
    free(p->dir);
}

static void assert_holds(const char *path, const char *expected)
{
    char *text;
    size_t n;
    struct error err;
    assert_ok(fs_read_regular(path, 4096, &text, &n, &err), err);
    assert_string_equal(text, expected);
    free(text);
}

static int plant(const struct place *p, int kind)
{
    switch (kind) {
    case 0:
        return symlink(p->secret, p->link);
    case 1:
        return link(p->secret, p->link);
    case 2:
        return mkfifo(p->link, 0666);
    case 3:
        return symlink("x.bin.tmp", p->link);
    default: { // what a killed process leaves
        int fd = open(p->link, O_WRONLY | O_CREAT, 0600);
        int rc = fs_write_exact(fd, "a left-over, and long", 21);
        close(fd);
        return rc;
    }
    }
}

static void test_fs__a_planted_name_is_not_followed(void **state)
{
    (void)state;
    for (int kind = 0; kind < 5; kind++) {
        struct place p;
        struct error err;
        make_place(&p);
        assert_int_equal(plant(&p, kind), 0);
        assert_ok(fs_write_atomic(p.target, "new", 3, &err), err);
        assert_holds(p.target, "new");
        assert_holds(p.secret, SECRET);
        assert_false(fs_exists(p.link));
        remove_place(&p);
    }
}

static void test_out_file__a_planted_name_is_not_followed(void **state)
{
    (void)state;
    for (int kind = 0; kind < 5; kind++) {
        struct place p;
        struct out_file file;
        struct error err;
        char prefix[4096];
        make_place(&p);
        snprintf(prefix, sizeof prefix, "%s/x", p.dir);
        assert_int_equal(plant(&p, kind), 0);
        assert_ok(out_file_open(&file, prefix, ".bin", &err), err);
        assert_ok(out_file_write(&file, "new", 3, &err), err);
        assert_ok(out_file_commit(&file, &err), err);
        out_file_close(&file);
        assert_holds(p.target, "new");
        assert_holds(p.secret, SECRET);
        remove_place(&p);
    }
}

static void test_fs__what_the_machine_did_is_not_the_paths_fault(void **state)
{
    (void)state;
    static const int of_machine[] = {EIO,    ESTALE, ETIMEDOUT, ENOMEM, EMFILE, ENFILE,
                                     EACCES, EPERM,  EINTR,     EAGAIN, ENOSPC};
    static const int of_path[] = {ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG, EISDIR, ENODATA};
    for (size_t i = 0; i < sizeof of_machine / sizeof of_machine[0]; i++)
        assert_int_equal(fs_error_kind(of_machine[i]), ERROR_RUNTIME);
    for (size_t i = 0; i < sizeof of_path / sizeof of_path[0]; i++)
        assert_int_equal(fs_error_kind(of_path[i]), ERROR_INPUT);
}

static void test_fs__look_tells_what_a_path_leads_to(void **state)
{
    (void)state;
    struct place p;
    struct error err;
    enum fs_type type;
    make_place(&p);
    assert_ok(fs_look(p.dir, &type, &err), err);
    assert_int_equal(type, FS_DIRECTORY);
    assert_ok(fs_look(p.secret, &type, &err), err);
    assert_int_equal(type, FS_FILE);
    assert_int_equal(plant(&p, 3), 0);
    assert_ok(fs_look(p.link, &type, &err), err);
    assert_int_equal(type, FS_NOTHING);
    assert_ok(fs_look("/dev/null", &type, &err), err);
    assert_int_equal(type, FS_OTHER);
    remove_place(&p);
}

static void *write_late(void *path)
{
    int fd = open(path, O_WRONLY); // waits for the reader
    int rc = fs_write_exact(fd, "late", 4);
    close(fd);
    return rc ? path : NULL;
}

static void test_fs__a_pipe_without_a_writer_is_not_waited_for_for_ever(void **state)
{
    (void)state;
    struct place p;
    struct error err;
    char *text;
    size_t n;
    pthread_t writer;
    void *failed;
    make_place(&p);
    assert_int_equal(mkfifo(p.link, 0600), 0);
    assert_int_equal(fs_read_all_within(p.link, 4096, 0.2, &text, &n, &err), -1);
    assert_non_null(strstr(err.text, "nothing was written to the pipe '"));
    assert_int_equal(err.kind, ERROR_INPUT);
    assert_int_equal(pthread_create(&writer, NULL, write_late, p.link), 0);
    assert_ok(fs_read_all(p.link, 4096, &text, &n, &err), err);
    assert_string_equal(text, "late");
    free(text);
    pthread_join(writer, &failed);
    assert_null(failed);
    remove_place(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fs__a_planted_name_is_not_followed),
        cmocka_unit_test(test_fs__a_pipe_without_a_writer_is_not_waited_for_for_ever),
        cmocka_unit_test(test_out_file__a_planted_name_is_not_followed),
        cmocka_unit_test(test_fs__what_the_machine_did_is_not_the_paths_fault),
        cmocka_unit_test(test_fs__look_tells_what_a_path_leads_to),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
