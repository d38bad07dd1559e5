#!/bin/bash
# A rank that is stopped or killed while others wait for its GPU's messages, by peers or
# through the host, is named as on the processor.
. "$(dirname "$0")/layout_lib.sh"
export LSAN_OPTIONS=detect_leaks=0 # what MPI libraries keep is not ours to free
make_corpus
make_layout_config
sed -i 's/num_layers: 4/num_layers: 3/; s/eval_freq: 2/eval_freq: 0/' run.yaml

train_job() { # train_job PEERS settings...: with an end that is never reached
    local peers=$1
    shift
    TREFOIL_PEERS=$peers "$trefoil" pretrain -c run.yaml -o save_load.output_dir=out \
        -o device=emulated -o max_steps=1000000 -o hang_timeout=5 "$@"
}
ends() { # ends SIGNAL RANK WORDS: of the sentence about that rank
    local process
    process=$(rank_pid "$2")
    [ -n "$process" ] && kill "-$1" "$process" || fail "no rank $2: $(tail -3 run.log)"
    wait $job
    local code=$?
    [ $code = 3 ] || fail "$1 of rank $2: ended with $code: $(tail -3 run.log)"
    grep -qE "rank $2 on $(hostname) (\(pid [0-9]+\) )?$3" run.log || fail "$1 not named: $(cat run.log)"
}
start 2 train_job on -o Distributed.pp_degree=3
ends STOP 1 'is stopped'
start 2 train_job off -o Distributed.dp_degree=3
ends STOP 0 'is stopped'
start 2 train_job on -o Distributed.dp_degree=3
ends KILL 2 'was killed'
