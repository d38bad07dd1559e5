/*
 * Configuration that loads: PaddleFleetX's YAML, every way of naming a key, deriving, and
 * printing back. What is refused is in test_config_errors.c.
 */
#include "test.h"

#include "base/fs.h"
#include "base/log.h"
#include "config/config.h"

#include <unistd.h>

/* The three YAML blocks of seed 004, one after the other, as they are printed there. */
static const char seed_004[] = "  Model:\n"
                               "    vocab_size: 50304\n"
                               "    hidden_size: 1024\n"
                               "    num_layers: 24\n"
                               "    num_attention_heads: 16\n"
                               "    ffn_hidden_size: 4096\n"
                               "    hidden_dropout_prob: 0.1\n"
                               "    attention_probs_dropout_prob: 0.1\n"
                               "    max_position_embeddings: 1024\n"
                               "    type_vocab_size: 16\n"
                               "    initializer_range: 0.02\n"
                               "  Optimizer:\n"
                               "    # name: Adam\n"
                               "    weight_decay: 0.01\n"
                               "    adam_beta1: 0.9\n"
                               "    adam_beta2: 0.999\n"
                               "    adam_epsilon: 1.0e-8\n"
                               "    lr:\n"
                               "      # name: consine\n"
                               "      decay_steps: 360000\n"
                               "      # max_steps: 500000\n"
                               "      warmup_rate: 0.01\n"
                               "      max_lr: 1.0e-5\n"
                               "      min_lr: 5.0e-5\n"
                               "    grad_clip: 1.0\n"
                               "  device: gpu\n"
                               "  max_steps: 500000\n"
                               "  num_train_epochs: 1\n"
                               "  seed: 1024\n"
                               "  use_recompute: False\n"
                               "  recompute_granularity:\n"
                               "  batch_size:\n"
                               "    global_batch_size: 8\n"
                               "    local_batch_size: 8\n"
                               "    micro_batch_size: 8\n"
                               "  mix_precision:\n"
                               "    use_pure_fp16: True\n"
                               "    scale_loss: 32768.0\n"
                               "  logging_freq: 1\n"
                               "  eval_freq: 500\n"
                               "  eval_iters: 10\n"
                               "  dataset:\n"
                               "    input_dir: ./data\n"
                               "    split: '949,50,1'\n"
                               "    max_seq_len: 1024\n"
                               "  save_load:\n"
                               "    save_steps: 1000\n"
                               "    output_dir: ./output\n"
                               "    ckpt_dir: \n"
                               "  fused_linear: False \n";

static void load_with(struct config *cfg, const char *text, const char *o1,
                      const char *o2)
{
    struct error err;
    char a[128] = "", b[128] = "";
    char *options[] = {a, b};
    snprintf(a, sizeof a, "%s", o1 ? o1 : "");
    snprintf(b, sizeof b, "%s", o2 ? o2 : "");
    assert_ok(config_load_text(cfg, "test.yaml", text, strlen(text), options, !!o1 + !!o2,
                               1, &err),
              err);
}

static void load(struct config *cfg, const char *text)
{
    load_with(cfg, text, NULL, NULL);
}

static void assert_same_config(const struct config *a, const struct config *b)
{
    char *text_a = config_to_json(a), *text_b = config_to_json(b);
    assert_string_equal(text_a, text_b);
    free(text_a);
    free(text_b);
}

/* -- PaddleFleetX's files ------------------------------------------------------------- */

