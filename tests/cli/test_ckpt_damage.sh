#!/bin/bash
# Checkpoints that were damaged after they were saved, directories that two runs want, and
# checkpoints that are kept or not.
. "$(dirname "$0")/lib.sh"
make_corpus
make_config
base="eval_freq=0 save_load.save_steps=5"
must_train $base max_steps=15
cp -r out kept

# flip FILE BYTE: the lowest bit of one byte
flip() {
    local byte
    byte=$(od -An -tu1 -j"$2" -N1 "$1")
    printf "\\x$(printf %x $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# the newest two are damaged: named, set aside, the third is used
flip out/epoch_0_step_15/model.safetensors 30000
truncate -s -1 out/epoch_0_step_10/optimizer.safetensors
must_train $base save_load.ckpt_dir=out
grep -q "skipped the checkpoint 'out/epoch_0_step_15'.*model.safetensors' is damaged.*set aside as 'out/epoch_0_step_15.damaged'" run.log ||
    fail "step 15: $(grep -i skipped run.log)"
grep -q "skipped the checkpoint 'out/epoch_0_step_10'.*instead of" run.log || fail "step 10"
grep -q "resumed from 'out/epoch_0_step_5'" run.log || fail "step 5 was not used"
[ -d out/epoch_0_step_15.damaged ] && [ -d out/epoch_0_step_15 ] || fail "$(ls out)"
cmp {out,kept}/epoch_0_step_15/model.safetensors || fail "it went on differently"

# what only has the name of a checkpoint, or a pipe for a file, is set aside like a damaged one
cp -r kept names && : >names/epoch_9_step_30 && echo epoch_9_step_30 >names/latest
rm names/epoch_0_step_15/trainer.json && mkfifo names/epoch_0_step_15/trainer.json
must_train $base save_load.ckpt_dir=names save_load.output_dir=next max_steps=11
grep -q "resumed from 'names/epoch_0_step_10'" run.log || fail "names: $(cat run.log)"
[ -f names/epoch_9_step_30.damaged ] && [ -d names/epoch_0_step_15.damaged ] || fail "$(ls names)"

# a save whose name a damaged one has does not delete it
cp -r kept again && truncate -s -1 again/epoch_0_step_15/model.safetensors
must_train $base save_load.ckpt_dir=again/epoch_0_step_10 save_load.output_dir=again
grep -q "no valid checkpoint: .*set aside as 'again/epoch_0_step_15.damaged'" run.log ||
    fail "again: $(cat run.log)"
cmp {again,kept}/epoch_0_step_15/model.safetensors || fail "the new step 15"
[ -d again/epoch_0_step_15.damaged ] || fail "$(ls again)"

# none is whole: refused, never from scratch; and so is one named by itself, which stays
for step in 5 10 15; do cp -r kept/epoch_0_step_$step all_$step; done
rm -rf none && cp -r kept none
for step in 5 10 15; do flip none/epoch_0_step_$step/trainer.json 40; done
train $base save_load.ckpt_dir=none save_load.output_dir=next
[ $? -eq 2 ] || fail "no valid checkpoint must end with 2"
grep -q "none of the 3 checkpoints in 'none' is valid" run.log || fail "$(tail -1 run.log)"
train $base save_load.ckpt_dir=none save_load.output_dir=next
[ $? -eq 2 ] && grep -q "set aside" run.log || fail "the second time: $(tail -1 run.log)"
flip all_10/optimizer.safetensors 20000
train $base save_load.ckpt_dir=all_10 save_load.output_dir=next
[ $? -eq 2 ] && [ -d all_10 ] || fail "one that is named: $(tail -1 run.log)"

# another architecture is refused with the difference, and is no damage
train $base save_load.ckpt_dir=kept Model.hidden_size=64 save_load.output_dir=next
[ $? -eq 2 ] || fail "another architecture must end with 2"
grep -q "set Model.hidden_size: 32 (it is 64)" run.log || fail "$(tail -1 run.log)"
ls kept | grep -q damaged && fail "another architecture is no damage"

# other hyper-parameters are listed and allowed
must_train $base save_load.ckpt_dir=kept Optimizer.lr.max_lr=2.0e-2 save_load.output_dir=next
grep -q "changed since the checkpoint: .*max_lr was .*, is " run.log || fail "not listed"

# two runs in one directory: the second is refused and told who is there
"$trefoil" pretrain -c run.yaml -o max_steps=100000 -o save_load.output_dir=busy \
    -o eval_freq=0 -o save_load.save_steps=0 2>first.log &
pid=$!
until [ -s busy/metrics.jsonl ] || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
train save_load.output_dir=busy eval_freq=0
code=$?
kill -KILL $pid
wait $pid 2>/dev/null
[ $code -eq 3 ] || fail "the second run must end with 3, not $code"
grep -q "'busy' is in use: process $pid on" run.log || fail "$(tail -1 run.log)"
# killed, it is in nobody's way
must_train save_load.output_dir=busy eval_freq=0 max_steps=3
ls -A busy | grep -q lock && fail "a lock is left"

# every tenth step is kept for good
must_train save_load.output_dir=sparse eval_freq=0 max_steps=25 save_load.save_steps=5 \
    save_load.keep_last=1 save_load.keep_every=10
[ "$(ls sparse | grep epoch | xargs)" = "epoch_0_step_10 epoch_0_step_20 epoch_0_step_25" ] ||
    fail "keep_every 10 has left $(ls sparse)"
