#!/bin/bash
# A model on the emulated GPU, one process: near the processor's losses; the same bits
# whatever is recomputed, offloaded or saved and in whatever order streams run; runs that
# move from one device to the other; two waits a step.
. "$(dirname "$0")/layout_lib.sh"
make_corpus
make_layout_config
sed -i 's/device: cpu/device: emulated/; s/global_batch_size: 12/global_batch_size: 6/
    s/num_layers: 4/num_layers: 2/; s/micro_batch_size:/micro_batch_size: 3/' run.yaml
offload=Distributed.sharding.sharding_offload=True

# -- near the processor
STEPS=20
run cpu 1 device=cpu eval_freq=0 save_load.save_steps=10
run gpu 1 eval_freq=0 save_load.save_steps=10
near gpu cpu 1e-5 1e-5
STEPS=1
for type in float16 bfloat16; do
    run cpu_$type 1 device=cpu mix_precision.dtype=$type eval_freq=0
    run gpu_$type 1 mix_precision.dtype=$type eval_freq=0
    near gpu_$type cpu_$type 1e-3
done

# -- the host waits for the losses and for the norm; step 11 has those of a checkpoint, too
[ "$(grep -v '"step": 11,' gpu/metrics.jsonl | grep -c '"device_waits": 2\b')" = 19 ] ||
    fail "waits: $(grep -o '"device_waits": [0-9]*' gpu/metrics.jsonl | sort | uniq -c)"
grep -q '"device": "emulated"' gpu/metrics.jsonl || fail "metrics.jsonl does not name the device"
grep -q 'device: emulated' run.log || fail "the log does not name the device"

# -- the same bits
STEPS=3
run one 1
run recomputed 1 use_recompute=True
same recomputed one
for order in late,order=reverse prefer:copy,order=forward prefer:compute random:5; do
    TREFOIL_EMULATED=streams=$order run ordered 1 save_load.save_steps=1
    same ordered one
    rm -r ordered
done
run offloaded 1 $offload
same offloaded one
mkdir disk
run on_disk 1 $offload save_load.offload_dir=disk
same on_disk one
for type in float16 bfloat16; do
    run half 1 mix_precision.dtype=$type
    run half_offloaded 1 mix_precision.dtype=$type $offload
    same half_offloaded half
    rm -r half half_offloaded
done

# -- resumed: on the same device with the same bits, and there and back
STEPS=12
cp -r gpu resumed
rm -r resumed/epoch_0_step_20
run resumed 1 save_load.ckpt_dir=resumed eval_freq=0
cmp <(curve resumed/metrics.jsonl) <(curve gpu/metrics.jsonl | head -12) ||
    fail "resumed with other bits"
cp -r cpu moved
rm -r moved/epoch_0_step_20
run moved 1 save_load.ckpt_dir=moved eval_freq=0 save_load.save_steps=0
STEPS=14
run moved 1 device=cpu save_load.ckpt_dir=moved eval_freq=0
cp -r cpu stayed
sed -i '/"step": 1[5-9]\|"step": 20/d' stayed/metrics.jsonl
near moved stayed 1e-5 1e-5

# -- what was trained is evaluated and continued on either
for device in cpu emulated; do
    "$trefoil" eval --ckpt gpu --data data --device $device 2>run.log |
        grep -oE '^loss [0-9]+\.[0-9]{5}' >loss_$device || fail "eval: $(tail -2 run.log)"
    "$trefoil" generate --ckpt gpu --prompt leaf --max_tokens 12 --greedy --device $device \
        >text_$device 2>run.log || fail "generate: $(tail -2 run.log)"
done
cmp loss_cpu loss_emulated && cmp text_cpu text_emulated || fail "another device, another result"