static void test_seed_004__is_understood_as_printed(void **state)
{
    (void)state;
    struct config cfg;
    load_with(&cfg, seed_004, "device=cpu", "use_pure_fp16=False");
    assert_int_equal(cfg.model.vocab_size, 50304);
    assert_int_equal(cfg.model.ffn_hidden_size, 4096);
    assert_true(cfg.optimizer.adam_epsilon == 1e-8);
    assert_int_equal(cfg.optimizer.lr.decay_steps, 360000);
    assert_true(cfg.optimizer.lr.max_lr == 1e-5 && cfg.optimizer.lr.min_lr == 5e-5);
    assert_true(cfg.mix_precision.scale_loss == 32768);
    assert_int_equal(cfg.recompute_granularity, GRANULARITY_FULL);
    assert_int_equal(cfg.dataset.input_dir.n_paths, 1);
    assert_string_equal(config_path_at(&cfg.dataset.input_dir, 0), "./data");
    assert_true(cfg.dataset.split[0] == 949 && cfg.dataset.split[1] == 50 &&
                cfg.dataset.split[2] == 1);
    assert_string_equal(cfg.save_load.ckpt_dir, "");
}

static void test_seed_004__asks_for_a_gpu(void **state)
{
    (void)state;
    struct config cfg;
    load(&cfg, seed_004);
    assert_int_equal(cfg.device, DEVICE_GPU);
    load_with(&cfg, seed_004, "device=emulated", NULL);
    assert_int_equal(cfg.device, DEVICE_EMULATED);
    assert_false(cfg.mix_precision.allow_tf32);
}

static void test_dtype__follows_use_pure_fp16(void **state)
{
    (void)state;
    struct config cfg;
    load_with(&cfg, seed_004, "device=cpu", NULL);
    assert_int_equal(cfg.mix_precision.dtype, DTYPE_F16);
    load(&cfg, "fp16: {mode: AMP_TYPE.NAIVE}\n");
    assert_int_equal(cfg.mix_precision.dtype, DTYPE_F16);
    load(&cfg, "mix_precision: {dtype: bfloat16}\n");
    assert_int_equal(cfg.mix_precision.dtype, DTYPE_BF16);
    assert_false(cfg.mix_precision.use_pure_fp16);
}

static void test_defaults__are_those_of_paddlefleetx(void **state)
{
    (void)state;
    struct config empty, seed, none;
    struct error err;
    load(&empty, "Optimizer: {lr: {decay_steps: 360000, warmup_rate: 0.01, "
                 "max_lr: 1e-5, min_lr: 5e-5}}");
    load_with(&seed, seed_004, "device=cpu", "use_pure_fp16=False");
    assert_same_config(&empty, &seed);
    load(&empty, "");
    assert_ok(config_load(&none, NULL, NULL, 0, &err), err);
    assert_same_config(&empty, &none);
}

static void test_rates__that_are_left_out_suit_the_model(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double max_lr, min_lr;
        int64_t decay_steps;
    } cases[] = {
        {"max_steps: 30\nModel: {hidden_size: 64}", 0.003, 0.0003, 30},
        {"max_steps: 30\nModel: {hidden_size: 1024}", 0.4 / 1024, 0.0000390625, 30},
        {"max_steps: 30\nOptimizer: {lr: {max_lr: 1e-3}}", 1e-3, 1e-4, 30},
        {"max_steps: 30\nOptimizer: {lr: {max_lr: 0.007}}", 0.007, 0.0007, 30},
        {"max_steps: 30\nOptimizer: {lr: {max_lr: 6.0e-4}}", 6e-4, 6e-5, 30},
        {"max_steps: 30\nOptimizer: {lr: {max_lr: 0}}", 0, 0, 30},
        {"max_steps: 30\nOptimizer: {lr: {min_lr: 0}}", 0.4 / 1024, 0, 30},
        {"max_steps: 30\nOptimizer: {lr: {decay_steps: 9}}", 0.4 / 1024, 0.0000390625, 9},
        {"max_steps: 30\nOptimizer: {lr: {decay_steps: 0}}", 0.4 / 1024, 0.0000390625,
         30},
        {"num_train_epochs: 2", 0.4 / 1024, 0.0000390625, 0}, // until the data is read
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config cfg;
        load(&cfg, cases[i].text);
        assert_true(cfg.optimizer.lr.max_lr == cases[i].max_lr);
        assert_true(cfg.optimizer.lr.min_lr == cases[i].min_lr);
        assert_int_equal(cfg.optimizer.lr.decay_steps, cases[i].decay_steps);
    }
}

