#!/bin/bash
# The tests of threads under ThreadSanitizer: tools/tsan.sh [JOBS]
#
# clang, for its OpenMP library reports its barriers through Archer; without that every
# parallel loop would look like a race, as it does with gcc's.
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=${1:-2}
archer=$(find "$(clang -print-resource-dir)/../../.." /usr/lib -name libarcher.so \
    -print -quit 2>/dev/null) || true
[ -n "$archer" ] || { echo "tsan: clang's OpenMP library has no libarcher.so" >&2; exit 1; }

CC=clang tools/configure.sh build-tsan -DTREFOIL_TSAN=ON -DTREFOIL_OPTIMIZE=-O1 \
    -DTREFOIL_EMULATE=OFF
cmake --build build-tsan -j "$jobs" --target thread_tests

# ThreadSanitizer wants its memory where a system with much randomness may put something.
fixed=()
if setarch -R true 2>/dev/null; then fixed=(setarch -R); fi
export OMP_TOOL_LIBRARIES=$archer OMP_NUM_THREADS=2
# MPI and libomp are not instrumented: what they touch is not judged.
export TSAN_OPTIONS="ignore_noninstrumented_modules=1"
"${fixed[@]}" tools/run_tests.sh build-tsan -C tsan -L threads
