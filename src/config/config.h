/*
 * config - one struct that says what to train and how, filled from YAML files in the
 * form of PaddleFleetX.
 *
 * Member names are the YAML's. One table of keys (config_keys.c) drives parsing, `-o`,
 * range checks, `trefoil config`, and docs/config.md; other names, of other systems'
 * files, are a second one (config_names.c). A key left empty in the YAML ("ckpt_dir:")
 * has its default, unless its row says what else that means. After a load succeeds
 * every member has its effective value: derived ones (dp_degree, local_batch_size,
 * ffn_hidden_size, ...) too.
 *
 * Reading order of the folder: config_keys and config_names (the tables), config_value
 * (text to member), config_yaml (file to a stream of values), config_load (everything in
 * order), config_file (a file and its bases), config_resume (the checkpoint to continue
 * from), config_check (rules between keys), config_print (back to text), config_json (from
 * a checkpoint).
 *
 * Libraries: libyaml, in this folder only; jansson.
 */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "base/base.h"
#include "base/device_kind.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/kernel_set.h"

#include <limits.h>
#include <stdio.h>

#define CONFIG_PATH_BYTES 1024
#define CONFIG_MAX_SPLIT 3
#define CONFIG_SHAPE_DIMS 3
#define CONFIG_MAX_BYTES (1 << 20) // of a configuration file
#define CONFIG_LIST_BYTES 16384    // of all paths of a list
#define CONFIG_LIST_MOST 256       // elements of a list

enum config_granularity {
    GRANULARITY_FULL,
    GRANULARITY_ONLY_ATTN,
    GRANULARITY_CORE_ATTN
};
enum config_schedule { SCHEDULE_1F1B, SCHEDULE_F_THEN_B };

/* The update rules: RULE(what Optimizer.name says, OPTIMIZER_..., update_rule_...), and
 * ALIAS() for a second word. update_rule_... is in a file of src/optim. */
#define UPDATE_RULES(RULE, ALIAS)                                                        \
    RULE("AdamW", ADAMW, adamw)                                                          \
    ALIAS("FusedAdamW", ADAMW)                                                           \
    RULE("Adam", ADAM, adam)

#define UPDATE_RULE_ID(word, id, rule) OPTIMIZER_##id,
#define UPDATE_RULE_NOTHING(word, id)
enum config_optimizer { UPDATE_RULES(UPDATE_RULE_ID, UPDATE_RULE_NOTHING) N_OPTIMIZERS };

enum config_decay { DECAY_COSINE };
enum config_decayed { DECAYED_MATRICES, DECAYED_ALL };
enum config_activation { MODEL_GELU_TANH, MODEL_GELU };
enum config_tensor_mode { TENSOR_MODE_1D };
enum config_progress { PROGRESS_ON_TERMINAL, PROGRESS_ALWAYS, PROGRESS_NEVER };
enum config_sample_mode { SAMPLES_PACKED, SAMPLES_PADDED };
enum config_split_by { SPLIT_CONTIGUOUS, SPLIT_BY_DOCUMENT };

struct config_paths { // one after the other, each with its NUL; see config_path_at()
    int64_t n_paths;
    char bytes[CONFIG_LIST_BYTES];
};

struct config_numbers {
    int64_t n_values;
    double values[CONFIG_LIST_MOST];
};

struct config_model {
    int64_t vocab_size;
    int64_t hidden_size;
    int64_t num_layers;
    int64_t num_attention_heads;
    int64_t ffn_hidden_size; // 4 * hidden_size when left empty
    double hidden_dropout_prob;
    double embed_drop_rate; // hidden_dropout_prob when left empty
    double attention_probs_dropout_prob;
    int64_t max_position_embeddings;
    int64_t type_vocab_size; // accepted for PaddleFleetX's files; GPT has no token types
    double initializer_range;
    double norm_epsilon;
    enum config_activation activation;
};

struct config_lr {
    enum config_decay name;
    int64_t decay_steps; // max_steps when left empty; 0 only while max_steps is 0
    double warmup_rate;
    double max_lr;
    double min_lr;
};

struct config_optim {
    enum config_optimizer name;
    double weight_decay;
    enum config_decayed decay; // the parameters that weight_decay applies to
    double adam_beta1;
    double adam_beta2;
    double adam_epsilon;
    struct config_lr lr;
    double grad_clip; // global norm; <= 0 switches clipping off
};

struct config_sharding {
    int64_t sharding_degree;
    int64_t sharding_stage;
    bool sharding_offload;
};

struct config_distributed {
    int64_t dp_degree; // derived from the number of processes when left empty
    int64_t mp_degree;
    int64_t pp_degree;
    int64_t virtual_pp_degree;
    bool sequence_parallel;
    enum config_schedule pp_schedule;
    bool pp_balance; // count the head as layers when layers are dealt to stages
    enum config_tensor_mode tensor_mode;
    int64_t tensor_shape[CONFIG_SHAPE_DIMS]; // micro_batch_size, max_seq_len, hidden_size
    struct config_sharding sharding;
};

