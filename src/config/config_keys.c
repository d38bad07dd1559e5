/*
 * The table. Rows of one section are together, in the order they are printed.
 *
 * Defaults are the values of PaddleFleetX's 345M file, except for learning rates and for
 * keys that need other hardware than a CPU. Upper limits are far above any model, and low
 * enough that products of two sizes fit into 64 bits and steps fit the 32-bit step of the
 * random counters.
 */
#include "config/config_keys.h"

#define KEY(path_, type_, member_)                                                       \
    .path = (path_), .type = (type_), .offset = offsetof(struct config, member_)
#define MAX_SIZE (1 << 24)   // a dimension of a tensor or of a batch
#define MAX_DEGREE (1 << 16) // an axis of the grid
#define MAX_COUNT 2147483647 // steps, epochs, token ids

#define BETWEEN(lo, hi)                                                                  \
    {                                                                                    \
        (lo), (hi), false, false                                                         \
    }
#define ABOVE_TO(lo, hi)                                                                 \
    {                                                                                    \
        (lo), (hi), true, false                                                          \
    }
#define FROM_BELOW(lo, hi)                                                               \
    {                                                                                    \
        (lo), (hi), false, true                                                          \
    }

#define DEVICE_WORD(word, id) {word, DEVICE_##id},
static const struct config_word device_words[] = {DEVICE_KINDS(DEVICE_WORD){NULL, 0}};
#define SET_WORD(word, id) {word, KERNEL_SET_##id},
static const struct config_word kernel_words[] = {KERNEL_SETS(SET_WORD){NULL, 0}};
static const struct config_word dtype_words[] = {
    {"float32", DTYPE_F32}, {"float16", DTYPE_F16}, {"bfloat16", DTYPE_BF16}, {NULL, 0}};
static const struct config_word recompute_words[] = {{"full", GRANULARITY_FULL},
                                                     {"only_attn", GRANULARITY_ONLY_ATTN},
                                                     {"full_attn", GRANULARITY_ONLY_ATTN},
                                                     {"core_attn", GRANULARITY_CORE_ATTN},
                                                     {NULL, 0}};
static const struct config_word schedule_words[] = {
    {"1F1B", SCHEDULE_1F1B}, {"F-then-B", SCHEDULE_F_THEN_B}, {NULL, 0}};
#define RULE_WORD(word, id, rule) {word, OPTIMIZER_##id},
#define ALIAS_WORD(word, id) {word, OPTIMIZER_##id},
static const struct config_word optimizer_words[] = {
    UPDATE_RULES(RULE_WORD, ALIAS_WORD){NULL, 0}};
// "consine" is how the original files spell it.
static const struct config_word decay_words[] = {
    {"cosine", DECAY_COSINE},
    {"consine", DECAY_COSINE},
    {"CosineAnnealingWithWarmupDecay", DECAY_COSINE},
    {NULL, 0}};
static const struct config_word decayed_words[] = {
    {"matrices", DECAYED_MATRICES}, {"all", DECAYED_ALL}, {NULL, 0}};
static const struct config_word activation_words[] = {
    {"gelu_tanh", MODEL_GELU_TANH}, {"gelu", MODEL_GELU}, {NULL, 0}};
static const struct config_word sample_mode_words[] = {
    {"packed", SAMPLES_PACKED}, {"padded", SAMPLES_PADDED}, {NULL, 0}};
static const struct config_word split_by_words[] = {
    {"contiguous", SPLIT_CONTIGUOUS}, {"document", SPLIT_BY_DOCUMENT}, {NULL, 0}};
static const struct config_word progress_words[] = {
    {"terminal", PROGRESS_ON_TERMINAL}, {"True", PROGRESS_ALWAYS},
    {"true", PROGRESS_ALWAYS},          {"False", PROGRESS_NEVER},
    {"false", PROGRESS_NEVER},          {NULL, 0}};
static const struct config_word tensor_mode_words[] = {{"1d", TENSOR_MODE_1D}, {NULL, 0}};

