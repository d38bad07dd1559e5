#!/bin/bash
# Every comparison with foreign programs; `make interop` installs what they need.
# A check that fails does not keep the next from running. The last lines name those that
# failed and count them.
set -uo pipefail
cd "$(dirname "$0")" || exit 1

build=$PWD/../../build
python=$build/python-interop/bin/python
trefoil=$build/trefoil
export PYTHONPYCACHEPREFIX=$build/interop/pycache # nothing is left beside the sources
n_passed=0
failed=()

check() {
    local name=$1
    shift
    if "$python" "$@"; then
        n_passed=$((n_passed + 1))
        echo "interop: $name: ok"
    else
        failed+=("$name")
        echo "interop: $name: FAILED"
    fi
}

if ! "$python" -c 'import numpy, torch'; then
    echo "interop: $python finds no numpy and PyTorch, on Debian python3-torch" >&2
    exit 1
fi
check "golden values are PyTorch's" make_golden.py --check
check "files are numpy's" check_npy.py "$trefoil"
check "training steps are PyTorch's" check_training.py "$trefoil"
check "steps of the tutorial are PyTorch's" check_tutorial.py "$trefoil"
check "gradients in bfloat16 are as near as PyTorch's" check_gradients.py "$trefoil"
check "exported and imported models are transformers'" check_export.py "$trefoil"
check "token ids are GPT-2's" check_tokenizer.py "$trefoil"
check "GGUF files are llama.cpp's" check_gguf.py "$trefoil"
check "TensorBoard and Prometheus read what a run writes" check_tensorboard.py "$trefoil"

for name in "${failed[@]}"; do echo "interop: FAILED: $name"; done
echo "$n_passed passed, ${#failed[@]} failed"
exit $((${#failed[@]} > 0))
