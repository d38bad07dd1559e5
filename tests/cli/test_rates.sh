#!/bin/bash
# Learning rates that were left out: they suit the run, a continued run keeps those of its
# checkpoint, and rates that teach nothing are warned about.
. "$(dirname "$0")/lib.sh"
export LSAN_OPTIONS=detect_leaks=0 # what MPI libraries keep is not ours to free
make_corpus

cat >run.yaml <<YAML
max_steps: 60
num_threads: 1
eval_freq: 0
dataset: {input_dir: data}
batch_size: {global_batch_size: 6}
save_load: {save_steps: 5, keep_last: 0, output_dir: short}
Model: {vocab_size: 257, hidden_size: 32, num_layers: 2, num_attention_heads: 4}
YAML
small="dataset.max_seq_len=24 Model.max_position_embeddings=24"
last_loss() { grep '"loss"' "$1" | tail -1 | sed 's/.*"loss": \([0-9.]*\).*/\1/'; }

# a file with data, sizes and max_steps alone learns, at least as well as with the rates of
# configs/demo.yaml
must_train $small save_steps=-1
grep -q WARNING run.log && fail "a warning: $(grep WARNING run.log)"
grep -q 'step 60,.*learning rate: 3.00000e-04' run.log || fail "the last rate: $(tail -1 run.log)"
must_train $small save_steps=-1 output_dir=demo max_lr=3e-3 min_lr=3e-4 warmup_rate=0.05
awk -v a="$(last_loss short/metrics.jsonl)" -v b="$(last_loss demo/metrics.jsonl)" \
    'BEGIN { exit !(a < b + 0.05 && a < 5) }' ||
    fail "ends at $(last_loss short/metrics.jsonl), with demo's rates at $(last_loss demo/metrics.jsonl)"
must_train $small save_steps=-1 max_steps= num_train_epochs=1 output_dir=epoch
grep -q WARNING run.log && fail "by epochs, a warning: $(grep WARNING run.log)"
grep -q 'learning rate: 3.00000e-04' run.log || fail "by epochs: $(tail -1 run.log)"

# a checkpoint with the defaults of 2.0.0 continues with them, restarts of it too; the
# configuration that is shown and the plan agree
old="decay_steps=360000 warmup_rate=0.01 max_lr=1e-5 min_lr=5e-5"
must_train $small $old max_steps=10 output_dir=old
must_train $small max_steps=10 output_dir=new ckpt_dir=old/epoch_0_step_5 save_steps=2
curve new/metrics.jsonl | cmp - <(tail -5 <(curve old/metrics.jsonl)) || fail "the rates changed"
grep -q 'kept from the checkpoint .old/epoch_0_step_5., .*: Optimizer.lr.decay_steps 360000, ' \
    run.log || fail "not named: $(grep -i kept run.log)"
must_train $small max_steps=10 output_dir=third ckpt_dir=new/epoch_0_step_8
curve third/metrics.jsonl | cmp - <(tail -2 <(curve old/metrics.jsonl)) || fail "third"
"$trefoil" config -c run.yaml -o ckpt_dir=old >config.out 2>/dev/null
grep -q ' max_lr: 1e-05 ' config.out || fail "config shows other rates"
must_train $small max_steps=10 output_dir=written ckpt_dir=old/epoch_0_step_5 max_lr=1e-3
grep -q 'kept from .*: Optimizer.lr.decay_steps 360000, Optimizer.lr.warmup_rate 0.01, Optimizer.lr.min_lr 5e-05; ' \
    run.log || fail "a written key counts: $(grep -i kept run.log)"
must_train $small max_steps=10 output_dir=two ckpt_dir=old/epoch_0_step_5 \
    Distributed.dp_degree=2 num_threads=1
[ "$(grep -c 'kept from' run.log)" -eq 1 ] || fail "dp2: $(grep -c 'kept from' run.log) lines"
rates() { grep '"loss"' "$1" | grep -o '"lr": [^,]*' | tail -5; }
cmp <(rates two/metrics.jsonl) <(rates old/metrics.jsonl) || fail "dp2: $(rates two/metrics.jsonl)"

# resumed near its end, or ended with its warm-up, a run has learnt at the highest rate
must_train $small max_steps=100 save_steps=99 min_lr=0 output_dir=end
must_train $small max_steps=100 save_steps=-1 min_lr=0 output_dir=end ckpt_dir=end/"$(cd end && ls -d epoch_*_step_99)"
grep -q WARNING run.log && fail "resumed near its end: $(grep WARNING run.log)"
must_train $small max_steps=10 decay_steps=100 output_dir=exactly
grep -q WARNING run.log && fail "ends with its warm-up: $(grep WARNING run.log)"

# decay_steps that was left out follows max_steps when a run is extended, which is logged
must_train $small max_steps=10 output_dir=base
must_train $small max_steps=20 output_dir=longer ckpt_dir=base/epoch_0_step_10
grep -q 'the learning rate of step 11 is 0.00165; by the checkpoint.s configuration it would be 0.0003' \
    run.log || fail "extended: $(grep 'rate of step' run.log)"
must_train $small max_steps=20 decay_steps=10 output_dir=longer ckpt_dir=base/epoch_0_step_10
grep -q 'learning rate of step' run.log && fail "a written decay_steps stays"

# rates that teach nothing
warned() {
    local pattern=$1
    shift
    must_train $small max_steps=3 save_steps=-1 output_dir=warned "$@"
    [ "$(grep -c "WARNING.*$pattern" run.log)" -eq 1 ] || fail "'$*': $(grep WARNING run.log)"
    "$trefoil" pretrain -c run.yaml --dry_run -o max_steps=3 $(printf -- '-o %s ' $small "$@") \
        >/dev/null 2>dry.log
    grep -q "WARNING.*$pattern" dry.log || fail "'$*': --dry_run"
}
warned 'ends at step 3, inside the warm-up of 36000 steps .*: its highest learning rate is 2.5e-07, 0.00833 % ' \
    decay_steps=360000
warned 'ends at step 3, inside the warm-up of 4 steps' decay_steps=40
warned 'highest learning rate of steps 1 to 3 is 1e-09, 1e-07 %' decay_steps=1 warmup_rate=0.5 \
    max_lr=1 min_lr=1e-9
warned 'learning rate of every step is 0' max_lr=0
warned 'max_lr 1e-06 is below min_lr 1e-05' max_lr=1e-6 min_lr=1e-5
warned 'max_lr 0.003 is below min_lr 0.01' min_lr=0.01
