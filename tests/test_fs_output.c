/* Outputs that the user names: files are replaced, everything else is written to. */
#include "base/fs.h"
#include "test.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char *dir;

static const char *in_dir(const char *name)
{
    static char path[2][PATH_MAX];
    static int turn;
    turn = !turn;
    snprintf(path[turn], PATH_MAX, "%s/%s", dir, name);
    return path[turn];
}

static mode_t kind_of(const char *path)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & S_IFMT;
}

static void assert_holds(const char *path, const char *expected)
{
    char *text;
    size_t n;
    struct error err;
    assert_ok(fs_read_all(path, 1000, &text, &n, &err), err);
    assert_string_equal(text, expected);
    free(text);
}

static int make_dir(void **state)
{
    (void)state;
    dir = test_make_directory();
    return 0;
}

static int remove_dir(void **state)
{
    struct error err;
    (void)state;
    int rc = fs_remove_tree(dir, &err);
    free(dir);
    return rc;
}

static void test_file__is_replaced(void **state)
{
    struct error err;
    (void)state;
    assert_ok(fs_write_output(in_dir("x"), "one", 3, &err), err);
    assert_ok(fs_write_output(in_dir("x"), "two", 3, &err), err);
    assert_holds(in_dir("x"), "two");
    assert_false(fs_is_stream(in_dir("x")));
}

static void test_link__stays_and_its_file_is_replaced(void **state)
{
    struct error err;
    (void)state;
    assert_int_equal(symlink("target", in_dir("link")), 0);
    assert_ok(fs_write_output(in_dir("link"), "new", 3, &err),
              err); // nothing there yet
    assert_ok(fs_write_output(in_dir("link"), "newer", 5, &err), err);
    assert_int_equal(kind_of(in_dir("link")), S_IFLNK);
    assert_holds(in_dir("target"), "newer");
}

/* Behind a link: what is replaced by mistake is the link. */
static void test_device__is_written_to(void **state)
{
    struct error err;
    (void)state;
    assert_int_equal(symlink("/dev/null", in_dir("null")), 0);
    assert_int_equal(symlink("/dev/full", in_dir("full")), 0);
    assert_true(fs_is_stream(in_dir("null")));
    assert_ok(fs_write_output(in_dir("null"), "x", 1, &err), err);
    assert_int_equal(fs_write_output(in_dir("full"), "x", 1, &err), -1);
    assert_non_null(strstr(err.text, "/full'"));
    assert_int_equal(kind_of(in_dir("null")), S_IFLNK);
    assert_int_equal(kind_of(in_dir("full")), S_IFLNK);
}

static void test_pipe__gets_it_when_somebody_reads(void **state)
{
    struct error err;
    char got[8] = "";
    (void)state;
    assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
    int fd = open(in_dir("pipe"), O_RDONLY | O_NONBLOCK);
    assert_true(fd >= 0);
    assert_ok(fs_write_output(in_dir("pipe"), "data", 4, &err), err);
    assert_int_equal(read(fd, got, sizeof got), 4);
    assert_string_equal(got, "data");
    assert_int_equal(kind_of(in_dir("pipe")), S_IFIFO);
    close(fd);
}

/* What is printed before and after stays in its place, as a second opening of the file
 * would not have it. */
static void test_standard_output__is_written_in_order(void **state)
{
    struct error err;
    int status;
    (void)state;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int fd = open(in_dir("printed"), O_WRONLY | O_CREAT, 0600);
        dup2(fd, STDOUT_FILENO);
        printf("before ");
        int rc = fs_write_output("/dev/stdout", "written ", 8, &err);
        printf("after");
        fflush(stdout);
        _exit(rc ? 1 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_holds(in_dir("printed"), "before written after");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file__is_replaced),
        cmocka_unit_test(test_link__stays_and_its_file_is_replaced),
        cmocka_unit_test(test_device__is_written_to),
        cmocka_unit_test(test_pipe__gets_it_when_somebody_reads),
        cmocka_unit_test(test_standard_output__is_written_in_order),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