struct config_batch {
    int64_t global_batch_size;     // samples of one optimizer update, all ranks
    int64_t local_batch_size;      // samples of one batch on one data rank
    int64_t gradient_accumulation; // batches of one update
    int64_t micro_batch_size;      // samples of one forward
    int64_t num_micro_batches;     // of one batch: local_batch_size / micro_batch_size
};

enum config_truth { TRUTH_EMPTY, TRUTH_FALSE, TRUTH_TRUE };

struct config_precision {
    bool use_pure_fp16;
    double scale_loss;
    bool dynamic_loss_scale;
    enum config_truth fp32_grads; // of 16-bit parameters; see config_has_fp32_grads()
    enum dtype dtype;             // float16 when use_pure_fp16 is on
    bool allow_tf32;              // in products of float32 on a GPU
};

struct config_dataset {
    struct config_paths input_dir;  // each a directory (all its datasets) or one prefix
    struct config_paths datasets;   // the same where files of text have become datasets;
                                    // none: as input_dir. No key: see config_datasets()
    struct config_numbers weights;  // none, or one for each input: they are blended
    double split[CONFIG_MAX_SPLIT]; // train, valid, test weights; they need not sum to 1
    enum config_split_by split_by;
    int64_t max_seq_len;
    enum config_sample_mode mode;      // many documents per sample, or one
    bool drop_last;                    // an epoch has whole batches only
    bool pad_loss;                     // padding counts in the loss of padded samples
    bool reset_attention_mask;         // attention and positions stay in a document
    bool eod_mask_loss;                // leave out positions whose input token is eos
    int64_t eos_token_id;              // -1: unknown
    char cache_dir[CONFIG_PATH_BYTES]; // "": beside the data
    char tokenizer[CONFIG_PATH_BYTES]; // for JSON lines; "": found beside them
};

struct config_save_load {
    int64_t save_steps; // 0: only at the end; -1: never
    char output_dir[CONFIG_PATH_BYTES];
    char ckpt_dir[CONFIG_PATH_BYTES];    // "": start from scratch
    char offload_dir[CONFIG_PATH_BYTES]; // "": output_dir
    int64_t keep_last;                   // checkpoints kept in output_dir; 0: all
    int64_t keep_every; // steps whose checkpoints are kept for good; 0: none
    int64_t max_file_bytes;
    bool async_save;
};

struct config {
    struct config_model model;
    struct config_optim optimizer;
    struct config_distributed distributed;
    struct config_batch batch_size;
    struct config_precision mix_precision;
    struct config_dataset dataset;
    struct config_save_load save_load;

    enum device_kind device;
    int64_t max_steps; // updates, data repeating as needed; 0: num_train_epochs decides
    int64_t num_train_epochs;
    int64_t seed;
    int64_t logging_freq;
    int64_t eval_freq;     // updates; 0 or less: never
    int64_t eval_iters;    // 0: nothing is evaluated
    int64_t test_interval; // epochs; 0: never
    struct config_paths eval_prompts;
    int64_t eval_prompt_tokens;
    enum config_progress display_progress;
    bool use_recompute;
    enum config_granularity recompute_granularity;
    struct config_numbers no_recompute_layers;
    bool fused_linear;
    bool tensor_fusion;
    int64_t num_threads; // 0: all cores this process may use
    enum kernel_set cpu_kernels;
    double hang_timeout;           // seconds; 0: the default rule of launch/host_watch.h
    char trace[CONFIG_PATH_BYTES]; // "": none
    bool tensorboard;
    char prometheus_file[CONFIG_PATH_BYTES]; // "": none
    char on_event[CONFIG_PATH_BYTES];        // a command; "": none
};

/*
 * Read `path`, apply the n_overrides "key=value" strings in order, derive what was left
 * empty, and check everything, one process assumed. `path` NULL means defaults plus
 * overrides. Warnings are logged. An error names file:line:column (or the -o option),
 * the key, the reason, and the value that would work.
 */
MUST_CHECK int config_load(struct config *cfg, const char *path, char *const *overrides,
                           int n_overrides, struct error *err);

/* The same in a job of n_processes, which decide dp_degree where it was left empty. */
MUST_CHECK int config_load_for(struct config *cfg, const char *path,
                               char *const *overrides, int n_overrides,
                               int64_t n_processes, struct error *err);

