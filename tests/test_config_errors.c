/*
 * Configuration that is refused: each with its place, the key, the reason and a remedy,
 * as an input error.
 */
#include "test.h"

#include "base/log.h"
#include "config/config.h"

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

static void assert_refused(const char *text, size_t n, const char *option,
                           const char *sentence)
{
    struct config cfg;
    struct error err = {.text = ""};
    char copy[256];
    char *options[] = {copy};
    snprintf(copy, sizeof copy, "%s", option ? option : "");
    if (config_load_text(&cfg, "f.yaml", text, n, options, option ? 1 : 0, 1, &err) == 0)
        fail_msg("accepted: %s %s", text, option ? option : "");
    assert_int_equal(err.kind, ERROR_INPUT);
    if (strncmp(err.text, sentence, strlen(sentence)) != 0)
        fail_msg("expected: %s\nfound:    %s", sentence, err.text);
}

struct bad {
    const char *text;
    const char *sentence; // how the message begins
};

static void assert_all_refused(const struct bad *cases, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_refused(cases[i].text, strlen(cases[i].text), NULL, cases[i].sentence);
}

static void test_keys__that_are_unknown_get_a_suggestion(void **state)
{
    (void)state;
    static const struct bad cases[] = {
        {"Model:\n  hiden_size: 8\n",
         "f.yaml:2:3: 'Model.hiden_size' is not a known key: did you mean "
         "'Model.hidden_size'?"},
        {"Modle:\n  hidden_size: 8\n",
         "f.yaml:1:1: 'Modle' is not a known key: did you mean 'Model'?"},
        {"PreTraining:\n  max_step: 8\n",
         "f.yaml:2:3: 'max_step' is not a known key: did you mean 'max_steps'?"},
        {"max_seq_len: 8\n", "f.yaml:1:1: 'max_seq_len' is not a known key: did you mean "
                             "'dataset.max_seq_len'?"},
        {"Optimizer: {lr: {maxlr: 1}}",
         "f.yaml:1:18: 'Optimizer.lr.maxlr' is not a known key: did you mean "
         "'Optimizer.lr.max_lr'?"},
        {"batch_size: {name: 1}",
         "f.yaml:1:14: 'batch_size.name' is not a known key: did "
         "you mean 'Optimizer.name' or 'Optimizer.lr.name'?"},
        {"num_micro_batch: 1",
         "f.yaml:1:1: 'num_micro_batch' is not a known key: did you "
         "mean 'NUM_MICRO_BATCHES'?"},
        {"zzzzzzzz: 1", "f.yaml:1:1: 'zzzzzzzz' is not a known key: `trefoil config` "
                        "lists all keys"},
        {"<<: 1", "f.yaml:1:1: '<<' is not a known key"},
        {"Model: {Model: 1}", "f.yaml:1:9: 'Model.Model' is not a known key"},
        {"PreTraining: {PreTraining: {seed: 1}}",
         "f.yaml:1:15: 'PreTraining' is not a known key"},
        {"\"a\\nb\\e\": 1", "f.yaml:1:1: 'a?b?' is not a known key"},
    };
    assert_all_refused(cases, LEN(cases));
}

static void test_keys__that_come_twice_name_the_first_place(void **state)
{
    (void)state;
    static const struct bad cases[] = {
        {"seed: 1\nseed: 2\n", "f.yaml:2:1: 'seed' is set a second time (seed, first at "
                               "f.yaml:1:7): remove one"},
        {"dataset: {max_seq_len: 8}\nSEQ_LEN: 9\n",
         "f.yaml:2:1: 'SEQ_LEN' is set a second time with another value "
         "(dataset.max_seq_len, first at f.yaml:1:24): remove one"},
        {"Model: {fused_linear: False}\nfused_linear: True\n",
         "f.yaml:2:1: 'fused_linear' is set a second time with another value"},
        {"PreTraining: {seed: 1}\nseed: 1\n", "f.yaml:2:1: 'seed' is set a second time"},
        {"ckpt: \n", "f.yaml:1:1: 'ckpt' is not a known key"},
        {"seed:\nseed:\n", "f.yaml:2:1: 'seed' is set a second time"},
        {"Model:\n  num_layers: 1\nModel:\n  hidden_size: 8\n",
         "f.yaml:3:1: 'Model' comes a second time, first in line 1"},
        {"PreTraining:\nPreTraining:\n", "f.yaml:2:1: 'PreTraining' comes a second time"},
    };
    assert_all_refused(cases, LEN(cases));
}

