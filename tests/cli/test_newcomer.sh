#!/bin/bash
# A first hour: the recipe for one's own text with nothing to guess, what the program
# answers to wrong turns, and models of other programs.
root=$(realpath "$(dirname "$0")/../..")
mpirun=$(realpath "$(dirname "$0")/../parallel/mpirun.sh")
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1
export LSAN_OPTIONS=detect_leaks=0 # what MPI libraries keep is not ours to free
make_corpus 200
rm -r data
cp -r "$root/configs" .

# -- from text to a sample -----------------------------------------------------------------

"$trefoil" tokenizer train --input words.txt --vocab_size 300 --output tokens 2>log ||
    fail "tokenizer: $(cat log)"
"$trefoil" prepare --input words.txt --tokenizer tokens --output data/mine 2>log ||
    fail "prepare: $(cat log)"
grep -q 'this is little text' log || fail "little text without a word: $(cat log)"
# the command that prepare prints is run as it stands, a little shorter
next=$(grep -o 'trefoil pretrain -c .*' log)
[ "$next" = "trefoil pretrain -c configs/laptop.yaml -o dataset.input_dir=data/mine \
-o hidden_size=128 -o max_steps=1000" ] || fail "prepare says next: $next"
small=(-o max_steps=12 -o Model.num_layers=2 -o Model.hidden_size=32 -o eval_freq=6
    -o save_load.save_steps=6)
