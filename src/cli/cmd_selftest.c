/*
 * trefoil selftest - on this machine, does a layout change the result?
 *
 * Trains a tiny model on one process, then under each layout (one process again, if it is
 * in the list), and compares. A row says how far the losses are apart and whether that
 * keeps what the layout promises; the exit code is 0 only if all do.
 */
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/philox.h"
#include "base/stop.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "cli/selftest_kernels.h"
#include "cli/selftest_layout.h"
#include "comm/comm.h"
#include "data/formats/dataset_writer.h"
#include "device/kernel_sets.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LAYOUTS_MOST 64
#define LAYOUTS_DEFAULT                                                                  \
    "1, recompute, pp2, pp3, pp2 v2, pp2 fthenb, dp2, sh2, sh2 stage2, sh2 stage3, "     \
    "mp2, "                                                                              \
    "dp2 mp2, dp2 mp2 pp2, sh2 stage3 pp2 recompute"

struct selftest { // everything lies in one temporary directory
    char dir[1024];
    int64_t n_steps;
    enum kernel_set cpu_kernels;
    int64_t n_runs; // so far; each has its directory and its log
};

/* -- what is trained ----------------------------------------------------------------- */

#define VOCABULARY 101 // no degree divides it
#define DOCUMENTS 40
#define DOCUMENT_TOKENS 90

/* Sizes that many degrees divide: 12 layers, heads and samples. Dropout is on. */
static const char config_text[] = "PreTraining:\n"
                                  "  seed: 1024\n"
                                  "  eval_freq: 0\n"
                                  "  batch_size:\n"
                                  "    global_batch_size: 12\n"
                                  "    micro_batch_size: 1\n"
                                  "  dataset:\n"
                                  "    input_dir: corpus\n"
                                  "    split: '1,0,0'\n"
                                  "    max_seq_len: 16\n"
                                  "  save_load:\n"
                                  "    save_steps: 0\n"
                                  "  Model:\n"
                                  "    vocab_size: 101\n"
                                  "    hidden_size: 48\n"
                                  "    num_layers: 12\n"
                                  "    num_attention_heads: 12\n"
                                  "    hidden_dropout_prob: 0.1\n"
                                  "    attention_probs_dropout_prob: 0.1\n"
                                  "    max_position_embeddings: 16\n"
                                  "  Optimizer:\n"
                                  "    lr:\n"
                                  "      warmup_rate: 0.01\n"
                                  "      decay_steps: 100\n"
                                  "      max_lr: 2.0e-3\n"
                                  "      min_lr: 1.0e-4\n";

/* Tokens that follow from the one before, but for one in four: there is something to
 * learn. */
static int write_corpus(const char *dir, struct error *err)
{
    char prefix[2048];
    struct dataset_writer *w = NULL;
    struct dataset_meta meta = {
        .tokenizer = "none", .vocab_size = VOCABULARY, .eos_token_id = VOCABULARY - 1};
    struct philox_key key = philox_key(7, PHILOX_SAMPLE_TOKEN, 0);
    int32_t tokens[DOCUMENT_TOKENS];
    uint32_t drawn = 0, token = 0;
    if (fs_join(prefix, sizeof prefix, dir, "corpus/words", err))
        return -1;
    int rc = dataset_writer_open(&w, prefix, DATASET_MEGATRON, VOCABULARY, err);
    for (int d = 0; d < DOCUMENTS && rc == 0; d++) {
        for (int i = 0; i < DOCUMENT_TOKENS; i++, drawn++) {
            float u = philox_uniform(key, drawn, 0);
            token = u < 0.25F ? (uint32_t)(u * 4 * VOCABULARY) : token * 7 + 3;
            tokens[i] = (int32_t)(token %= VOCABULARY);
        }
        rc = dataset_writer_append(w, tokens, DOCUMENT_TOKENS, err);
        if (rc == 0)
            rc = dataset_writer_end_document(w, err);
    }
    if (rc == 0)
        rc = dataset_writer_commit(w, &meta, err);
    dataset_writer_close(w);
    return rc;
}

