/*
 * Names that are not in the table of keys: other names of its keys, from PaddleFleetX
 * since August 2022 and from Colossal-AI, and names of those files that mean nothing
 * here.
 *
 * All forms go through this one table, so a file may mix them. Names of PaddleFleetX that
 * only steer its own implementation (lists of operators, its data loader, its profiler)
 * are accepted and named in one line; what would train something else is refused.
 */
#include "config/config_names.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define FLEETX "PaddleFleetX 2.4"
#define COLOSSAL "Colossal-AI"

#define NO_EXPERTS                                                                       \
    "mixtures of experts are not in this version: remove it and use GPTModule, which "   \
    "is dense"
#define NO_OTHER_TASK "this program pretrains GPT models: use GPTModule"
#define NO_FINE_TUNING                                                                   \
    "fine-tuning for a task is not in this version: remove it and use GPTModule, which " \
    "pretrains"
#define NO_QUANTISATION                                                                  \
    "quantisation is not in this version: remove it, or set its enable to False"
#define NO_OLD_QUANTISATION                                                              \
    "quantisation is not in this version: remove it, or set its use_qat to False"
#define NO_PRUNING "pruning is not in this version: remove it, or set its enable to False"
#define NO_SENSITIVITY                                                                   \
    "pruning is not in this version, and this only measures what it would cost: set "    \
    "cal_sens to False to pretrain"
#define NO_DISTILLATION                                                                  \
    "distillation is not in this version: remove it, or set its enable to False"
#define NO_DISTILLATION_MODULE "distillation is not in this version: use GPTModule"
#define NO_TUNING                                                                        \
    "automatic tuning is not in this version: remove it, or set its enable to False"
#define NO_EPOCH_MODE                                                                    \
    "leave it out, leave max_steps empty and give num_train_epochs and test_interval"

