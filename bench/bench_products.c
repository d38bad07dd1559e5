/*
 * bench_products - bare products by one library, on request.
 *
 *   bench_products [--library own|blis|openblas] [--dtype float32|float16|bfloat16]
 *                  [--kernels NAME] [--threads T]
 *
 * Prints one JSON object that says what multiplies, then answers lines of its standard
 * input, so that several libraries, each in a process of its own, can take turns at every
 * product; bench_torch_products.py is MKL's. Requests, and the number that answers:
 *
 *   product M N K FORM    seconds of the best of some calls; FORM is forward, input or
 *                         weight, see own_products.h
 *   copy N                bytes a second that a copy of N floats by all threads reads and
 *                         writes, the best of some
 *
 * `own` are Trefoil's products by one of its tables of kernels. The others are loaded by
 * name and compute float32 only; one that is not installed ends the program with 77.
 * BLIS_ARCH_TYPE and OPENBLAS_CORETYPE tell them which kernels to use.
 */
#include "measure.h"
#include "own_products.h"

#include <dlfcn.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CBLAS_ROW_MAJOR = 101, CBLAS_NO_TRANS = 111, CBLAS_TRANS = 112 };
enum { NOT_INSTALLED = 77 };

typedef void sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k,
                      float alpha, const float *a, int lda, const float *b, int ldb,
                      float beta, float *c, int ldc);

static struct {
    sgemm_fn *sgemm;    // NULL: Trefoil's own
    struct device *own; // what it multiplies on
    char words[64];     // what multiplies
} library;

/* -- libraries ----------------------------------------------------------------------- */

/* dlsym() returns an object pointer; POSIX lets it be a function all the same. */
static void load_symbol(void *handle, const char *name, void *fn, size_t fn_bytes)
{
    void *symbol = dlsym(handle, name);
    memcpy(fn, &symbol, fn_bytes);
}

/* From where the build found it, or from where the system does. */
static void *load_library(const char *found, const char *name)
{
    int how = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
    void *handle = found[0] ? dlopen(found, how) : NULL;
    if (!handle)
        handle = dlopen(name, how);
    if (handle)
        load_symbol(handle, "cblas_sgemm", &library.sgemm, sizeof library.sgemm);
    if (!library.sgemm) {
        fprintf(stderr, "%s is not installed\n", name);
        exit(NOT_INSTALLED);
    }
    return handle;
}

/* It knows its kernels after its first product only. */
static void open_blis(int64_t n_threads)
{
    void *handle = load_library(BENCH_BLIS, "libblis.so.4");
    void (*set_threads)(int64_t) = NULL; // dim_t has 64 bits in Debian's BLIS
    int (*query)(void) = NULL;
    const char *(*name)(int) = NULL;
    float a = 1, b = 1, c = 0;
    load_symbol(handle, "bli_thread_set_num_threads", &set_threads, sizeof set_threads);
    load_symbol(handle, "bli_arch_query_id", &query, sizeof query);
    load_symbol(handle, "bli_arch_string", &name, sizeof name);
    if (set_threads)
        set_threads(n_threads);
    library.sgemm(CBLAS_ROW_MAJOR, CBLAS_NO_TRANS, CBLAS_NO_TRANS, 1, 1, 1, 1.0f, &a, 1,
                  &b, 1, 0.0f, &c, 1);
    snprintf(library.words, sizeof library.words, "BLIS %s",
             query && name ? name(query()) : "");
}

static void open_openblas(int64_t n_threads)
{
    void *handle = load_library(BENCH_OPENBLAS, "libopenblas.so.0");
    void (*set_threads)(int) = NULL;
    char *(*name)(void) = NULL;
    load_symbol(handle, "openblas_set_num_threads", &set_threads, sizeof set_threads);
    load_symbol(handle, "openblas_get_corename", &name, sizeof name);
    if (set_threads)
        set_threads((int)n_threads);
    snprintf(library.words, sizeof library.words, "OpenBLAS %s", name ? name() : "");
}

