#!/bin/bash
# Learns a tokenizer and trains a small GPT on the King James Bible on two processes, lets
# it write, and shows that other layouts train the same model: about three minutes.
# `make demo` builds the program and installs the text (Debian's bible-kjv) before.
set -euo pipefail
cd "$(dirname "$0")/.."

trefoil=build/trefoil
config=configs/demo.yaml
text=data/demo/kjv.txt
tokenizer=data/demo/tokenizer
tokens=data/demo/kjv
output=output/demo

# One document a chapter: its name, then a verse a line without its number; documents are
# separated by a blank line. The first listing gives the names, the second the verses.
make_text() {
    awk '
        NR == FNR { if (/^[1-3A-Z][A-Za-z0-9 ]* [0-9]+$/) names[++n_names] = $0; next }
        {
            chapter = substr($0, 1, index($0, ":") - 1)
            if (chapter != last) {
                print (last == "" ? "" : "\n") names[++at]
                last = chapter
            }
            print substr($0, index($0, " ") + 1)
        }
        END { if (at != n_names) { print "demo: the chapters do not match" > "/dev/stderr"; exit 1 } }
    ' <(bible 'Gen1:1-Rev22:21') <(bible -f 'Gen1:1-Rev22:21')
}

if ! command -v bible >/dev/null; then
    echo "demo: the program 'bible' is missing; install bible-kjv and bible-kjv-text" >&2
    exit 1
fi

mkdir -p "$(dirname "$text")"
echo "demo: the text of the King James Bible -> $text"
make_text >"$text.tmp"
mv "$text.tmp" "$text"

echo "demo: a byte-level BPE learnt from the text -> $tokenizer"
rm -rf "$tokenizer"
"$trefoil" tokenizer train --input "$text" --vocab_size 2048 --output "$tokenizer"

echo "demo: text -> tokens"
"$trefoil" prepare --force --input "$text" --tokenizer "$tokenizer" --output "$tokens"

echo "demo: training on two processes ($config)"
"$trefoil" pretrain -c "$config" -o save_load.output_dir="$output"

echo "demo: what it has learnt to write:"
"$trefoil" generate --ckpt "$output" --tokenizer "$tokenizer" --prompt 'In the beginning' --temperature 0.7 --seed 1
echo "demo: the checkpoint is in $output"
echo "demo: results do not depend on the parallel layout:"
"$trefoil" selftest