static void test_values__of_the_wrong_type_are_refused(void **state)
{
    (void)state;
    static const struct bad cases[] = {
        {"seed: [1, 2]", "f.yaml:1:7: seed: the list '1,2' is not possible here: use an "
                         "integer from 0 to 4294967295"},
        {"seed: {a: 1}", "f.yaml:1:7: 'seed' takes an integer from 0 to 4294967295, not "
                         "keys of its own"},
        {"seed: '1'",
         "f.yaml:1:7: seed: the quoted text '1' is not possible here: use an "
         "integer from 0 to 4294967295, without quotes"},
        {"seed: ''", "f.yaml:1:7: seed: the quoted text ''"},
        {"seed: abc", "f.yaml:1:7: seed: 'abc' is not an integer"},
        {"seed: True", "f.yaml:1:7: seed: 'True' is not an integer"},
        {"seed: 10x", "f.yaml:1:7: seed: '10x' is not an integer"},
        {"seed: 1 2", "f.yaml:1:7: seed: '1 2' is not an integer"},
        {"seed: --1", "f.yaml:1:7: seed: '--1' is not an integer"},
        {"seed: 1.0", "f.yaml:1:7: seed: '1.0' is not an integer: write 1"},
        {"seed: 1e3", "f.yaml:1:7: seed: '1e3' is not an integer: write 1000"},
        {"mix_precision: {scale_loss: 0.5, use_pure_fp16: True}",
         "f.yaml:1:29: mix_precision.scale_loss: must be at least 1 for float16"},
        {"seed: 1.5", "f.yaml:1:7: seed: '1.5' is not an integer"},
        {"use_recompute: yes",
         "f.yaml:1:16: use_recompute: 'yes' is not a truth value: write True"},
        {"use_recompute: off",
         "f.yaml:1:16: use_recompute: 'off' is not a truth value: write False"},
        {"use_recompute: TRUE",
         "f.yaml:1:16: use_recompute: 'TRUE' is not a truth value: write True"},
        {"use_recompute: 2",
         "f.yaml:1:16: use_recompute: '2' is not a truth value: write "
         "True or False"},
        {"use_recompute: 'False'", "f.yaml:1:16: use_recompute: the quoted text 'False'"},
        {"device: tpu",
         "f.yaml:1:9: device: 'tpu' is unknown: use one of cpu, gpu, emulated, xpu"},
        {"Model: 5", "f.yaml:1:8: 'Model' is a section: write its keys in the lines "
                     "below, indented"},
        {"Model: [1]", "f.yaml:1:8: 'Model' is a section"},
        {"fp16: {mode: TORCH}", "f.yaml:1:14: fp16.mode: 'TORCH' is unknown: use "
                                "AMP_TYPE.NAIVE, or leave it empty"},
        {"parallel: {tensor: {mode: 2d}}",
         "f.yaml:1:27: parallel.tensor.mode: '2d' is unknown: use one of 1d"},
        {"save_load: {output_dir: \"a\\nb\"}",
         "f.yaml:1:25: save_load.output_dir: control character 0x0a in the text"},
        {"save_load: {output_dir: \"a\\0b\"}", "f.yaml:1:25: a NUL character in a value"},
        {"dataset: {split: '1,2'}", "f.yaml:1:18: dataset.split: '1,2' is not possible "
                                    "here: use three weights such as 949,50,1"},
        {"dataset: {split: [1, 2, 3, 4]}", "f.yaml:1:18: dataset.split: the list "
                                           "'1,2,3,4' is not possible here"},
        {"dataset: {split: []}", "f.yaml:1:18: dataset.split: '' is not a number"},
        {"dataset: {split: [[1], 2, 3]}", "f.yaml:1:19: a list holds plain values here"},
        {"dataset: {split: ['1,2', 3]}", "f.yaml:1:18: dataset.split: '1,2' is not"},
    };
    assert_all_refused(cases, LEN(cases));
}

