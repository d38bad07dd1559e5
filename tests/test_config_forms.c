/*
 * The forms a configuration comes in: PaddleFleetX's since August 2022 with its sections,
 * mixtures of forms, and names that are no keys here.
 */
#include "config_fixture.h"
#include "test.h"

#include "base/fs.h"
#include "base/log.h"
#include "config/config.h"

#include <fcntl.h>
#include <unistd.h>

/* The same in the words of July 2022. */
static const char july[] =
    "PreTraining:\n"
    "  device: cpu\n  seed: 7\n  max_steps: 30\n  num_train_epochs: 2\n"
    "  logging_freq: 5\n  eval_freq: 10\n  eval_iters: 3\n  use_recompute: True\n"
    "  recompute_granularity: core_attn\n  no_recompute_layers: [1]\n"
    "  fused_linear: True\n  tensor_fusion: True\n"
    "  batch_size: {local_batch_size: 4, micro_batch_size: 2}\n"
    "  mix_precision: {use_pure_fp16: True, scale_loss: 1024.0}\n"
    "  save_load: {save_steps: 9, output_dir: ./there}\n"
    "  dataset: {input_dir: ./tokens, split: '8,1,1', max_seq_len: 32}\n"
    "  Model: {vocab_size: 512, hidden_size: 64, num_layers: 4, num_attention_heads: 4,\n"
    "    max_position_embeddings: 64}\n"
    "  Distributed: {mp_degree: 2, pp_degree: 2,\n"
    "    sharding: {sharding_degree: 2, sharding_stage: 2}}\n"
    "  Optimizer: {weight_decay: 0.02, adam_beta1: 0.8, adam_beta2: 0.95,\n"
    "    adam_epsilon: 1.0e-7, grad_clip: 0.5, lr: {decay_steps: 40, warmup_rate: 0.1,\n"
    "    max_lr: 5.0e-5, min_lr: 1.0e-5}}\n";

static int load(struct config *cfg, const char *text, const char *option,
                struct error *err)
{
    char copy[256];
    char *options[] = {copy};
    snprintf(copy, sizeof copy, "%s", option ? option : "");
    return config_load_text(cfg, "f.yaml", text, strlen(text), options, option ? 1 : 0, 1,
                            err);
}

static void assert_loads(struct config *cfg, const char *text, const char *option)
{
    struct error err;
    assert_ok(load(cfg, text, option, &err), err);
}

static void assert_refused(const char *text, const char *option, const char *sentence)
{
    struct config cfg;
    struct error err = {.text = ""};
    if (load(&cfg, text, option, &err) == 0)
        fail_msg("accepted: %s %s", text, option ? option : "");
    assert_int_equal(err.kind, ERROR_INPUT);
    if (strncmp(err.text, sentence, strlen(sentence)) != 0)
        fail_msg("expected: %s\nfound:    %s", sentence, err.text);
}

/* What `call` logs, malloc'ed. */
static char *logged_by(const char *text)
{
    struct config cfg;
    char *log = NULL;
    size_t n = 0;
    struct error err;
    char path[] = "/tmp/trefoil-log-XXXXXX";
    int fd = mkstemp(path), kept = dup(STDERR_FILENO);
    assert_true(fd >= 0 && kept >= 0);
    fflush(stderr);
    dup2(fd, STDERR_FILENO);
    int rc = load(&cfg, text, NULL, &err);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(fd);
    close(kept);
    assert_ok(rc, err);
    assert_ok(fs_read_all(path, 1 << 20, &log, &n, &err), err);
    unlink(path);
    return log;
}

/* -- sections ------------------------------------------------------------------------ */

static void test_sections__mean_what_july_means(void **state)
{
    (void)state;
    struct config a, b;
    assert_loads(&a, sectioned, NULL);
    assert_loads(&b, july, NULL);
    assert_same(&a, &b);
}

