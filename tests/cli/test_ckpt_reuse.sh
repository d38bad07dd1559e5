#!/bin/bash
# Two runs with tokenizers of their own in one output directory: every command takes the
# checkpoint saved last, then lower steps of its run, and each checkpoint only with the
# tokenizer it was trained with.
. "$(dirname "$0")/lib.sh"
make_corpus
make_config
tr a-z b-za <words.txt >other.txt
for name in a b; do
    [ $name = a ] && text=words.txt || text=other.txt
    "$trefoil" tokenizer train --input $text --vocab_size 280 --output tok_$name 2>tok.log &&
        "$trefoil" prepare --input $text --tokenizer tok_$name --output data_$name/x \
            2>prepare.log || fail "$(cat tok.log prepare.log)"
done
base="eval_freq=0 Model.vocab_size=280 save_load.keep_last=0 save_load.output_dir=out"
must_train $base dataset.input_dir=data_a save_load.save_steps=10 max_steps=30
old=$(cat out/latest)
cp -r out only_a
must_train $base dataset.input_dir=data_b save_load.save_steps=4 max_steps=15
new=$(cat out/latest)
[ "${old##*_}" = 30 ] && [ "${new##*_}" = 15 ] || fail "$old $new"
cp -r out both
name_of() { (cd "$1" && ls -d epoch_*_step_"$2"); }

# takes DIR NAME: every command takes that checkpoint of DIR
takes() {
    rm -rf hf
    for ckpt in "$1" "$1/$2"; do
        "$trefoil" generate --ckpt "$ckpt" --temperature 9 --prompt a --num_threads 1 \
            --json 2>log || fail "generate: $(cat log)"
        grep -q "tokenizer: '$1/tokenizer'" log || fail "generate: $(cat log)"
    done >text
    [ "$(sort -u text | wc -l)" = 1 ] || fail "generate, not $2: $(cat text log)"
    "$trefoil" export --ckpt "$1" --to hf --output hf 2>log || fail "export: $(cat log)"
    grep -q "exported '$1/$2'" log || fail "export, not $2: $(cat log)"
    "$trefoil" eval --ckpt "$1" --data other.txt --json >eval.json 2>log || fail "eval: $(cat log)"
    grep -q "\"step\": *${2##*_}\b\|$1/$2" eval.json log || fail "eval, not $2: $(cat eval.json log)"
    "$trefoil" inspect --json "$1" >report.json 2>log || fail "inspect: $(cat log)"
    for key in taken directory; do
        grep -q "\"$key\": \"$1/$2\"" report.json || fail "inspect, not $2: $(cat report.json)"
    done
    train $base dataset.input_dir=data_b save_load.ckpt_dir="$1" save_load.output_dir=next \
        max_steps=16
    grep -q "resumed from '$1/$2'" run.log || fail "pretrain, not $2: $(cat run.log)"
    rm -rf next
}

# -- the one saved last, with a warning that there is a higher step
takes both "$new"
grep -q "saved last and is taken; '$old' has a higher step" run.log || fail "$(cat run.log)"

# -- damaged: lower steps of that run, never those of the other
truncate -s -1 both/$new/model.safetensors
rm -r hf && cp -r both damaged
takes damaged "$(name_of both 12)"
ls damaged | grep -q "$new.damaged" || fail "$(ls damaged)"
takes damaged "$(name_of both 12)"
for step in 4 8 12; do truncate -s -1 both/"$(name_of both $step)"/model.safetensors; done
"$trefoil" generate --ckpt both --prompt a >text 2>log
[ $? = 2 ] && grep -q "none of the 4 checkpoints in 'both' is valid (3 others" log || fail "$(cat log)"
for again in 1 2; do
    train $base dataset.input_dir=data_b save_load.ckpt_dir=both save_load.output_dir=next
    [ $? = 2 ] || fail "the other run was taken: $(cat run.log)"
done
grep -q "was set aside as damaged, and its run has no earlier checkpoint" run.log || fail "$(cat run.log)"

# -- its trainer.json too: whose the others are is not known
rm -rf both && cp -r out both
: >both/$new/trainer.json
"$trefoil" generate --ckpt both --prompt a >text 2>log
[ $? = 2 ] && grep -q "names '$new', which is damaged.*may be of another run" log || fail "$(cat log)"
rm -r both/$new
"$trefoil" generate --ckpt both --prompt a >text 2>log
[ $? = 2 ] && grep -q "names '$new', which is not there.*of another run" log || fail "$(cat log)"
"$trefoil" inspect both 2>log | grep -q "may be of another run" || fail "inspect: $(cat log)"

# -- without latest, or with one that says nothing, the highest step
for latest in missing garbage; do
    rm -rf both && cp -r out both && rm both/latest
    [ $latest = missing ] || echo ../../x >both/latest
    "$trefoil" generate --ckpt both --greedy --prompt a >text 2>log || fail "$(cat log)"
    grep -q "tokenizer: 'both/tokenizer-" log || fail "$latest: not $old: $(cat log)"
    [ $latest = missing ] || [ "$(grep -c "does not name a checkpoint" log)" = 1 ] || fail "$(cat log)"
