#!/bin/bash
# Writes build/trefoil-VERSION.tar.gz, the sources of the last commit:  tools/make_dist.sh
# The same commit gives the same bytes: names are in git's order and times are the commit's.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -nE 's/^#define TREFOIL_VERSION "(.*)"/\1/p' src/base/base.h)
name=trefoil-$version
if ! git rev-parse --verify -q HEAD >/dev/null 2>&1; then
    echo "make_dist: the sources are archived by git: run it in a clone" >&2
    exit 1
fi
if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
    echo "make_dist: changes that are not committed are not in the archive" >&2
fi
mkdir -p build
git archive --format=tar --prefix="$name/" HEAD | gzip -9n >"build/$name.tar.gz.tmp"
mv "build/$name.tar.gz.tmp" "build/$name.tar.gz"
echo "build/$name.tar.gz"