// clang-format off
const struct config_alias config_aliases[] = {
    {"Global.device", "device", NULL, FLEETX, false},
    {"Global.seed", "seed", NULL, FLEETX, false},
    {"Global.global_batch_size", "batch_size.global_batch_size", NULL, FLEETX, false},
    {"Global.local_batch_size", "batch_size.local_batch_size", NULL, FLEETX, false},
    {"Global.micro_batch_size", "batch_size.micro_batch_size", NULL, FLEETX, false},
    {"Engine.max_steps", "max_steps", NULL, FLEETX, false},
    {"Engine.num_train_epochs", "num_train_epochs", NULL, FLEETX, false},
    {"Engine.logging_freq", "logging_freq", NULL, FLEETX, false},
    {"Engine.eval_freq", "eval_freq", NULL, FLEETX, false},
    {"Engine.eval_iters", "eval_iters", NULL, FLEETX, false},
    {"Engine.mix_precision.*", "mix_precision.*", NULL, FLEETX, false},
    {"Engine.save_load.*", "save_load.*", NULL, FLEETX, false},
    {"Global.max_steps", "max_steps", NULL, "PaddleFleetX 2023", false},
    {"Global.num_train_epochs", "num_train_epochs", NULL, "PaddleFleetX 2023", false},
    {"Global.logging_freq", "logging_freq", NULL, "PaddleFleetX 2023", false},
    {"Global.eval_freq", "eval_freq", NULL, "PaddleFleetX 2023", false},
    {"Global.eval_iters", "eval_iters", NULL, "PaddleFleetX 2023", false},
    {"Global.mix_precision.*", "mix_precision.*", NULL, "PaddleFleetX 2023", false},
    {"Global.save_load.*", "save_load.*", NULL, "PaddleFleetX 2023", false},
    {"mix_precision.use_main_grad", "mix_precision.fp32_grads", NULL, "PaddleFleetX 2023", false},
    {"Engine.use_recompute", "use_recompute", NULL, FLEETX, false},
    {"Model.use_recompute", "use_recompute", NULL, FLEETX, false},
    {"Model.recompute_granularity", "recompute_granularity", NULL, FLEETX, false},
    {"Model.no_recompute_layers", "no_recompute_layers", NULL, FLEETX, false},
    {"Model.fused_linear", "fused_linear", NULL, FLEETX, false},
    {"Model.tensor_fusion", "tensor_fusion", NULL, FLEETX, false},
    {"Model.sequence_parallel", "Distributed.sequence_parallel", NULL, FLEETX, false},
    {"Model.virtual_pp_degree", "Distributed.virtual_pp_degree", NULL, FLEETX, false},
    {"Fused.tensor_fusion", "tensor_fusion", NULL, FLEETX, false},
    {"Data.batch_size.*", "batch_size.*", NULL, FLEETX, false},
    {"Data.dataset.*", "dataset.*", NULL, FLEETX, false},
    {"Data.Train.dataset.*", "dataset.*", NULL, FLEETX, false},
    {"Data.Eval.dataset.*", "dataset.*", NULL, FLEETX, true},
    {"Model.layer_norm_epsilon", "Model.norm_epsilon", NULL, "transformers", false},
    {"Optimizer.beta1", "Optimizer.adam_beta1", NULL, FLEETX, false},
    {"Optimizer.beta2", "Optimizer.adam_beta2", NULL, FLEETX, false},
    {"Optimizer.epsilon", "Optimizer.adam_epsilon", NULL, FLEETX, false},
    {"Optimizer.grad_clip.clip_norm", "Optimizer.grad_clip", NULL, FLEETX, false},
    {"Optimizer.tensor_fusion", "tensor_fusion", NULL, FLEETX, false},
    {"Optimizer.lr.max_steps", "max_steps", NULL, "PaddleFleetX", false},
    {"NUM_EPOCHS", "num_train_epochs", NULL, COLOSSAL, false},
    {"SEQ_LEN", "dataset.max_seq_len", NULL, COLOSSAL, false},
    {"BATCH_SIZE", "batch_size.local_batch_size", NULL, COLOSSAL, false},
    {"gradient_accumulation", "batch_size.gradient_accumulation", NULL, COLOSSAL, false},
    {"NUM_MICRO_BATCHES", "batch_size.num_micro_batches", NULL, COLOSSAL, false},
    {"layer_norm_epsilon", "Model.norm_epsilon", NULL, COLOSSAL, false},
    {"NUM_CHUNKS", "Distributed.virtual_pp_degree", NULL, COLOSSAL, false},
    {"TENSOR_SHAPE", "Distributed.tensor_shape", NULL, COLOSSAL, false},
    {"parallel.pipeline", "Distributed.pp_degree", NULL, COLOSSAL, false},
    {"parallel.tensor.mode", "Distributed.tensor_mode", NULL, COLOSSAL, false},
    {"parallel.tensor.size", "Distributed.mp_degree", NULL, COLOSSAL, false},
    {"fp16.mode", "mix_precision.use_pure_fp16", "AMP_TYPE.NAIVE=True|NAIVE=True", COLOSSAL, false},
};

