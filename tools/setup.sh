#!/bin/bash
# Installs the Debian packages that a make target needs and does not find.
#
#   tools/setup.sh GROUP...        groups: build mpich demo lint fuzz interop bench
#
# Says nothing when nothing is missing. Needs root or sudo only to install. Where it
# cannot install (another system, no rights) it says what is needed and goes on: the
# libraries may come from elsewhere, and CMake names the first one it does not find.
set -euo pipefail

packages_of() {
    case $1 in
    build) echo gcc libc6-dev cmake ninja-build pkg-config libblis-openmp-dev \
        libfyaml-dev libjansson-dev libxxhash-dev libpcre2-dev zlib1g-dev libzstd-dev \
        libcmocka-dev libopenmpi-dev openmpi-bin ;;
    mpich) echo libmpich-dev mpich ;;
    demo) echo bible-kjv bible-kjv-text ;;
    lint) echo clang clang-format clang-tidy libomp-dev ;;
    fuzz) echo clang libclang-rt-14-dev libomp-dev ;;
    interop) # any npm will do, not only Debian's
        echo python3 python3-numpy python3-torch \
            "$(command -v npm >/dev/null || echo nodejs npm)"
        ;;
    bench) echo python3 libopenblas0-openmp python3-numpy python3-torch ;;
    *)
        echo "setup: unknown group '$1'; the groups are" \
            "build mpich demo lint fuzz interop bench" >&2
        return 2
        ;;
    esac
}

# The packages among the arguments that are not installed.
missing_of() {
    local installed
    installed=$(dpkg-query -W -f='${db:Status-Abbrev}:${Package}\n' "$@" 2>/dev/null |
        sed -n 's/^.i *://p') || true
    printf '%s\n' "$@" | sort -u | grep -vxF -e "${installed:-none}" | tr '\n' ' ' || true
}

wanted=()
for group in "$@"; do
    list=$(packages_of "$group")
    read -ra packages <<<"$list"
    wanted+=("${packages[@]}")
done
[ ${#wanted[@]} -gt 0 ] || exit 0

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "setup: this is not a Debian system; what Debian calls these must be installed:" \
        "${wanted[*]}" >&2
    exit 0
fi

missing=$(missing_of "${wanted[@]}")
[ -n "${missing// /}" ] || exit 0
read -ra missing <<<"$missing"

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "setup: packages are missing, and this user may not install them;" \
            "as root: apt-get install ${missing[*]}" >&2
        exit 0
    fi
    as_root=(sudo)
fi

apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq
    -o Dpkg::Use-Pty=0 -o APT::Install-Recommends=false)
echo "setup: installing ${missing[*]}"
"${apt[@]}" update || echo "setup: apt-get update failed; trying with the lists there are" >&2
if ! "${apt[@]}" install -y "${missing[@]}" >/dev/null; then
    echo "setup: apt-get could not install ${missing[*]}" >&2
    exit 1
fi
echo "setup: installed ${missing[*]}"
