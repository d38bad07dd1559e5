/*
 * Every rule names the key it would change, where it and its counterpart were set, and
 * values that would work.
 */
#include "config/config_check.h"

#include "base/log.h"
#include "config/config_print.h"
#include "config/config_rates.h"
#include "config/config_value.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_LOCAL_BATCH 8
#define MAX_LISTED 3 // divisors offered on each side of a value that does not divide

/* -- origins ------------------------------------------------------------------------- */

bool config_was_given(const struct config_origins *origins, const struct config_key *key)
{
    if (origins->whole)
        return true;
    CHECK(origins->of, "'%s' has no origin", key->path);
    const struct config_origin *o = &origins->of[key - config_keys];
    return o->source != SOURCE_DEFAULT && !o->is_empty;
}

/* The key as the user called it. */
static const char *name_of(const struct config_origins *origins,
                           const struct config_key *key)
{
    if (origins->whole || !config_was_given(origins, key))
        return key->path;
    const char *name = origins->of[key - config_keys].name;
    return name[0] ? name : key->path;
}

void config_where(const struct config_origins *origins, const struct config_key *key,
                  char buf[CONFIG_WHERE_BYTES])
{
    char shown[CONFIG_SHOWN_BYTES];
    if (origins->whole) {
        snprintf(buf, CONFIG_WHERE_BYTES, "%s", origins->whole);
        return;
    }
    const struct config_origin *o = &origins->of[key - config_keys];
    switch (o->source) {
    case SOURCE_DEFAULT:
        snprintf(buf, CONFIG_WHERE_BYTES, "default");
        break;
    case SOURCE_FILE:
        snprintf(buf, CONFIG_WHERE_BYTES, "%s:%d:%d", o->file, o->place.line,
                 o->place.column);
        break;
    case SOURCE_OPTION:
        config_show(o->option, shown);
        snprintf(buf, CONFIG_WHERE_BYTES, "-o %s", shown);
        break;
    case SOURCE_CHECKPOINT:
        snprintf(buf, CONFIG_WHERE_BYTES, "checkpoint");
        break;
    }
}

int config_refuse(const struct config_origins *origins, const struct config_key *key,
                  const struct config_key *other, struct error *err, const char *fmt, ...)
{
    char where[CONFIG_WHERE_BYTES], sentence[1024];
    bool is_given = config_was_given(origins, key);
    va_list args;
    va_start(args, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, args);
    va_end(args);
    config_where(origins, is_given || !other ? key : other, where);
    return error_set(err, ERROR_INPUT, "%s: %s%s: %s", where, name_of(origins, key),
                     is_given ? "" : " (not given)", sentence);
}

/* -- rules --------------------------------------------------------------------------- */

/* Two keys that disagree, and what a message says about the second. */
struct pair {
    const struct config_key *key, *other;
    char aside[CONFIG_WHERE_BYTES + 4]; // " (file:3:7)" of `other`, or ""
};

static struct pair pair_of(const struct config_origins *origins, const char *path,
                           const char *other)
{
    struct pair p = {config_key_at(path), config_key_at(other), ""};
    char where[CONFIG_WHERE_BYTES];
    if (config_was_given(origins, p.key) && config_was_given(origins, p.other)) {
        config_where(origins, p.other, where);
        snprintf(p.aside, sizeof p.aside, " (%s)", where);
    }
    return p;
}

/* -- values of a later version ------------------------------------------------------- */

/* Can this version honour the value of the member? */
static bool works_now(const struct config_key *key, const struct config *cfg)
{
    char value[CONFIG_SHOWN_BYTES];
    const char *p = key->works_now;
    if (!p)
        return true;
    config_value_text(key, cfg, value, sizeof value);
    while (p) {
        size_t n = strcspn(p, "|");
        if (strlen(value) == n && memcmp(p, value, n) == 0)
            return true;
        p = p[n] ? p + n + 1 : NULL;
    }
    return false;
}

