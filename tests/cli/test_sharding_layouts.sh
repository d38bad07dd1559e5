#!/bin/bash
# Sharding inside the other kinds of parallelism, against the same layout unsharded.
. "$(dirname "$0")/layout_lib.sh"
make_corpus
make_layout_config
STEPS=3
d=Distributed
one=batch_size.micro_batch_size=3 # one micro-batch on four data ranks

# beside data parallelism: the sums run over both
run dp4 4 $one
for s in 1 2 3; do run dp2_sharded_$s 4 $one $d.dp_degree=2 $(stage 2 $s) && same dp2_sharded_$s dp4; done

# in a pipeline of two chunks a stage, where gradients of many micro-batches meet
pipe="$d.pp_degree=2 $d.virtual_pp_degree=2 batch_size.micro_batch_size=1"
run pipe 4 $pipe
run pipe_1 4 $pipe $(stage 2 1) && same pipe_1 pipe
run pipe_2 4 $pipe $(stage 2 2) && near pipe_2 pipe
run pipe_3 4 $pipe $(stage 2 3) $d.sharding.sharding_offload=True && near pipe_3 pipe
# one micro-batch, and computing again what was let go of
short="$d.pp_degree=2 batch_size.micro_batch_size=6"
run short 4 $short
run short_3 4 $short $(stage 2 3) use_recompute=True && same short_3 short

# with everything, in float16: the sums of 16-bit gradients too are those of dp
half="mix_precision.use_pure_fp16=True batch_size.micro_batch_size=6"
all="$d.mp_degree=2 $d.pp_degree=2 $half"
run all 8 $all
run all_2 8 $all $(stage 2 2) && same all_2 all
run all_3 8 $all $(stage 2 3) && same all_3 all
run parts 4 $d.mp_degree=2 $d.sequence_parallel=True $half
run parts_3 4 $d.mp_degree=2 $d.sequence_parallel=True $half $(stage 2 3) && same parts_3 parts