done
# ... which a run that starts from scratch does not take
"$trefoil" pretrain --max_restarts 1 -c run.yaml -o Model.vocab_size=280 -o eval_freq=0 \
    -o dataset.input_dir=data_b -o output_dir=both -o max_steps=2 -o save_steps=-1 2>log ||
    fail "$(cat log)"
! grep -q "does not name a checkpoint" log || fail "nothing is taken: $(cat log)"

# -- an earlier run's checkpoint has its own tokenizer, also where data is gone
hidden=$PWD/hidden
mkdir "$hidden" && mv data_a data_b tok_a tok_b "$hidden"
generate() { "$trefoil" generate --greedy --num_threads 1 --prompt leaf "$@" 2>log; }
generate --ckpt only_a >a.txt || fail "$(cat log)"
generate --ckpt out/$old | cmp - a.txt || fail "$(cat log)"
mkdir moved && mv only_a/$old only_a/tokenizer moved
generate --ckpt moved/$old | cmp - a.txt || fail "moved: $(cat log)"
generate --ckpt out/$old --tokenizer "$hidden/tok_a" | cmp - a.txt || fail "named: $(cat log)"

# -- and never another one
refused() {
    local pattern=$1
    shift
    "$@" >text 2>log
    [ $? = 2 ] && grep -qE "$pattern" log || fail "'$*': $(cat log)"
}
pattern="tokenizer '.*tok.*' \(hash [0-9a-f]{16}\) is not the one that checkpoint '.*' was trained with \(hash [0-9a-f]{16}\): name that one"
refused "$pattern, or leave --tokenizer out" generate --ckpt out/$old --tokenizer "$hidden/tok_b"
rm -r both && cp -r out both && rm -r both/tokenizer-*
refused "$pattern" generate --ckpt both/$old
refused "$pattern" "$trefoil" export --ckpt both/$old --to hf --output refused
refused "$pattern" "$trefoil" eval --ckpt both/$old --data words.txt
mv "$hidden"/data_? "$hidden"/tok_? .
refused "prepared with another tokenizer" "$trefoil" eval --ckpt out/$old --data data_b/x
"$trefoil" eval --ckpt out/$old --data data_a/x >text 2>log || fail "$(cat log)"
refused "was trained with another tokenizer" "$trefoil" pretrain -c run.yaml \
    -o Model.vocab_size=280 -o dataset.input_dir=data_b -o save_load.ckpt_dir=out/$old

# -- a later run whose vocabulary is larger does not hide the tokenizer of the first
"$trefoil" tokenizer train --input words.txt --vocab_size 300 --output tok_c 2>tok.log &&
    "$trefoil" prepare --input words.txt --tokenizer tok_c --output data_c/x 2>prepare.log ||
    fail "$(cat tok.log prepare.log)"
must_train $base Model.vocab_size=300 dataset.input_dir=data_c save_load.output_dir=moved \
    max_steps=3
generate --ckpt moved/$old | cmp - a.txt || fail "larger vocabulary: $(cat log)"
refused "$pattern, or leave --tokenizer out" generate --ckpt moved/$old --tokenizer tok_c
: >moved/tokenizer/tokenizer.json
generate --ckpt moved/$old | cmp - a.txt || fail "damaged tokenizer: $(cat log)"

# -- data that does not say its tokenizer is not paired with that of an earlier run
mkdir bare && cp data_b/x.bin data_b/x.idx bare
must_train $base dataset.input_dir=data_a save_load.output_dir=used max_steps=4
must_train $base dataset.input_dir=bare save_load.output_dir=used max_steps=2
newer=used/$(cat used/latest)
refused "does not record its tokenizer, and tokenizers of other runs are beside it" generate --ckpt used
generate --ckpt used --tokenizer tok_b >text || fail "named: $(cat log)"
generate --ckpt used/"$(name_of used 4)" >text || fail "of the earlier run: $(cat log)"
# ... but with its own, when such a run continues in the directory
mv used/tokenizer-* used/tokenizer
for from in used "$newer"; do
    must_train $base dataset.input_dir=bare save_load.output_dir=used save_load.ckpt_dir="$from" max_steps=3
    [ -d used/tokenizer ] || fail "$from: $(ls used)"
done

# ... or with one that the user has put there
rm -r used && mkdir used && cp -r tok_b used/tokenizer
must_train $base dataset.input_dir=bare save_load.output_dir=used max_steps=2 eval_freq=1 eval_prompts=leaf
generate --ckpt used >text || fail "put there: $(cat log)"
! grep -q "was renamed" run.log || fail "put there: $(cat run.log)"

# -- data records the hash of its tokenizer: one that has changed since is not kept with it
cp -r tok_a tok_d
"$trefoil" prepare --input words.txt --tokenizer tok_d --output data_d/x 2>log || fail "$(cat log)"
cp tok_b/* tok_d
must_train $base dataset.input_dir=data_d save_load.output_dir=changed max_steps=2
grep -q "tok_d' has changed since the data was prepared with it" run.log || fail "$(cat run.log)"
refused "$pattern" generate --ckpt changed
generate --ckpt changed --tokenizer tok_a >text || fail "named: $(cat log)"
rm -r tok_d
"$trefoil" eval --ckpt changed --data data_a/x >text 2>log || fail "its files are gone: $(cat log)"
refused "prepared with another tokenizer" "$trefoil" eval --ckpt changed --data data_b/x
