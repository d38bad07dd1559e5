#!/bin/bash
# SIGINT, SIGTERM, SIGHUP and SIGUSR1: finish the step, save, exit 75; the continued run is
# the same run. Repeated signals are one, nohup is kept, and a start can be stopped too.
. "$(dirname "$0")/lib.sh"
faults=$(dirname "$trefoil")/tests/trefoil_faults
make_corpus
make_config
must_train save_load.output_dir=whole max_steps=300 logging_freq=1 eval_freq=0 \
    save_load.save_steps=0

# start SETTING...: a run in the background, as $pid, its log in run.log; returns when it is
# in step 5, where it stays until go. bash starts background jobs with SIGINT ignored; a fresh session resets
# nothing, so the signal's default is restored before the program runs.
start() {
    local settings=()
    for setting in "$@"; do settings+=(-o "$setting"); done
    : >run.log # of the run before
    TREFOIL_PAUSED_STEP=5 perl -e '$SIG{INT} = "DEFAULT"; exec @ARGV' "$faults" pretrain \
        -c run.yaml "${settings[@]}" 2>run.log &
    pid=$!
    until [ -e paused ] || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
}
go() { rm -f paused; }

for signal in INT TERM HUP USR1; do
    rm -rf stopped
    start save_load.output_dir=stopped max_steps=300 eval_freq=0 save_load.save_steps=0
    kill -$signal $pid
    kill -$signal $pid 2>/dev/null # a repetition, as schedulers send: no more than one
    go
    wait $pid
    code=$?
    [ $code -eq 75 ] || fail "SIG$signal ended with $code: $(tail -2 run.log)"
    grep -qE "SIG$signal: finishing step [0-9]+; again to stop now" run.log ||
        fail "SIG$signal was not answered: $(tail -3 run.log)"
    grep -q "stopped by SIG$signal" run.log || fail "the log does not say so"
    # the sentence names the checkpoint, to be pasted
    setting=$(grep -o 'continue with -o save_load.ckpt_dir=[^ ]*' run.log)
    setting=${setting##* }
    [ "$setting" = "save_load.ckpt_dir=stopped/$(cat stopped/latest)" ] || fail "$(tail -1 run.log)"
    must_train save_load.output_dir=stopped "$setting" max_steps=300 \
        eval_freq=0 save_load.save_steps=0
    curve stopped/metrics.jsonl | cmp - <(curve whole/metrics.jsonl) ||
        fail "SIG$signal: the continued run differs"
done

# under nohup a hang-up is nothing
trap '' HUP
rm -rf stopped
start save_load.output_dir=stopped max_steps=300 eval_freq=0 save_load.save_steps=0
trap - HUP
kill -HUP $pid
go
wait $pid || fail "SIGHUP under nohup: $(tail -2 run.log)"
curve stopped/metrics.jsonl | cmp - <(curve whole/metrics.jsonl) || fail "nohup"

# stopped and continued by job control: nothing happens
rm -rf stopped
start save_load.output_dir=stopped max_steps=300 eval_freq=0 save_load.save_steps=0
kill -TSTP $pid
kill -CONT $pid
go
wait $pid || fail "SIGTSTP and SIGCONT: $(tail -2 run.log)"
curve stopped/metrics.jsonl | cmp - <(curve whole/metrics.jsonl) || fail "job control"

# a signal that comes during the start (here: that was held back until the program looks
# for signals): nothing was trained, so nothing is saved, and what was there can be
# continued
begin=("${with_signal[@]}" "$trefoil" pretrain -c run.yaml -o eval_freq=0 -o save_load.output_dir=fresh)
expect 3 'stopped by SIGTERM before the first step; nothing was saved' "${begin[@]}"
grep -q 'SIGTERM: ending before the first step; again to stop now' expect.err || fail "start"
must_train save_load.output_dir=fresh eval_freq=0
expect 75 'stopped by SIGTERM before step 21; continue with -o save_load.ckpt_dir=fresh/epoch_0_step_20' \
    "${begin[@]}" -o save_load.ckpt_dir=fresh -o max_steps=30

# other commands stop as well, and leave nothing half written
"$trefoil" export --ckpt fresh --to hf --output hf 2>export.log || fail "$(cat export.log)"
mkdir left
while read -r -a words; do
    expect 3 'stopped by SIGTERM; nothing was written' "${with_signal[@]}" "$trefoil" "${words[@]}"
    [ -z "$(find left -type f -o -name '*.tmp*')" ] || fail "'${words[*]}' left something"
done <<'WORDS'
export --ckpt fresh --to hf --output left/hf
export --ckpt fresh --to gguf --output left/x.gguf
import --from hf --input hf --output left/imported
prepare --input words.txt --output left/words
WORDS

# with nothing saved there is nothing to continue
start save_load.output_dir=unsaved max_steps=100000 eval_freq=0 save_load.save_steps=-1
kill -TERM $pid
go
wait $pid
code=$?
[ $code -eq 3 ] || fail "nothing saved must end with 3, not $code: $(tail -1 run.log)"
grep -q 'stopped by SIGTERM after step .*nothing was saved' run.log || fail "$(tail -1 run.log)"
! grep -q 'continue with' run.log || fail "$(tail -1 run.log)"

# a run that begins in the directory of another, longer one: both can be continued
rm -rf whole
must_train save_load.output_dir=both max_steps=60 eval_freq=0 save_load.save_steps=10
must_train save_load.output_dir=both max_steps=25 eval_freq=0 save_load.save_steps=11 seed=8
grep -q "WARNING.*'both' holds checkpoints of an earlier run" run.log || fail "$(cat run.log)"
must_train save_load.output_dir=both save_load.ckpt_dir=both max_steps=25 eval_freq=0 seed=8
grep -q "resumed from 'both/epoch_0_step_25'" run.log || fail "$(cat run.log)"
grep -q 'WARNING.*epoch_0_step_25. was saved last.*save_load.ckpt_dir=both/epoch_0_step_60' \
    run.log || fail "no warning: $(cat run.log)"
must_train save_load.output_dir=both save_load.ckpt_dir=both/epoch_0_step_60 max_steps=65 \
    eval_freq=0 save_load.save_steps=0
! grep -q 'was saved last' run.log || fail "it was named: $(cat run.log)"
must_train save_load.output_dir=both save_load.ckpt_dir=both/epoch_0_step_25 max_steps=26 \
    eval_freq=0 save_load.save_steps=0
! grep -q 'was saved last' run.log || fail "it was named: $(cat run.log)"
# keep_last 3 counts each run's own
[ "$(ls both | grep -o '[0-9]*$' | sort -n | xargs)" = "22 25 26 50 60 65" ] || fail "$(ls both)"
[ "$(cat both/*/trainer.json | grep '"run_id"' | sort | uniq -c | awk '{print $1}' | xargs)" = "3 3" ] ||
    fail "$(grep run_id both/*/trainer.json)"

# diverged: the checkpoint that gave the NaN is not the one to go on from, and it has not
# pushed out the one that is
must_train save_load.output_dir=burst max_steps=10 eval_freq=0 save_load.save_steps=5
train save_load.output_dir=burst save_load.ckpt_dir=burst eval_freq=0 save_load.save_steps=1 \
    save_load.keep_last=1 save_load.async_save=False \
    Optimizer.grad_clip=0 Optimizer.lr.max_lr=900 Optimizer.lr.min_lr=900
[ $? -eq 3 ] || fail "diverged: $(tail -1 run.log)"
step=$(grep -o 'ERROR.*step [0-9]*: the loss is' run.log | grep -o '[0-9]*' | tail -1)
[ -d burst/epoch_0_step_$((step - 1)) ] || fail "it has not saved the bad one: $(ls burst)"
setting=$(grep -o 'save_load.ckpt_dir=.*' run.log)
[ -d "${setting#*=}" ] || fail "no checkpoint is named: $(tail -1 run.log)"
must_train save_load.output_dir=burst "$setting" eval_freq=0 max_steps=12 save_load.save_steps=0
