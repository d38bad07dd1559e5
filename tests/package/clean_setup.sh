#!/bin/bash
# Every group of tools/setup.sh on a clean Debian of its own, and the target that needs it:
#   tests/package/clean_setup.sh [GROUP...]
# A package that a target uses and its groups do not list fails here and nowhere else.
# The systems are overlays of one debootstrap in build/debian12-setup; all share one clone of
# the last commit, so only the first group builds the program. Needs root; an hour for all
# groups; part of `make nightly`.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."
fail() {
    echo "clean_setup: FAILED: $*" >&2
    exit 1
}
# shellcheck source=tests/package/debian_lib.sh
. tests/package/debian_lib.sh

# What a group must enable, on a system with make, git and nothing else.
command_of() {
    case $1 in
    build) echo "make test" ;;
    bench) echo "make all && tools/setup.sh build bench && ldconfig -p | grep -q blis" ;;
    pytorch) echo "tools/setup.sh pytorch && build/python-pytorch/bin/python -c 'import torch'" ;;
    slurm) echo "tools/setup.sh slurm && command -v slurmctld slurmd srun munged" ;;
    debootstrap) echo "tools/setup.sh debootstrap && command -v debootstrap dpkg-shlibdeps" ;;
    fuzz) echo "make fuzz FUZZ_SECONDS=1" ;;
    *) echo "make $1" ;;
    esac
}

groups=("$@")
if [ ${#groups[@]} -eq 0 ]; then
    read -ra groups <<<"$(tools/setup.sh --groups)"
fi
[ "$(id -u)" -eq 0 ] || fail "debootstrap needs root"
tools/setup.sh debootstrap
top=$PWD/build/debian12-setup
system=$top/merged

release() {
    mountpoint -q "$system/root/trefoil" && umount "$system/root/trefoil"
    unmount_debian "$system"
    if mountpoint -q "$system"; then umount "$system"; fi
}
trap release EXIT
release
rm -rf --one-file-system "$top"
mkdir -p "$top" "$system"
echo "clean_setup: a Debian 12 in $top"
make_debian "$top/base"
in_debian "$top/base" apt-get -qq update >>"$top/base.log" 2>&1 || fail "$(tail -3 "$top/base.log")"
in_debian "$top/base" apt-get -qq -y --no-install-recommends install make git \
    >>"$top/base.log" 2>&1 || fail "$(tail -3 "$top/base.log")"
# The certificates and settings by which this machine's pip finds PyPI.
mkdir -p "$top/base/etc/ssl/certs"
for file in /etc/ssl/certs/ca-certificates.crt /etc/pip.conf; do
    if [ -f $file ]; then cp -L $file "$top/base$file"; fi
done
git clone -q . "$top/trefoil"

for group in "${groups[@]}"; do
    mkdir -p "$top/upper" "$top/work"
    mount -t overlay overlay "$system" \
        -o "lowerdir=$top/base,upperdir=$top/upper,workdir=$top/work"
    mount_debian "$system"
    mkdir -p "$system/root/trefoil"
    mount --bind "$top/trefoil" "$system/root/trefoil"
    start=$SECONDS
    in_debian "$system" bash -c "cd /root/trefoil && git config --global safe.directory '*' &&
        $(command_of "$group")" >"$top/$group.log" 2>&1 ||
        fail "$group: $(command_of "$group"): $(tail -5 "$top/$group.log"); all of it: $top/$group.log"
    echo "clean_setup: $group passed in $((SECONDS - start)) s"
    release
    rm -rf --one-file-system "$top/upper" "$top/work"
done
rm -rf --one-file-system "$top"
echo "clean_setup: passed"
