#!/bin/bash
# Evaluation on layouts: data and pipe ranks change no digit, model ranks none that counts;
# the layout is started by the command itself or joined; what does not fit is refused; the
# evaluations of a training run and `trefoil eval` say the same.
mpirun=$(realpath "$(dirname "$0")/../parallel/mpirun.sh")
. "$(dirname "$0")/lib.sh"
export ASAN_OPTIONS=detect_leaks=0 # MPI libraries keep memory until the end of a process
mkdir tmp
export TMPDIR=$work/tmp # where jobs leave nothing

# A text that a small model of three layers knows by heart after some steps; its letters
# are tokens of both halves of the vocabulary.
for _ in $(seq 60); do
    printf 'the cat sat on the mát\n\na dog ran to the sea\n\n'
done >words.txt
mkdir data
"$trefoil" prepare --input words.txt --output data/words 2>prepare.log || fail prepare
make_config
sed -i 's/num_layers: 2/num_layers: 3/' run.yaml
must_train max_steps=400 Optimizer.lr.decay_steps=400 eval_freq=0 save_steps=300 \
    Model.hidden_dropout_prob=0 Model.attention_probs_dropout_prob=0 dataset.split=1,0,0
cat >cloze.jsonl <<JSON
{"text": "the cat sat on the mát"}
{"text": "a dog ran to the sea "}
{"text": "the cat sat on the sea"}
{"text": "the cat sat on the mátt"}
{"text": "the cat sat on the mát a dog ran to the sea the cat sat on the mát"}
{"text": "a dog ran to the mát"}
{"text": "the dog sat on the cat"}
JSON

what=(--ckpt out --json --num_threads 1 --batch_size 3 --data data/words --overlapping_eval 7
    --cloze cloze.jsonl)

value() { # of a key of one JSON object
    sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p"
}

degrees() { # DP MP PP
    echo --dp_degree "$1" --mp_degree "$2" --pp_degree "$3"
}

# Standard output of the command is the object, whoever computed it.
evaluate() {
    "$trefoil" eval "${what[@]}" "$@" 2>eval.log || fail "eval $*: $(cat eval.log)"
}

# All but the loss and the perplexities to the digit; these within 1e-5.
near() {
    cmp <(sed 's/"loss":.*"tokens"/"tokens"/' "$1") <(sed 's/"loss":.*"tokens"/"tokens"/' one.json) ||
        fail "$2: $(cat "$1") is not $(cat one.json)"
    awk -v a="$(value loss <"$1")" -v b="$(value loss <one.json)" \
        'BEGIN { d = (a - b) / b; exit !(d * d < 1e-10) }' ||
        fail "$2: the loss is $(value loss <"$1"), not $(value loss <one.json)"
}

evaluate >one.json
[ "$(value cloze_correct <one.json)" -ge 2 ] && [ "$(value cloze_correct <one.json)" -le 5 ] ||
    fail "some texts are right and some are not: $(cat one.json)"
for layout in '2 1 1' '1 1 2' '2 1 3'; do
    evaluate $(degrees $layout) >got.json
    cmp got.json one.json || fail "dp, mp, pp $layout: $(cat got.json) is not $(cat one.json)"
done
for layout in '1 2 1' '1 2 2' '2 2 2'; do
    evaluate $(degrees $layout) >got.json
    near got.json "dp, mp, pp $layout"
done
[ -z "$(ls tmp)" ] || fail "jobs left $(ls tmp)"

# Jobs that others start; data ranks are what is left.
"$mpirun" "$mpiexec" 4 "$trefoil" eval "${what[@]}" --pp_degree 2 >ranks.out ||
    fail "dp 2 x pp 2 under mpirun: $(cat ranks.out)"
grep '^{' ranks.out | cmp - one.json || fail "mpirun: $(cat ranks.out)"
"$trefoil" launch -n 2 eval "${what[@]}" --pp_degree 2 >launched.json 2>launch.log ||
    fail "launch: $(cat launch.log)"
cmp launched.json one.json || fail "launch: $(cat launched.json launch.log)"

# Refused before anything is started, with what pretrain says.
for pair in 'mp_degree=3:3 does not divide num_attention_heads 4' 'pp_degree=4:3 layers'; do
    setting=${pair%%:*}
    expect 2 "${pair#*:}" "$trefoil" eval "${what[@]}" "--${setting%=*}" "${setting#*=}"
    expect 2 "${pair#*:}" "$trefoil" pretrain -c run.yaml -o "Distributed.$setting"
