#include "test.h"

#include "base/beat.h"
#include "base/fs.h"
#include "launch/mpiexec.h"
#include "launch/restart.h"
#include "launch/worker.h"

#include <limits.h>
#include <unistd.h>

/* -- the command line ---------------------------------------------------------------- */

/* The words of the command, joined by '|'. */
static void build(char *joined, size_t size, const struct mpiexec_dialect *dialect,
                  const struct launch_options *opt, bool is_root)
{
    char *const argv[] = {(char[]){"pretrain"}, (char[]){"-c"}, (char[]){"a b;$c"}, NULL};
    struct mpiexec_command cmd;
    struct error err;
    assert_ok(mpiexec_command_build(&cmd, dialect, "/m", "/p", opt, is_root, argv, &err),
              err);
    joined[0] = '\0';
    for (int i = 0; i < cmd.n_words; i++) {
        size_t n = strlen(joined);
        snprintf(joined + n, size - n, "%s%s", i ? "|" : "", cmd.words[i]);
    }
    assert_null(cmd.words[cmd.n_words]);
    mpiexec_command_release(&cmd);
}

static void test_mpiexec_command__speaks_both_dialects(void **state)
{
    (void)state;
#define X "-x|TREFOIL_LOG_DIR|-x|TREFOIL_WATCH|-x|TREFOIL_JOB|"
#define KEEP                                                                             \
    "--mca|oob_tcp_keepalive_time|20|--mca|oob_tcp_keepalive_intvl|5|"                   \
    "--mca|oob_tcp_keepalive_probes|8|--mca|orte_launch_agent|/p launch daemon orted|"
#define END "|/p|pretrain|-c|a b;$c"
    static const struct {
        const struct mpiexec_dialect *dialect;
        struct launch_options opt;
        bool is_root;
        const char *expected;
    } cases[] = {
        {&mpiexec_openmpi,
         {.n_ranks = 2},
         false,
         "/m|--bind-to|none|" KEEP "--oversubscribe|" X "-n|2" END},
        {&mpiexec_openmpi,
         {.n_ranks = 3, .hosts = "a,b:2", .rsh = "/r"},
         true,
         "/m|--bind-to|none|" KEEP
         "--host|a:1,b:2|--allow-run-as-root|--mca|plm_rsh_agent|/r|" X "-n|3" END},
        {&mpiexec_openmpi,
         {.n_ranks = 3, .hostfile = "f f"},
         false,
         "/m|--bind-to|none|" KEEP "--hostfile|f f|" X "-n|3" END},
        {&mpiexec_mpich,
         {.n_ranks = 100000},
         true,
         "/m|-disable-auto-cleanup|-n|100000" END},
        {&mpiexec_mpich,
         {.n_ranks = 3, .hosts = "a,b:2", .rsh = "/r"},
         true,
         "/m|-hosts|a:1,b:2|-launcher|rsh|-launcher-exec|/r|-n|3" END},
        {&mpiexec_mpich, {.n_ranks = 3, .hostfile = "f"}, false, "/m|-f|f|-n|3" END},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char joined[1024];
        build(joined, sizeof joined, cases[i].dialect, &cases[i].opt, cases[i].is_root);
        assert_string_equal(joined, cases[i].expected);
    }
}

static void test_launch_hosts__are_names_with_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *hosts;
        int64_t n;
        const char *spelled;
    } cases[] = {
        {"a", 1, "a:1"},
        {"a:3,b", 4, "a:3,b:1"},
        {"10.0.0.1:2,node-7.site_x", 3, "10.0.0.1:2,node-7.site_x:1"},
        {"", -1, ""},
        {"a,", -1, ""},
        {",a", -1, ""},
        {"a,,b", -1, ""},
        {"a:", -1, ""},
        {"a:0", -1, ""},
        {"a:-1", -1, ""},
        {"a:1x", -1, ""},
        {"-x", -1, ""},
        {"a b", -1, ""},
        {"a;b", -1, ""},
        {"a:100001", -1, ""},
        {"a:1:2", -1, ""},
        {":2", -1, ""},
        {"$(x)", -1, ""},
        {"a:99999999999999999999", -1, ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char spelled[256] = "";
        struct error err;
        int64_t n = launch_hosts_spell(spelled, sizeof spelled, cases[i].hosts, &err);
        assert_int_equal(n, cases[i].n);
        if (n > 0)
            assert_string_equal(spelled, cases[i].spelled);
        else
            assert_non_null(strstr(err.text, "--hosts"));
    }
}

