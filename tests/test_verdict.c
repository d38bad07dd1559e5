/* Why a job ended: the verdict of the launcher. */
#include "test.h"

#include "base/fs.h"
#include "launch/mpiexec.h"
#include "launch/verdict.h"

#include <limits.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

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
    end.hang = end.hang ? end.hang : "";
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
                           "signal 9 (Killed), at step 40 (the kernel, a scheduler"));
}

/* The kernel's count decides, not the signal. */
static void test_verdict__names_memory_only_where_the_kernel_counted(void **state)
{
    (void)state;
    const struct {
        enum oom_evidence oom;
        int exit_signal, exit_code;
        const char *sentence;
        bool names_memory;
    } cases[] = {
        {OOM_NONE, SIGKILL, 0, "was killed by signal 9 (Killed) at step 40 (a scheduler",
         false},
        {OOM_COUNTED, SIGKILL, 0,
         "was killed by signal 9 (Killed) at step 40, probably for lack of memory", true},
        {OOM_COUNTED, 0, 0,
         "it seems by signal 9 (Killed), at step 40, probably for lack", true},
        {OOM_COUNTED, 0, 1, "ended with exit code 1 at step 40 and gave no reason",
         false},
        {OOM_NONE, 0, 7, "ended with exit code 7 at step 40 and gave no reason", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct seen_rank rank = gone(0, 5);
        struct error err;
        struct job_end end = {.opt = &of_one, .ranks = &rank, .wait_status = 1 << 8};
        rank.oom = cases[i].oom;
        rank.exit_signal = cases[i].exit_signal;
        rank.exit_code = cases[i].exit_code;
        assert_int_equal(judge(end, &err), 3);
        if (!strstr(err.text, cases[i].sentence) ||
            (strstr(err.text, "probably") != NULL) != cases[i].names_memory)
            fail_msg("case %zu: '%s'", i, err.text);
    }
}

static void test_verdict__quotes_a_failed_start_of_mpi(void **state)
{
    (void)state;
    static const char said[] = "-----\nNo components were able to be opened.\n\n"
                               "  Host:      vm\n-----\n"
                               "[vm:7] PML ucx cannot be selected\n"
                               "[vm:7] E: NO ROOM in file a.c at line 3\n"
                               "[vm:7] E: NO ROOM in file b.c at line 44\n"
                               "[vm:7] 1 more process has sent help message x.txt\n";
    struct seen_rank rank = gone(0, 5);
    struct error err;
    struct job_end end = {
        .opt = &of_one, .ranks = &rank, .wait_status = 1 << 8, .said = said};
    rank.action = BEAT_JOIN;
    rank.peer = BEAT_EVERYBODY;
    rank.exit_code = 1;
    setenv("OMPI_MCA_test_of_words", "wrong", 1);
    assert_int_equal(judge(end, &err), 3);
    unsetenv("OMPI_MCA_test_of_words");
    assert_non_null(strstr(err.text, "rank 0 on far could not join the job: MPI_Init "
                                     "ended the process with exit code 1; "));
    assert_non_null(strstr(err.text, "OMPI_MCA_test_of_words=wrong"));
    assert_non_null(strstr(err.text, "MPI said: No components were able to be opened. "
                                     "Host: vm PML ucx cannot be selected E: NO ROOM; "
                                     "its log: "));

    rank.peer = BEAT_NOBODY; // it has joined, and died later
    assert_int_equal(judge(end, &err), 3);
    assert_non_null(strstr(err.text, "ended with exit code 1 at step 40"));
    rank.peer = BEAT_EVERYBODY;
    rank.exit_signal = SIGKILL; // it was killed in MPI_Init
    assert_int_equal(judge(end, &err), 3);
    assert_non_null(strstr(err.text, "was killed by signal 9"));
}

/* mpiexec kills ranks when one fails, and may be faster than the end of that one. */
static void test_verdict__finds_the_rank_that_mpi_ended(void **state)
{
    (void)state;
    struct seen_rank ranks[2] = {crashed(0, SIGTERM, 4), gone(1, 5)};
    struct error err;
    struct job_end end = {.opt = &of_two, .ranks = ranks, .wait_status = 1 << 8};
    for (int r = 0; r < 2; r++) {
        ranks[r].action = BEAT_JOIN;
        ranks[r].peer = BEAT_EVERYBODY;
    }
    assert_int_equal(judge(end, &err), 3);
    assert_non_null(strstr(err.text, "rank 1 on far could not join the job"));

    // both by SIGKILL: the one in whose log MPI speaks
    char *dir = test_make_directory(), path[PATH_MAX];
    snprintf(path, sizeof path, "%s/workerlog.1", dir);
    static const char log[] = "[2026-11-19 04:00:00,000] [    INFO] - rank 1 begins\n"
                              "Fatal error: MPI_Init_thread(argc=(nil)) failed\n";
    assert_ok(fs_write_atomic(path, log, sizeof log - 1, &err), err);
    ranks[0] = ranks[1];
    ranks[0].exit_signal = ranks[1].exit_signal = SIGKILL;
    end.log_dir = dir;
    assert_int_equal(judge(end, &err), 3);
    assert_non_null(strstr(err.text, "rank 1 on far could not join the job"));
    assert_non_null(strstr(err.text, "MPI said: Fatal error: MPI_Init_thread("));
    assert_null(strstr(err.text, "rank 1 begins"));
    ranks[1].oom = ranks[0].oom = OOM_COUNTED;
    assert_int_equal(judge(end, &err), 3);
    assert_non_null(strstr(err.text, "probably for lack of memory"));
    assert_ok(fs_remove_tree(dir, &err), err);
    free(dir);
}

/* The ranks' work counts, also when MPI does not let them go. */
static void test_verdict__counts_the_work_of_ranks_that_cannot_leave(void **state)
{
    (void)state;
    const struct {
        int outcomes[2], code;
        const char *sentence;
    } cases[] = {
        {{1, 1}, 0, ""},
        {{1 + 75, 1 + 75},
         75,
         "stopped by SIGTERM, and can be resumed; mpiexec is stuck"},
        {{1 + 75, 0}, 3, "mpiexec is stuck"},
        {{1, 1 + 3}, 3, "mpiexec is stuck"},
        {{0, 0}, 3, "mpiexec is stuck"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct seen_rank ranks[] = {alive(0), alive(1)};
        struct error err;
        struct job_end end = {.opt = &of_two,
                              .ranks = ranks,
                              .wait_status = SIGKILL,
                              .stop_signal = SIGTERM,
                              .is_mpiexec_killed = true,
                              .hang = "mpiexec is stuck"};
        for (int r = 0; r < 2; r++)
            ranks[r].outcome = cases[i].outcomes[r];
        assert_int_equal(judge(end, &err), cases[i].code);
        if (!strstr(err.text, cases[i].sentence))
            fail_msg("case %zu: '%s'", i, err.text);
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mpiexec__tells_of_a_death),
        cmocka_unit_test(test_verdict__names_the_first_cause),
        cmocka_unit_test(test_verdict__names_no_log_that_was_removed),
        cmocka_unit_test(test_verdict__names_a_lost_host),
        cmocka_unit_test(test_verdict__tells_of_ranks_that_do_not_begin),
        cmocka_unit_test(test_verdict__knows_its_own_signals),
        cmocka_unit_test(test_verdict__infers_a_signal_nobody_saw),
        cmocka_unit_test(test_verdict__names_memory_only_where_the_kernel_counted),
        cmocka_unit_test(test_verdict__quotes_a_failed_start_of_mpi),
        cmocka_unit_test(test_verdict__finds_the_rank_that_mpi_ended),
        cmocka_unit_test(test_verdict__counts_the_work_of_ranks_that_cannot_leave),
        cmocka_unit_test(test_verdict__tells_what_would_come_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
