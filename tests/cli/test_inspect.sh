#!/bin/bash
# trefoil inspect: datasets, checkpoints, tensor files and tokenizers, for people and for
# programs; what is damaged or unknown gets a sentence and exit code 2.
. "$(dirname "$0")/lib.sh"
make_corpus
make_config
must_train max_steps=2

# shows PATH PATTERN...: the report of PATH has a line for each pattern
shows() {
    local path=$1
    shift
    "$trefoil" inspect "$path" >report 2>report.err || fail "$path: $(cat report.err)"
    for pattern in "$@"; do
        grep -qE -- "$pattern" report || fail "$path does not show '$pattern': $(cat report)"
    done
}

# json PATH TEXT: the JSON report, its blanks squeezed, has the text in it
json() {
    "$trefoil" inspect --json "$1" | tr -d '\n' | tr -s ' ' | grep -qF -- "$2" ||
        fail "the JSON of $1 lacks $2"
}

for path in data data/ data/words data/words.bin data/words.idx data/words.meta.json; do
    shows "$path" '^ +documents +60$' '^ +format +megatron$' '^ +token_type +uint16$' \
        '^ +largest_id +256$' '^ +tokenizer +bytes$' '^ +0 +[0-9]+ +48  [a-z ]+'
done
json data '"documents": 60,'
json data/words '"eos_token_id": 256'
json data/words '"empty_documents": 0'
"$trefoil" inspect data --samples 0 >report || fail "no samples"
"$trefoil" inspect data --samples 2 --tokens 5 --json | grep -c '"shown": 5' | grep -qx 2 ||
    fail "--samples 2 --tokens 5"

# without .meta.json the ids are shown, and a tokenizer can be named
mkdir bare
cp data/words.bin data/words.idx bare
shows bare '^ +meta +none$' '\[[0-9]+, [0-9]+,' 'no .meta.json names the tokenizer'
"$trefoil" inspect bare --tokenizer bytes | grep -qE '48  [a-z ]+' || fail "--tokenizer bytes"
expect 2 nothere "$trefoil" inspect bare --tokenizer nothere
sed 's/"bytes"/"nothere"/' data/words.meta.json >bare/words.meta.json
shows bare 'not decoded: .*nothere' '\[[0-9]+, [0-9]+,'

shows out '^ +epoch_0_step_2 +2 +0  not verified$' '^ +step +2$' '^ +hidden_size +32$'
checkpoint=$(echo out/epoch_*_step_2)
for path in "$checkpoint" "$checkpoint/trainer.json"; do
    shows "$path" '^ +step +2$' '^ +n_parameters +[0-9]+$' \
        'embedding.word.weight +F32 +\[257, 32\] +8224 +32896'
done
json "$checkpoint" '"vocab_size": 257'
shows "$checkpoint/optimizer.safetensors" 'embedding.word.weight.exp_avg +F32'

# a byte-level BPE of two merges, and a dataset that says it was made with it
mkdir bpe
awk 'BEGIN {
    printf "{"
    for (i = 0; i < 256; i++) {
        is_itself = (i > 32 && i < 127) || (i > 160 && i != 173)
        printf "\"\\u%04x\": %d, ", is_itself ? i : 256 + n++, i
    }
    print "\"th\": 256, \"the\": 257, \"<|endoftext|>\": 258}"
}' >bpe/vocab.json
printf '#version: 0.2\nt h\nth e\n' >bpe/merges.txt
for path in bpe bpe/vocab.json bpe/merges.txt; do
    shows "$path" '^ +vocab_size +259$' '^ +merges +2$' '^ +special_tokens +1$' \
        '^ +eos_token_id +258$' '^ +258 +13  <.endoftext.>$' '^ +257 +3  the$'
done
json bpe '"merges": 2,'

"$trefoil" inspect --help | grep -q 'PATH' || fail "--help"
expect 2 'PATH is missing|PATH' "$trefoil" inspect
expect 2 'is no directory and no dataset' "$trefoil" inspect nowhere
expect 2 'not known by its name' "$trefoil" inspect run.yaml
mkdir empty
expect 2 'nothing to inspect' "$trefoil" inspect empty
expect 2 'samples must lie in' "$trefoil" inspect data --samples -1
expect 2 'tokens must lie in' "$trefoil" inspect data --tokens 0

