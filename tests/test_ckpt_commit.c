/*
 * The commit of a checkpoint: a kill or a failure at any moment leaves the previous one,
 * and the next save tidies up.
 */
#include "ckpt_fixture.h"

#include "ckpt/ckpt_failpoint.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define FAILPOINT_NAME(name) #name,
static const char *const failpoint_names[] = {CKPT_FAILPOINTS(FAILPOINT_NAME)};

/* What happens at which visit of which failpoint; replaces the library's no-op. */
enum fault_kind { FAULT_NONE, FAULT_KILL, FAULT_FAIL };
#define KILLED 99

static const struct ckpt_keep keep_one = {.last = 1}, keep_two = {.last = 2};

static struct {
    enum fault_kind kind;
    enum ckpt_failpoint at;
    int visit;        // from 0
    int error_number; // that FAULT_FAIL sets
    int n_visits[N_CKPT_FAILPOINTS];
} fault;

int ckpt_failpoint(enum ckpt_failpoint at)
{
    int visit = fault.n_visits[at]++;
    if (fault.kind == FAULT_NONE || fault.at != at || fault.visit != visit)
        return 0;
    if (fault.kind == FAULT_KILL)
        _exit(KILLED);
    errno = fault.error_number;
    return -1;
}

static void set_fault(enum fault_kind kind, enum ckpt_failpoint at, int visit)
{
    memset(&fault, 0, sizeof fault);
    fault.kind = kind;
    fault.at = at;
    fault.visit = visit;
    fault.error_number = ENOSPC;
}

/* Save state number `salt` as `step` in a child that is killed there. */
static void save_killed(struct fixture *f, int64_t salt, int64_t step, int64_t keep_last,
                        enum ckpt_failpoint at, int visit)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        struct error err;
        set_fault(FAULT_KILL, at, visit);
        fill_state(&f->state, salt);
        f->state.progress.step = step;
        struct ckpt_keep keep = {.last = keep_last};
        _exit(ckpt_save(f->dir, &f->state, &keep, NULL, 0, &err) ? 1 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != KILLED)
        fail_msg("not killed at %s, visit %d", failpoint_names[at], visit);
}

static void start_again(struct fixture *f)
{
    struct error err;
    set_fault(FAULT_NONE, 0, 0);
    assert_ok(fs_remove_tree(f->dir, &err), err);
    save(f, 1, 0);
    save(f, 2, 0);
}

/* How often one save of `step` passes each failpoint. */
static void count_visits(struct fixture *f, int64_t step, int n_visits[N_CKPT_FAILPOINTS])
{
    start_again(f);
    set_fault(FAULT_NONE, 0, 0);
    save(f, step, 2);
    memcpy(n_visits, fault.n_visits, sizeof fault.n_visits);
    for (int i = 0; i < N_CKPT_FAILPOINTS; i++)
        if (n_visits[i] == 0 && i != CKPT_AT_EXCHANGE && i != CKPT_AT_COPIED)
            fail_msg("a save never passes %s", failpoint_names[i]);
}

/* All of few visits, the first, a middle and the last of many. */
static int next_visit(int visit, int n_visits)
{
    if (n_visits <= 3)
        return visit + 1;
    return visit < n_visits / 2   ? n_visits / 2
           : visit < n_visits - 1 ? n_visits - 1
                                  : n_visits;
}

static void test_ckpt_commit__a_kill_at_any_moment_leaves_a_valid_one(void **state)
{
    struct fixture *f = *state;
    int n_visits[N_CKPT_FAILPOINTS];
    count_visits(f, 3, n_visits);
    for (int at = 0; at < N_CKPT_FAILPOINTS; at++)
        for (int v = 0; v < n_visits[at]; v = next_visit(v, n_visits[at])) {
            start_again(f);
            save_killed(f, 3, 3, 2, (enum ckpt_failpoint)at, v);
            assert_resolves_to(f, at < CKPT_AT_COMMITTED ? 2 : 3);
            save(f, 4, 2);
            assert_names(f, at < CKPT_AT_COMMITTED
                                ? "epoch_0_step_2 epoch_0_step_4 latest"
                                : "epoch_0_step_3 epoch_0_step_4 latest");
            assert_resolves_to(f, 4);
        }
}

