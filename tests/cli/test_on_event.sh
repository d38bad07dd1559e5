#!/bin/bash
# The command of on_event: what it is told of saves, ends, stalls and failures; that what it
# does holds up nothing; and the lines that the launcher adds to metrics.jsonl.
. "$(dirname "$0")/layout_lib.sh"
export LSAN_OPTIONS=detect_leaks=0 # what MPI libraries keep is not ours to free
make_corpus
make_layout_config
sed -i 's/save_steps: -1/save_steps: 2/; s/eval_freq: 2/eval_freq: 0/' run.yaml

# shellcheck disable=SC2016 # it is for the shell of the command
told='echo "$TREFOIL_EVENT|$TREFOIL_EVENT_STEP|$TREFOIL_EVENT_RANK|$TREFOIL_EVENT_STATUS|$TREFOIL_EVENT_CHECKPOINT|$TREFOIL_EVENT_MESSAGE" >>told.txt'
train() { "$trefoil" pretrain -c run.yaml -o save_load.output_dir=out "$@" >run.log 2>&1; }

# -- one process: saves and the end; text from the run is never code
rm -rf out told.txt
train -o max_steps=4 -o on_event="$told" || fail "did not train: $(tail -3 run.log)"
grep -qx 'save|2|||out/epoch_0_step_2|' told.txt || fail "no save: $(cat told.txt)"
[ "$(tail -1 told.txt)" = 'end|4||finished||' ] || fail "no end: $(cat told.txt)"
[ "$(grep -c . out/metrics.jsonl)" -gt 4 ] || fail "no metrics: $(cat out/metrics.jsonl)"

# -- a command that fails, or cannot be found, is told and does no harm
for command in 'exit 7' no-such-command-here; do
    train -o max_steps=2 -o on_event="$command" || fail "failed with '$command': $(tail -3 run.log)"
    grep -qE "on_event: the command for 'end' ended with exit code (7|127)" run.log ||
        fail "'$command': not told: $(cat run.log)"
done

# shellcheck disable=SC2016 # as above
train -o max_steps=2 -o on_event='kill -TERM $$' || fail "failed with it: $(tail -3 run.log)"
grep -q "on_event: the command for 'end' was ended by SIGTERM" run.log || fail "not told: $(cat run.log)"

# -- the output of a command: all of a little, the beginning of much; it never waits or dies
# shellcheck disable=SC2016 # as above
much='echo "first of $TREFOIL_EVENT"; head -c 3000000 /dev/zero | tr "\0" x'
much+=' && echo "$TREFOIL_EVENT" >>ended.txt'
for ranks in 1 2; do
    rm -rf out ended.txt
    train -o max_steps=2 -o Distributed.dp_degree=$ranks \
        -o on_event="$much" || fail "much output: $(tail -c 300 run.log)"
    [ "$(cat ended.txt)" = save$'\n'end ] || fail "a command did not end: $(cat ended.txt)"
    log=run.log
    [ $ranks = 1 ] || log=out/log/workerlog.0
    for event in save end; do
        grep -q "first of $event" $log || fail "the beginning is not in $log"
        grep -q "on_event: the command for '$event' prints more than 64 kB: the rest is left out" $log ||
            fail "not told: $(tr -d x <$log)"
    done
    [ "$(stat -c %s $log)" -lt 200000 ] || fail "$log has $(stat -c %s $log) bytes"
done

# -- a file for node_exporter, and no TensorBoard files when they are not wanted
rm -rf out
train -o max_steps=2 -o prometheus_file=run.prom -o tensorboard=False || fail "$(tail -3 run.log)"
grep -qE '^trefoil_step\{run="/.*/out"\} 2$' run.prom || fail "no step: $(cat run.prom)"
[ ! -e out/tensorboard ] || fail "there are TensorBoard files"
train -o max_steps=2 -o prometheus_file=nowhere/run.prom || fail "$(tail -3 run.log)"
grep -q "cannot write 'nowhere/run.prom' (prometheus_file)" run.log || fail "not told: $(cat run.log)"

# -- a rank that is frozen: a stall, then the failure that the launcher made of it
rm -rf out told.txt
train -o max_steps=1000000 -o Distributed.dp_degree=2 -o hang_timeout=5 -o on_event="$told" &
job=$!
for _ in $(seq 1200); do
    ! grep -q '"event": "save"' out/metrics.jsonl 2>/dev/null || break
    sleep 0.05
done
process=$(rank_pid 1)
[ -n "$process" ] && kill -STOP "$process" || fail "no rank 1: $(tail -3 run.log)"
wait $job
code=$?
[ $code = 3 ] || fail "ended with $code: $(tail -3 run.log)"
grep -qE '^stall\|[0-9]+\|1\|\|\|rank 1 on .* is stopped' told.txt || fail "no stall: $(cat told.txt)"
grep -qE '^failure\|[0-9]+\|.*rank 1 on .* is stopped' told.txt || fail "no failure: $(cat told.txt)"
for event in stall failure; do
    grep -qE "^\{\"step\": [0-9]+, \"event\": \"$event\".*rank 1 on .* is stopped" out/metrics.jsonl ||
        fail "metrics.jsonl has no $event: $(tail -3 out/metrics.jsonl)"
done
echo ok
