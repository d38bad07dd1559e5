#!/bin/bash
# Removes what `make install` put below DESTDIR and PREFIX:  tools/uninstall.sh BUILD PREFIX
# What that is says a second installation, into a directory that goes again. Directories of
# this program alone go with their files, others stay.
set -euo pipefail
build=$1
prefix=$2
from=${DESTDIR:-}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
DESTDIR=$stage cmake --install "$build" --prefix "$prefix" >/dev/null
cd "$stage"
find . -type f -printf '%P\0' | while IFS= read -r -d '' file; do rm -f "$from/$file"; done
find . -depth -type d -path '*trefoil*' -printf '%P\0' | while IFS= read -r -d '' dir; do
    if [ -d "$from/$dir" ]; then rmdir --ignore-fail-on-non-empty "$from/$dir"; fi
done
