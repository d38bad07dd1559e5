#!/bin/bash
# Mistakes of a new user: each gets a sentence and an exit code, before any work is done.
. "$(dirname "$0")/lib.sh"
make_corpus
make_config
run() { "$trefoil" pretrain -c run.yaml "$@"; }

expect 2 'cannot open .missing.yaml.*No such file' "$trefoil" pretrain -c missing.yaml
expect 2 'did you mean --config' "$trefoil" pretrain --confg run.yaml
expect 2 '--config FILE is missing' "$trefoil" pretrain
expect 2 "unknown command 'pretrian'" "$trefoil" pretrian
expect 2 'hidden_size' run -o Model.hiden_size=64
expect 2 'micro_batch_size' run -o batch_size.micro_batch_size=4
expect 2 'max_position_embeddings' run -o dataset.max_seq_len=64
expect 2 'trefoil prepare' run -o dataset.input_dir=.
expect 2 "'nowhere' is no directory" run -o dataset.input_dir=nowhere
expect 2 'not yet in this version: use cpu' run -o device=xpu
expect 2 'set Model.vocab_size to 257, the size of its tokenizer' run -o Model.vocab_size=100
expect 2 'valid' run -o dataset.split=100,0,0
expect 2 'eos_token_id' run -o dataset.eos_token_id=3
"$trefoil" tokenizer train --input words.txt --vocab_size 290 --output bpe 2>other.log &&
    "$trefoil" prepare --input words.txt --tokenizer bpe --output mixed/bpe 2>other.log ||
    fail "$(cat other.log)"
cp data/words.* mixed
expect 2 'two different ends of document.*words.bin.; use datasets made with one tokenizer$' \
    run -o dataset.input_dir=mixed -o Model.vocab_size=290
must_train max_steps=1 save_steps=1 eval_freq=0 save_load.output_dir=whole
expect 2 "another model.*set Model.hidden_size: 32 \(it is 64\), Model.num_layers: 2 \(it is 3\)" \
    run -o save_load.ckpt_dir=whole -o save_load.output_dir=whole -o Model.hidden_size=64 -o Model.num_layers=3
# layouts that cannot run, refused before anything is started
expect 2 'cannot be split over 7 stages' run -o Distributed.pp_degree=7
expect 2 'mp_degree: 3 does not divide num_attention_heads 4.*use 1, 2 or 4' \
    run -o Distributed.mp_degree=3
expect 2 'dp_degree: 0 is out of range' run -o Distributed.dp_degree=0
expect 2 'out of range' run -o Distributed.pp_degree=1000000000
expect 2 'not a multiple of the 5 data ranks|x 5 data ranks' run -o Distributed.dp_degree=5
expect 2 'virtual_pp_degree' run -o Distributed.virtual_pp_degree=2
expect 2 'micro-batches' run -o Distributed.pp_degree=2 -o Distributed.virtual_pp_degree=1 \
    -o Distributed.virtual_pp_degree=2 -o Model.num_layers=4 -o batch_size.micro_batch_size=2
expect 2 'does not divide max_seq_len' run -o Distributed.mp_degree=4 \
    -o Distributed.sequence_parallel=True -o dataset.max_seq_len=22
[ -e out ] && fail "a refused run made its output directory"

sed 's/hidden_size/hiden_size/' run.yaml >typo.yaml
expect 2 '^.*typo.yaml:[0-9]+:[0-9]+: .*hiden_size.*did you mean.*hidden_size' \
    "$trefoil" pretrain -c typo.yaml

# the machine's fault, not the user's: exit 3
touch file
expect 3 "output_dir 'file/out' cannot be used" run -o save_load.output_dir=file/out
expect 3 'not enough memory.*micro_batch_size' run -o Model.hidden_size=65536 \
    -o Model.num_attention_heads=64 -o Model.num_layers=64
expect 2 'no checkpoint|holds no' run -o save_load.ckpt_dir=data

# damaged data
cp -r data cut
truncate -s -1 cut/words.bin
expect 2 'words.bin' run -o dataset.input_dir=cut

# a checkpoint of another architecture
must_train max_steps=1 eval_freq=0
expect 2 'layers|shape|hidden|differ' run -o save_load.ckpt_dir=out -o Model.num_layers=3
"$trefoil" generate --ckpt out --prompt leaf --max_tokens 5 --greedy >a.txt || fail generate
"$trefoil" generate --ckpt out --prompt leaf --max_tokens 5 --greedy >b.txt
cmp a.txt b.txt || fail "generate is not repeatable"
head -c4 a.txt | grep -q leaf || fail "generate does not start with its prompt"
expect 2 'one of --prompt and --prompt_ids' "$trefoil" generate --ckpt out
expect 2 'top_p' "$trefoil" generate --ckpt out --prompt a --top_p 0
expect 2 'nowhere' "$trefoil" generate --ckpt nowhere --prompt a

for command in pretrain prepare generate config; do
    "$trefoil" $command --help | grep -q "usage: trefoil $command" || fail "$command --help"
    "$trefoil" $command --version | grep -q '^trefoil [0-9]' || fail "$command --version"
done
