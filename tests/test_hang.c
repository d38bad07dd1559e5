/* Whether a job hangs and who holds it up, from tables of what was seen. */
#include "test.h"

#include "base/clock.h"
#include "base/fs.h"

#include "launch/host_watch.h"
#include "launch/job_watch.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 4 };

static struct seen_rank computes(double quiet)
{
    return (struct seen_rank){.is_seen = true,
                              .condition = RANK_RUNS,
                              .in_condition = 1000,
                              .quiet = quiet,
                              .phase = BEAT_STEP,
                              .action = BEAT_FORWARD,
                              .step = 12,
                              .n_steps = 11,
                              .peer = BEAT_NOBODY,
                              .host = "h"};
}

static struct seen_rank waits(double quiet, int peer)
{
    struct seen_rank r = computes(quiet);
    r.action = BEAT_REDUCE;
    r.peer = peer;
    return r;
}

/* Frozen for `seconds`, while its slot may still say that it waits. */
static struct seen_rank frozen(enum rank_condition condition, double seconds, int peer)
{
    struct seen_rank r = waits(seconds + 1, peer);
    r.condition = condition;
    r.in_condition = seconds;
    return r;
}

static struct seen_rank in_phase(struct seen_rank r, enum beat_phase phase,
                                 int64_t n_steps)
{
    r.phase = phase;
    r.n_steps = n_steps;
    return r;
}

static struct seen_rank over(void)
{
    struct seen_rank r = computes(500);
    r.is_over = true;
    r.condition = RANK_GONE;
    return r;
}

static const struct hang_rule by_default = {0}, five = {.hang_timeout = 5},
                              slow = {.median_step = 30},
                              stopping = {.is_stopping = true};

/* judge RULE on n ranks, and compare: decision, first culprit (-1: none), how many. */
static void judge(const struct hang_rule *rule, int n, const struct seen_rank *ranks,
                  enum hang_decision decision, int culprit, int n_culprits)
{
    bool is_culprit[MOST];
    struct hang hang = hang_judge(ranks, n, rule, is_culprit);
    assert_true(decision == HANG_NONE || hang.seconds > 5);
    int found = 0;
    for (int i = 0; i < n; i++)
        found += is_culprit[i];
    assert_int_equal(hang.decision, decision);
    assert_int_equal(hang.culprit, culprit);
    assert_int_equal(found, n_culprits);
    assert_int_equal(hang.is_deadlock, decision == HANG_ENDS && culprit < 0);
}
#define JUDGE(rule, decision, culprit, n_culprits, ...)                                  \
    do {                                                                                 \
        const struct seen_rank ranks[] = {__VA_ARGS__};                                  \
        judge(&(rule), (int)ARRAY_LEN(ranks), ranks, decision, culprit, n_culprits);     \
    } while (0)

static void test_hang__a_job_that_makes_progress_is_left_alone(void **unused)
{
    (void)unused;
    JUDGE(by_default, HANG_NONE, -1, 0, computes(0.1), waits(500, 0));
    JUDGE(five, HANG_NONE, -1, 0, computes(4.9), waits(500, 0));
    JUDGE(five, HANG_NONE, -1, 0, computes(4.9), over());
    JUDGE(by_default, HANG_NONE, -1, 0, waits(59, 1), waits(59, 0));
}

static void test_hang__a_frozen_rank_is_named_and_ends_the_job(void **unused)
{
    static const enum rank_condition frozen_in[] = {RANK_STOPPED, RANK_UNINTERRUPTIBLE,
                                                    RANK_GONE, RANK_OUT_OF_REACH};
    (void)unused;
    for (size_t i = 0; i < ARRAY_LEN(frozen_in); i++) {
        enum rank_condition c = frozen_in[i];
        // what its slot says last does not matter
        JUDGE(five, HANG_ENDS, 1, 1, waits(9, 1), frozen(c, 5.1, 0));
        JUDGE(five, HANG_ENDS, 0, 1, frozen(c, 5.1, BEAT_NOBODY), waits(9, 0));
        JUDGE(by_default, HANG_ENDS, 2, 1, waits(70, 2), waits(70, 0), frozen(c, 61, 1));
        JUDGE(by_default, HANG_NONE, -1, 0, waits(70, 1), frozen(c, 59, 0));
    }
    // one that has waited for long and is stopped then is not blamed for the wait
    struct seen_rank late = frozen(RANK_STOPPED, 1, 0);
    late.quiet = 100;
    JUDGE(five, HANG_NONE, -1, 0, computes(1), late);
    // all that are frozen are named, and nobody else
    JUDGE(five, HANG_ENDS, 0, 2, frozen(RANK_STOPPED, 6, 1), computes(9),
          frozen(RANK_UNINTERRUPTIBLE, 6, 0));
}

