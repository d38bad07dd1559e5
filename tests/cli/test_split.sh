#!/bin/bash
# dataset.split_by document: training, evaluation, dry runs and resumed runs of a user, with
# the same results from any number of processes and threads.
configs=$(realpath "$(dirname "$0")/../../configs")
mpirun=$(realpath "$(dirname "$0")/../parallel/mpirun.sh")
. "$(dirname "$0")/lib.sh"
export LSAN_OPTIONS=detect_leaks=0 # what MPI libraries keep is not ours to free
make_corpus 200
make_config
by=dataset.split_by=document
losses() { grep -oE '"(loss|eval_loss)": [^,]*' "$1/metrics.jsonl" | tr '\n' ' '; }

# two files: a run over both does not evaluate on the last one alone, as a contiguous one does
head -600 words.txt >first.txt
tail -n +601 words.txt >second.txt
for name in first second; do
    "$trefoil" prepare --input $name.txt --output two/$name 2>log || fail "prepare: $(cat log)"
done
must_train dataset.input_dir=two output_dir=contiguous
must_train dataset.input_dir=two output_dir=document $by num_threads=2
[ "$(losses contiguous)" != "$(losses document)" ] || fail "split_by changes nothing"
ls two/.trefoil_cache/hashes-* >/dev/null || fail "hashes are not cached"
"$trefoil" config -c run.yaml -o $by >config.out 2>log || fail "config: $(cat log)"
grep -q '^ *split_by: document ' config.out ||
    fail "config does not show split_by"

# hashed again, from the cache, and on two processes
rm -r two/.trefoil_cache
must_train dataset.input_dir=two output_dir=again $by
[ "$(losses again)" = "$(losses document)" ] || fail "another result: $(losses again)"
rm -r two/.trefoil_cache
"$mpirun" "$mpiexec" 2 "$trefoil" pretrain -c run.yaml -o $by -o dataset.input_dir=two \
    -o output_dir=ranks -o Distributed.pp_degree=2 >ranks.out 2>&1 || fail "pp2: $(tail -3 ranks.out)"
[ "$(losses ranks)" = "$(losses document)" ] || fail "another result of two ranks: $(losses ranks)"

# a run that stops and continues
must_train dataset.input_dir=two output_dir=part $by max_steps=10 Optimizer.lr.decay_steps=40
must_train dataset.input_dir=two output_dir=part $by save_load.ckpt_dir=part
[ "$(losses part)" = "$(losses document)" ] || fail "another result when resumed: $(losses part)"

# one order of documents or another, the validation text is the same: with the whole of it in
# each evaluation, and no training, so is its loss
valid() {
    must_train "$@" $by max_steps=1 eval_freq=1 eval_iters=20 dataset.mode=padded \
        Optimizer.lr.max_lr=0 Optimizer.lr.min_lr=0 output_dir=valid
    grep -oE 'valid samples: .*' run.log | grep -oE '[0-9]+ epochs of [0-9]+ tokens'
    rm -r valid
}
cat second.txt first.txt >swapped.txt
"$trefoil" prepare --input swapped.txt --output swapped/x 2>log || fail "prepare: $(cat log)"
"$trefoil" prepare --input swapped.txt --output fleetx/x --format fleetx 2>log || fail "prepare: $(cat log)"
tokens=$(valid dataset.input_dir=two)
[ -n "$tokens" ] && [ "$(valid dataset.input_dir=swapped)" = "$tokens" ] || fail "files in another order"
[ "$(valid dataset.input_dir=fleetx)" = "$tokens" ] || fail "another format"

# other files with the same documents: by document, validation text stays what it is
for rule in document contiguous; do
    must_train dataset.input_dir=two output_dir=files_$rule max_steps=2 dataset.split_by=$rule
    must_train dataset.input_dir=swapped output_dir=files_$rule max_steps=4 dataset.split_by=$rule \
        ckpt_dir=files_$rule
    grep -q 'WARNING.*the dataset is not the one of the checkpoint' run.log || fail "$rule: no warning"
    kept=$(grep -c 'stay in their part (dataset.split_by document)' run.log)
    moved=$(grep -c 'held out for validation before may now be trained on' run.log)
    [ "$rule $kept $moved" = "document 1 0" ] || [ "$rule $kept $moved" = "contiguous 0 1" ] ||
        fail "other files: $rule $kept $moved"
done

# with whole epochs, masks and blends; the dry run reads the same numbers
must_train $by dataset.input_dir=two max_steps=0 num_train_epochs=1 test_interval=1 \
    dataset.reset_attention_mask=True output_dir=epoch
train_tokens=$(grep -oE 'train samples: .*' run.log | grep -oE '[0-9]+ tokens' | cut -d' ' -f1)
steps=$(grep -oE 'num_train_epochs 1: [0-9]+' run.log | grep -oE '[0-9]+$')
[ "$steps" = $(((train_tokens - 1) / 24 / 6)) ] || fail "$train_tokens tokens, $steps steps"
must_train $by 'dataset.input_dir=[two/first, two/second]' 'dataset.weights=[1, 2]' output_dir=blend
rm -r two/.trefoil_cache
for settings in "-o $by" ""; do
    # shellcheck disable=SC2086 # two words
    "$trefoil" pretrain -c run.yaml -o dataset.input_dir=two $settings --dry_run >dry.out 2>dry.log ||
        fail "dry run: $(cat dry.log)"
    grep -q 'without the data' dry.log && fail "dry run: $(cat dry.log)"
done

# what cannot be done is refused
expect 2 "dataset.split_by: 'documents' is unknown: use one of contiguous, document" \
    "$trefoil" pretrain -c run.yaml -o dataset.split_by=documents
head -12 words.txt >few.txt
"$trefoil" prepare --input few.txt --output few/x 2>log || fail "prepare: $(cat log)"
grep -q 'pretrain .*-o dataset.split_by=contiguous -o eval_freq=0' log || fail "few documents: $(cat log)"
expect 2 'the valid part of .few. is empty: with dataset.split 99,1,0 and dataset.split_by document .*set dataset.split_by to contiguous' \
    "$trefoil" pretrain -c run.yaml -o dataset.input_dir=few -o $by -o dataset.split=99,1,0

# prepare prints the rule that leaves its recipe enough validation text, and the command works
cp -r "$configs" .
for word in leaf stem; do
    awk -v w=$word 'BEGIN { for (d = 0; d < 24; d++) { for (i = 0; i < 90; i++) printf "%s ", w; print d "\n" } }' >long.txt
    "$trefoil" prepare --input long.txt --output $word/x 2>log || fail "prepare: $(cat log)"
    rule=' -o dataset.split_by=contiguous'
    [ $word = stem ] || rule=
    next=$(grep -o 'pretrain -c .*' log)
    [ "$next" = "pretrain -c configs/laptop.yaml -o dataset.input_dir=$word/x -o hidden_size=128 -o max_steps=1000$rule" ] ||
        fail "$word: prepare prints $next"
    # shellcheck disable=SC2086 # its words are wanted
    "$trefoil" $next -o max_steps=1 -o eval_freq=1 -o Model.num_layers=1 -o Model.hidden_size=16 \
        -o output_dir=$word/out 2>run.log || fail "$next: $(tail -3 run.log)"
    grep -q '"eval_loss"' $word/out/metrics.jsonl || fail "$word: no validation"
done
