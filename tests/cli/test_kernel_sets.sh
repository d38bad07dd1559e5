#!/bin/bash
# Sets of kernels: each that runs here can be chosen and gives the bits of the others, in
# float32 and bfloat16, on every layout; one that does not run here is refused.
. "$(dirname "$0")/layout_lib.sh"
tiled=$(dirname "$trefoil")/tests/trefoil_tiled # has tiles wherever there is AVX-512
STEPS=2
make_corpus
make_layout_config
# sums over more than one block of products, and over parts of them
sed -i 's/hidden_size: 32/hidden_size: 320/; s/num_layers: 4/num_layers: 2/
    s/global_batch_size: 12/global_batch_size: 2/; s/eval_freq: 2/eval_freq: 0/
    s/max_seq_len: 24/max_seq_len: 12/' run.yaml

"$trefoil" selftest --kernels >table.txt 2>errors.txt || fail "$(cat errors.txt)"
mapfile -t here < <(awk '$2 == "yes" && $3 == "yes" { print $1 }' table.txt)
mapfile -t lacking < <(awk 'NR > 1 && $3 == "no" { print $1 }' table.txt)
[ "${here[0]}" = generic ] || fail "no generic set in: $(cat table.txt)"
best=$(sed -nE 's/^float32 models compute with //p' table.txt)
[ "$(sed -n 's/^kernels: \([a-z0-9]*\).*/\1/p' < <("$trefoil" --version))" = "$best" ] ||
    fail "--version names others than $best: $("$trefoil" --version)"

# what is refused, and before anything is made
expect 2 'must be one of auto generic avx2' "$trefoil" eval --ckpt x --data y --cpu_kernels sse
expect 2 'cpu_kernels' "$trefoil" pretrain -c run.yaml -o cpu_kernels=sse
for set in "${lacking[@]}"; do
    refusal="cpu_kernels is '$set', and this processor lacks .*; here can be had: generic"
    expect 2 "$refusal" "$trefoil" pretrain -c run.yaml -o cpu_kernels="$set"
    expect 2 "$refusal" "$trefoil" pretrain -c run.yaml -o cpu_kernels="$set" \
        -o Distributed.dp_degree=2
    expect 2 "$refusal" "$trefoil" selftest --cpu_kernels "$set"
done
[ ! -e out ] || fail "a refused run made 'out'"

# A program with a sanitizer, which wants more addresses than this, would compute for
# minutes: it takes two sets, and one layout.
sets=("${here[@]}")
is_slow=false
(ulimit -v 4000000 && "$trefoil" --version >/dev/null 2>&1) || is_slow=true
if $is_slow; then sets=("${here[@]:0:2}"); fi

# compare NAME PROCESSES settings...: with every set, to the last digit
compare() {
    local name=$1 set
    shift
    if $is_slow && [[ $name != one.* ]]; then return; fi
    for set in "${sets[@]}"; do
        run "$name.$set" "$@" cpu_kernels="$set"
        [ "$set" = generic ] || same "$name.$set" "$name.generic"
    done
    if [[ " ${sets[*]} " = *" avx512 "* ]]; then
        trefoil=$tiled run "$name.tiled" "$@" cpu_kernels=amx
        same "$name.tiled" "$name.generic"
    fi
}

d=Distributed
for dtype in float32 bfloat16; do
    t=mix_precision.dtype=$dtype
    compare one.$dtype 1 $t save_load.save_steps=2
    compare mp2.$dtype 2 $t $d.mp_degree=2
    compare pp2.$dtype 2 $t $d.pp_degree=2
    compare stage3.$dtype 2 $t $(stage 2 3)
done

# the log names the set; amx is for bfloat16
run chosen 1
grep -q "kernels: $best\$" run.log || fail "the log does not name $best"
run generic 1 cpu_kernels=generic max_steps=1
grep -q 'kernels: generic$' run.log || fail "the log does not name generic"
if [[ " ${sets[*]} " = *" avx512 "* ]]; then
    trefoil=$tiled run float 1 cpu_kernels=amx max_steps=1
    grep -q 'kernels: avx512$' run.log || fail "amx in a float32 model is not avx512"
    trefoil=$tiled run tiles 1 mix_precision.dtype=bfloat16 max_steps=1
    grep -q 'kernels: amx$' run.log || fail "auto does not take tiles"
fi

# resumed with another set; and what is computed from a checkpoint
run resumed.generic 1 max_steps=3 cpu_kernels=generic save_load.ckpt_dir=one.float32.generic
run resumed 1 max_steps=3 save_load.ckpt_dir=one.float32.generic
same resumed resumed.generic
head -c 200 words.txt >few.txt
for set in "${sets[@]}"; do
    "$trefoil" generate --ckpt one.float32.generic --prompt 'leaf stem' --max_tokens 8 \
        --seed 3 --cpu_kernels "$set" >"$set.text" 2>err.log || fail "$set: $(cat err.log)"
    "$trefoil" eval --ckpt one.float32.generic --data few.txt --cpu_kernels "$set" \
        --max_seq_len 8 >"$set.eval" 2>err.log || fail "$set: $(cat err.log)"
    cmp "$set.text" generic.text || fail "$set generates other words"
    cmp "$set.eval" generic.eval || fail "$set evaluates differently"
done