static void test_sections__have_stage_2_where_it_is_left_out(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t stage;
    } cases[] = {
        {"seed: 1", 1},
        {"Model: {use_recompute: True}", 1},
        {"Global: {seed: 1}", 2},
        {"Engine: {max_steps: 3}", 2},
        {"Data: {dataset: {max_seq_len: 8}}", 2},
        {"Global: {seed: 1}\nDistributed: {sharding: {sharding_stage: }}", 2},
        {"Global: {seed: 1}\nDistributed: {sharding: {sharding_stage: 1}}", 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct config cfg;
        assert_loads(&cfg, cases[i].text, NULL);
        assert_int_equal(cfg.distributed.sharding.sharding_stage, cases[i].stage);
        assert_int_equal(cfg.device, DEVICE_CPU);
    }
}

static void test_sections__between_the_two_forms_are_read_too(void **state)
{
    (void)state;
    struct config cfg;
    assert_loads(&cfg,
                 "Global: {seed: 3, max_steps: 5, mix_precision: {enable: True}}\n"
                 "Data: {batch_size: {micro_batch_size: 2}, dataset: {max_seq_len: 16}}\n"
                 "Fused: {tensor_fusion: True}\n",
                 NULL);
    assert_int_equal(cfg.seed, 3);
    assert_int_equal(cfg.max_steps, 5);
    assert_int_equal(cfg.batch_size.micro_batch_size, 2);
    assert_int_equal(cfg.dataset.max_seq_len, 16);
    assert_true(cfg.tensor_fusion);
    assert_int_equal(cfg.mix_precision.dtype, DTYPE_F16);
}

static void test_options__take_the_names_of_sections(void **state)
{
    (void)state;
    static const char *const options[] = {"Engine.max_steps=7", "Global.max_steps=7",
                                          "max_steps=7", "Optimizer.lr.max_steps=7"};
    struct config cfg;
    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        assert_loads(&cfg, sectioned, options[i]);
        assert_int_equal(cfg.max_steps, 7);
    }
    assert_loads(&cfg, sectioned, "Engine.save_load.output_dir=x");
    assert_string_equal(cfg.save_load.output_dir, "x");
    assert_loads(&cfg, sectioned, "Optimizer.grad_clip.clip_norm=2");
    assert_true(cfg.optimizer.grad_clip == 2);
    assert_loads(&cfg, sectioned, "Data.Train.dataset.input_dir=[a, b]");
    assert_int_equal(cfg.dataset.input_dir.n_paths, 2);
    assert_loads(&cfg, sectioned, "Profiler.enable=True");
}

static void test_errors__name_the_users_own_key(void **state)
{
    (void)state;
    assert_refused("Engine: {max_steps: x}", NULL, "f.yaml:1:21: Engine.max_steps: 'x'");
    assert_refused("Global: {device: xpu}", NULL,
                   "f.yaml:1:18: Global.device: xpu is not yet in this version: use "
                   "cpu|gpu|emulated");
    assert_refused(sectioned, "Engine.logging_freq=0",
                   "-o Engine.logging_freq=0: Engine.logging_freq: 0 is out of range");
    assert_refused("Global: {local_batch_size: 8, micro_batch_size: 3}", NULL,
                   "f.yaml:1:49: Global.micro_batch_size: 3 does not divide "
                   "local_batch_size 8 (f.yaml:1:28)");
    assert_refused("Engine:\n  max_step: 3\n", NULL,
                   "f.yaml:2:3: 'Engine.max_step' is not a known key: did you mean "
                   "'Engine.max_steps'?");
}

/* -- mixtures ------------------------------------------------------------------------ */

