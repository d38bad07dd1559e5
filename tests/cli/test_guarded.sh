#!/bin/bash
# Host code never looks into a tensor: whole runs on a device whose memory is closed but
# while its kernels and its copies run give the bits of the others; and the
# guard itself sees an access.
. "$(dirname "$0")/layout_lib.sh"
plain=$trefoil
guarded=$(dirname "$trefoil")/tests/trefoil_guarded
STEPS=2
make_corpus
make_layout_config

# compare NAME PROCESSES settings...
compare() {
    local name=$1
    shift
    trefoil=$plain run "$name" "$@"
    trefoil=$guarded run "$name.guarded" "$@"
    same "$name.guarded" "$name"
}

compare one 1 save_load.save_steps=1
compare bf16 1 mix_precision.dtype=bfloat16 use_recompute=True
compare offload 1 Distributed.sharding.sharding_offload=True
compare mp2pp2 4 Distributed.mp_degree=2 Distributed.pp_degree=2 \
    Distributed.sequence_parallel=True
compare chunks 2 Distributed.pp_degree=2 Distributed.virtual_pp_degree=2 \
    batch_size.micro_batch_size=3 mix_precision.use_pure_fp16=True
compare stage1 2 $(stage 2 1)
compare stage2 2 $(stage 2 2) batch_size.micro_batch_size=2 \
    mix_precision.use_pure_fp16=True
compare stage3 2 $(stage 2 3)
compare resumed 2 save_load.ckpt_dir=one.guarded/epoch_0_step_1 Distributed.dp_degree=2

for program in plain guarded; do
    "${!program}" generate --ckpt one --prompt 'leaf stem' --max_tokens 8 --seed 3 \
        >"$program.text" 2>"$program.log" || fail "$program generate: $(cat "$program.log")"
    "${!program}" eval --ckpt one --data data >"$program.eval" 2>"$program.log" ||
        fail "$program eval: $(cat "$program.log")"
done
cmp plain.text guarded.text || fail "generate differs"
cmp plain.eval guarded.eval || fail "eval differs"

TREFOIL_GUARD_TOUCH=1 "$guarded" pretrain -c run.yaml -o save_load.output_dir=touched \
    >touched.log 2>&1 && fail "an access to a tensor was not seen"
grep -q 'a tensor was touched outside of its device' touched.log ||
    fail "an access to a tensor is not told: $(tail -3 touched.log)"