const struct config_foreign config_foreigns[] = {
    {"Profiler", FOREIGN_UNUSED, NULL, NULL},
    {"Offline_Eval", FOREIGN_UNUSED, NULL, NULL},
    {"Generation", FOREIGN_UNUSED, NULL, NULL},
    {"Inference", FOREIGN_UNUSED, NULL, NULL},
    {"Compress", FOREIGN_UNUSED, NULL, NULL},
    {"FusedPasses", FOREIGN_UNUSED, NULL, NULL},
    {"Fused_passes", FOREIGN_UNUSED, NULL, NULL},
    {"Eval", FOREIGN_UNUSED, NULL, NULL},
    {"Global.flags", FOREIGN_UNUSED, NULL, NULL},
    {"Global.accumulate_steps", FOREIGN_UNUSED, NULL, NULL},
    {"Global.test_iters", FOREIGN_UNUSED, NULL, NULL},
    {"Engine.accumulate_steps", FOREIGN_UNUSED, NULL, NULL},
    {"Engine.test_iters", FOREIGN_UNUSED, NULL, NULL},
    {"Engine.verbose", FOREIGN_UNUSED, NULL, NULL},
    {"mix_precision.custom_black_list", FOREIGN_UNUSED, NULL, NULL},
    {"mix_precision.custom_white_list", FOREIGN_UNUSED, NULL, NULL},
    {"mix_precision.use_fp16_guard", FOREIGN_UNUSED, NULL, NULL},
    {"save_load.save_epoch", FOREIGN_UNUSED, NULL, NULL},
    {"Model.fuse_attn_qkv", FOREIGN_UNUSED, NULL, NULL},
    {"Model.use_flash_attn", FOREIGN_UNUSED, NULL, NULL},
    {"Model.fused_softmax_with_triangular", FOREIGN_UNUSED, NULL, NULL},
    {"Model.scale_qk_by_layer_num", FOREIGN_UNUSED, NULL, NULL},
    {"Model.vocab_size_divisible_unit", FOREIGN_UNUSED, NULL, NULL},
    {"Distributed.fuse_sequence_parallel_allreduce", FOREIGN_UNUSED, NULL, NULL},
    {"Distributed.sharding.reduce_overlap", FOREIGN_UNUSED, NULL, NULL},
    {"Distributed.sharding.broadcast_overlap", FOREIGN_UNUSED, NULL, NULL},
    {"Distributed.sharding.comm_overlap", FOREIGN_UNUSED, NULL, NULL},
    {"Data.Train.sampler", FOREIGN_UNUSED, NULL, NULL},
    {"Data.Train.loader", FOREIGN_UNUSED, NULL, NULL},
    {"Data.Train.collate_fn", FOREIGN_UNUSED, NULL, NULL},
    {"Data.Train.sample_split", FOREIGN_UNUSED, NULL, NULL},
    {"Data.Eval.sampler", FOREIGN_UNUSED, NULL, NULL},
    {"Data.Eval.loader", FOREIGN_UNUSED, NULL, NULL},
    {"Data.Eval.collate_fn", FOREIGN_UNUSED, NULL, NULL},
    {"Data.Eval.sample_split", FOREIGN_UNUSED, NULL, NULL},
    {"Data.Test", FOREIGN_UNUSED, NULL, NULL},
    {"Optimizer.multi_precision", FOREIGN_UNUSED, NULL, NULL},
    {"Optimizer.grad_clip.multi_precision", FOREIGN_UNUSED, NULL, NULL},
    {"Optimizer.lr.use_increments", FOREIGN_UNUSED, NULL, NULL},

    {"Model.module", FOREIGN_ONLY, "GPTModule|GPTModuleAuto|GPTEvalModule=|GPTGenerationModule=|"
        "GPTGenerationModuleAuto=|MoEModule=" NO_EXPERTS "|GPTDistillModule=" NO_DISTILLATION_MODULE
        "|GPTFinetuneModule=" NO_FINE_TUNING, NO_OTHER_TASK},
    {"Model.name", FOREIGN_ONLY, "GPT|GPT-cn|MoE=" NO_EXPERTS, "only GPT is in this version"},
    {"Model.num_experts", FOREIGN_ONLY, "0|1", NO_EXPERTS},
    {"Engine.balance_loss_weight", FOREIGN_REFUSED, NULL, NO_EXPERTS},
    {"Global.balance_loss_weight", FOREIGN_REFUSED, NULL, NO_EXPERTS},
    {"Model.moe_configs", FOREIGN_REFUSED, NULL, NO_EXPERTS},
    {"Model.expert_mode", FOREIGN_REFUSED, NULL, NO_EXPERTS},
    {"Model.expert_interval", FOREIGN_REFUSED, NULL, NO_EXPERTS},
    {"Model.topk", FOREIGN_REFUSED, NULL, NO_EXPERTS},
    {"Model.top_k", FOREIGN_REFUSED, NULL, NO_EXPERTS},
    {"Model.gate", FOREIGN_REFUSED, NULL, NO_EXPERTS},
    {"Model.balance_loss_weight", FOREIGN_REFUSED, NULL, NO_EXPERTS},
    {"Model.moe_use_residual", FOREIGN_REFUSED, NULL, NO_EXPERTS},
    {"Model.moe_train_capacity_factor", FOREIGN_REFUSED, NULL, NO_EXPERTS},
    {"Model.moe_eval_capacity_factor", FOREIGN_REFUSED, NULL, NO_EXPERTS},
    {"Model.moe_min_capacity", FOREIGN_REFUSED, NULL, NO_EXPERTS},
    {"Model.moe_token_dropping", FOREIGN_REFUSED, NULL, NO_EXPERTS},
    {"Model.enable_expert_tensor_parallelism", FOREIGN_REFUSED, NULL, NO_EXPERTS},
    {"Model.num_classes", FOREIGN_REFUSED, NULL, NO_FINE_TUNING},
    {"Model.pretrained", FOREIGN_REFUSED, NULL, NO_FINE_TUNING},
    {"Model.loss", FOREIGN_REFUSED, NULL, NO_FINE_TUNING},
    {"Model.metric", FOREIGN_REFUSED, NULL, NO_FINE_TUNING},
    {"Loss", FOREIGN_REFUSED, NULL, NO_FINE_TUNING},
    {"Metric", FOREIGN_REFUSED, NULL, NO_FINE_TUNING},
    {"Compress.Quantization", FOREIGN_REFUSED, NULL, NO_QUANTISATION},
    {"Compress.Prune", FOREIGN_REFUSED, NULL, NO_PRUNING},
    {"Compress.Distillation", FOREIGN_REFUSED, NULL, NO_DISTILLATION},
    {"Quantization", FOREIGN_REFUSED, NULL, NO_QUANTISATION},
    {"quantization", FOREIGN_REFUSED, NULL, NO_OLD_QUANTISATION},
    {"Prune", FOREIGN_REFUSED, NULL, NO_PRUNING},
    {"Prune.cal_sens", FOREIGN_ONLY, "False|false", NO_SENSITIVITY},
    {"Compress.Prune.cal_sens", FOREIGN_ONLY, "False|false", NO_SENSITIVITY},
    {"Distillation", FOREIGN_REFUSED, NULL, NO_DISTILLATION},
    {"Tuning", FOREIGN_REFUSED, NULL, NO_TUNING},

    {"Model.freeze_embedding", FOREIGN_ONLY, "False|false", "every parameter is trained: use False"},
    {"Engine.run_mode", FOREIGN_ONLY, "step", NO_EPOCH_MODE},
    {"Global.run_mode", FOREIGN_ONLY, "step", NO_EPOCH_MODE},
    {"dataset.name", FOREIGN_ONLY, "GPTDataset", "use GPTDataset: token files of that form are read"},
    {"mix_precision.level", FOREIGN_ONLY, "O2=|o2=", "use O2: all parameters have 16 bits"},
    {"mix_precision.enable", FOREIGN_MIXED, NULL, NULL},
    {"Distributed.pp_recompute_interval", FOREIGN_ONLY, "1", "use 1, and no_recompute_layers"},
    {"Optimizer.lr.run_mode", FOREIGN_ONLY, "step", NO_EPOCH_MODE},
    {"Optimizer.grad_clip.name", FOREIGN_ONLY, "ClipGradByGlobalNorm|ClipGradForMOEByGlobalNorm=" NO_EXPERTS, "use ClipGradByGlobalNorm"},
};
// clang-format on