static void test_mixtures__that_mean_one_thing_load(void **state)
{
    (void)state;
    struct config cfg;
    assert_loads(&cfg, "seed: 5\nGlobal: {seed: 5}\n", NULL);
    assert_int_equal(cfg.seed, 5);
    assert_loads(&cfg, "max_steps:\nEngine: {max_steps: 9}\n", NULL);
    assert_int_equal(cfg.max_steps, 9);
    assert_loads(&cfg, "Engine: {max_steps: 9}\nmax_steps:\n", NULL);
    assert_int_equal(cfg.max_steps, 9);
    assert_loads(&cfg,
                 "dataset: {split: '8,1,1'}\nData: {Train: {dataset: {split: [8, "
                 "1, 1]}}}\n",
                 NULL);
    assert_loads(&cfg,
                 "NUM_EPOCHS: 3\nGlobal: {seed: 2}\nPreTraining: {logging_freq: "
                 "4}\n",
                 NULL);
    assert_int_equal(cfg.num_train_epochs, 3);
    assert_int_equal(cfg.logging_freq, 4);
}

static void test_mixtures__that_mean_two_things_name_both_lines(void **state)
{
    (void)state;
    assert_refused("seed: 5\nGlobal:\n  seed: 6\n", NULL,
                   "f.yaml:3:3: 'Global.seed' is set a second time with another value "
                   "(seed, first at f.yaml:1:7): remove one");
    assert_refused("Engine:\n  max_steps: 3\nOptimizer: {lr: {max_steps: 4}}\n", NULL,
                   "f.yaml:3:18: 'Optimizer.lr.max_steps' is set a second time with "
                   "another value (max_steps, first at f.yaml:2:14): remove one");
    assert_refused("Data:\n  Train: {dataset: {input_dir: a}}\n"
                   "  Eval: {dataset: {input_dir: b}}\n",
                   NULL,
                   "f.yaml:3:31: Data.Eval.dataset.input_dir: 'b' is not the input_dir "
                   "'a' of training (f.yaml:2:32): evaluation takes");
    assert_refused("Global: {mix_precision: {enable: True}}\n"
                   "Engine: {mix_precision: {enable: False}}\n",
                   NULL, "f.yaml:2:34: 'Engine.mix_precision.enable' is set a second");
}

static void test_enable__decides_whether_dtype_counts(void **state)
{
    (void)state;
    struct config cfg;
    assert_loads(&cfg, "Engine: {mix_precision: {enable: False, dtype: float16}}", NULL);
    assert_int_equal(cfg.mix_precision.dtype, DTYPE_F32);
    assert_loads(&cfg, "Engine: {mix_precision: {enable: True, dtype: 'bfloat16'}}",
                 NULL);
    assert_int_equal(cfg.mix_precision.dtype, DTYPE_BF16);
    assert_loads(&cfg, "mix_precision: {use_pure_fp16: True}",
                 "Engine.mix_precision.enable=False");
    assert_int_equal(cfg.mix_precision.dtype, DTYPE_F32);
    assert_loads(&cfg, "Engine: {mix_precision: {enable: False, dtype: float16}}",
                 "mix_precision.dtype=bfloat16"); // said later
    assert_int_equal(cfg.mix_precision.dtype, DTYPE_BF16);
    assert_false(cfg.mix_precision.use_pure_fp16);
    assert_refused("Engine: {mix_precision: {enable: True, use_pure_fp16: False}}", NULL,
                   "f.yaml:1:34: Engine.mix_precision.enable: it says True and "
                   "use_pure_fp16 says False (f.yaml:1:55): leave one of them out");
    assert_refused("Engine: {mix_precision: {enable: yes}}", NULL,
                   "f.yaml:1:34: Engine.mix_precision.enable: 'yes' is not a truth");
}

/* -- names that are no keys ---------------------------------------------------------- */

