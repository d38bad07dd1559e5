#!/bin/bash
# float16 and bfloat16 train as float32 does; steps that overflow are left out, identically
# and recorded; recomputation changes nothing.
. "$(dirname "$0")/layout_lib.sh"
make_corpus
make_layout_config
sed -i 's/max_lr: 1.0e-2/max_lr: 3.0e-3/' run.yaml # where rounding stays rounding
d=Distributed
half=mix_precision.use_pure_fp16=True
brain=mix_precision.dtype=bfloat16

# field NAME FILE: its values, a line a step
field() { grep '"loss"' "$2" | grep -o "\"$1\": [^,}]*" | sed 's/.*: //'; }

# like curve(), with what the scaler did
steps() { grep '"loss"' "$1" | sed 's/"reader_cost.*//'; }

# -- near float32, and never the same -----------------------------------------------------
STEPS=20
run single 1
run half 1 $half && near half single 1e-3 1e-2
run brain 1 $brain && near brain single 1e-2 1e-2
run exact_sums 1 $half mix_precision.fp32_grads=True batch_size.micro_batch_size=2 &&
    near exact_sums single 1e-3 1e-2
for name in half brain exact_sums; do
    cmp -s <(curve $name/metrics.jsonl) <(curve single/metrics.jsonl) &&
        fail "$name has the bits of float32"
    field skipped $name/metrics.jsonl | grep -q true && fail "$name skips steps"
done
[ "$(field loss_scale half/metrics.jsonl | sort -u)" = 32768 ] || fail "scale of float16"
[ "$(field loss_scale brain/metrics.jsonl | sort -u)" = 1 ] || fail "bfloat16 is scaled"
expect 2 'mix_precision' "$trefoil" pretrain -c run.yaml -o $half -o mix_precision.dtype=float32

# -- layouts and recomputation change no bit ----------------------------------------------
STEPS=4
m=batch_size.micro_batch_size=3
for type in half brain; do
    run one_$type 1 ${!type} $m
    run pp2_$type 2 ${!type} $m $d.pp_degree=2 && same pp2_$type one_$type
    run again_$type 1 ${!type} $m use_recompute=True &&
        same again_$type one_$type
done
run one 1 $m
for what in full only_attn core_attn; do
    run $what 1 $m use_recompute=True recompute_granularity=$what \
        no_recompute_layers='[2]' && same $what one
    run half_$what 1 $half $m use_recompute=True recompute_granularity=$what \
        no_recompute_layers='[1]' && same half_$what one_half
done
run chunks 2 $half $m $d.pp_degree=2 $d.virtual_pp_degree=2 use_recompute=True \
    no_recompute_layers='[0,3]' && same chunks one_half
expect 2 'no_recompute_layers' "$trefoil" pretrain -c run.yaml -o use_recompute=True \
    -o 'no_recompute_layers=[4]'

# -- a scale that is too large --------------------------------------------------------------
STEPS=10
large="$half mix_precision.scale_loss=8388608"
run large 1 $large save_load.save_steps=3 save_load.keep_last=0
for name in skipped loss_scale grad_norm; do field $name large/metrics.jsonl >$name; done
[ "$(head -4 skipped | sort -u)" = true ] || fail "a scale of 2^23 does not overflow"
[ "$(tail -1 skipped)" = false ] || fail "never recovered: $(cat loss_scale)"
[ "$(head -5 loss_scale | tr '\n' ' ')" = "8388608 8388608 4194304 4194304 2097152 " ] ||
    fail "the scale is not halved after each two: $(head -5 loss_scale)"
[ "$(head -1 grad_norm)" = null ] || fail "an infinite norm is not null"
[ "$(grep -c 'the step is left out' run.log)" = "$(grep -c true skipped)" ] ||
    fail "the log does not tell of each skipped step"
[ "$(grep -o '"eval_loss": [^,]*' large/metrics.jsonl | head -2 | sort -u | wc -l)" = 1 ] ||
    fail "skipped steps changed the weights"
# the first step that is not left out is the optimizer's first: as if started there
first=$(grep -n -m1 false skipped | cut -d: -f1)
[ "$(field lr large/metrics.jsonl | sed -n "${first}p")" = \
    "$(field lr half/metrics.jsonl | sed -n "${first}p")" ] || fail "the rate stood still"

# resumed between two overflows: the scaler goes on where it was
run resumed 1 $large save_load.ckpt_dir="$(echo large/epoch_*_step_3)"
cmp <(steps resumed/metrics.jsonl) <(steps large/metrics.jsonl | tail -7) ||
    fail "resumed after an overflow, the scaler differs"
# as float32, and from float32: the scale is the new run's own
STEPS=4
run widened 1 save_load.ckpt_dir="$(echo large/epoch_*_step_3)"
[ "$(field loss_scale widened/metrics.jsonl)" = 1 ] || fail "float32 resumed with a scale"
run plain 1 save_load.save_steps=2
run narrowed 1 $half save_load.ckpt_dir="$(echo plain/epoch_*_step_2)"
[ "$(field loss_scale narrowed/metrics.jsonl | sort -u)" = 32768 ] || fail "scale lost"

# -- one that cannot be lowered: the run ends with a sentence -------------------------------
expect 3 'step 10[0-9]: the loss is .* 100 steps in a row overflow.* Lower mix_precision.scale_loss' "$trefoil" pretrain -c run.yaml \
    -o $half -o mix_precision.scale_loss=1e30 -o mix_precision.dynamic_loss_scale=False \
    -o max_steps=150 -o eval_freq=0 -o save_load.output_dir=fixed
# a loss that is none ends the run, and every line of metrics is JSON
expect 3 'the loss is -?nan' "$trefoil" pretrain -c run.yaml -o $half -o max_steps=40 \
    -o eval_freq=0 -o Model.initializer_range=1 -o Optimizer.lr.max_lr=1 \
    -o Optimizer.lr.min_lr=0.5 -o Optimizer.grad_clip=0 -o save_load.output_dir=wild
grep -qiE '": -?(nan|inf)' fixed/metrics.jsonl wild/metrics.jsonl &&
    fail "metrics that are no JSON: $(grep -hiE '": -?(nan|inf)' */metrics.jsonl | head -1)"
exit 0