static void test_hang__what_is_quiet_beside_a_frozen_rank_is_not_blamed(void **unused)
{
    (void)unused;
    JUDGE(five, HANG_NONE, -1, 0, computes(5.2), frozen(RANK_STOPPED, 4.9, 0));
    JUDGE(five, HANG_NONE, -1, 0, waits(5.2, 1), frozen(RANK_STOPPED, 4.9, 0));
}

static void test_hang__who_is_out_of_reach_may_live_while_the_job_moves(void **unused)
{
    (void)unused;
    JUDGE(five, HANG_NONE, -1, 0, computes(1), frozen(RANK_OUT_OF_REACH, 50, 0));
    JUDGE(five, HANG_ENDS, 1, 1, waits(6, 1), frozen(RANK_OUT_OF_REACH, 50, 0));
}

static void test_hang__a_rank_that_computes_is_ended_only_on_request(void **unused)
{
    struct seen_rank swapped = computes(61);
    swapped.condition = RANK_SWAPPED;
    (void)unused;
    JUDGE(by_default, HANG_NAMED, 0, 1, computes(61), waits(61, 0));
    JUDGE(by_default, HANG_NAMED, 0, 1, swapped, waits(61, 0));
    JUDGE(stopping, HANG_NAMED, 0, 1, computes(61), waits(61, 0));
    JUDGE(five, HANG_ENDS, 0, 1, computes(5.1), waits(61, 0));
    JUDGE(slow, HANG_NONE, -1, 0, computes(299), waits(299, 0));
    JUDGE(slow, HANG_NAMED, 0, 1, computes(301), waits(301, 0));
}

static void test_hang__ranks_that_wait_for_each_other_end_the_job(void **unused)
{
    struct seen_rank unseen = {0};
    (void)unused;
    JUDGE(by_default, HANG_ENDS, -1, 0, waits(61, 1), waits(62, 0));
    JUDGE(five, HANG_ENDS, -1, 0, waits(6, 1), waits(6, BEAT_EVERYBODY));
    JUDGE(five, HANG_ENDS, -1, 0, waits(6, 1), over());
    JUDGE(five, HANG_NONE, -1, 0, waits(6, 1), waits(4, 0));
    JUDGE(five, HANG_NONE, -1, 0, waits(6, 1), unseen); // it may still begin
    JUDGE(five, HANG_NONE, -1, 0, over(), over());
}

static void test_hang__phases_have_bounds_of_their_own(void **unused)
{
    (void)unused;
    struct seen_rank saves = in_phase(frozen(RANK_STOPPED, 599, 0), BEAT_SAVE, 3);
    JUDGE(by_default, HANG_NONE, -1, 0, saves, waits(599, 0));
    JUDGE(five, HANG_ENDS, 0, 1, saves, waits(599, 0));
    // until the first step is through only the bound of the start holds
    struct seen_rank first = in_phase(frozen(RANK_STOPPED, 299, 0), BEAT_STEP, 0);
    JUDGE(by_default, HANG_NONE, -1, 0, first, waits(299, 0));
    first.quiet = first.in_condition = 301;
    JUDGE(by_default, HANG_ENDS, 0, 1, first, waits(301, 0));
    // a given bound holds at once for what is frozen, not for what begins slowly
    struct seen_rank begins = in_phase(computes(20), BEAT_START, 0);
    JUDGE(five, HANG_NONE, -1, 0, begins, in_phase(waits(20, 0), BEAT_START, 0));
    JUDGE(five, HANG_ENDS, 1, 1, begins,
          in_phase(frozen(RANK_STOPPED, 6, BEAT_EVERYBODY), BEAT_START, 0));
    begins.quiet = 61;
    JUDGE(five, HANG_ENDS, 0, 1, begins, in_phase(waits(61, 0), BEAT_START, 0));
}

