#!/bin/bash
# Layouts on the emulated GPU, by messages through the host and from device to device:
# the same promises as on the processor.
. "$(dirname "$0")/layout_lib.sh"
make_corpus
make_layout_config
sed -i 's/device: cpu/device: emulated/; s/global_batch_size: 12/global_batch_size: 4/
    s/eval_freq: 2/eval_freq: 0/; s/  micro_batch_size:/  micro_batch_size: 1/' run.yaml
D=Distributed S=Distributed.sharding
STEPS=2

run one 1
run pp2 2 $D.pp_degree=2
same pp2 one
TREFOIL_PEERS=off run pp2_v2 2 $D.pp_degree=2 $D.virtual_pp_degree=2 use_recompute=True
same pp2_v2 one
run mp2 2 $D.mp_degree=2
near mp2 one
TREFOIL_PEERS=off run sp 2 $D.mp_degree=2 $D.sequence_parallel=True
near sp one

# one micro-batch: all stages have the bits of plain data parallelism
sed -i 's/  micro_batch_size: 1/  micro_batch_size: 2/' run.yaml
run dp2 2 $D.dp_degree=2
near dp2 one
TREFOIL_PEERS=off run sh1 2 $S.sharding_degree=2 $S.sharding_stage=1
same sh1 dp2
run sh2 2 $S.sharding_degree=2 $S.sharding_stage=2 $S.sharding_offload=True
same sh2 dp2
run sh3 2 $S.sharding_degree=2 $S.sharding_stage=3
same sh3 dp2
TREFOIL_PEERS=off TREFOIL_EMULATED=streams=random:3 run sh3_offloaded 2 $S.sharding_degree=2 \
    $S.sharding_stage=3 $S.sharding_offload=True save_load.save_steps=1
same sh3_offloaded dp2

# saved by two ranks, continued by one, on the processor
STEPS=3
run sh3_offloaded 1 device=cpu save_load.ckpt_dir=sh3_offloaded