static void test_foreign__names_are_told_in_one_line(void **state)
{
    (void)state;
    char *log = logged_by("Profiler: {enable: False}\nOffline_Eval:\n  eval_path: x\n"
                          "Generation: {top_k: 50}\nInference: {model_dir: .}\n"
                          "Compress: {pretrained: x}\nEngine: {test_iters: 3}\n");
    char *line = strstr(log, "not used here");
    assert_non_null(line);
    assert_string_equal(line, "not used here, of the configuration: Profiler, "
                              "Offline_Eval, Generation, Inference, Compress, "
                              "Engine.test_iters\n");
    free(log);
    log = logged_by("Model: {module: GPTEvalModule}\nOffline_Eval: {cloze_eval: True}\n");
    assert_non_null(strstr(log, "configuration: Offline_Eval, Model.module\n"));
    free(log);
    log = logged_by("Engine: {test_iters: }\nModel: {module: GPTModule}\nseed: 1\n");
    assert_string_equal(log, "");
    free(log);
}

static void test_foreign__models_are_refused_with_a_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"Model: {module: MoEModule}",
         "f.yaml:1:17: Model.module: 'MoEModule' is not possible here: mixtures of "
         "experts are not in this version"},
        {"Model: {name: MoE}",
         "f.yaml:1:15: Model.name: 'MoE' is not possible here: mix"},
        {"Model: {moe_configs: {gate: gshard}}",
         "f.yaml:1:9: Model.moe_configs: mixtures of experts are not in this version"},
        {"Engine: {balance_loss_weight: 1.0}",
         "f.yaml:1:31: Engine.balance_loss_weight: mixtures of experts"},
        {"Model: {num_experts: '2,', expert_interval: 2, topk: 1, moe_use_residual: "
         "False,\n"
         "  moe_train_capacity_factor: 1.0, moe_eval_capacity_factor: 1.0,\n"
         "  moe_min_capacity: 4, moe_token_dropping: True, balance_loss_weight: 0.01,\n"
         "  enable_expert_tensor_parallelism: False}",
         "f.yaml:1:22: Model.num_experts: '2,' is not possible here: mixtures of "
         "experts"},
        {"Model: {expert_interval: 2}",
         "f.yaml:1:26: Model.expert_interval: mixtures of"},
        {"Model: {moe_min_capacity: 4}",
         "f.yaml:1:27: Model.moe_min_capacity: mixtures of"},
        {"Model: {topk: 1}", "f.yaml:1:15: Model.topk: mixtures of experts are not in"},
        {"Optimizer: {grad_clip: {name: ClipGradForMOEByGlobalNorm}}",
         "f.yaml:1:31: Optimizer.grad_clip.name: 'ClipGradForMOEByGlobalNorm' is not "
         "possible here: mixtures of experts"},
        {"Tuning: {enable: True, profile_start_step: 1}",
         "f.yaml:1:1: Tuning: automatic tuning is not in this version"},
        {"Tuning: {tuning_recompute: True}",
         "f.yaml:1:1: Tuning: automatic tuning is not"},
        {"PreTraining: {quantization: {use_qat: True, weight_bits: 8}}",
         "f.yaml:1:15: quantization: quantisation is not in this version: remove it, or "
         "set its use_qat to False"},
        {"Distillation: {enable: True}", "f.yaml:1:1: Distillation: distillation is not"},
        {"Model: {module: GPTDistillModule}",
         "f.yaml:1:17: Model.module: 'GPTDistillModule' is not possible here: "
         "distillation is not in this version"},
        {"Model: {module: GPTFinetuneModule}",
         "f.yaml:1:17: Model.module: 'GPTFinetuneModule' is not possible here: "
         "fine-tuning for a task is not in this version: remove it and use GPTModule"},
        {"Model: {module: ErnieModule}",
         "f.yaml:1:17: Model.module: 'ErnieModule' is not possible here: this program "
         "pretrains GPT models: use GPTModule"},
        {"Compress: {Quantization: {enable: True}}",
         "f.yaml:1:12: Compress.Quantization: quantisation is not in this version"},
        {"Compress: {Quantization: {weight_bits: 8}}",
         "f.yaml:1:12: Compress.Quantization: quantisation is not in this version"},
        {"Quantization: {enable: True}", "f.yaml:1:1: Quantization: quantisation is"},
        {"Compress: {Prune: {enable: True}}",
         "f.yaml:1:12: Compress.Prune: pruning is not in this version: remove it, or set "
         "its enable to False"},
        {"Compress: {Distillation: {enable: True}}",
         "f.yaml:1:12: Compress.Distillation: distillation is not in this version"},
        {"Optimizer: {grad_clip: {name: ClipGradByValue}}",
         "f.yaml:1:31: Optimizer.grad_clip.name: 'ClipGradByValue' is not possible here"},
        {"Engine: {run_mode: epoch}",
         "f.yaml:1:20: Engine.run_mode: 'epoch' is not possible here: leave it out, "
         "leave max_steps empty"},
        {"Data: {Train: {dataset: {name: ErnieDataset}}}",
         "f.yaml:1:32: Data.Train.dataset.name: 'ErnieDataset' is not possible here"},
        {"Engine: {mix_precision: {level: O1}}",
         "f.yaml:1:33: Engine.mix_precision.level: 'O1' is not possible here"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_refused(cases[i].text, NULL, cases[i].sentence);
}

