/*
 * The fullest process of a layout is found by planning one of each stage.
 *
 * What to change when a run does not fit: a table of changes in the order of what they
 * cost, each tried through the plan. First those that only cost time, then those of
 * numbers and disks, then several together, then more machines, and last those after
 * which something else is trained.
 */
#include "train/fit.h"

#include "base/memory.h"
#include "base/thread.h"
#include "parallel/layout.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GB 1e9
#define MOST_CHANGES 3
#define MOST_STEPS 16    // that one change is tried in, milder ones first
#define MOST_SECONDS 0.5 // of computing: a user waits for the answer

struct trial { // a configuration to try, and the words that lead to it
    struct config cfg;
    char words[FIT_CHANGE_BYTES];
};

static void append_words(struct trial *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void append_words(struct trial *t, const char *fmt, ...)
{
    va_list args;
    size_t used = strlen(t->words);
    used += (size_t)snprintf(t->words + used, sizeof t->words - used, "%s-o ",
                             used ? " " : "");
    va_start(args, fmt);
    if (used < sizeof t->words)
        vsnprintf(t->words + used, sizeof t->words - used, fmt, args);
    va_end(args);
}

/* -- changes ------------------------------------------------------------------------- */

/* Each makes step 0, 1, ... of itself, more drastic ones later; false: there is none. */

typedef bool change_fn(struct trial *t, int step);

static bool recompute(struct trial *t, enum config_granularity what, const char *name)
{
    static const int parts[] = {
        [GRANULARITY_CORE_ATTN] = 1, [GRANULARITY_ONLY_ATTN] = 2, [GRANULARITY_FULL] = 3};
    if (t->cfg.use_recompute && parts[t->cfg.recompute_granularity] >= parts[what])
        return false;
    t->cfg.use_recompute = true;
    t->cfg.recompute_granularity = what;
    append_words(t, "use_recompute=True");
    append_words(t, "recompute_granularity=%s", name);
    return true;
}

static bool recompute_core(struct trial *t, int step)
{
    return step == 0 && recompute(t, GRANULARITY_CORE_ATTN, "core_attn");
}

static bool recompute_attention(struct trial *t, int step)
{
    return step == 0 && recompute(t, GRANULARITY_ONLY_ATTN, "only_attn");
}

static bool recompute_all(struct trial *t, int step)
{
    return step == 0 && recompute(t, GRANULARITY_FULL, "full");
}

/* Layers that are exempt from recomputation are no longer. */
static bool recompute_everywhere(struct trial *t, int step)
{
    if (step > 0 || t->cfg.no_recompute_layers.n_values == 0)
        return false;
    t->cfg.no_recompute_layers.n_values = 0;
    append_words(t, "no_recompute_layers=[]");
    return true;
}

/* Divisor number `step` of n, from the greatest below `end` down; 0: there is none. */
static int64_t divisor_below(int64_t n, int64_t end, int step)
{
    int64_t d = 1;
    for (; d * d < n; d++) // the great ones
        if (n % d == 0 && n / d < end && step-- == 0)
            return n / d;
    for (; d > 0; d--)
        if (d * d <= n && n % d == 0 && d < end && step-- == 0)
            return d;
    return 0;
}

/* The next smaller divisors of local_batch_size. */
static bool smaller_micro_batch(struct trial *t, int step)
{
    struct config_batch *b = &t->cfg.batch_size;
    int64_t micro = divisor_below(b->local_batch_size, b->micro_batch_size, step);
    if (micro == 0)
        return false;
    b->micro_batch_size = micro;
    b->num_micro_batches = b->local_batch_size / micro;
    t->cfg.distributed.tensor_shape[0] = micro;
    append_words(t, "batch_size.micro_batch_size=%lld", (long long)micro);
    append_words(t, "batch_size.num_micro_batches=%lld", (long long)b->num_micro_batches);
    return true;
}

/* Stages 1, 2, 3 over the processes that are data ranks anyway. */
static bool more_sharding(struct trial *t, int step)
{
    struct config_distributed *d = &t->cfg.distributed;
    struct config_sharding *s = &d->sharding;
    bool is_off = s->sharding_degree == 1;
    int64_t stage = (is_off ? 1 : s->sharding_stage + 1) + step;
    if (stage > 3 || (is_off && d->dp_degree == 1))
        return false;
    if (is_off) {
        s->sharding_degree = d->dp_degree;
        d->dp_degree = 1;
        append_words(t, "Distributed.dp_degree=1");
        append_words(t, "Distributed.sharding.sharding_degree=%lld",
                     (long long)s->sharding_degree);
    }
    s->sharding_stage = stage;
    append_words(t, "Distributed.sharding.sharding_stage=%lld", (long long)stage);
    return true;
}

static bool half_precision(struct trial *t, int step)
{
    if (step > 0 || t->cfg.mix_precision.dtype != DTYPE_F32)
        return false;
    t->cfg.mix_precision.dtype = DTYPE_BF16;
    append_words(t, "mix_precision.dtype=bfloat16");
    return true;
}

static bool half_gradients(struct trial *t, int step)
{
    if (step > 0 || !config_has_fp32_grads(&t->cfg) ||
        t->cfg.mix_precision.dtype == DTYPE_F32)
        return false;
    t->cfg.mix_precision.fp32_grads = TRUTH_FALSE;
    append_words(t, "mix_precision.fp32_grads=False");
    return true;
}

static bool offload(struct trial *t, int step)
{
    if (step > 0 || t->cfg.distributed.sharding.sharding_offload)
        return false;
    t->cfg.distributed.sharding.sharding_offload = true;
    append_words(t, "Distributed.sharding.sharding_offload=True");
    return true;
}

static bool shorter_samples(struct trial *t, int step)
{
    int64_t S = t->cfg.dataset.max_seq_len >> (step + 1);
    if (S < 64)
        return false;
    t->cfg.dataset.max_seq_len = S;
    t->cfg.distributed.tensor_shape[1] = S;
    append_words(t, "dataset.max_seq_len=%lld", (long long)S);
    return true;
}

static bool fewer_layers(struct trial *t, int step)
{
    struct config_model *m = &t->cfg.model;
    int64_t chunks = t->cfg.distributed.pp_degree * t->cfg.distributed.virtual_pp_degree;
    int64_t L = (m->num_layers >> (step + 1)) / chunks * chunks;
    if (L < 1)
        return false;
    m->num_layers = L;
    append_words(t, "Model.num_layers=%lld", (long long)L);
    recompute_everywhere(t, 0); // exempt layers may no longer exist
    return true;
}

static bool narrower_model(struct trial *t, int step)
{
    struct config_model *m = &t->cfg.model;
    int64_t H = m->hidden_size >> (step + 1);
    if (H < m->num_attention_heads)
        return false;
    m->hidden_size = H;
    m->ffn_hidden_size = 4 * H;
    t->cfg.distributed.tensor_shape[2] = H;
    append_words(t, "Model.hidden_size=%lld", (long long)H);
    append_words(t, "Model.ffn_hidden_size=%lld", (long long)m->ffn_hidden_size);
    return true;
}

/* -- the table ----------------------------------------------------------------------- */

enum kind { // of a change: two of a kind differ by how much
    KIND_NONE,
    KIND_RECOMPUTE,
    KIND_MICRO,
    KIND_SHARDING,
    KIND_TYPE,
    KIND_OFFLOAD,
    KIND_LENGTH,
    KIND_SIZE,
};

struct change {
    change_fn *make;
    enum kind kind;
};

static const struct change everywhere = {recompute_everywhere, KIND_RECOMPUTE};
static const struct change core = {recompute_core, KIND_RECOMPUTE};
static const struct change attention = {recompute_attention, KIND_RECOMPUTE};
static const struct change all = {recompute_all, KIND_RECOMPUTE};
static const struct change micro = {smaller_micro_batch, KIND_MICRO};
static const struct change sharding = {more_sharding, KIND_SHARDING};
static const struct change grads = {half_gradients, KIND_TYPE};
static const struct change type = {half_precision, KIND_TYPE};
static const struct change disk = {offload, KIND_OFFLOAD};
static const struct change length = {shorter_samples, KIND_LENGTH};
static const struct change layers = {fewer_layers, KIND_SIZE};
static const struct change width = {narrower_model, KIND_SIZE};

#define MOST_TOGETHER 7

/* Made together; the last one in steps, those before it as drastic as they get. */
static const struct change *const candidates[][MOST_TOGETHER] = {
    {&everywhere},
    {&core},
    {&micro},
    {&attention},
    {&all},
    {&sharding},
    {&grads},
    {&type},
    {&all, &micro},
    {&all, &type, &micro},
    {&all, &type, &micro, &grads},
    {&all, &micro, &sharding},
    {&all, &micro, &type, &grads, &sharding},
    {&disk},
    {&all, &micro, &disk},
    {&all, &micro, &type, &grads, &sharding, &disk},
    {NULL}, // more machines
    {&length},
    {&all, &micro, &type, &grads, &length},
    {&all, &micro, &type, &grads, &sharding, &layers},
    {&all, &micro, &type, &grads, &sharding, &disk, &layers},
    {&all, &micro, &type, &grads, &sharding, &disk, &width},
};

static void go_far(struct trial *t, change_fn *make)
{
    for (int step = MOST_STEPS; step >= 0; step--)
        if (make(t, step))
            return;
}

/* -- trying -------------------------------------------------------------------------- */

struct search {
    const struct config *cfg;
    const struct plan_data *data;
    int n_local;
    double available, on_gpu;
    char *words;
    clock_t until; // of clock(): no more is tried then
    int n_found;
    unsigned kinds[MOST_CHANGES]; // of what was found
};

/* The configuration's own rules, all of them, on what was changed. */
static bool is_accepted(const struct config *cfg)
{
    struct error ignored;
    return config_check_whole(cfg, "configuration", &ignored) == 0 &&
           layout_check(cfg, 0, &ignored) == 0;
}

static bool fits(const struct search *s, struct trial *t, double *needed)
{
    struct plan_memory mem;
    struct error ignored;
    int rank;
    if (!is_accepted(&t->cfg) || fit_fullest(&mem, &rank, &t->cfg, s->data, &ignored))
        return false;
    double needs_here = fit_needed(&mem, s->n_local);
    *needed = isfinite(s->on_gpu) ? mem.on_gpu : needs_here;
    return needs_here <= s->available && mem.on_gpu <= s->on_gpu;
}

static void add_change(struct search *s, const char *change, double needed)
{
    size_t used = strlen(s->words);
    snprintf(s->words + used, FIT_CHANGES_BYTES - used, "%s%s (%.2f GB)",
             used ? "; " : "", change, needed / 1e9);
    s->n_found++;
}

/* The kinds of changes that a candidate makes here, a bit each; 0: not its last one. */
static unsigned kinds_of(const struct config *cfg, const struct change *const *c,
                         int last)
{
    struct trial t = {.cfg = *cfg};
    unsigned kinds = 0;
    for (int i = 0; i <= last; i++)
        if (c[i]->make(&t, 0))
            kinds |= 1u << c[i]->kind;
        else if (i == last)
            return 0;
    return kinds;
}

/* Whether a part of these changes was found to be enough. */
static bool is_needless(const struct search *s, unsigned kinds)
{
    for (int i = 0; i < s->n_found; i++)
        if (s->kinds[i] && (s->kinds[i] & kinds) == s->kinds[i])
            return true;
    return false;
}

static void try_changes(struct search *s, const struct change *const *c)
{
    int last = 0;
    while (last + 1 < MOST_TOGETHER && c[last + 1])
        last++;
    unsigned kinds = kinds_of(s->cfg, c, last);
    if (kinds == 0 || is_needless(s, kinds))
        return;
    for (int step = 0; step <= MOST_STEPS && clock() < s->until; step++) {
        struct trial t = {.cfg = *s->cfg};
        double needed;
        for (int i = 0; i < last; i++)
            go_far(&t, c[i]->make);
        if (!c[last]->make(&t, step))
            return;
        if (fits(s, &t, &needed)) {
            s->kinds[s->n_found] = kinds;
            add_change(s, t.words, needed);
            return;
        }
    }
}

/* As many as can hold their share of the processes. */
static void try_machines(struct search *s)
{
    char words[128];
    struct plan_memory mem;
    struct error ignored;
    int rank;
    double whole = s->available * (double)s->n_local;
    if (s->n_local == 1 || isfinite(s->on_gpu) ||
        fit_fullest(&mem, &rank, s->cfg, s->data, &ignored))
        return;
    int n_here = (int)fmin((double)s->n_local, whole / fit_needed(&mem, 1));
    if (n_here < 1)
        return;
    snprintf(words, sizeof words, "%d processes on each of %d machines like this one",
             n_here, (s->n_local + n_here - 1) / n_here);
    add_change(s, words, fit_needed(&mem, n_here));
}

void fit_changes(char words[FIT_CHANGES_BYTES], const struct config *cfg,
                 const struct plan_data *data, int n_local, double available,
                 double on_gpu)
{
    struct search s = {.cfg = cfg,
                       .data = data,
                       .n_local = n_local,
                       .available = available,
                       .on_gpu = on_gpu,
                       .words = words,
                       .until = clock() + (clock_t)(MOST_SECONDS * CLOCKS_PER_SEC)};
    words[0] = 0;
    for (size_t i = 0; i < ARRAY_LEN(candidates) && s.n_found < MOST_CHANGES; i++)
        if (candidates[i][0])
            try_changes(&s, candidates[i]);
        else
            try_machines(&s);
}

/* -- whether it fits ----------------------------------------------------------------- */

double fit_needed(const struct plan_memory *mem, int n_local)
{
    return mem->in_machine - mem->saving - mem->shared + mem->shared / (double)n_local;
}

/* Processes of a stage differ by a rounding of their shares: one stands for all. */
int fit_fullest(struct plan_memory *mem, int *rank, const struct config *cfg,
                const struct plan_data *data, struct error *err)
{
    struct grid_shape shape = layout_grid(cfg);
    *mem = (struct plan_memory){0};
    *rank = 0;
    for (int stage = 0; stage < shape.pp; stage++) {
        struct plan plan;
        struct grid_coord at = {.pp = stage};
        if (plan_init(&plan, cfg, at, err))
            return -1;
        struct plan_memory one = plan_memory(&plan, cfg, data);
        plan_release(&plan);
        bool is_fuller = one.on_gpu != mem->on_gpu
                             ? one.on_gpu > mem->on_gpu
                             : fit_needed(&one, 1) > fit_needed(mem, 1);
        if (stage == 0 || is_fuller) {
            *mem = one;
            *rank = grid_rank_of(&shape, at);
        }
    }
    return 0;
}

int fit_refuse(const struct plan_memory *mem, int rank, double needed, double available,
               const struct config *cfg, const struct plan_data *data, int n_local,
               struct error *err)
{
    char changes[FIT_CHANGES_BYTES], whose[64] = "";
    fit_changes(changes, cfg, data, n_local,
                available + fit_needed(mem, n_local) - needed, (double)INFINITY);
    if (n_local > 1)
        snprintf(whose, sizeof whose, "for each of the %d processes here", n_local);
    return error_set(
        err, ERROR_RUNTIME,
        "not enough memory: rank %d needs %.2f GB and %.2f GB are available%s%s; "
        "parameters with gradients and optimizer take %.2f GB, activations %.2f GB with "
        "batch_size.micro_batch_size %lld, data %.2f GB. %s%s",
        rank, needed / GB, available / GB, n_local > 1 ? " " : "", whose,
        (mem->params + mem->grads + mem->optimizer) / GB, mem->activations / GB,
        (long long)cfg->batch_size.micro_batch_size, mem->data / GB,
        changes[0] ? "The cheapest changes that fit: "
                   : "No setting of this model fits here",
        changes);
}

int fit_check_gpu(const struct plan_memory *mem, int rank, double available,
                  const struct config *cfg, const struct plan_data *data, int n_local,
                  struct error *err)
{
    char changes[FIT_CHANGES_BYTES];
    if (mem->on_gpu <= available)
        return 0;
    fit_changes(changes, cfg, data, n_local,
                (double)memory_available_bytes() / (double)n_local, available);
    return error_set(
        err, ERROR_RUNTIME,
        "not enough memory of the GPU: rank %d needs %.2f GB and %.2f GB are available; "
        "parameters with gradients and optimizer take %.2f GB, activations %.2f GB with "
        "batch_size.micro_batch_size %lld. %s%s",
        rank, mem->on_gpu / GB, available / GB,
        (mem->params + mem->grads + mem->optimizer) / GB, mem->activations / GB,
        (long long)cfg->batch_size.micro_batch_size,
        changes[0] ? "The cheapest changes that fit: "
                   : "No setting of this model fits there",
        changes);
}

int fit_check_machine(int64_t n_ranks, bool is_oversubscribed, const struct config *cfg,
                      struct error *err)
{
    struct plan_data found;
    struct plan_memory mem;
    struct error ignored;
    char crowd[64] = "", changes[FIT_CHANGES_BYTES] = "";
    int rank, n_local = (int)n_ranks, n_processors = thread_processors();
    if (n_ranks < 1)
        return 0;
    // the ranks report data that cannot be read
    const struct plan_data *data = plan_data_find(&found, cfg, &ignored) ? NULL : &found;
    if (fit_fullest(&mem, &rank, cfg, data, err))
        return -1;
    double available = (double)memory_available_bytes();
    double each = available / (double)n_ranks, needed = fit_needed(&mem, n_local);
    bool is_crowded = !is_oversubscribed && thread_is_crowded(n_ranks);
    if (!is_crowded && needed <= each)
        return 0;
    if (is_crowded)
        snprintf(crowd, sizeof crowd, ", where more than %d need --oversubscribe",
                 RANKS_PER_PROCESSOR * n_processors);
    else
        fit_changes(changes, cfg, data, n_local, each, (double)INFINITY);
    return error_set(err, is_crowded ? ERROR_INPUT : ERROR_RUNTIME,
                     "%s: %lld process%s on this machine of %d processor%s%s; the "
                     "fullest, rank %d, needs %.2f GB of memory, and %.2f GB are free "
                     "for each (%.2f GB in all)%s%s",
                     is_crowded ? "too many ranks" : "not enough memory",
                     (long long)n_ranks, n_ranks == 1 ? "" : "es", n_processors,
                     n_processors == 1 ? "" : "s", crowd, rank, needed / GB, each / GB,
                     available / GB,
                     changes[0] ? "; the cheapest changes that fit: " : "", changes);
}
