#!/bin/bash
# Prompts from a file: their order is the only thing that counts beside the seed; the
# tokenizer is found; a document that ends stops.
. "$(dirname "$0")/lib.sh"

for _ in $(seq 60); do
    printf 'the cat sat on the mat\n\na dog ran to the sea\n\n'
done >words.txt
"$trefoil" tokenizer train --input words.txt --vocab_size 280 --output bpe 2>tokenizer.log ||
    fail "tokenizer: $(cat tokenizer.log)"
mkdir data
"$trefoil" prepare --input words.txt --tokenizer bpe --output data/words 2>prepare.log ||
    fail prepare
make_config
must_train max_steps=400 Optimizer.lr.decay_steps=400 eval_freq=0 save_steps=0 Model.vocab_size=280 \
    Model.hidden_dropout_prob=0 Model.attention_probs_dropout_prob=0 dataset.split=1,0,0

generate() {
    "$trefoil" generate --ckpt out --num_threads 1 "$@" 2>generate.log ||
        fail "generate $*: $(cat generate.log)"
}

# No tokenizer named: the data's own. The end of the document is where it was in training.
generate --greedy --prompt 'the cat sat' >one.txt
[ "$(cat one.txt)" = 'the cat sat on the mat' ] || fail "$(cat one.txt)"
grep -q 'beside the checkpoint' generate.log || fail "$(cat generate.log)"

# Where the data is not found, the tokenizer that the run has kept is; without it, a
# vocabulary that bytes do not have is no guess at bytes.
mkdir elsewhere
elsewhere() {
    (cd elsewhere && "$trefoil" generate --ckpt ../out --greedy --prompt 'the cat sat') \
        >other.txt 2>other.log
}
elsewhere && cmp one.txt other.txt || fail "elsewhere: $(cat other.*)"
mv out/tokenizer .
generate --greedy --prompt 'the cat sat' | cmp - one.txt || fail "by the data: $(cat generate.log)"
grep -q 'of the data it was trained on' generate.log || fail "$(cat generate.log)"
elsewhere
[ $? -eq 2 ] && grep -q 'is not known.*name it with --tokenizer' other.log || fail "$(cat other.*)"
mv tokenizer out

printf 'the cat sat\n\na dog ran\nthe cat sat\n' >prompts.txt
generate --greedy --prompts prompts.txt >three.txt
printf 'the cat sat on the mat\n\na dog ran to the sea\n\nthe cat sat on the mat\n' |
    cmp - three.txt || fail "$(cat three.txt)"
generate --greedy --prompts prompts.txt --json >three.json
[ "$(grep -c '"stop":"eos"' three.json)" -eq 3 ] || fail "$(cat three.json)"
grep -q '"index":1,"prompt":"a dog ran","completion":" to the sea"' three.json ||
    fail "$(cat three.json)"
printf '{"text": "the cat sat"}\n{"text": "a dog ran"}\n{"text": "the cat sat"}\n' >p.jsonl
generate --greedy --prompts p.jsonl --json | cmp - three.json || fail "JSON lines differ"

# Draws: the same again, other ones for another place or seed.
hot=(--temperature 5 --max_tokens 12 --json)
generate "${hot[@]}" --prompts prompts.txt >hot.json
generate "${hot[@]}" --prompts prompts.txt | cmp - hot.json || fail "not the same again"
ids() { sed 's/.*"ids"://' "$1"; }
[ "$(ids hot.json | sed -n 1p)" != "$(ids hot.json | sed -n 3p)" ] ||
    fail "two places of one prompt draw the same: $(cat hot.json)"
head -1 prompts.txt >first.txt
generate "${hot[@]}" --prompts first.txt | cmp - <(head -1 hot.json) ||
    fail "what follows a prompt depends on the prompts after it"
generate "${hot[@]}" --prompts first.txt --seed 5 >seed.json
! cmp -s seed.json <(head -1 hot.json) || fail "the seed changes nothing"

# The same prompt as ids: the same tokens, to the end of the document.
printf 'the cat sat' >prompt.txt
ids=$("$trefoil" tokenizer encode --tokenizer bpe prompt.txt)
generate --greedy --prompt 'the cat sat' --json >text.json
generate --greedy --prompt_ids "$ids" --json >ids.json
[ "$(sed 's/.*"ids"/"ids"/' text.json)" = "$(sed 's/.*"ids"/"ids"/' ids.json)" ] &&
    grep -q '"stop":"eos"' ids.json || fail "$(cat text.json ids.json)"
generate --greedy --prompts - <prompts.txt | cmp - three.txt || fail "prompts on standard input"

# As many as wanted, past the end of the context.
generate --prompt_ids '1 2 3' --max_tokens 50 --temperature 50 >ids.txt
[ "$(wc -w <ids.txt)" -eq 50 ] || fail "50 ids: $(cat ids.txt)"

# What cannot be written is no success.
"$trefoil" generate --ckpt out --greedy --prompts prompts.txt >/dev/full 2>full.log
[ $? -eq 3 ] || fail "a full disk: $(cat full.log)"
grep -q 'cannot write to standard output' full.log || fail "a full disk: $(cat full.log)"

expect 2 'one of --prompt and --prompt_ids, or --prompts' \
    "$trefoil" generate --ckpt out --prompt a --prompts prompts.txt
expect 2 'nothing.txt' "$trefoil" generate --ckpt out --prompts nothing.txt
: >empty.txt
expect 2 'no text' "$trefoil" generate --ckpt out --prompts empty.txt
# A directory without its last file is not finished, and asks for nothing.
mv out/tokenizer whole && mkdir out/tokenizer
generate --greedy --prompt 'the cat sat' | cmp - one.txt || fail "half: $(cat generate.log)"
rmdir out/tokenizer && mv whole out/tokenizer

# Another run in the same directory has its own; what was there is not lost.
"$trefoil" tokenizer train --input words.txt --vocab_size 270 --output less 2>tokenizer.log ||
    fail "tokenizer: $(cat tokenizer.log)"
cp -r out/tokenizer before
mkdir data2 data3
"$trefoil" prepare --input words.txt --tokenizer less --output data2/words 2>prepare.log &&
    "$trefoil" prepare --input words.txt --output data3/words 2>prepare.log || fail prepare
cp -r out reused
for data in data2 data3; do
    must_train max_steps=1 eval_freq=0 Model.vocab_size=280 dataset.input_dir=$data \
        save_load.output_dir=reused
    kept=(reused/tokenizer-*)
    [ -d "${kept[0]}" ] || fail "$data: $(ls reused)"
    [ $data = data3 ] || cmp "${kept[0]}"/tokenizer.json before/tokenizer.json ||
        fail "$data: the previous one"
    [ $data = data2 ] || [ ! -e reused/tokenizer ] || fail "bytes need no files"
done

mv bpe gone
"$trefoil" generate --ckpt out --greedy --prompt 'the cat sat' 2>generate.log | cmp - one.txt ||
    fail "the one that was kept: $(cat generate.log)"
rm -r out/tokenizer
expect 2 'the tokenizer of the data it was trained on cannot be opened' \
    "$trefoil" generate --ckpt out --prompt a
"$trefoil" generate --ckpt out --prompt 'the cat sat' --greedy --tokenizer gone --num_threads 1 \
    2>generate.log | cmp - one.txt || fail "--tokenizer: $(cat generate.log)"
exit 0