static void test_foreign__features_may_be_switched_off(void **state)
{
    (void)state;
    assert_refused("seed: 1", "Compress.Prune.enable=True",
                   "-o Compress.Prune.enable=True: Compress.Prune: pruning is not");
    struct config cfg;
    assert_loads(&cfg, "Compress: {Prune: {enable: True}}",
                 "Compress.Prune.enable=False");
    assert_loads(&cfg, "Model: {module: MoEModule}", "Model.module=GPTModule");
    assert_loads(&cfg, "quantization: {use_qat: False, weight_bits: 8}", NULL);
    assert_loads(&cfg, "Tuning: {enable: False, profile_start_step: 1}", NULL);
    assert_loads(&cfg, "Model: {expert_interval: , num_experts: 1}", NULL);
    assert_loads(&cfg, "Model: {name: MoE}", "Model.name=");
    assert_loads(&cfg,
                 "Optimizer: {multi_precision: True,\n"
                 "            grad_clip: {clip_norm: 0.5, multi_precision: False}}",
                 NULL);
    assert_true(cfg.optimizer.grad_clip == 0.5);
    assert_loads(&cfg, "Fused_passes: {enable: False}\nEval: {batch_size: 8}", NULL);
    assert_refused("quantization: {use_qat: 1}", NULL,
                   "f.yaml:1:25: quantization.use_qat: '1' is not a truth value");
    assert_refused(
        "Model: {module: GPTModule}", "Model.module=MoEModule",
        "-o Model.module=MoEModule: Model.module: 'MoEModule' is not possible");
}

/* Whatever else is wrong with a file for a feature that is missing, the feature is
 * reported. */