static void test_root__is_optional_and_may_be_empty(void **state)
{
    (void)state;
    struct config plain, rooted;
    load(&plain, "Model:\n  num_layers: 2\nseed: 7\n");
    load(&rooted, "---\nPreTraining:\n  Model:\n    num_layers: 2\n  seed: 7\n...\n");
    assert_int_equal(plain.model.num_layers, 2);
    assert_same_config(&plain, &rooted);
    load(&rooted, "PreTraining:\n");
    load(&rooted, "PreTraining:\n  Model:\n  Optimizer: {lr: {}}\n");
    load(&rooted, "# nothing but a comment\n");
}

static void test_seed_003__settings_are_other_names(void **state)
{
    (void)state;
    struct config cfg;
    load(&cfg,
         "NUM_EPOCHS: 60\nSEQ_LEN: 1024\nBATCH_SIZE: 192\nNUM_CHUNKS: None\n"
         "TENSOR_SHAPE: (1, 1024, 1600)\nNUM_MICRO_BATCHES: 192\n"
         "parallel: {pipeline: 1, tensor: {mode: '1d', size: 1}}\n"
         "fp16:\n  mode: None\nModel: {hidden_size: 1600, num_attention_heads: 32}\n");
    assert_int_equal(cfg.num_train_epochs, 60);
    assert_int_equal(cfg.dataset.max_seq_len, 1024);
    assert_int_equal(cfg.batch_size.local_batch_size, 192);
    assert_int_equal(cfg.batch_size.global_batch_size, 192);
    assert_int_equal(cfg.batch_size.micro_batch_size, 1);
    assert_int_equal(cfg.batch_size.num_micro_batches, 192);
    assert_int_equal(cfg.distributed.virtual_pp_degree, 1);
    assert_int_equal(cfg.distributed.tensor_mode, TENSOR_MODE_1D);
    assert_int_equal(cfg.distributed.tensor_shape[2], 1600);
}

static void test_aliases__of_fleetx_24_stand_under_model(void **state)
{
    (void)state;
    struct config cfg;
    load(&cfg, "Model:\n  use_recompute: false\n  recompute_granularity: full_attn\n"
               "  fused_linear: false\n  tensor_fusion: False\n  sequence_parallel: "
               "False\n  virtual_pp_degree: 1\nOptimizer: {name: AdamW, lr: {name: "
               "consine, max_steps: 9}}\n");
    assert_int_equal(cfg.recompute_granularity, GRANULARITY_ONLY_ATTN);
    assert_int_equal(cfg.max_steps, 9);
}

/* -- values ------------------------------------------------------------------------- */

static void test_numbers__are_read_exactly(void **state)
{
    (void)state;
    struct config cfg;
    load(&cfg, "seed: 4294967295\nOptimizer: {weight_decay: 1e-5, adam_beta1: .5, "
               "adam_beta2: 0, grad_clip: -1.5E+3, adam_epsilon: 1.}\n");
    assert_int_equal(cfg.seed, 4294967295);
    assert_true(cfg.optimizer.weight_decay == 1e-5);
    assert_true(cfg.optimizer.adam_beta1 == 0.5 && cfg.optimizer.adam_beta2 == 0);
    assert_true(cfg.optimizer.grad_clip == -1500 && cfg.optimizer.adam_epsilon == 1);
}

static void test_split__has_three_spellings(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "dataset: {split: [949, 50, 1]}", "dataset:\n  split: 949,50,1",
        "dataset: {split: '949/50/1'}", "dataset: {split: \"[949.0, 5e1, 1]\"}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct config cfg;
        load(&cfg, texts[i]);
        assert_true(cfg.dataset.split[0] == 949 && cfg.dataset.split[1] == 50 &&
                    cfg.dataset.split[2] == 1);
    }
}

