#!/bin/bash
# Saves that are killed or fail at every step of the commit, on either rank: the newest
# checkpoint that is whole loads, and the resumed run prints the losses of one that was
# never interrupted.
mpirun=$(realpath "$(dirname "$0")/../parallel/mpirun.sh")
. "$(dirname "$0")/lib.sh"
faults=$(dirname "$trefoil")/tests/trefoil_faults
make_corpus
make_config
sed -i 's/eval_freq: 10/eval_freq: 0/; s/save_steps: 10/save_steps: 2/' run.yaml

# run RANKS PROGRAM settings...: 8 steps, saves in flight after 2, 4 and 6
run() {
    local ranks=$1 program=$2 start=("$mpirun" "$mpiexec" "$1")
    local options=(-o max_steps=8 -o Distributed.mp_degree=$1 -o save_load.keep_last=2
        -o save_load.output_dir=out)
    shift 2
    [ "$ranks" -gt 1 ] || start=()
    for setting in "$@"; do options+=(-o "$setting"); done
    "${start[@]}" "$program" pretrain -c run.yaml "${options[@]}" >run.log 2>&1
}

for ranks in 1 2; do
    run $ranks "$trefoil" || fail "$(tail -3 run.log)"
    mv out whole$ranks
done
[ "$(ls whole2 | grep epoch | xargs)" = "epoch_0_step_6 epoch_0_step_8" ] ||
    fail "keep_last 2 has left $(ls whole2)"

# check_resumed RANKS WHAT: what a fault has left can be continued to the same end
check_resumed() {
    run $1 "$trefoil" save_load.ckpt_dir=out || fail "$2: cannot resume: $(tail -3 run.log)"
    cmp <(curve out/metrics.jsonl) <(curve whole$1/metrics.jsonl) || fail "$2: other losses"
    cmp {out,whole$1}/epoch_0_step_8/model.safetensors || fail "$2: other weights"
    ! ls -A out | grep -qE 'tmp|trash|lock|damaged' || fail "$2: left behind: $(ls -A out)"
}

# kill RANKS PLACE:RANK:VISIT...
kill_at() {
    local ranks=$1
    shift
    for visit in "$@"; do
        rm -rf out
        TREFOIL_FAULT=CKPT_AT_$visit:kill run $ranks "$faults" && fail "$visit: not killed"
        [ -d out/epoch_0_step_4 ] || [ -d out/epoch_0_step_6 ] ||
            fail "$visit: only $(ls out) is left"
        check_resumed $ranks "killed at $visit of $ranks ranks"
    done
}

# the third visit of what is passed once a save is in the third save, and so on
kill_at 1 TEMP_CREATED:0:2 FILE_CREATED:0:5 HEADER_WRITTEN:0:4 COPIED:0:2 \
    TENSOR_WRITTEN:0:170 FILE_WRITTEN:0:4 FILE_SYNCED:0:5 MANIFEST_WRITTEN:0:2 \
    TEMP_SYNCED:0:2 COMMITTED:0:2 LATEST_WRITTEN:0:2 TRASH_RENAMED:0:0 TRASH_REMOVED:0:0
kill_at 2 TEMP_CREATED:0:2 COPIED:1:2 TENSOR_WRITTEN:1:100 FILE_WRITTEN:1:5 \
    FILE_SYNCED:1:4 MANIFEST_WRITTEN:0:2 COMMITTED:0:2

# a save that fails is a warning on rank 0, and the next one succeeds
for visit in FILE_CREATED:0:4 COPIED:1:2 TENSOR_WRITTEN:1:100 FILE_SYNCED:1:4 \
    MANIFEST_WRITTEN:0:2; do
    rm -rf out
    TREFOIL_FAULT=CKPT_AT_$visit:28 run 2 "$faults" || fail "$visit: $(tail -3 run.log)"
    grep -q "cannot save the checkpoint 'epoch_0_step_6'.*No space left.*Training goes on" \
        run.log || fail "$visit: no warning: $(tail -3 run.log)"
    grep -q '"step": 6, "event": "save_failed", "error": ".*No space left' out/metrics.jsonl ||
        fail "$visit: not in the metrics: $(tail -3 out/metrics.jsonl)"
    [ "$(ls -A out | xargs)" = "config.yaml epoch_0_step_4 epoch_0_step_8 latest metrics.jsonl tensorboard" ] ||
        fail "$visit: has left $(ls -A out)"
    cmp {out,whole2}/epoch_0_step_8/model.safetensors || fail "$visit: other weights"
done

# the last one is not
rm -rf out
TREFOIL_FAULT=CKPT_AT_FILE_SYNCED:1:7:5 run 2 "$faults"
[ $? -eq 3 ] || fail "a failed last save must end with 3: $(tail -3 run.log)"
grep -q "cannot save the checkpoint 'epoch_0_step_8'.*Input/output error" run.log ||
    fail "no sentence: $(tail -3 run.log)"
check_resumed 2 "a last save that failed"
