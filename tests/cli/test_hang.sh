#!/bin/bash
# A rank that freezes is found and named, the job ended and started again with the same
# bits; one that is only slow is left alone.
. "$(dirname "$0")/layout_lib.sh"
export LSAN_OPTIONS=detect_leaks=0 # what MPI libraries keep is not ours to free
make_corpus
make_layout_config
sed -i 's/save_steps: -1/save_steps: 10/; s/eval_freq: 2/eval_freq: 0/' run.yaml

freeze() { # freeze RANK
    local process
    process=$(rank_pid "$1")
    [ -n "$process" ] && kill -STOP "$process" || fail "no rank $1 to stop: $(tail -3 run.log)"
}
train_job() { # train_job settings...: with an end that is never reached
    "$trefoil" pretrain -c run.yaml -o save_load.output_dir=out -o max_steps=1000000 "$@"
}
named() { # named RANK: with the exit code of the job
    wait $job
    local code=$?
    [ $code = 3 ] || fail "rank $1 was stopped: ended with $code: $(tail -3 run.log)"
    grep -qE "ERROR\] - rank $1 on $(hostname) is stopped" run.log || fail "not named: $(cat run.log)"
    grep -qE "^ +$1 $(hostname) +[0-9]+ .* stopped" run.log || fail "no table: $(cat run.log)"
}

# -- stopped: a table, the rank, its stack in its log
start 3 train_job -o Distributed.pp_degree=2 -o hang_timeout=5
freeze 0
named 0
for rank in 0 1; do
    grep -q 'the stack of this rank' out/log/workerlog.$rank || fail "no stack of rank $rank"
done

# -- the same without our launcher; its watcher ends with it
start 3 "$mpirun" "$mpiexec" 2 "$trefoil" pretrain -c run.yaml -o save_load.output_dir=out \
    -o max_steps=1000000 -o Distributed.dp_degree=2 -o hang_timeout=5
freeze 1
named 1
watchers() { grep -lzx "PWD=$work" $(pgrep -x trefoil-watch | sed 's|.*|/proc/&/environ|') /dev/null 2>/dev/null; }
for _ in $(seq 200); do
    [ -n "$(watchers)" ] || break
    sleep 0.05
done
[ -z "$(watchers)" ] || fail "a watcher is left: $(watchers)"

# -- nor is a pause of the whole job, by job control, though it is longer than hang_timeout
rm -rf out
set -m
"$trefoil" pretrain -c run.yaml -o save_load.output_dir=out -o max_steps=1000000 \
    -o Distributed.dp_degree=2 -o hang_timeout=1 >run.log 2>&1 &
job=$!
set +m
lines() { cat out/metrics.jsonl 2>/dev/null | wc -l; }
until_lines() { # until_lines N
    until [ "$(lines)" -gt "$1" ]; do
        kill -0 $job 2>/dev/null || fail "ended: $(tail -3 run.log)"
        sleep 0.05
    done
}
until_lines 3
kill -TSTP $job
for process in $job $(rank_pid 0) $(rank_pid 1); do
    until [ "$(cut -d' ' -f3 "/proc/$process/stat")" = T ]; do sleep 0.05; done
done
n=$(lines)
sleep 3
[ "$(lines)" = "$n" ] || fail "the ranks train while the job is paused"
kill -CONT $job
until_lines $((n + 3))
kill -TERM $job
while kill -0 $job 2>/dev/null; do sleep 0.05; done
wait $job
[ $? = 75 ] || fail "a pause: $(tail -3 run.log)"

# -- a pause is no hang; a job that was ended is started again; the losses do not change
run_on() { # run_on settings...: as far as step 400
    "$trefoil" pretrain -c run.yaml -o save_load.output_dir=out -o max_steps=400 \
        -o Distributed.dp_degree=2 "$@"
}
start 3 run_on
wait $job || fail "the reference: $(tail -3 run.log)"
curve out/metrics.jsonl | tail -1 >last
start 3 run_on -o hang_timeout=10 --max_restarts 1
freeze 1
sleep 1
kill -CONT "$(rank_pid 1)"
n=$(grep -c '"loss"' out/metrics.jsonl)
until [ "$(grep -c '"loss"' out/metrics.jsonl)" -gt $((n + 10)) ]; do
    kill -0 $job 2>/dev/null || fail "a pause ended the job: $(tail -3 run.log)"
    sleep 0.05
done
freeze 1
wait $job || fail "not started again: $(tail -3 run.log)"
grep -qE "rank 1 on $(hostname) is stopped.*Restart 1 of 1" run.log || fail "no restart: $(cat run.log)"
curve out/metrics.jsonl | tail -1 | cmp last || fail "the losses changed"