int config_check_works_now(const struct config *cfg, const struct config_origins *origins,
                           struct error *err)
{
    char text[sizeof err->text] = "", line[512], where[CONFIG_WHERE_BYTES],
                     value[CONFIG_SHOWN_BYTES];
    size_t used = 0;
    int n_refused = 0;
    for (int i = 0; i < config_n_keys; i++) {
        const struct config_key *key = &config_keys[i];
        if (!config_was_given(origins, key) || works_now(key, cfg))
            continue;
        config_where(origins, key, where);
        config_value_text(key, cfg, value, sizeof value);
        int n = snprintf(
            line, sizeof line, "%s%s: %s: %s is not yet in this version: use %s",
            n_refused ? "\n" : "", where, name_of(origins, key), value, key->works_now);
        n_refused++;
        if (used + (size_t)n + sizeof "\nand more" > sizeof text) {
            snprintf(text + used, sizeof text - used, "\nand more");
            break;
        }
        memcpy(text + used, line, (size_t)n + 1);
        used += (size_t)n;
    }
    return n_refused ? error_set(err, ERROR_INPUT, "%s", text) : 0;
}

/* -- divisors ------------------------------------------------------------------------ */

/* "1, 2, 4 or 8": the divisors of n nearest to `near`. */
static void list_divisors(int64_t n, int64_t near, char *buf, size_t size)
{
    int64_t found[2 * MAX_LISTED];
    int n_found = 0, n_below = 0;
    for (int64_t d = i64_min(near, n); d >= 1 && n_below < MAX_LISTED; d--)
        if (n % d == 0) {
            memmove(found + 1, found, (size_t)n_found * sizeof *found);
            found[0] = d;
            n_found++;
            n_below++;
        }
    for (int64_t d = near + 1; d <= n && n_found < n_below + MAX_LISTED; d++)
        if (n % d == 0)
            found[n_found++] = d;
    size_t used = 0;
    buf[0] = 0;
    for (int i = 0; i < n_found && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%lld",
                                 i == 0             ? ""
                                 : i == n_found - 1 ? " or "
                                                    : ", ",
                                 (long long)found[i]);
}

/* A value that must divide another and does not. */
static int refuse_divisor(const struct config_origins *origins, const char *path,
                          int64_t value, const char *other, int64_t n, struct error *err)
{
    struct pair p = pair_of(origins, path, other);
    char divisors[160];
    list_divisors(n, value, divisors, sizeof divisors);
    return config_refuse(origins, p.key, p.other, err,
                         "%" PRId64 " does not divide %s %" PRId64 "%s: use %s", value,
                         config_leaf(other), n, p.aside, divisors);
}

/* -- batch sizes --------------------------------------------------------------------- */

#define GLOBAL "batch_size.global_batch_size"
#define LOCAL "batch_size.local_batch_size"
#define MICRO "batch_size.micro_batch_size"
#define COUNT "batch_size.num_micro_batches"

static int64_t data_ranks(const struct config *cfg)
{
    return cfg->distributed.dp_degree * cfg->distributed.sharding.sharding_degree;
}

/* Batches of local_batch_size that one update has, over all data ranks. */
static int64_t update_batches(const struct config *cfg)
{
    return data_ranks(cfg) * i64_max(1, cfg->batch_size.gradient_accumulation);
}

/* "2 data ranks (dp_degree x sharding_degree) x gradient_accumulation 3" */
static void describe_batches(const struct config *cfg, char *buf, size_t size)
{
    int64_t ranks = data_ranks(cfg), n = cfg->batch_size.gradient_accumulation;
    int used =
        snprintf(buf, size, "%" PRId64 " data rank%s (dp_degree x sharding_degree)",
                 ranks, ranks == 1 ? "" : "s");
    if (n > 1)
        snprintf(buf + used, size - (size_t)used, " x gradient_accumulation %" PRId64, n);
}

