#!/bin/bash
# Writes BUILD/trefoil_VERSION_ARCHITECTURE.deb from what is built in BUILD:
#   tools/make_deb.sh [BUILD]
# The libraries the program needs are found in it by dpkg-shlibdeps. Kernels are chosen at run
# time: the package runs on every processor of its architecture.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build}")
root=$build/deb
version=$(sed -nE 's/^#define TREFOIL_VERSION "(.*)"/\1/p' src/base/base.h)
arch=$(dpkg --print-architecture)
deb=$build/trefoil_${version}_$arch.deb
flavour=$("$build/trefoil" --version | sed -n 's/^MPI: //p')
case $flavour in
'Open MPI'*) mpiexec=openmpi-bin ;;
MPICH*) mpiexec=mpich ;;
*)
    echo "make_deb: no Debian package is known for the mpiexec of '$flavour'" >&2
    exit 1
    ;;
esac
# Debian's own variables; an address that reaches nobody where they are not set.
maintainer="${DEBFULLNAME:-The Trefoil authors} <${DEBEMAIL:-trefoil@localhost}>"
# The same files have the same times whenever and wherever the package is made.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null ||
    date -d "$(sed -nE "s/^## $version \((.*)\)/\1/p" CHANGELOG.md)" +%s)}
export SOURCE_DATE_EPOCH

rm -rf "$root" "$deb"
umask 022
DESTDIR=$root cmake --install "$build" --prefix /usr --strip >/dev/null
doc=$root/usr/share/doc/trefoil
# Debian's places and forms of what `make install` puts elsewhere.
mv "$root/usr/share/zsh/site-functions" "$root/usr/share/zsh/vendor-completions"
rm "$doc/LICENSE"
gzip -9n "$root"/usr/share/man/man?/*
mv "$doc/CHANGELOG.md" "$doc/NEWS.md"
gzip -9n "$doc/NEWS.md"
{
    echo 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/'
    echo 'Upstream-Name: trefoil'
    echo
    echo 'Files: *'
    echo "Copyright: $(sed -nE 's/^Copyright \(c\) //p' LICENSE)"
    echo 'License: MIT'
    sed -e '1,/^Copyright/d' -e '/./,$!d' LICENSE | sed -E 's/^$/./; s/^/ /'
} >"$doc/copyright"
{
    echo "trefoil ($version) unstable; urgency=medium"
    echo
    echo "  * Release $version; NEWS.md.gz tells what is new."
    echo
    echo " -- $maintainer  $(LC_ALL=C date -Ru -d "@$SOURCE_DATE_EPOCH")"
} | gzip -9n >"$doc/changelog.gz"

# dpkg-shlibdeps wants a source package's control file around.
mkdir -p "$build/deb-control/debian" "$root/DEBIAN"
printf 'Source: trefoil\n\nPackage: trefoil\nArchitecture: any\n' >"$build/deb-control/debian/control"
libraries=$(cd "$build/deb-control" &&
    dpkg-shlibdeps -O "$root/usr/bin/trefoil" 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
[ -n "$libraries" ] || {
    echo "make_deb: dpkg-shlibdeps found no libraries" >&2
    exit 1
}
cat >"$root/DEBIAN/control" <<CONTROL
Package: trefoil
Version: $version
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Depends: $libraries, $mpiexec
Recommends: openssh-client
Suggests: man-db
Section: science
Priority: optional
Description: pretrain GPT language models on CPUs
 Trefoil pretrains GPT language models with data, tensor and pipeline
 parallelism and sharded optimizer state over MPI, configured by one YAML file
 per run. Results do not depend on the parallel layout. It prepares text, trains
 tokenizers and models, samples from them, measures them, and exports them for
 transformers and llama.cpp.
CONTROL
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
find "$root" -exec touch --no-dereference -d "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group -Zxz --build "$root" "$deb" >/dev/null
rm -rf "$root" "$build/deb-control"
echo "$deb"
