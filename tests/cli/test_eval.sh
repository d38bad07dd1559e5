#!/bin/bash
# Evaluation as a user runs it: tokens and text agree, numbers depend on nothing but the
# model and the data, cloze texts, refusals.
mpirun=$(realpath "$(dirname "$0")/../parallel/mpirun.sh")
. "$(dirname "$0")/lib.sh"
export ASAN_OPTIONS=detect_leaks=0 # MPI libraries keep memory until the end of a process

# A text that a small model knows by heart after some steps.
for _ in $(seq 60); do
    printf 'the cat sat on the mat\n\na dog ran to the sea\n\n'
done >words.txt
mkdir data
"$trefoil" prepare --input words.txt --output data/words 2>prepare.log || fail prepare
make_config
must_train max_steps=400 Optimizer.lr.decay_steps=400 eval_freq=0 save_steps=0 Model.hidden_dropout_prob=0 \
    Model.attention_probs_dropout_prob=0 dataset.split=1,0,0

evaluate() {
    "$trefoil" eval --ckpt out --num_threads 1 --json "$@" 2>eval.log ||
        fail "eval $*: $(cat eval.log)"
}

value() { # of a key of one JSON object
    sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p"
}

evaluate --data data/words >plain.json
[ "$(value tokens <plain.json)" -gt 2000 ] || fail "tokens: $(cat plain.json)"
awk -v loss="$(value loss <plain.json)" -v ppl="$(value ppl <plain.json)" \
    'BEGIN { exit !(loss > 0 && loss < 1 && (exp(loss) / ppl - 1) ^ 2 < 1e-12) }' ||
    fail "no model that knows its text: $(cat plain.json)"
"$trefoil" eval --ckpt out --num_threads 1 --data data/words >text.out 2>eval.log ||
    fail "eval for people: $(cat eval.log)"
grep -q "loss $(value loss <plain.json) nats a token" text.out || fail "$(cat text.out)"
evaluate --data ./data/words.bin | cmp - plain.json || fail "a path that begins with a dot"

# One line of figures for any number of processes, threads and batch size.
evaluate --data data/words --overlapping_eval 5 >one.json
evaluate --data data/words --overlapping_eval 5 --batch_size 1 >small.json
"$trefoil" eval --ckpt out --num_threads 2 --json --data data/words --overlapping_eval 5 \
    >threads.json 2>eval.log || fail "two threads: $(cat eval.log)"
cmp one.json small.json || fail "the batch size changes the loss"
cmp one.json threads.json || fail "the threads change the loss"
for n in 2 3; do
    "$mpirun" "$mpiexec" $n "$trefoil" eval --ckpt out --json --data data/words \
        --overlapping_eval 5 >ranks.out || fail "on $n processes: $(cat ranks.out)"
    grep '^{' ranks.out | cmp - one.json || fail "$n processes change the loss"
done
"$trefoil" launch -n 2 eval --ckpt out --json --data data/words --overlapping_eval 5 \
    >launched.json 2>launch.log || fail "launch: $(cat launch.log)"
cmp launched.json one.json || fail "launch: $(cat launched.json launch.log)"

# A text is what prepare would make of it, apart from how documents end.
printf 'the cat sat on the mat' >short.txt
mkdir short
"$trefoil" prepare --input short.txt --output short/short 2>prepare.log || fail prepare
evaluate --data short.txt >a.json
[ "$(value tokens <a.json)" -eq 21 ] || fail "21 letters follow the first: $(cat a.json)"
[ "$(value words <a.json)" -eq 6 ] || fail "6 words: $(cat a.json)"
evaluate --data short/short >b.json
[ "$(value tokens <b.json)" -eq 22 ] || fail "and the end of the document: $(cat b.json)"

