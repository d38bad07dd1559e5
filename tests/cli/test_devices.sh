#!/bin/bash
# PaddleFleetX's command lines: --devices selects GPUs by index, and its scripts stand for
# pretrain.
. "$(dirname "$0")/lib.sh"
export LSAN_OPTIONS=detect_leaks=0 # what MPI libraries keep is not ours to free
make_corpus
make_config
unset CUDA_VISIBLE_DEVICES

# which rank had which GPU: "rank:gpu rank:gpu"
selected() {
    rm -f counters
    TREFOIL_EMULATED="counters=$work/counters${gpus:-}" "$trefoil" launch "$@" pretrain -c run.yaml \
        -o device=emulated -o dp_degree= -o local_batch_size= -o micro_batch_size=3 \
        -o max_steps=1 -o eval_freq=0 -o save_steps=-1 2>run.log || return
    sed 's/.*"local_rank": \([0-9]*\), "gpu": \([0-9]*\),.*/\1:\2/' counters | sort | tr '\n' ' '
}
check() {
    local wanted=$1 got
    shift
    got=$(selected "$@")
    [ "$got" = "$wanted" ] || fail "$*: '$got', not '$wanted': $(tail -2 run.log)"
}
check '0:0 1:1 ' -n 2
check '0:3 1:1 ' --devices 3,1
check '0:1 ' --devices 1
check '0:2 1:7 ' -n 2 --devices "2, 7"
export CUDA_VISIBLE_DEVICES=4,5,6
check '0:6 1:4 ' --devices 2,0
check '0:4 1:5 ' -n 2
gpus=,gpus=4
check '' --devices 2,0
grep -q 'there is no GPU [46]: 4 are emulated' run.log log/workerlog.* || fail "gpus: $(tail -1 run.log)"
gpus=
expect 2 "devices '1,3': there is no GPU 3, because CUDA_VISIBLE_DEVICES is '4,5,6'" \
    "$trefoil" launch --devices 1,3 pretrain -c run.yaml -o device=emulated -o local_batch_size=3
for device in "--device emulated" --device=emulated "--device gpu"; do
    for command in eval generate; do
        expect 2 "there is no GPU 3, because CUDA_VISIBLE_DEVICES" \
            "$trefoil" launch --devices 3 $command --ckpt none $device
    done
    expect 2 'chooses GPUs of this machine: with --hosts' \
        "$trefoil" launch --devices 0,1 --hosts a,b eval --ckpt none $device
done
expect 2 'chooses GPUs of this machine: with --hosts' \
    "$trefoil" launch --devices 0,1 --hosts a,b pretrain -c run.yaml -o device=emulated \
    -o local_batch_size=3

# on a processor the list is a number of ranks; the scripts mean pretrain
for device in "" "--device cpu" --device=cpu "--device=gpu --device cpu"; do
    expect 2 'nothing to evaluate' env CUDA_VISIBLE_DEVICES= \
        "$trefoil" launch --devices 0,1 eval --ckpt none $device
done
on_cpu="-o max_steps=1 -o eval_freq=0 -o save_steps=-1"
for script in run_pretrain.py ./tools/train.py /a/b/run_pretrain.py; do
    "$trefoil" launch --devices 1,3 $script -c run.yaml $on_cpu -o local_batch_size=3 \
        2>run.log || fail "$script: $(tail -2 run.log)"
    grep -q 'global step 1' run.log log/workerlog.0 || fail "$script: $(tail -2 run.log)"
    "$trefoil" $script -c run.yaml $on_cpu 2>run.log || fail "alone, $script: $(tail -2 run.log)"
    grep -q 'global step 1' run.log || fail "alone, $script: $(tail -2 run.log)"
done
"$trefoil" tools/train.py -c run.yaml $on_cpu -o dp_degree=2 -o local_batch_size=3 2>run.log ||
    fail "started itself: $(tail -2 run.log)"
expect 2 "unknown command 'tools/export.py'" "$trefoil" tools/export.py -c run.yaml
expect 2 "'tools/eval.py' is not a command" "$trefoil" launch -n 2 tools/eval.py -c run.yaml
exit 0
