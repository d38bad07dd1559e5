#!/bin/bash
# trefoil prepare as a user runs it: packed and unpacked inputs, directories, pipes, any
# number of threads, bad lines, and a stop half-way.
. "$(dirname "$0")/lib.sh"

make_corpus 3000
prepare() { "$trefoil" prepare --force "$@" 2>prepare.log || fail "prepare $*: $(cat prepare.log)"; }
same_as_words() {
    cmp -s data/words.bin "$1.bin" && cmp -s data/words.idx "$1.idx" ||
        fail "$1 differs from the dataset of the plain text"
}

# The same documents, whichever way they come, on any number of threads.
gzip -c words.txt >one.gz
{ head -c 100000 words.txt | gzip; tail -c +100001 words.txt | gzip; } >two
for threads in 1 2 5; do
    for input in words.txt one.gz two; do
        prepare --input $input --output out/x --threads $threads
        same_as_words out/x
    done
done
gzip -c words.txt | "$trefoil" prepare --force --input /dev/stdin --output out/x 2>prepare.log ||
    fail "from a pipe: $(cat prepare.log)"
same_as_words out/x
awk 'BEGIN { RS = ""; q = "\"" }
    { gsub(/\n/, "\\n"); print "{" q "id" q ": " NR ", " q "text" q ": " q $0 q "}" }' \
    words.txt >words.jsonl
gzip -k words.jsonl
for input in words.jsonl words.jsonl.gz; do
    prepare --input $input --output out/x
    same_as_words out/x
done

# Standard input, once; other encodings when they are named; an array of JSON.
"$trefoil" prepare --force --input - --output out/x <one.gz 2>prepare.log ||
    fail "standard input: $(cat prepare.log)"
same_as_words out/x
grep -q 'what stands between blank lines; --doc_separator' prepare.log ||
    fail "what a document is: $(cat prepare.log)"
"$trefoil" prepare --force --json --input - --output out/x <words.jsonl 2>prepare.log ||
    fail "JSON on standard input: $(cat prepare.log)"
same_as_words out/x
cp words.jsonl words_json.txt
expect 0 "'words_json.txt' looks like JSON lines, but is read as plain text; --json" \
    "$trefoil" prepare --input words_json.txt --output json/x
expect 2 'named twice' "$trefoil" prepare --input - - --output new/x
iconv -f UTF-8 -t UTF-16 words.txt >words.utf16
expect 2 "'words.utf16' is not UTF-8 at byte 0 .* UTF-16LE: give --encoding UTF-16LE" \
    "$trefoil" prepare --input words.utf16 --output new/x
prepare --input words.utf16 --output out/x --encoding UTF-16
same_as_words out/x
expect 2 "the encoding 'klingon' is not known" \
    "$trefoil" prepare --input words.txt --output new/x --encoding klingon
{ echo '['; sed '$!s/$/,/' words.jsonl; echo ']'; } >words.json
prepare --input words.json --output out/x --strict
same_as_words out/x
expect 2 "1: no key \"content\"; there is \"text\": name the key of the text with --json_key" \
    "$trefoil" prepare --input words.jsonl --json_key content --output new/x --strict
expect 2 'is a device' "$trefoil" prepare --input /dev/zero --output new/x
expect 2 'exists; give --force' "$trefoil" prepare --input words.txt --output out/x
[ ! -e new ] || [ -z "$(ls new)" ] || fail "left behind: $(ls new)"

# A directory is read with those below it, in bytewise order of names, without hidden ones.
mkdir -p in/b/deep in/.hidden in/empty
printf 'B\n' >in/B
printf 'a\n' >in/a
printf '{"text": "deep"}\n' >in/b/deep/x.jsonl
printf 'c\n' >in/c
printf 'hidden\n' | tee in/.hidden/x >in/.x
prepare --input in --output out/dir
[ "$(od -An -v -t u2 -w2 out/dir.bin | tr -d ' ' | tr '\n' ' ')" = \
    "66 256 97 256 100 101 101 112 256 99 256 " ] || fail "order: $(od -An -t u2 out/dir.bin)"

# With a BPE: fewer tokens, the same on any number of threads, and the dataset names the
# tokenizer by its full path, whatever is in it.
bpe='a "small" bpe'
"$trefoil" tokenizer train --input words.txt --vocab_size 300 --output "$bpe" 2>train.log ||
    fail "tokenizer train: $(cat train.log)"
prepare --input words.txt --output bpe/one --tokenizer "$bpe" --threads 1
prepare --input words.jsonl.gz --output bpe/many --tokenizer "$bpe" --threads 3
cmp bpe/one.bin bpe/many.bin && cmp bpe/one.idx bpe/many.idx || fail "threads change tokens"
[ "$(stat -c %s bpe/one.bin)" -lt $(($(stat -c %s data/words.bin) / 2)) ] ||
    fail "the BPE does not shorten the text"
grep -qF "{\"tokenizer\": \"$(realpath .)/a \\\"small\\\" bpe\", \"vocab_size\": 300," bpe/one.meta.json ||
    fail "the description of the dataset is $(cat bpe/one.meta.json)"

# Bad lines: told with their place and counted, or fatal.
printf '{"text": "a"}\n{"text": 5}\n\nx\n{"text": "b"}\n' >bad.jsonl
prepare --input bad.jsonl --output out/bad
grep -q 'bad.jsonl:2: line skipped: no string under the key "text"' prepare.log &&
    grep -q 'bad.jsonl:4: line skipped: not JSON' prepare.log &&
    grep -q '2 documents, 4 tokens .* 2 bad lines skipped' prepare.log ||
    fail "bad lines: $(cat prepare.log)"
expect 2 'bad.jsonl:2: no string under the key' \
    "$trefoil" prepare --input bad.jsonl --output strict/x --strict
[ -z "$(ls strict)" ] || fail "left behind: $(ls strict)"

# What cannot be read says so, and leaves nothing.
head -c 1000 one.gz >cut.gz
expect 2 "'cut.gz': it ends after 1000 bytes, in the middle of its gzip data" \
    "$trefoil" prepare --input words.txt cut.gz --output cut/x
[ -z "$(ls cut)" ] || fail "left behind: $(ls cut)"

# A stop while it waits for more text leaves nothing, and the old dataset as it was.
mkfifo fifo
cp data/words.bin before.bin
"$trefoil" prepare --force --input words.txt fifo --output data/words 2>stop.log &
pid=$!
exec 9>fifo # opens only once the reader is there
kill -INT $pid
wait $pid
[ $? -eq 3 ] || fail "a stopped run ended otherwise: $(cat stop.log)"
exec 9>&-
cmp -s before.bin data/words.bin || fail "a stopped run changed the dataset"
ls data | grep -q tmp && fail "left behind: $(ls data)"

expect 2 'threads must be' "$trefoil" prepare --input words.txt --output out/x --threads 5000
expect 2 "no tokenizer 'nowhere'|'nowhere'" \
    "$trefoil" prepare --input words.txt --output new/x --tokenizer nowhere
exit 0
