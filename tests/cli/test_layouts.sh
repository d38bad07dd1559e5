#!/bin/bash
# The layout is not part of the result: the same bits for pipelines, the promised nearness
# for data and tensor parallelism, dropout on, odd sizes included.
mpirun=$(realpath "$(dirname "$0")/../parallel/mpirun.sh")
. "$(dirname "$0")/lib.sh"
make_corpus
make_config
sed -i 's/global_batch_size: 6/global_batch_size: 12/; s/local_batch_size: 6/local_batch_size:/
    s/micro_batch_size: 3/micro_batch_size: 1/; s/num_layers: 2/num_layers: 6/
    s/eval_freq: 10/eval_freq: 5/; s/eval_iters: 2/eval_iters: 1/' run.yaml

# run NAME PROCESSES settings...: train 6 steps into the directory NAME
run() {
    local name=$1 n=$2 settings=(-o max_steps=6 -o "save_load.output_dir=$1")
    shift 2
    for setting in "$@"; do settings+=(-o "$setting"); done
    "$mpirun" "$mpiexec" "$n" "$trefoil" pretrain -c run.yaml "${settings[@]}" >run.log 2>&1 ||
        fail "$name: $(tail -4 run.log)"
}

# same NAME REFERENCE: to the last digit, evaluations too
same() {
    cmp <(curve "$1/metrics.jsonl") <(curve "$2/metrics.jsonl") || fail "$1 differs from $2"
    cmp <(grep -o '"eval_loss": [^,]*' "$1/metrics.jsonl") \
        <(grep -o '"eval_loss": [^,]*' "$2/metrics.jsonl") || fail "$1 evaluates differently"
}

# near NAME REFERENCE: losses and norms of step 1 within 2e-6, losses of all within 1e-4
near() {
    paste <(grep '"loss"' "$1/metrics.jsonl") <(grep '"loss"' "$2/metrics.jsonl") |
        grep -oE '"(loss|grad_norm)": [^,]*' | awk '{ print $2 }' | awk '
            function apart(a, b) { return a > b ? (a - b) / b : (b - a) / b }
            { x[(NR - 1) % 4] = $1 }
            NR % 4 == 0 {
                loss = apart(x[0], x[2]); norm = apart(x[1], x[3]); n++
                if (loss > (n == 1 ? 2e-6 : 1e-4) || (n == 1 && norm > 2e-6)) bad = 1
            }
            END { exit bad || n != 6 }' || fail "$1 is too far from $2"
}

d=Distributed
run one 1
run pp2 2 $d.pp_degree=2 && same pp2 one
run pp3 3 $d.pp_degree=3 num_threads=2 && same pp3 one
run pp4 4 $d.pp_degree=4 && same pp4 one
run balanced 2 $d.pp_degree=2 $d.pp_balance=True && same balanced one
run pp2_v2 2 $d.pp_degree=2 $d.virtual_pp_degree=3 && same pp2_v2 one
run pp3_v2 3 $d.pp_degree=3 $d.virtual_pp_degree=2 && same pp3_v2 one
run f_then_b 2 $d.pp_degree=2 $d.pp_schedule=F-then-B && same f_then_b one
run dp2 2 && near dp2 one
run dp3 3 tensor_fusion=True && near dp3 one
run mp2 2 $d.mp_degree=2 && near mp2 one
run mp4 4 $d.mp_degree=4 && near mp4 one
run sp2 2 $d.mp_degree=2 $d.sequence_parallel=True && near sp2 one
run dp2_mp2_pp2 8 $d.mp_degree=2 $d.pp_degree=2 && near dp2_mp2_pp2 one
run dp2_pp2_v3 4 $d.pp_degree=2 $d.virtual_pp_degree=3 && near dp2_pp2_v3 one
first() { grep -m1 -o '"loss": [^,]*' "$1/metrics.jsonl"; }
[ "$(first dp2)" = "$(first one)" ] && [ "$(first dp3)" = "$(first one)" ] ||
    fail "the first loss of data parallelism differs"

# odd sizes: 5 layers on 2 stages, 3 heads a rank, a vocabulary mp does not divide, fewer
# micro-batches than stages, several samples a micro-batch
odd=(Model.num_layers=5 Model.hidden_size=48 Model.num_attention_heads=6 Model.vocab_size=259
    batch_size.global_batch_size=4 batch_size.micro_batch_size=2)
run odd 1 "${odd[@]}"
run odd_pp2 2 $d.pp_degree=2 "${odd[@]}" && same odd_pp2 odd
run odd_pp4 4 $d.pp_degree=4 "${odd[@]}" && same odd_pp4 odd
run odd_mp2 2 $d.mp_degree=2 "${odd[@]}" && near odd_mp2 odd
run odd_sp2_pp2 4 $d.mp_degree=2 $d.sequence_parallel=True $d.pp_degree=2 "${odd[@]}" &&
    near odd_sp2_pp2 odd

# a checkpoint of one layout goes on in another
run on_pp2 2 $d.pp_degree=2 save_load.save_steps=3
run resumed 1 save_load.ckpt_dir="$(echo on_pp2/epoch_*_step_3)"
cmp <(curve resumed/metrics.jsonl) <(curve one/metrics.jsonl | tail -3) ||
    fail "pp2 resumed on one process differs"
run back 4 $d.pp_degree=2 $d.mp_degree=2 save_load.ckpt_dir="$(echo on_pp2/epoch_*_step_3)"
