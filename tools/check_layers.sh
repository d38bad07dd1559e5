#!/bin/bash
# Checks the layering of src/: who may include whom, which library is used where, and
# that a file name stands for one file. Prints file:line of each violation.
set -euo pipefail
cd "$(dirname "$0")/.."

# A folder of src/ and the folders it may include from, itself apart.
layers="
base:
config:    base
device:    base
comm:      base device
text:      base
params:    base device
model:     base config device comm params
data:      base config text
parallel:  base config device comm params model
optim:     base config device comm params
ckpt:      base config device comm data params optim text
hub:       base config device comm params model optim ckpt text
train:     base config device comm data params model parallel optim ckpt text
launch:    base config comm ckpt
cli:       base config device comm data params model parallel optim ckpt hub train launch text
"

# A header of a library and the folders that may include it.
libraries="
blis.h:      device
mpi.h:       comm
yaml.h:      config
jansson.h:   config data ckpt hub train cli text
pcre2.h:     text
zip.h:       data
zstd.h:      data
"

check_includes() {
    grep -rnE '^[[:space:]]*#[[:space:]]*include' --include='*.[ch]' src |
        awk -v layers="$layers" -v libraries="$libraries" '
        # allowed["who", "whom"] from lines "who: whom whom".
        function read_table(text, allowed, known,    n, m, i, j, rows, words) {
            n = split(text, rows, "\n")
            for (i = 1; i <= n; i++) {
                m = split(rows[i], words, /[: ]+/)
                if (m == 0) continue
                known[words[1]] = 1
                for (j = 2; j <= m; j++) allowed[words[1], words[j]] = 1
            }
        }
        function complain(text) { print place ": " text; bad = 1 }
        BEGIN { read_table(layers, may_use, layer_known)
                read_table(libraries, used_in, library_known) }
        {
            split($0, part, ":")
            place = part[1] ":" part[2]
            path = part[1]
            if (split(path, dirs, "/") < 3) { complain("a source file belongs in a folder of src/"); next }
            from = dirs[2]
            if (!(from in layer_known)) { complain("src/" from " is not in the table of layers"); next }
            match($0, /[<"][^>"]*[>"]/)
            header = substr($0, RSTART + 1, RLENGTH - 2)
            if (substr($0, RSTART, 1) == "<") {
                sub(/.*\//, "", header)
                if (header in library_known && !((header, from) in used_in))
                    complain(from "/ may not use <" header ">")
                next
            }
            if (index(header, "/") == 0) { complain("include \"" header "\" with its folder"); next }
            to = substr(header, 1, index(header, "/") - 1)
            if (to == from) next
            if (!(to in layer_known)) complain("\"" header "\" is in no folder of src/")
            else if (!((from, to) in may_use)) complain(from "/ may not include from " to "/")
        }
        END { exit bad }'
}

check_unique_names() {
    find src bench tests -type f ! -name CMakeLists.txt ! -path '*/__pycache__/*' \
        ! -path 'bench/results/*' | awk -F/ '
        $NF in first { print $0 ":1: has the same name as " first[$NF]; bad = 1; next }
        { first[$NF] = $0 }
        END { exit bad }'
}

status=0
check_includes || status=1
check_unique_names || status=1
exit $status
