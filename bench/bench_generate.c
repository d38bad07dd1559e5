/*
 * bench_generate - how near decoding comes to what memory and arithmetic allow.
 *
 *   bench_generate [--layers L] [--hidden H] [--heads A] [--vocab V] [--prompt N]
 *                  [--tokens N] [--batch N] [--dtype float32|float16|bfloat16]
 *                  [--kernels NAME] [--rounds R] [--threads T]
 *
 * Continues --batch prompts (1) of a model with random weights (GPT-2 124M's shape
 * without any given) by --tokens tokens (64), always the likeliest. The bound of a step
 * is the larger of two times: of reading all weights once at the bandwidth of a copy, and
 * of its products at the rate of large ones, (1024, 4H, H). Both are measured in turns
 * with the decoding; the best of each counts. Prints one JSON object.
 */
#include "measure.h"
#include "model_fixture.h"
#include "own_products.h"

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
    int32_t *prompt_ids; // (prompt)
    int64_t *slots;      // (batch)
    int32_t *ids;        // (batch)
    enum dtype dtype;
    double best_prompt; // seconds
    double best_decode; // seconds of all tokens but the first
    double best_rate;   // operations a second of a large product
    struct measure_copy copy;
};

static void open_model(struct bench *b)
{
    struct config cfg = {
        .model = {.vocab_size = b->vocab,
                  .hidden_size = b->hidden,
                  .num_layers = b->layers,
                  .num_attention_heads = b->heads,
                  .ffn_hidden_size = 4 * b->hidden,
                  .norm_epsilon = 1e-5,
                  .max_position_embeddings = b->prompt + b->tokens},
        .dataset = {.max_seq_len = b->prompt + b->tokens},
        .mix_precision = {.dtype = b->dtype},
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

/* Elements of weights that one token needs: all but the position embedding, of which it
 * reads one row. */
static double elements_a_token(const struct bench *b)
{
    const struct param_table *table = b->model.runner.gpt.params.table;
    double n = 0;
    for (int64_t i = 0; i < table->n_params; i++)
        if (i != GPT_POSITION_WEIGHT)
            n += (double)table->params[i].n_elements;
    return n;
}

static void measure_bounds(struct bench *b)
{
    struct product large = {1024, 4 * b->hidden, b->hidden, PRODUCT_FORWARD};
    double rate = own_product_rate(b->model.runner.gpt.dev, &large, 3);
    b->best_rate = rate > b->best_rate ? rate : b->best_rate;
    measure_copy_once(&b->copy);
    measure_copy_once(&b->copy);
}

static void print(const struct bench *b)
{
    double n = elements_a_token(b), steps = (double)(b->tokens - 1);
    double step = b->best_decode / steps;
    double reading = n * (double)dtype_bytes(b->dtype) / b->copy.best;
    double computing = 2 * n * (double)b->batch / b->best_rate;
    double bound = reading > computing ? reading : computing;
    printf("{\"threads\": %d, \"batch\": %lld, \"dtype\": \"%s\", \"parameters\": %lld, "
           "\"prompt_seconds\": %.6f, \"tokens_per_second\": %.3f, \"seconds\": %.6f, "
           "\"reading_seconds\": %.6f, \"computing_seconds\": %.6f, "
           "\"copy_gb_per_s\": %.3f, \"product_gflops\": %.2f, "
           "\"bound_tokens_per_second\": %.3f, \"share_of_bound\": %.4f}\n",
           omp_get_max_threads(), (long long)b->batch, dtype_name(b->dtype),
           (long long)b->model.runner.gpt.params.table->n_elements,
           b->best_prompt / (double)b->batch, (double)b->batch / step, step, reading,
           computing, b->copy.best * 1e-9, b->best_rate * 1e-9, (double)b->batch / bound,
           bound / step);
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
                      .rounds = 3,
                      .threads = omp_get_num_procs()};
    const char *dtype = NULL, *kernels = NULL;
    const struct measure_option options[] = {
        {"layers", &b.layers, NULL},   {"hidden", &b.hidden, NULL},
        {"heads", &b.heads, NULL},     {"vocab", &b.vocab, NULL},
        {"prompt", &b.prompt, NULL},   {"tokens", &b.tokens, NULL},
        {"batch", &b.batch, NULL},     {"rounds", &b.rounds, NULL},
        {"threads", &b.threads, NULL}, {"dtype", NULL, &dtype},
        {"kernels", NULL, &kernels},   {NULL, NULL, NULL}};
    measure_parse(argc, argv, options);
    b.dtype = measure_dtype(dtype);
    if (b.tokens < 2 || b.hidden % b.heads != 0) {
        fprintf(stderr, "bench_generate: --tokens is at least 2, --heads divides "
                        "--hidden\n");
        return 2;
    }
    measure_device(b.dtype, kernels, b.threads);
    open_model(&b);
    measure_copy_open(&b.copy, INT64_MAX / 8);
    for (int64_t i = 0; i < b.rounds; i++) {
        measure_bounds(&b);
        decode_once(&b);
    }
    measure_bounds(&b);
    print(&b);
    measure_copy_close(&b.copy);
    close_model(&b);
    return 0;
}
