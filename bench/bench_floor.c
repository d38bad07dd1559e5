/*
 * bench_floor - the least time a training step of a GPT can take on this machine.
 *
 *   bench_floor --layers L --hidden H --heads A --vocab V --batch B --seq S
 *               [--ffn F] [--threads T] [--rounds R]
 *
 * Prints one JSON object. The floor is the sum of
 *
 *   gemm_seconds       the bare dense products of a step: forward, input gradient and
 *                      weight gradient of qkv, attention projection, both MLP layers and
 *                      the head, N = B*S tokens each; every product by the faster of BLIS
 *                      and OpenBLAS. One layer is timed and counted L times. The head is
 *                      timed in chunks of at most 1024 tokens;
 *   attention_seconds  the products of causal attention, 2 forward and 4 backward, each
 *                      over half of S x S: 6 * S*S * H * B * L operations, at the rate
 *                      of the products above;
 *   adamw_seconds      one pass over parameters, gradients and both moments: 4 floats
 *                      read and 3 written a parameter, at copy bandwidth.
 *
 * Each time is the best of R rounds. The two libraries are loaded side by side and called
 * through their own cblas_sgemm, so neither can stand in for the other. Libraries that
 * are not installed are left out; without any the program fails.
 */
#include "device/kernels.h"
#include "measure.h"

#include <dlfcn.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CBLAS_ROW_MAJOR = 101, CBLAS_NO_TRANS = 111, CBLAS_TRANS = 112 };
#define HEAD_CHUNK_ROWS 1024

typedef void sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k,
                      float alpha, const float *a, int lda, const float *b, int ldb,
                      float beta, float *c, int ldc);

#define N_LIBRARIES 2

struct blas {
    const char *name;
    const char *files[2]; // tried in order
    const char *set_threads;
    sgemm_fn *sgemm; // NULL: not installed
};

struct shape {
    int64_t L, H, A, F, V, B, S, T, R; // T threads, R rounds; the rest as in base.h
};

/* C(m,n) = op(A) op(B), the sum over k; counted `count` times in a step. */
struct product {
    int64_t m, n, k;
    int trans_a, trans_b;
    double count;
};

/* The libraries, and what their products have taken so far. */
struct gemms {
    struct blas blas[N_LIBRARIES];
    int64_t rounds;
    double seconds, flops;
    double blas_seconds[N_LIBRARIES]; // the same products by one library alone
};

/* -- the libraries ------------------------------------------------------------------- */

/* dlsym() returns an object pointer; POSIX lets it be a function all the same. */
static void load_symbol(void *handle, const char *name, void *fn, size_t fn_bytes)
{
    void *symbol = dlsym(handle, name);
    memcpy(fn, &symbol, fn_bytes);
}

static void load_library(struct blas *lib, int64_t n_threads)
{
    void *handle = NULL;
    for (int i = 0; i < 2 && !handle; i++)
        if (lib->files[i][0])
            handle = dlopen(lib->files[i], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (!handle)
        return;

    load_symbol(handle, "cblas_sgemm", &lib->sgemm, sizeof lib->sgemm);
    if (!strcmp(lib->name, "blis")) {
        void (*set_threads)(int64_t) = NULL; // dim_t has 64 bits in Debian's BLIS
        load_symbol(handle, lib->set_threads, &set_threads, sizeof set_threads);
        if (set_threads)
            set_threads(n_threads);
    } else {
        void (*set_threads)(int) = NULL;
        load_symbol(handle, lib->set_threads, &set_threads, sizeof set_threads);
        if (set_threads)
            set_threads((int)n_threads);
    }
}

/* Returns how many libraries there are. */
static int load_libraries(struct gemms *g, int64_t n_threads)
{
    static const struct blas known[N_LIBRARIES] = {
        {"blis", {BENCH_BLIS, "libblis.so.4"}, "bli_thread_set_num_threads", NULL},
        {"openblas",
         {BENCH_OPENBLAS, "libopenblas.so.0"},
         "openblas_set_num_threads",
         NULL},
    };
    int n_loaded = 0;
    for (int i = 0; i < N_LIBRARIES; i++) {
        g->blas[i] = known[i];
        load_library(&g->blas[i], n_threads);
        n_loaded += g->blas[i].sgemm != NULL;
    }
    return n_loaded;
}

/* -- measuring ----------------------------------------------------------------------- */

static double sgemm_seconds(sgemm_fn *sgemm, const struct product *p, const float *a,
                            const float *b, float *c, int64_t rounds)
{
    int lda = (int)(p->trans_a == CBLAS_TRANS ? p->m : p->k);
    int ldb = (int)(p->trans_b == CBLAS_TRANS ? p->k : p->n);
    double best = 1e30;
    for (int64_t r = 0; r < rounds; r++) {
        double start = measure_seconds();
        sgemm(CBLAS_ROW_MAJOR, p->trans_a, p->trans_b, (int)p->m, (int)p->n, (int)p->k,
              1.0f, a, lda, b, ldb, 0.0f, c, (int)p->n);
        double seconds = measure_seconds() - start;
        best = seconds < best ? seconds : best;
    }
    return best;
}

static void add_product(struct gemms *g, const struct product *p)
{
    float *a = measure_floats(p->m * p->k);
    float *b = measure_floats(p->k * p->n);
    float *c = measure_floats(p->m * p->n);
    double best = 1e30;
    for (int i = 0; i < N_LIBRARIES; i++) {
        if (!g->blas[i].sgemm)
            continue;
        double seconds = sgemm_seconds(g->blas[i].sgemm, p, a, b, c, g->rounds);
        g->blas_seconds[i] += seconds * p->count;
        best = seconds < best ? seconds : best;
    }
    g->seconds += best * p->count;
    g->flops += 2.0 * (double)p->m * (double)p->n * (double)p->k * p->count;
    free(a);
    free(b);
    free(c);
}

/* Forward, input gradient and weight gradient of y(N,out) = x(N,in) W(out,in)^T. */
static void add_linear(struct gemms *g, int64_t N, int64_t in, int64_t out, double count)
{
    const struct product products[] = {
        {N, out, in, CBLAS_NO_TRANS, CBLAS_TRANS, count},
        {N, in, out, CBLAS_NO_TRANS, CBLAS_NO_TRANS, count},
        {out, in, N, CBLAS_TRANS, CBLAS_NO_TRANS, count},
    };
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++)
        add_product(g, &products[i]);
}

