#!/bin/bash
# The log line field for field, the evaluation line, metrics.jsonl, and that it learns.
. "$(dirname "$0")/lib.sh"
make_corpus 200
make_config

must_train max_steps=60 Optimizer.lr.decay_steps=60
stamp='\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2},[0-9]{3}\] \[    INFO\] - '
number='[0-9]+\.[0-9]'
line="${stamp}global step [0-9]+, epoch: [0-9]+, batch: [0-9]+, loss: ${number}{9}"
line+=", avg_reader_cost: ${number}{5} sec, avg_batch_cost: ${number}{5} sec"
line+=", speed: ${number}{2} step/s, ips_total: [0-9]+ tokens/s, ips: [0-9]+ tokens/s"
line+=", learning rate: [0-9]\.[0-9]{5}e[-+][0-9]{2}"
[ "$(grep -cxE -- "$line" run.log)" -eq 60 ] || fail "log lines: $(grep -m1 global run.log)"
eval_line="${stamp}\[eval\] step [0-9]+, epoch: [0-9]+, batch: [0-9]+, loss: ${number}{9}"
eval_line+=", avg_eval_cost: ${number}{5} sec, speed: ${number}{2} step/s"
[ "$(grep -cxE -- "$eval_line" run.log)" -eq 6 ] || fail "eval: $(grep -m1 eval run.log)"
grep -q $'\033' run.log && fail "colour outside a terminal"

for key in step epoch batch loss grad_norm lr loss_scale reader_cost batch_cost ips_total \
    ips consumed_samples peak_memory_bytes; do
    [ "$(grep -c "\"$key\": " out/metrics.jsonl)" -ge 60 ] || fail "metrics lack $key"
done
first=$(grep -m1 -o '"loss": [^,]*' out/metrics.jsonl | cut -d' ' -f2)
last=$(grep -o '"loss": [^,]*' out/metrics.jsonl | tail -1 | cut -d' ' -f2)
awk -v a="$first" -v b="$last" 'BEGIN { exit !(b < 0.6 * a) }' ||
    fail "the loss went only from $first to $last"

# logging_freq thins the log, and the last step is always there
must_train max_steps=7 logging_freq=5 eval_freq=0
[ "$(grep -c 'global step' run.log)" -eq 2 ] || fail "logging_freq 5 of 7 steps"
grep -q 'global step 7,' run.log || fail "the last step is missing"

# max_steps left empty: the epochs decide
must_train max_steps= num_train_epochs=1 logging_freq=1000 eval_freq=0 save_load.save_steps=0
grep -q 'epoch: 0' run.log || fail "one epoch"
[ "$(grep -cE "$stamp\[Epoch 0 / Train\]: Loss = [0-9.]+ \| Throughput = [0-9.e+]+$" run.log)" -eq 1 ] ||
    fail "the line of an epoch: $(grep Epoch run.log)"
sed -i '/max_steps:/d' run.yaml
must_train num_train_epochs=1 logging_freq=1000 eval_freq=0 save_load.save_steps=0 \
    save_load.output_dir=by_epoch
[ "$(curve out/metrics.jsonl)" = "$(curve by_epoch/metrics.jsonl)" ] ||
    fail "max_steps left out: $(tail -1 by_epoch/metrics.jsonl)"

# a run that was resumed within an epoch says which steps its mean is of
must_train max_steps=3 eval_freq=0 save_load.save_steps=0 save_load.output_dir=half
must_train num_train_epochs=1 logging_freq=1000 eval_freq=0 save_load.save_steps=0 \
    save_load.ckpt_dir=half save_load.output_dir=rest
grep -qE '\[Epoch 0 / Train\]: Loss = .* \| since step 4$' run.log ||
    fail "resumed: $(grep Epoch run.log)"

# epochs that are given after a number of steps do not lose without a word
sed -i '1a \  max_steps: 2' run.yaml
must_train num_train_epochs=1 eval_freq=0 save_load.save_steps=-1
grep -q 'WARNING.*-o num_train_epochs=1: max_steps 2 (run.yaml:2:14) decides' run.log ||
    fail "outvoted: $(grep WARN run.log)"
