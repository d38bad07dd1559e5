#!/bin/bash
# trefoil tokenizer: learning, text to ids and back, and what it says to mistakes.
source "$(dirname "$0")/lib.sh" "$@"

tokenizer() {
    "$trefoil" tokenizer "$@" 2>log || fail "tokenizer $*: $(cat log)"
}

same() {
    cmp -s "$1" "$2" || fail "$3: '$1' and '$2' differ"
}

make_corpus 40

# Learning: the files are there, and the same text gives the same ones, bit for bit.
tokenizer train --input words.txt --vocab_size 300 --output tok
grep -q 'vocab_size 300, eos_token_id 299' log || fail "train says: $(cat log)"
for file in tokenizer.json vocab.json merges.txt special_tokens_map.json tokenizer_config.json; do
    [ -s "tok/$file" ] || fail "train did not write $file"
done
mkdir parts
head -c 3000 words.txt >parts/a.txt
tail -c +3001 words.txt >parts/b.txt
awk '{ gsub(/"/, ""); printf "{\"body\": \"%s\\n\"}\n", $0 }' words.txt >lines.jsonl
tokenizer train --input words.txt --vocab_size 300 --output again
diff -r tok again >/dev/null || fail "the same text gave another tokenizer"
tokenizer train --input parts lines.jsonl --json_key body --vocab_size 300 --output more
[ -s more/tokenizer.json ] || fail "train from a directory and JSON lines wrote nothing"

# Both ways, from a file and from standard input, with any bytes.
tokenizer encode --tokenizer tok words.txt >ids
[ "$(wc -l <ids)" -eq 1 ] || fail "encode printed $(wc -l <ids) lines"
tokenizer decode --tokenizer tok ids >back
same words.txt back "round trip of text"
tokenizer encode --tokenizer tok <words.txt >ids2
same ids ids2 "standard input"
awk 'BEGIN { for (i = 0; i < 4000; i++) printf "%c%c", i * 7 % 256, i * 31 % 256 }' |
    LC_ALL=C tr 'x' '\377' >bytes
for name in tok tok/vocab.json bytes; do
    tokenizer encode --tokenizer $name bytes >ids
    tokenizer decode --tokenizer $name ids >back
    same bytes back "round trip of bytes by $name"
done
: >empty
tokenizer encode --tokenizer tok empty >ids
[ "$(od -An -c ids | tr -d ' ')" = '\n' ] || fail "no text has ids: $(cat ids)"

# Text longer than what is read at once, with and without places to cut it: the ids do
# not depend on where it is cut, nor on the number of threads.
for _ in $(seq 700); do cat words.txt; done >long
head -c 5000000 /dev/zero | tr '\0' 'l' >long_word
for file in long long_word; do
    tokenizer encode --tokenizer tok $file >ids
    tokenizer decode --tokenizer tok ids >back
    same $file back "round trip of $file"
    OMP_NUM_THREADS=3 tokenizer encode --tokenizer tok - <$file >ids2
    same ids ids2 "$file with three threads"
done

# Special tokens are text unless asked for.
printf 'leaf<|endoftext|>leaf' >special
tokenizer encode --tokenizer tok --special special >ids
grep -q ' 299 ' ids || fail "--special did not find <|endoftext|>: $(cat ids)"
tokenizer encode --tokenizer tok special >ids2
grep -q ' 299 ' ids2 && fail "<|endoftext|> was not taken for text: $(cat ids2)"
tokenizer decode --tokenizer tok ids >back
same special back "round trip of special tokens"

# Mistakes.
expect 2 "unknown command 'learn'" "$trefoil" tokenizer learn
expect 2 'usage: trefoil tokenizer' "$trefoil" tokenizer
expect 2 '--tokenizer NAME is missing' "$trefoil" tokenizer encode words.txt
expect 2 "there is no tokenizer 'none'" "$trefoil" tokenizer encode --tokenizer none words.txt
expect 2 "cannot open 'none.txt'" "$trefoil" tokenizer encode --tokenizer tok none.txt
expect 2 "cannot read '.'" "$trefoil" tokenizer encode --tokenizer tok .
expect 2 "unknown argument 'b'" "$trefoil" tokenizer encode --tokenizer tok a b
mkdir bert half
printf '{"[PAD]": 0, "[CLS]": 1, "##ing": 2}' >bert/vocab.json
expect 2 "'bert/vocab.json' is the vocabulary of another kind of tokenizer .WordPiece, as BERT" \
    "$trefoil" tokenizer encode --tokenizer bert words.txt
rm bert/vocab.json && touch bert/vocab.txt
expect 2 "'bert/vocab.txt' is of another kind" "$trefoil" tokenizer encode --tokenizer bert words.txt
cp tok/vocab.json half
expect 2 "'half/vocab.json' has no 'merges.txt' beside it" \
    "$trefoil" tokenizer encode --tokenizer half words.txt
mkfifo half/tokenizer.json
expect 2 'it is not a file' "$trefoil" tokenizer encode --tokenizer half words.txt
expect 2 'is a device' "$trefoil" tokenizer encode --tokenizer tok /dev/zero
printf '1 2 x3\n' >bad
expect 2 "word 3 of 'bad', 'x3', is no token id" "$trefoil" tokenizer decode --tokenizer tok bad
printf '1 300' >bad
expect 2 "word 2 of 'bad', 300, is no token of 'tok'" "$trefoil" tokenizer decode --tokenizer tok bad
printf '99999999999999999999' >bad
expect 2 "word 1 of 'bad'" "$trefoil" tokenizer decode --tokenizer tok bad
expect 2 '--vocab_size 256 cannot be' \
    "$trefoil" tokenizer train --input words.txt --vocab_size 256 --output x
expect 2 'there is no text' "$trefoil" tokenizer train --input empty --vocab_size 300 --output x
expect 2 "'none.txt'" "$trefoil" tokenizer train --input none.txt --vocab_size 300 --output x
[ -e x ] && fail "a training that failed left a directory"
expect 0 'the vocabulary has .* tokens, not 5000' \
    "$trefoil" tokenizer train --input words.txt --vocab_size 5000 --output small
expect 3 'cannot write standard output' \
    bash -c "'$trefoil' tokenizer decode --tokenizer tok ids >/dev/full"

echo "tokenizer: ok"