static void
test_ckpt_commit__a_kill_while_replacing_leaves_the_old_or_the_new(void **state)
{
    struct fixture *f = *state;
    int n_visits[N_CKPT_FAILPOINTS];
    count_visits(f, 2, n_visits);
    assert_int_equal(n_visits[CKPT_AT_EXCHANGE], 1);
    for (int at = 0; at < N_CKPT_FAILPOINTS; at++)
        for (int v = 0; v < n_visits[at]; v = next_visit(v, n_visits[at])) {
            char path[4096];
            struct error err;
            bool is_new = at >= CKPT_AT_COMMITTED;
            start_again(f);
            save_killed(f, 77, 2, 0, (enum ckpt_failpoint)at, v);
            assert_ok(ckpt_resolve(f->dir, N_CKPT_SETS, path, sizeof path, &err), err);
            assert_ok(ckpt_load(path, &f->loaded, &err), err);
            fill_state(&f->state, is_new ? 77 : 2);
            f->state.progress.step = 2;
            assert_state_equal(&f->state, &f->loaded);
            save(f, 4, 2);
            assert_names(f, "epoch_0_step_2 epoch_0_step_4 latest");
        }
}

static void save_of_run(struct fixture *f, int64_t step, const char *run_id)
{
    struct error err;
    fill_state(&f->state, step);
    snprintf(f->state.progress.run_id, CKPT_RUN_ID_BYTES, "%s", run_id);
    assert_ok(ckpt_save(f->dir, &f->state, &keep_all, NULL, 0, &err), err);
}

static void assert_takes(struct fixture *f, int64_t step, const char *what)
{
    char path[4096], *expected = file_path(f, step, "");
    struct error err;
    assert_ok(ckpt_resolve(f->dir, N_CKPT_SETS, path, sizeof path, &err), err);
    expected[strlen(expected) - 1] = 0;
    if (strcmp(path, expected) != 0)
        fail_msg("%s: '%s' instead of '%s'", what, path, expected);
    free(expected);
}

static void
test_ckpt_commit__a_kill_among_later_steps_of_another_run_never_leads_there(void **state)
{
    struct fixture *f = *state;
    struct error err;
    for (int at = 0; at <= CKPT_AT_LATEST_WRITTEN; at++) {
        if (at == CKPT_AT_COPIED)
            continue;
        int64_t step = at == CKPT_AT_EXCHANGE ? 50 : 3; // 50: replaces the other's
        set_fault(FAULT_NONE, 0, 0);
        assert_ok(fs_remove_tree(f->dir, &err), err);
        save_of_run(f, 50, "aaaa");
        save_of_run(f, 100, "aaaa");
        save_of_run(f, 1, "bbbb");
        save_of_run(f, 2, "bbbb");
        snprintf(f->state.progress.run_id, CKPT_RUN_ID_BYTES, "bbbb");
        save_killed(f, step, step, 0, (enum ckpt_failpoint)at, 0);
        assert_takes(f, at < CKPT_AT_COMMITTED ? 2 : 3, failpoint_names[at]);
    }
}

static void
test_ckpt_commit__a_failure_at_any_moment_leaves_the_previous_one(void **state)
{
    struct fixture *f = *state;
    int n_visits[N_CKPT_FAILPOINTS];
    count_visits(f, 3, n_visits);
    for (int at = 0; at < N_CKPT_FAILPOINTS; at++)
        for (int v = 0; v < n_visits[at]; v = next_visit(v, n_visits[at])) {
            struct error err;
            start_again(f);
            fill_state(&f->state, 3);
            set_fault(FAULT_FAIL, (enum ckpt_failpoint)at, v);
            int rc = ckpt_save(f->dir, &f->state, &keep_two, NULL, 0, &err);
            /* after the commit a failure is only worth a warning */
            assert_int_equal(rc, at <= CKPT_AT_COMMITTED ? -1 : 0);
            if (rc) {
                assert_says(&err, "No space left on device");
                assert_says(&err, "are free there");
            }
            if (at < CKPT_AT_COMMITTED)
                assert_names(f, "epoch_0_step_1 epoch_0_step_2 latest");
            assert_resolves_to(f, at < CKPT_AT_COMMITTED ? 2 : 3);
            set_fault(FAULT_NONE, 0, 0);
            save(f, 4, 2);
            assert_resolves_to(f, 4);
        }
}