static void test_hang__a_stop_shortens_every_bound(void **unused)
{
    (void)unused;
    struct seen_rank saves = in_phase(frozen(RANK_STOPPED, 31, 0), BEAT_SAVE, 3);
    JUDGE(stopping, HANG_ENDS, 0, 1, saves, waits(40, 0));
    JUDGE(stopping, HANG_ENDS, -1, 0, waits(31, 1), waits(31, 0));
    // a disk may be slow, and the checkpoint of a stop is worth waiting for
    saves.condition = RANK_UNINTERRUPTIBLE;
    JUDGE(stopping, HANG_NONE, -1, 0, saves, waits(40, 0));
    saves.quiet = saves.in_condition = 121;
    JUDGE(stopping, HANG_ENDS, 0, 1, saves, waits(121, 0));
}

static void test_hang__sentences_and_table_say_who_and_what(void **unused)
{
    struct seen_rank ranks[] = {waits(6, 1), frozen(RANK_STOPPED, 6, 0),
                                frozen(RANK_UNINTERRUPTIBLE, 7, BEAT_EVERYBODY), over()};
    bool is_culprit[MOST];
    char text[512], *table = NULL;
    size_t n;
    (void)unused;
    struct hang hang = hang_judge(ranks, MOST, &five, is_culprit);
    hang_sentence(text, sizeof text, ranks, MOST, &hang, is_culprit);
    assert_string_equal(text, "rank 1 on h is stopped, rank 2 on h is uninterruptible "
                              "(disk or network file system)");
    hang_sentence(text, 20, ranks, MOST, &hang, is_culprit); // cut, not overrun
    assert_int_equal(strlen(text), 19);
    FILE *out = open_memstream(&table, &n);
    hang_table(out, ranks, MOST);
    fclose(out);
    assert_non_null(
        strstr(table, "sum over ranks       rank 1     running         6.0 s\n"));
    assert_non_null(strstr(table, "all        uninterruptible 8.0 s\n"));
    assert_non_null(strstr(table, "has ended\n"));
    free(table);
    struct seen_rank both[] = {waits(6, 1), waits(6, 0)};
    hang = hang_judge(both, 2, &five, is_culprit);
    hang_sentence(text, sizeof text, both, 2, &hang, is_culprit);
    assert_string_equal(text, "all ranks wait for each other");
}

/* -- what is seen -------------------------------------------------------------------- */

/* A child with a slot in the file at `path`, as rank 1 of 2, that does as told. */
static pid_t start_child(const char *path, void (*run)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        struct error err;
        setpgid(0, 0);
        if (!beat_open(path, 1, 2, &err))
            _exit(1);
        beat_set_hang_timeout(7);
        beat_step(3);
        run();
        _exit(0);
    }
    return pid;
}

static void look_until(struct host_watch *hw, struct seen_rank *seen,
                       enum rank_condition condition)
{
    for (int i = 0; i < 600; i++) {
        host_watch_look(hw, seen);
        if (seen[1].is_seen && seen[1].condition == condition && seen[1].quiet > 0.3)
            return;
        usleep(50000);
    }
    fail_msg("condition %d was not seen", (int)condition);
}

static void sleep_long(void)
{
    beat_wait(BEAT_RECEIVE, 0);
    sleep(60);
}

/* The parent of a vfork() sleeps uninterruptibly until the child is done. */
static void sleep_in_kernel(void)
{
    pid_t pid = vfork();
    if (pid == 0) {
        sleep(60);
        _exit(0);
    }
}