static void test_foreign__feature_comes_before_other_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *option, *sentence;
    } cases[] = {
        {"Engine: {max_steps: -1}\nModel: {num_classes: 2, module: GPTFinetuneModule}",
         NULL,
         "f.yaml:2:33: Model.module: 'GPTFinetuneModule' is not possible here: fine"},
        {"Data: {Train: {dataset: {name: SST2, split: train, max_length: 128}}}\n"
         "Model: {num_classes: 2}",
         NULL, "f.yaml:2:22: Model.num_classes: fine-tuning for a task"},
        {"max_steps: -1\nLoss: {train: {name: CrossEntropyLoss}}", NULL,
         "f.yaml:2:1: Loss: fine-tuning for a task"},
        {"Global:\n  Model:\n  vocab_size: 8\nCompress: {Prune: {enable: True}}", NULL,
         "f.yaml:4:12: Compress.Prune: pruning is not"},
        {"_base_: no_such_file.yaml\nModel: {moe_configs: {gate: gshard}}", NULL,
         "f.yaml:2:9: Model.moe_configs: mixtures of experts"},
        {"seed: 1\nseed: 2\nTuning: {enable: True}", NULL, "f.yaml:3:1: Tuning: auto"},
        {"batch_size: {local_batch_size: 8, micro_batch_size: 3}", "num_experts=8",
         "-o num_experts=8: Model.num_experts: '8' is not possible here: mixtures of"},
        {"sed: 1", "Model.module=MoEModule", "-o Model.module=MoEModule: Model.module"},
        {"Prune: {enable: False, cal_sens: True}", NULL,
         "f.yaml:1:34: Prune.cal_sens: 'True' is not possible here: pruning"},
        {"Engine: {run_mode: epoch, max_steps: -1}", NULL,
         "f.yaml:1:20: Engine.run_mode"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_refused(cases[i].text, cases[i].option, cases[i].sentence);
    assert_refused("max_steps: -1\nModel: {module: MoEModule}", "Model.module=GPTModule",
                   "f.yaml:1:12: max_steps: -1 is out of range");
    assert_refused("max_steps: -1\nTuning: {enable: False}", NULL,
                   "f.yaml:1:12: max_steps: -1 is out of range");
    assert_refused("Model: {module: MoEModule}\nseed: [1", NULL,
                   "f.yaml:3:1: not valid YAML");
}

static void test_foreign__option_may_leave_out_the_section(void **state)
{
    (void)state;
    struct config cfg;
    static const struct {
        const char *option, *sentence;
    } cases[] = {
        {"num_experts=8", "Model.num_experts: '8' is not possible here: mixtures of"},
        {"top_k=2", "Model.top_k: mixtures of experts are not in"},
        {"gate=gshard", "Model.gate: mixtures of experts are not in"},
        {"moe_configs.num_experts=4", "Model.moe_configs: mixtures of experts"},
        {"module=MoEModule", "Model.module: 'MoEModule' is not possible here: mixtures"},
        {"balance_loss_weight=1.0", "Engine.balance_loss_weight: mixtures of experts"},
        {"quantization=True", "quantization: quantisation is not in"},
        {"quantization.use_qat=True", "quantization: quantisation is not in"},
        {"quantization.weight_bits=8", "quantization: quantisation is not in"},
        {"Quantization.enable=True", "Quantization: quantisation is not in"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char sentence[200];
        snprintf(sentence, sizeof sentence, "-o %s: %s", cases[i].option,
                 cases[i].sentence);
        assert_refused("seed: 1", cases[i].option, sentence);
    }
    assert_refused("seed: 1", "prune.enable=True",
                   "-o prune.enable=True: Compress.Prune: pruning is not");
    assert_loads(&cfg, "seed: 1", "prune.enable=False");
    assert_loads(&cfg, "seed: 1", "num_experts=1");
    assert_loads(&cfg, "seed: 1", "use_flash_attn=True");
    assert_refused("seed: 1", "enable=False",
                   "-o enable=False: 'enable' is not a known key");
    assert_refused("seed: 1", "name=GPT",
                   "-o name=GPT: 'name' is not a known key"); // of several rows
}

/* -- epochs -------------------------------------------------------------------------- */

static void test_epochs__count_when_steps_are_left_out(void **state)
{
    (void)state;
    static const struct {
        const char *text, *option;
        int64_t max_steps;
    } cases[] = {
        {"seed: 1", NULL, 500000},
        {"num_train_epochs: 2", NULL, 0},
        {"NUM_EPOCHS: 60", NULL, 0},
        {"Engine: {num_train_epochs: 1}", NULL, 0},
        {"num_train_epochs: 2\nmax_steps:\n", NULL, 0},
        {"num_train_epochs: 2\nmax_steps: 0\n", NULL, 0},
        {"num_train_epochs: 2\nmax_steps: 7\n", NULL, 7},
        {"num_train_epochs: \n", NULL, 500000},
        {"seed: 1", "num_train_epochs=2", 0},
        {"max_steps: 7", "num_train_epochs=2", 7},
        {"num_train_epochs: 2", "max_steps=7", 7},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct config cfg;
        assert_loads(&cfg, cases[i].text, cases[i].option);
        assert_int_equal(cfg.max_steps, cases[i].max_steps);
    }
}

static void test_rates__that_are_swapped_are_warned_about(void **state)
{
    (void)state;
    char *log = logged_by("seed: 1");
    assert_string_equal(log, "");
    free(log);
    log = logged_by("Optimizer: {lr: {max_lr: 1.0e-5, min_lr: 5.0e-5}}");
    assert_non_null(strstr(log, "f.yaml:1:26: max_lr 1e-05 is below min_lr 5e-05 "
                                "(f.yaml:1:42): "));
    free(log);
    log = logged_by("Optimizer: {lr: {max_lr: 2.0e-5}}");
    assert_string_equal(log, "");
    free(log);
    log = logged_by("Optimizer: {lr: {min_lr: 0.5}}");
    assert_non_null(strstr(log, "f.yaml:1:26: max_lr 0.000390625 is below min_lr 0.5: "));
    free(log);
}

static void test_level__alone_is_warned_about(void **state)
{
    (void)state;
    static const char *const sufficient[] = {"enable: True", "enable: False",
                                             "use_pure_fp16: False", "dtype: bfloat16",
                                             "level: "};
    char *log = logged_by("Engine: {mix_precision: {level: o2}}");
    assert_non_null(strstr(log, "f.yaml:1:33: Engine.mix_precision.level alone does not "
                                "switch to 16 bits: training is in float32"));
    free(log);
    for (size_t i = 0; i < ARRAY_LEN(sufficient); i++) {
        char text[100];
        bool is_level = strncmp(sufficient[i], "level", 5) == 0;
        snprintf(text, sizeof text, "Engine: {mix_precision: {%s%s}}",
                 is_level ? "" : "level: O2, ", sufficient[i]);
        log = logged_by(text);
        if (strstr(log, "alone"))
            fail_msg("%s: %s", text, log);
        free(log);
    }
}

/* -- the form of the Colossal-AI tutorial -------------------------------------------- */

static void test_tutorial__a_file_with_its_names_has_its_defaults(void **state)
{
    (void)state;
    static const char *const files[] = {
        "BATCH_SIZE: 4\n", "NUM_EPOCHS: 2\n", "parallel.pipeline: 1\n",
        "parallel: {pipeline: 1}\n", "PreTraining:\n  BATCH_SIZE: 4\n"};
    struct config cfg;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        assert_loads(&cfg, files[i], NULL);
        assert_true(cfg.dataset.drop_last);
        assert_true(cfg.dataset.pad_loss);
        assert_int_equal(cfg.model.activation, MODEL_GELU);
        assert_int_equal(cfg.optimizer.decay, DECAYED_ALL);
        assert_loads(&cfg, files[i], "Model.activation=gelu_tanh");
        assert_int_equal(cfg.model.activation, MODEL_GELU_TANH);
        assert_loads(&cfg, files[i], "drop_last=False");
        assert_false(cfg.dataset.drop_last);
        assert_true(cfg.dataset.pad_loss);
    }
    assert_loads(&cfg, "BATCH_SIZE: 4\ndataset: {pad_loss: False, drop_last: }\n", NULL);
    assert_true(cfg.dataset.drop_last);
    assert_false(cfg.dataset.pad_loss);
}

static void test_tutorial__other_files_have_their_own_defaults(void **state)
{
    (void)state;
    static const char *const options[] = {NULL, "BATCH_SIZE=4", "NUM_EPOCHS=2",
                                          "parallel.pipeline=1"};
    struct config cfg;
    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        assert_loads(&cfg, "SEQ_LEN: 16\nNUM_MICRO_BATCHES: 1\n", options[i]);
        assert_false(cfg.dataset.drop_last);
        assert_false(cfg.dataset.pad_loss);
        assert_int_equal(cfg.model.activation, MODEL_GELU_TANH);
        assert_int_equal(cfg.optimizer.decay, DECAYED_MATRICES);
    }
}