# JSON is what prepare would make of it: the same tokens, ends of documents and loss.
awk 'NF { printf "{\"n\": %d, \"body\": \"%s\"}\n", NR, $0 }' words.txt >body.jsonl
sed -n '1,3s/"body"/"other"/; p' body.jsonl >some.jsonl
{ echo '['; sed '$!s/$/,/' body.jsonl; echo ']'; } >body.json
evaluate --data body.jsonl --json_key body | cmp - plain.json || fail "JSON lines: $(cat eval.log)"
evaluate --data body.json --json_key body | cmp - plain.json || fail "an array: $(cat eval.log)"
gzip -c body.jsonl >body.gz
evaluate --data - --json_key body <body.gz | cmp - plain.json || fail "standard input: $(cat eval.log)"
"$trefoil" prepare --input some.jsonl --json_key body --output some/some 2>prepare.log || fail prepare
evaluate --data some/some >some.out
evaluate --data some.jsonl --json_key body | cmp - some.out || fail "bad lines: $(cat eval.log)"
grep -q 'some.jsonl:1: line skipped: no key "body"; there is "other"' eval.log || fail "$(cat eval.log)"
expect 2 "'body.jsonl' has no documents .*--json_key" "$trefoil" eval --ckpt out --data body.jsonl
expect 2 'standard input. can be read by one process only' \
    "$trefoil" eval --ckpt out --data - --dp_degree 2
iconv -f UTF-8 -t UTF-16LE words.txt >wide.txt
expect 2 'looks like UTF-16LE' "$trefoil" eval --ckpt out --data wide.txt
evaluate --data words.txt >a.json
evaluate --data wide.txt --encoding UTF-16LE | cmp - a.json || fail "UTF-16: $(cat eval.log)"

cat >cloze.jsonl <<JSON
{"text": "the cat sat on the mat"}
{"text": "a dog ran to the sea "}
{"text": "the cat sat on the sea"}
{"text": "the cat sat on the matt"}
JSON
evaluate --cloze cloze.jsonl >cloze.json
[ "$(value cloze_correct <cloze.json)" -eq 2 ] || fail "two are right: $(cat cloze.json)"
sed 's/"text": "\(.*\) \([a-z]* *\)"/"context": "\1", "continuation": "\2"/' cloze.jsonl >pair.jsonl
grep -q '"continuation": "mat"' pair.jsonl || fail "$(cat pair.jsonl)"
evaluate --cloze pair.jsonl | cmp - cloze.json || fail "context and continuation"
sed -i 's/", "continuation": "/ ", "continuation": " /; s/}$/, "id": 7, "choices": ["mat"]}/' pair.jsonl
evaluate --cloze pair.jsonl | cmp - cloze.json || fail "blanks around the gap, and other keys"
[ "$(value cloze_accuracy <cloze.json)" = 0.5 ] || fail "$(cat cloze.json)"
"$mpirun" "$mpiexec" 3 "$trefoil" eval --ckpt out --json --cloze cloze.jsonl >ranks.out ||
    fail "cloze on 3 processes: $(cat ranks.out)"
grep '^{' ranks.out | cmp - cloze.json || fail "3 processes change the accuracy"

expect 2 'give --data or --cloze' "$trefoil" eval --ckpt out
expect 2 'more than a window' "$trefoil" eval --ckpt out --data short.txt --overlapping_eval 25
expect 2 'the 32 positions' "$trefoil" eval --ckpt out --data short.txt --max_seq_len 33
expect 2 'no dataset' "$trefoil" eval --ckpt out --data nothing
expect 2 'at least two' "$trefoil" eval --ckpt out --data <(printf x)
expect 2 'batch_size must be' "$trefoil" eval --ckpt out --data short.txt --batch_size 0
echo '{"text": "word"}' >bad.jsonl
expect 2 "'bad.jsonl': text 1 has no word with another before it: remove it" "$trefoil" eval --ckpt out --cloze bad.jsonl
echo '{"context": "a", "continuation": "two words"}' >bad.jsonl
expect 2 "bad.jsonl':1: .continuation. has several words" "$trefoil" eval --ckpt out --cloze bad.jsonl
echo 'no json' >bad.jsonl
expect 2 "bad.jsonl':1:" "$trefoil" eval --ckpt out --cloze bad.jsonl
exit 0