static void test_numbers__of_other_languages_are_refused(void **state)
{
    (void)state;
    static const struct bad cases[] = {
        {"seed: 0o10", "f.yaml:1:7: seed: '0o10' is not a number here: write it in "
                       "decimal"},
        {"seed: 0x10", "f.yaml:1:7: seed: '0x10' is not a number here: write it in "
                       "decimal"},
        {"seed: 010", "f.yaml:1:7: seed: '010' begins with 0"},
        {"seed: 1_000",
         "f.yaml:1:7: seed: '1_000' is not a number here: write it without '_'"},
        {"seed: 99999999999999999999",
         "f.yaml:1:7: seed: '99999999999999999999' does not fit into 64 bits"},
        {"Optimizer: {grad_clip: nan}",
         "f.yaml:1:24: Optimizer.grad_clip: 'nan' is refused: write a finite number"},
        {"Optimizer: {grad_clip: -.INF}",
         "f.yaml:1:24: Optimizer.grad_clip: '-.INF' is refused"},
        {"Optimizer: {grad_clip: 1e999}",
         "f.yaml:1:24: Optimizer.grad_clip: '1e999' is too large for a double"},
        {"Optimizer: {grad_clip: 1e-999}",
         "f.yaml:1:24: Optimizer.grad_clip: '1e-999' is too small for a double: write 0"},
        {"Optimizer: {grad_clip: 1e}",
         "f.yaml:1:24: Optimizer.grad_clip: '1e' is not a number"},
        {"Optimizer: {grad_clip: .}",
         "f.yaml:1:24: Optimizer.grad_clip: '.' is not a number"},
        {"Optimizer: {grad_clip: 0x1p3}",
         "f.yaml:1:24: Optimizer.grad_clip: '0x1p3' is not a number here"},
        {"dataset: {split: [1, nan, 1]}", "f.yaml:1:18: dataset.split: 'nan' is refused"},
        {"TENSOR_SHAPE: (8, 1024, 1e3)",
         "f.yaml:1:15: TENSOR_SHAPE: '1e3' is not an integer: write 1000"},
    };
    assert_all_refused(cases, LEN(cases));
}

static void test_numbers__out_of_range_name_the_range(void **state)
{
    (void)state;
    static const struct bad cases[] = {
        {"eval_freq: -2", "f.yaml:1:12: eval_freq: -2 is out of range: use an integer "
                          "from -1 to 2147483647. Evaluate every so many updates; 0 or "
                          "-1 means never."},
        {"Model: {hidden_size: 0}", "f.yaml:1:22: Model.hidden_size: 0 is out of range"},
        {"Model: {num_layers: 1000000000}",
         "f.yaml:1:21: Model.num_layers: 1000000000 is out of range"},
        {"Model: {activation: relu}",
         "f.yaml:1:21: Model.activation: 'relu' is unknown: use one of gelu_tanh, gelu"},
        {"Optimizer: {decay: none}",
         "f.yaml:1:20: Optimizer.decay: 'none' is unknown: use one of matrices, all"},
        {"Model: {norm_epsilon: 0}", "f.yaml:1:23: Model.norm_epsilon: 0 is out of "
                                     "range: use a number from 1e-12 to 1"},
        {"Model: {embed_drop_rate: 1}",
         "f.yaml:1:26: Model.embed_drop_rate: 1 is out of range: use a number from "
         "0 to below 1"},
        {"Model: {hidden_dropout_prob: 1.0}",
         "f.yaml:1:30: Model.hidden_dropout_prob: 1.0 is out of range: use a number from "
         "0 to below 1"},
        {"Optimizer: {adam_beta2: 1}",
         "f.yaml:1:25: Optimizer.adam_beta2: 1 is out of range"},
        {"Optimizer: {adam_epsilon: 0}",
         "f.yaml:1:27: Optimizer.adam_epsilon: 0 is out of range: use a number above 0"},
        {"Optimizer: {lr: {warmup_rate: 1}}",
         "f.yaml:1:31: Optimizer.lr.warmup_rate: 1 is out of range"},
        {"Distributed: {mp_degree: 3}",
         "f.yaml:1:26: Distributed.mp_degree: 3 does not divide num_attention_heads 16: "
         "use"},
        {"Distributed: {dp_degree: 0}",
         "f.yaml:1:26: Distributed.dp_degree: 0 is out of range"},
        {"Distributed: {sharding: {sharding_stage: 4}}",
         "f.yaml:1:42: Distributed.sharding.sharding_stage: 4 is out of range: use an "
         "integer from 1 to 3"},
        {"dataset: {split: [1, -1, 1]}",
         "f.yaml:1:18: dataset.split: -1 is out of range"},
        {"dataset: {split: [0, 0, 0]}", "f.yaml:1:18: dataset.split: all weights are 0"},
    };
    assert_all_refused(cases, LEN(cases));
}

