#!/bin/bash
# Compiles one .cu for the plug-in, quietly:  tools/nvcc.sh NVCC OBJECT SOURCE [OPTION...]
# What ptxas says of every kernel goes to OBJECT.ptxas, and a kernel that spills registers to
# memory is an error, but for sm_70, which has not the instructions these kernels are made for.
# The headers that were read go to OBJECT.d.
set -uo pipefail
nvcc=$1
object=$2
source=$3
shift 3
log=$object.ptxas

# A cache of objects, where there is one, by the files that were read: what nvcc makes of a
# source for one architecture says nothing of the others.
cache=()
if command -v ccache >/dev/null; then
    cache=(ccache)
    CCACHE_BASEDIR=$(cd "$(dirname "$0")/.." && pwd)
    export CCACHE_BASEDIR CCACHE_DEPEND=1
fi
if ! "${cache[@]}" "$nvcc" "$@" -MD -MF "$object.d" -c -o "$object" "$source" >"$log.tmp" 2>&1; then
    cat "$log.tmp" >&2
    rm -f "$object" "$log.tmp"
    exit 1
fi
if grep -vE '^ptxas info|^    [0-9]+ bytes stack frame|^$' "$log.tmp" >&2; then
    echo "$source: the lines above are warnings" >&2
    rm -f "$object" "$log.tmp"
    exit 1
fi
if awk -v source="$source" '
    /Compiling entry function/ { split($0, quoted, "\047"); kernel = quoted[2]; arch = quoted[4] }
    /bytes spill/ && !/ 0 bytes spill stores, 0 bytes spill loads/ && arch != "sm_70" {
        print source ": " kernel " for " arch " spills:" $0; bad = 1 }
    END { exit !bad }' "$log.tmp" >&2; then
    rm -f "$object" "$log.tmp"
    exit 1
fi
mv "$log.tmp" "$log"