static void test_batch_sizes__that_are_left_out_are_derived(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t global, local, micro, count;
    } cases[] = {
        {"", 8, 8, 8, 1},
        {"batch_size: {global_batch_size: 6}", 6, 6, 6, 1},
        {"batch_size: {local_batch_size: 6, micro_batch_size: 2}", 6, 6, 2, 3},
        {"batch_size: {micro_batch_size: 4}", 8, 8, 4, 2},
        {"batch_size: {global_batch_size: 12, local_batch_size: , num_micro_batches: 4}",
         12, 12, 3, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config cfg;
        load(&cfg, cases[i].text);
        assert_int_equal(cfg.batch_size.global_batch_size, cases[i].global);
        assert_int_equal(cfg.batch_size.local_batch_size, cases[i].local);
        assert_int_equal(cfg.batch_size.micro_batch_size, cases[i].micro);
        assert_int_equal(cfg.batch_size.num_micro_batches, cases[i].count);
        assert_int_equal(cfg.distributed.tensor_shape[0], cases[i].micro);
    }
}

static void test_empty__means_derived_where_the_seed_says_so(void **state)
{
    (void)state;
    struct config cfg;
    load(&cfg, "max_steps:\nOptimizer: {lr: {decay_steps: }}\n");
    assert_int_equal(cfg.max_steps, 0);
    assert_int_equal(cfg.optimizer.lr.decay_steps, 0);
    load(&cfg, "max_steps: 70\nOptimizer: {lr: {decay_steps: ~}}\n");
    assert_int_equal(cfg.optimizer.lr.decay_steps, 70);
    load(&cfg, "Model: {hidden_size: 96, ffn_hidden_size: null}\nDistributed: "
               "{dp_degree: }\ndataset: {eos_token_id: , cache_dir: }\neval_freq: 0\n");
    assert_int_equal(cfg.model.ffn_hidden_size, 384);
    assert_int_equal(cfg.distributed.dp_degree, 1);
    assert_int_equal(cfg.dataset.eos_token_id, -1);
    assert_int_equal(cfg.eval_freq, 0);
}

/* -- options ------------------------------------------------------------------------ */

static void test_options__name_a_key_in_four_ways(void **state)
{
    (void)state;
    static const char *const options[] = {"max_seq_len=64", "dataset.max_seq_len=64",
                                          "PreTraining.dataset.max_seq_len=64",
                                          "SEQ_LEN=64"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct config cfg;
        load_with(&cfg, "dataset: {max_seq_len: 128}", options[i], NULL);
        assert_int_equal(cfg.dataset.max_seq_len, 64);
    }
}

static void test_options__the_last_one_wins(void **state)
{
    (void)state;
    struct config cfg;
    load_with(&cfg, "max_steps: 5", "max_steps=6", "max_steps=7");
    assert_int_equal(cfg.max_steps, 7);
    load_with(&cfg, "save_load: {ckpt_dir: a}", "ckpt_dir=x=y", NULL);
    assert_string_equal(cfg.save_load.ckpt_dir, "x=y");
    load_with(&cfg, "save_load: {ckpt_dir: a}", "ckpt_dir=", NULL);
    assert_string_equal(cfg.save_load.ckpt_dir, "");
    load_with(&cfg, "batch_size: {local_batch_size: 4}",
              "local_batch_size=", "global_batch_size=2");
    assert_int_equal(cfg.batch_size.local_batch_size, 2);
}

static void test_yaml__quotes_inside_quotes(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *value;
    } cases[] = {
        {"save_load: {ckpt_dir: 'it''s ''here'''}", "it's 'here'"},
        {"save_load: {ckpt_dir: ''''}", "'"},
        {"save_load: {ckpt_dir: 'a''''b'}", "a''b"},
        {"save_load: {ckpt_dir: \"ab\"}", "ab"},
        {"save_load: {ckpt_dir: ab}", "ab"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config cfg;
        load_with(&cfg, cases[i].yaml, NULL, NULL);
        assert_string_equal(cfg.save_load.ckpt_dir, cases[i].value);
    }
}