# damage is said, wherever it is
mkdir cut
head -c 100 data/words.bin >cut/words.bin
cp data/words.idx cut
expect 2 'words.bin' "$trefoil" inspect cut
mv cut/words.idx cut/other
expect 2 'half a dataset' "$trefoil" inspect cut
head -c 50 "$checkpoint/model.safetensors" >cut.safetensors
expect 2 'cut.safetensors' "$trefoil" inspect cut.safetensors
cp -r out damaged
sed -i 's/"step": 2/"step": 3/' damaged/epoch_*_step_2/trainer.json
shows damaged 'none +none +.*trainer.json' 'no checkpoint in .damaged. is whole'
expect 2 'trainer.json' "$trefoil" inspect damaged/epoch_*_step_2
cp -r out lost
rm lost/epoch_*_step_2/optimizer.safetensors
expect 2 'optimizer.safetensors' "$trefoil" inspect lost/epoch_*_step_2

# --verify reads every byte: what sizes do not tell is found, told and an exit code
flip() {
    printf "\\x$(printf %x $(($(od -An -tu1 -j"$2" -N1 "$1") ^ 1)))" |
        dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
must_train max_steps=4 save_load.save_steps=2 save_load.keep_last=0 \
    save_load.output_dir=two eval_freq=0
"$trefoil" inspect --verify two >report || fail "--verify: $(cat report)"
[ "$(grep -cE 'epoch_0_step_[24] +[24] +0  whole$' report)" = 2 ] || fail "$(cat report)"
"$trefoil" inspect --verify --json two/epoch_0_step_2/ >report || fail "--verify of one"
grep -q '"state": "whole"' report || fail "--verify of one: $(cat report)"
damaged() { # WHAT: of a copy in hurt/, whose step 4 is damaged
    expect 2 'damaged' "$trefoil" inspect --verify hurt/epoch_0_step_4
    expect 2 '1 of the 2 checkpoints in .hurt. is damaged' "$trefoil" inspect --verify hurt
    grep -qE 'epoch_0_step_2 +2 +0 +whole$' expect.out || fail "$1: $(cat expect.out)"
    rm -rf hurt
}
for file in model.safetensors:9 model.safetensors:20000 optimizer.safetensors:30000 \
    optimizer.safetensors:100 trainer.json:200; do
    cp -r two hurt
    flip hurt/epoch_0_step_4/${file%:*} ${file#*:}
    damaged "$file"
done
cp -r two hurt && cp two/epoch_0_step_2/model.safetensors hurt/epoch_0_step_4/
damaged "another step's model"
cp -r two hurt && cp two/epoch_0_step_2/* hurt/epoch_0_step_4/
damaged "another step"
cp -r two hurt && rm hurt/epoch_0_step_4/trainer.json
shows hurt 'epoch_0_step_4 +none +none +.*damaged' 'epoch_0_step_2 +2 +0 +not verified$'
expect 2 'damaged: .*trainer.json' "$trefoil" inspect hurt/epoch_0_step_4
damaged "no trainer.json"
# what was set aside is no news
cp -r two hurt && mv hurt/epoch_0_step_4 hurt/epoch_0_step_4.damaged
flip hurt/epoch_0_step_4.damaged/model.safetensors 20000
"$trefoil" inspect --verify hurt >report || fail "set aside: $(cat report)"
expect 2 'nothing to --verify' "$trefoil" inspect --verify data

# eval, generate and export take the same one, and weights are all they need
flip two/epoch_0_step_4/optimizer.safetensors 30000
for step in 4 2; do
    rm -rf hf
    "$trefoil" eval --ckpt two --data data/words >taken 2>&1 || fail "$(cat taken)"
    grep -q "checkpoint two/epoch_0_step_$step," taken || fail "eval: $(cat taken)"
    "$trefoil" export --to hf --ckpt two --output hf 2>taken || fail "$(cat taken)"
    grep -q "exported 'two/epoch_0_step_$step'" taken || fail "export: $(cat taken)"
    flip two/epoch_0_step_4/model.safetensors 20000
done
printf '{' >tokenizer.json
expect 2 'tokenizer.json' "$trefoil" inspect tokenizer.json

# a terminal is safe from what a file holds
printf 'bell \a, escape \033[31m, \302\233 and \377 not UTF-8\n' >evil.txt
"$trefoil" prepare --encoding bytes --input evil.txt --output evil/x 2>/dev/null || fail "prepare"
"$trefoil" inspect evil >report || fail "inspect evil"
grep -qF 'bell \x07, escape \x1b[31m, \x9b and' report || fail "not escaped: $(cat report)"