# shellcheck disable=SC2086 # its words are wanted
"$trefoil" ${next#trefoil } "${small[@]}" 2>run.log || fail "$next: $(tail -3 run.log)"
grep -q "Model.vocab_size: 300, by 'data/mine.meta.json'" run.log ||
    fail "where vocab_size comes from is not said: $(cat run.log)"
"$trefoil" generate --ckpt output/mine --prompt "leaf stem" --max_tokens 8 >text 2>log ||
    fail "generate: $(cat log)"
grep -q 'leaf stem' text || fail "no sample: $(cat text)"
"$trefoil" inspect --json output/mine | tr -d '\n' | tr -s ' ' >report
grep -q '"vocab_size": 300' report && grep -q '"eos_token_id": 299' report ||
    fail "the checkpoint does not record what came from the data: $(cat report)"

# one document leaves nothing for validation, and the command says so
grep -v '^$' words.txt >lines.txt
"$trefoil" prepare --input lines.txt --tokenizer tokens --output lines/mine 2>log || fail "$(cat log)"
grep -q 'too few documents to keep some for validation' log || fail "one document: $(cat log)"
next=$(grep -o 'trefoil pretrain -c .*' log)
# shellcheck disable=SC2086
"$trefoil" ${next#trefoil } "${small[@]:0:6}" -o output_dir=lines/out 2>run.log ||
    fail "$next: $(tail -3 run.log)"

# what was left out is the same for every command and every process, and on resuming
laptop() { "$trefoil" pretrain -c configs/laptop.yaml "${small[@]}" "$@"; }
"$trefoil" config -c configs/laptop.yaml >config.out 2>log || fail "config: $(cat log)"
grep -qE '^ +vocab_size: 300 +#' config.out && grep -qE '^ +eos_token_id: 299 +#' config.out ||
    fail "config does not show what the data says"
"$trefoil" config -c config.out 2>log | cmp - config.out || fail "config does not load as it is"
laptop --dry_run >left_out 2>log || fail "dry run: $(cat log)"
laptop --dry_run -o Model.vocab_size=300 >given 2>log || fail "dry run: $(cat log)"
cmp left_out given || fail "a dry run plans for another vocabulary"
laptop -o Model.vocab_size= --dry_run 2>log | cmp - given || fail "an empty vocab_size: $(cat log)"
laptop -o save_load.ckpt_dir=output/mine -o max_steps=14 2>run.log || fail "$(tail -3 run.log)"
grep -q "resumed from 'output/mine/epoch_[0-9]*_step_12'" run.log || fail "$(cat run.log)"
grep -q 'changed since the checkpoint: Model' run.log && fail "$(cat run.log)"
laptop -o Distributed.mp_degree=2 -o output_dir=two 2>run.log || fail "mp2: $(tail -3 run.log)"
[ "$(grep -c 'Model.vocab_size: 300' run.log)" = 1 ] || fail "said once: $(cat run.log)"
losses() { grep -o '"loss": [^,]*' "$1/metrics.jsonl" | head -1; }
laptop -o output_dir=one -o Model.vocab_size=300 -o eos_token_id=299 2>run.log ||
    fail "$(tail -3 run.log)"
laptop -o output_dir=same 2>run.log || fail "$(tail -3 run.log)"
[ "$(losses same)" = "$(losses one)" ] || fail "a given vocab_size gives another loss"

# -- data that says something else, or nothing -----------------------------------------------

"$trefoil" prepare --input words.txt --output mixed/bytes 2>log || fail "$(cat log)"
cp data/mine.* mixed
expect 2 "Model.vocab_size \(not given\): it is 257 by 'mixed/bytes.meta.json', but 300 by 'mixed/mine.meta.json': use datasets made with one tokenizer, or set it" \
    laptop -o dataset.input_dir=mixed --dry_run
expect 2 'two different ends of document' laptop -o dataset.input_dir=mixed -o Model.vocab_size=300
expect 2 'two different ends of document: 5 by dataset.eos_token_id, but 299 .*leave dataset.eos_token_id empty' \
    laptop -o eos_token_id=5
expect 2 "another model than.*set Model.vocab_size: 300 \(it is 257\)" \
    laptop -o dataset.input_dir=mixed/bytes -o save_load.ckpt_dir=output/mine -o output_dir=x
mkdir bare
cp data/mine.bin data/mine.idx bare
laptop -o dataset.input_dir=bare --dry_run >given 2>log || fail "$(cat log)"
grep -q "WARNING.*Model.vocab_size is left out.*no .meta.json of the data in 'bare'.*50304" log ||
    fail "a default that was meant to come from the data: $(cat log)"
sed 's/"vocab_size": 300/"vocab_size": 0/' data/mine.meta.json >bare/mine.meta.json
expect 2 "'bare/mine.meta.json': \"vocab_size\": 0 is out of range" laptop -o dataset.input_dir=bare
expect 2 "'nowhere' is no directory" laptop -o dataset.input_dir=nowhere

# -- wrong turns before there is data --------------------------------------------------------

mkdir empty
: >empty.txt
cp empty.txt bare/first.txt
cp empty.txt bare/second.txt
for command in "tokenizer train --vocab_size 300" "prepare --tokenizer tokens"; do
    # shellcheck disable=SC2086
    set -- $command --output wrong/turn
    expect 2 "cannot open 'my_texts/': No such file or directory; name a file of text or a directory of such" \
        "$trefoil" "$@" --input my_texts/
    expect 2 "the directory 'empty' has no files in it; put text there" "$trefoil" "$@" --input empty
    expect 2 "there is no text in 'empty.txt' \(" "$trefoil" "$@" --input empty.txt
    expect 2 "there is no text in the 2 files from 'bare/first.txt' on" \
        "$trefoil" "$@" --input bare/first.txt bare/second.txt
    [ -z "$(find wrong -type f 2>/dev/null)" ] || fail "$command left something: $(find wrong)"
done
expect 2 "cannot find the checkpoint: 'output/other' is not there; name the output_dir of a run" \
    "$trefoil" generate --ckpt output/other --prompt leaf
expect 2 "'held_out.txt' is no directory and no dataset, and there is no such file: " \
    "$trefoil" eval --ckpt output/mine --data held_out.txt
expect 2 "'words.txt' is not a file of a dataset; make a dataset of text with: trefoil prepare" \
    laptop -o dataset.input_dir=words.txt
expect 2 "cannot read 'configs': it is a directory; name a YAML file" "$trefoil" pretrain -c configs
(cd empty && expect 2 "cannot open 'configs/laptop.yaml': No such file or directory; it is looked for from '$work/empty'" \
    "$trefoil" pretrain -c configs/laptop.yaml) || exit 1

# machines that see different data
for rank in 0 1; do
    mkdir -p "rank$rank/data"
    cp data/mine.bin data/mine.idx "rank$rank/data"
done
cp data/mine.meta.json rank0/data
# shellcheck disable=SC2016 # for the shell of each rank
"$mpirun" "$mpiexec" 2 sh -c 'cd "rank${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" && exec "$0" "$@"' \
    "$trefoil" pretrain -c "$work/configs/laptop.yaml" "${small[@]}" >ranks.out
[ $? -eq 2 ] && grep -q 'Model.vocab_size is 300 on one rank and 50304 on another.*copy its' ranks.out ||
    fail "two vocabularies: $(cat ranks.out)"

# -- models of other programs ----------------------------------------------------------------

"$trefoil" export --ckpt output/mine --to hf --output hf 2>log || fail "export: $(cat log)"
"$trefoil" inspect hf >report || fail "inspect hf"
for pattern in '^ +architecture +GPT2LMHeadModel$' '^ +n_embd +32$' '^ +vocab_size +300$' \
    'trefoil import --from hf --input hf ' 'wte.weight +F32 +\[300, 32\]' '^ +merges +[0-9]+$'; do
    grep -qE "$pattern" report || fail "inspect hf lacks '$pattern': $(cat report)"
done
"$trefoil" inspect hf/config.json >report && grep -qE '^ +n_embd +32$' report ||
    fail "inspect hf/config.json"
mkdir other
echo '{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64}' >other/config.json
"$trefoil" inspect other >report || fail "inspect a Llama"
grep -q 'LlamaForCausalLM' report && grep -q "cannot be imported: .*model_type.*llama" report ||
    fail "inspect a Llama: $(cat report)"
echo '{"model_type": ' >other/config.json
expect 2 "'other/config.json':" "$trefoil" inspect other
echo '{"name": "of something else"}' >other/config.json
expect 2 'nothing to inspect' "$trefoil" inspect other

# the YAML that an import leaves goes on training it, with the commands it prints
"$trefoil" import --from hf --input hf --output imported >model.yaml 2>log || fail "$(cat log)"
prepare=$(grep -o 'trefoil prepare --input TEXT .* --output DATA' log)
pretrain=$(grep -o 'trefoil pretrain -c .*' log)
[ "$prepare" = "trefoil prepare --input TEXT --tokenizer imported/tokenizer --output DATA" ] &&
    [ "$pretrain" = "trefoil pretrain -c imported/continue.yaml -o dataset.input_dir=DATA" ] ||
    fail "import says: $(cat log)"
prepare=${prepare/TEXT/words.txt}
# shellcheck disable=SC2086
"$trefoil" ${prepare#trefoil } 2>log || fail "$prepare: $(cat log)"
# shellcheck disable=SC2086
"$trefoil" ${pretrain#trefoil } -o max_steps=2 -o eval_freq=2 2>run.log ||
    fail "$pretrain: $(tail -3 run.log)"
grep -q "resumed from 'imported/epoch_0_step_0'" run.log || fail "$(cat run.log)"
[ -e imported_continued/metrics.jsonl ] || fail "no imported_continued: $(ls)"
"$trefoil" config -c model.yaml -o max_seq_len=128 >config.out 2>/dev/null &&
    grep -q 'hidden_size: 32 ' config.out || fail "$(cat model.yaml)"

# -- a run ---------------------------------------------------------------------------------

"$trefoil" inspect output/mine >report || fail "inspect a run"
for pattern in '^ +limit +(Arithmetic|Reading|Memory|Waiting)' '^ +state +finished$' \
    '^ +step +14$' '^ +loss +[0-9.]+$' '^ +eval_loss +[0-9.]+$' 'epoch_[0-9]+_step_14'; do
    grep -qE "$pattern" report || fail "inspect a run lacks '$pattern': $(cat report)"
done
"$trefoil" inspect --json output/mine/metrics.jsonl | tr -d '\n' | tr -s ' ' >report
grep -q '"run": { "limit": "' report || fail "inspect metrics.jsonl"
mkdir hostile
printf '{"step": 1, "loss": 2.5}\n\377\000 no json\n{"step": 2, "loss": 1e999}\n{"step":' \
    >hostile/metrics.jsonl
head -c 400000 /dev/zero | tr '\0' x >>hostile/metrics.jsonl
"$trefoil" inspect hostile >report || fail "a hostile run: $(cat report)"

# -- help ------------------------------------------------------------------------------------

"$trefoil" help >all 2>&1 || fail "help"
for command in $(awk '/^commands:/ { on = 1; next } on && NF { print $1 }' all | grep -v trefoil); do
    "$trefoil" help "$command" >help.out 2>&1 || fail "help $command: $(cat help.out)"
    grep -q "^usage: trefoil $command" help.out || fail "help $command: $(cat help.out)"
done
"$trefoil" version >version.out && "$trefoil" --version | cmp - version.out || fail "version"
# where it was built is nobody's concern; a sanitizer has names of files of its own
grep -qaE '__(a|t)san_init' "$trefoil" || ! grep -qaF "$root/" "$trefoil" ||
    fail "the program names '$root'"
expect 2 "unknown command 'nothing'; trefoil --help lists them" "$trefoil" help nothing
expect 2 "unknown command 'pretran'; did you mean pretrain\?" "$trefoil" pretran -c configs/laptop.yaml
expect 2 "unknown command 'trian'; did you mean train\?" "$trefoil" tokenizer trian