static void watch_child(void (*run)(void), int signal_number, enum rank_condition wanted)
{
    struct host_watch hw;
    struct seen_rank seen[2] = {{0}};
    struct error err;
    char path[64];
    snprintf(path, sizeof path, "/tmp/trefoil-test-beat.%d", (int)getpid());
    assert_int_equal(host_watch_open(&hw, path, 2, &err), 0);
    pid_t pid = start_child(path, run);
    look_until(&hw, seen, wanted == RANK_UNINTERRUPTIBLE ? wanted : RANK_RUNS);
    assert_false(seen[0].is_seen);
    assert_int_equal(seen[1].step, 3);
    assert_int_equal((int)host_watch_timeout(&hw), 7);
    if (signal_number)
        kill(pid, signal_number);
    look_until(&hw, seen, wanted);
    assert_int_equal(host_watch_any_alive(&hw), wanted != RANK_GONE);
    host_watch_kill(&hw);
    kill(-pid, SIGKILL);
    waitpid(pid, NULL, 0);
    host_watch_close(&hw);
    assert_false(fs_exists(path));
}

/* A rank may be in another control group than who watches. */
static void test_watch__does_not_rule_out_a_kill_in_another_group(void **unused)
{
    struct host_watch hw;
    struct seen_rank seen[2] = {{0}};
    struct error err;
    char path[64];
    (void)unused;
    snprintf(path, sizeof path, "/tmp/trefoil-test-beat.%d", (int)getpid());
    assert_int_equal(host_watch_open(&hw, path, 2, &err), 0);
    hw.machine_oom_kills--; // one more by now
    pid_t pid = start_child(path, sleep_long);
    look_until(&hw, seen, RANK_RUNS);
    kill(pid, SIGKILL);
    look_until(&hw, seen, RANK_GONE);
    waitpid(pid, NULL, 0);
    host_watch_close(&hw);
    assert_int_equal(seen[1].oom, OOM_UNKNOWN);
}

static void test_watch__a_stopped_rank_is_seen(void **unused)
{
    (void)unused;
    watch_child(sleep_long, SIGSTOP, RANK_STOPPED);
}

static void test_watch__a_rank_that_is_gone_is_seen(void **unused)
{
    (void)unused;
    watch_child(sleep_long, SIGKILL, RANK_GONE);
}

static void test_watch__an_uninterruptible_rank_is_seen(void **unused)
{
    (void)unused;
    watch_child(sleep_in_kernel, 0, RANK_UNINTERRUPTIBLE);
}

static void test_watch__progress_of_any_thread_ends_the_quiet(void **unused)
{
    struct error err;
    char path[64];
    (void)unused;
    snprintf(path, sizeof path, "/tmp/trefoil-test-beat.%d", (int)getpid());
    struct host_watch hw;
    struct seen_rank seen[2] = {{0}};
    assert_int_equal(host_watch_open(&hw, path, 2, &err), 0);
    assert_non_null(beat_open(path, 0, 2, &err));
    host_watch_look(&hw, seen);
    usleep(20000);
    host_watch_look(&hw, seen);
    assert_true(seen[0].quiet > 0.01);
    beat_aside();
    host_watch_look(&hw, seen);
    assert_true(seen[0].quiet == 0);
    beat_over();
    host_watch_look(&hw, seen);
    assert_true(seen[0].is_over);
    host_watch_close(&hw);
}

/* -- what other hosts tell ----------------------------------------------------------- */

/* A server of 2 ranks, and a reporter of rank 1 that has its contact; with another token
 * where told so. */
static void open_link(struct watch_server *server, struct watch_reporter *reporter,
                      bool knows_token)
{
    struct error err;
    char contact[WATCH_CONTACT_BYTES];
    assert_int_equal(watch_server_open(server, 2, contact, &err), 0);
    assert_true(strlen(contact) > 32);
    contact[0] = knows_token ? contact[0] : 'x';
    watch_reporter_init(reporter, contact);
}

static void close_link(struct watch_server *server, struct watch_reporter *reporter)
{
    close(reporter->fd);
    watch_server_close(server);
}

