/*
 * bench_step - one training step of Trefoil, timed: forward, backward, gradient norm,
 * clip and AdamW of one micro-batch of random tokens. No data, no log, no checkpoint.
 *
 *   bench_step --layers L --hidden H --heads A --vocab V --batch B --seq S
 *              [--steps n] [--threads t] [--dropout p]
 *              [--dtype float32|float16|bfloat16] [--recompute none|core|attention|block]
 *              [--kernels]
 *
 * Prints one JSON object: seconds of the best and the median step, peak memory, and with
 * --kernels what each kernel took of an average step.
 */
#include "kernel_clock.h"

#include "base/clock.h"
#include "model/gpt.h"
#include "optim/lr.h"
#include "optim/optimizer.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

struct bench {
    int64_t layers, hidden, heads, vocab, batch, seq, steps, threads;
    double dropout;
    int64_t dtype, recompute;
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
                                        {"kernels", no_argument, NULL, 'k'},
                                        {NULL, 0, NULL, 0}};

static const char *const dtype_words[] = {"float32", "float16", "bfloat16", NULL};
static const char *const recompute_words[] = {"none", "core", "attention", "block", NULL};

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
        case 'k':
            b->has_clock = true;
            break;
        default:
            return -1;
        }
    bool is_known = b->dtype >= 0 && b->recompute >= 0;
    return is_known && b->steps > 0 && b->heads > 0 ? 0 : -1;
}

static struct config config_of(const struct bench *b)
{
    return (struct config){
        .model = {.vocab_size = b->vocab,
                  .hidden_size = b->hidden,
                  .num_layers = b->layers,
                  .num_attention_heads = b->heads,
                  .ffn_hidden_size = 4 * b->hidden,
                  .hidden_dropout_prob = b->dropout,
                  .attention_probs_dropout_prob = b->dropout,
                  .max_position_embeddings = b->seq},
        .optimizer = {.weight_decay = 0.01,
                      .adam_beta1 = 0.9,
                      .adam_beta2 = 0.999,
                      .adam_epsilon = 1e-8,
                      .grad_clip = 1.0},
        .dataset = {.max_seq_len = b->seq},
        .seed = 1024,
    };
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct step_data {
    int32_t *tokens, *targets;
    float *weights;
    double *loss_sums, *seconds;
};

static void fill_tokens(struct step_data *data, const struct bench *b)
{
    int64_t N = b->batch * b->seq;
    struct philox_key key = philox_key(7, PHILOX_SAMPLE_TOKEN, 0);
    for (int64_t n = 0; n < N; n++) {
        data->tokens[n] =
            (int32_t)(philox_uniform(key, (uint64_t)n, 0) * (float)b->vocab);
        data->targets[n] =
            (int32_t)(philox_uniform(key, (uint64_t)n, 1) * (float)b->vocab);
        data->weights[n] = 1.0F;
    }
}

static double grad_norm(struct optimizer *opt, const struct shard_store *grads)
{
    struct error err;
    double norm;
    if (optimizer_norm(opt, grads, &norm, &err)) {
        fprintf(stderr, "bench_step: %s\n", err.text);
        exit(3);
    }
    return norm;
}

static void update(struct gpt *g, struct optimizer *opt, int64_t number)
{
    struct error err;
    struct shard_store params = {.store = STORE_PARAMS,
                                 .whole = g->params.storage[STORE_PARAMS]};
    struct shard_store grads = {.store = STORE_GRADS,
                                .whole = g->params.storage[STORE_GRADS]};
    struct optimizer_update u = {.params = &params,
                                 .grads = &grads,
                                 .lr = 1e-5,
                                 .grad_norm = grad_norm(opt, &grads),
                                 .grad_scale = 1,
                                 .number = number};
    if (optimizer_step(opt, &u, &err)) {
        fprintf(stderr, "bench_step: %s\n", err.text);
        exit(3);
    }
}

static double one_step(struct gpt *g, struct optimizer *opt, const struct bench *b,
                       struct step_data *data, int64_t step)
{
    double start = clock_seconds();
    struct batch batch = {.B = b->batch,
                          .S = b->seq,
                          .tokens = data->tokens,
                          .targets = data->targets,
                          .loss_mask = data->weights,
                          .loss_weight = 1.0F / (float)(b->batch * b->seq),
                          .loss_sums = data->loss_sums,
                          .step = step,
                          .is_training = true};
    gpt_forward(g, &batch);
    gpt_backward(g, &batch);
    gpt_finish_grads(g);
    update(g, opt, step + 1);
    return clock_seconds() - start;
}

static void report(const struct bench *b, double *seconds)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    qsort(seconds, (size_t)b->steps, sizeof *seconds, compare);
    printf("{\"seconds_best\": %.6f, \"seconds_median\": %.6f, \"peak_rss_mb\": %.1f",
           seconds[0], seconds[b->steps / 2], (double)usage.ru_maxrss * 1024 / 1e6);
    if (b->has_clock) {
        printf(", \"kernels\": ");
        kernel_clock_print(b->steps);
    }
    printf("}\n");
}

int main(int argc, char **argv)
{
    struct bench b = {.steps = 5, .threads = 0};
    struct error err;
    if (parse(&b, argc, argv)) {
        fprintf(stderr, "bench_step: see the first lines of bench/bench_step.c\n");
        return 2;
    }
    if (b.threads > 0)
        kernels_set_threads((int)b.threads);
    struct config cfg = config_of(&b);
    struct gpt g;
    struct optimizer opt;
    struct comm *alone;
    struct shard_map map;
    struct device dev;
    device_cpu_over(&dev, b.has_clock ? kernel_clock_table() : kernels_best(),
                    (enum dtype)b.dtype);
    struct gpt_options model = {.dev = &dev,
                                .B = b.batch,
                                .n_stashes = 1,
                                .has_grads = true,
                                .part = param_part_whole(b.layers),
                                .dtype = (enum dtype)b.dtype,
                                .grad_dtype = (enum dtype)b.dtype,
                                .recompute = (enum gpt_recompute)b.recompute,
                                .has_one_micro_batch = true};
    struct optimizer_options state = {
        .map = &map, .dev = &dev, .cfg = cfg.optimizer, .has_master = b.dtype > 0};
    int rc = comm_world_open(&alone, &err);
    model.model_group = alone;
    if (rc || gpt_open_part(&g, &cfg, &model, &err) ||
        shard_map_init(&map, g.params.table, 1, 0, &err) ||
        optimizer_open(&opt, &state, &err)) {
        fprintf(stderr, "bench_step: %s\n", err.text);
        return 3;
    }
    gpt_init_params(&g, 0.02);
    size_t N = (size_t)(b.batch * b.seq);
    struct step_data data = {malloc(N * sizeof(int32_t)), malloc(N * sizeof(int32_t)),
                             malloc(N * sizeof(float)),
                             malloc((size_t)b.batch * sizeof(double)),
                             malloc((size_t)b.steps * sizeof(double))};
    fill_tokens(&data, &b);
    one_step(&g, &opt, &b, &data, 0); // touches all memory
    kernel_clock_reset();
    for (int64_t i = 0; i < b.steps; i++)
        data.seconds[i] = one_step(&g, &opt, &b, &data, i + 1);
    report(&b, data.seconds);
    return 0;
}