static void test_values__of_later_versions_name_what_works_now(void **state)
{
    (void)state;
    static const struct bad cases[] = {
        {"device: xpu",
         "f.yaml:1:9: device: xpu is not yet in this version: use cpu|gpu|emulated"},
    };
    assert_all_refused(cases, LEN(cases));
}

static void test_rules__between_keys_name_both_places(void **state)
{
    (void)state;
    static const struct bad cases[] = {
        {"mix_precision: {use_pure_fp16: True, dtype: bfloat16}",
         "f.yaml:1:32: mix_precision.use_pure_fp16: it says float16 and "
         "mix_precision.dtype says bfloat16 (f.yaml:1:"},
        {"no_recompute_layers: [0, 24]", "f.yaml:1:22: no_recompute_layers: 24 is no "
                                         "layer of this model: they are 0 to 23"},
        {"no_recompute_layers: [1.5]",
         "f.yaml:1:22: no_recompute_layers: 1.5 is no layer of this model"},
        {"Model:\n  hidden_size: 1024\n  num_attention_heads: 15\n",
         "f.yaml:3:24: Model.num_attention_heads: 15 does not divide hidden_size 1024 "
         "(f.yaml:2:16): use 2, 4, 8, 16, 32 or 64"},
        {"Model: {hidden_size: 7}", "f.yaml:1:22: Model.num_attention_heads (not given): "
                                    "16 does not divide hidden_size 7: use 1 or 7"},
        {"dataset: {max_seq_len: 2048}",
         "f.yaml:1:24: dataset.max_seq_len: 2048 is more than max_position_embeddings "
         "1024: add to Model the line max_position_embeddings: 2048, or use at most "
         "max_seq_len: 1024"},
        {"dataset: {max_seq_len: 2048}\nModel: {max_position_embeddings: 1024}\n",
         "f.yaml:1:24: dataset.max_seq_len: 2048 is more than max_position_embeddings "
         "1024 (f.yaml:2:34): change that line to max_position_embeddings: 2048, or use "
         "at most max_seq_len: 1024"},
        {"Model: {max_position_embeddings: 8}",
         "f.yaml:1:34: dataset.max_seq_len (not given): 1024 is more than"},
        {"batch_size: {local_batch_size: 8, micro_batch_size: 3}",
         "f.yaml:1:53: batch_size.micro_batch_size: 3 does not divide local_batch_size 8 "
         "(f.yaml:1:32): use 1, 2, 4 or 8"},
        {"batch_size: {global_batch_size: 15, local_batch_size: 8}",
         "f.yaml:1:33: batch_size.global_batch_size: 15 is not local_batch_size 8 "
         "(f.yaml:1:55) x 1 data rank (dp_degree x sharding_degree): use 8, or "
         "local_batch_size 15"},
        {"BATCH_SIZE: 192\nNUM_MICRO_BATCHES: 5\n",
         "f.yaml:2:20: NUM_MICRO_BATCHES: 5 does not divide local_batch_size "
         "192 (f.yaml:1:13): use 2, 3, 4, 6, 8 or 12"},
        {"batch_size: {micro_batch_size: 2, num_micro_batches: 2}",
         "f.yaml:1:54: batch_size.num_micro_batches: 2 is not local_batch_size 8 / "
         "micro_batch_size 2 (f.yaml:1:32): use 4, or leave one of them out"},
        {"TENSOR_SHAPE: (1, 1024, 1600)",
         "f.yaml:1:15: TENSOR_SHAPE: it is not (micro_batch_size, "
         "max_seq_len, hidden_size): use [8, 1024, 1024], or leave it out"},
        {"dataset: {eos_token_id: 50304}",
         "f.yaml:1:25: dataset.eos_token_id: 50304 is not below vocab_size 50304: use at "
         "most 50303"},
        {"dataset: {split: [0, 1, 1]}",
         "f.yaml:1:18: dataset.split: the training part, the first, has weight 0"},
        {"eval_freq: 5\ndataset: {split: [1, 0, 1]}",
         "f.yaml:2:18: dataset.split: the validation part, the second, has weight 0, but "
         "eval_freq is 5 (f.yaml:1:12): give it a weight, or set eval_freq to 0"},
    };
    assert_all_refused(cases, LEN(cases));
}

