#!/bin/bash
# No room for a checkpoint: refused before step 1; when it runs out later, a sentence,
# exit 3, and the checkpoint before is intact. A limit on file sizes stands in for the
# disk, so that no mount and no root is needed.
. "$(dirname "$0")/lib.sh"
make_corpus
make_config
must_train max_steps=10 eval_freq=0
(
    ulimit -f 64 # 64 KiB: metrics fit, a model does not
    trap '' XFSZ
    train save_load.ckpt_dir=out eval_freq=0
)
[ $? -eq 3 ] || fail "a full disk must end with 3: $(tail -1 run.log)"
grep -qE "cannot write|not enough room" run.log || fail "no sentence: $(tail -1 run.log)"
ls out | grep -q tmp && fail "a half-written checkpoint is left: $(ls out)"
must_train save_load.ckpt_dir=out save_load.output_dir=next max_steps=12 eval_freq=0
grep -q "resumed from 'out/epoch_0_step_10'" run.log || fail "the one before is damaged"
