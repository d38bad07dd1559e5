#!/bin/bash
# On the emulated GPU a rank that is killed ends the job, which is started again with the
# same bits, and one that is frozen is named.
. "$(dirname "$0")/layout_lib.sh"
export LSAN_OPTIONS=detect_leaks=0 # what MPI libraries keep is not ours to free
make_corpus
make_layout_config
sed -i 's/device: cpu/device: emulated/; s/global_batch_size: 12/global_batch_size: 2/
    s/save_steps: -1/save_steps: 2/; s/eval_freq: 2/eval_freq: 0/; s/num_layers: 4/num_layers: 2/' run.yaml

pretrain() { "$trefoil" pretrain -c run.yaml -o save_load.output_dir=out "$@"; }

STEPS=8
run reference 2 Distributed.pp_degree=2
start 3 pretrain -o max_steps=8 -o Distributed.pp_degree=2 --max_restarts 1
kill -KILL "$(rank_pid 1)" || fail "no rank to kill"
wait $job || fail "not started again: $(tail -3 run.log)"
cmp <(curve out/metrics.jsonl) <(curve reference/metrics.jsonl) || fail "restarted with other bits"

for peers in on off; do
    export TREFOIL_PEERS=$peers
    start 2 pretrain -o max_steps=1000000 -o Distributed.dp_degree=2 -o hang_timeout=5
    kill -STOP "$(rank_pid 1)" || fail "no rank to stop"
    wait $job
    code=$?
    [ $code = 3 ] || fail "rank 1 was stopped: ended with $code: $(tail -3 run.log)"
    grep -qE "ERROR\] - rank 1 on $(hostname) is stopped" run.log || fail "not named: $(cat run.log)"
done