static int derive_local(struct config *cfg, const struct config_origins *origins,
                        struct error *err)
{
    struct config_batch *b = &cfg->batch_size;
    int64_t n = update_batches(cfg);
    char batches[128];
    if (b->local_batch_size)
        return 0;
    if (!b->global_batch_size)
        b->local_batch_size = DEFAULT_LOCAL_BATCH;
    else if (b->global_batch_size % n == 0)
        b->local_batch_size = b->global_batch_size / n;
    if (b->local_batch_size)
        return 0;
    describe_batches(cfg, batches, sizeof batches);
    return config_refuse(origins, config_key_at(GLOBAL), NULL, err,
                         "%" PRId64 " is not a multiple of the %s: use %" PRId64,
                         b->global_batch_size, batches,
                         i64_round_up(b->global_batch_size, n));
}

/* The size of a micro-batch and their number: either follows from the other. A size that
 * does not divide is left for check_micro(), which blames the size, not the number. */
static int derive_micro(struct config *cfg, const struct config_origins *origins,
                        struct error *err)
{
    struct config_batch *b = &cfg->batch_size;
    int64_t count = i64_max(b->num_micro_batches, 1);
    if (b->micro_batch_size && b->num_micro_batches)
        return 0;
    if (b->micro_batch_size) {
        b->num_micro_batches = i64_max(1, b->local_batch_size / b->micro_batch_size);
        return 0;
    }
    if (b->local_batch_size % count)
        return refuse_divisor(origins, COUNT, count, LOCAL, b->local_batch_size, err);
    b->micro_batch_size = b->local_batch_size / count;
    b->num_micro_batches = count;
    return 0;
}

static int check_global(const struct config *cfg, const struct config_origins *origins,
                        struct error *err)
{
    struct pair p = pair_of(origins, GLOBAL, LOCAL);
    const struct config_batch *b = &cfg->batch_size;
    int64_t n = update_batches(cfg), product;
    char or_local[64] = "", batches[128];
    describe_batches(cfg, batches, sizeof batches);
    if (__builtin_mul_overflow(b->local_batch_size, n, &product) ||
        (double)product > p.key->range.max)
        return config_refuse(origins, p.other, NULL, err,
                             "%" PRId64 " samples on %s are too many: use at most %.0f "
                             "together",
                             b->local_batch_size, batches, p.key->range.max);
    if (b->global_batch_size == product)
        return 0;
    if (b->global_batch_size % n == 0)
        snprintf(or_local, sizeof or_local, ", or local_batch_size %" PRId64,
                 b->global_batch_size / n);
    return config_refuse(origins, p.key, p.other, err,
                         "%" PRId64 " is not local_batch_size %" PRId64 "%s x %s: use "
                         "%" PRId64 "%s",
                         b->global_batch_size, b->local_batch_size, p.aside, batches,
                         product, or_local);
}

static int check_micro(const struct config *cfg, const struct config_origins *origins,
                       struct error *err)
{
    const struct config_batch *b = &cfg->batch_size;
    if (b->local_batch_size % b->micro_batch_size)
        return refuse_divisor(origins, MICRO, b->micro_batch_size, LOCAL,
                              b->local_batch_size, err);
    int64_t count = b->local_batch_size / b->micro_batch_size;
    if (b->num_micro_batches == count)
        return 0;
    struct pair p = pair_of(origins, COUNT, MICRO);
    return config_refuse(
        origins, p.key, p.other, err,
        "%" PRId64 " is not local_batch_size %" PRId64 " / micro_batch_size %" PRId64
        "%s: use %" PRId64 ", or leave one of them out",
        b->num_micro_batches, b->local_batch_size, b->micro_batch_size, p.aside, count);
}

/* -- deriving ------------------------------------------------------------------------ */

static void shape_of(const struct config *cfg, int64_t shape[CONFIG_SHAPE_DIMS])
{
    shape[0] = cfg->batch_size.micro_batch_size;
    shape[1] = cfg->dataset.max_seq_len;
    shape[2] = cfg->model.hidden_size;
}

