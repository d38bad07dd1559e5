#!/bin/bash
# What a run writes about itself: config.yaml, the lines and events of metrics.jsonl, what
# the log says before the first step, and texts sampled from eval_prompts.
. "$(dirname "$0")/lib.sh"
export LSAN_OPTIONS=detect_leaks=0 # what MPI libraries keep is not ours to free
make_corpus
make_config
prompts='eval_prompts=[leaf stem, the]'

# check FILE: every line is JSON with a time, and shares are shares
check() {
    python3 - "$1" <<'PY' || fail "$1"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert all(list(row)[0] == "step" and row["time"] > 1.7e9 for row in rows)
steps = [row for row in rows if "loss" in row]
for row in steps:
    shares = [row["share_" + name] for name in ("compute", "waiting", "reader", "optimizer")]
    assert all(0 <= share <= 1 for share in shares) and sum(shares) <= 1 + 1e-9, row
    assert row["mfu"] > 0 and row["tokens"] == 144 * row["step"], row
    token_flops = 6 * (2 * (4 * 32 * 32 + 2 * 32 * 128) + 257 * 32) + 6 * 2 * 32 * 25
    assert abs(row["flops"] / (row["tokens"] * token_flops) - 1) < 1e-6, row
start = [row for row in rows if row.get("event") == "start"][-1]
assert start["world"] == len(start["plan_bytes"]) and start["product_flops"] > 0
assert start["steps_total"] == 20 and start["tokens_per_step"] == 144
ranks = [row["ranks"] for row in rows if "ranks" in row]
assert ranks and all(len(values) == start["world"] for values in ranks[0].values()), ranks
PY
}
# in order, but for saves, which end when they are written, and what is TensorBoard's
events() { grep -o '"event": "[a-z_]*"' "$1/metrics.jsonl" | cut -d'"' -f4 | grep -vE 'save|layers' | xargs; }
samples() { grep '"event": "sample"' "$1/metrics.jsonl" | sed 's/, "time".*//'; }

must_train "$prompts" save_load.output_dir=one
check one/metrics.jsonl
[ "$(events one)" = "start sample sample sample sample end" ] ||
    fail "events: $(events one)"
[ "$(grep -c '"event": "save", "path": "one/epoch_0_step_[12]0"' one/metrics.jsonl)" = 2 ] ||
    fail "saves: $(grep save one/metrics.jsonl)"
grep -q 'ahead: steps 1 to 20 of 144 tokens each, .* epochs and 2880 tokens in all; .* left' \
    run.log || fail "not said what is ahead: $(cat run.log)"
grep -q 'products of .* GFLOP/s on all ranks; mfu is' run.log || fail "no formula"

# config.yaml is what trefoil config prints, and trains the same
"$trefoil" config -c one/config.yaml >printed || fail "config.yaml cannot be read"
cmp printed one/config.yaml || fail "config.yaml is not the effective configuration"

# texts depend on the weights, not on the layout, and do not change the training
must_train save_load.output_dir=plain
cmp <(curve one/metrics.jsonl) <(curve plain/metrics.jsonl) || fail "prompts change losses"
must_train "$prompts" save_load.output_dir=pp2 Distributed.pp_degree=2
check pp2/metrics.jsonl
[ "$(samples one | wc -l)" = 4 ] || fail "4 samples were wanted"
cmp <(samples one) <(samples pp2) || fail "other texts on two stages"
must_train "$prompts" save_load.output_dir=shards Distributed.sharding.sharding_degree=2 \
    Distributed.sharding.sharding_stage=3 batch_size.local_batch_size=3
samples shards | grep -q '"step": 20, "event": "sample", "prompt": "the", "text": "' ||
    fail "no texts with shards: $(tail -3 run.log)"

# a resumed run continues the file; what became of its processes stays
must_train "$prompts" save_load.output_dir=parts
rm -r parts/epoch_*_step_20
must_train "$prompts" save_load.output_dir=parts save_load.ckpt_dir=parts
check parts/metrics.jsonl
cmp <(curve parts/metrics.jsonl) <(curve one/metrics.jsonl) || fail "resumed: other losses"
cmp <(samples parts) <(samples one) || fail "resumed: other texts"
[ "$(events parts)" = "start sample sample end start sample sample end" ] ||
    fail "resumed: $(events parts)"

# a failure and a signal are events
train save_load.output_dir=wild Optimizer.lr.max_lr=1000 Optimizer.lr.min_lr=1000 \
    mix_precision.dtype=float16 Optimizer.grad_clip=0 max_steps=400 && fail "no divergence"
[ "$(events wild | awk '{print $NF}')" = failure ] || fail "no failure: $(events wild)"
grep -q '"event": "failure", "rank": 0, "diverged": true, "error": "step ' wild/metrics.jsonl ||
    fail "$(tail -1 wild/metrics.jsonl)"

# without a tokenizer there is nothing to encode with; a run of weeks is warned of
sed -i 's/"tokenizer": "[^"]*"/"tokenizer": ""/' data/words.meta.json
expect 2 'eval_prompts: .*tokenizer' "$trefoil" pretrain -c run.yaml -o "$prompts" \
    -o save_load.output_dir=lost -o Model.vocab_size=300
must_train save_load.output_dir=long max_steps=10 logging_freq=10 eval_freq=0
grep -q 'would take about' run.log && fail "a run of seconds is no run of weeks"
exit 0
