#!/bin/bash
# SIGINT and SIGTERM: finish the step, save, exit 75; the continued run is the same run.
. "$(dirname "$0")/lib.sh"
make_corpus
make_config
must_train save_load.output_dir=whole max_steps=300 logging_freq=1 eval_freq=0 \
    save_load.save_steps=0

for signal in INT TERM; do
    rm -rf stopped
    # bash starts background jobs with SIGINT ignored; a fresh session resets nothing, so
    # the signal's default is restored before the program runs
    settings=(-o save_load.output_dir=stopped -o max_steps=300 -o eval_freq=0
        -o save_load.save_steps=0)
    perl -e '$SIG{INT} = "DEFAULT"; exec @ARGV' "$trefoil" pretrain -c run.yaml \
        "${settings[@]}" 2>run.log &
    pid=$!
    until [ -s stopped/metrics.jsonl ] || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
    kill -$signal $pid
    wait $pid
    code=$?
    [ $code -eq 75 ] || fail "SIG$signal ended with $code: $(tail -2 run.log)"
    grep -q "stopped by SIG$signal" run.log || fail "the log does not say so"
    must_train save_load.output_dir=stopped save_load.ckpt_dir=stopped max_steps=300 \
        eval_freq=0 save_load.save_steps=0
    curve stopped/metrics.jsonl | cmp - <(curve whole/metrics.jsonl) ||
        fail "SIG$signal: the continued run differs"
done
