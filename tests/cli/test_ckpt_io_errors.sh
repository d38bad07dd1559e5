#!/bin/bash
# System calls that fail, one after the other, while a run saves and while it resumes. A
# disk or a server that fails says nothing of what is on it: no checkpoint is set aside,
# the exit code is 0 or 3, and the run can be continued to the same end.
. "$(dirname "$0")/lib.sh"
preload=$(dirname "$trefoil")/tests/libfault_preload.so
export ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0
make_corpus
make_config
base="max_steps=6 eval_freq=0 save_load.save_steps=2"
must_train $base save_load.output_dir=whole
must_train $base save_load.output_dir=part max_steps=4

# fault OP NTH COUNT ERRNO settings...: train with calls on what is in 'disk' that fail
fault() {
    local settings=()
    for setting in "${@:5}"; do settings+=(-o "$setting"); done
    LD_PRELOAD=$preload FAULT_OP=$1 FAULT_SUB=disk FAULT_NTH=$2 FAULT_COUNT=$3 \
        FAULT_ERRNO=$4 timeout 300 "$trefoil" pretrain -c run.yaml "${settings[@]}" 2>run.log
}

# check WHAT CODE: after a run with faults
check() {
    [ $2 -eq 0 ] || [ $2 -eq 3 ] || fail "$1: ended with $2: $(tail -2 run.log)"
    ! ls disk 2>/dev/null | grep -q damaged || fail "$1: set aside: $(tail -2 run.log)"
    local from=
    ! ls -d disk/epoch_* >/dev/null 2>&1 || from=save_load.ckpt_dir=disk
    must_train $base save_load.output_dir=disk $from
    cmp {disk,whole}/epoch_0_step_6/model.safetensors || fail "$1: other weights"
    cmp <(curve disk/metrics.jsonl) <(curve whole/metrics.jsonl) || fail "$1: other losses"
    ! ls -A disk | grep -qE 'damaged|tmp|lock|trash' || fail "$1: left $(ls -A disk)"
}

# EIO, ESTALE, ETIMEDOUT, ENOMEM, EACCES and EMFILE take turns
errnos=(5 116 110 12 13 24)
turn=0
for op in open pread read stat fstat rename fsync write pwrite mkdir unlink opendir; do
    for calls in "1 1" "4 1000"; do # the first that fails, and how many
        errno=${errnos[turn++ % 6]}
        rm -rf disk
        fault $op $calls $errno $base save_load.output_dir=disk
        check "run, $op $calls, errno $errno" $?
        rm -rf disk && cp -r part disk
        fault $op $calls $errno $base save_load.output_dir=disk save_load.ckpt_dir=disk
        check "resume, $op $calls, errno $errno" $?
    done
done

# reading that keeps failing: told, nothing renamed, 3
for errno in "${errnos[@]}"; do
    rm -rf disk && cp -r part disk
    LD_PRELOAD=$preload FAULT_OP=pread FAULT_SUB=safetensors FAULT_NTH=3 FAULT_COUNT=100000 \
        FAULT_ERRNO=$errno "$trefoil" pretrain -c run.yaml -o save_load.ckpt_dir=disk 2>run.log
    [ $? -eq 3 ] || fail "errno $errno: $(tail -1 run.log)"
    grep -q "cannot read .*disk/epoch_0_step_4/.*was left as it is" run.log ||
        fail "errno $errno: $(tail -1 run.log)"
    diff -r part disk || fail "errno $errno: it changed"
    # the same for who only wants the weights
    for command in "eval --data data/words" "export --to hf --output hf" "generate --prompt a" \
        "inspect --verify"; do
        dir="--ckpt disk"
        [ "${command%% *}" != inspect ] || dir=disk
        LD_PRELOAD=$preload FAULT_OP=pread FAULT_SUB=model.safetensors FAULT_COUNT=100000 \
            FAULT_ERRNO=$errno "$trefoil" $command $dir >out.log 2>&1
        [ $? -eq 3 ] || fail "$command, errno $errno: $(tail -1 out.log)"
    done
done

# and is tried again where that was asked for, by one process and by two
for layout in "" "-o Distributed.dp_degree=2 -o batch_size.local_batch_size=3"; do
    rm -rf disk healed && cp -r part disk
    LD_PRELOAD=$preload FAULT_OP=pread FAULT_SUB=step_4/optimizer FAULT_COUNT=100000 \
        FAULT_ERRNO=116 FAULT_UNTIL=$PWD/healed "$trefoil" pretrain -c run.yaml $layout \
        --max_restarts 3 -o max_steps=6 -o eval_freq=0 -o save_load.ckpt_dir=disk \
        -o save_load.output_dir=disk >run.log 2>&1 &
    pid=$!
    until grep -q 'Restart 1 of 3' run.log || ! kill -0 $pid 2>/dev/null; do sleep 0.1; done
    touch healed
    wait $pid || fail "[$layout] it was not started again: $(tail -2 run.log)"
    ! ls disk | grep -q damaged || fail "[$layout] $(ls disk)"
    grep -q "resumed from 'disk/epoch_0_step_4'" run.log || fail "[$layout] $(cat run.log)"
done

# links that somebody planted where files are going to be written stay what they are
rm -rf disk && cp -r part disk
echo precious >victim
for name in latest.tmp metrics.jsonl.tmp tokenizer.tmp; do ln -s "$PWD/victim" disk/$name; done
must_train $base save_load.output_dir=disk save_load.ckpt_dir=disk
[ "$(cat victim)" = precious ] || fail "a planted link was followed"

# samples that cannot be read any more: said with the step, by one process and by two,
# which stop together
for layout in "" "-o Distributed.dp_degree=2 -o batch_size.local_batch_size=3"; do
    LD_PRELOAD=$preload FAULT_OP=pread FAULT_SUB=words.bin FAULT_NTH=50 FAULT_COUNT=100000 \
        timeout 100 "$trefoil" pretrain -c run.yaml $layout -o max_steps=400 -o eval_freq=0 \
        -o save_load.save_steps=-1 2>run.log
    [ $? -eq 3 ] || fail "[$layout] samples: $(tail -1 run.log)"
    grep -qE 'step [0-9]+: (rank 0 on .*, the first of 2 that failed: )?step [0-9]+, sample [0-9]+: cannot read .*words.bin' \
        run.log || fail "[$layout] samples: $(tail -1 run.log)"
done
