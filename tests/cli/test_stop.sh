#!/bin/bash
# SIGINT, SIGTERM, SIGHUP and SIGUSR1: finish the step, save, exit 75; the continued run is
# the same run. Repeated signals are one, nohup is kept, and a start can be stopped too.
. "$(dirname "$0")/lib.sh"
make_corpus
make_config
must_train save_load.output_dir=whole max_steps=300 logging_freq=1 eval_freq=0 \
    save_load.save_steps=0

# start SETTING...: a run in the background, as $pid, its log in run.log; returns when it
# has trained. bash starts background jobs with SIGINT ignored; a fresh session resets
# nothing, so the signal's default is restored before the program runs.
start() {
    local settings=()
    for setting in "$@"; do settings+=(-o "$setting"); done
    : >run.log # of the run before
    perl -e '$SIG{INT} = "DEFAULT"; exec @ARGV' "$trefoil" pretrain -c run.yaml \
        "${settings[@]}" 2>run.log &
    pid=$!
    until grep -q 'global step' run.log || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
}

for signal in INT TERM HUP USR1; do
    rm -rf stopped
    start save_load.output_dir=stopped max_steps=300 eval_freq=0 save_load.save_steps=0
    kill -$signal $pid
    kill -$signal $pid 2>/dev/null # a repetition, as schedulers send: no more than one
    wait $pid
    code=$?
    [ $code -eq 75 ] || fail "SIG$signal ended with $code: $(tail -2 run.log)"
    grep -qE "SIG$signal: finishing step [0-9]+; again to stop now" run.log ||
        fail "SIG$signal was not answered: $(tail -3 run.log)"
    grep -q "stopped by SIG$signal" run.log || fail "the log does not say so"
    must_train save_load.output_dir=stopped save_load.ckpt_dir=stopped max_steps=300 \
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
wait $pid || fail "SIGHUP under nohup: $(tail -2 run.log)"
curve stopped/metrics.jsonl | cmp - <(curve whole/metrics.jsonl) || fail "nohup"

# stopped and continued by job control: nothing happens
rm -rf stopped
start save_load.output_dir=stopped max_steps=300 eval_freq=0 save_load.save_steps=0
kill -TSTP $pid
kill -CONT $pid
wait $pid || fail "SIGTSTP and SIGCONT: $(tail -2 run.log)"
curve stopped/metrics.jsonl | cmp - <(curve whole/metrics.jsonl) || fail "job control"

# a signal that comes during the start (here: that was held back until the program looks
# for signals): nothing was trained, so nothing is saved, and what was there can be
# continued
with_signal() {
    perl -MPOSIX -e 'sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGTERM)); kill TERM => $$;
        exec @ARGV' "$trefoil" "$@"
}
begin=(with_signal pretrain -c run.yaml -o eval_freq=0 -o save_load.output_dir=fresh)
expect 3 'stopped by SIGTERM before the first step; nothing was saved' "${begin[@]}"
grep -q 'SIGTERM: ending before the first step; again to stop now' expect.err || fail "start"
must_train save_load.output_dir=fresh eval_freq=0
expect 75 'stopped by SIGTERM before step 21; continue with -o save_load.ckpt_dir=fresh' \
    "${begin[@]}" -o save_load.ckpt_dir=fresh -o max_steps=30

# other commands stop as well, and leave nothing half written
"$trefoil" export --ckpt fresh --to hf --output hf 2>export.log || fail "$(cat export.log)"
mkdir left
while read -r -a words; do
    expect 75 'stopped by SIGTERM; nothing was written' with_signal "${words[@]}"
    [ -z "$(find left -type f -o -name '*.tmp*')" ] || fail "'${words[*]}' left something"
done <<'WORDS'
export --ckpt fresh --to hf --output left/hf
export --ckpt fresh --to gguf --output left/x.gguf
import --from hf --input hf --output left/imported
prepare --input words.txt --output left/words
WORDS
