#!/bin/bash
# Whole runs on the emulated device with a checker of every access of its kernels and of the
# order of everything that touches its memory (emulated/race_check.c), in layouts that use
# each kind of message, sharding, offload and asynchronous saves; near the processor's
# losses. CHECKED_RUNS names some of them: the mutation test does.
. "$(dirname "$0")/layout_lib.sh"
plain=$trefoil
checked=${CHECKED_PROGRAM:-$(dirname "$trefoil")/tests/trefoil_checked}
[ -x "$checked" ] || exit 77 # a build with sanitizers has none
STEPS=2
make_corpus
make_layout_config
sed -i 's/num_layers: 4/num_layers: 2/; s/global_batch_size: 12/global_batch_size: 4/' run.yaml

# compare NAME PROCESSES DEVICE_OPTIONS settings...; within 1e-5, and 16-bit ones 1e-2
compare() {
    local name=$1 n=$2 options=$3 allowed=1e-5
    shift 3
    [[ " ${CHECKED_RUNS:-$name} " == *" $name "* ]] || return 0
    [[ "$*" != *float16* && "$*" != *fp16* ]] || allowed=1e-2
    trefoil=$plain run "$name" "$n" "$@"
    TREFOIL_EMULATED=$options trefoil=$checked run "$name.checked" "$n" device=emulated "$@"
    near "$name.checked" "$name" $allowed 1e-2
}

compare alone 1 streams=late save_load.save_steps=1 Optimizer.grad_clip=1.0
compare bf16 1 order=reverse mix_precision.dtype=bfloat16 use_recompute=True
compare fp16 1 streams=random:7 mix_precision.use_pure_fp16=True
compare offload 1 streams=prefer:copy Distributed.sharding.sharding_offload=True \
    save_load.save_steps=1
TREFOIL_PEERS=off compare mp2 2 streams=late Distributed.mp_degree=2 Distributed.sequence_parallel=True
compare mp2_peers 2 streams=random:3 Distributed.mp_degree=2
TREFOIL_PEERS=off compare pp2 2 streams=prefer:comm Distributed.pp_degree=2 \
    batch_size.micro_batch_size=1
compare pp2_peers 2 streams=late Distributed.pp_degree=2 batch_size.micro_batch_size=1
TREFOIL_PEERS=off compare stage2 2 streams=prefer:compute $(stage 2 2) save_load.save_steps=1
compare stage3 2 streams=random:5 $(stage 2 3) save_load.save_steps=1
echo passed
