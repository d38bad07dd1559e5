#!/bin/bash
# Configures a build directory: tools/configure.sh DIR [cmake arguments]
#
# The generator of a directory is chosen once, Ninja where there is one; CMake refuses
# to change it later. A directory already configured with the same arguments is left to
# the build, which re-runs CMake itself when it must.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$1
shift
stamp=$dir/configured-with
if [ -f "$dir/CMakeCache.txt" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$*" ]; then
    exit 0
fi
generator=()
if [ ! -f "$dir/CMakeCache.txt" ] && command -v ninja >/dev/null; then
    generator=(-G Ninja)
fi
cmake -S . -B "$dir" "${generator[@]}" "$@"
echo "$*" >"$stamp"
