#!/bin/bash
# The run of Colossal-AI's GPT tutorial: epochs of whole batches, padding in the loss,
# accumulated gradients.
. "$(dirname "$0")/lib.sh"
export LSAN_OPTIONS=detect_leaks=0 # what MPI libraries keep is not ours to free
export OMP_NUM_THREADS=1

# texts N: web.jsonl with N texts of 2 to 30 characters
texts() {
    awk -v n="$1" 'BEGIN {
        for (i = 0; i < n; i++)
            print "{\"text\": \"" substr("abcdefghijklmnopqrstuvwxyz0123456789", i % 5 + 1, i * 7 % 29 + 2) "\"}"
    }' >web.jsonl
}

make_tutorial() {
    texts "$1"
    rm -rf data
    "$trefoil" prepare --input web.jsonl --output data/web 2>prepare.log ||
        fail "prepare: $(cat prepare.log)"
    cat >run.yaml <<YAML
NUM_EPOCHS: 60
SEQ_LEN: 16
BATCH_SIZE: $2
seed: 42
eval_freq: 0
dataset: {input_dir: data, split: '1,0,0', mode: padded}
save_load: {save_steps: 0, output_dir: out}
Model: {vocab_size: 257, hidden_size: 8, num_layers: 2, num_attention_heads: 2,
        hidden_dropout_prob: 0.0, attention_probs_dropout_prob: 0.0,
        max_position_embeddings: 16}
Optimizer: {lr: {max_lr: 1.0e-3, min_lr: 1.0e-3, decay_steps: 1, warmup_rate: 0}}
YAML
}

# -- 487 texts in batches of 192, as torch's data loader counts them -----------------------

make_tutorial 487 192
must_train
grep -q 'num_train_epochs 60: 120 steps' run.log || fail "not 120 steps: $(grep steps run.log)"
grep -q 'every epoch uses 384 of its 487 samples' run.log || fail "the rest is not named"
grep -q 'Init done, global batch size = 192' run.log || fail "another batch"
[ "$(grep -c '/ Train\]' run.log)" = 60 ] || fail "not 60 lines of epochs"
counts=$(grep -o '"epoch": [0-9]*' out/metrics.jsonl | sort | uniq -c | awk '{ print $1 }' | sort -u)
[ "$counts" = 2 ] || fail "epochs of other than 2 batches: $counts"

# -- gradients of several batches: the same samples, in every layout -----------------------

make_tutorial 50 4
must_train gradient_accumulation=3 NUM_MICRO_BATCHES=2 NUM_EPOCHS=3
grep -q 'Init done, global batch size = 12' run.log || fail "accumulation: $(grep Init run.log)"
grep -q 'num_train_epochs 3: 12 steps' run.log || fail "accumulation: $(grep steps run.log)"
curve out/metrics.jsonl >accumulated
must_train BATCH_SIZE=12 NUM_MICRO_BATCHES=6 NUM_EPOCHS=3
curve out/metrics.jsonl | cmp - accumulated || fail "accumulation is not a larger batch"
"$trefoil" launch -n 2 pretrain -c run.yaml -o gradient_accumulation=3 -o NUM_MICRO_BATCHES=2 \
    -o NUM_EPOCHS=3 -o parallel.pipeline=2 2>run.log || fail "pp2: $(tail -3 run.log)"
curve out/metrics.jsonl | cmp - accumulated || fail "two stages have other losses"
"$trefoil" launch -n 2 pretrain -c run.yaml -o gradient_accumulation=3 -o BATCH_SIZE=2 \
    -o NUM_EPOCHS=3 2>run.log || fail "dp2: $(tail -3 run.log)"
grep -q 'Init done, global batch size = 12' run.log || fail "dp2: $(grep Init run.log)"
losses() { grep -o '"loss": [0-9.]*' "$1" | cut -c1-14; }
losses accumulated >want
losses out/metrics.jsonl | cmp - want || fail "two data ranks have other losses"
"$trefoil" config -c run.yaml -o gradient_accumulation=3 >printed.yaml 2>/dev/null
grep -q 'gradient_accumulation: 3' printed.yaml && grep -q 'global_batch_size: 12' printed.yaml ||
    fail "the configuration does not show the accumulation"
"$trefoil" config -c printed.yaml 2>/dev/null | cmp - printed.yaml ||
    fail "the printed configuration means another one"

# -- resumed within an epoch ---------------------------------------------------------------

rm -rf out
must_train max_steps=16 save_steps=5 keep_last=0
curve out/metrics.jsonl >whole
rm -r out/epoch_*_step_15 out/epoch_*_step_16
must_train max_steps=16 ckpt_dir=out
grep -q "resumed from .*step 10" run.log || fail "not resumed: $(grep resumed run.log)"
curve out/metrics.jsonl | tail -6 | cmp - <(tail -6 whole) || fail "a resumed run has other samples"

grep -q 'may come twice' run.log && fail "a warning of the same epochs"
must_train max_steps=18 ckpt_dir=out output_dir=other drop_last=False
grep -q 'may come twice or not at all' run.log || fail "other epochs without a warning"

# -- padding in the loss -------------------------------------------------------------------

must_train NUM_EPOCHS=1 pad_loss=False
curve out/metrics.jsonl | head -1 >without
head -1 whole | cmp -s - without && fail "padding does not count"
mv data/web.meta.json web.meta.json
expect 2 'pad_loss needs to know the end-of-document token.*dataset.eos_token_id' \
    "$trefoil" pretrain -c run.yaml -o vocab_size=257
mv web.meta.json data/web.meta.json
expect 2 'fewer than one global batch of 64' "$trefoil" pretrain -c run.yaml -o BATCH_SIZE=64
echo '{"text": "a"}' >web.jsonl
"$trefoil" prepare --input web.jsonl --output data/web --force 2>prepare.log
expect 2 'pad_loss: no document of' "$trefoil" pretrain -c run.yaml -o BATCH_SIZE=1
mv web.jsonl web.txt
expect 2 "web.txt' is not a file of a dataset.*prepare --input 'web.txt'" \
    "$trefoil" pretrain -c run.yaml -o input_dir=web.txt