const int config_n_aliases = (int)ARRAY_LEN(config_aliases);
const int config_n_foreigns = (int)ARRAY_LEN(config_foreigns);

bool config_is_sectioned(const char *path)
{
    static const char *const sections[] = {"Global", "Engine", "Data"};
    for (size_t i = 0; i < ARRAY_LEN(sections); i++)
        if (strcmp(path, sections[i]) == 0)
            return true;
    return false;
}

bool config_is_of_tutorial(const char *path)
{
    static const char *const names[] = {"BATCH_SIZE", "NUM_EPOCHS", "parallel"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(path, names[i]) == 0)
            return true;
    return strncmp(path, "parallel.", 9) == 0;
}

const char *config_leaf(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

const char *config_strip_root(const char *path)
{
    size_t n = strlen(CONFIG_ROOT);
    if (strncmp(path, CONFIG_ROOT, n) != 0)
        return path;
    if (path[n] == 0)
        return path + n;
    return path[n] == '.' ? path + n + 1 : path;
}

static bool is_below(const char *path, const char *section)
{
    size_t n = strlen(section);
    return n == 0 || (strncmp(path, section, n) == 0 && path[n] == '.');
}

static bool is_section_alias(const struct config_alias *alias)
{
    return strcmp(config_leaf(alias->name), "*") == 0;
}

/* `path` in our words, when `alias` is a section's and `path` is below it. */
static bool follow_section(const struct config_alias *alias, const char *path,
                           char buf[CONFIG_NAME_BYTES])
{
    size_t n = strlen(alias->name) - 1; // without the star
    if (!is_section_alias(alias) || strncmp(path, alias->name, n) != 0)
        return false;
    int n_ours = (int)strlen(alias->path) - 1;
    snprintf(buf, CONFIG_NAME_BYTES, "%.*s%s", n_ours, alias->path, path + n);
    return true;
}

void config_canonical(const char *path, char buf[CONFIG_NAME_BYTES])
{
    for (int i = 0; i < config_n_aliases; i++)
        if (follow_section(&config_aliases[i], path, buf))
            return;
    snprintf(buf, CONFIG_NAME_BYTES, "%s", path);
}

static const struct config_key *find_path(const char *path)
{
    for (int i = 0; i < config_n_keys; i++)
        if (strcmp(config_keys[i].path, path) == 0)
            return &config_keys[i];
    return NULL;
}

/* By the key's path or an alias of it alone. */
static const struct config_key *find_name(const char *path,
                                          const struct config_alias **alias)
{
    *alias = NULL;
    for (int i = 0; i < config_n_aliases; i++)
        if (strcmp(config_aliases[i].name, path) == 0) {
            *alias = &config_aliases[i];
            return find_path(config_aliases[i].path);
        }
    return find_path(path);
}

const struct config_key *config_find(const char *path, const struct config_alias **alias)
{
    char ours[CONFIG_NAME_BYTES];
    const struct config_key *found = find_name(path, alias);
    for (int i = 0; i < config_n_aliases && !found; i++)
        if (follow_section(&config_aliases[i], path, ours)) {
            found = find_name(ours, alias);
            if (found && !*alias)
                *alias = &config_aliases[i];
        }
    return found;
}

const struct config_key *config_find_loose(const char *path,
                                           const struct config_alias **alias)
{
    const struct config_key *found = config_find(path, alias);
    if (found)
        return found;
    for (int i = 0; i < config_n_keys; i++) {
        if (strcmp(config_leaf(config_keys[i].path), path) != 0)
            continue;
        if (found)
            return NULL; // two keys end in this name
        found = &config_keys[i];
    }
    return found;
}

const struct config_foreign *config_find_foreign(const char *path)
{
    char ours[CONFIG_NAME_BYTES];
    const struct config_foreign *found = NULL;
    config_canonical(path, ours);
    for (int i = 0; i < config_n_foreigns; i++) {
        const struct config_foreign *row = &config_foreigns[i];
        if ((strcmp(row->name, ours) == 0 || is_below(ours, row->name)) &&
            (!found || strlen(row->name) > strlen(found->name)))
            found = row;
    }
    return found;
}

static bool is_same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

const struct config_foreign *config_complete_foreign(const char *path,
                                                     char full[CONFIG_NAME_BYTES])
{
    const struct config_foreign *found = NULL;
    size_t n_first = strcspn(path, ".");
    for (int i = 0; i < config_n_foreigns; i++) {
        const struct config_foreign *row = &config_foreigns[i];
        const char *leaf = config_leaf(row->name);
        if (row->kind == FOREIGN_MIXED || strlen(leaf) != n_first ||
            strncasecmp(path, leaf, n_first) != 0)
            continue;
        if (found &&
            (found->kind != row->kind || !is_same_text(found->values, row->values) ||
             !is_same_text(found->reason, row->reason)))
            return NULL; // two meanings
        if (!found)
            found = row;
    }
    if (found)
        snprintf(full, CONFIG_NAME_BYTES, "%s%s", found->name, path + n_first);
    return found;
}

bool config_is_section(const char *path)
{
    for (int i = 0; i < config_n_keys; i++)
        if (is_below(config_keys[i].path, path))
            return true;
    for (int i = 0; i < config_n_aliases; i++)
        if (is_below(config_aliases[i].name, path))
            return true;
    return false;
}

const struct config_key *config_key_at(const char *path)
{
    const struct config_alias *alias;
    const struct config_key *key = config_find(path, &alias);
    CHECK(key, "no key '%s' in the table", path);
    return key;
}

/* -- unknown names ------------------------------------------------------------------- */

/*
 * What a user who wrote an unknown key probably meant. First choice: the same leaf name in
 * another section, because sections are what people forget. Then the nearest name by edit
 * distance, comparing whole paths, section names and leaf names without regard to case, if
 * it is near enough to be a slip of the hand.
 */
struct nearest {
    char name[CONFIG_NAME_BYTES];
    int distance; // as far as can still be a slip, until something nearer is found
};

static void use_if_nearer(struct nearest *best, int distance, const char *name, int n)
{
    if (distance >= best->distance)
        return;
    snprintf(best->name, sizeof best->name, "%.*s", n, name);
    best->distance = distance;
}

/* A leaf name alone costs one more, so that a name of the right section wins. */
static void compare_name(struct nearest *best, const char *path, const char *candidate)
{
    int n = (int)strlen(candidate);
    char section[CONFIG_NAME_BYTES];
    if (strcmp(config_leaf(candidate), "*") != 0) {
        use_if_nearer(best, text_distance(path, candidate), candidate, n);
        use_if_nearer(best, text_distance(config_leaf(path), config_leaf(candidate)) + 1,
                      candidate, n);
    }
    for (const char *dot = strchr(candidate, '.'); dot; dot = strchr(dot + 1, '.')) {
        n = (int)(dot - candidate);
        snprintf(section, sizeof section, "%.*s", n, candidate);
        use_if_nearer(best, text_distance(path, section), candidate, n);
    }
}

/* "did you mean 'a' or 'b'?" for the keys that end in the leaf of `path`. */
static bool suggest_same_leaf(const char *path, char *buf, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < config_n_keys; i++) {
        if (strcmp(config_leaf(config_keys[i].path), config_leaf(path)) != 0)
            continue;
        int n = snprintf(buf + used, size - used, "%s'%s'",
                         used ? " or " : "did you mean ", config_keys[i].path);
        used += (size_t)n;
        if (used + 2 > size)
            return true;
    }
    if (used)
        snprintf(buf + used, size - used, "?");
    return used > 0;
}

void config_suggest(const char *path, char *buf, size_t size)
{
    size_t n = strlen(path);
    struct nearest best = {"", (int)strlen(config_leaf(path)) / 3 + 2};
    snprintf(buf, size, "`trefoil config` lists all keys");
    if (n == 0 || n >= CONFIG_NAME_BYTES || suggest_same_leaf(path, buf, size))
        return;
    for (int i = 0; i < config_n_keys; i++)
        compare_name(&best, path, config_keys[i].path);
    for (int i = 0; i < config_n_aliases; i++)
        compare_name(&best, path, config_aliases[i].name);
    if (best.name[0])
        snprintf(buf, size, "did you mean '%s'?", best.name);
}