/* -- printing back ------------------------------------------------------------------ */

static const char unusual[] =
    "Model: {num_layers: 3, hidden_dropout_prob: 0.30000000000000004}\n"
    "Optimizer: {adam_epsilon: 4.9e-324, grad_clip: -7.25e-21, lr: {max_lr: 0.1}}\n"
    "Distributed: {pp_schedule: F-then-B, sharding: {sharding_stage: 3}}\n"
    "dataset: {split: [0.1, 0.2, 0], input_dir: 'it''s # \"h\u00e9re\": [x]'}\n"
    "save_load: {output_dir: \"a''b\\\"\\\\''c\"}\n"
    "batch_size: {micro_batch_size: 2}\nmax_steps:\n";

static void test_print__loads_back_to_the_same(void **state)
{
    (void)state;
    struct config cfg, again;
    char *text = NULL;
    size_t n = 0;
    load(&cfg, unusual);
    FILE *out = open_memstream(&text, &n);
    assert_non_null(out);
    config_print(&cfg, out);
    fclose(out);
    load(&again, text);
    assert_same_config(&cfg, &again);
    assert_non_null(strstr(text, "num_layers: 3 "));
    assert_non_null(strstr(text, "# default: 24. Number of transformer layers."));
    free(text);
}

static void test_json__keeps_every_bit(void **state)
{
    (void)state;
    struct config cfg, again;
    struct error err;
    load(&cfg, unusual);
    char *json = config_to_json(&cfg);
    assert_non_null(strstr(json, "\"sharding_stage\": 3"));
    assert_non_null(strstr(json, "0.30000000000000004"));
    assert_ok(config_from_json(&again, json, &err), err);
    assert_memory_equal(&cfg, &again, sizeof cfg);
    free(json);
}

/* `json` without the line that has `key`, from the comma before it on. */
static void cut_key(char *json, const char *key)
{
    char *at = strstr(json, key);
    assert_non_null(at);
    while (*at != ',')
        at--;
    char *end = strpbrk(at + 1, ",}");
    memmove(at, end, strlen(end) + 1);
}

/* As checkpoints of older versions have it. */
static void
test_json__without_the_younger_keys_of_a_model_has_their_defaults(void **state)
{
    (void)state;
    struct config cfg, again;
    struct error err;
    load(&cfg, "Model: {hidden_dropout_prob: 0.25, norm_epsilon: 0.5, activation: gelu}\n"
               "Optimizer: {decay: all}\n");
    assert_true(cfg.model.embed_drop_rate == 0.25);
    char *json = config_to_json(&cfg);
    cut_key(json, "\"embed_drop_rate\"");
    cut_key(json, "\"norm_epsilon\"");
    cut_key(json, "\"activation\"");
    cut_key(json, "\"decay\"");
    assert_ok(config_from_json(&again, json, &err), err);
    assert_true(again.model.embed_drop_rate == 0.25);
    assert_true(again.model.norm_epsilon == 1e-5);
    assert_int_equal(again.model.activation, MODEL_GELU_TANH);
    assert_int_equal(again.optimizer.decay, DECAYED_MATRICES);
    free(json);
}