static void
test_ckpt_commit__a_file_system_without_exchange_replaces_in_two_steps(void **state)
{
    struct fixture *f = *state;
    char path[4096];
    struct error err;
    for (int is_failing = 0; is_failing < 2; is_failing++) {
        start_again(f);
        fill_state(&f->state, 77);
        f->state.progress.step = 2;
        set_fault(FAULT_FAIL, CKPT_AT_EXCHANGE, 0);
        fault.error_number = is_failing ? EACCES : EINVAL;
        int rc = ckpt_save(f->dir, &f->state, &keep_all, NULL, 0, &err);
        assert_int_equal(rc, is_failing ? -1 : 0);
        assert_names(f, "epoch_0_step_1 epoch_0_step_2 latest");
        if (is_failing) {
            assert_resolves_to(f, 2);
            continue;
        }
        assert_ok(ckpt_resolve(f->dir, N_CKPT_SETS, path, sizeof path, &err), err);
        assert_ok(ckpt_load(path, &f->loaded, &err), err);
        assert_state_equal(&f->state, &f->loaded);
    }
}

/* -- tidying ------------------------------------------------------------------------- */

static void test_ckpt_commit__only_the_last_are_kept(void **state)
{
    struct fixture *f = *state;
    save(f, 2, 0);
    save(f, 9, 0);
    save(f, 10, 0);
    assert_names(f, "epoch_0_step_10 epoch_0_step_2 epoch_0_step_9 latest");
    save(f, 11, 2);
    assert_names(f, "epoch_0_step_10 epoch_0_step_11 latest");
    save(f, 12, 1);
    assert_names(f, "epoch_0_step_12 latest");
    assert_resolves_to(f, 12);
}

static void
test_ckpt_commit__pruning_spares_later_steps_and_does_not_count_damaged(void **state)
{
    struct fixture *f = *state;
    save(f, 1, 0);
    save(f, 2, 0);
    save(f, 3, 0);
    save(f, 50, 0);
    char *manifest = file_path(f, 3, "trainer.json");
    flip_bit(manifest, 100, 1);
    save(f, 4, 2);
    assert_names(f,
                 "epoch_0_step_2 epoch_0_step_3 epoch_0_step_4 epoch_0_step_50 latest");
    free(manifest);
}

static void test_ckpt_commit__leftovers_are_removed(void **state)
{
    struct fixture *f = *state;
    static const char *const made[] = {"epoch_0_step_9.tmp-00ab",
                                       ".trash-epoch_0_step_2-00ab", ".trash-can",
                                       "step_9.tmp-00ab"};
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        char *path = join(f->dir, made[i]), *inside = join(path, "model.safetensors");
        struct error err;
        assert_int_equal(mkdir(path, 0777), 0);
        assert_ok(fs_write_atomic(inside, "x", 1, &err), err);
        free(inside);
        free(path);
    }
    save(f, 3, 0);
    assert_names(f, ".trash-can epoch_0_step_3 latest step_9.tmp-00ab"); // not ours
    assert_resolves_to(f, 3);
}

static void test_ckpt_commit__some_are_kept_for_good(void **state)
{
    struct fixture *f = *state;
    struct ckpt_keep keep = {.last = 2, .every = 4};
    struct error err;
    for (int64_t step = 1; step <= 9; step++) {
        fill_state(&f->state, step);
        assert_ok(ckpt_save(f->dir, &f->state, &keep, NULL, 0, &err), err);
    }
    assert_names(f, "epoch_0_step_4 epoch_0_step_8 epoch_0_step_9 latest");
}

static void test_ckpt_commit__another_runs_are_neither_counted_nor_removed(void **state)
{
    struct fixture *f = *state;
    struct ckpt_keep keep = {.last = 2};
    struct error err;
    static const struct {
        int64_t step;
        const char *run_id;
    } saves[] = {{1, ""},     {2, "aaaa"}, {3, "bbbb"}, {4, "aaaa"},
                 {5, "aaaa"}, {6, ""},     {7, ""},     {8, "bbbb"}};
    for (size_t i = 0; i < sizeof saves / sizeof saves[0]; i++) {
        fill_state(&f->state, saves[i].step);
        snprintf(f->state.progress.run_id, CKPT_RUN_ID_BYTES, "%s", saves[i].run_id);
        assert_ok(ckpt_save(f->dir, &f->state, &keep, NULL, 0, &err), err);
    }
    assert_names(f, "epoch_0_step_3 epoch_0_step_4 epoch_0_step_5 epoch_0_step_6 "
                    "epoch_0_step_7 epoch_0_step_8 latest");
}

