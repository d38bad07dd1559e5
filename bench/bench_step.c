/*
 * bench_step - one training step of Trefoil, timed as users run it: train_run() on random
 * tokens that were written to a dataset, so that the loader, the runner, ZeRO, the
 * agreements between ranks and the metrics are part of it. No evaluation, no checkpoint.
 *
 *   bench_step --layers L --hidden H --heads A --vocab V --batch B --seq S
 *              [--steps n] [--threads t] [--dropout p]
 *              [--dtype float32|float16|bfloat16] [--recompute none|core|attention|block]
 *              [--cpu_kernels SET] [--kernels]
 *
 * A step is measured from the moment when its gradients are there to that moment of the
 * next one. Prints one JSON object: seconds of the best and the median step, peak memory,
 * and with --kernels what each kernel took of an average step.
 */
#include "kernel_clock.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/formats/dataset_writer.h"
#include "device/kernel_sets.h"
#include "train/step.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench {
    int64_t layers, hidden, heads, vocab, batch, seq, steps, threads;
    double dropout;
    int64_t dtype, recompute;
    const char *cpu_kernels;
    bool has_clock; // of kernels
};

static const struct option options[] = {{"layers", required_argument, NULL, 'l'},
                                        {"hidden", required_argument, NULL, 'h'},
                                        {"heads", required_argument, NULL, 'a'},
                                        {"vocab", required_argument, NULL, 'v'},
                                        {"batch", required_argument, NULL, 'b'},
                                        {"seq", required_argument, NULL, 's'},
                                        {"steps", required_argument, NULL, 'n'},
                                        {"threads", required_argument, NULL, 't'},
                                        {"dropout", required_argument, NULL, 'd'},
                                        {"dtype", required_argument, NULL, 'y'},
                                        {"recompute", required_argument, NULL, 'r'},
                                        {"cpu_kernels", required_argument, NULL, 'c'},
                                        {"kernels", no_argument, NULL, 'k'},
                                        {NULL, 0, NULL, 0}};

static const char *const dtype_words[] = {"float32", "float16", "bfloat16", NULL};
static const char *const recompute_words[] = {"none", "core", "attention", "block", NULL};
static const char *const granularities[] = {"full", "core_attn", "only_attn", "full"};

