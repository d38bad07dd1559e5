#!/bin/bash
# Every comparison with foreign programs; `make interop` installs what they need.
# A check that fails does not keep the next from running. The last line counts them.
set -uo pipefail
cd "$(dirname "$0")" || exit 1

python=${PYTHON:-/usr/bin/python3} # Debian's, which sees Debian's PyTorch
export PYTHONDONTWRITEBYTECODE=1
n_passed=0
n_failed=0

check() {
    local name=$1
    shift
    if "$@"; then
        n_passed=$((n_passed + 1))
        echo "interop: $name: ok"
    else
        n_failed=$((n_failed + 1))
        echo "interop: $name: FAILED"
    fi
}

check "golden values are PyTorch's" "$python" make_golden.py --check
check "files are numpy's" "$python" check_npy.py "$PWD/../../build/trefoil"
check "training steps are PyTorch's" "$python" check_training.py "$PWD/../../build/trefoil"
check "exported and imported models are PyTorch's" "$python" check_export.py "$PWD/../../build/trefoil"

modules=$PWD/../../build/interop/node_modules
check "other tokenizers are there" ./install_tokenizers.sh "$modules"
check "token ids are GPT-2's" node check_tokenizer.mjs "$PWD/../../build/trefoil" "$modules"
check "llama.cpp is there" ./install_llama.sh "$modules"
check "GGUF files are llama.cpp's" "$python" check_gguf.py "$PWD/../../build/trefoil" "$modules"

echo "$n_passed passed, $n_failed failed"
exit $((n_failed > 0))
