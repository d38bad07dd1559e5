#!/bin/bash
# The package and the archive of the sources in a clean Debian:
#   tests/package/clean_system.sh BUILD [DIR]
# The system is made by debootstrap in DIR (BUILD/debian12), anew each time, from where this
# machine's own apt gets its packages. The package is installed there and runs; the sources
# build and run. Needs root, as debootstrap does, and some minutes; part of `make nightly`.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."
build=$(realpath "$1")
mkdir -p "${2:-$build/debian12}"
dir=$(realpath "${2:-$build/debian12}")

fail() {
    echo "clean_system: FAILED: $*" >&2
    exit 1
}
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "debootstrap needs root"
    exec sudo tests/package/clean_system.sh "$build" "$dir"
fi

# shellcheck source=tests/package/debian_lib.sh
. tests/package/debian_lib.sh

# -- the system ----------------------------------------------------------------------------

unmount() { unmount_debian "$dir"; }
trap unmount EXIT
unmount
rm -rf --one-file-system "$dir"
deb=$(tools/make_deb.sh "$build")

echo "clean_system: a Debian 12 in $dir"
make_debian "$dir"
inside() { in_debian "$dir" "$@"; }
mount_debian "$dir"

# -- the package ---------------------------------------------------------------------------

echo "clean_system: installing $(basename "$deb")"
cp "$deb" "$dir/tmp/trefoil.deb"
inside apt-get -qq update >>"$dir.log" 2>&1 || fail "apt-get update: $(tail -3 "$dir.log")"
inside apt-get -qq -y --no-install-recommends install /tmp/trefoil.deb >>"$dir.log" 2>&1 ||
    fail "apt-get install: $(tail -5 "$dir.log")"

inside trefoil --version || fail "trefoil --version"
inside trefoil selftest || fail "trefoil selftest"
# As somebody who is not root.
inside useradd --create-home reader
inside su reader -c 'trefoil selftest --layouts 1,dp2 --steps 2' || fail "selftest of a user"
inside apt-get -qq -y remove trefoil >>"$dir.log" 2>&1 || fail "apt-get remove"
if inside sh -c 'command -v trefoil'; then fail "trefoil is there after its removal"; fi

# -- the sources ---------------------------------------------------------------------------

if git rev-parse --verify -q HEAD >/dev/null 2>&1; then
    archive=$(tools/make_dist.sh)
    echo "clean_system: building $(basename "$archive")"
    tar -xzf "$archive" -C "$dir/root"
    inside apt-get -qq -y --no-install-recommends install make >>"$dir.log" 2>&1
    inside sh -c 'cd /root/trefoil-* && make' >>"$dir.log" 2>&1 || fail "make: $(tail -5 "$dir.log")"
    inside sh -c '/root/trefoil-*/build/trefoil selftest --layouts 1,pp2 --steps 2' ||
        fail "selftest of what the archive builds"
fi
unmount
rm -rf --one-file-system "$dir"
echo "clean_system: passed"
