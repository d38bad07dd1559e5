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

mkdir -p "$(dirname "$text")"
echo "demo: the text of the King James Bible -> $text"
tools/demo_text.sh >"$text.tmp"
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
echo "demo: results do not depend on the parallel layout:"
"$trefoil" selftest

# One file that anybody can open or be sent; a build without the board has no page to write.
report=$output/report.html
echo "demo: the checkpoint is in $output"
if "$trefoil" board --save "$report" "$output"; then
    echo "demo: how it went, as a page: $report"
    if [ -n "${DISPLAY:-}${WAYLAND_DISPLAY:-}" ] && command -v xdg-open >/dev/null; then
        xdg-open "$report" >/dev/null 2>&1 &
    fi
fi