static void measure_products(struct gemms *g, const struct shape *s)
{
    int64_t N = s->B * s->S, H = s->H, F = s->F;
    int64_t chunk = N < HEAD_CHUNK_ROWS ? N : HEAD_CHUNK_ROWS;
    add_linear(g, N, H, 3 * H, (double)s->L);
    add_linear(g, N, H, H, (double)s->L);
    add_linear(g, N, H, F, (double)s->L);
    add_linear(g, N, F, H, (double)s->L);
    add_linear(g, chunk, H, s->V, (double)N / (double)chunk);
}

/* Bytes a second, read and written counted. The first copy warms the buffers up. */
static double copy_bandwidth(int64_t n_params, int64_t rounds)
{
    struct measure_copy copy;
    measure_copy_open(&copy, n_params);
    for (int64_t r = 0; r < rounds + 1; r++)
        measure_copy_once(&copy);
    measure_copy_close(&copy);
    return copy.best;
}

/* -- the command --------------------------------------------------------------------- */

static struct shape parse_shape(int argc, char **argv)
{
    struct shape s = {.T = omp_get_num_procs(), .R = 3};
    const struct measure_option options[] = {
        {"layers", &s.L}, {"hidden", &s.H}, {"heads", &s.A}, {"vocab", &s.V},
        {"batch", &s.B},  {"seq", &s.S},    {"ffn", &s.F},   {"threads", &s.T},
        {"rounds", &s.R}, {NULL, NULL},
    };
    measure_parse(argc, argv, options);
    if (!s.L || !s.H || !s.A || !s.V || !s.B || !s.S) {
        fprintf(stderr, "bench_floor: --layers, --hidden, --heads, --vocab, --batch and "
                        "--seq are all needed\n");
        exit(2);
    }
    if (!s.F)
        s.F = 4 * s.H;
    return s;
}

/* As many positions as the sequence has. */
static int64_t parameters(const struct shape *s)
{
    int64_t H = s->H, F = s->F;
    int64_t layer = 4 * H * H + 2 * H * F + 9 * H + F;
    return s->L * layer + 2 * H + (s->V + s->S) * H;
}

static void print_floor(const struct gemms *g, const struct shape *s, double bandwidth)
{
    double n = (double)parameters(s), rate = g->flops / g->seconds;
    double attention = 6.0 * (double)(s->S * s->S) * (double)(s->H * s->B * s->L) / rate;
    double adamw = 7.0 * sizeof(float) * n / bandwidth;
    printf("{\"seconds\": %.6f, \"gemm_seconds\": %.6f, \"attention_seconds\": %.6f, "
           "\"adamw_seconds\": %.6f, \"gemm_gflops\": %.2f, \"copy_gb_per_s\": %.2f, "
           "\"parameters\": %.0f",
           g->seconds + attention + adamw, g->seconds, attention, adamw, rate * 1e-9,
           bandwidth * 1e-9, n);
    for (int i = 0; i < N_LIBRARIES; i++)
        if (g->blas[i].sgemm)
            printf(", \"%s_gemm_seconds\": %.6f", g->blas[i].name, g->blas_seconds[i]);
    printf(", \"threads\": %lld}\n", (long long)s->T);
}

int main(int argc, char **argv)
{
    struct shape s = parse_shape(argc, argv);
    struct gemms g = {.rounds = s.R};
    omp_set_num_threads((int)s.T);
    if (!load_libraries(&g, s.T)) {
        fprintf(stderr, "bench_floor: neither libblis.so.4 nor libopenblas.so.0 can be "
                        "loaded; install libblis4-openmp or libopenblas0-openmp\n");
        return 3;
    }
    measure_products(&g, &s);
    print_floor(&g, &s, copy_bandwidth(parameters(&s), s.R));
    return 0;
}
