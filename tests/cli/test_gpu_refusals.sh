#!/bin/bash
# Devices that cannot be had are refused in a sentence, before anything is started.
. "$(dirname "$0")/lib.sh"
configs=$(realpath "$(dirname "$0")/../../configs")
make_corpus
make_config
run() { "$trefoil" pretrain -c run.yaml "$@"; }
export TREFOIL_PLUGIN_DIR=$work # where there is none

# a machine without the plug-in; the recipes of the seeds say device: gpu
sed 's/device: cpu/device: gpu/' "$configs/gpt_345m_single.yaml" >seed.yaml
start=$(date +%s%N)
expect 2 'device: gpu .*-o device=cpu trains on the processor' \
    "$trefoil" pretrain -c seed.yaml -o dataset.input_dir=data
[ $(($(date +%s%N) - start)) -lt 1000000000 ] || fail "the refusal took a second"
expect 2 'device: gpu ' run -o device=gpu -o Distributed.dp_degree=2 \
    -o batch_size.local_batch_size=3
expect 2 'device: gpu ' "$trefoil" launch -n 2 pretrain -c run.yaml -o device=gpu \
    -o batch_size.local_batch_size=3
[ ! -e out/log ] || fail "processes were started"
"$trefoil" pretrain -c seed.yaml -o dataset.input_dir=data --dry_run 2>/dev/null |
    awk '/^GPU, MB/ { getline; if ($NF > 10000) exit 1; found = 1 } END { exit !found }' ||
    fail "the plan of 345M on a GPU"
"$trefoil" pretrain -c "$configs/gpt_1.3B_single.yaml" -o device=gpu \
    -o dataset.input_dir=data --dry_run 2>/dev/null |
    awk '/^GPU, MB/ { getline; if ($NF > 23000) exit 1; found = 1 } END { exit !found }' ||
    fail "the plan of 1.3B on a GPU"

# the keys of the seeds on the emulated device, a small model
"$trefoil" pretrain -c seed.yaml -o device=emulated -o dataset.input_dir=data \
    -o Model.hidden_size=32 -o Model.ffn_hidden_size=64 -o Model.num_layers=1 \
    -o Model.num_attention_heads=2 -o Model.vocab_size=257 -o dataset.max_seq_len=32 \
    -o Model.max_position_embeddings=32 -o max_steps=1 -o save_load.output_dir=seed \
    -o batch_size.global_batch_size=2 -o batch_size.local_batch_size=2 \
    -o batch_size.micro_batch_size=2 2>run.log || fail "the seeds' keys: $(tail -2 run.log)"

# what an emulated GPU lacks
TREFOIL_EMULATED=capability=7.5 expect 2 'bfloat16.*mix_precision.dtype=float16' \
    run -o device=emulated -o mix_precision.dtype=bfloat16
TREFOIL_EMULATED=gpus=1 expect 2 '2 processes on this machine want a GPU each, and 1 is emulated' \
    run -o device=emulated -o Distributed.dp_degree=2 -o batch_size.local_batch_size=3
TREFOIL_EMULATED=memory=90 expect 3 \
    'not enough memory of the GPU: rank 0 needs 0.1[0-9] GB and 0.09 GB are available' \
    run -o device=emulated
TREFOIL_EMULATED=memory=180 expect 3 \
    'not enough memory of the GPU.*The cheapest changes that fit: -o' \
    run -o device=emulated -o Model.hidden_size=512 -o Model.num_layers=4
TREFOIL_PEERS=none expect 2 "TREFOIL_PEERS is 'none'; it must be one of on off" \
    run -o device=emulated
expect 2 '--device is .xpu.; it must be one of cpu gpu emulated' \
    "$trefoil" eval --ckpt seed --data data --device xpu
expect 2 'on a GPU each is at most' run -o device=emulated -o Model.vocab_size=3000000
