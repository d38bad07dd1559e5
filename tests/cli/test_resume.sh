#!/bin/bash
# A resumed run prints the losses of an uninterrupted one, to the last digit.
. "$(dirname "$0")/lib.sh"
make_corpus
make_config

must_train save_load.output_dir=whole
curve whole/metrics.jsonl >whole.curve
[ "$(wc -l <whole.curve)" -eq 20 ] || fail "20 steps were wanted"

# stopped at step 10 and continued from there, in the same directory
must_train save_load.output_dir=parts max_steps=10
must_train save_load.output_dir=parts save_load.ckpt_dir=parts
curve parts/metrics.jsonl | cmp - whole.curve || fail "10 + 10 steps differ from 20"
cmp whole/epoch_*_step_20/model.safetensors parts/epoch_*_step_20/model.safetensors ||
    fail "the weights of step 20 differ"

# continued from a checkpoint that is named, into another directory
must_train save_load.output_dir=third save_load.ckpt_dir="$(echo whole/epoch_*_step_10)"
curve third/metrics.jsonl | cmp - <(tail -10 whole.curve) || fail "a named one differs"

# a crash after step 15: the lines of steps 11 to 15 are written again, not twice
must_train save_load.output_dir=crash max_steps=15
rm -r crash/epoch_*_step_15
must_train save_load.output_dir=crash save_load.ckpt_dir=crash
curve crash/metrics.jsonl | cmp - whole.curve || fail "the metrics of a crashed run differ"

# a change that moves text between training and validation is a warning that says so
from="save_load.ckpt_dir=whole save_load.output_dir=changed max_steps=20"
must_train $from dataset.split=80,18,2 seed=8 logging_freq=2
for what in 'dataset.split was \[90.0,8.0,2.0\], is \[80.0,18.0,2.0\]: text that was held out for validation may be trained on' \
    'seed was 7, is 8: training samples are drawn in another order'; do
    grep -qE "WARNING.*changed since the checkpoint: $what" run.log || fail "$(cat run.log)"
done
grep -q "INFO.*changed since the checkpoint: logging_freq" run.log || fail "$(cat run.log)"
must_train $from
! grep -q "WARNING.*changed since" run.log || fail "nothing changed: $(cat run.log)"
