#!/bin/bash
# A job that dies is started again from its own newest checkpoint, as often as allowed and
# not when that cannot help; the run that comes out is the one that was never interrupted.
. "$(dirname "$0")/lib.sh"
probe=$(dirname "$trefoil")/tests/rank_probe
faults=$(dirname "$trefoil")/tests/trefoil_faults
# What MPI libraries keep to the end is not ours to free.
export LSAN_OPTIONS=detect_leaks=0

# The processes of a job that is over, and what is in its log directory beside logs.
leftovers() {
    grep -lzx "TREFOIL_LOG_DIR=$work/.*" /proc/[0-9]*/environ 2>/dev/null
    find . -path '*/log/*' ! -name 'workerlog.*'
}

# ends CODE PATTERN RESTARTS command...: and nothing is left of it
ends() {
    local code=$1 pattern=$2 restarts=$3
    shift 3
    "$@" 2>err
    local got=$?
    [ $got = "$code" ] || fail "'$*' ended with $got, not $code: $(cat err)"
    grep -qE "$pattern" err || fail "'$*': no '$pattern' in: $(cat err)"
    [ "$(grep -c 'Restart ' err)" = "$restarts" ] || fail "'$*': restarts: $(cat err)"
    [ -z "$(leftovers)" ] || fail "'$*' left $(leftovers)"
}

# -- budgets: a rank that is killed at step 3 each time, without any checkpoints; of ranks
# that die before the launcher has had a look, MPICH does not tell which was first, and
# where its own daemon fails of it not even the signal
killed='rank [01] on .* was killed(, it seems)? by signal 9'
ends 3 "after 1 restart: $killed .* at step 3" 1 \
    "$probe" launch -n 2 --max_restarts 1 eval kill 1
line="$killed .* at step 3.*workerlog.[01]'. Restart 1 of 1 in 1 s, from the"
grep -qE "$line beginning" err || fail "the line of a restart: $(cat err)"
ends 4 'died 4 times in a row without a checkpoint.*rank 0 on .* signal 9 .* at step 3' 3 \
    "$probe" launch -n 1 --max_restarts 100 eval kill 0
ends 3 "$killed" 0 "$probe" launch -n 2 eval kill 1

# -- not retried: bad input, a stop, what never began
ends 2 "cannot read 'tokens'" 0 "$probe" launch -n 2 --max_restarts 3 eval abort 1
ends 2 'unknown action' 0 "$probe" launch -n 2 --max_restarts 3 eval no-such-action
# a host that cannot be reached: MPICH's mpiexec waits for it, and the launcher 45 s
ldd "$probe" >libraries
far=(--hosts far:2 --rsh "$work/reach" --max_restarts 3 eval hello)
printf '#!/bin/sh\nexit 1\n' >reach && chmod +x reach
grep -q libmpich libraries || ends 3 'no rank began on far; mpiexec said' 0 "$probe" launch -n 2 "${far[@]}"
printf '#!/bin/sh\nexec sleep 60\n' >reach
"$probe" launch -n 2 "${far[@]}" 2>err &
launcher=$!
until pgrep -P $launcher mpi >/dev/null || ! kill -0 $launcher 2>/dev/null; do sleep 0.05; done
kill -TERM $launcher
wait $launcher
[ $? = 3 ] || fail "SIGTERM while hosts do not answer: $(cat err)"
grep -q 'stopped by SIGTERM before it had anything to save' err || fail "$(cat err)"
[ -z "$(leftovers)" ] || fail "hosts that do not answer: $(leftovers)"

# -- a signal instead of a restart
"$probe" launch -n 2 --max_restarts 9 eval kill 1 2>err &
launcher=$!
until grep -q 'Restart 3 of 9 in 4 s' err || ! kill -0 $launcher 2>/dev/null; do
    sleep 0.05
done
kill -TERM $launcher
wait $launcher
[ $? = 3 ] || fail "SIGTERM between two tries: $(cat err)"
grep -q 'stopped by SIGTERM while it waited to be started again, and has saved nothing' err || fail "$(cat err)"

