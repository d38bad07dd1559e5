#include "test.h"

#include "base/beat.h"
#include "base/fs.h"
#include "launch/launch_devices.h"
#include "launch/mpiexec.h"

#include "launch/restart.h"
#include "launch/verdict.h"
#include "launch/worker.h"

#include <limits.h>
#include <signal.h>
#include <sys/wait.h>
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

static void test_launch_devices__are_indices_that_come_once(void **state)
{
    (void)state;
    static const struct {
        const char *devices;
        int64_t n;
        const char *words; // of the error
    } cases[] = {
        {"0", 1, NULL},
        {"0,1,2,3", 4, NULL},
        {"0, 1", 2, NULL},
        {"1", 1, NULL},
        {"1,3", 2, NULL},
        {" 3 ,1", 2, NULL},
        {"99999", 1, NULL},
        {"", -1, "number 1 of the list, '', is not an index"},
        {"0,,1", -1, "number 2 of the list, '', is not an index"},
        {"0,0", -1, "number 2 of the list, '0', is there twice"},
        {"1,3,01", -1, "number 3 of the list, '01', is there twice"},
        {"0,", -1, "number 2 of the list, '', is not an index"},
        {"0 1", -1, "'0 1', is not an index"},
        {"0,x", -1, "'x', is not an index"},
        {"0,-1", -1, "'-1', is not an index"},
        {"0;1", -1, "'0;1', is not an index"},
        {"100000", -1, "'100000', is not an index from 0 to 99999"},
        {"0,99999999999999999999", -1, "is not an index"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err;
        assert_int_equal(launch_devices_count(cases[i].devices, &err), cases[i].n);
        if (cases[i].words)
            assert_non_null(strstr(err.text, cases[i].words));
    }
}

static void test_launch_devices__count_among_those_that_are_visible(void **state)
{
    (void)state;
    static const struct {
        const char *devices, *visible, *list; // NULL: an error
    } cases[] = {
        {"0,1", NULL, "0,1"},    {" 3 , 1", NULL, "3,1"},
        {"1,0", "4,5,6", "5,4"}, {"2", "GPU-a, GPU-b ,MIG-c", "MIG-c"},
        {"1,3", "4,5,6", NULL},  {"0", "", NULL},
        {"1", "0,,2", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err;
        char list[64];
        int rc = launch_devices_visible(cases[i].devices, cases[i].visible, list,
                                        sizeof list, &err);
        assert_int_equal(rc, cases[i].list ? 0 : -1);
        if (cases[i].list)
            assert_string_equal(list, cases[i].list);
        else
            assert_non_null(strstr(err.text, "CUDA_VISIBLE_DEVICES is '"));
    }
    struct error err;
    char small[4];
    assert_int_equal(launch_devices_visible("10,11", NULL, small, sizeof small, &err),
                     -1);
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

/* -- the verdict --------------------------------------------------------------------- */

static void test_mpiexec__tells_of_a_death(void **state)
{
    (void)state;
    int rank, pid, number;
    char host[256];
    mpiexec_told_death("x\nmpirun noticed that process rank 12 with PID 0 on node vm "
                       "exited on signal 11 (Segmentation fault).\n",
                       &rank, &pid, host, &number);
    assert_int_equal(rank, 12);
    assert_int_equal(number, 11);
    mpiexec_told_death(
        "===\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
        "=   PID 4711 RUNNING AT node7\n=   EXIT CODE: 9\n=   CLEANING UP\n",
        &rank, &pid, host, &number);
    assert_int_equal(rank, -1);
    assert_int_equal(pid, 4711);
    assert_string_equal(host, "node7");
    mpiexec_told_death("", &rank, &pid, host, &number);
    assert_true(rank == -1 && pid == -1 && host[0] == '\0' && number == 0);
}

/* Rank r of another machine, as its watcher told. */
static struct seen_rank alive(int r)
{
    return (struct seen_rank){
        .is_seen = true, .host = "far", .pid = 1000 + r, .step = 40 + r};
}

static struct seen_rank ended(int r, int code, int64_t at)
{
    struct seen_rank s = alive(r);
    s.state = BEAT_ENDED;
    s.is_over = true;
    s.code = code;
    s.said_ns = at;
    return s;
}

static struct seen_rank failed(int r, int code, bool is_lasting, int64_t at,
                               const char *reason)
{
    struct seen_rank s = ended(r, code, at);
    s.state = BEAT_FAILED;
    s.reason = reason;
    s.is_lasting = is_lasting;
    return s;
}

static struct seen_rank crashed(int r, int signal_number, int64_t at)
{
    struct seen_rank s = ended(r, signal_number, at);
    s.state = BEAT_CRASHED;
    return s;
}

static struct seen_rank gone(int r, int64_t at)
{
    struct seen_rank s = alive(r);
    s.condition = RANK_GONE;
    s.said_ns = at;
    return s;
}

static const struct launch_options of_one = {.n_ranks = 1}, of_two = {.n_ranks = 2};

/* The verdict on `end`, of ranks whose logs are in the current directory. */
static int judge(struct job_end end, struct error *err)
{
    end.log_dir = end.log_dir ? end.log_dir : ".";
    end.host = "near";
    end.said = end.said ? end.said : "";
    end.hang = "";
    *err = (struct error){.text = ""};
    return verdict(&end, err);
}

struct verdict_case {
    struct seen_rank ranks[2];
    int exit_code; // of mpiexec
    const char *said;
    int code; // of the verdict
    const char *sentence;
};

static void judge_cases(const struct verdict_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct error err;
        struct job_end end = {.opt = &of_two,
                              .ranks = cases[i].ranks,
                              .wait_status = cases[i].exit_code << 8,
                              .said = cases[i].said};
        assert_int_equal(judge(end, &err), cases[i].code);
        if (!strstr(err.text, cases[i].sentence))
            fail_msg("case %zu: '%s' is not in '%s'", i, cases[i].sentence, err.text);
    }
}

static void test_verdict__names_the_first_cause(void **state)
{
    (void)state;
    const struct verdict_case cases[] = {
        {{ended(0, 0, 5), ended(1, 0, 6)}, 0, "", 0, ""},
        {{ended(0, 75, 5), ended(1, 75, 6)}, 0, "", 75, "can be resumed"},
        {{ended(0, 0, 5), alive(1)}, 0, "", 3, "rank 1 ended before its work was done"},
        {{ended(0, 0, 5), {0}},
         0,
         "",
         3,
         "rank 1 was not heard of: its host must be able"},
        {{ended(0, 0, 5), ended(1, 0, 6)},
         1,
         "boom",
         3,
         "mpiexec ended with code 1; it said:\nboom"},
        {{failed(0, 3, false, 9, "late"), failed(1, 2, true, 5, "early")},
         3,
         "",
         2,
         "rank 1 on far failed at step 41: early; its log: "},
        // of one host only the first has a reason, whatever the clock says
        {{failed(0, 3, false, 5, "the first"), failed(1, 3, false, 4, NULL)},
         3,
         "",
         3,
         "rank 0 on far failed at step 40: the first; its log: "},
        {{failed(0, 3, false, 5,
                 "rank 1 on near: rank 1 on near, the first of 2: agreed"),
          failed(1, 3, false, 6, "rank 1 on near: rank 1 on near: agreed")},
         3,
         "",
         3,
         "rank 1 on near failed at step 40: agreed; its log: "},
        {{failed(0, 3, false, 5, "rank 1 on near, the first of 2 that failed: agreed"),
          alive(1)},
         3,
         "",
         3,
         "rank 1 on near failed at step 40: agreed; its log: "},
        {{failed(0, 3, false, 5,
                 "cannot save 'x': rank 1 on near: the disk is full; rank 0 too"),
          alive(1)},
         3,
         "",
         3,
         "rank 1 on near failed at step 40: cannot save 'x': the disk is full; rank 0 "
         "too; its log: "},
        {{alive(0), crashed(1, SIGSEGV, 5)},
         139,
         "",
         3,
         "rank 1 on far (pid 1001) was ended by signal 11"},
        {{failed(0, 3, false, 5, "peer is gone"), gone(1, 6)},
         137,
         "mpirun noticed that process rank 1 with PID 0 on node far exited on signal 9 "
         "(Killed).",
         3,
         "rank 1 on far (pid 1001) was killed by signal 9 (Killed) at step 41"},
        {{failed(0, 3, false, 5, "peer is gone"), gone(1, 6)},
         9,
         "=   PID 1001 RUNNING AT far\n",
         3,
         "rank 1 on far (pid 1001) was killed, it seems by signal 9 (Killed), at step "
         "41"},
        {{alive(0), alive(1)},
         255,
         "APPLICATION PROCESSES: BAD",
         3,
         "mpiexec ended with code 255; it said:"},
    };
    judge_cases(cases, ARRAY_LEN(cases));
}

static void test_verdict__names_no_log_that_was_removed(void **state)
{
    (void)state;
    const struct seen_rank ranks[] = {failed(0, 3, false, 5, "the disk is full"),
                                      failed(1, 3, false, 9, NULL)};
    struct error err;
    struct job_end end = {
        .opt = &of_two, .ranks = ranks, .log_dir = "/nonexistent", .wait_status = 3 << 8};
    assert_int_equal(judge(end, &err), 3);
    assert_string_equal(err.text, "rank 0 on far failed at step 40: the disk is full");
}

static void test_verdict__names_a_lost_host(void **state)
{
    (void)state;
    static const char lost[] =
        "----\nORTE has lost communication with a remote daemon.\n\n"
        "  HNP daemon   : [[1,0],0] on node near\n"
        "  Remote daemon: [[1,0],1] on node far\n\n"
        "This is usually due to either a failure of the TCP network\n----\n";
    struct seen_rank ranks[] = {alive(0), alive(1)};
    struct error err;
    ranks[0].condition = ranks[1].condition = RANK_OUT_OF_REACH;
    struct job_end end = {
        .opt = &of_two, .ranks = ranks, .wait_status = 1 << 8, .said = lost};
    assert_int_equal(judge(end, &err), 3);
    assert_non_null(strstr(err.text, "host far was lost with rank 0, 1: "));
    assert_non_null(strstr(err.text, "mpiexec said: ORTE has lost communication"));
    assert_null(strstr(err.text, "usually"));
    ranks[0] = gone(0, 5); // by mpirun, after the host was lost
    ranks[0].host = "near";
    ranks[0].exit_signal = SIGKILL;
    assert_int_equal(judge(end, &err), 3);
    assert_non_null(strstr(err.text, "host far was lost with rank 1: "));
}

static void test_verdict__tells_of_ranks_that_do_not_begin(void **state)
{
    (void)state;
    static const struct launch_options opt = {.n_ranks = 2, .hosts = "near,far"};
    const struct seen_rank ranks[2] = {{0}};
    struct error err;
    struct job_end end = {.opt = &opt,
                          .ranks = ranks,
                          .wait_status = SIGKILL,
                          .said = "ssh: connect to host far port 22: refused\n",
                          .is_mpiexec_killed = true,
                          .is_unbegun = true};
    assert_int_equal(judge(end, &err), 3);
    assert_string_equal(err.text,
                        "no rank began on far; mpiexec said: ssh: connect to host far "
                        "port 22: refused; see that 'ssh far true' works by itself");
}

static void test_verdict__knows_its_own_signals(void **state)
{
    (void)state;
    const struct seen_rank here[] = {alive(0)}, killed[] = {crashed(0, SIGTERM, 5)};
    const struct seen_rank none[] = {{0}};
    const struct seen_rank unsaved[] = {
        failed(0, 3, false, 5, "stopped by SIGINT before the first step")};
    struct error err;
    struct job_end end = {
        .opt = &of_one, .ranks = here, .wait_status = SIGKILL, .mpiexec = 55};
    assert_int_equal(judge(end, &err), 3);
    assert_non_null(strstr(err.text, "mpiexec (pid 55) was killed by signal 9 (Killed)"));

    end = (struct job_end){
        .opt = &of_one, .ranks = killed, .wait_status = 1 << 8, .stop_signal = SIGINT};
    assert_int_equal(judge(end, &err), 3);
    assert_non_null(strstr(err.text, "rank 0 on far (pid 1000) was killed by signal 15"));

    end.ranks = unsaved;
    assert_int_equal(judge(end, &err), 3);
    assert_string_equal(err.text, "the job was stopped by SIGINT before the first step");

    end.ranks = here;
    end.is_stop_repeated = true;
    assert_int_equal(judge(end, &err), 3);
    assert_non_null(strstr(err.text, "second signal"));

    // a job whose hosts did not answer
    end = (struct job_end){
        .opt = &of_one, .ranks = none, .wait_status = SIGKILL, .stop_signal = SIGTERM};
    assert_int_equal(judge(end, &err), 3);
    assert_non_null(strstr(err.text, "stopped by SIGTERM before it had anything"));
}

/* Who started a rank can be the first to ask how it died. */
static void test_verdict__infers_a_signal_nobody_saw(void **state)
{
    (void)state;
    const struct seen_rank ranks[] = {gone(0, 5)};
    struct error err;
    struct job_end end = {
        .opt = &of_one, .ranks = ranks, .wait_status = 255 << 8, .said = "write error"};
    assert_int_equal(judge(end, &err), 3);
    assert_non_null(strstr(err.text,
                           "rank 0 on far (pid 1000) was killed, it seems by "
                           "signal 9 (Killed), at step 40 (as the kernel does"));
}

static void test_verdict__tells_what_would_come_again(void **state)
{
    (void)state;
    const struct {
        struct seen_rank rank;
        enum error_kind kind;
        int code;
    } cases[] = {
        {failed(0, 3, false, 5, "the disk is gone"), ERROR_RUNTIME, 3},
        {failed(0, 3, true, 5, "the loss is nan"), ERROR_DIVERGED, 3},
        {failed(0, 2, true, 5, "bad input"), ERROR_INPUT, 2},
        {crashed(0, SIGSEGV, 5), ERROR_RUNTIME, 3},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err;
        struct job_end end = {
            .opt = &of_one, .ranks = &cases[i].rank, .wait_status = 3 << 8};
        assert_int_equal(judge(end, &err), cases[i].code);
        assert_int_equal(err.kind, cases[i].kind);
    }
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
        cmocka_unit_test(test_launch_devices__are_indices_that_come_once),
        cmocka_unit_test(test_launch_devices__count_among_those_that_are_visible),
        cmocka_unit_test(test_launch_check__refuses_what_cannot_run),
        cmocka_unit_test(test_worker_share__is_equal_and_disjoint),
        cmocka_unit_test(test_beat__tells_the_first_word_of_a_rank),
        cmocka_unit_test(test_mpiexec__tells_of_a_death),
        cmocka_unit_test(test_verdict__names_the_first_cause),
        cmocka_unit_test(test_verdict__names_no_log_that_was_removed),
        cmocka_unit_test(test_verdict__names_a_lost_host),
        cmocka_unit_test(test_verdict__tells_of_ranks_that_do_not_begin),
        cmocka_unit_test(test_verdict__knows_its_own_signals),
        cmocka_unit_test(test_verdict__infers_a_signal_nobody_saw),
        cmocka_unit_test(test_verdict__tells_what_would_come_again),
        cmocka_unit_test(test_restart__gives_up_after_three_without_progress),
        cmocka_unit_test(test_restart__counts_from_the_newest_checkpoint),
        cmocka_unit_test(test_restart__ends_with_the_budget_of_the_user),
        cmocka_unit_test(test_restart__pauses_double_up_to_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
