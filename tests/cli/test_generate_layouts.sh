#!/bin/bash
# Generation gives the same text however it is computed: prompts at a time, threads, data
# ranks and stages change no bit; tensor parallelism rounds differently and still takes the
# same likeliest tokens.
mpirun=$(realpath "$(dirname "$0")/../parallel/mpirun.sh")
. "$(dirname "$0")/lib.sh"
export ASAN_OPTIONS=detect_leaks=0 # MPI libraries keep memory until the end of a process

mkdir tmp
export TMPDIR=$work/tmp # where jobs leave nothing

# Documents that end soon, and ones that go on for longer than the model's 32 positions.
for _ in $(seq 60); do
    printf 'the cat sat on the mat\n\na dog ran'
    for _ in $(seq 9); do printf ' to the sea and back'; done
    printf '\n\n'
done >words.txt
mkdir data
"$trefoil" prepare --input words.txt --output data/words 2>prepare.log || fail prepare
make_config
tiny=(max_steps=300 Optimizer.lr.decay_steps=300 eval_freq=0 save_steps=0 dataset.split=1,0,0
    Model.hidden_dropout_prob=0 Model.attention_probs_dropout_prob=0)
must_train "${tiny[@]}"
must_train "${tiny[@]}" max_steps=60 save_load.output_dir=half mix_precision.dtype=bfloat16

# Some of them end at once, one is longer than the model's positions.
cat >prompts.txt <<TEXT
the
a dog
the cat sat on the mat
the cat sat on the mat, a dog ran to the sea, the cat sat on the mat
a
sea
the cat ran
a dog sat on the mat and ran
the mat
TEXT

# generate FILE options...: what it prints goes to FILE
generate() {
    local to=$1
    shift
    "$trefoil" generate --num_threads 1 --ckpt out --prompts prompts.txt "$@" >"$to" \
        2>generate.log || fail "generate $*: $(tail -3 generate.log)"
}

# same FILE REFERENCE WHAT
same() {
    cmp "$1" "$2" || fail "$3 changes the text: $(diff "$1" "$2" | head -4)"
}

hot=(--temperature 1.3 --max_tokens 45 --json)
generate one.json "${hot[@]}" --batch_size 1
[ "$(wc -l <one.json)" -eq 9 ] || fail "nine objects: $(cat one.json)"
grep -q '"stop":"eos"' one.json && grep -q '"stop":"length"' one.json ||
    fail "some end and some do not: $(cat one.json)"
for n in 3 8 100; do
    generate batch.json "${hot[@]}" --batch_size $n
    same batch.json one.json "--batch_size $n"
done
generate threads.json "${hot[@]}" --num_threads 2
same threads.json one.json "--num_threads 2"

for layout in '--dp_degree 2' '--pp_degree 2' '--dp_degree 2 --pp_degree 2 --batch_size 2'; do
    generate layout.json "${hot[@]}" $layout
    same layout.json one.json "$layout"
done
"$mpirun" "$mpiexec" 3 "$trefoil" generate --ckpt out --prompts prompts.txt "${hot[@]}" \
    >ranks.out 2>&1 || fail "on 3 processes: $(tail -3 ranks.out)"
same <(grep '^{' ranks.out) one.json "mpirun on 3 processes"
"$trefoil" launch -n 2 generate --ckpt out --prompts prompts.txt "${hot[@]}" \
    >launched.json 2>launch.log || fail "launch: $(tail -3 launch.log)"
same launched.json one.json "trefoil launch"

# 50 likeliest tokens after each prompt, as text.
likeliest=(--greedy --max_tokens 50)
generate greedy.txt "${likeliest[@]}"
for layout in '--mp_degree 2' '--mp_degree 2 --pp_degree 2' '--mp_degree 4' \
    '--dp_degree 2 --batch_size 1'; do
    generate layout.txt "${likeliest[@]}" $layout
    same layout.txt greedy.txt "$layout"
done

# One prompt, token by token.
"$trefoil" generate --ckpt out --prompt 'the cat' "${likeliest[@]}" >a.txt 2>generate.log ||
    fail "one prompt: $(cat generate.log)"
"$trefoil" generate --ckpt out --prompt 'the cat' "${likeliest[@]}" --pp_degree 2 --mp_degree 2 \
    >b.txt 2>generate.log || fail "one prompt on four processes: $(tail -3 generate.log)"
same b.txt a.txt "one prompt on four processes"

# Weights of 16 bits are read as they were trained, by any layout.
generate half.json "${hot[@]}" --ckpt half --batch_size 1
! cmp -s half.json one.json || fail "two models say the same"
generate batch.json "${hot[@]}" --ckpt half
same batch.json half.json "a batch of a bfloat16 model"
generate layout.json "${hot[@]}" --ckpt half --pp_degree 2
same layout.json half.json "pp 2 of a bfloat16 model"

refuse() { # PATTERN options...
    local pattern=$1
    shift
    expect 2 "$pattern" "$trefoil" generate --ckpt out --prompt a "$@"
}
refuse 'mp_degree' --mp_degree 3
refuse 'pp_degree' --pp_degree 3
refuse 'a degree is at least 1' --mp_degree 0
refuse 'a degree is at least 1' --dp_degree -1
refuse 'batch_size must be at least 1' --batch_size 0
"$mpirun" "$mpiexec" 3 "$trefoil" generate --ckpt out --prompt a --mp_degree 2 >ranks.out 2>&1
[ $? -ne 0 ] || fail "mp 2 on 3 processes"
grep -q 'but there are 3' ranks.out || fail "mp 2 on 3 processes: $(cat ranks.out)"
[ -z "$(ls tmp)" ] || fail "jobs left in TMPDIR: $(ls tmp)"
exit 0