static int selftest_open(struct selftest *st, struct error *err)
{
    char path[2048];
    const char *tmp = getenv("TMPDIR");
    int n = snprintf(st->dir, sizeof st->dir, "%s/trefoil-selftest-XXXXXX",
                     tmp && *tmp ? tmp : "/tmp");
    if (n >= (int)sizeof st->dir || !mkdtemp(st->dir)) {
        error_set(err, ERROR_RUNTIME, "cannot make a directory '%s': %s", st->dir,
                  n >= (int)sizeof st->dir ? "its name is too long" : strerror(errno));
        st->dir[0] = 0;
        return -1;
    }
    if (fs_join(path, sizeof path, st->dir, "config.yaml", err) ||
        fs_write_atomic(path, config_text, sizeof config_text - 1, err))
        return -1;
    return write_corpus(st->dir, err);
}

static void selftest_close(struct selftest *st)
{
    struct error ignored;
    if (st->dir[0] && fs_remove_tree(st->dir, &ignored))
        fprintf(stderr, "%s\n", ignored.text);
    st->dir[0] = 0;
}

/* -- its command line ---------------------------------------------------------------- */

#define WORDS_MOST 48

struct command_line {
    char text[2048]; // the words, each with its NUL
    size_t used;
    char *words[WORDS_MOST];
    int n_words;
};

