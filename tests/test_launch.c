#include "test.h"

#include "base/fs.h"
#include "launch/launch.h"
#include "launch/launch_command.h"
#include "launch/launch_restart.h"
#include "launch/launch_verdict.h"
#include "launch/launch_words.h"
#include "launch/pin.h"
#include "launch/rank_status.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* -- the command line ---------------------------------------------------------------- */

/* The words of the command, joined by '|'. */
static void build(char *joined, size_t size, const struct launch_dialect *dialect,
                  const struct launch_options *opt, bool is_root)
{
    char *const argv[] = {(char[]){"pretrain"}, (char[]){"-c"}, (char[]){"a b;$c"}, NULL};
    struct launch_command cmd;
    struct error err;
    assert_ok(launch_command_build(&cmd, dialect, "/m", "/p", opt, is_root, argv, &err),
              err);
    joined[0] = '\0';
    for (int i = 0; i < cmd.n_words; i++) {
        size_t n = strlen(joined);
        snprintf(joined + n, size - n, "%s%s", i ? "|" : "", cmd.words[i]);
    }
    assert_null(cmd.words[cmd.n_words]);
    launch_command_release(&cmd);
}

static void test_launch_command__speaks_both_dialects(void **state)
{
    (void)state;
#define X "-x|TREFOIL_LOG_DIR|-x|TREFOIL_WATCH|-x|TREFOIL_JOB|"
#define KEEP                                                                             \
    "--mca|oob_tcp_keepalive_time|20|--mca|oob_tcp_keepalive_intvl|5|"                   \
    "--mca|oob_tcp_keepalive_probes|8|--mca|orte_launch_agent|/p launch daemon orted|"
#define END "|/p|pretrain|-c|a b;$c"
    static const struct {
        const struct launch_dialect *dialect;
        struct launch_options opt;
        bool is_root;
        const char *expected;
    } cases[] = {
        {&launch_dialect_openmpi,
         {.n_ranks = 2},
         false,
         "/m|--bind-to|none|" KEEP "--oversubscribe|" X "-n|2" END},
        {&launch_dialect_openmpi,
         {.n_ranks = 3, .hosts = "a,b:2", .rsh = "/r"},
         true,
         "/m|--bind-to|none|" KEEP
         "--host|a:1,b:2|--allow-run-as-root|--mca|plm_rsh_agent|/r|" X "-n|3" END},
        {&launch_dialect_openmpi,
         {.n_ranks = 3, .hostfile = "f f"},
         false,
         "/m|--bind-to|none|" KEEP "--hostfile|f f|" X "-n|3" END},
        {&launch_dialect_mpich,
         {.n_ranks = 100000},
         true,
         "/m|-disable-auto-cleanup|-n|100000" END},
        {&launch_dialect_mpich,
         {.n_ranks = 3, .hosts = "a,b:2", .rsh = "/r"},
         true,
         "/m|-hosts|a:1,b:2|-launcher|rsh|-launcher-exec|/r|-n|3" END},
        {&launch_dialect_mpich,
         {.n_ranks = 3, .hostfile = "f"},
         false,
         "/m|-f|f|-n|3" END},
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

static void test_launch_devices__count_from_zero(void **state)
{
    (void)state;
    static const struct {
        const char *devices;
        int64_t n;
    } cases[] = {
        {"0", 1},    {"0,1,2,3", 4}, {"0, 1", 2},  {"", -1},
        {"1", -1},   {"0,2", -1},    {"0,0", -1},  {"0,", -1},
        {"0 1", -1}, {"0,x", -1},    {"0,-1", -1}, {"0,99999999999999999999", -1},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err;
        assert_int_equal(launch_count_devices(cases[i].devices, &err), cases[i].n);
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

static void test_pin_share__is_equal_and_disjoint(void **state)
{
    (void)state;
    for (int n = 1; n <= 16; n++)
        for (int size = 1; size <= 20; size++) {
            int next = 0;
            for (int rank = 0; rank < size; rank++) {
                int first = -1;
                assert_int_equal(pin_share(n, rank, size, &first), n / size);
                assert_int_equal(first, next);
                next += n / size;
            }
            assert_true(next <= n);
        }
}

/* -- status files -------------------------------------------------------------------- */

static void test_rank_status__tells_what_the_rank_wrote(void **state)
{
    (void)state;
    char *dir = test_make_directory();
    struct rank_status s;
    struct error err;
    assert_false(rank_status_read(dir, 3, &s));
    assert_ok(rank_status_create(dir, 3, &err), err);
    assert_true(rank_status_read(dir, 3, &s));
    assert_int_equal(s.state, RANK_RUNNING);
    assert_int_equal(s.step, -1);
    assert_int_equal(s.pid, getpid());
    assert_true(s.start_ticks > 0 && s.start_ticks == rank_start_ticks(getpid()));

    rank_status_set_step(dir, 3, 123456789012);
    rank_status_failure(dir, 3, 77, 2, true, "cannot read 'x'\nno such file");
    rank_status_end(dir, 3, 2);
    rank_status_set_step(dir, 3, 7);
    assert_true(rank_status_read(dir, 3, &s));
    assert_int_equal(s.step, 7);
    assert_int_equal(s.state, RANK_FAILED);
    assert_int_equal(s.code, 2);
    assert_int_equal(s.log_bytes, 77);
    assert_true(s.is_lasting);
    assert_string_equal(s.text, "cannot read 'x' no such file");
    assert_ok(fs_remove_tree(dir, &err), err);
    free(dir);
}

static void test_rank_status__needs_whole_lines(void **state)
{
    (void)state;
    static const char whole[] = "step                    5\nhost h\npid 12 34\njob 9\n"
                                "session /s/pid.1\nend 17 75\n";
    for (size_t n = 0; n < sizeof whole; n++) {
        char text[sizeof whole] = "";
        struct rank_status s;
        memcpy(text, whole, n);
        bool is_known = rank_status_parse(text, &s);
        assert_int_equal(is_known, n >= strlen("step                    5\nhost h\n"
                                               "pid 12 34\n"));
        assert_int_equal(s.state == RANK_ENDED, n == sizeof whole - 1);
    }
}

/* -- the verdict --------------------------------------------------------------------- */

static void test_launch_verdict__reads_mpiexec(void **state)
{
    (void)state;
    struct launch_death d;
    launch_words_death("x\nmpirun noticed that process rank 12 with PID 0 on node vm "
                       "exited on signal 11 (Segmentation fault).\n",
                       &d);
    assert_int_equal(d.rank, 12);
    assert_int_equal(d.signal_number, 11);

    launch_words_death(
        "===\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
        "=   PID 4711 RUNNING AT node7\n=   EXIT CODE: 9\n=   CLEANING UP\n",
        &d);
    assert_int_equal(d.rank, -1);
    assert_int_equal(d.pid, 4711);
    assert_string_equal(d.host, "node7");
    assert_int_equal(d.signal_number, 9);

    launch_words_death("TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n", &d);
    assert_int_equal(d.signal_number, 9);
    launch_words_death("EXIT STRING: Killed", &d);
    assert_int_equal(d.signal_number, -1);
    launch_words_death("", &d);
    assert_true(d.rank == -1 && d.pid == -1 && d.signal_number == -1);
}

/* Ranks of another machine, as their files tell; each line is one status file. */
static void write_status(const char *dir, int rank, const char *last_word)
{
    char path[4096], text[512];
    struct error err;
    rank_status_path(path, sizeof path, dir, rank);
    int n =
        snprintf(text, sizeof text, "step %20d\nhost far\npid %d 1\njob -\nsession -\n%s",
                 40 + rank, 1000 + rank, last_word);
    assert_ok(fs_write_atomic(path, text, (size_t)n, &err), err);
}

static void test_launch_verdict__names_the_first_cause(void **state)
{
    (void)state;
    static const struct {
        const char *words[2]; // the last words of ranks 0 and 1
        int exit_code;        // of mpiexec
        const char *said;
        int code; // of the verdict
        const char *sentence;
    } cases[] = {
        {{"end 5 0\n", "end 6 0\n"}, 0, "", 0, ""},
        {{"end 5 75\n", "end 6 75\n"}, 0, "", 75, "can be resumed"},
        {{"end 5 0\n", ""}, 0, "", 3, "rank 1 ended before its work was done"},
        {{"end 5 0\n", "end 6 0\n"},
         1,
         "boom",
         3,
         "mpiexec ended with code 1; it said:\nboom"},
        {{"failure 9 0 3 0 late\n", "failure 5 0 2 1 early\n"},
         3,
         "",
         2,
         "rank 1 on far failed at step 41: early; its log: "},
        {{"failure 5 0 3 0 rank 1 on near: rank 1 on near, the first of 2: agreed\n",
          "failure 6 0 3 0 rank 1 on near: rank 1 on near: agreed\n"},
         3,
         "",
         3,
         "rank 1 on near failed at step 40: agreed; its log: "},
        {{"failure 5 0 3 0 rank 1 on near, the first of 2 that failed: agreed\n", ""},
         3,
         "",
         3,
         "rank 1 on near failed at step 40: agreed; its log: "},
        {{"failure 5 0 3 0 cannot save 'x': rank 1 on near: the disk is full; rank 0 "
          "too\n",
          ""},
         3,
         "",
         3,
         "rank 1 on near failed at step 40: cannot save 'x': the disk is full; rank 0 "
         "too; "
         "its log: "},
        {{"", "signal 5 11\n"},
         139,
         "",
         3,
         "rank 1 on far (pid 1001) was ended by signal 11"},
        {{"failure 5 0 3 0 peer is gone\n", ""},
         137,
         "mpirun noticed that process rank 1 with PID 0 on node far exited on signal 9 "
         "(Killed).",
         3,
         "rank 1 on far (pid 1001) was killed by signal 9 (Killed) at step 41"},
        {{"", ""},
         255,
         "APPLICATION PROCESSES: BAD",
         3,
         "mpiexec ended with code 255; it said:"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *dir = test_make_directory();
        struct launch_ranks ranks;
        struct error err = {.text = ""};
        struct launch_end end = {.wait_status = cases[i].exit_code << 8,
                                 .said = cases[i].said};
        for (int r = 0; r < 2; r++)
            write_status(dir, r, cases[i].words[r]);
        assert_ok(launch_ranks_init(&ranks, dir, 2, -1, &err), err);
        launch_ranks_look_at_all(&ranks);
        assert_int_equal(launch_verdict(&ranks, &end, &err), cases[i].code);
        if (!strstr(err.text, cases[i].sentence))
            fail_msg("case %zu: '%s' is not in '%s'", i, cases[i].sentence, err.text);
        launch_ranks_release(&ranks);
        assert_ok(fs_remove_tree(dir, &err), err);
        free(dir);
    }
}

/* -- what ranks and mpiexec say otherwise -------------------------------------------- */

static void test_launch_verdict__takes_last_words_that_no_file_took(void **state)
{
    (void)state;
    struct launch_ranks ranks;
    struct error err;
    assert_ok(launch_ranks_init(&ranks, "/nonexistent", 2, -1, &err), err);
    launch_ranks_take_spare(&ranks, "1 far 1001 failure 9 0 3 0 late\n");
    launch_ranks_take_spare(&ranks, "0 far 1000 failure 5 0 3 0 the disk is full\n");
    launch_ranks_take_spare(&ranks, "7 far 1000 failure 1 0 3 0 no such rank\n");
    launch_ranks_take_spare(&ranks, "0 far");
    struct launch_end end = {.wait_status = 3 << 8, .said = ""};
    assert_int_equal(launch_verdict(&ranks, &end, &err), 3);
    assert_string_equal(err.text, "rank 0 on far failed: the disk is full");
    launch_ranks_release(&ranks);
}

static void test_launch_verdict__names_a_lost_host(void **state)
{
    (void)state;
    static const char lost[] =
        "----\nORTE has lost communication with a remote daemon.\n\n"
        "  HNP daemon   : [[1,0],0] on node near\n"
        "  Remote daemon: [[1,0],1] on node far\n\n"
        "This is usually due to either a failure of the TCP network\n----\n";
    char *dir = test_make_directory();
    struct launch_ranks ranks;
    struct error err;
    for (int r = 0; r < 2; r++)
        write_status(dir, r, "");
    assert_ok(launch_ranks_init(&ranks, dir, 2, -1, &err), err);
    launch_ranks_look_at_all(&ranks);
    ranks.all[0].is_local = true;
    ranks.all[0].exit_signal = SIGKILL; // by mpirun, after the host was lost
    ranks.all[0].seen_dead_ns = 5;
    struct launch_end end = {.wait_status = 1 << 8, .said = lost};
    assert_int_equal(launch_verdict(&ranks, &end, &err), 3);
    assert_non_null(strstr(err.text, "host far was lost with rank 0, 1: "));
    assert_non_null(strstr(err.text, "mpiexec said: ORTE has lost communication"));
    assert_null(strstr(err.text, "usually"));
    launch_ranks_release(&ranks);
    assert_ok(fs_remove_tree(dir, &err), err);
    free(dir);
}

static void test_launch_verdict__tells_of_ranks_that_do_not_begin(void **state)
{
    (void)state;
    static const struct launch_options opt = {.n_ranks = 2, .hosts = "near,far"};
    struct launch_ranks ranks;
    struct error err;
    assert_ok(launch_ranks_init(&ranks, "/nonexistent", 2, -1, &err), err);
    snprintf(ranks.host, sizeof ranks.host, "near");
    struct launch_end end = {.opt = &opt,
                             .wait_status = SIGKILL,
                             .said = "ssh: connect to host far port 22: refused\n",
                             .is_mpiexec_killed = true,
                             .is_unbegun = true};
    assert_int_equal(launch_verdict(&ranks, &end, &err), 3);
    assert_string_equal(err.text,
                        "no rank began on far; mpiexec said: ssh: connect to host far "
                        "port 22: refused; see that 'ssh far true' works by itself");
    launch_ranks_release(&ranks);
}

static void test_launch_verdict__knows_its_own_signals(void **state)
{
    (void)state;
    char *dir = test_make_directory();
    struct launch_ranks ranks;
    struct error err;
    write_status(dir, 0, "");
    assert_ok(launch_ranks_init(&ranks, dir, 1, -1, &err), err);
    launch_ranks_look_at_all(&ranks);

    struct launch_end end = {.wait_status = SIGKILL, .mpiexec = 55, .said = ""};
    assert_int_equal(launch_verdict(&ranks, &end, &err), 3);
    assert_non_null(strstr(err.text, "mpiexec (pid 55) was killed by signal 9 (Killed)"));

    end =
        (struct launch_end){.wait_status = 1 << 8,
                            .said = "noticed that process rank 0 with PID 0 on node far "
                                    "exited on signal 15 (Terminated).",
                            .stop_signal = SIGINT};
    assert_int_equal(launch_verdict(&ranks, &end, &err), 3);
    assert_non_null(strstr(err.text, "rank 0 on far (pid 1000) was killed by signal 15"));

    struct launch_ranks none; // of a job whose hosts did not answer
    assert_ok(launch_ranks_init(&none, "/nonexistent", 2, -1, &err), err);
    struct launch_end unbegun = {
        .wait_status = SIGKILL, .said = "", .stop_signal = SIGTERM};
    assert_int_equal(launch_verdict(&none, &unbegun, &err), 3);
    assert_non_null(strstr(err.text, "stopped by SIGTERM before it had anything"));
    launch_ranks_release(&none);

    write_status(dir, 0, "failure 5 0 3 0 stopped by SIGINT before the first step\n");
    struct launch_ranks unsaved;
    assert_ok(launch_ranks_init(&unsaved, dir, 1, -1, &err), err);
    launch_ranks_look_at_all(&unsaved);
    assert_int_equal(launch_verdict(&unsaved, &end, &err), 3);
    assert_string_equal(err.text, "the job was stopped by SIGINT before the first step");
    launch_ranks_release(&unsaved);

    end.is_stop_repeated = true;
    assert_int_equal(launch_verdict(&ranks, &end, &err), 3);
    assert_non_null(strstr(err.text, "second signal"));
    launch_ranks_release(&ranks);
    assert_ok(fs_remove_tree(dir, &err), err);
    free(dir);
}

/* MPICH's daemon can be the first to ask how a rank died, and then die of it. */
static void test_launch_verdict__infers_a_signal_nobody_saw(void **state)
{
    (void)state;
    char *dir = test_make_directory();
    struct launch_ranks ranks;
    struct error err;
    write_status(dir, 0, "");
    assert_ok(launch_ranks_init(&ranks, dir, 1, -1, &err), err);
    launch_ranks_look_at_all(&ranks);
    ranks.all[0].seen_dead_ns = 5;
    struct launch_end end = {.wait_status = 255 << 8, .said = "write error"};
    assert_int_equal(launch_verdict(&ranks, &end, &err), 3);
    assert_non_null(strstr(err.text,
                           "rank 0 on far (pid 1000) was killed, it seems by "
                           "signal 9 (Killed), at step 40 (as the kernel does"));
    launch_ranks_release(&ranks);
    assert_ok(fs_remove_tree(dir, &err), err);
    free(dir);
}

static void test_launch_verdict__tells_what_would_come_again(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        enum error_kind kind;
        int code;
    } cases[] = {
        {"failure 5 0 3 0 the disk is gone\n", ERROR_RUNTIME, 3},
        {"failure 5 0 3 1 the loss is nan\n", ERROR_DIVERGED, 3},
        {"failure 5 0 2 1 bad input\n", ERROR_INPUT, 2},
        {"signal 5 11\n", ERROR_RUNTIME, 3},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *dir = test_make_directory();
        struct launch_ranks ranks;
        struct launch_end end = {.wait_status = 3 << 8, .said = ""};
        struct error err;
        write_status(dir, 0, cases[i].word);
        assert_ok(launch_ranks_init(&ranks, dir, 1, -1, &err), err);
        launch_ranks_look_at_all(&ranks);
        assert_int_equal(launch_verdict(&ranks, &end, &err), cases[i].code);
        assert_int_equal(err.kind, cases[i].kind);
        launch_ranks_release(&ranks);
        assert_ok(fs_remove_tree(dir, &err), err);
        free(dir);
    }
}

/* -- restarts ------------------------------------------------------------------------ */

static void test_launch_restart__gives_up_after_three_without_progress(void **state)
{
    (void)state;
    struct launch_restart r = {.most = 100, .newest_step = -1};
    for (int i = 0; i < 3; i++)
        assert_int_equal(launch_restart_decide(&r, -1), LAUNCH_AGAIN);
    assert_int_equal(launch_restart_decide(&r, -1), LAUNCH_LOOP);
    assert_int_equal(r.n_restarts, 3);
}

static void test_launch_restart__counts_from_the_newest_checkpoint(void **state)
{
    (void)state;
    struct launch_restart r = {.most = 100, .newest_step = 10};
    for (int i = 0; i < 3; i++)
        assert_int_equal(launch_restart_decide(&r, 10), LAUNCH_AGAIN);
    assert_int_equal(launch_restart_decide(&r, 12), LAUNCH_AGAIN); // a newer one
    assert_int_equal(launch_restart_decide(&r, 10), LAUNCH_AGAIN); // it was damaged
    assert_int_equal(launch_restart_decide(&r, 12), LAUNCH_AGAIN);
    assert_int_equal(launch_restart_decide(&r, 12), LAUNCH_LOOP);
    assert_int_equal(r.n_restarts, 6);
}

static void test_launch_restart__ends_with_the_budget_of_the_user(void **state)
{
    (void)state;
    struct launch_restart r = {.most = 5, .newest_step = -1};
    for (int step = 0; step < 5; step++)
        assert_int_equal(launch_restart_decide(&r, step), LAUNCH_AGAIN);
    assert_int_equal(launch_restart_decide(&r, 5), LAUNCH_SPENT);
    r = (struct launch_restart){.most = 0, .newest_step = -1};
    assert_int_equal(launch_restart_decide(&r, 5), LAUNCH_SPENT);
}

static void test_launch_restart__pauses_double_up_to_a_limit(void **state)
{
    (void)state;
    static const int expected[] = {1, 2, 4, 8, 16, 30, 30};
    for (size_t i = 0; i < ARRAY_LEN(expected); i++)
        assert_int_equal(launch_restart_pause((int64_t)i + 1), expected[i]);
    assert_int_equal(launch_restart_pause(1000000), 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launch_command__speaks_both_dialects),
        cmocka_unit_test(test_launch_hosts__are_names_with_numbers),
        cmocka_unit_test(test_launch_devices__count_from_zero),
        cmocka_unit_test(test_launch_check__refuses_what_cannot_run),
        cmocka_unit_test(test_pin_share__is_equal_and_disjoint),
        cmocka_unit_test(test_rank_status__tells_what_the_rank_wrote),
        cmocka_unit_test(test_rank_status__needs_whole_lines),
        cmocka_unit_test(test_launch_verdict__reads_mpiexec),
        cmocka_unit_test(test_launch_verdict__names_the_first_cause),
        cmocka_unit_test(test_launch_verdict__takes_last_words_that_no_file_took),
        cmocka_unit_test(test_launch_verdict__names_a_lost_host),
        cmocka_unit_test(test_launch_verdict__tells_of_ranks_that_do_not_begin),
        cmocka_unit_test(test_launch_verdict__knows_its_own_signals),
        cmocka_unit_test(test_launch_verdict__infers_a_signal_nobody_saw),
        cmocka_unit_test(test_launch_verdict__tells_what_would_come_again),
        cmocka_unit_test(test_launch_restart__gives_up_after_three_without_progress),
        cmocka_unit_test(test_launch_restart__counts_from_the_newest_checkpoint),
        cmocka_unit_test(test_launch_restart__ends_with_the_budget_of_the_user),
        cmocka_unit_test(test_launch_restart__pauses_double_up_to_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