static void test_accumulation__multiplies_the_batch_of_an_update(void **state)
{
    (void)state;
    struct config cfg, again;
    struct error err;
    assert_loads(&cfg,
                 "BATCH_SIZE: 6\nNUM_MICRO_BATCHES: 3\n"
                 "Distributed: {dp_degree: 2}\ngradient_accumulation: 4\n",
                 NULL);
    assert_int_equal(cfg.batch_size.global_batch_size, 48);
    assert_int_equal(cfg.batch_size.micro_batch_size, 2);
    assert_int_equal(config_update_samples(&cfg), 24);
    assert_int_equal(config_update_micro_batches(&cfg), 12);
    char *json = config_to_json(&cfg);
    assert_ok(config_from_json(&again, json, &err), err);
    assert_same(&cfg, &again);
    free(json);
    assert_loads(&cfg, "batch_size: {global_batch_size: 24}\n",
                 "gradient_accumulation=3");
    assert_int_equal(cfg.batch_size.local_batch_size, 8);
    assert_refused("batch_size: {global_batch_size: 25}\n", "gradient_accumulation=3",
                   "f.yaml:1:33: batch_size.global_batch_size: 25 is not a multiple of "
                   "the 1 data rank (dp_degree x sharding_degree) x "
                   "gradient_accumulation 3: use 27");
    assert_refused("batch_size: {global_batch_size: 9, local_batch_size: 9}\n",
                   "gradient_accumulation=3",
                   "f.yaml:1:33: batch_size.global_batch_size: 9 is not local_batch_size "
                   "9 (f.yaml:1:54) x 1 data rank (dp_degree x sharding_degree) x "
                   "gradient_accumulation 3: use 27, or local_batch_size 3");
    assert_refused("gradient_accumulation: 0\n", NULL, "f.yaml:1:24: ");
    assert_refused(
        "BATCH_SIZE: 16777216\ngradient_accumulation: 65536\n"
        "Distributed: {dp_degree: 65536, sharding: {sharding_degree: 65536}}\n",
        NULL, "f.yaml:1:13: BATCH_SIZE: 16777216 samples on 4294967296 data");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sections__mean_what_july_means),
        cmocka_unit_test(test_sections__have_stage_2_where_it_is_left_out),
        cmocka_unit_test(test_sections__between_the_two_forms_are_read_too),
        cmocka_unit_test(test_options__take_the_names_of_sections),
        cmocka_unit_test(test_errors__name_the_users_own_key),
        cmocka_unit_test(test_mixtures__that_mean_one_thing_load),
        cmocka_unit_test(test_mixtures__that_mean_two_things_name_both_lines),
        cmocka_unit_test(test_enable__decides_whether_dtype_counts),
        cmocka_unit_test(test_foreign__names_are_told_in_one_line),
        cmocka_unit_test(test_foreign__models_are_refused_with_a_sentence),
        cmocka_unit_test(test_foreign__features_may_be_switched_off),
        cmocka_unit_test(test_foreign__feature_comes_before_other_errors),
        cmocka_unit_test(test_foreign__option_may_leave_out_the_section),
        cmocka_unit_test(test_epochs__count_when_steps_are_left_out),
        cmocka_unit_test(test_rates__that_are_swapped_are_warned_about),
        cmocka_unit_test(test_level__alone_is_warned_about),
        cmocka_unit_test(test_tutorial__a_file_with_its_names_has_its_defaults),
        cmocka_unit_test(test_tutorial__other_files_have_their_own_defaults),
        cmocka_unit_test(test_accumulation__multiplies_the_batch_of_an_update),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
