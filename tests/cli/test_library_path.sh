#!/bin/bash
# Libraries come from where the system or the build has them, never from the directory in
# which the program is called: that may be a stranger's.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/library_path_lib.sh"
command -v readelf >/dev/null || fail "readelf is missing; it is in binutils"
check_library_paths "$(dirname "$trefoil")" >bad || fail "$(cat bad)"

# the check sees what it is made for
for entry in '' . lib; do
    mkdir -p seen
    echo 'int main(void) { return 0; }' | gcc -x c - "-Wl,-rpath,/usr/lib:$entry" -o seen/program
    check_library_paths seen >/dev/null && fail "an entry '$entry' is not seen"
done

# a directory with libraries of the names that the program asks for
mkdir planted
cat >x.c <<'C'
#include <unistd.h>
__attribute__((constructor)) static void f(void) { _exit(66); }
C
readelf -d "$trefoil" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p' | grep -v '^libc\.so' >needed
[ -s needed ] || fail "the program needs no library"
gcc -shared -fPIC x.c -o planted/first || fail "gcc"
while read -r name; do cp planted/first "planted/$name"; done <needed
cd planted || exit 1
env -i PATH="$PATH" "$trefoil" --version >../version 2>../err || fail "ended with $?: $(cat ../err)"
env -i PATH="$PATH" LD_LIBRARY_PATH=. "$trefoil" --version >/dev/null 2>&1 &&
    fail "the planted libraries are of no use"
exit 0