/* What the data of a run says of itself. */
struct config_data_facts {
    int64_t vocab_size;             // of its tokenizer; 0: it does not say
    int64_t eos_token_id;           // -1: it does not say, or not with one voice
    char source[CONFIG_PATH_BYTES]; // the file that says so
    int64_t other_vocab_size;       // of a part that was made with another tokenizer
    char other_source[CONFIG_PATH_BYTES]; // "": there is none
    // the first part in PaddleFleetX's form, without .meta.json; "": there is none
    char plain_fleetx[CONFIG_PATH_BYTES];
    bool is_plain_fleetx; // all of it is
};

/* Look at the data, which a folder above this one can read. Data that is not there gives
 * no facts. For files of text in data->input_dir, data->datasets is set. */
typedef int config_look_fn(struct config_dataset *data, struct config_data_facts *facts,
                           struct error *err);

/* What the checkpoint to continue from records. */
struct config_past {
    char *config_json; // its configuration; NULL: there is no checkpoint. To be freed
    bool is_imported;  // not trained here yet: only its model is taken over
    char path[PATH_MAX];
};

/* Read the checkpoint that save_load.ckpt_dir means. One that cannot be found is left to
 * the run, which refuses it. */
typedef int config_past_fn(const char *ckpt_dir, struct config_past *past,
                           struct error *err);

struct config_sources { // of values that were left out; NULL: nothing is known
    config_look_fn *look;
    config_past_fn *past;
};

/* The same, for a run: values that were left out come from the checkpoint to continue from
 * where their defaults have changed since it was made (config_keys.h), and Model.vocab_size
 * and dataset.eos_token_id from the data. `sources` NULL: neither is read. */
MUST_CHECK int config_load_run(struct config *cfg, const char *path,
                               char *const *overrides, int n_overrides,
                               int64_t n_processes, const struct config_sources *sources,
                               struct error *err);

/* dp_degree x pp_degree x sharding_degree x mp_degree, or INT64_MAX if that overflows. */
int64_t config_n_processes(const struct config *cfg);
/* The same from the n bytes at `text`; `name` stands for the file in messages, and
 * `_base_` is relative to its directory. */
MUST_CHECK int config_load_text(struct config *cfg, const char *name, const char *text,
                                size_t n, char *const *overrides, int n_overrides,
                                int64_t n_processes, struct error *err);

/* Check a configuration that was changed after it was loaded: ranges, what this version
 * can do, keys against each other. `name` stands for it in messages. */
MUST_CHECK int config_check_whole(const struct config *cfg, const char *name,
                                  struct error *err);

/* What the run reads: the datasets that input_dir names or that were made from it. */
static inline const struct config_paths *config_datasets(const struct config_dataset *d)
{
    return d->datasets.n_paths > 0 ? &d->datasets : &d->input_dir;
}

/* Path 0 <= i < n_paths of the list. */
const char *config_path_at(const struct config_paths *paths, int64_t i);
/* Append the n bytes at `path`; *used, at first 0, counts the bytes of the list. */
MUST_CHECK int config_paths_add(struct config_paths *paths, const char *path, size_t n,
                                size_t *used, struct error *err);

/* Of one update on one data rank: samples, and micro-batches. */
int64_t config_update_samples(const struct config *cfg);
int64_t config_update_micro_batches(const struct config *cfg);

/* Whether the run will evaluate after steps or epochs; the latter alone. */
bool config_evaluates(const struct config *cfg);
bool config_tests_epochs(const struct config *cfg);

/* Whether gradients of 16-bit matrices are kept and added up in float32. Where that is
 * left empty: in bfloat16, when a step has several micro-batches, whose sums would lose
 * what is below 8 bits. */
bool config_has_fp32_grads(const struct config *cfg);

/* Every key with its effective value, default and meaning, as `trefoil config` shows;
 * what it prints is a configuration file that config_load() reads back. */
void config_print(const struct config *cfg, FILE *out);

/* A file of some keys only, without their meanings: those of the n_paths paths, each of
 * which is a key or a section with all below it. */
void config_print_keys(const struct config *cfg, const char *const *paths, size_t n_paths,
                       FILE *out);

/* docs/config.md, from the same table. */
void config_print_markdown(FILE *out);

/* Key i of the table in words, for manual page and completion; false: there are not so
 * many. */
struct config_hint {
    const char *path, *meaning;
    char words[128];    // "a|b" where a value is one of some words, or ""
    char standard[256]; // the default
};
bool config_hint_at(struct config_hint *hint, int i);

/* The configuration as a JSON object text (malloc'ed, caller frees), for trainer.json;
 * and back: unknown keys, values out of range or at odds with each other are errors; a
 * missing key has the value of version 2.0.0; keys of the model that 2.0.0 had must be
 * there. */
char *config_to_json(const struct config *cfg);
MUST_CHECK int config_from_json(struct config *cfg, const char *json, struct error *err);
/* The JSON text with the keys that it lacks, as they were in version 2.0.0 (malloc'ed);
 * NULL: it is no object. */
char *config_complete_json(const char *json);

#endif
