#!/bin/bash
# Sharding is not part of the result: the bits of plain data parallelism, whatever the
# stage, the degree and the layout around it; but for several micro-batches in stages 2
# and 3, whose gradients are added in another order.
. "$(dirname "$0")/layout_lib.sh"
make_corpus
make_layout_config

# The predicted bytes of rank $2 in column $1 of the memory table in run.log, in MB.
predicted() {
    awk -v column="$1" -v rank="$2" '{ for (i = 1; i < NF; i++)
        if ($i == "rank" && $(i + 1) == rank && !seen++) print $(i + 1 + column) }' run.log
}

offload=Distributed.sharding.sharding_offload=True

# one micro-batch a step: every stage, degrees that divide nothing
run dp2 2
whole=$(predicted 3 1)
[ -n "$whole" ] || fail "no memory table: $(cat run.log)"
grep -qE 'rank 1 .*[0-9] \([+-][0-9.]+%\)' run.log || fail "no measured peak at the end"
for s in 1 2 3; do run two_$s 2 $(stage 2 $s) && same two_$s dp2; done
awk -v a="$whole" -v b="$(predicted 3 1)" 'BEGIN { exit !(b < 0.65 * a && b > 0.35 * a) }' ||
    fail "of $whole MB of optimizer state two ranks have $(predicted 3 1) each"
run dp3 3
for s in 1 2 3; do run three_$s 3 $(stage 3 $s) && same three_$s dp3; done

# offloaded
run disk_1 2 $(stage 2 1) $offload && same disk_1 dp2
run disk_3 2 $(stage 2 3) $offload save_load.offload_dir=disk && same disk_3 dp2
grep -q 'on disk' run.log || fail "the memory table does not tell what is on disk"
[ -z "$(ls -A disk)" ] || fail "left in offload_dir: $(ls -A disk)"
run alone 1
run alone_disk 1 $offload && same alone_disk alone

# several micro-batches
m=batch_size.micro_batch_size=2
run many 2 $m
run many_1 2 $m $(stage 2 1) $offload && same many_1 many
for s in 2 3; do run many_$s 2 $m $(stage 2 $s) && near many_$s many; done

# a checkpoint of shards goes on anywhere
run saved 2 $(stage 2 3) $offload save_load.save_steps=2
run resumed 2 save_load.ckpt_dir="$(echo saved/epoch_*_step_2)"
cmp <(curve resumed/metrics.jsonl) <(curve dp2/metrics.jsonl | tail -2) ||
    fail "stage 3 resumed as dp2 differs"
run back 3 $(stage 3 2) save_load.ckpt_dir="$(echo saved/epoch_*_step_2)"

# nowhere to offload to: a sentence, before step 1
touch file
refused() { "$trefoil" pretrain -c run.yaml -o $offload -o "save_load.offload_dir=$1"; }
expect 3 "save_load.offload_dir 'file/below' cannot be used" refused file/below
(
    ulimit -f 64 # 64 KiB stand in for the disk
    trap '' XFSZ
    expect 3 'save_load.offload_dir' refused .
) || exit 1
mkdir small
if mount -t tmpfs -o size=128k none small 2>/dev/null; then
    trap 'cd /; umount "$work/small"; rm -rf "$work"' EXIT
    expect 3 "not enough room in save_load.offload_dir 'small': .* MB are free" refused small
    mount -o remount,size=64m small
    expect 2 "save_load.offload_dir.*memory|memory.*save_load.offload_dir" refused small
fi
grep -q 'global step' expect.err && fail "refused only after step 1"
exit 0
