#!/bin/bash
# Base, the device and their tests, built for AArch64 and run under QEMU:
#   tools/aarch64.sh [JOBS]
set -euo pipefail
cd "$(dirname "$0")/.."

tools/configure.sh build-aarch64 -DCMAKE_TOOLCHAIN_FILE="$PWD/tools/aarch64.cmake" \
    -DTREFOIL_DEVICE_ONLY=ON -DTREFOIL_WERROR=ON
cmake --build build-aarch64 -j "${1:-2}"
export OMP_WAIT_POLICY=passive # threads that spin keep the emulator from the others
tools/run_tests.sh build-aarch64