static void test_yaml__that_is_broken_or_too_clever_is_refused(void **state)
{
    (void)state;
    static const struct bad cases[] = {
        {"seed: &a 1", "f.yaml:1:7: anchors (&name) are not used here: remove it"},
        {"seed: 1\nModel: &m {}", "f.yaml:2:8: anchors (&name)"},
        {"seed: *a", "f.yaml:1:7: aliases (*name) are not used here: write the value"},
        {"seed: !!int 1", "f.yaml:1:7: tags (!name) are not used here: remove it"},
        {"--- !x\nseed: 1", "f.yaml:1:5: tags (!name)"},
        {"seed: 1\n---\nseed: 2\n", "f.yaml:2:1: a second YAML document begins"},
        {"hello", "f.yaml:1:1: a configuration is made of 'key: value' lines"},
        {"- seed: 1", "f.yaml:1:1: a configuration is made of 'key: value' lines"},
        {"? [seed]\n: 1\n", "f.yaml:1:3: a key must be a plain word"},
        {"'': 1", "f.yaml:1:1: a key is missing before the colon"},
        {": 1",
         "f.yaml:1:1: not valid YAML (while parsing a block mapping that begins at "
         "1:1, did not find expected key)"},
        {"seed: [1",
         "f.yaml:2:1: not valid YAML (while parsing a flow sequence that begins "
         "at 1:7, did not find expected ',' or ']')"},
        {"seed: 'a",
         "f.yaml:1:7: not valid YAML (while scanning a quoted scalar that begins "
         "at 1:7, found unexpected end of stream)"},
        {"seed: 1\nmax_steps: \"2\neval_freq: 1\n", "f.yaml:2:12: not valid YAML"},
        {"seed: a: b",
         "f.yaml:1:8: not valid YAML (mapping values are not allowed in this "
         "context): check indentation, brackets and quotes"},
        {"\tseed: 1", "f.yaml:1:1: not valid YAML (while scanning for the next token"},
        {"Model:\n  num_layers: 1\n hidden_size: 1\n", "f.yaml:3:2: not valid YAML"},
        {"seed: @1", "f.yaml:1:7: not valid YAML (while scanning for the next token"},
        {"seed: 1\nmax_steps 2\n", "f.yaml:2:1: not valid YAML"},
        {"seed: |\n  1\n", "f.yaml:1:7: a value stands on one line"},
        {"seed: a\n  b\n", "f.yaml:1:7: a value stands on one line"},
        {"seed: 'a\n b'\n", "f.yaml:1:7: a value stands on one line: write this one "
                            "without line breaks, and close its quote"},
        {"seed: \"a\r\n\r\n b\"", "f.yaml:1:7: a value stands on one line: "},
        {"save_load:\n  output_dir: |\n    a\n",
         "f.yaml:2:15: a value stands on one line"},
        {"save_load:\n  output_dir: >-\n    a\n",
         "f.yaml:2:15: a value stands on one line"},
        {"dataset: {input_dir: [a, b\n  c]}", "f.yaml:1:26: a value stands on one line"},
        {"# \xC3\xA9\n'''''': 1", "f.yaml:2:1: '''' is not a known key"},
    };
    assert_all_refused(cases, LEN(cases));
}