# -- a run, killed in its third save, goes on from the second
make_corpus
make_config
run=(-c run.yaml -o max_steps=8 -o eval_freq=0 -o save_load.save_steps=2)
pp=(-o Distributed.pp_degree=2)
"$trefoil" pretrain "${run[@]}" -o save_load.output_dir=whole 2>run.log ||
    fail "$(tail -3 run.log)"
same() { # same WHAT: out is whole
    cmp <(curve out/metrics.jsonl) <(curve whole/metrics.jsonl) || fail "$1: other losses"
    cmp {out,whole}/epoch_0_step_8/model.safetensors || fail "$1: other weights"
}
export TREFOIL_FAULT=CKPT_AT_FILE_SYNCED:0:4:kill
for start in "launch -n 2 --max_restarts 2 pretrain" "pretrain --max_restarts=2"; do
    rm -rf out
    ends 0 'rank [01] on .*Restart 1 of 2 in 1 s, resuming from step 4' 1 \
        "$faults" $start "${run[@]}" "${pp[@]}"
    grep -q "resumed from 'out/epoch_0_step_4'" err || fail "$start: $(cat err)"
    same "$start"
done
for step in 1 8; do
    grep -q "global step $step," out/log/workerlog.0 || fail "the log is not of both tries"
done

# -- one process too, and in a directory with later checkpoints of another run
rm -rf out
"$trefoil" pretrain "${run[@]}" -o seed=8 2>run.log || fail "$(tail -3 run.log)"
ends 0 'Restart 1 of 1 in 1 s, resuming from step 4' 1 \
    "$faults" pretrain --max_restarts 1 "${run[@]}"
grep -q "resumed from 'out/epoch_0_step_4'" err || fail "of another run: $(cat err)"
same "among checkpoints of another run"

# -- the checkpoint that the directory stood for is replaced: a later one may get its inode
rm -rf out
"$trefoil" pretrain "${run[@]}" -o seed=8 -o max_steps=2 2>run.log || fail "$(tail -3 run.log)"
ends 0 'Restart 1 of 1 in 1 s, resuming from step 4' 1 \
    "$faults" pretrain --max_restarts 1 "${run[@]}"
same "after the first checkpoint was replaced"

# -- a run that continues those in its directory counts from them
ends 0 'Restart 1 of 1 in 1 s, resuming from step 12' 1 "$faults" pretrain \
    --max_restarts 1 "${run[@]}" -o max_steps=14 -o save_load.ckpt_dir=out

# -- divergence is not retried
rm -rf out
TREFOIL_SPOILED_STEP=3 ends 3 'the gradient norm -?nan' 0 \
    "$faults" pretrain --max_restarts 3 "${run[@]}" "${pp[@]}"
unset TREFOIL_FAULT

# -- refused before anything is started
ends 2 'max_restarts must be 0 to' 0 \
    "$trefoil" launch -n 2 --max_restarts -1 pretrain -c run.yaml
ends 2 'max_restarts must be 0 to' 0 "$trefoil" pretrain --max_restarts -1 -c run.yaml
ends 2 'no-such.yaml' 0 "$trefoil" launch -n 2 --max_restarts 1 pretrain -c no-such.yaml
ends 2 'max_restarts is for who starts the job' 0 \
    "$trefoil" launch -n 2 pretrain --max_restarts 1 "${run[@]}" "${pp[@]}"

# -- a warning of the configuration is told once, whoever starts the processes
warned=(-o max_steps=1 -o Optimizer.lr.max_lr=1e-4 -o save_load.output_dir=warned)
for start in pretrain "launch -n 2 pretrain" "launch -n 2 --max_restarts 1 pretrain"; do
    "$trefoil" $start "${run[@]}" "${pp[@]}" "${warned[@]}" 2>err || fail "$(cat err)"
    [ "$(grep -c 'is below min_lr' err)" = 1 ] || fail "$start warns: $(cat err)"
done
"$trefoil" pretrain "${run[@]}" "${warned[@]}" 2>err || fail "$(cat err)"
[ "$(grep -c 'is below min_lr' err)" = 1 ] || fail "one process warns: $(cat err)"
exit 0
