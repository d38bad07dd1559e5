#!/bin/bash
# Installs llama.cpp as the npm package node-llama-cpp with its prebuilt CPU library, unless
# it is there: install_llama.sh PATH/TO/node_modules
# Nothing is compiled, and the libraries for GPUs (600 MB) are left out.
set -euo pipefail

version=3.22.1
modules=$1
library=@node-llama-cpp/linux-$(node -p process.arch)
if [ ! -e "$modules/node-llama-cpp/package.json" ] || [ ! -e "$modules/$library" ]; then
    mkdir -p "$modules"
    npm install --prefix "$(dirname "$modules")" --no-package-lock --no-save --no-audit \
        --no-fund --loglevel=error --omit=optional --ignore-scripts \
        "node-llama-cpp@$version" "$library@$version"
fi