static void add_word(struct command_line *line, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void add_word(struct command_line *line, const char *fmt, ...)
{
    va_list args;
    size_t left = sizeof line->text - line->used;
    va_start(args, fmt);
    int n = vsnprintf(line->text + line->used, left, fmt, args);
    va_end(args);
    CHECK(n >= 0 && (size_t)n < left && line->n_words + 1 < WORDS_MOST, "%d words",
          line->n_words);
    line->words[line->n_words++] = line->text + line->used;
    line->used += (size_t)n + 1;
}

static void add_setting(struct command_line *line, const char *key, int64_t value)
{
    add_word(line, "-o");
    add_word(line, "%s=%lld", key, (long long)value);
}

/* The words are relative to the directory of the self-test. */
static void build_command(struct command_line *line, const struct selftest *st,
                          const struct selftest_layout *layout)
{
    int64_t n = selftest_layout_processes(layout);
    *line = (struct command_line){0};
    add_word(line, "trefoil");
    if (n > 1) {
        add_word(line, "launch");
        add_word(line, "-n");
        add_word(line, "%lld", (long long)n);
        add_word(line, "--log_dir");
        add_word(line, "run%lld/log", (long long)st->n_runs);
        add_word(line, "--oversubscribe"); // its models are small
    }
    add_word(line, "pretrain");
    add_word(line, "-c");
    add_word(line, "config.yaml");
    add_setting(line, "max_steps", st->n_steps);
    add_setting(line, "num_threads", layout->threads);
    add_word(line, "-o");
    add_word(line, "cpu_kernels=%s", kernel_set_name(st->cpu_kernels));
    add_setting(line, "Distributed.dp_degree", layout->dp);
    add_setting(line, "Distributed.mp_degree", layout->mp);
    add_setting(line, "Distributed.pp_degree", layout->pp);
    add_setting(line, "Distributed.virtual_pp_degree", layout->chunks);
    add_setting(line, "Distributed.sharding.sharding_degree", layout->sharding);
    add_setting(line, "Distributed.sharding.sharding_stage", layout->stage);
    add_word(line, "-o");
    add_word(line, "use_recompute=%s", layout->recompute ? "True" : "False");
    add_word(line, "-o");
    add_word(line, "Distributed.pp_schedule=%s", layout->f_then_b ? "F-then-B" : "1F1B");
    add_word(line, "-o");
    add_word(line, "Distributed.sequence_parallel=%s",
             layout->sequence_parallel ? "True" : "False");
    add_word(line, "-o");
    add_word(line, "save_load.output_dir=run%lld", (long long)st->n_runs);
}

/* -- the process --------------------------------------------------------------------- */

/* In the child: become the command, all output to `log`. Does not return. */
static void exec_command(const struct selftest *st, const char *log, char *const *words)
{
    int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
        _exit(127);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (chdir(st->dir) == 0)
        execv("/proc/self/exe", words);
    fprintf(stderr, "cannot start trefoil in '%s': %s\n", st->dir, strerror(errno));
    _exit(127);
}

/* Wait for the child; a signal to this process is passed on, once. */
static int wait_for(pid_t child, struct error *err)
{
    static const struct timespec nap = {.tv_nsec = 10000000};
    bool is_told = false;
    int status;
    for (;;) {
        pid_t done = waitpid(child, &status, WNOHANG);
        if (done == child)
            break;
        if (done < 0 && errno != EINTR)
            return error_set(err, ERROR_RUNTIME, "cannot wait for a run: %s",
                             strerror(errno));
        if (stop_is_wanted() && !is_told) {
            kill(child, SIGTERM);
            is_told = true;
        }
        nanosleep(&nap, NULL);
    }
    if (stop_is_wanted())
        return error_set(err, ERROR_STOPPED, "stopped by %s",
                         stop_signal_name(stop_signal()));
    if (WIFSIGNALED(status))
        return error_set(err, ERROR_RUNTIME, "ended by signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        return error_set(err, ERROR_RUNTIME, "ended with exit code %d",
                         WEXITSTATUS(status));
    return 0;
}

/* Add the last lines of the log to the sentence. */
static void append_log(struct error *err, const char *log)
{
    enum { LINES = 6, BYTES = 1200 };
    char *text;
    size_t n;
    struct error unreadable;
    if (fs_read_all(log, 64 << 20, &text, &n, &unreadable))
        return;
    char *at = text + n;
    for (int lines = 0; at > text && text + n - at < BYTES; at--)
        if (at[-1] == '\n' && at < text + n && ++lines == LINES)
            break;
    size_t used = strlen(err->text);
    snprintf(err->text + used, sizeof err->text - used, "; its log ends with:\n%s", at);
    free(text);
}

/* -- the losses ---------------------------------------------------------------------- */

/* Events are no steps. */
static int read_line(const char *line, size_t n, struct selftest_curve *curve)
{
    json_t *object = json_loadb(line, n, 0, NULL);
    json_t *loss = json_object_get(object, "loss");
    json_t *norm = json_object_get(object, "grad_norm");
    if (object && !loss) {
        json_decref(object);
        return 0;
    }
    bool is_good = json_is_number(loss) && json_is_number(norm) &&
                   curve->n_steps < SELFTEST_STEPS_MOST;
    if (is_good) {
        curve->loss[curve->n_steps] = json_number_value(loss);
        curve->grad_norm[curve->n_steps++] = json_number_value(norm);
    }
    json_decref(object);
    return is_good ? 0 : -1;
}

static int read_curve(const struct selftest *st, struct selftest_curve *curve,
                      struct error *err)
{
    char path[2048], name[64], *text;
    size_t n;
    snprintf(name, sizeof name, "run%lld/metrics.jsonl", (long long)st->n_runs);
    if (fs_join(path, sizeof path, st->dir, name, err) ||
        fs_read_all(path, 1 << 20, &text, &n, err))
        return -1;
    int rc = 0;
    for (char *line = text, *end; rc == 0 && (end = strchr(line, '\n')); line = end + 1)
        rc = read_line(line, (size_t)(end - line), curve);
    if (rc || curve->n_steps != st->n_steps)
        rc = error_set(err, ERROR_RUNTIME, "'%s' has %lld readable steps and not %lld",
                       path, (long long)curve->n_steps, (long long)st->n_steps);
    free(text);
    return rc;
}

/* Train under `layout` with this very program and read the losses. A run that fails is an
 * error whose sentence ends with the last lines of its log; one that was interrupted is
 * ERROR_STOPPED. */
static int selftest_run(struct selftest *st, const struct selftest_layout *layout,
                        struct selftest_curve *curve, struct error *err)
{
    char log[2048], name[64];
    struct command_line line;
    *curve = (struct selftest_curve){0};
    st->n_runs++;
    snprintf(name, sizeof name, "run%lld.log", (long long)st->n_runs);
    if (fs_join(log, sizeof log, st->dir, name, err))
        return -1;
    build_command(&line, st, layout);
    fflush(NULL); // what is buffered would be written twice
    pid_t child = fork();
    if (child < 0)
        return error_set(err, ERROR_RUNTIME, "cannot start a process: %s",
                         strerror(errno));
    if (child == 0)
        exec_command(st, log, line.words);
    int rc = wait_for(child, err);
    if (rc && err->kind != ERROR_STOPPED)
        append_log(err, log);
    return rc ? rc : read_curve(st, curve, err);
}

/* -- the request --------------------------------------------------------------------- */

struct request {
    bool is_of_kernels;
    const char *layouts, *cpu_kernels;
    int64_t n_steps;
    struct selftest_layout list[LAYOUTS_MOST];
    int n_layouts;
    int name_width; // of the longest
};

static int parse_layouts(struct request *r, struct error *err)
{
    for (const char *at = r->layouts;; at++) {
        size_t n = strcspn(at, ",;");
        if (r->n_layouts == LAYOUTS_MOST)
            return error_set(err, ERROR_INPUT, "--layouts: more than %d layouts",
                             LAYOUTS_MOST);
        struct selftest_layout *layout = &r->list[r->n_layouts++];
        if (selftest_layout_parse(layout, at, n, err))
            return -1;
        r->name_width = (int)i64_max(r->name_width, (int64_t)strlen(layout->name));
        at += n;
        if (*at == 0)
            return 0;
    }
}

static int check_request(struct request *r, struct error *err)
{
    if (r->n_steps < 1 || r->n_steps > SELFTEST_STEPS_MOST)
        return error_set(err, ERROR_INPUT, "--steps must be between 1 and %d; it is %lld",
                         SELFTEST_STEPS_MOST, (long long)r->n_steps);
    if (comm_is_launched())
        return error_set(err, ERROR_INPUT,
                         "trefoil selftest starts its processes itself; run it without "
                         "mpirun or srun");
    return parse_layouts(r, err);
}

/* The set that all runs compute with; one that cannot run is refused before any does. */
static int check_kernels(const struct request *r, enum kernel_set *set, struct error *err)
{
    return kernel_set_parse(set, r->cpu_kernels, err) || kernels_use(*set, err) ? -1 : 0;
}

/* -- the table ----------------------------------------------------------------------- */

static void print_head(const struct request *r)
{
    printf("%-*s  %9s", r->name_width, "layout", "processes");
    for (int64_t i = 1; i <= r->n_steps; i++)
        printf("  %7s %2lld", "loss", (long long)i);
    printf("  %10s  %-6s  %-18s  %s\n", "difference", "bits", "promise", "verdict");
}

static void print_name(const struct request *r, const struct selftest_layout *layout)
{
    printf("%-*s  %9lld", r->name_width, layout->name,
           (long long)selftest_layout_processes(layout));
}

static void print_verdict(struct selftest_promise p, struct selftest_verdict v)
{
    char promise[64] = "same bits", difference[32] = "0";
    if (p.first > 0)
        snprintf(promise, sizeof promise, "%g, then %g", p.first, p.later);
    else if (p.later > 0)
        snprintf(promise, sizeof promise, "same, then %g", p.later);
    if (v.largest > 0)
        snprintf(difference, sizeof difference, "%.1e", v.largest);
    printf("  %10s  %-6s  %-18s  %s\n", difference, v.is_same ? "same" : "differ",
           promise, v.is_kept ? "kept" : "BROKEN");
}

static void print_row(const struct request *r, const struct selftest_layout *layout,
                      const struct selftest_curve *curve, struct selftest_verdict v)
{
    print_name(r, layout);
    for (int64_t i = 0; i < curve->n_steps; i++)
        printf("  %10.8f", curve->loss[i]);
    print_verdict(selftest_promise(layout), v);
    fflush(stdout);
}

static void print_failure(const struct request *r, const struct selftest_layout *layout,
                          const struct error *err)
{
    print_name(r, layout);
    puts("  FAILED");
    fflush(stdout);
    log_error("layout '%s' %s", layout->name, err->text);
}

/* -- running ------------------------------------------------------------------------- */

/* One row. *is_good: the run succeeded and kept its promise; -1 when the
 * self-test is to end. */
static int run_layout(const struct request *r, struct selftest *st,
                      const struct selftest_layout *layout,
                      const struct selftest_curve *reference, bool *is_good,
                      struct error *err)
{
    struct selftest_curve curve;
    log_status("training as '%s' on %lld processes", layout->name,
               (long long)selftest_layout_processes(layout));
    int rc = selftest_run(st, layout, &curve, err);
    log_status_clear();
    *is_good = false;
    if (rc && err->kind == ERROR_STOPPED)
        return -1;
    if (rc) {
        print_failure(r, layout, err);
        return 0;
    }
    struct selftest_verdict v =
        selftest_judge(selftest_promise(layout), reference, &curve);
    print_row(r, layout, &curve, v);
    *is_good = v.is_kept;
    return 0;
}

static int run_reference(struct selftest *st, struct selftest_curve *curve,
                         struct error *err)
{
    struct selftest_layout one;
    log_status("training on one process");
    int rc = selftest_layout_parse(&one, "1", 1, err);
    if (rc == 0)
        rc = selftest_run(st, &one, curve, err);
    log_status_clear();
    return rc ? error_prefix(err, "the run on one process") : 0;
}

static int run_all(const struct request *r, struct selftest *st, int *n_bad,
                   struct error *err)
{
    struct selftest_curve reference;
    if (selftest_open(st, err) || run_reference(st, &reference, err))
        return -1;
    print_head(r);
    for (int i = 0; i < r->n_layouts; i++) {
        bool is_good = true;
        if (run_layout(r, st, &r->list[i], &reference, &is_good, err))
            return -1;
        *n_bad += is_good ? 0 : 1;
    }
    return 0;
}

/* What the table comes to. */
static int print_conclusion(const struct request *r, const struct selftest *st, int n_bad,
                            double seconds, struct error *err)
{
    if (n_bad > 0)
        return error_set(err, ERROR_RUNTIME,
                         "%d of %d layouts failed or broke their promise; logs and "
                         "metrics are kept in '%s'",
                         n_bad, r->n_layouts, st->dir);
    printf("%d of %d layouts keep their promise (%.0f s)\n", r->n_layouts, r->n_layouts,
           seconds);
    return print_check("the table", err);
}

static int run_selftest(struct request *r, struct error *err)
{
    struct selftest st = {.n_steps = r->n_steps};
    int n_bad = 0;
    double start = clock_seconds();
    if (check_kernels(r, &st.cpu_kernels, err))
        return -1;
    if (r->is_of_kernels)
        return selftest_kernels(err);
    if (check_request(r, err))
        return -1;
    stop_watch(STOP_COMMAND);
    int rc = run_all(r, &st, &n_bad, err);
    if (rc == 0)
        rc = print_conclusion(r, &st, n_bad, clock_seconds() - start, err);
    if (n_bad == 0 || err->kind == ERROR_STOPPED)
        selftest_close(&st);
    return rc;
}

int cmd_selftest(int argc, char **argv)
{
    struct request r = {
        .layouts = LAYOUTS_DEFAULT, .cpu_kernels = "auto", .n_steps = 5, .name_width = 6};
    const struct option_spec options[] = {
        {"layouts", 0, OPTION_TEXT, &r.layouts, false, "LIST",
         "Layouts, separated by commas, made of the words dpN mpN ppN vN (chunks) shN "
         "(sharding) stageN tN (threads) fthenb sp recompute; by "
         "default: " LAYOUTS_DEFAULT "."},
        {"cpu_kernels", 0, OPTION_TEXT, &r.cpu_kernels, false, "SET",
         "Instructions to compute with: auto, generic, avx2, avx512 or amx (auto)."},
        {"kernels", 0, OPTION_FLAG, &r.is_of_kernels, false, NULL,
         "Show instead which sets of kernels this processor can run and what is chosen, "
         "and compare their bits."},
        {"steps", 0, OPTION_INT, &r.n_steps, false, "N", "Updates per run (5)."},
    };
    const struct command cmd = {
        "trefoil selftest",
        "Train a tiny model under several parallel layouts and compare with one process.",
        options, ARRAY_LEN(options)};
    struct error err;
    int rc = options_parse(&cmd, argc, argv, &err);
    if (rc == 0)
        rc = run_selftest(&r, &err);
    if (rc >= 0)
        return 0;
    if (err.kind == ERROR_STOPPED)
        log_warning("%s", err.text);
    else
        log_error("%s", err.text);
    return error_exit_code(&err);
}
