/* One writer in an output directory: who comes second is refused, who is dead does not
 * count, and who was taken for dead cannot write any more. */
#include "ckpt_fixture.h"

#include "ckpt/ckpt_format.h"
#include "ckpt/ckpt_lock.h"
#include "ckpt/ckpt_write.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define FOREIGN_NOTE                                                                     \
    "{\"host\": \"elsewhere\", \"machine\": \"another-boot\", \"pid\": 1, "              \
    "\"started\": \"2020-01-01\", \"token\": \"00\", \"beat\": %d}"

static atomic_int reads_to_fail; // so many, with EIO

/* In the library's place. */
ssize_t pread(int fd, void *data, size_t n, off_t at)
{
    if (reads_to_fail > 0) {
        reads_to_fail--;
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, fd, data, n, at);
}

static void lock_ok(struct ckpt_lock *lock, const char *dir, double beat_seconds)
{
    struct error err;
    assert_ok(ckpt_lock_open(lock, dir, beat_seconds, &err), err);
    assert_ok(ckpt_lock_check(lock, &err), err);
}

static void write_note(const char *path, int beat)
{
    char note[512];
    struct error err;
    int n = snprintf(note, sizeof note, FOREIGN_NOTE, beat);
    assert_ok(fs_write_atomic(path, note, (size_t)n, &err), err);
}

static void test_ckpt_lock__the_second_is_refused_and_told_who_is_first(void **state)
{
    struct fixture *f = *state;
    struct ckpt_lock first, second;
    struct error err;
    char pid[64];
    lock_ok(&first, f->dir, CKPT_LOCK_BEAT_SECONDS);
    assert_int_equal(ckpt_lock_open(&second, f->dir, CKPT_LOCK_BEAT_SECONDS, &err), -1);
    assert_int_equal(err.kind, ERROR_RUNTIME);
    snprintf(pid, sizeof pid, "process %d on", (int)getpid());
    assert_says(&err, pid);
    assert_says(&err, "is in use");
    ckpt_lock_close(&second); // of one that was never taken
    assert_ok(ckpt_lock_check(&first, &err), err);
    ckpt_lock_close(&first);
    assert_names(f, "");
    lock_ok(&second, f->dir, CKPT_LOCK_BEAT_SECONDS);
    ckpt_lock_close(&second);
}

static void test_ckpt_lock__a_save_beside_another_is_refused(void **state)
{
    struct fixture *f = *state;
    struct ckpt_lock lock;
    struct error err;
    lock_ok(&lock, f->dir, CKPT_LOCK_BEAT_SECONDS);
    fill_state(&f->state, 3);
    assert_int_equal(ckpt_save(f->dir, &f->state, &keep_all, NULL, 0, &err), -1);
    assert_says(&err, "is in use");
    assert_names(f, ".lock");
    ckpt_lock_close(&lock);
    save(f, 3, 0);
}