done
expect 2 'a degree is at least 1' "$trefoil" eval "${what[@]}" --mp_degree 0
expect 2 'a degree is at least 1' "$trefoil" eval "${what[@]}" --dp_degree -1
expect 2 'not there' "$trefoil" eval --ckpt nowhere --data data/words --pp_degree 2
[ -z "$(ls tmp)" ] || fail "refusals left $(ls tmp)"

refused_by_ranks() { # N PATTERN options...
    local n=$1 pattern=$2
    shift 2
    "$mpirun" "$mpiexec" "$n" "$trefoil" eval "${what[@]}" "$@" >ranks.out 2>&1 &&
        fail "$n processes did $*"
    grep -qE -- "$pattern" ranks.out || fail "'$*' does not say '$pattern': $(cat ranks.out)"
}
refused_by_ranks 3 'mp 2 takes a multiple of 2 processes, but there are 3' --mp_degree 2
refused_by_ranks 2 'dp 3 takes 3 processes, but there are 2' --dp_degree 3
refused_by_ranks 3 'does not divide num_attention_heads 4' --mp_degree 3

# What a rank finds out is the job's failure; a full standard output too.
mkdir foreign
"$trefoil" tokenizer train --input words.txt --vocab_size 300 --output more 2>tokenizer.log ||
    fail "tokenizer: $(cat tokenizer.log)"
"$trefoil" prepare --input words.txt --tokenizer more --output foreign/words 2>prepare.log ||
    fail "prepare: $(cat prepare.log)"
expect 2 "prepared with another tokenizer" "$trefoil" eval --ckpt out \
    --data foreign/words --dp_degree 2 --mp_degree 2
rm foreign/words.meta.json
expect 2 "outside of the model's vocabulary of 257" "$trefoil" eval --ckpt out \
    --data foreign/words --dp_degree 2 --mp_degree 2
"$trefoil" eval "${what[@]}" --pp_degree 2 >/dev/full 2>full.log
[ $? -eq 3 ] && grep -q 'cannot write to standard output' full.log ||
    fail "a full disk: $(cat full.log)"
rm -rf tmp/*

# A damaged checkpoint is passed over by all ranks when one finds it, and left where it is.
cp -r out damaged
newest=$(cat damaged/latest)
size=$(stat -c %s "damaged/$newest/model.safetensors")
printf '\377\377' | dd of="damaged/$newest/model.safetensors" bs=1 seek=$((size - 100)) \
    conv=notrunc status=none
"$trefoil" eval --ckpt damaged --json --data data/words --pp_degree 2 >older.json 2>eval.log ||
    fail "an older checkpoint: $(cat eval.log)"
[ "$(value step <older.json)" -eq 300 ] || fail "the older one has step 300: $(cat older.json)"
grep -q "skipped the checkpoint 'damaged/$newest'" eval.log || fail "$(cat eval.log)"
[ -d "damaged/$newest" ] || fail "it was moved away"

# A training run that evaluates all of one document: 12 windows of 24 tokens and one more.
mkdir two
{
    head -c 1200 words.txt | tr '\n' ' '
    printf '\n\n'
    tail -c 289 words.txt | tr '\n' ' ' | head -c 288
} >two.txt
tail -n 1 two.txt >second.txt
"$trefoil" prepare --input two.txt --output two/two 2>prepare.log || fail prepare
mkdir second
"$trefoil" prepare --input second.txt --output second/second 2>prepare.log || fail prepare
rm -rf out
settings=(max_steps=6 eval_freq=6 eval_iters=2 save_steps=0 dataset.input_dir=two
    dataset.split=1,1,0)
must_train "${settings[@]}"
trained=$(sed -n 's/.*"eval_loss": \([^,]*\),.*/\1/p' out/metrics.jsonl)
for layout in '1 1 1' '1 2 2'; do
    "$trefoil" eval --ckpt out --json --data second/second $(degrees $layout) >got.json 2>eval.log ||
        fail "eval: $(cat eval.log)"
    [ "$(value tokens <got.json)" -eq 288 ] || fail "12 windows of 24: $(cat got.json)"
    awk -v a="$(value loss <got.json)" -v b="$trained" \
        'BEGIN { d = (a - b) / b; exit !(d * d < 1e-14) }' ||
        fail "$layout: eval says $(value loss <got.json), training $trained"
done
exit 0
