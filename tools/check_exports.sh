#!/bin/bash
# What a file of src/ exports is used by src/: a function that only tests or nobody calls
# goes, and one that only its own file calls is static, unless a test calls it as well.
#   tools/check_exports.sh [BUILD]
# Reads the symbols of everything built in BUILD (build). bench/ counts as src/: it
# measures alone what a run only does as a part. Prints file:line of each violation.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${1:-build}
# The kernels in plain C are there for tests.
exempt='^src/device/ref/'
# What tests need to reach all tables of kernels, and to be several ranks; kernels that
# OPERATIONS() names.
exempt_names='^(kernels_list|comm_barrier|comm_world_rank|gpu_table_[a-z_]*)$'

# Weak ones are for tests to put their own in place.
# Lines "file_of_definition.c name", and for a user of another file "bench|src|test name".
symbols() {
    nm -A -g "$build/libtrefoil_lib.a" "$build/CMakeFiles/trefoil.dir/src/cli/main.c.o" |
        awk 'match($0, /[^:\/]*\.cu?\.o:/) && $NF !~ /^\./ && $NF != "main" && $(NF - 1) != "W" {
            print ($(NF - 1) == "U" ? "src" : substr($0, RSTART, RLENGTH - 3)), $NF }'
    find "$build/bench" -name '*.o' -exec nm -u {} + | awk 'NF == 2 { print "src", $2 }'
    find "$build/tests" -name '*.o' -exec nm -u {} + | awk 'NF == 2 { print "test", $2 }'
}

# Lines "file.c name 1|0" of what src/ does not use from outside: 1 if a test does. What one
# set of kernels uses is used.
unused() {
    symbols | sed -E 's/_(generic|avx2|avx512|amx|[a-z0-9]+_emulated)$//' | awk '
        $1 == "src" { used[$2] = 1; next }
        $1 == "test" { tested[$2] = 1; next }
        { file[$2] = $1 }
        END { for (name in file)
                  if (!(name in used)) print file[name], name, (name in tested) }' | sort
}

# How often the file says the name outside comments: once is the definition.
count_uses() { grep -vE '^[[:space:]]*(\*|/\*|//)' "$1" | grep -cE "\b$2\b" || true; }

status=0
while read -r file name is_tested; do
    path=$(find src -name "$file")
    if [[ $path =~ $exempt || $name =~ $exempt_names ]]; then continue; fi
    if [ "$(count_uses "$path" "$name")" -gt 1 ]; then
        [ "$is_tested" = 0 ] || continue
        what="only this file uses it: make it static"
    else
        what="nothing in src/ uses it: remove it"
    fi
    line=$(grep -nE "^[^ #/*].*\b$name\b|^$name\b" "$path" | head -1 | cut -d: -f1) || true
    echo "$path:${line:-1}: $name: $what"
    status=1
done < <(unused)
exit $status
