/*
 * bench_generate - how near decoding comes to the speed at which memory can be read.
 *
 *   bench_generate [--layers L] [--hidden H] [--heads A] [--vocab V] [--prompt N]
 *                  [--tokens N] [--batch N] [--rounds R] [--threads T]
 *
 * Continues --batch prompts (1) of a float32 model with random weights (GPT-2 124M's
 * shape without any given) by --tokens tokens (64), always the likeliest. The bound: a
 * token cannot take less time than reading all weights once; that is measured in turns
 * with the decoding, by all threads summing the weights where they lie. The best of each
 * counts. Prints one JSON object.
 */
#include "measure.h"
#include "model_fixture.h"

#include "model/gpt_decode.h"
#include "model/gpt_params.h"
#include "model/sampler.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

struct bench {
    int64_t layers, hidden, heads, vocab, prompt, tokens, batch, rounds, threads;
    struct model model;
    struct gpt_decoder decoder;
    struct sampler sampler;
    int32_t *prompt_ids;    // (prompt)
    int64_t *slots;         // (batch)
    int32_t *ids;           // (batch)
    double best_prompt;     // seconds
    double best_decode;     // seconds of all tokens but the first
    double best_read;       // seconds of reading the weights
    volatile double unused; // the sum, so that it is computed
};

static void open_model(struct bench *b)
{
    struct config cfg = {
        .model = {.vocab_size = b->vocab,
                  .hidden_size = b->hidden,
                  .num_layers = b->layers,
                  .num_attention_heads = b->heads,
                  .ffn_hidden_size = 4 * b->hidden,
                  .max_position_embeddings = b->prompt + b->tokens},
        .dataset = {.max_seq_len = b->prompt + b->tokens},
        .seed = 1024,
    };
    struct error err;
    b->prompt_ids = calloc((size_t)b->prompt, sizeof *b->prompt_ids);
    b->slots = calloc((size_t)b->batch, sizeof *b->slots);
    b->ids = calloc((size_t)b->batch, sizeof *b->ids);
    if (!b->prompt_ids || !b->slots || !b->ids ||
        model_prepare(&b->model, &cfg, 1, 1, LAYOUT_DECODE, &err) ||
        model_start(&b->model, 0.02, &err) ||
        gpt_decoder_open(&b->decoder, &b->model.runner.gpt, b->batch, NULL, &err) ||
        sampler_init(&b->sampler, b->vocab, &err)) {
        fprintf(stderr, "bench_generate: no memory for this model\n");
        exit(3);
    }
    for (int64_t i = 0; i < b->prompt; i++)
        b->prompt_ids[i] = (int32_t)(i * 7919 % b->vocab);
    for (int64_t i = 0; i < b->batch; i++)
        b->slots[i] = i;
}

static void close_model(struct bench *b)
{
    sampler_release(&b->sampler);
    gpt_decoder_close(&b->decoder);
    model_close(&b->model);
    free(b->prompt_ids);
    free(b->slots);
    free(b->ids);
}

static void keep_best(double *best, double seconds)
{
    if (*best <= 0 || seconds < *best)
        *best = seconds;
}

static void draw(struct bench *b, int64_t row, int64_t slot)
{
    b->ids[slot] = sampler_next(&b->sampler, gpt_decoder_logits(&b->decoder, row), 0);
}

static void decode_once(struct bench *b)
{
    double start = measure_seconds();
    for (int64_t i = 0; i < b->batch; i++) {
        gpt_decoder_prompt(&b->decoder, i, b->prompt_ids, b->prompt);
        draw(b, 0, i);
    }
    double prompt_end = measure_seconds();
    for (int64_t t = 1; t < b->tokens; t++) {
        gpt_decoder_step(&b->decoder, b->slots, b->ids, b->batch);
        for (int64_t i = 0; i < b->batch; i++)
            draw(b, i, i);
    }
    keep_best(&b->best_prompt, prompt_end - start);
    keep_best(&b->best_decode, measure_seconds() - prompt_end);
}

/* Bytes of weights that one token needs: all but the position embedding, of which it
 * reads one row. */
static double bytes_a_token(const struct bench *b)
{
    double n = 0;
    for (int64_t i = 0; i < b->model.runner.gpt.params.table->n_params; i++) {
        const struct param *row = &b->model.runner.gpt.params.table->params[i];
        if (row != &b->model.runner.gpt.params.table->params[GPT_POSITION_WEIGHT])
            n += (double)row->n_elements;
    }
    return n * (double)sizeof(float);
}

/* Each thread sums one contiguous part, by as many sums as keep the loads apart. */
static void read_once(struct bench *b)
{
    enum { SUMS = 32 };
    const float *weights = b->model.runner.gpt.params.storage[STORE_PARAMS];
    int64_t n = b->model.runner.gpt.params.table->n_flat / SUMS * SUMS;
    double total = 0, start = measure_seconds();
#pragma omp parallel reduction(+ : total)
    {
        int64_t size = omp_get_num_threads(), rank = omp_get_thread_num();
        int64_t first = n / SUMS * rank / size * SUMS;
        int64_t end = n / SUMS * (rank + 1) / size * SUMS;
        float sum[SUMS] = {0};
        for (int64_t i = first; i < end; i += SUMS)
            for (int k = 0; k < SUMS; k++)
                sum[k] += weights[i + k];
        for (int k = 0; k < SUMS; k++)
            total += (double)sum[k];
    }
    keep_best(&b->best_read, measure_seconds() - start);
    b->unused = total;
}

static void print(const struct bench *b)
{
    double read_rate =
        (double)b->model.runner.gpt.params.table->n_flat * sizeof(float) / b->best_read;
    double steps = (double)(b->tokens - 1), step = b->best_decode / steps;
    double bound = bytes_a_token(b) / read_rate;
    printf("{\"threads\": %d, \"batch\": %lld, \"parameters\": %lld, "
           "\"prompt_seconds\": %.6f, \"tokens_per_second\": %.3f, "
           "\"seconds_per_step\": %.6f, \"bytes_per_step\": %.0f, "
           "\"read_gb_per_s\": %.3f, \"bound_tokens_per_second\": %.3f, "
           "\"share_of_bound\": %.4f}\n",
           omp_get_max_threads(), (long long)b->batch,
           (long long)b->model.runner.gpt.params.table->n_elements,
           b->best_prompt / (double)b->batch, (double)b->batch / step, step,
           bytes_a_token(b), read_rate * 1e-9, (double)b->batch / bound, bound / step);
}

int main(int argc, char **argv)
{
    struct bench b = {.layers = 12,
                      .hidden = 768,
                      .heads = 12,
                      .vocab = 50304,
                      .prompt = 16,
                      .tokens = 64,
                      .batch = 1,
                      .rounds = 3};
    const struct measure_option options[] = {
        {"layers", &b.layers}, {"hidden", &b.hidden}, {"heads", &b.heads},
        {"vocab", &b.vocab},   {"prompt", &b.prompt}, {"tokens", &b.tokens},
        {"batch", &b.batch},   {"rounds", &b.rounds}, {"threads", &b.threads},
        {NULL, NULL}};
    measure_parse(argc, argv, options);
    if (b.tokens < 2 || b.hidden % b.heads != 0) {
        fprintf(stderr, "bench_generate: --tokens is at least 2, --heads divides "
                        "--hidden\n");
        return 2;
    }
    if (b.threads > 0)
        omp_set_num_threads((int)b.threads);
    open_model(&b);
    for (int64_t i = 0; i < b.rounds; i++) {
        read_once(&b);
        decode_once(&b);
        read_once(&b);
    }
    print(&b);
    close_model(&b);
    return 0;
}