static void test_ckpt_lock__a_killed_owner_does_not_count(void **state)
{
    struct fixture *f = *state;
    struct ckpt_lock lock;
    pid_t child = fork();
    if (child == 0) {
        struct error err;
        if (ckpt_lock_open(&lock, f->dir, CKPT_LOCK_BEAT_SECONDS, &err))
            _exit(1);
        kill(getpid(), SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_names(f, ".lock");
    lock_ok(&lock, f->dir, CKPT_LOCK_BEAT_SECONDS);
    ckpt_lock_close(&lock);
    assert_names(f, "");
}

static void test_ckpt_lock__another_machine_is_watched(void **state)
{
    struct fixture *f = *state;
    struct ckpt_lock lock;
    struct error err;
    char *path = join(f->dir, CKPT_LOCK_NAME);
    write_note(path, 5); // and nobody counts it up
    lock_ok(&lock, f->dir, 0.01);
    ckpt_lock_close(&lock);
    write_note(path, 5);
    pid_t child = fork();
    if (child == 0) // it lives: every moment a beat
        for (int beat = 6;; beat++) {
            write_note(path, beat);
            usleep(1000);
        }
    int rc = ckpt_lock_open(&lock, f->dir, 0.5, &err);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(rc, -1);
    assert_says(&err, "process 1 on 'elsewhere' writes there since 2020-01-01");
    free(path);
}

static void test_ckpt_lock__garbage_in_the_file_does_not_matter(void **state)
{
    struct fixture *f = *state;
    static const char *const texts[] = {"", "{", "[1, 2]", "{\"pid\": \"x\"}",
                                        "\xff\xfe"};
    struct error err;
    char *path = join(f->dir, CKPT_LOCK_NAME);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct ckpt_lock lock;
        assert_ok(fs_write_atomic(path, texts[i], strlen(texts[i]), &err), err);
        lock_ok(&lock, f->dir, 0.01);
        ckpt_lock_close(&lock);
    }
    free(path);
}

static void test_ckpt_lock__the_owner_beats(void **state)
{
    struct fixture *f = *state;
    struct ckpt_lock lock;
    struct error err;
    char *path = join(f->dir, CKPT_LOCK_NAME), *text;
    size_t n;
    bool has_beaten = false;
    lock_ok(&lock, f->dir, 0.002);
    for (int i = 0; i < 5000 && !has_beaten; i++) {
        usleep(1000);
        assert_ok(fs_read_all(path, 4096, &text, &n, &err), err);
        has_beaten = !strstr(text, "\"beat\": 0");
        free(text);
    }
    assert_true(has_beaten);
    ckpt_lock_close(&lock);
    free(path);
}

static int64_t beat_of(const char *path)
{
    char *text;
    size_t n;
    struct error err;
    assert_ok(fs_read_all(path, 4096, &text, &n, &err), err);
    const char *at = strstr(text, "\"beat\": ");
    int64_t beat = at ? strtoll(at + strlen("\"beat\": "), NULL, 10) : -1;
    free(text);
    return beat;
}

static void test_ckpt_lock__a_beat_that_cannot_be_read_is_not_the_last(void **state)
{
    struct fixture *f = *state;
    struct ckpt_lock lock;
    char *path = join(f->dir, CKPT_LOCK_NAME);
    lock_ok(&lock, f->dir, 0.002);
    reads_to_fail = 3;
    for (int i = 0; i < 5000 && reads_to_fail > 0; i++)
        usleep(1000);
    assert_int_equal(reads_to_fail, 0);
    int64_t before = beat_of(path), now = before;
    for (int i = 0; i < 5000 && now == before; i++) {
        usleep(1000);
        now = beat_of(path);
    }
    assert_true(now > before);
    ckpt_lock_close(&lock);
    free(path);
}

static void test_ckpt_lock__a_lock_that_cannot_be_read_is_not_lost(void **state)
{
    struct fixture *f = *state;
    struct ckpt_lock lock, second;
    struct error err;
    lock_ok(&lock, f->dir, CKPT_LOCK_BEAT_SECONDS);
    for (int n = 1; n <= 1000; n *= 1000) { // once, and for as long as anybody looks
        reads_to_fail = n;
        int rc = ckpt_lock_check(&lock, &err);
        reads_to_fail = 0;
        assert_ok(rc, err);
    }
    // nor is it free for another
    reads_to_fail = 1000;
    int rc = ckpt_lock_open(&second, f->dir, 0.01, &err);
    reads_to_fail = 0;
    assert_int_equal(rc, -1);
    assert_int_equal(err.kind, ERROR_RUNTIME);
    assert_says(&err, "Input/output error");
    assert_ok(ckpt_lock_check(&lock, &err), err);
    ckpt_lock_close(&lock);
    assert_names(f, "");
}

static void test_ckpt_lock__who_was_replaced_knows_and_leaves_the_new_alone(void **state)
{
    struct fixture *f = *state;
    struct ckpt_lock stale, owner;
    struct error err;
    char *path = join(f->dir, CKPT_LOCK_NAME);
    lock_ok(&stale, f->dir, 0.01);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ckpt_lock_check(&stale, &err), -1);
    assert_says(&err, "was removed");
    lock_ok(&owner, f->dir, 0.01);
    assert_int_equal(ckpt_lock_check(&stale, &err), -1);
    assert_says(&err, "was taken over by process");
    ckpt_lock_close(&stale);
    assert_ok(ckpt_lock_check(&owner, &err), err);
    ckpt_lock_close(&owner);
    free(path);
}

static void test_ckpt_lock__a_stale_writer_cannot_commit(void **state)
{
    struct fixture *f = *state;
    struct ckpt_lock stale, owner;
    struct ckpt_layout layout;
    struct ckpt_sums sums;
    struct ckpt_whole whole;
    struct ckpt_commit commit;
    struct error err;
    char *path = join(f->dir, CKPT_LOCK_NAME);
    fill_state(&f->state, 8);
    const struct ckpt_progress *progress = &f->state.progress;
    lock_ok(&stale, f->dir, CKPT_LOCK_BEAT_SECONDS);
    assert_ok(
        ckpt_layout_init(&layout, &f->table, test_rule(), CKPT_MAX_FILE_BYTES, &err),
        err);
    assert_ok(ckpt_sums_init(&sums, layout.n_blocks, &err), err);
    assert_ok(ckpt_whole_init(&whole, &f->state, &err), err);
    struct ckpt_source source = ckpt_whole_source(&whole);
    assert_ok(ckpt_commit_begin(&commit, f->dir, &stale, &layout, progress, &err), err);
    assert_ok(
        ckpt_write_part(commit.temp, &layout, &whole.part, &source, true, &sums, &err),
        err);
    assert_int_equal(unlink(path), 0);
    lock_ok(&owner, f->dir, CKPT_LOCK_BEAT_SECONDS);
    assert_int_equal(ckpt_commit_finish(&commit, progress, &sums, &err), -1);
    assert_says(&err, "taken over");
    ckpt_commit_abandon(&commit, &err);
    assert_names(f, ".lock");
    ckpt_lock_close(&stale);
    ckpt_lock_close(&owner);
    ckpt_whole_release(&whole);
    ckpt_sums_release(&sums);
    ckpt_layout_release(&layout);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_ckpt_lock__the_second_is_refused_and_told_who_is_first),
        TEST(test_ckpt_lock__a_save_beside_another_is_refused),
        TEST(test_ckpt_lock__a_killed_owner_does_not_count),
        TEST(test_ckpt_lock__another_machine_is_watched),
        TEST(test_ckpt_lock__garbage_in_the_file_does_not_matter),
        TEST(test_ckpt_lock__the_owner_beats),
        TEST(test_ckpt_lock__a_beat_that_cannot_be_read_is_not_the_last),
        TEST(test_ckpt_lock__a_lock_that_cannot_be_read_is_not_lost),
        TEST(test_ckpt_lock__who_was_replaced_knows_and_leaves_the_new_alone),
        TEST(test_ckpt_lock__a_stale_writer_cannot_commit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
