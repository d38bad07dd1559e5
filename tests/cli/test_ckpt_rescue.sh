#!/bin/bash
# A save that is in flight when the run fails for another reason is finished: the run ends
# with its own error, and the checkpoint is there and whole.
mpirun=$(realpath "$(dirname "$0")/../parallel/mpirun.sh")
. "$(dirname "$0")/lib.sh"
faults=$(dirname "$trefoil")/tests/trefoil_faults
make_corpus
make_config

# run RANKS PROGRAM settings...: 8 steps, saves in flight after 2, 4 and 6
run() {
    local ranks=$1 program=$2 start=("$mpirun" "$mpiexec" "$1") options=()
    shift 2
    rm -f spoiled
    [ "$ranks" -gt 1 ] || start=()
    for setting in max_steps=8 eval_freq=0 save_load.save_steps=2 "$@"; do
        options+=(-o "$setting")
    done
    "${start[@]}" "$program" pretrain -c run.yaml "${options[@]}" >run.log 2>&1
}

# rescued RANKS SLOW settings...: step 5 fails while rank SLOW still writes what was saved
# after step 4, two files a save
rescued() {
    local ranks=$1 slow=$2
    shift 2
    rm -rf out
    run "$ranks" "$trefoil" "$@" || fail "$(tail -3 run.log)"
    mv out whole
    TREFOIL_FAULT=CKPT_AT_FILE_WRITTEN:$slow:2:sleep TREFOIL_SPOILED_STEP=5 \
        run "$ranks" "$faults" "$@"
    local code=$?
    [ $code = 3 ] || fail "$*: ended with $code: $(tail -3 run.log)"
    grep -qE 'ERROR.*step 5: .* gradient norm -?nan' run.log || fail "$*: $(tail -3 run.log)"
    grep -q "saved checkpoint 'out/epoch_0_step_4'" run.log || fail "$*: it is lost"
    diff -r {out,whole}/epoch_0_step_4 || fail "$*: other bytes"
    ! ls -A out | grep -qE 'tmp|lock' || fail "$*: left behind: $(ls -A out)"
    run "$ranks" "$trefoil" "$@" save_load.ckpt_dir=out || fail "$(tail -3 run.log)"
    grep -q "resumed from 'out/epoch_0_step_4'" run.log || fail "$*: from another one"
    cmp <(curve out/metrics.jsonl) <(curve whole/metrics.jsonl) || fail "$*: other losses"
    rm -rf whole
}
rescued 1 0 save_load.keep_last=0
rescued 2 1 Distributed.pp_degree=2 save_load.keep_last=0
rescued 2 0 Distributed.dp_degree=2 batch_size.local_batch_size=3 save_load.keep_last=0

# a save that then fails itself does not hide why the run did
rm -rf out
TREFOIL_FAULT=CKPT_AT_FILE_WRITTEN:1:2:sleep,CKPT_AT_MANIFEST_WRITTEN:0:1:28 \
    TREFOIL_SPOILED_STEP=5 run 2 "$faults" Distributed.pp_degree=2
[ $? = 3 ] || fail "ended otherwise: $(tail -3 run.log)"
grep -qE 'ERROR.*gradient norm -?nan' run.log || fail "no error: $(tail -3 run.log)"
grep -q "WARNING.*cannot save the checkpoint 'epoch_0_step_4'.*No space left" run.log ||
    fail "no warning: $(tail -3 run.log)"
grep -q 'Training goes on' run.log && fail "training does not go on"
grep -q '"step": 4, "event": "save_failed"' out/metrics.jsonl || fail "no event"
[ ! -e out/epoch_0_step_4 ] || fail "a checkpoint without its last step"

# a rank that dies takes the save with it, at once
rm -rf out
TREFOIL_FAULT=CKPT_AT_FILE_WRITTEN:0:2:sleep,CKPT_AT_FILE_SYNCED:1:2:kill \
    run 2 "$faults" Distributed.pp_degree=2 && fail "it was not killed"
[ -d out/epoch_0_step_2 ] && [ ! -e out/epoch_0_step_4 ] || fail "$(ls -A out)"
exit 0
