#!/bin/bash
# Installs what a make target needs and does not find: Debian packages, and Python packages
# from PyPI into a virtual environment of the target's own, build/python-GROUP.
#
#   tools/setup.sh GROUP...
#   tools/setup.sh --groups        the names of the groups
#
# Says nothing when nothing is missing. Needs root or sudo only for Debian packages. Where
# it cannot install those (another system, no rights) it says what is needed and goes on:
# the libraries may come from elsewhere, and CMake names the first one it does not find.
# A download that fails is tried three times; Python packages that cannot be had end it
# with a failure, for what is compared with them could not be compared.
set -euo pipefail
cd "$(dirname "$0")/.."

groups="build mpich demo lint fuzz tsan aarch64 interop browser bench pytorch site slurm deb package debootstrap"

packages_of() {
    case $1 in
    build) echo gcc binutils libc6-dev cmake ninja-build pkg-config libsimde-dev \
        libyaml-dev libjansson-dev libxxhash-dev libpcre2-dev zlib1g-dev libzip-dev libzstd-dev \
        libmicrohttpd-dev libcmocka-dev libopenmpi-dev openmpi-bin python3 procps perl ;;
    mpich) echo libmpich-dev mpich ;;
    demo) echo bible-kjv bible-kjv-text ;;
    lint) echo clang clang-format clang-tidy libomp-dev python3 ;;
    fuzz | tsan) echo clang libclang-rt-14-dev libomp-dev ;;
    aarch64) echo gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user \
        libcmocka-dev:arm64 libgomp1:arm64 ;;
    interop) echo python3 python3-venv python3-numpy python3-torch bible-kjv bible-kjv-text ;;
    browser) echo python3 python3-venv chromium chromium-driver fonts-noto-cjk ;;
    bench) echo python3 libblis4-openmp libopenblas0-openmp ;;
    pytorch) echo python3 python3-venv ;;
    deb) echo dpkg-dev binutils ;;
    package) echo git mandoc groff-base bsdextrautils zsh fish shellcheck qemu-user python3 python3-venv ;;
    debootstrap) echo debootstrap dpkg-dev binutils ;;
    site) echo python3 cmark-gfm ;;
    slurm) echo slurmctld slurmd slurm-client munge ;;
    *)
        echo "setup: unknown group '$1'; the groups are $groups" >&2
        return 2
        ;;
    esac
}

# Runs a command that downloads, three times at most.
retry() {
    local attempt
    for attempt in 1 2 3; do
        if "$@"; then return 0; fi
        if [ "$attempt" -lt 3 ]; then sleep $((5 * attempt)); fi
    done
    return 1
}

# -- Debian -----------------------------------------------------------------------------------

# The packages among the arguments that are not installed; NAME:ARCH is of another
# architecture than the system's.
missing_of() {
    local installed own
    own=$(dpkg --print-architecture)
    installed=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package}:${Architecture}\n' "$@" \
        2>/dev/null | sed -nE "s/^.i *//; t show; d; :show; s/:($own|all)\$//p; t; p") || true
    printf '%s\n' "$@" | sort -u | grep -vxF -e "${installed:-none}" | tr '\n' ' ' || true
}

install_packages() {
    local missing as_root=() apt
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        echo "setup: this is not a Debian system; what Debian calls these must be" \
            "installed: $*" >&2
        return
    fi
    read -ra missing <<<"$(missing_of "$@")"
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "setup: packages are missing, and this user may not install them;" \
                "as root: apt-get install ${missing[*]}" >&2
            return
        fi
        as_root=(sudo)
    fi
    apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq
        -o Dpkg::Use-Pty=0 -o APT::Install-Recommends=false -o Acquire::Retries=3)
    echo "setup: installing ${missing[*]}"
    if [[ " ${missing[*]} " = *:arm64* ]]; then "${as_root[@]}" dpkg --add-architecture arm64; fi
    retry "${apt[@]}" update ||
        echo "setup: apt-get update failed; trying with the lists there are" >&2
    if ! retry "${apt[@]}" install -y "${missing[@]}" >/dev/null; then
        echo "setup: apt-get could not install ${missing[*]}" >&2
        exit 1
    fi
    echo "setup: installed ${missing[*]}"
}

# -- PyPI -------------------------------------------------------------------------------------

fail_python() {
    echo "setup: $*" >&2
    exit 1
}

# build/python-GROUP with what tools/pypi-GROUP.txt names; a copy of that file is put there
# last, and so says that all of it is there. pip's own settings say where PyPI is.
install_python() {
    local group=$1 list=tools/pypi-$1.txt dir=build/python-$1 log=build/python-$1.log
    local venv_options=() pip_options=() python=/usr/bin/python3 # Debian's, which sees its torch
    cmp -s "$list" "$dir/installed.txt" && return
    if [ "$group" = interop ]; then
        venv_options=(--system-site-packages)
        pip_options=(--no-deps --ignore-installed)
    fi
    [ -x "$python" ] || python=python3
    echo "setup: installing the packages of $list from PyPI into $dir"
    mkdir -p build
    rm -rf "$dir"
    "$python" -m venv "${venv_options[@]}" "$dir" >"$log" 2>&1 ||
        fail_python "'$python -m venv $dir' failed, which needs python3-venv: see $log"
    retry "$dir/bin/python" -m pip install --disable-pip-version-check --no-input \
        --no-compile --retries 2 --only-binary :all: "${pip_options[@]}" -r "$list" >"$log" 2>&1 ||
        fail_python "pip cannot install the packages of $list: this target needs PyPI, or" \
            "a mirror that pip is configured for: $(grep -a '^ERROR' "$log" | tail -1)"
    cp "$list" "$dir/installed.txt"
    echo "setup: installed the packages of $list into $dir"
}

if [ "$*" = --groups ]; then
    echo "$groups"
    exit 0
fi
wanted=()
for group in "$@"; do
    list=$(packages_of "$group")
    read -ra packages <<<"$list"
    wanted+=("${packages[@]}")
done
[ ${#wanted[@]} -gt 0 ] || exit 0
install_packages "${wanted[@]}"
for group in "$@"; do
    if [ -f "tools/pypi-$group.txt" ]; then install_python "$group"; fi
done
