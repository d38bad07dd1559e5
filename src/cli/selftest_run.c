/* Everything of a self-test lies in one temporary directory: the corpus, a configuration,
 * and for each run its directory and its log. */
#include "cli/selftest_run.h"

#include "base/fs.h"
#include "base/philox.h"
#include "base/process.h"
#include "base/stop.h"
#include "data/formats/dataset_writer.h"

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

int selftest_open(struct selftest *st, struct error *err)
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

void selftest_close(struct selftest *st)
{
    struct error ignored;
    if (st->dir[0] && fs_remove_tree(st->dir, &ignored))
        fprintf(stderr, "%s\n", ignored.text);
    st->dir[0] = 0;
}

/* -- its command line ---------------------------------------------------------------- */

#define WORDS_MOST 96

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
    add_word(line, "-o");
    add_word(line, "device=%s", st->device);
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
    for (const char *const *setting = st->settings; setting && *setting; setting++) {
        add_word(line, "-o");
        add_word(line, "%s", *setting);
    }
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

int selftest_lines(const struct selftest *st,
                   int (*take)(void *context, const json_t *line), void *context,
                   struct error *err)
{
    char path[2048], name[64], *text;
    size_t n;
    snprintf(name, sizeof name, "run%lld/metrics.jsonl", (long long)st->n_runs);
    if (fs_join(path, sizeof path, st->dir, name, err) ||
        fs_read_all(path, 1 << 20, &text, &n, err))
        return -1;
    int rc = 0;
    for (char *line = text, *end; rc == 0 && (end = strchr(line, '\n')); line = end + 1) {
        json_t *object = json_loadb(line, (size_t)(end - line), 0, NULL);
        rc = object ? take(context, object) : -1;
        json_decref(object);
    }
    if (rc)
        rc = error_set(err, ERROR_RUNTIME, "'%s' has a line that cannot be used", path);
    free(text);
    return rc;
}

/* Events are no steps. */
static int take_step(void *context, const json_t *line)
{
    struct selftest_curve *curve = context;
    const json_t *loss = json_object_get(line, "loss");
    const json_t *norm = json_object_get(line, "grad_norm");
    if (!loss)
        return 0;
    if (!json_is_number(loss) || !json_is_number(norm) ||
        curve->n_steps == SELFTEST_STEPS_MOST)
        return -1;
    curve->loss[curve->n_steps] = json_number_value(loss);
    curve->grad_norm[curve->n_steps++] = json_number_value(norm);
    return 0;
}

int selftest_train(struct selftest *st, const struct selftest_layout *layout,
                   struct error *err)
{
    char log[2048], name[64];
    struct command_line line;
    st->n_runs++;
    snprintf(name, sizeof name, "run%lld.log", (long long)st->n_runs);
    if (fs_join(log, sizeof log, st->dir, name, err))
        return -1;
    build_command(&line, st, layout);
    fflush(NULL); // what is buffered would be written twice
    pid_t child = fork();
    if (child < 0)
        return process_fork_failed(err, "a process", errno);
    if (child == 0)
        exec_command(st, log, line.words);
    int rc = wait_for(child, err);
    if (rc && err->kind != ERROR_STOPPED)
        append_log(err, log);
    return rc;
}

int selftest_run(struct selftest *st, const struct selftest_layout *layout,
                 struct selftest_curve *curve, struct error *err)
{
    *curve = (struct selftest_curve){0};
    if (selftest_train(st, layout, err) || selftest_lines(st, take_step, curve, err))
        return -1;
    if (curve->n_steps != st->n_steps)
        return error_set(err, ERROR_RUNTIME, "run %lld has %lld steps and not %lld",
                         (long long)st->n_runs, (long long)curve->n_steps,
                         (long long)st->n_steps);
    return 0;
}
