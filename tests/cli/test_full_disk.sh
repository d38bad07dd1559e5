#!/bin/bash
# No room for a checkpoint: refused before step 1; when it runs out later, training goes
# on with a warning and the next save succeeds when there is room again; when the last one
# does not fit, a sentence and exit 3. Earlier checkpoints are intact throughout.
. "$(dirname "$0")/lib.sh"
make_corpus
make_config
must_train max_steps=10 eval_freq=0
(
    ulimit -f 64 # 64 KiB stand in for the disk: metrics fit, a model does not
    trap '' XFSZ
    train save_load.ckpt_dir=out eval_freq=0
)
[ $? -eq 3 ] || fail "a full disk must end with 3: $(tail -1 run.log)"
grep -qE "cannot save the checkpoint 'epoch_0_step_20'.*File too large" run.log ||
    fail "no sentence: $(tail -1 run.log)"
ls -A out | grep -qE 'tmp|lock' && fail "a half-written checkpoint is left: $(ls -A out)"
must_train save_load.ckpt_dir=out save_load.output_dir=next max_steps=12 eval_freq=0
grep -q "resumed from 'out/epoch_0_step_10'" run.log || fail "the one before is damaged"

# the rest needs a small file system of our own
mkdir small
mount -t tmpfs -o size=4m none small 2>/dev/null || exit 0
trap 'umount small; rm -rf "$work"' EXIT

# filled while the run goes, emptied again when the log says that a save has failed
settings=(-o max_steps=100000 -o eval_freq=0 -o save_load.save_steps=20 -o logging_freq=10
    -o save_load.output_dir=small/out -o save_load.keep_last=1)
: >run.log # what is waited for below is of this run
"$trefoil" pretrain -c run.yaml "${settings[@]}" 2>run.log &
pid=$!
until grep -q "saved checkpoint" run.log || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
dd if=/dev/zero of=small/full bs=64k 2>/dev/null
until grep -q "Training goes on" run.log || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
rm small/full
n=$(grep -c "saved checkpoint" run.log)
until [ "$(grep -c "saved checkpoint" run.log)" -gt "$n" ] || ! kill -0 $pid 2>/dev/null; do
    sleep 0.01
done
kill -TERM $pid
wait $pid
code=$?
[ $code -eq 75 ] || fail "the run ended with $code: $(tail -2 run.log)"
grep -q "cannot save the checkpoint .*bytes, .* are free there.*Training goes on" run.log ||
    fail "no warning: $(grep WARN run.log | head -2)"
[ "$(grep -c "saved checkpoint" run.log)" -gt "$n" ] || fail "no save after there was room"
must_train save_load.ckpt_dir=small/out save_load.output_dir=after max_steps=1 eval_freq=0
grep -q "nothing to do: the checkpoint is at step" run.log || fail "it cannot be loaded"

# Several processes: what rank 0 says reaches the terminal though its log takes no more,
# and so does the reason when the last save fails; a disk that is full at the start is told.
rm -rf small/*
parallel=(-o Distributed.dp_degree=2 -o batch_size.local_batch_size=3 -o eval_freq=0
    -o save_load.output_dir=small/out -o save_load.save_steps=20 -o logging_freq=10)
dd if=/dev/zero of=small/full bs=4k 2>/dev/null
expect 3 "cannot write to log directory '.*small/out/log': No space left" \
    "$trefoil" pretrain -c run.yaml "${parallel[@]}" -o max_steps=5
rm -r small/*
: >run.log
"$trefoil" pretrain -c run.yaml "${parallel[@]}" -o max_steps=4000 -o save_load.keep_last=0 2>run.log &
pid=$!
until grep -q "saved checkpoint" run.log || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
while kill -0 $pid 2>/dev/null; do # also what failed saves leave; no old one makes room
    dd if=/dev/zero of=small/full bs=64k oflag=append conv=notrunc 2>/dev/null
    dd if=/dev/zero of=small/full bs=512 oflag=append conv=notrunc 2>/dev/null
    sleep 0.02
done
wait $pid
code=$?
[ $code -eq 3 ] || fail "two processes on a full disk ended with $code: $(tail -2 run.log)"
grep -q "cannot save the checkpoint .*Training goes on" run.log || fail "no warning: $(tail -3 run.log)"
grep -q "global step 4000" run.log || fail "the terminal fell silent: $(tail -3 run.log)"
grep -qE "rank 0 on .* failed at step 4000: cannot save the checkpoint 'epoch_[0-9]*_step_4000' in '[^']*': the disk is full" run.log ||
    fail "no reason: $(tail -1 run.log)"
exit 0