/* A layout that does not fit the processes is refused when they join the job, with the
 * layouts that would fit; here dp_degree only must be a number that rules can use. */
static int64_t derive_dp(const struct config_distributed *d, int64_t n_processes)
{
    struct config_distributed rest = *d;
    rest.dp_degree = 1;
    int64_t each = config_n_processes(&(struct config){.distributed = rest});
    return i64_max(1, n_processes / each);
}

/* Somebody who gives a number of epochs and none of steps means the epochs, not the
 * default number of steps. */
static void derive_steps(struct config *cfg, const struct config_origins *origins)
{
    const struct config_key *steps = config_key_at("max_steps");
    if (origins->of[steps - config_keys].source == SOURCE_DEFAULT &&
        config_was_given(origins, config_key_at("num_train_epochs")))
        cfg->max_steps = 0;
}

int config_derive(struct config *cfg, const struct config_origins *origins,
                  int64_t n_processes, struct error *err)
{
    struct config_batch *b = &cfg->batch_size;
    derive_steps(cfg, origins);
    if (!cfg->model.ffn_hidden_size)
        cfg->model.ffn_hidden_size = 4 * cfg->model.hidden_size;
    if (!config_was_given(origins, config_key_at("Model.embed_drop_rate")))
        cfg->model.embed_drop_rate = cfg->model.hidden_dropout_prob;
    config_rates_derive(cfg, origins);
    if (!cfg->distributed.dp_degree)
        cfg->distributed.dp_degree = derive_dp(&cfg->distributed, n_processes);
    if (derive_local(cfg, origins, err))
        return -1;
    if (!b->global_batch_size &&
        __builtin_mul_overflow(b->local_batch_size, update_batches(cfg),
                               &b->global_batch_size))
        b->global_batch_size = INT64_MAX; // too many, as config_check() reports
    if (derive_micro(cfg, origins, err))
        return -1;
    if (!cfg->distributed.tensor_shape[0])
        shape_of(cfg, cfg->distributed.tensor_shape);
    if (cfg->mix_precision.use_pure_fp16 &&
        !config_was_given(origins, config_key_at("mix_precision.dtype")))
        cfg->mix_precision.dtype = DTYPE_F16;
    return 0;
}

/* -- the other rules ----------------------------------------------------------------- */

static int check_heads(const struct config *cfg, const struct config_origins *origins,
                       struct error *err)
{
    const struct config_model *m = &cfg->model;
    if (m->hidden_size % m->num_attention_heads == 0)
        return 0;
    return refuse_divisor(origins, "Model.num_attention_heads", m->num_attention_heads,
                          "Model.hidden_size", m->hidden_size, err);
}

/* Whole heads and an equal share of inner units for each tensor-parallel process. */
static int check_mp(const struct config *cfg, const struct config_origins *origins,
                    struct error *err)
{
    const struct config_model *m = &cfg->model;
    int64_t mp = cfg->distributed.mp_degree;
    if (m->num_attention_heads % mp != 0)
        return refuse_divisor(origins, "Distributed.mp_degree", mp,
                              "Model.num_attention_heads", m->num_attention_heads, err);
    if (m->ffn_hidden_size % mp != 0)
        return refuse_divisor(origins, "Distributed.mp_degree", mp,
                              "Model.ffn_hidden_size", m->ffn_hidden_size, err);
    if (cfg->distributed.sequence_parallel && cfg->dataset.max_seq_len % mp != 0)
        return refuse_divisor(origins, "Distributed.mp_degree", mp, "dataset.max_seq_len",
                              cfg->dataset.max_seq_len, err);
    if (m->vocab_size < mp)
        return config_refuse(
            origins, pair_of(origins, "Distributed.mp_degree", "Model.vocab_size").key,
            NULL, err,
            "%" PRId64 " processes cannot share a vocabulary of %" PRId64
            ": use at most that many",
            mp, m->vocab_size);
    return 0;
}

