#!/bin/bash
# Runs every tests/fuzz/fuzz_*.c under libFuzzer with ASan and UBSan, at random:
#   tools/fuzz.sh [SECONDS [JOBS]]
#
# Corpora start from tests/fuzz/corpus and grow in build-fuzz/corpus from run to run. An
# input that crashes, leaks, hangs for 10 s or takes 2 GB of memory is kept in
# build-fuzz/findings and fails the run; the last line names the targets that failed.
# `make replay` has inputs that are the same every time.
set -euo pipefail
cd "$(dirname "$0")/.."

export seconds=${1:-20}
jobs=${2:-2}
export dir=build-fuzz
flags="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all"

run_target() {
    local name=$1 corpus=$dir/corpus/$1 log=$dir/$1.log
    mkdir -p "$corpus"
    local seeds=("tests/fuzz/corpus/$name")
    if [ "$name" = fuzz_yaml ]; then seeds+=(configs); fi
    if OMP_NUM_THREADS=1 "$dir/tests/fuzz/$name" -max_total_time="$seconds" \
        -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=4096 -max_len=65536 -artifact_prefix="$dir/findings/$name-" "$corpus" "${seeds[@]}" >"$log" 2>&1; then
        echo "fuzz: $name: $(grep -ao 'Done [0-9]* runs' "$log" | tail -1), nothing found"
    else
        echo "fuzz: $name: FAILED, the end of $log:"
        tail -40 "$log"
        echo "$name" >>"$dir/failed"
        return 1
    fi
}
export -f run_target

targets=$(find tests/fuzz -name 'fuzz_*.c' -exec basename {} .c \; | sort)
if [ -z "$targets" ]; then
    echo "fuzz: there is no tests/fuzz/fuzz_*.c"
    exit 0
fi
CC=clang tools/configure.sh "$dir" -DTREFOIL_FUZZ=ON -DTREFOIL_WERROR=OFF \
    "-DCMAKE_C_FLAGS=$flags" >/dev/null
cmake --build "$dir" -j "$jobs" --target fuzz_all
mkdir -p "$dir/findings"
rm -f "$dir/failed"
if ! echo "$targets" | xargs -P "$jobs" -I{} bash -c 'run_target {}'; then
    echo "fuzz: FAILED: $(tr '\n' ' ' <"$dir/failed")(the inputs are in $dir/findings)"
    exit 1
fi
