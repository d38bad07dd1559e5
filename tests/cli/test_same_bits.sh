#!/bin/bash
# What must not change a bit of the result: threads, a second run; and what may change
# only the last ones: the size of micro-batches.
. "$(dirname "$0")/lib.sh"
make_corpus
make_config

must_train save_load.output_dir=one num_threads=1
curve one/metrics.jsonl >one.curve
for threads in 2 3; do
    must_train save_load.output_dir="t$threads" num_threads=$threads
    curve "t$threads/metrics.jsonl" | cmp - one.curve || fail "$threads threads differ"
done
must_train save_load.output_dir=again num_threads=1
curve again/metrics.jsonl | cmp - one.curve || fail "a second run differs"
curve one/metrics.jsonl | sort -u -k4,4 | grep -c . | grep -qx 20 ||
    fail "the losses of 20 steps should all differ"

first_loss() { grep -m1 -o '"loss": [^,]*' "$1"; }
for micro in 1 2 3 6; do
    must_train save_load.output_dir="m$micro" batch_size.micro_batch_size=$micro max_steps=1
    [ "$(first_loss "m$micro/metrics.jsonl")" = "$(first_loss one/metrics.jsonl)" ] ||
        fail "micro_batch_size $micro changes the first loss"
done

must_train save_load.output_dir=seed seed=8 max_steps=1
[ "$(first_loss seed/metrics.jsonl)" != "$(first_loss one/metrics.jsonl)" ] ||
    fail "another seed must give another loss"