static int check_positions(const struct config *cfg, const struct config_origins *origins,
                           struct error *err)
{
    int64_t S = cfg->dataset.max_seq_len, P = cfg->model.max_position_embeddings;
    if (S <= P)
        return 0;
    struct pair p =
        pair_of(origins, "dataset.max_seq_len", "Model.max_position_embeddings");
    return config_refuse(origins, p.key, p.other, err,
                         "%" PRId64 " is more than max_position_embeddings %" PRId64
                         "%s: %s max_position_embeddings: %" PRId64
                         ", or use at most max_seq_len: %" PRId64,
                         S, P, p.aside,
                         config_was_given(origins, p.other) ? "change that line to"
                                                            : "add to Model the line",
                         S, P);
}

static int check_shape(const struct config *cfg, const struct config_origins *origins,
                       struct error *err)
{
    int64_t want[CONFIG_SHAPE_DIMS];
    shape_of(cfg, want);
    if (memcmp(want, cfg->distributed.tensor_shape, sizeof want) == 0)
        return 0;
    return config_refuse(origins, config_key_at("Distributed.tensor_shape"), NULL, err,
                         "it is not (micro_batch_size, max_seq_len, hidden_size): use "
                         "[%" PRId64 ", %" PRId64 ", %" PRId64 "], or leave it out",
                         want[0], want[1], want[2]);
}

static int check_eos(const struct config *cfg, const struct config_origins *origins,
                     struct error *err)
{
    int64_t eos = cfg->dataset.eos_token_id, V = cfg->model.vocab_size;
    if (eos < V)
        return 0;
    struct pair p = pair_of(origins, "dataset.eos_token_id", "Model.vocab_size");
    return config_refuse(origins, p.key, p.other, err,
                         "%" PRId64 " is not below vocab_size %" PRId64
                         "%s: use at most %" PRId64,
                         eos, V, p.aside, V - 1);
}

static bool tests_steps(const struct config *cfg)
{
    return cfg->eval_freq > 0 && cfg->eval_iters > 0 &&
           (cfg->max_steps == 0 || cfg->eval_freq <= cfg->max_steps);
}

bool config_tests_epochs(const struct config *cfg)
{
    return cfg->test_interval > 0 && cfg->eval_iters > 0 && cfg->dataset.split[1] > 0;
}

bool config_evaluates(const struct config *cfg)
{
    return tests_steps(cfg) || config_tests_epochs(cfg);
}

static int check_split(const struct config *cfg, const struct config_origins *origins,
                       struct error *err)
{
    struct pair p = pair_of(origins, "dataset.split", "eval_freq");
    if (cfg->dataset.split[0] <= 0)
        return config_refuse(origins, p.key, NULL, err,
                             "the training part, the first, has weight 0: give it a "
                             "weight, as in 949,50,1");
    if (cfg->dataset.split[1] <= 0 && tests_steps(cfg))
        return config_refuse(origins, p.key, NULL, err,
                             "the validation part, the second, has weight 0, but "
                             "eval_freq is %" PRId64
                             "%s: give it a weight, or set eval_freq to 0",
                             cfg->eval_freq, p.aside);
    return 0;
}

static int check_weights(const struct config *cfg, const struct config_origins *origins,
                         struct error *err)
{
    int64_t n_weights = cfg->dataset.weights.n_values;
    int64_t n_paths = cfg->dataset.input_dir.n_paths;
    if (n_weights == 0 || n_weights == n_paths)
        return 0;
    struct pair p = pair_of(origins, "dataset.weights", "dataset.input_dir");
    return config_refuse(
        origins, p.key, p.other, err,
        "%" PRId64 " weight%s, but input_dir names %" PRId64 " path%s%s: "
        "give one for each, or none",
        n_weights, n_weights == 1 ? "" : "s", n_paths, n_paths == 1 ? "" : "s", p.aside);
}