static void test_launch_check__refuses_what_cannot_run(void **state)
{
    (void)state;
    static const struct {
        struct launch_options opt;
        const char *reason;
    } cases[] = {
        {{.n_ranks = 0}, "1 to 100000"},
        {{.n_ranks = -1}, "1 to 100000"},
        {{.n_ranks = 100001}, "1 to 100000"},
        {{.n_ranks = INT64_MAX}, "1 to 100000"},
        {{.n_ranks = 4, .hosts = "a:2,b"}, "places for 3 ranks, and 4"},
        {{.n_ranks = 1, .hosts = "a", .hostfile = "/dev/null"}, "exclude each other"},
        {{.n_ranks = 1, .hostfile = "/nonexistent/hosts"}, "/nonexistent/hosts"},
        {{.n_ranks = 1, .rsh = "/nonexistent/rsh"}, "/nonexistent/rsh"},
        {{.n_ranks = 1, .rsh = "sh -c 'a b'"}, "without quotes"},
        {{.n_ranks = 1, .rsh = "/nonexistent/rsh -F x"}, "'/nonexistent/rsh' is not a"},
        {{.n_ranks = 1, .rsh = " sh"}, "a program and its arguments"},
        {{.n_ranks = 100000}, "too many ranks: 100000 processes on this machine of"},
        {{.n_ranks = 2000, .hosts = "localhost:1500,b:2000"}, "too many ranks: 1500 "},
        {{.n_ranks = 1, .log_dir = ""}, "--log_dir"},
        {{.n_ranks = 1, .max_restarts = -1}, "--max_restarts must be 0 to"},
        {{.n_ranks = 1, .max_restarts = INT64_MAX}, "--max_restarts must be 0 to"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err;
        assert_int_equal(launch_check(&cases[i].opt, &err), -1);
        assert_int_equal(err.kind, ERROR_INPUT);
        if (!strstr(err.text, cases[i].reason))
            fail_msg("'%s' is not in '%s'", cases[i].reason, err.text);
    }
}

/* -- processors ---------------------------------------------------------------------- */

static void test_worker_share__is_equal_and_disjoint(void **state)
{
    (void)state;
    for (int n = 1; n <= 16; n++)
        for (int size = 1; size <= 20; size++) {
            int next = 0;
            for (int rank = 0; rank < size; rank++) {
                int first = -1;
                assert_int_equal(worker_share(n, rank, size, &first), n / size);
                assert_int_equal(first, next);
                next += n / size;
            }
            assert_true(next <= n);
        }
}

/* -- last words ---------------------------------------------------------------------- */

static void test_beat__tells_the_first_word_of_a_rank(void **state)
{
    (void)state;
    char *dir = test_make_directory(), path[PATH_MAX];
    struct error err;
    beat_path(path, sizeof path, dir); // a directory that is there: in it
    assert_int_equal(strncmp(path, dir, strlen(dir)), 0);
    struct beat_file *file = beat_open(path, 3, 4, &err);
    assert_non_null(file);
    const struct beat_slot *slot = &file->slots[3];
    assert_int_equal(atomic_load(&slot->state), BEAT_ALIVE);
    assert_int_equal(atomic_load(&slot->step), -1);
    assert_int_equal(atomic_load(&slot->pid), getpid());
    assert_false(beat_is_shown()); // of rank 0 only

    assert_true(beat_fail("cannot read 'x'\nno such file", 2, true));
    assert_false(beat_last_word(BEAT_ENDED, 0));
    assert_false(beat_fail("and then", 3, false));
    assert_int_equal(atomic_load(&slot->state), BEAT_FAILED);
    assert_int_equal(atomic_load(&slot->code), 2);
    assert_true(atomic_load(&slot->said_ns) > 0);
    assert_int_equal(atomic_load(&file->failure.by), 4);
    assert_true(file->failure.is_lasting && atomic_load(&file->failure.is_written));
    assert_string_equal(file->failure.text, "cannot read 'x' no such file");
    beat_detach();
    assert_ok(fs_remove_tree(dir, &err), err);
    free(dir);
}

/* -- restarts ------------------------------------------------------------------------ */

static void test_restart__gives_up_after_three_without_progress(void **state)
{
    (void)state;
    struct restart r = {.most = 100, .newest_step = -1};
    for (int i = 0; i < 3; i++)
        assert_int_equal(restart_decide(&r, -1), RESTART_AGAIN);
    assert_int_equal(restart_decide(&r, -1), RESTART_LOOP);
    assert_int_equal(r.n_restarts, 3);
}

static void test_restart__counts_from_the_newest_checkpoint(void **state)
{
    (void)state;
    struct restart r = {.most = 100, .newest_step = 10};
    for (int i = 0; i < 3; i++)
        assert_int_equal(restart_decide(&r, 10), RESTART_AGAIN);
    assert_int_equal(restart_decide(&r, 12), RESTART_AGAIN); // a newer one
    assert_int_equal(restart_decide(&r, 10), RESTART_AGAIN); // it was damaged
    assert_int_equal(restart_decide(&r, 12), RESTART_AGAIN);
    assert_int_equal(restart_decide(&r, 12), RESTART_LOOP);
    assert_int_equal(r.n_restarts, 6);
}

static void test_restart__ends_with_the_budget_of_the_user(void **state)
{
    (void)state;
    struct restart r = {.most = 5, .newest_step = -1};
    for (int step = 0; step < 5; step++)
        assert_int_equal(restart_decide(&r, step), RESTART_AGAIN);
    assert_int_equal(restart_decide(&r, 5), RESTART_SPENT);
    r = (struct restart){.most = 0, .newest_step = -1};
    assert_int_equal(restart_decide(&r, 5), RESTART_SPENT);
}

static void test_restart__pauses_double_up_to_a_limit(void **state)
{
    (void)state;
    static const int expected[] = {1, 2, 4, 8, 16, 30, 30};
    for (size_t i = 0; i < ARRAY_LEN(expected); i++)
        assert_int_equal(restart_pause((int64_t)i + 1), expected[i]);
    assert_int_equal(restart_pause(1000000), 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mpiexec_command__speaks_both_dialects),
        cmocka_unit_test(test_launch_hosts__are_names_with_numbers),
        cmocka_unit_test(test_launch_check__refuses_what_cannot_run),
        cmocka_unit_test(test_worker_share__is_equal_and_disjoint),
        cmocka_unit_test(test_beat__tells_the_first_word_of_a_rank),
        cmocka_unit_test(test_restart__gives_up_after_three_without_progress),
        cmocka_unit_test(test_restart__counts_from_the_newest_checkpoint),
        cmocka_unit_test(test_restart__ends_with_the_budget_of_the_user),
        cmocka_unit_test(test_restart__pauses_double_up_to_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
