/*
 * bench_attention - how near attention comes to the rate of large products.
 *
 *   bench_attention --seq S [--batch B] [--heads A] [--head D] [--dropout P]
 *                   [--dtype float32|float16|bfloat16] [--kernels NAME] [--rounds R]
 *                   [--threads T]
 *
 * Calls attention's kernels, forward and backward, on the layout that a training step
 * gives them, and in turns with them the product that follows in the step, (B*S, 4H, H);
 * the best of R rounds of each counts. Attention's operations are those of its products
 * over the causal half of S x S, 2 forward and 4 backward: what is computed again, the
 * softmax and the dropout count as nothing. Prints one JSON object.
 */
#include "measure.h"
#include "own_products.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

struct bench {
    int64_t B, S, A, D, rounds, threads;
    double dropout;
    struct device *dev;
    void *qkv, *dqkv; // (B*S, 3H)
    struct attention_bwd at;
    double forward, backward, rate; // seconds, seconds, operations a second
};

static void *column(void *matrix, enum dtype dtype, int64_t n)
{
    return (char *)matrix + (size_t)n * dtype_bytes(dtype);
}

static void open_tensors(struct bench *b)
{
    enum dtype T = b->dev->dtype;
    int64_t H = b->A * b->D, N = b->B * b->S;
    int64_t n_scratch = attention_scratch(T, b->S, b->A, b->A, b->D);
    b->qkv = measure_elements(T, N * 3 * H);
    b->dqkv = measure_elements(T, N * 3 * H);
    b->at = (struct attention_bwd){
        .fwd = {.B = b->B,
                .S = b->S,
                .A = b->A,
                .A_kv = b->A,
                .D = b->D,
                .q = b->qkv,
                .k = column(b->qkv, T, H),
                .v = column(b->qkv, T, 2 * H),
                .q_row = 3 * H,
                .kv_row = 3 * H,
                .out = measure_elements(T, N * H),
                .lse = measure_floats(N * b->A),
                .drop = dropout_init(b->dropout, 1, PHILOX_DROP_ATTENTION, 0, 0, 0)},
        .dout = measure_elements(T, N * H),
        .dq = b->dqkv,
        .dk = column(b->dqkv, T, H),
        .dv = column(b->dqkv, T, 2 * H),
        .delta = measure_floats(N * b->A),
        .scratch = measure_floats(n_scratch + 1),
    };
}

static void keep_best(double *best, double seconds)
{
    if (*best <= 0 || seconds < *best)
        *best = seconds;
}

static void measure_round(struct bench *b)
{
    struct stream *s = device_stream(b->dev, STREAM_COMPUTE);
    int64_t H = b->A * b->D;
    struct product follows = {b->B * b->S, 4 * H, H, PRODUCT_FORWARD};
    double start = measure_seconds();
    b->dev->k->attention_fwd(s, &b->at.fwd);
    double middle = measure_seconds();
    b->dev->k->attention_bwd(s, &b->at);
    keep_best(&b->backward, measure_seconds() - middle);
    keep_best(&b->forward, middle - start);
    double rate = own_product_rate(b->dev, &follows, 3);
    b->rate = rate > b->rate ? rate : b->rate;
}

static void report(const struct bench *b)
{
    double one = (double)(b->B * b->A * b->D) * (double)(b->S * b->S);
    double seconds = b->forward + b->backward;
    printf("{\"seconds\": %.6f, \"forward_seconds\": %.6f, \"backward_seconds\": %.6f, "
           "\"gflops\": %.2f, \"product_gflops\": %.2f, \"share\": %.4f, "
           "\"forward_share\": %.4f, \"backward_share\": %.4f, \"kernels\": \"%s\"}\n",
           seconds, b->forward, b->backward, 6 * one / seconds * 1e-9, b->rate * 1e-9,
           6 * one / seconds / b->rate, 2 * one / b->forward / b->rate,
           4 * one / b->backward / b->rate, b->dev->k->name);
}

int main(int argc, char **argv)
{
    struct bench b = {
        .B = 1, .A = 12, .D = 64, .rounds = 5, .threads = omp_get_num_procs()};
    const char *dropout = "0", *dtype = NULL, *kernels = NULL;
    const struct measure_option options[] = {
        {"seq", &b.S, NULL},           {"batch", &b.B, NULL},
        {"heads", &b.A, NULL},         {"head", &b.D, NULL},
        {"dropout", NULL, &dropout},   {"dtype", NULL, &dtype},
        {"kernels", NULL, &kernels},   {"rounds", &b.rounds, NULL},
        {"threads", &b.threads, NULL}, {NULL, NULL, NULL}};
    measure_parse(argc, argv, options);
    b.dropout = atof(dropout);
    if (!b.S || b.dropout < 0 || b.dropout >= 1) {
        fprintf(stderr, "bench_attention: --seq is needed, --dropout is below 1\n");
        return 2;
    }
    b.dev = measure_device(measure_dtype(dtype), kernels, b.threads);
    open_tensors(&b);
    for (int64_t i = 0; i < b.rounds; i++)
        measure_round(&b);
    report(&b);
    free(b.qkv);
    free(b.dqkv);
    free(b.at.fwd.out);
    free(b.at.fwd.lse);
    free((void *)b.at.dout);
    free(b.at.delta);
    free(b.at.scratch);
    return 0;
}
