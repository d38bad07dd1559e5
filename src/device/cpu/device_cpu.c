/*
 * The processor as a device: memory is the host's, a stream is program order. And its
 * tables of kernels: which there are, which is the fastest here, and on how many threads
 * they run.
 */
#include "device/device.h"

#include "base/log.h"
#include "device/cpu/product.h"
#include "device/kernel_sets.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* -- tables -------------------------------------------------------------------------- */

extern const struct kernels kernels_ref;

/* Mutable, but set before there is a model. */
static enum kernel_set wanted = KERNEL_SET_AUTO;
static struct device devices[DTYPE_BF16 + 1];

int kernels_list(const struct kernels **tables, int max_tables)
{
    char lacking[KERNEL_SET_WORDS_BYTES];
    int n = 0;
    if (n < max_tables)
        tables[n++] = &kernels_ref;
    for (int i = KERNEL_SET_GENERIC; i < N_KERNEL_SETS && n < max_tables; i++)
        if (!kernel_set_lacks((enum kernel_set)i, processor_facts(), lacking))
            tables[n++] = kernel_set_table((enum kernel_set)i);
    return n;
}

const struct kernels *kernels_best(enum dtype dtype)
{
    return kernel_set_table(kernel_set_for(wanted, processor_facts(), dtype));
}

int kernels_use(enum kernel_set set, struct error *err)
{
    char words[KERNEL_SET_WORDS_BYTES];
    uint32_t facts = processor_facts();
    if (kernel_set_check(set, facts, err))
        return -1;
    if (set == KERNEL_SET_AUTO && kernel_set_lies(facts, words))
        log_warning("this processor says that it has AMX, but it lacks %s; kernels: %s",
                    words, kernel_set_name(kernel_set_for(set, facts, DTYPE_BF16)));
    wanted = set;
    for (size_t i = 0; i < ARRAY_LEN(devices); i++) // those that a plan was made with
        if (devices[i].k)
            devices[i].k = kernels_best(devices[i].dtype);
    return 0;
}

void kernels_words(char words[KERNEL_SET_WORDS_BYTES])
{
    const char *usual = kernels_best(DTYPE_F32)->name;
    const char *of_bf16 = kernels_best(DTYPE_BF16)->name;
    if (usual == of_bf16)
        snprintf(words, KERNEL_SET_WORDS_BYTES, "%s", usual);
    else
        snprintf(words, KERNEL_SET_WORDS_BYTES, "%s; %s for bfloat16", usual, of_bf16);
}

/* What threads of attention's backward have for the heads they work on: the sums of dq,
 * where those have to be rounded, and whose turn it is to add to them; by tiles. */
int64_t attention_scratch(enum dtype dtype, int64_t S, int64_t A, int64_t A_kv, int64_t D)
{
    int64_t heads = omp_get_max_threads() * (A / A_kv),
            tiles = i64_round_up(S, 128) / 128;
    int64_t sums = dtype == DTYPE_F32 ? 0 : 128 * i64_round_up(D, 32);
    return heads * tiles * (sums + i64_round_up(D, 256) / 256);
}

int64_t kernel_partials(int64_t N, int64_t C)
{
    return i64_round_up(N, KERNEL_ROW_CHUNK) / KERNEL_ROW_CHUNK * C;
}

void kernels_set_threads(int n_threads)
{
    omp_set_num_threads(n_threads > 0 ? n_threads : 1);
}

int kernels_threads(void)
{
    return omp_get_max_threads();
}

size_t kernels_bytes(int n_threads)
{
    return product_bytes(n_threads);
}

int kernels_start(struct error *err)
{
    return product_start(err);
}

/* -- the device ---------------------------------------------------------------------- */

static void *cpu_alloc(struct device *dev, size_t bytes)
{
    (void)dev;
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, bytes, MADV_HUGEPAGE); // a wish: without them only speed differs
    return memory;
}

static void cpu_free(struct device *dev, void *memory, size_t bytes)
{
    (void)dev;
    munmap(memory, bytes);
}

static void cpu_copy(struct stream *s, void *to, const void *from, size_t bytes,
                     enum copy_kind kind)
{
    (void)s;
    (void)kind;
    memcpy(to, from, bytes);
}

static void cpu_fill(struct stream *s, void *to, uint8_t byte, size_t bytes)
{
    (void)s;
    memset(to, byte, bytes);
}

static void cpu_record(struct event *e, struct stream *s)
{
    e->stream = s;
}

static void cpu_wait(struct stream *s, const struct event *e)
{
    (void)s; // what was recorded is done
    (void)e;
}

static void cpu_synchronize(struct stream *s)
{
    (void)s;
}

static size_t cpu_memory_left(struct device *dev)
{
    (void)dev;
    long pages = sysconf(_SC_AVPHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && bytes > 0 ? (size_t)pages * (size_t)bytes : 0;
}

static const struct device_ops cpu_ops = {
    .alloc = cpu_alloc,
    .free = cpu_free,
    .copy = cpu_copy,
    .fill = cpu_fill,
    .record = cpu_record,
    .wait = cpu_wait,
    .synchronize = cpu_synchronize,
    .memory_left = cpu_memory_left,
};

void device_cpu_over(struct device *dev, const struct kernels *k, enum dtype dtype)
{
    *dev = (struct device){.name = "cpu", .ops = &cpu_ops, .k = k, .dtype = dtype};
    for (int i = 0; i < N_STREAMS; i++)
        dev->streams[i] = (struct stream){.dev = dev, .name = (enum stream_name)i};
}

struct device *device_cpu(enum dtype dtype)
{
    struct device *dev = &devices[dtype];
    if (!dev->k)
        device_cpu_over(dev, kernels_best(dtype), dtype);
    return dev;
}