static void
test_embed_drop_rate__follows_hidden_dropout_prob_where_it_is_left_out(void **state)
{
    (void)state;
    static const struct {
        const char *text, *option;
        double hidden, embedding;
    } cases[] = {
        {"", NULL, 0.1, 0.1},
        {"Model: {hidden_dropout_prob: 0.3}\n", NULL, 0.3, 0.3},
        {"Model: {hidden_dropout_prob: 0.3}\n", "hidden_dropout_prob=0", 0, 0},
        {"Model: {hidden_dropout_prob: 0.3}\n", "embed_drop_rate=0", 0.3, 0},
        {"Model:\n  embed_drop_rate: 0.5\n", "Model.hidden_dropout_prob=0", 0, 0.5},
        {"Model:\n  embed_drop_rate: 0.5\n", "embed_drop_rate=", 0.1, 0.1},
        {"Model:\n  embed_drop_rate:\n", NULL, 0.1, 0.1},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct config cfg;
        load_with(&cfg, cases[i].text, cases[i].option, NULL);
        assert_true(cfg.model.hidden_dropout_prob == cases[i].hidden);
        assert_true(cfg.model.embed_drop_rate == cases[i].embedding);
    }
}

static void test_norm_epsilon__has_the_name_of_transformers_too(void **state)
{
    (void)state;
    struct config cfg;
    load(&cfg, "Model:\n  layer_norm_epsilon: 1e-6\n");
    assert_true(cfg.model.norm_epsilon == 1e-6);
    load_with(&cfg, "", "Model.layer_norm_epsilon=1e-12", NULL);
    assert_true(cfg.model.norm_epsilon == 1e-12);
    load_with(&cfg, "", "layer_norm_epsilon=1e-4", NULL);
    assert_true(cfg.model.norm_epsilon == 1e-4);
    load(&cfg, "layer_norm_epsilon: 1e-3\n");
    assert_true(cfg.model.norm_epsilon == 1e-3);
}

/* The JSON of the defaults with `from` replaced by `to` must be refused with `reason`. */
static void assert_json_refused(const char *from, const char *to, const char *reason)
{
    struct config cfg;
    struct error err = {.text = ""};
    char text[16384];
    load(&cfg, "");
    char *json = config_to_json(&cfg);
    const char *at = strstr(json, from);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - json), json, to,
             at + strlen(from));
    free(json);
    assert_int_equal(config_from_json(&cfg, text, &err), -1);
    assert_int_equal(err.kind, ERROR_INPUT);
    if (!strstr(err.text, reason))
        fail_msg("'%s' is not in '%s'", reason, err.text);
}

static void test_json__that_was_changed_is_checked(void **state)
{
    (void)state;
    assert_json_refused("\"seed\"", "\"sed\"", "'sed' is not a known key");
    assert_json_refused("\"num_layers\": 24,", "", "'Model.num_layers' is missing");
    assert_json_refused("\"seed\": 1024,", "\"seed\": 1, \"seed\": 1,", "duplicate");
    assert_json_refused("\"seed\": 1024", "\"seed\": \"1024\"", "seed: the quoted text");
    assert_json_refused("\"seed\": 1024", "\"seed\": -1", "seed: -1 is out of range");
    assert_json_refused("\"seed\": 1024", "\"seed\": null", "seed: neither a number");
    assert_json_refused("\"seed\": 1024", "\"seed\": {}", "seed: neither a number");
    assert_json_refused("\"num_layers\"", "\"a\": 1, \"num_layers\"", "'Model.a' is not");
    assert_json_refused("\"hidden_size\": 1024", "\"hidden_size\": 1000",
                        "16 does not divide hidden_size 1000");
    assert_json_refused("\"device\": \"cpu\"", "\"device\": \"xpu\"", "not yet");
    assert_json_refused("{", "[", "line 2");
}

/* -- files --------------------------------------------------------------------------- */

static void test_docs__are_what_the_table_says(void **state)
{
    (void)state;
    char *made = NULL, *file = NULL;
    size_t n_made = 0, n_file = 0;
    struct error err;
    FILE *out = open_memstream(&made, &n_made);
    assert_non_null(out);
    config_print_markdown(out);
    fclose(out);
    assert_ok(
        fs_read_all(TEST_SOURCE_DIR "/../docs/config.md", 1 << 20, &file, &n_file, &err),
        err);
    if (strcmp(made, file) != 0)
        fail_msg("docs/config.md is old: build/trefoil config --markdown > "
                 "docs/config.md");
    free(made);
    free(file);
}