static int64_t word_index(const char *const *words, const char *word)
{
    for (int64_t i = 0; words[i]; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    return -1;
}

static int parse(struct bench *b, int argc, char **argv)
{
    int c;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (c) {
        case 'l':
            b->layers = atoll(optarg);
            break;
        case 'h':
            b->hidden = atoll(optarg);
            break;
        case 'a':
            b->heads = atoll(optarg);
            break;
        case 'v':
            b->vocab = atoll(optarg);
            break;
        case 'b':
            b->batch = atoll(optarg);
            break;
        case 's':
            b->seq = atoll(optarg);
            break;
        case 'n':
            b->steps = atoll(optarg);
            break;
        case 't':
            b->threads = atoll(optarg);
            break;
        case 'd':
            b->dropout = atof(optarg);
            break;
        case 'y':
            b->dtype = word_index(dtype_words, optarg);
            break;
        case 'r':
            b->recompute = word_index(recompute_words, optarg);
            break;
        case 'c':
            b->cpu_kernels = optarg;
            break;
        case 'k':
            b->has_clock = true;
            break;
        default:
            return -1;
        }
    bool is_known = b->dtype >= 0 && b->recompute >= 0;
    return is_known && b->steps > 0 && b->heads > 0 ? 0 : -1;
}

/* -- what is trained on ------------------------------------------------------------- */

enum {
    WARM_UP = 2, // the first step touches all memory, the second all of the optimizer's
    DIR_BYTES = 256,
};

static int write_tokens(const struct bench *b, const char *dir, struct error *err)
{
    char prefix[DIR_BYTES + 16];
    struct dataset_writer *w;
    struct dataset_meta meta = {.vocab_size = b->vocab, .eos_token_id = 0};
    struct philox_key key = philox_key(7, PHILOX_SAMPLE_TOKEN, 0);
    int64_t n = (b->steps + WARM_UP + 1) * b->batch * b->seq + 1;
    snprintf(prefix, sizeof prefix, "%s/random", dir);
    if (dataset_writer_open(&w, prefix, DATASET_MEGATRON, b->vocab, err))
        return -1;
    int rc = 0;
    for (int64_t i = 0; i < n && rc == 0; i++) {
        float u = philox_uniform(key, (uint64_t)i, 0);
        int32_t token = (int32_t)(u * (float)b->vocab);
        rc = dataset_writer_append(w, &token, 1, err);
    }
    if (rc == 0 && dataset_writer_end_document(w, err) == 0)
        rc = dataset_writer_commit(w, &meta, err);
    dataset_writer_close(w);
    return rc;
}

/* As a user would set it, by "-o". */
static int configure(struct config *cfg, const struct bench *b, const char *dir,
                     struct error *err)
{
    enum { MOST = 40, BYTES = DIR_BYTES + 64 };
    static char text[MOST][BYTES];
    char *settings[MOST];
    int n = 0;
#define SET(...) snprintf(text[n++], BYTES, __VA_ARGS__)
    SET("seed=1024");
    SET("max_steps=%lld", (long long)b->steps + WARM_UP + 1);
    SET("logging_freq=1");
    SET("eval_freq=0");
    SET("display_progress=False");
    SET("save_load.save_steps=-1");
    SET("save_load.output_dir=%s/out", dir);
    SET("dataset.input_dir=%s", dir);
    SET("dataset.split=1,0,0");
    SET("dataset.max_seq_len=%lld", (long long)b->seq);
    SET("batch_size.global_batch_size=%lld", (long long)b->batch);
    SET("batch_size.micro_batch_size=%lld", (long long)b->batch);
    SET("Model.vocab_size=%lld", (long long)b->vocab);
    SET("Model.hidden_size=%lld", (long long)b->hidden);
    SET("Model.num_layers=%lld", (long long)b->layers);
    SET("Model.num_attention_heads=%lld", (long long)b->heads);
    SET("Model.max_position_embeddings=%lld", (long long)b->seq);
    SET("Model.hidden_dropout_prob=%g", b->dropout);
    SET("Model.attention_probs_dropout_prob=%g", b->dropout);
    SET("Optimizer.lr.max_lr=1e-5");
    SET("Optimizer.lr.min_lr=1e-5");
    SET("Optimizer.grad_clip=1.0");
    SET("mix_precision.dtype=%s", dtype_words[b->dtype]);
    SET("cpu_kernels=%s", b->cpu_kernels);
    SET("mix_precision.scale_loss=128"); // no step is left out
    SET("use_recompute=%s", b->recompute > 0 ? "True" : "False");
    SET("recompute_granularity=%s", granularities[b->recompute]);
#undef SET
    for (int i = 0; i < n; i++)
        settings[i] = text[i];
    return config_load_for(cfg, NULL, settings, n, 1, err);
}

/* -- the clock ----------------------------------------------------------------------- */

static struct {
    double *at; // (steps + WARM_UP + 1) when a step's gradients were there
    int64_t n, steps;
    bool has_clock;
} seen;

/* Replaces the library's, which does nothing. */
void train_grads_hook(struct train *t)
{
    struct gpt *g = &t->runner.gpt;
    if (seen.has_clock)
        g->k = g->dev->k = kernel_clock_table(g->k); // the optimizer's device too
    if (seen.n == WARM_UP)
        kernel_clock_reset();
    if (seen.n == WARM_UP + seen.steps) // the last update is no step's
        kernel_clock_stop();
    seen.at[seen.n++] = clock_seconds();
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const struct bench *b)
{
    double *seconds = seen.at + WARM_UP;
    for (int64_t i = 0; i < b->steps; i++)
        seconds[i] = seconds[i + 1] - seconds[i];
    qsort(seconds, (size_t)b->steps, sizeof *seconds, compare);
    printf("{\"seconds_best\": %.6f, \"seconds_median\": %.6f, \"peak_rss_mb\": %.1f",
           seconds[0], seconds[b->steps / 2], (double)memory_peak_bytes() / 1e6);
    if (b->has_clock) {
        printf(", \"kernels\": ");
        kernel_clock_print(b->steps);
    }
    printf("}\n");
}

static int run(const struct bench *b, const char *dir, struct error *err)
{
    static struct config cfg;
    struct comm *world;
    seen.at = calloc((size_t)b->steps + WARM_UP + 1, sizeof *seen.at);
    seen.steps = b->steps;
    seen.has_clock = b->has_clock;
    if (!seen.at)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    log_set_level(LOG_ERROR);
    if (write_tokens(b, dir, err) || configure(&cfg, b, dir, err) ||
        kernels_use(cfg.cpu_kernels, err) || kernels_start(err) ||
        comm_world_open(&world, err))
        return -1;
    int rc = train_run(&cfg, world, err);
    comm_world_close(world);
    return rc;
}

int main(int argc, char **argv)
{
    struct bench b = {.steps = 5, .threads = 0, .cpu_kernels = "auto"};
    const char *base = getenv("TMPDIR");
    char dir[DIR_BYTES];
    struct error err, ignored;
    if (parse(&b, argc, argv)) {
        fprintf(stderr, "bench_step: see the first lines of bench/bench_step.c\n");
        return 2;
    }
    if (b.threads > 0)
        kernels_set_threads((int)b.threads);
    snprintf(dir, sizeof dir, "%.200s/trefoil-bench-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(dir)) {
        perror("bench_step: a directory for the data");
        return 3;
    }
    int rc = run(&b, dir, &err);
    if (rc)
        fprintf(stderr, "bench_step: %s\n", err.text);
    else
        report(&b);
    free(seen.at);
    if (fs_remove_tree(dir, &ignored))
        fprintf(stderr, "bench_step: %s\n", ignored.text);
    return rc ? 3 : 0;
}
