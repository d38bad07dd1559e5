#!/bin/bash
# Several inputs, blended inputs and padded documents: trained, evaluated, resumed and
# prolonged to the same digits, and refused with a sentence where they make no sense.
. "$(dirname "$0")/lib.sh"
make_corpus 60
mkdir one two
mv data/words.* one
make_corpus 25
mv data/words.* two
make_config
run() { "$trefoil" pretrain -c run.yaml -o save_load.save_steps=-1 "$@"; }

# check NAME settings...: 20 steps are 10 and 10 more, and a shorter run is their beginning
check() {
    local name=$1
    shift
    must_train "$@" save_load.output_dir="$name"
    curve "$name/metrics.jsonl" >"$name.curve"
    [ "$(wc -l <"$name.curve")" -eq 20 ] || fail "$name: 20 steps were wanted"
    [ "$(grep -c eval_loss "$name/metrics.jsonl")" -eq 2 ] || fail "$name: 2 evaluations"
    must_train "$@" save_load.output_dir="$name.parts" max_steps=10
    must_train "$@" save_load.output_dir="$name.parts" save_load.ckpt_dir="$name.parts"
    curve "$name.parts/metrics.jsonl" | cmp - "$name.curve" || fail "$name: 10 + 10 differ"
}

# differ NAME NAME: their losses are not the same
differ() {
    ! cmp -s "$1.curve" "$2.curve" || fail "$1 and $2 train on the same"
}

check listed 'dataset.input_dir=[one, two]'
check blended 'dataset.input_dir=[one, two]' 'dataset.weights=[1, 3]'
check padded dataset.input_dir=one dataset.mode=padded
check both 'dataset.input_dir=[one, two]' 'dataset.weights=[1, 3]' dataset.mode=padded
differ listed blended
differ blended both
differ padded both
# samples from 'one': a quarter of 20 steps of 6
must_train 'dataset.input_dir=[one, two]' 'dataset.weights=[1, 3]' save_load.output_dir=log
grep -q "train samples from 'one': 30 of 120" run.log || fail "no share of 'one': $(cat run.log)"
grep -q "train samples from 'two': 90 of 120" run.log || fail "no share of 'two'"

# two directories listed are one directory with both
mkdir joined
for f in one/words.*; do cp "$f" "joined/a.${f#one/words.}"; done
for f in two/words.*; do cp "$f" "joined/b.${f#two/words.}"; done
must_train dataset.input_dir=joined save_load.output_dir=joined_run
curve joined_run/metrics.jsonl | cmp - listed.curve || fail "a directory is not its list"

# the first loss of padded samples does not depend on how the batch is cut
must_train dataset.input_dir=one dataset.mode=padded max_steps=1 \
    save_load.output_dir=micro batch_size.micro_batch_size=1
head -1 padded.curve | sed 's/, "grad_norm.*//' >first
curve micro/metrics.jsonl | sed 's/, "grad_norm.*//' | cmp - first ||
    fail "the loss of padded samples depends on the micro-batch"

# epochs of a blend: all inputs once each
run -o 'dataset.input_dir=[one, two]' -o 'dataset.weights=[1, 3]' -o max_steps= \
    -o dataset.mode=padded -o save_load.output_dir=epoch 2>run.log || fail "$(tail -3 run.log)"
# 90 % of 60 and of 25 documents (54 and 22 of them) in batches of 6
[ "$(grep -c '"loss"' epoch/metrics.jsonl)" -eq 12 ] || fail "an epoch is not 12 steps"

expect 2 "both mean the dataset" run -o 'dataset.input_dir=[one, one/words]'
expect 2 "3 weights, but input_dir names 1 path" run -o 'dataset.weights=[1,2,3]'
expect 2 "'nowhere' is no directory" run -o 'dataset.input_dir=[one, nowhere]'
expect 2 "this is no list" run -o 'dataset.input_dir=[one, two'