static void open_own(enum dtype dtype, const char *kernels, int64_t n_threads)
{
    library.own = measure_device(dtype, kernels, n_threads);
    snprintf(library.words, sizeof library.words, "Trefoil %s", library.own->k->name);
}

/* -- answers ------------------------------------------------------------------------- */

static void multiply(const struct product *p, const struct product_memory *memory)
{
    bool is_a_turned = p->form == PRODUCT_BY_WEIGHT;
    bool is_b_turned = p->form == PRODUCT_FORWARD;
    if (!library.sgemm) {
        own_product(library.own, p, memory);
        return;
    }
    library.sgemm(CBLAS_ROW_MAJOR, is_a_turned ? CBLAS_TRANS : CBLAS_NO_TRANS,
                  is_b_turned ? CBLAS_TRANS : CBLAS_NO_TRANS, (int)p->m, (int)p->n,
                  (int)p->k, 1.0f, memory->a, (int)(is_a_turned ? p->m : p->k), memory->b,
                  (int)(is_b_turned ? p->k : p->n), 0.0f, memory->c, (int)p->n);
}

/* At least twice, the first time on cold memory, and small ones more often. */
static double product_seconds(const struct product *p, enum dtype dtype)
{
    const double enough = 0.06;
    struct product_memory memory;
    double best = 0, total = 0;
    product_memory_open(&memory, dtype, p);
    for (int i = 0; i < 2 || total < enough; i++) {
        double start = measure_seconds();
        multiply(p, &memory);
        double seconds = measure_seconds() - start;
        total += seconds;
        best = i == 0 || seconds < best ? seconds : best;
    }
    product_memory_close(&memory);
    return best;
}

static double copy_rate(int64_t n_floats)
{
    enum { COPIES = 6 };
    struct measure_copy copy;
    measure_copy_open(&copy, n_floats);
    for (int i = 0; i < COPIES; i++)
        measure_copy_once(&copy);
    measure_copy_close(&copy);
    return copy.best;
}

/* Returns -1 when it is no request. */
static double answer(const char *line, enum dtype dtype)
{
    static const char *const forms[] = {"forward", "input", "weight"};
    long long m, n, k;
    char form[16] = "";
    if (sscanf(line, "copy %lld", &n) == 1 && n > 0)
        return copy_rate(n);
    if (sscanf(line, "product %lld %lld %lld %15s", &m, &n, &k, form) != 4 || m < 1 ||
        n < 1 || k < 1)
        return -1;
    for (int i = 0; i < 3; i++)
        if (!strcmp(form, forms[i])) {
            struct product p = {m, n, k, (enum product_form)i};
            return product_seconds(&p, dtype);
        }
    return -1;
}

int main(int argc, char **argv)
{
    int64_t n_threads = omp_get_num_procs();
    const char *name = "own", *kernels = NULL, *dtype_word = NULL;
    const struct measure_option options[] = {{"library", NULL, &name},
                                             {"dtype", NULL, &dtype_word},
                                             {"kernels", NULL, &kernels},
                                             {"threads", &n_threads, NULL},
                                             {NULL, NULL, NULL}};
    char line[128];
    measure_parse(argc, argv, options);
    enum dtype dtype = measure_dtype(dtype_word);
    kernels_set_threads((int)n_threads);
    if (!strcmp(name, "blis"))
        open_blis(n_threads);
    else if (!strcmp(name, "openblas"))
        open_openblas(n_threads);
    else
        open_own(dtype, kernels, n_threads);
    if (library.sgemm && dtype != DTYPE_F32) {
        fprintf(stderr, "%s has products of float32 only\n", name);
        return NOT_INSTALLED;
    }
    printf("{\"words\": \"%s\"}\n", library.words);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        double number = answer(line, dtype);
        if (number < 0) {
            fprintf(stderr, "bench_products: no request: %s", line);
            return 2;
        }
        printf("%.9g\n", number);
        fflush(stdout);
    }
    return 0;
}