static int check_dtype(const struct config *cfg, const struct config_origins *origins,
                       struct error *err)
{
    struct pair p =
        pair_of(origins, "mix_precision.use_pure_fp16", "mix_precision.dtype");
    if (!cfg->mix_precision.use_pure_fp16 || cfg->mix_precision.dtype == DTYPE_F16)
        return 0;
    return config_refuse(origins, p.key, p.other, err,
                         "it says float16 and mix_precision.dtype says %s%s: leave one "
                         "of them out",
                         cfg->mix_precision.dtype == DTYPE_F32 ? "float32" : "bfloat16",
                         p.aside);
}

/* Below 1 it would lose gradients, not save them. Checkpoints of runs that had less are
 * read all the same. */
static int check_scale(const struct config *cfg, const struct config_origins *origins,
                       struct error *err)
{
    const struct config_key *key = config_key_at("mix_precision.scale_loss");
    if (cfg->mix_precision.dtype != DTYPE_F16 || cfg->mix_precision.scale_loss >= 1 ||
        origins->whole)
        return 0;
    return config_refuse(origins, key, NULL, err, "must be at least 1 for float16");
}

static int check_kept_layers(const struct config *cfg,
                             const struct config_origins *origins, struct error *err)
{
    const struct config_numbers *kept = &cfg->no_recompute_layers;
    for (int64_t i = 0; i < kept->n_values; i++) {
        double layer = kept->values[i];
        if (layer == (double)(int64_t)layer && layer < (double)cfg->model.num_layers)
            continue;
        return config_refuse(origins, config_key_at("no_recompute_layers"), NULL, err,
                             "%g is no layer of this model: they are 0 to %" PRId64,
                             layer, cfg->model.num_layers - 1);
    }
    return 0;
}

int config_check(const struct config *cfg, const struct config_origins *origins,
                 struct error *err)
{
    typedef int rule_fn(const struct config *, const struct config_origins *,
                        struct error *);
    static rule_fn *const rules[] = {check_heads,  check_mp,    check_positions,
                                     check_global, check_micro, check_shape,
                                     check_eos,    check_split, check_weights,
                                     check_dtype,  check_scale, check_kept_layers};
    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        if (rules[i](cfg, origins, err))
            return -1;
    return 0;
}

/* A number of epochs that was given after one of steps was meant to count. */
static void warn_outvoted_epochs(const struct config *cfg,
                                 const struct config_origins *origins)
{
    struct pair p = pair_of(origins, "num_train_epochs", "max_steps");
    char where[CONFIG_WHERE_BYTES];
    if (cfg->max_steps == 0 || !config_was_given(origins, p.key) ||
        origins->of[p.key - config_keys].layer <=
            origins->of[p.other - config_keys].layer)
        return;
    config_where(origins, p.key, where);
    log_warning("%s: max_steps %" PRId64 "%s decides, not the number of epochs: leave "
                "max_steps empty (-o max_steps=) to let it count",
                where, cfg->max_steps, p.aside);
}

void config_warn(const struct config *cfg, const struct config_origins *origins)
{
    config_rates_warn(cfg, origins);
    warn_outvoted_epochs(cfg, origins);
}

int config_check_whole(const struct config *cfg, const char *name, struct error *err)
{
    const struct config_origins origins = {.whole = name};
    struct error reason;
    for (int i = 0; i < config_n_keys; i++) {
        const struct config_key *key = &config_keys[i];
        const void *member = config_member_const(key, cfg);
        double value = key->type == CONFIG_INT ? (double)*(const int64_t *)member : 0;
        char text[CONFIG_SHOWN_BYTES];
        if (key->type != CONFIG_INT && key->type != CONFIG_FLOAT)
            continue;
        if (key->type == CONFIG_FLOAT)
            value = *(const double *)member;
        config_value_text(key, cfg, text, sizeof text);
        if (config_check_range(key, value, text, &reason))
            return config_refuse(&origins, key, NULL, err, "%s", reason.text);
    }
    if (config_check_works_now(cfg, &origins, err))
        return -1;
    return config_check(cfg, &origins, err);
}