static void test_bytes__that_are_no_text_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *sentence;
    } cases[] = {
        {"seed: 1\n# \xE9t\xE9\n", 14, "f.yaml:2:3: byte 0xe9 is not UTF-8"},
        {"# \xC0\xAF", 4, "f.yaml:1:3: byte 0xc0 is not UTF-8"},
        {"# \xED\xA0\x80", 5, "f.yaml:1:3: byte 0xed is not UTF-8"},
        {"# \xF4\x90\x80\x80", 6, "f.yaml:1:3: byte 0xf4 is not UTF-8"},
        {"# \xC3\xA9 \xE2\x82", 7, "f.yaml:1:5: byte 0xe2 is not UTF-8"},
        {"\xEF\xBB\xBFseed: 1", 10, "f.yaml:1:1: the file begins with a byte order mark"},
        {"\xFF\xFEs\0", 4, "f.yaml:1:1: the file is UTF-16: save it as UTF-8"},
        {"\xFE\xFF\0s", 4, "f.yaml:1:1: the file is UTF-16"},
        {"seed: 1\0", 8, "f.yaml:1:8: control character 0x00: remove it"},
        {"seed: 1\n\x1b[0m", 12, "f.yaml:2:1: control character 0x1b: remove it"},
        {"# \xC2\x85", 4, "f.yaml:1:3: control character 0x85: remove it"},
        {"# \xE2\x80\xA8", 5, "f.yaml:1:3: control character 0x2028: remove it"},
    };
    for (size_t i = 0; i < LEN(cases); i++)
        assert_refused(cases[i].bytes, cases[i].n, NULL, cases[i].sentence);
}

/* `n` copies of `unit`. */
static char *repeat(const char *unit, size_t n)
{
    size_t length = strlen(unit);
    char *text = malloc(n * length + 1);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        memcpy(text + i * length, unit, length);
    text[n * length] = 0;
    return text;
}

static void test_nesting__beyond_32_is_refused_at_any_depth(void **state)
{
    (void)state;
    static const struct {
        const char *unit;
        size_t n;
        const char *sentence;
    } cases[] = {
        {"{a: ", 33, "f.yaml:1:129: nested deeper than 32"},
        {"{a: ", 10000, "f.yaml:1:129: nested deeper than 32"},
        {"[", 10000, "f.yaml:1:1: a configuration is made of 'key: value' lines"},
        {"[", CONFIG_MAX_BYTES, "f.yaml:1:1: a configuration is made of"},
        {"- ", 10000, "f.yaml:1:1: a configuration is made of 'key: value' lines"},
        {"? ", CONFIG_MAX_BYTES / 2, "f.yaml:1:3: a key must be a plain word"},
    };
    for (size_t i = 0; i < LEN(cases); i++) {
        char *text = repeat(cases[i].unit, cases[i].n);
        assert_refused(text, strlen(text), NULL, cases[i].sentence);
        free(text);
    }
}