static void test_ckpt_commit__a_step_saved_again_replaces_the_old(void **state)
{
    struct fixture *f = *state;
    struct error err;
    save(f, 3, 0);
    fill_state(&f->state, 77);
    f->state.progress.step = 3;
    assert_ok(ckpt_save(f->dir, &f->state, &keep_all, NULL, 0, &err), err);
    assert_names(f, "epoch_0_step_3 latest");
    char *path = file_path(f, 3, "");
    assert_ok(ckpt_load(path, &f->loaded, &err), err);
    assert_state_equal(&f->state, &f->loaded);
    free(path);
}

/* -- failures ------------------------------------------------------------------------ */

static void test_ckpt_commit__a_write_that_fails_leaves_the_previous_one(void **state)
{
    struct fixture *f = *state;
    struct rlimit old, low;
    struct error err;
    save(f, 1, 0);
    fill_state(&f->state, 2);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    for (rlim_t limit = 2000; limit < 16384; limit = limit * 3 / 2) { // the lock fits
        low = old;
        low.rlim_cur = limit;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
        int rc = ckpt_save(f->dir, &f->state, &keep_one, NULL, 0, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(rc, -1);
        assert_int_equal(err.kind, ERROR_RUNTIME);
        assert_says(&err, "File too large");
        assert_says(&err, f->dir);
        assert_says(&err, "bytes");
        assert_names(f, "epoch_0_step_1 latest");
    }
    assert_resolves_to(f, 1);
    save(f, 2, 1);
    assert_names(f, "epoch_0_step_2 latest");
}

static void test_ckpt_commit__a_place_that_cannot_be_written_is_an_error(void **state)
{
    struct fixture *f = *state;
    struct error err;
    char *file = join(f->dir, "file"), *below = join(file, "below");
    char *way = join(f->dir, "epoch_0_step_7");
    assert_ok(fs_write_atomic(file, "x", 1, &err), err);
    fill_state(&f->state, 7);
    assert_int_equal(ckpt_save(below, &f->state, &keep_all, NULL, 0, &err), -1);
    assert_int_equal(err.kind, ERROR_RUNTIME);
    assert_ok(fs_write_atomic(way, "x", 1, &err), err);
    assert_int_equal(ckpt_save(f->dir, &f->state, &keep_all, NULL, 0, &err), -1);
    assert_says(&err, "in the way");
    assert_names(f, "epoch_0_step_7 file");
    free(file);
    free(below);
    free(way);
}

static void
test_ckpt_commit__a_model_larger_than_the_disk_is_refused_at_once(void **state)
{
    struct fixture *f = *state;
    struct param_table table = {.n_elements = (int64_t)1 << 56,
                                .n_flat = (int64_t)1 << 56};
    struct ckpt_state huge = {
        .table = &table, .rule = test_rule(), .progress.config_json = "{}"};
    struct error err;
    assert_int_equal(ckpt_save(f->dir, &huge, &keep_all, NULL, 0, &err), -1);
    assert_says(&err, "the disk is full");
    assert_says(&err, "it takes 8647"); // 3 * 4 * 2^56 and hashes
    assert_says(&err, "are free there");
    assert_names(f, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_ckpt_commit__a_kill_at_any_moment_leaves_a_valid_one),
        TEST(test_ckpt_commit__a_kill_while_replacing_leaves_the_old_or_the_new),
        TEST(test_ckpt_commit__a_kill_among_later_steps_of_another_run_never_leads_there),
        TEST(test_ckpt_commit__a_failure_at_any_moment_leaves_the_previous_one),
        TEST(test_ckpt_commit__a_file_system_without_exchange_replaces_in_two_steps),
        TEST(test_ckpt_commit__only_the_last_are_kept),
        TEST(test_ckpt_commit__pruning_spares_later_steps_and_does_not_count_damaged),
        TEST(test_ckpt_commit__leftovers_are_removed),
        TEST(test_ckpt_commit__some_are_kept_for_good),
        TEST(test_ckpt_commit__another_runs_are_neither_counted_nor_removed),
        TEST(test_ckpt_commit__a_step_saved_again_replaces_the_old),
        TEST(test_ckpt_commit__a_write_that_fails_leaves_the_previous_one),
        TEST(test_ckpt_commit__a_place_that_cannot_be_written_is_an_error),
        TEST(test_ckpt_commit__a_model_larger_than_the_disk_is_refused_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