static void test_link__a_report_arrives_and_the_end_comes_back(void **unused)
{
    struct watch_server server;
    struct watch_reporter reporter;
    struct seen_rank here[2] = {{0}, frozen(RANK_STOPPED, 6, 0)}, seen[2] = {{0}};
    bool is_end = false;
    (void)unused;
    here[1].pid = 4711;
    here[1].state = BEAT_FAILED;
    here[1].code = 2;
    here[1].said_ns = 123456789012345678;
    here[1].reason = "cannot read 'x y'";
    here[1].is_lasting = true;
    open_link(&server, &reporter, true);
    for (int i = 0; i < 1200 && !is_end; i++) {
        is_end = watch_reporter_tick(&reporter, here, 2, 5, false) == WATCH_END;
        watch_server_serve(&server, seen[1].is_seen ? WATCH_END : WATCH_ON, seen);
        usleep(10000);
    }
    assert_true(is_end);
    assert_false(seen[0].is_seen);
    assert_int_equal(seen[1].condition, RANK_STOPPED);
    assert_true(seen[1].in_condition >= 6 && seen[1].step == 12 && seen[1].peer == 0);
    assert_true(strlen(seen[1].host) > 0 && (int)server.hang_timeout == 5);
    assert_true(seen[1].pid == 4711 && seen[1].state == BEAT_FAILED && seen[1].code == 2);
    assert_true(seen[1].said_ns == 123456789012345678 && seen[1].is_lasting);
    assert_string_equal(seen[1].reason, "cannot read 'x y'");
    close_link(&server, &reporter);
}

static void test_link__who_does_not_know_the_token_is_not_heard(void **unused)
{
    struct watch_server server;
    struct watch_reporter reporter;
    struct seen_rank here[2] = {{0}, computes(0)}, seen[2] = {{0}};
    (void)unused;
    open_link(&server, &reporter, false);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(watch_reporter_tick(&reporter, here, 2, 5, true), WATCH_ON);
        watch_server_serve(&server, WATCH_END, seen);
        assert_false(seen[1].is_seen);
        usleep(10000);
    }
    close_link(&server, &reporter);
}

static void test_link__a_pause_is_no_silence(void **unused)
{
    struct seen_rank seen[2] = {{0}};
    char contact[WATCH_CONTACT_BYTES];
    struct error err;
    struct job_watch w = {0};
    (void)unused;
    assert_int_equal(watch_server_open(&w.others, 2, contact, &err), 0);
    w.paused_at = clock_seconds() - 1000;
    for (int r = 0; r < 2; r++)
        w.others.ranks[r] = (struct reported_rank){
            .host = strdup("far"), .seen = computes(0), .at = w.paused_at - 100};
    w.others.ranks[1].at = w.paused_at + 1;
    job_watch_continue(&w);
    assert_true(watch_server_serve(&w.others, WATCH_ON, seen));
    assert_true(seen[0].quiet >= 100 && seen[0].quiet < 1000);
    assert_true(seen[1].quiet >= 0 && seen[1].quiet < 900);
    watch_server_close(&w.others);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hang__a_job_that_makes_progress_is_left_alone),
        cmocka_unit_test(test_hang__a_frozen_rank_is_named_and_ends_the_job),
        cmocka_unit_test(test_hang__what_is_quiet_beside_a_frozen_rank_is_not_blamed),
        cmocka_unit_test(test_hang__who_is_out_of_reach_may_live_while_the_job_moves),
        cmocka_unit_test(test_hang__a_rank_that_computes_is_ended_only_on_request),
        cmocka_unit_test(test_hang__ranks_that_wait_for_each_other_end_the_job),
        cmocka_unit_test(test_hang__phases_have_bounds_of_their_own),
        cmocka_unit_test(test_hang__a_stop_shortens_every_bound),
        cmocka_unit_test(test_hang__sentences_and_table_say_who_and_what),
        cmocka_unit_test(test_watch__does_not_rule_out_a_kill_in_another_group),
        cmocka_unit_test(test_watch__a_stopped_rank_is_seen),
        cmocka_unit_test(test_watch__a_rank_that_is_gone_is_seen),
        cmocka_unit_test(test_watch__an_uninterruptible_rank_is_seen),
        cmocka_unit_test(test_watch__progress_of_any_thread_ends_the_quiet),
        cmocka_unit_test(test_link__a_report_arrives_and_the_end_comes_back),
        cmocka_unit_test(test_link__who_does_not_know_the_token_is_not_heard),
        cmocka_unit_test(test_link__a_pause_is_no_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