// clang-format off
const struct config_key config_keys[] = {
    {KEY("device", CONFIG_ENUM, device),
        .default_text = "cpu", .words = device_words,
        .works_now = "cpu|gpu|emulated",
        .meaning = "Where tensors lie and the arithmetic runs. `gpu`: one NVIDIA GPU for each "
                   "process. `emulated`: the program for GPUs on the processor, for tests: slow."},
    {KEY("max_steps", CONFIG_INT, max_steps),
        .default_text = "500000", .range = BETWEEN(0, MAX_COUNT), .empty = "0",
        .without = "500000, or 0 when num_train_epochs is given",
        .meaning = "Number of optimizer updates; the data repeats as often as they need. With "
                   "0 num_train_epochs decides."},
    {KEY("num_train_epochs", CONFIG_INT, num_train_epochs),
        .default_text = "1", .range = BETWEEN(1, MAX_COUNT),
        .meaning = "Passes over the training data; counts when max_steps is left out, empty or "
                   "0."},
    {KEY("seed", CONFIG_INT, seed),
        .default_text = "1024", .range = BETWEEN(0, 4294967295.0),
        .meaning = "Seed of initial weights, dropout and data order."},
    {KEY("logging_freq", CONFIG_INT, logging_freq),
        .default_text = "1", .range = BETWEEN(1, MAX_COUNT),
        .meaning = "Log a line every so many updates."},
    {KEY("eval_freq", CONFIG_INT, eval_freq),
        .default_text = "500", .range = BETWEEN(-1, MAX_COUNT),
        .meaning = "Evaluate every so many updates; 0 or -1 means never."},
    {KEY("eval_iters", CONFIG_INT, eval_iters),
        .default_text = "10", .range = BETWEEN(0, MAX_COUNT),
        .meaning = "Batches of one evaluation; with 0 there is none."},
    {KEY("test_interval", CONFIG_INT, test_interval),
        .default_text = "0", .range = BETWEEN(0, MAX_COUNT),
        .meaning = "Evaluate after every so many epochs, when dataset.split has a validation "
                   "part; 0 means never."},
    {KEY("eval_prompts", CONFIG_TEXTS, eval_prompts),
        .default_text = "",
        .meaning = "Texts that the model continues at every evaluation, one or a list of them: "
                   "what it writes is in metrics.jsonl. Needs the tokenizer of the data; empty "
                   "means none."},
    {KEY("eval_prompt_tokens", CONFIG_INT, eval_prompt_tokens),
        .default_text = "64", .range = BETWEEN(1, MAX_COUNT),
        .meaning = "How many tokens it writes after each of eval_prompts at most."},
    {KEY("display_progress", CONFIG_ENUM, display_progress),
        .default_text = "terminal", .words = progress_words,
        .meaning = "Show steps, epoch and time left: as a bar on a terminal and, with True, "
                   "elsewhere as a line for every tenth of a run of 20 steps or more."},
    {KEY("use_recompute", CONFIG_BOOL, use_recompute),
        .default_text = "False",
        .meaning = "Compute activations again in the backward pass instead of keeping them."},
    {KEY("recompute_granularity", CONFIG_ENUM, recompute_granularity),
        .default_text = "full", .words = recompute_words,
        .meaning = "What use_recompute recomputes: the whole layer, the QKV of its attention "
                   "(only_attn, also called full_attn), or softmax(QK)V (core_attn)."},
    {KEY("no_recompute_layers", CONFIG_NUMBERS, no_recompute_layers),
        .default_text = "", .range = BETWEEN(0, 65535),
        .meaning = "Layers, counted from 0, that keep everything although use_recompute is on; "
                   "empty means none."},
    {KEY("fused_linear", CONFIG_BOOL, fused_linear),
        .default_text = "False",
        .meaning = "Add biases, and apply GELU, to each panel of a matrix product as it is done. "
                   "Never changes a result; on this device it is no faster."},
    {KEY("tensor_fusion", CONFIG_BOOL, tensor_fusion),
        .default_text = "False",
        .meaning = "Reduce gradients in large fused buffers."},
    {KEY("num_threads", CONFIG_INT, num_threads),
        .default_text = "0", .range = BETWEEN(0, 4096),
        .meaning = "Threads of a process; 0 means all cores it may use. Never changes a "
                   "result."},
    {KEY("cpu_kernels", CONFIG_ENUM, cpu_kernels),
        .default_text = "auto", .words = kernel_words,
        .meaning = "Instructions that the kernels use; auto means the fastest that the processor "
                   "has. amx is for bfloat16, and means avx512 in other models. Never changes a "
                   "result."},
    {KEY("hang_timeout", CONFIG_FLOAT, hang_timeout),
        .default_text = "0", .range = BETWEEN(0, 1e6), .empty = "0",
        .meaning = "Seconds without any action of a rank after which a job of several processes "
                   "is ended, whatever the cause. With 0, or nothing after the colon: the "
                   "larger of 60 s and 10 steps, and a rank that still computes is only named."},
    {KEY("trace", CONFIG_TEXT, trace),
        .default_text = "",
        .meaning = "A file for a Chrome/Perfetto trace of all processes, written at the end of "
                   "the run; empty means none."},
    {KEY("tensorboard", CONFIG_BOOL, tensorboard),
        .default_text = "True",
        .meaning = "Write files for TensorBoard to output_dir/tensorboard."},
    {KEY("prometheus_file", CONFIG_TEXT, prometheus_file),
        .default_text = "",
        .meaning = "A file that is kept up to date for node_exporter's collector of text files, "
                   "which reads names that end in .prom; empty means none."},
    {KEY("on_event", CONFIG_TEXT, on_event),
        .default_text = "",
        .meaning = "A command for /bin/sh that is run when the run stalls, fails, diverges, "
                   "saves or ends; TREFOIL_EVENT and TREFOIL_EVENT_... tell it what happened. "
                   "Empty means none."},

    {KEY("Model.vocab_size", CONFIG_INT, model.vocab_size),
        .default_text = "50304", .range = BETWEEN(1, MAX_COUNT),
        .without = "that of the data's .meta.json, else 50304",
        .meaning = "Rows of the token embedding; every token id is below it."},
    {KEY("Model.hidden_size", CONFIG_INT, model.hidden_size),
        .default_text = "1024", .range = BETWEEN(1, MAX_SIZE),
        .meaning = "Width of the residual stream; a multiple of num_attention_heads."},
    {KEY("Model.num_layers", CONFIG_INT, model.num_layers),
        .default_text = "24", .range = BETWEEN(1, 65536),
        .meaning = "Number of transformer layers."},
    {KEY("Model.num_attention_heads", CONFIG_INT, model.num_attention_heads),
        .default_text = "16", .range = BETWEEN(1, MAX_SIZE),
        .meaning = "Attention heads of a layer; divides hidden_size."},
    {KEY("Model.ffn_hidden_size", CONFIG_INT, model.ffn_hidden_size),
        .range = BETWEEN(1, 4.0 * MAX_SIZE), .derived = "4 x hidden_size",
        .meaning = "Width of the feed-forward layer."},
    {KEY("Model.hidden_dropout_prob", CONFIG_FLOAT, model.hidden_dropout_prob),
        .default_text = "0.1", .range = FROM_BELOW(0, 1),
        .meaning = "Dropout of what each block adds to the residual stream."},
    {KEY("Model.embed_drop_rate", CONFIG_FLOAT, model.embed_drop_rate),
        .range = FROM_BELOW(0, 1), .derived = "hidden_dropout_prob",
        .meaning = "Dropout of the sum of token and position embeddings."},
    {KEY("Model.attention_probs_dropout_prob", CONFIG_FLOAT, model.attention_probs_dropout_prob),
        .default_text = "0.1", .range = FROM_BELOW(0, 1),
        .meaning = "Dropout of attention probabilities."},
    {KEY("Model.max_position_embeddings", CONFIG_INT, model.max_position_embeddings),
        .default_text = "1024", .range = BETWEEN(1, MAX_SIZE),
        .meaning = "Rows of the position embedding; at least max_seq_len."},
    {KEY("Model.type_vocab_size", CONFIG_INT, model.type_vocab_size),
        .default_text = "16", .range = BETWEEN(0, MAX_COUNT),
        .meaning = "Accepted because the original files have it; GPT has no token types, so no "
                   "value changes anything."},
    {KEY("Model.initializer_range", CONFIG_FLOAT, model.initializer_range),
        .default_text = "0.02", .range = BETWEEN(0, 100),
        .meaning = "Standard deviation of the initial weights."},
    {KEY("Model.norm_epsilon", CONFIG_FLOAT, model.norm_epsilon),
        .default_text = "1.0e-5", .range = BETWEEN(1e-12, 1), .former = "1.0e-5",
        .meaning = "Added to the variance in layer norms, below the root."},
    {KEY("Model.activation", CONFIG_ENUM, model.activation),
        .default_text = "gelu_tanh", .tutorial_default = "gelu", .former = "gelu_tanh",
        .words = activation_words,
        .meaning = "The function between the two matrices of a feed-forward layer: GELU, exact "
                   "(gelu) or by tanh (gelu_tanh), as in GPT-2 and PaddleFleetX."},

    {KEY("Optimizer.name", CONFIG_ENUM, optimizer.name),
        .default_text = "AdamW", .words = optimizer_words,
        .meaning = "The optimizer; AdamW decays weights apart from the gradient, Adam through "
                   "it."},
    {KEY("Optimizer.weight_decay", CONFIG_FLOAT, optimizer.weight_decay),
        .default_text = "0.01", .range = BETWEEN(0, 1000),
        .meaning = "Weight decay, of the parameters that `Optimizer.decay` selects."},
    {KEY("Optimizer.decay", CONFIG_ENUM, optimizer.decay),
        .default_text = "matrices", .tutorial_default = "all", .former = "matrices",
        .words = decayed_words,
        .meaning = "The parameters that weight_decay applies to: matrices and embeddings "
                   "(matrices), or biases and layer norms too (all), as "
                   "`torch.optim.Adam(model.parameters())` does."},
    {KEY("Optimizer.adam_beta1", CONFIG_FLOAT, optimizer.adam_beta1),
        .default_text = "0.9", .range = FROM_BELOW(0, 1),
        .meaning = "Decay rate of the first moment."},
    {KEY("Optimizer.adam_beta2", CONFIG_FLOAT, optimizer.adam_beta2),
        .default_text = "0.999", .range = FROM_BELOW(0, 1),
        .meaning = "Decay rate of the second moment."},
    {KEY("Optimizer.adam_epsilon", CONFIG_FLOAT, optimizer.adam_epsilon),
        .default_text = "1.0e-8", .range = ABOVE_TO(0, 1),
        .meaning = "Added to the root of the second moment."},
    {KEY("Optimizer.grad_clip", CONFIG_FLOAT, optimizer.grad_clip),
        .default_text = "1.0", .range = BETWEEN(-1e30, 1e30),
        .meaning = "Largest global gradient norm; 0 or less switches clipping off."},
    {KEY("Optimizer.lr.name", CONFIG_ENUM, optimizer.lr.name),
        .default_text = "cosine", .words = decay_words,
        .meaning = "Shape of the decay after the warm-up."},
    {KEY("Optimizer.lr.decay_steps", CONFIG_INT, optimizer.lr.decay_steps),
        .range = BETWEEN(0, MAX_COUNT), .derived = "max_steps", .former = "360000",
        .meaning = "Update at which the learning rate reaches min_lr; 0 means max_steps, also "
                   "where num_train_epochs decides it."},
    {KEY("Optimizer.lr.warmup_rate", CONFIG_FLOAT, optimizer.lr.warmup_rate),
        .default_text = "0.1", .range = FROM_BELOW(0, 1), .former = "0.01",
        .meaning = "Part of decay_steps in which the learning rate rises from 0 to max_lr."},
    {KEY("Optimizer.lr.max_lr", CONFIG_FLOAT, optimizer.lr.max_lr),
        .range = BETWEEN(0, 1000), .derived = "0.4 / hidden_size, but at most 0.003",
        .former = "1.0e-5",
        .meaning = "Learning rate at the end of the warm-up."},
    {KEY("Optimizer.lr.min_lr", CONFIG_FLOAT, optimizer.lr.min_lr),
        .range = BETWEEN(0, 1000), .derived = "max_lr / 10", .former = "5.0e-5",
        .meaning = "Learning rate from decay_steps on; the original files have it above max_lr, "
                   "which is warned about."},

    {KEY("Distributed.dp_degree", CONFIG_INT, distributed.dp_degree),
        .range = BETWEEN(1, MAX_DEGREE), .derived = "processes / (mp_degree x pp_degree x sharding_degree)",
        .meaning = "Data parallelism: copies of the model, each with its part of a batch."},
    {KEY("Distributed.mp_degree", CONFIG_INT, distributed.mp_degree),
        .default_text = "1", .range = BETWEEN(1, MAX_DEGREE),
        .meaning = "Tensor parallelism: processes that share each layer."},
    {KEY("Distributed.pp_degree", CONFIG_INT, distributed.pp_degree),
        .default_text = "1", .range = BETWEEN(1, MAX_DEGREE),
        .meaning = "Pipeline parallelism: stages, each with some of the layers."},
    {KEY("Distributed.virtual_pp_degree", CONFIG_INT, distributed.virtual_pp_degree),
        .default_text = "1", .range = BETWEEN(1, 64),
        .meaning = "Chunks of layers on one pipeline stage (interleaved schedule)."},
    {KEY("Distributed.sequence_parallel", CONFIG_BOOL, distributed.sequence_parallel),
        .default_text = "False",
        .meaning = "Split activations between blocks over the tensor-parallel processes."},
    {KEY("Distributed.pp_schedule", CONFIG_ENUM, distributed.pp_schedule),
        .default_text = "1F1B", .words = schedule_words,
        .meaning = "Order of forward and backward passes in a pipeline."},
    {KEY("Distributed.pp_balance", CONFIG_BOOL, distributed.pp_balance),
        .default_text = "False",
        .meaning = "Give the last pipeline stage fewer layers, because its head costs as much as "
                   "some; False deals layers evenly. Never changes a result."},
    {KEY("Distributed.tensor_mode", CONFIG_ENUM, distributed.tensor_mode),
        .default_text = "1d", .words = tensor_mode_words,
        .meaning = "How tensor parallelism splits a layer."},
    {KEY("Distributed.tensor_shape", CONFIG_SHAPE, distributed.tensor_shape),
        .range = BETWEEN(1, MAX_SIZE), .derived = "[micro_batch_size, max_seq_len, hidden_size]",
        .meaning = "Shape of what pipeline stages exchange; when given it is only checked."},
    {KEY("Distributed.sharding.sharding_degree", CONFIG_INT, distributed.sharding.sharding_degree),
        .default_text = "1", .range = BETWEEN(1, MAX_DEGREE),
        .meaning = "ZeRO: processes that share the optimizer state (and more, by stage) and "
                   "split the batch."},
    {KEY("Distributed.sharding.sharding_stage", CONFIG_INT, distributed.sharding.sharding_stage),
        .default_text = "1", .sectioned_default = "2", .range = BETWEEN(1, 3),
        .meaning = "What is shared: 1 optimizer state, 2 also gradients, 3 also parameters."},
    {KEY("Distributed.sharding.sharding_offload", CONFIG_BOOL, distributed.sharding.sharding_offload),
        .default_text = "False",
        .meaning = "Keep the optimizer state and master weights, and in stage 3 the parameters, in "
                   "files in save_load.offload_dir that a step streams through. On a GPU: in the "
                   "machine's memory, or in files where offload_dir is set; the processor updates "
                   "them."},

    {KEY("batch_size.global_batch_size", CONFIG_INT, batch_size.global_batch_size),
        .range = BETWEEN(1, MAX_SIZE), .derived = "local_batch_size x data ranks (dp_degree x sharding_degree) x gradient_accumulation",
        .meaning = "Samples of one update, over all processes."},
    {KEY("batch_size.local_batch_size", CONFIG_INT, batch_size.local_batch_size),
        .range = BETWEEN(1, MAX_SIZE), .derived = "global_batch_size / data ranks / gradient_accumulation, or 8 when that is left out too",
        .meaning = "Samples of one batch on one data rank."},
    {KEY("batch_size.micro_batch_size", CONFIG_INT, batch_size.micro_batch_size),
        .range = BETWEEN(1, MAX_SIZE), .derived = "local_batch_size / num_micro_batches when that is given, else local_batch_size",
        .meaning = "Samples of one forward pass; divides local_batch_size."},
    {KEY("batch_size.num_micro_batches", CONFIG_INT, batch_size.num_micro_batches),
        .range = BETWEEN(1, MAX_SIZE), .derived = "local_batch_size / micro_batch_size",
        .meaning = "Forward passes of one batch on one data rank."},
    {KEY("batch_size.gradient_accumulation", CONFIG_INT, batch_size.gradient_accumulation),
        .default_text = "1", .range = BETWEEN(1, MAX_DEGREE), .former = "1",
        .meaning = "Batches of local_batch_size whose gradients are added up for one update; the "
                   "update has num_micro_batches of each."},

    {KEY("mix_precision.use_pure_fp16", CONFIG_BOOL, mix_precision.use_pure_fp16),
        .default_text = "False",
        .meaning = "Store parameters and activations in float16, with float32 master weights."},
    {KEY("mix_precision.scale_loss", CONFIG_FLOAT, mix_precision.scale_loss),
        .default_text = "32768.0", .range = ABOVE_TO(0, 1e30),
        .meaning = "First loss scale of float16 training, at least 1; without float16 it has no "
                   "part."},
    {KEY("mix_precision.dynamic_loss_scale", CONFIG_BOOL, mix_precision.dynamic_loss_scale),
        .default_text = "True",
        .meaning = "Double the loss scale after 1000 steps without overflow and halve it after 2 "
                   "steps in a row with one; False keeps scale_loss."},
    {KEY("mix_precision.fp32_grads", CONFIG_TRUTH, mix_precision.fp32_grads),
        .default_text = "",
        .meaning = "Keep and add up gradients in float32 when parameters have 16 bits. Empty "
                   "means True for bfloat16 with several micro-batches in an update, False otherwise."},
    {KEY("mix_precision.dtype", CONFIG_ENUM, mix_precision.dtype),
        .default_text = "float32", .words = dtype_words,
        .meaning = "Storage type of parameters and activations."},
    {KEY("mix_precision.allow_tf32", CONFIG_BOOL, mix_precision.allow_tf32),
        .default_text = "False",
        .meaning = "Let a GPU round the operands of float32 products to TF32: faster, with three "
                   "digits. Without a part in other types and on the processor."},

    {KEY("dataset.input_dir", CONFIG_PATHS, dataset.input_dir),
        .default_text = "./data",
        .meaning = "A directory, meaning all datasets in it, or the prefix of one dataset, or a file "
                   "of JSON lines (.jsonl, .ndjson, .json), which is prepared once; or a list of "
                   "those, whose documents follow each other unless weights are given."},
    {KEY("dataset.weights", CONFIG_NUMBERS, dataset.weights),
        .default_text = "", .range = ABOVE_TO(0, 1e15),
        .meaning = "One weight for each element of input_dir: samples are drawn from them in "
                   "that proportion, each with a split, epochs and a shuffle of its own. Empty "
                   "means one after the other."},
    {KEY("dataset.mode", CONFIG_ENUM, dataset.mode),
        .default_text = "packed", .words = sample_mode_words,
        .meaning = "packed cuts the documents, one after the other, into samples; padded makes "
                   "each document one sample, cut or filled up to max_seq_len, with loss on its "
                   "own tokens only."},
    {KEY("dataset.drop_last", CONFIG_BOOL, dataset.drop_last),
        .default_text = "False", .tutorial_default = "True", .former = "False",
        .meaning = "Every epoch has the same number of batches: the rest of its shuffled order, less "
                   "than one global batch, is dropped. False: batches continue across epochs."},
    {KEY("dataset.pad_loss", CONFIG_BOOL, dataset.pad_loss),
        .default_text = "False", .tutorial_default = "True", .former = "False",
        .meaning = "In padded mode, padding counts in the loss: the label of a position is the next "
                   "token of its sample, also where that is padding. A sample is max_seq_len tokens, "
                   "or as many as the longest document has. Padding is visible to no position, "
                   "except in a sample of padding alone."},
    {KEY("dataset.reset_attention_mask", CONFIG_BOOL, dataset.reset_attention_mask),
        .default_text = "False",
        .meaning = "Attention and positions do not cross from one document of a packed sample to "
                   "the next; in padded samples they never do."},
    {KEY("dataset.split", CONFIG_WEIGHTS, dataset.split),
        .default_text = "949,50,1", .range = BETWEEN(0, 1e15),
        .meaning = "Weights of the training, validation and test parts, as 'a,b,c', 'a/b/c' or "
                   "[a, b, c]."},
    {KEY("dataset.split_by", CONFIG_ENUM, dataset.split_by),
        .default_text = "contiguous", .words = split_by_words,
        .meaning = "contiguous gives the first documents to training, the next to validation and "
                   "the last to test; document decides by a hash of each document's tokens, "
                   "whatever the order of documents and files."},
    {KEY("dataset.max_seq_len", CONFIG_INT, dataset.max_seq_len),
        .default_text = "1024", .range = BETWEEN(1, MAX_SIZE),
        .meaning = "Tokens of a sample; at most max_position_embeddings."},
    {KEY("dataset.eod_mask_loss", CONFIG_BOOL, dataset.eod_mask_loss),
        .default_text = "False", .former = "False",
        .without = "False, but True for data in PaddleFleetX's form without .meta.json",
        .meaning = "Leave positions whose input token is eos_token_id out of the loss."},
    {KEY("dataset.eos_token_id", CONFIG_INT, dataset.eos_token_id),
        .default_text = "-1", .range = BETWEEN(-1, MAX_COUNT),
        .without = "that of the data's .meta.json, 50256 for data in PaddleFleetX's form without it, else -1",
        .meaning = "Token that ends a document; -1 means unknown."},
    {KEY("dataset.cache_dir", CONFIG_TEXT, dataset.cache_dir),
        .default_text = "",
        .meaning = "Where sample indexes, and datasets made from JSON lines, are kept; empty means "
                   "beside the data."},
    {KEY("dataset.tokenizer", CONFIG_TEXT, dataset.tokenizer),
        .default_text = "",
        .meaning = "Directory or file of the tokenizer for files of JSON lines in input_dir. Empty "
                   "means the directory gpt2 beside the file, or the tokenizer's files there."},

    {KEY("save_load.save_steps", CONFIG_INT, save_load.save_steps),
        .default_text = "1000", .range = BETWEEN(-1, MAX_COUNT),
        .meaning = "Save a checkpoint every so many updates, and at the end; 0 means only at "
                   "the end, -1 never."},
    {KEY("save_load.output_dir", CONFIG_TEXT, save_load.output_dir),
        .default_text = "./output",
        .meaning = "Where checkpoints and metrics are written."},
    {KEY("save_load.ckpt_dir", CONFIG_TEXT, save_load.ckpt_dir),
        .default_text = "",
        .meaning = "A checkpoint to go on from, or a directory of them (the one saved last; if "
                   "it is damaged, lower steps of its run); empty means from scratch."},
    {KEY("save_load.offload_dir", CONFIG_TEXT, save_load.offload_dir),
        .default_text = "",
        .meaning = "Where sharding_offload keeps its files, which have no names and are gone when "
                   "the run ends; a fast local disk. Empty means output_dir; on a GPU, no files."},
    {KEY("save_load.keep_last", CONFIG_INT, save_load.keep_last),
        .default_text = "3", .range = BETWEEN(0, MAX_COUNT),
        .meaning = "A run's checkpoints kept in output_dir, its older ones are removed; 0 "
                   "keeps all."},
    {KEY("save_load.keep_every", CONFIG_INT, save_load.keep_every),
        .default_text = "0", .range = BETWEEN(0, MAX_COUNT),
        .meaning = "Checkpoints of steps that are multiples of this are kept whatever keep_last "
                   "says; 0 means none."},
    {KEY("save_load.async_save", CONFIG_BOOL, save_load.async_save),
        .default_text = "True",
        .meaning = "Copy the state and write it while training goes on; False, or too little "
                   "memory for the copy, means training waits for the disk."},
    {KEY("save_load.max_file_bytes", CONFIG_INT, save_load.max_file_bytes),
        .default_text = "5000000000", .range = BETWEEN(1, 1e15),
        .meaning = "A checkpoint's model and optimizer files are cut at this size, between "
                   "tensors, with an index of the parts."},
};
// clang-format on

const int config_n_keys = (int)ARRAY_LEN(config_keys);
