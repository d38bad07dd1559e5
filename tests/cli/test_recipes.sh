#!/bin/bash
# The recipes of configs/ and the files they come from: memory as their comments say, the
# published learning rates, and the forms of PaddleFleetX and Colossal-AI, small, trained.
configs=$(realpath "$(dirname "$0")/../../configs")
export LSAN_OPTIONS=detect_leaks=0 # what MPI libraries keep is not ours to free
. "$(dirname "$0")/lib.sh"
make_corpus 60

# what a comment says of memory is what the dry run says of the fullest process
for file in "$configs"/gpt*.yaml; do
    "$trefoil" pretrain -c "$file" --dry_run >dry.out 2>dry.log ||
        fail "$file: $(cat dry.log)"
    said=$(grep -om1 'optimizer state take [0-9.]* GB' "$file" | grep -o '[0-9.]* GB')
    found=$(awk 'NR > 1 { sub(/^rank /, ""); x = $2 + $3 + $4; if (x > most) most = x }
        END { printf "%.1f GB", most / 1000 }' dry.out)
    [ "$said" = "$found" ] || fail "$file says '$said', its dry run '$found'"
done

# "rate RECIPE -o ...": the rates of its first three steps, at a small size
small=(-o dataset.input_dir=data -o max_steps=3 -o eval_freq=0 -o save_load.save_steps=-1
    -o save_load.output_dir=out -o dataset.max_seq_len=24 -o Model.vocab_size=257
    -o Model.hidden_size=32 -o Model.num_attention_heads=4 -o Model.ffn_hidden_size=
    -o Model.max_position_embeddings=32 -o num_threads=1)
rates() {
    local recipe=$1
    shift
    "$trefoil" pretrain -c "$configs/$recipe" "${small[@]}" -o Model.num_layers=4 "$@" \
        2>run.log || fail "$recipe: $(tail -3 run.log)"
    grep -o 'learning rate: .*' run.log | cut -d' ' -f3 | tr '\n' ' '
}
july='5.55556e-09 8.33333e-09 1.11111e-08 '
one=(-o Distributed.sharding.sharding_degree=1 -o global_batch_size=2 -o local_batch_size=2
    -o micro_batch_size=1)
[ "$(rates gpt_345m_single.yaml "${one[@]}")" = "$july" ] || fail "345m: $(tail -4 run.log)"
grep -q 'WARNING.*gpt_345m_single.yaml:[0-9]*:[0-9]*: max_lr 1e-05 is below min_lr 5e-05' \
    run.log || fail "swapped rates without a warning"
[ "$(rates gpt_6.7B_sharding16.yaml "${one[@]}")" = '6.25000e-09 9.37500e-09 1.25000e-08 ' ] ||
    fail "6.7B: $(tail -4 run.log)"
grep -q 'Init done, global batch size = 2$' run.log || fail "no Init done"
for recipe in gpt_1.3B_dp8 gpt_1.3B_single gpt_175B_mp8_pp16 gpt_toy_dp2_mp2_pp2; do
    "$trefoil" config -c "$configs/$recipe.yaml" 2>/dev/null >config.out
    for value in 'decay_steps: 360000' 'warmup_rate: 0.01' 'max_lr: 1e-05' 'min_lr: 5e-05'; do
        grep -q " $value " config.out || fail "$recipe lacks $value"
    done
done

# PaddleFleetX's form since August 2022, with a base, in another directory
mkdir -p august/base
cat >august/base/gpt_base.yaml <<YAML
Global:
  seed: 7
  local_batch_size: 1
  micro_batch_size: 1
Engine:
  max_steps: 500000
  num_train_epochs: 1
  eval_freq: 2
  eval_iters: 2
  mix_precision: {use_pure_fp16: True, custom_black_list: [reduce_sum]}
  save_load: {save_steps: 1000, output_dir: ./out}
Model: {module: GPTModule, name: GPT, fused_linear: False}
Data:
  Train:
    dataset: {name: GPTDataset, input_dir: ./data, split: [90, 8, 2], max_seq_len: 24}
    sampler: {name: GPTBatchSampler, shuffle: False, drop_last: True}
  Eval:
    dataset: {name: GPTDataset, input_dir: ./data, split: [90, 8, 2], max_seq_len: 24}
Optimizer:
  name: FusedAdamW
  beta1: 0.9
  lr: {name: CosineAnnealingWithWarmupDecay, decay_steps: 360000,
    warmup_rate: 0.01, max_lr: 5.0e-5, min_lr: 1.0e-5}
  grad_clip: {name: ClipGradByGlobalNorm, clip_norm: 1.0}
Profiler: {enable: False, scheduler: [1, 5]}
YAML
cat >august/gpt_small.yaml <<YAML
_base_: ./base/gpt_base.yaml
Global: {global_batch_size: , local_batch_size: 2}
Model:
  vocab_size: 257
  hidden_size: 32
  num_layers: 2
  num_attention_heads: 4
  ffn_hidden_size:
  max_position_embeddings: 32
  use_recompute: True
Distributed: {dp_degree: , mp_degree: 1, pp_degree: 1, sharding: {sharding_degree: 2}}
YAML
"$trefoil" pretrain -c august/gpt_small.yaml -o Engine.max_steps=3 -o num_threads=1 2>run.log ||
    fail "august: $(tail -3 run.log)"
[ "$(grep -o 'learning rate: .*' run.log | head -1)" = 'learning rate: 2.77778e-08' ] ||
    fail "august: $(grep -m1 'global step' run.log)"
[ "$(grep -c '\] - global step [123], epoch: 0, batch' run.log)" -eq 3 ] || fail "august: lines"
[ "$(grep -c 'not used here' run.log)" -eq 1 ] || fail "august: $(grep 'not used' run.log)"
grep -q 'not used here.*: Profiler, Engine.mix_precision.custom_black_list' run.log ||
    fail "august: $(grep 'not used' run.log)"
"$trefoil" config -c august/gpt_small.yaml 2>/dev/null >config.out
grep -q ' sharding_stage: 2 ' config.out || fail "august: stage"
expect 2 'august/base/gpt_base.yaml:6:14: Engine.max_steps: .x. is not an integer' \
    bash -c "sed -i 's/500000/x/' august/base/gpt_base.yaml
        exec '$trefoil' pretrain -c august/gpt_small.yaml"

# Colossal-AI's settings: epochs decide, and each has its lines
cat >colossal.yaml <<YAML
NUM_EPOCHS: 3
SEQ_LEN: 24
BATCH_SIZE: 48
NUM_CHUNKS: None
TENSOR_SHAPE: (1, 24, 32)
NUM_MICRO_BATCHES: 48
parallel: {pipeline: 2, tensor: {mode: '1d', size: 2}}
fp16: {mode: AMP_TYPE.NAIVE}
test_interval: 2
display_progress: True
eval_iters: 1
num_threads: 1
use_recompute: True
dataset: {input_dir: data, split: '90,8,2'}
Model: {vocab_size: 257, hidden_size: 32, num_layers: 2, num_attention_heads: 4,
  max_position_embeddings: 32}
Optimizer: {name: Adam, lr: {max_lr: 0.00015, min_lr: 0.00015, warmup_rate: 0.0}}
save_load: {save_steps: -1, output_dir: out}
YAML
"$trefoil" pretrain -c colossal.yaml 2>run.log || fail "colossal: $(tail -3 run.log)"
grep -q ' - Init done, global batch size = 48$' run.log || fail "colossal: Init done"
grep -q ' - num_train_epochs 3: 30 steps$' run.log || fail "colossal: $(grep epochs run.log)"
[ "$(grep -oE 'Epoch [0-9] / T[a-z]*\]: Loss' run.log | sed 's/\]: .*//' |
    tr '\n' ' ')" = 'Epoch 0 / Train Epoch 1 / Train Epoch 1 / Test Epoch 2 / Train ' ] ||
    fail "colossal: $(grep '\[Epoch' run.log)"
[ "$(grep -cE ' - \[Epoch [012] / Train\]: Loss = [0-9.]+ \| Throughput = [0-9.e+]+$' run.log)" \
    -eq 3 ] || fail "colossal: $(grep '\[Epoch' run.log)"
[ "$(grep -cE ' - progress: [1-9]0%, step [0-9]+/30, epoch [012], 0:[0-9:]+ left$' run.log)" \
    -eq 9 ] || fail "colossal: $(grep progress run.log)"
grep -q '^{"step": 30,' out/metrics.jsonl || fail "colossal: the last step"

# on a terminal the progress is a bar of steps, epoch and time left, and no line of the log
on_terminal=$(dirname "$trefoil")/tests/on_terminal
bar='\[Epoch [012] / Train\] +[0-9]+%\|#+ *\| [0-9]+/30, 0:[0-9:]+ left, loss [0-9.]+'
for layout in 1 2; do
    TERM=xterm "$on_terminal" 120 "" "$trefoil" pretrain -c colossal.yaml \
        -o parallel.pipeline=$layout -o parallel.tensor.size=1 -o eval_freq=0 |
        tr '\r' '\n' >shown.txt
    grep -qE "$bar" shown.txt || fail "$layout: no bar: $(cat shown.txt)"
    grep -q 'progress:' shown.txt && fail "$layout: progress as lines on a terminal"
    grep -q 'Init done, global batch size = 48' shown.txt || fail "$layout: $(cat shown.txt)"
done
grep -q 'left, loss' out/log/workerlog.0 && fail "the bar is in the log"
[ -e out/log/progress ] && fail "left behind: out/log/progress"
"$trefoil" pretrain -c colossal.yaml -o parallel.pipeline=1 -o parallel.tensor.size=1 \
    -o display_progress=False 2>run.log || fail "colossal: $(tail -3 run.log)"
grep -q 'progress:' run.log && fail "display_progress False"

# its recipe, small, on a document per sample
"$trefoil" pretrain -c "$configs/gpt2_xl_pp2_mp2.yaml" "${small[@]}" -o Model.num_layers=2 \
    -o BATCH_SIZE=4 -o NUM_MICRO_BATCHES=4 -o TENSOR_SHAPE= -o max_steps= -o NUM_EPOCHS=1 \
    -o logging_freq=100 2>run.log || fail "gpt2_xl: $(tail -3 run.log)"
grep -q 'Start Recompute for' run.log || fail "gpt2_xl: no recomputation"
grep -q '\[Epoch 0 / Train\]: Loss' run.log || fail "gpt2_xl: $(tail -3 run.log)"
grep -q 'learning rate: 1.50000e-04' run.log || fail "gpt2_xl: $(grep 'global' run.log)"