static void test_size__is_limited(void **state)
{
    (void)state;
    char *text = repeat("#", CONFIG_MAX_BYTES + 1);
    struct config cfg;
    struct error err;
    assert_ok(config_load_text(&cfg, "f", text, CONFIG_MAX_BYTES, NULL, 0, 1, &err), err);
    assert_refused(text, CONFIG_MAX_BYTES + 1, NULL,
                   "f.yaml: 1048577 bytes are too many");
    memset(text, 'x', CONFIG_MAX_BYTES);
    memcpy(text + 1000, ": 1", 3);
    assert_refused(text, 1003, NULL, "f.yaml:1:1: this key is too long for any key");
    memset(text + 1000, 'x', 3);
    memcpy(text + 2000, ": 1", 3);
    assert_refused(text, 2003, NULL, "f.yaml:1:1: a configuration is made of");
    memcpy(text, "save_load: {output_dir: ", 24);
    text[1999] = '}';
    assert_refused(text, 2000, NULL,
                   "f.yaml:1:25: save_load.output_dir: 1975 bytes are too long: use at "
                   "most 1023");
    memcpy(text, "seed: ", 6);
    memset(text + 6, '1', 1994);
    assert_refused(text, 2000, NULL, "f.yaml:1:7: seed: '1111");
    free(text);
}

static void test_options__that_are_wrong_name_themselves(void **state)
{
    (void)state;
    static const struct bad cases[] = {
        {"max_steps", "-o max_steps: write key=value"},
        {"=3", "-o =3: write key=value"},
        {"max_stpes=3", "-o max_stpes=3: 'max_stpes' is not a known key: did you mean "
                        "'max_steps'?"},
        {"name=Adam", "-o name=Adam: 'name' is not a known key: did you mean "
                      "'Optimizer.name' or 'Optimizer.lr.name'?"},
        {"Model=3", "-o Model=3: 'Model' is a section: name one of its keys"},
        {"max_steps=10x", "-o max_steps=10x: max_steps: '10x' is not an integer"},
        {"device=xpu",
         "-o device=xpu: device: xpu is not yet in this version: use cpu|gpu|emulated"},
        {"hidden_size=100",
         "f.yaml:1:30: Model.num_attention_heads: 16 does not divide "
         "hidden_size 100 (-o hidden_size=100): use 4, 5, 10, 20, 25 or 50"},
        {"output_dir=\xE9", "-o:1:12: byte 0xe9 is not UTF-8"},
    };
    const char *text = "Model: {num_attention_heads: 16}";
    for (size_t i = 0; i < LEN(cases); i++)
        assert_refused(text, strlen(text), cases[i].text, cases[i].sentence);
}

/* A file name of any length leaves room for the message. */
static void test_names__that_are_long_keep_their_end(void **state)
{
    (void)state;
    char *name = repeat("directory/", 400);
    struct config cfg;
    struct error err;
    assert_int_equal(config_load_text(&cfg, name, "sed: 1", 6, NULL, 0, 1, &err), -1);
    assert_non_null(strstr(err.text, "directory/:1:1: 'sed' is not a known key: did you "
                                     "mean 'seed'?"));
    assert_int_equal(strncmp(err.text, "...", 3), 0);
    free(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys__that_are_unknown_get_a_suggestion),
        cmocka_unit_test(test_keys__that_come_twice_name_the_first_place),
        cmocka_unit_test(test_values__of_the_wrong_type_are_refused),
        cmocka_unit_test(test_numbers__of_other_languages_are_refused),
        cmocka_unit_test(test_numbers__out_of_range_name_the_range),
        cmocka_unit_test(test_values__of_later_versions_name_what_works_now),
        cmocka_unit_test(test_rules__between_keys_name_both_places),
        cmocka_unit_test(test_yaml__that_is_broken_or_too_clever_is_refused),
        cmocka_unit_test(test_bytes__that_are_no_text_are_refused),
        cmocka_unit_test(test_nesting__beyond_32_is_refused_at_any_depth),
        cmocka_unit_test(test_size__is_limited),
        cmocka_unit_test(test_options__that_are_wrong_name_themselves),
        cmocka_unit_test(test_names__that_are_long_keep_their_end),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
