#!/bin/bash
# Model.activation, norm_epsilon and embed_drop_rate, and Optimizer.decay: each changes the
# losses, all together are the same model on every layout, and a checkpoint keeps them.
. "$(dirname "$0")/layout_lib.sh"
export LSAN_OPTIONS=detect_leaks=0 # what MPI libraries keep is not ours to free
make_corpus
make_layout_config

# With large weights, so that the forms of GELU differ; large decay, so that it shows.
base=(Model.initializer_range=0.3 Optimizer.weight_decay=1)
keys=(Model.activation=gelu Model.norm_epsilon=1.0e-3 Model.embed_drop_rate=0.3
    Optimizer.decay=all)
run plain 1 "${base[@]}"
for key in "${keys[@]}"; do
    run one 1 "${base[@]}" "$key"
    cmp -s <(curve one/metrics.jsonl) <(curve plain/metrics.jsonl) && fail "$key changes nothing"
done

all=("${base[@]}" "${keys[@]}")
run whole 1 "${all[@]}"
run fused 1 "${all[@]}" fused_linear=True && same fused whole
run generic 1 "${all[@]}" cpu_kernels=generic && same generic whole
for what in full only_attn core_attn; do
    run "$what" 1 "${all[@]}" use_recompute=True "recompute_granularity=$what" && same "$what" whole
done
run pp2 2 "${all[@]}" Distributed.pp_degree=2 && same pp2 whole
run sp2 2 "${all[@]}" Distributed.mp_degree=2 Distributed.sequence_parallel=True && near sp2 whole
run dp2 2 "${all[@]}" && near dp2 whole
for stage in 1 3; do
    run "stage$stage" 2 "${all[@]}" $(stage 2 "$stage") && same "stage$stage" dp2
done
run disk 2 "${all[@]}" $(stage 2 3) Distributed.sharding.sharding_offload=True && same disk dp2
run adam 1 "${all[@]}" Optimizer.name=Adam
run adam3 2 "${all[@]}" Optimizer.name=Adam $(stage 2 3) && near adam3 adam

# without any dropout, that of embeddings alone is one
off=("${base[@]}" Model.attention_probs_dropout_prob=0 Model.hidden_dropout_prob=0)
run none 1 "${off[@]}"
run zero 1 "${off[@]}" Model.embed_drop_rate=0 && same zero none
run some 1 "${off[@]}" Model.embed_drop_rate=0.3
cmp -s <(curve some/metrics.jsonl) <(curve none/metrics.jsonl) && fail "embeddings are not dropped"

# a checkpoint has them: to evaluate, generate, export and continue
run saved 1 "${all[@]}" save_load.save_steps=0
loss=$("$trefoil" eval --ckpt saved --data words.txt --tokenizer bytes --json 2>eval.log |
    grep -o '"loss":[^,]*')
[ -n "$loss" ] || fail "eval: $(cat eval.log)"
"$trefoil" export --ckpt saved --to hf --tokenizer bytes --output hf 2>export.log ||
    fail "export: $(cat export.log)"
grep -q '"activation_function": "gelu",' hf/config.json || fail "not gelu: $(cat hf/config.json)"
grep -q '"layer_norm_epsilon": 0.001,' hf/config.json || fail "epsilon: $(cat hf/config.json)"
grep -q '"embd_pdrop": 0.3,' hf/config.json || fail "embd_pdrop: $(cat hf/config.json)"
"$trefoil" import --from hf --input hf --output imported >import.out 2>import.log ||
    fail "import: $(cat import.log)"
grep -q 'activation: gelu$' import.out || fail "import prints: $(cat import.out)"
"$trefoil" eval --ckpt imported --data words.txt --tokenizer bytes --max_seq_len 24 --json \
    2>eval.log | grep -qF "$loss," || fail "the import evaluates to another loss than $loss"
expect 2 'Model.activation is gelu .*export to hf instead' \
    "$trefoil" export --ckpt saved --to gguf --tokenizer bytes --output a.gguf
run resumed 1 "${base[@]}" max_steps=6 save_load.ckpt_dir=saved
for key in Model.activation Model.norm_epsilon Model.embed_drop_rate Optimizer.decay; do
    grep -q "changed since the checkpoint: $key was" run.log || fail "$key: $(cat run.log)"
done
exit 0
