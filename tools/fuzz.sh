#!/bin/bash
# Runs every tests/fuzz/fuzz_*.c under libFuzzer with ASan and UBSan:
#   tools/fuzz.sh [SECONDS [JOBS]]
#
# Corpora start from tests/fuzz/corpus and small valid files made here, and grow in
# build-fuzz/corpus from run to run. An input that crashes, leaks, hangs for 10 s or takes
# 2 GB of memory is kept in build-fuzz/findings and fails the run.
set -euo pipefail
cd "$(dirname "$0")/.."

export seconds=${1:-20}
jobs=${2:-2}
export dir=build-fuzz
flags="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all"

# Small valid inputs for the parser that a target is named after; none for others.
make_seeds() {
    local out=$2
    mkdir -p "$out"
    if [ -d "tests/fuzz/corpus/$1" ]; then cp -r "tests/fuzz/corpus/$1/." "$out"; fi
    case $1 in
    *safetensors*)
        printf '\x3a\0\0\0\0\0\0\0{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}    \0\0\x80\x3f' \
            >"$out/seed-one"
        ;;
    *npy*)
        printf "\\x93NUMPY\\x01\\0\\x3a\\0{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }\\n\\1\\0\\2\\0" \
            >"$out/seed-one"
        ;;
    *npz*)
        printf 'PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0' >"$out/seed-empty"
        ;;
    *idx*)
        printf 'MMIDIDX\0\0\1\0\0\0\0\0\0\0\10\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0' \
            >"$out/seed-one"
        ;;
    *config* | *yaml*)
        find configs -name '*.yaml' -exec cp {} "$out" \;
        ;;
    *text_input*)
        printf '\x1f\x8b\10\0\0\0\0\0\0\3\x2b\x49\xad\x28\x51\x28\1\x12\x5c\0\x6e\xdf\x2c\x9b\n\0\0\0' \
            >"$out/seed-gzip"
        printf '\x28\xb5\x2f\xfd\4\x58\x51\0\0text text\n\xaf\xfe\xfe\10' >"$out/seed-zstd"
        ;;
    *json*)
        printf '{"text": "a\\u00e9 \\n"}\n{"text": ""}\n' >"$out/seed-lines"
        ;;
    esac
}

run_target() {
    local name=$1 corpus=$dir/corpus/$1 log=$dir/$1.log
    make_seeds "$name" "$corpus"
    if OMP_NUM_THREADS=1 "$dir/tests/fuzz/$name" -max_total_time="$seconds" \
        -timeout=10 -rss_limit_mb=2048 -max_len=65536 -artifact_prefix="$dir/findings/$name-" "$corpus" >"$log" 2>&1; then
        echo "fuzz: $name: $(grep -ao 'Done [0-9]* runs' "$log" | tail -1), nothing found"
    else
        echo "fuzz: $name: FAILED, the end of $log:"
        tail -40 "$log"
        return 1
    fi
}
export -f make_seeds run_target

targets=$(find tests/fuzz -name 'fuzz_*.c' -exec basename {} .c \; | sort)
if [ -z "$targets" ]; then
    echo "fuzz: there is no tests/fuzz/fuzz_*.c"
    exit 0
fi
CC=clang tools/configure.sh "$dir" -DTREFOIL_FUZZ=ON -DTREFOIL_WERROR=OFF \
    "-DCMAKE_C_FLAGS=$flags" >/dev/null
cmake --build "$dir" -j "$jobs" --target fuzz_all
mkdir -p "$dir/findings"
echo "$targets" | xargs -P "$jobs" -I{} bash -c 'run_target {}'