/* The one file that is ahead of the program is refused for just that, and loads without
 * it. */
static void test_configs__in_the_tree_load(void **state)
{
    (void)state;
    struct fs_names list;
    struct error err;
    char path[4096];
    assert_ok(fs_list(TEST_SOURCE_DIR "/../configs", &list, &err), err);
    assert_true(list.n_names >= 2);
    for (int64_t i = 0; i < list.n_names; i++) {
        struct config cfg;
        snprintf(path, sizeof path, "%s/../configs/%s", TEST_SOURCE_DIR, list.names[i]);
        assert_ok(config_load(&cfg, path, NULL, 0, &err), err);
    }
    fs_names_release(&list);
}

static void test_files__that_cannot_be_read_are_input_errors(void **state)
{
    (void)state;
    struct config cfg;
    struct error err, ignored;
    char *dir = test_make_directory();
    char path[4200];
    assert_int_equal(config_load(&cfg, dir, NULL, 0, &err), -1);
    assert_int_equal(err.kind, ERROR_INPUT);
    assert_non_null(strstr(err.text, "it is a directory"));

    snprintf(path, sizeof path, "%s/none.yaml", dir);
    assert_int_equal(config_load(&cfg, path, NULL, 0, &err), -1);
    assert_int_equal(err.kind, ERROR_INPUT);
    assert_non_null(strstr(err.text, "none.yaml': No such file"));

    snprintf(path, sizeof path, "%s/large.yaml", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(ftruncate(fileno(f), CONFIG_MAX_BYTES + 1), 0);
    fclose(f);
    assert_int_equal(config_load(&cfg, path, NULL, 0, &err), -1);
    assert_int_equal(err.kind, ERROR_INPUT);
    assert_non_null(strstr(err.text, "more than 1048576"));
    assert_ok(fs_remove_tree(dir, &ignored), ignored);
    free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seed_004__is_understood_as_printed),
        cmocka_unit_test(test_seed_004__asks_for_a_gpu),
        cmocka_unit_test(test_dtype__follows_use_pure_fp16),
        cmocka_unit_test(test_defaults__are_those_of_paddlefleetx),
        cmocka_unit_test(test_rates__that_are_left_out_suit_the_model),
        cmocka_unit_test(test_root__is_optional_and_may_be_empty),
        cmocka_unit_test(test_seed_003__settings_are_other_names),
        cmocka_unit_test(test_aliases__of_fleetx_24_stand_under_model),
        cmocka_unit_test(test_numbers__are_read_exactly),
        cmocka_unit_test(test_split__has_three_spellings),
        cmocka_unit_test(test_batch_sizes__that_are_left_out_are_derived),
        cmocka_unit_test(test_empty__means_derived_where_the_seed_says_so),
        cmocka_unit_test(test_options__name_a_key_in_four_ways),
        cmocka_unit_test(test_options__the_last_one_wins),
        cmocka_unit_test(test_yaml__quotes_inside_quotes),
        cmocka_unit_test(test_print__loads_back_to_the_same),
        cmocka_unit_test(test_json__keeps_every_bit),
        cmocka_unit_test(test_json__that_was_changed_is_checked),
        cmocka_unit_test(
            test_json__without_the_younger_keys_of_a_model_has_their_defaults),
        cmocka_unit_test(
            test_embed_drop_rate__follows_hidden_dropout_prob_where_it_is_left_out),
        cmocka_unit_test(test_norm_epsilon__has_the_name_of_transformers_too),
        cmocka_unit_test(test_docs__are_what_the_table_says),
        cmocka_unit_test(test_configs__in_the_tree_load),
        cmocka_unit_test(test_files__that_cannot_be_read_are_input_errors),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
