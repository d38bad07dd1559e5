# A clean Debian 12 made by debootstrap, for the scripts of this folder. Needs root.
# Sourced after `fail` is defined.
suite=bookworm

# Sets mirror to the source of this machine's apt, and http_proxy to its proxy.
find_mirror() {
    # shellcheck disable=SC2016 # apt's own variables
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        awk -v suite=$suite '$2 == suite && $3 == "main" { print $1; exit }')
    [ -n "$mirror" ] || fail "apt has no source of $suite main: run apt-get update"
    eval "$(apt-config shell proxy Acquire::http::Proxy)"
    # shellcheck disable=SC2154 # set by the line before
    if [ -n "${proxy:-}" ] && [ "$proxy" != DIRECT ]; then export http_proxy=$proxy; fi
}

# make_debian DIR: a minimal system in DIR, which must not exist; its log is DIR.log.
make_debian() {
    find_mirror
    mkdir -p "$1"
    debootstrap --variant=minbase "$suite" "$1" "$mirror" >"$1.log" 2>&1 ||
        fail "debootstrap: $(tail -3 "$1.log")"
}

# mount_debian DIR, unmount_debian DIR: /proc, /dev/shm, which MPI needs, the terminals that
# tests open, and /sys: without it UCX, below MPICH, prints errors between the output of tests.
mount_debian() {
    mount -t proc proc "$1/proc"
    mount -t sysfs -o ro sysfs "$1/sys"
    mkdir -p "$1/dev/shm" "$1/dev/pts"
    mount -t tmpfs tmpfs "$1/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$1/dev/pts"
    ln -sf pts/ptmx "$1/dev/ptmx"
}

unmount_debian() {
    local at
    for at in dev/pts dev/shm sys proc; do
        if mountpoint -q "$1/$at"; then umount "$1/$at"; fi
    done
}

# in_debian DIR COMMAND...: runs it there with a plain environment and pip's settings.
in_debian() {
    local dir=$1 pip
    shift
    mapfile -t pip < <(env | grep -E '^(PIP|SSL)_[A-Z_]+=' || true)
    chroot "$dir" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive ${http_proxy:+http_proxy="$http_proxy"} "${pip[@]}" "$@"
}
