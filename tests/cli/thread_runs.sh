#!/bin/bash
# Small runs in which every thread of the program works beside the others, for `make tsan`:
# a data race in any of them is an exit status of its own. No part of the suite.
. "$(dirname "$0")/lib.sh"
make_corpus 400
make_config

# clean NAME STATUS COMMAND...: the command ends with STATUS, and no race was reported.
clean() {
    local name=$1 wanted=$2 status=0
    shift 2
    "$@" >"$name.log" 2>&1 || status=$?
    if grep -q 'WARNING: ThreadSanitizer' "$name.log" || [ $status -ne "$wanted" ]; then
        cat "$name.log"
        fail "$name: status $status"
    fi
    echo "$name: clean"
}

run=("$trefoil" pretrain -c run.yaml -o num_threads=2 -o save_load.save_steps=2)
clean tokenizer 0 "$trefoil" tokenizer train --input words.txt --output tok --vocab_size 300
clean prepare 0 "$trefoil" prepare --input words.txt --output more \
    --tokenizer tok --threads 3
clean train 0 "${run[@]}" -o trace=trace.json -o save_load.keep_last=2
clean resume 0 "${run[@]}" -o max_steps=24 -o save_load.ckpt_dir=out \
    -o use_recompute=True -o mix_precision.use_pure_fp16=True
clean offload 0 "${run[@]}" -o Distributed.sharding.sharding_degree=1 \
    -o Distributed.sharding.sharding_offload=True -o save_load.output_dir=offloaded

"${run[@]}" -o max_steps=100000 -o eval_freq=3 -o save_load.output_dir=stopped >stop.log 2>&1 &
until grep -q 'global step 6' stop.log || ! kill -0 $! 2>/dev/null; do sleep 0.1; done
kill -TERM $!
clean stopped 75 wait $!

clean launcher 0 "$trefoil" launch -n 1 --log_dir logs pretrain -c run.yaml -o max_steps=4 \
    -o save_load.output_dir=launched
! grep -rq 'WARNING: ThreadSanitizer' stop.log logs || fail "$(cat stop.log logs/*)"
