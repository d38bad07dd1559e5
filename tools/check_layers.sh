#!/bin/bash
# Checks the layering of src/: who may include whom, which library is used where, that no
# result depends on a library's elementary functions, and that a file name stands for one
# file. Prints file:line of each violation.
#   tools/check_layers.sh             what every change must keep
#   tools/check_layers.sh --all       ... and no pair of folders is allowed that nobody
#                                     uses, and CONTRIBUTING.md shows the table as it is
#   tools/check_layers.sh --markdown  the table of CONTRIBUTING.md; `make docs` puts it there
set -euo pipefail
cd "$(dirname "$0")/.."

# A folder of src/, the folders it may include from, itself apart, and what it is. A folder
# in a folder that has no row belongs to the outer one.
layers="
base:     # errors, log, files, memory, threads, random numbers by counters
config:   base # YAML into one struct, from one table of keys
device:   base device/gpu # memory, streams and arithmetic on tensors; knows no files and no ranks
device/gpu: base device device/emulated device/cuda # what a GPU does on any runtime: kernels in .cu, the table
device/emulated: base device device/gpu # a GPU in the program itself: threads as fibers, memory that faults
device/cuda: base device device/gpu # a plug-in for NVIDIA's GPUs, the one user of CUDA
comm:     base device # processes, messages and collectives, nothing else
text:     base # tokenizers
params:   base device # the table of parameters: shapes, shards, first values
model:    base config device comm params # GPT: forward, backward, decoding
data:     base config text # tokens in, batches out
parallel: base config device comm params model # partition, schedule, pipeline, sharded state
optim:    base config device comm params # update rules, learning rate, loss scale
ckpt:     base config comm data params optim text # checkpoints: write, read, find, check
hub:      base config params model ckpt text # models of Hugging Face and llama.cpp, in and out
train:    base config comm data params model parallel optim ckpt text # the loop: calls everything, computes nothing
board:    base config parallel ckpt train # runs as their directories show them, over HTTP and in a terminal
launch:   base config comm ckpt # starts a job of several processes and stays with it
cli:      base config device comm data parallel ckpt hub train board launch text # one file per subcommand
"

# A header of a library and the folders that may include it.
libraries="
cpuid.h:     device
immintrin.h: device
arm_neon.h:  device
simde/x86/avx512.h: device
omp.h:       device base
cuda_runtime_api.h: device/cuda
cublasLt.h:  device/cuda
nccl.h:      device/cuda
mpi.h:       comm
yaml.h:      config
jansson.h:   config data ckpt hub train board cli text
pcre2.h:     text
xxhash.h:    text data ckpt
zip.h:       data
zlib.h:      data board
microhttpd.h: board
zstd.h:      data
"

check_includes() {
    grep -rnE '^[[:space:]]*#[[:space:]]*include' --include='*.[ch]' --include='*.cu' src |
        awk -v layers="$layers" -v libraries="$libraries" -v wants_all="$1" '
        # allowed["who", "whom"] from lines "who: whom whom".
        function read_table(text, allowed, known,    n, m, i, j, rows, words) {
            n = split(text, rows, "\n")
            for (i = 1; i <= n; i++) {
                sub(/ *#.*/, "", rows[i])
                m = split(rows[i], words, /[: ]+/)
                if (m == 0) continue
                known[words[1]] = 1
                for (j = 2; j <= m; j++)
                    if (words[j] != "") allowed[words[1], words[j]] = 1
            }
        }
        # The folder of the table that a path below src/ belongs to.
        function folder_of(path,    dirs) {
            split(path, dirs, "/")
            return (dirs[1] "/" dirs[2]) in layer_known ? dirs[1] "/" dirs[2] : dirs[1]
        }
        function complain(text) { print place ": " text; bad = 1 }
        BEGIN { read_table(layers, may_use, layer_known)
                read_table(libraries, used_in, library_known) }
        {
            split($0, part, ":")
            place = part[1] ":" part[2]
            path = part[1]
            if (split(path, dirs, "/") < 3) { complain("a source file belongs in a folder of src/"); next }
            from = folder_of(substr(path, 5))
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
            to = folder_of(header)
            if (to == from) next
            is_used[from, to] = 1
            if (!(to in layer_known)) complain("\"" header "\" is in no folder of src/")
            else if (!((from, to) in may_use)) complain(from "/ may not include from " to "/")
        }
        END {
            place = "tools/check_layers.sh:1"
            for (pair in may_use)
                if (wants_all && !(pair in is_used)) {
                    split(pair, side, SUBSEP)
                    complain(side[1] "/ may include from " side[2] "/, and does not")
                }
            exit bad
        }'
}

markdown() {
    echo "| folder | what it is | may include | libraries of its own |"
    echo "|---|---|---|---|"
    local row folder what folders own
    while IFS= read -r row; do
        folder=${row%%:*} what=${row#*# } folders=${row#*:}
        folders=$(xargs <<<"${folders%%#*}" | sed 's/ /, /g')
        own=$(sed -nE "s#^([a-zA-Z0-9_.]+):.* $folder( .*|)\$#\`<\1>\`#p" <<<"$libraries" |
            paste -sd, | sed 's/,/, /g')
        echo "| \`$folder\` | $what | ${folders:--} | ${own:--} |"
    done < <(grep ':' <<<"$layers")
}

check_document() {
    local shown
    shown=$(sed -n '/^| folder |/,/^$/p' CONTRIBUTING.md | sed '/^$/d')
    [ "$shown" = "$(markdown)" ] && return
    echo "CONTRIBUTING.md:1: its table of layers is another one: run make docs"
    return 1
}

# Bits of libm's elementary functions differ between its versions and processors: those
# of base/real.h are for whatever enters a result. Judges and reports may use libm's, and
# attention uses its logf: that is not rounded to nearest everywhere, and losses of earlier
# versions have its bits (the same with FMA, without, and on AArch64).
check_libm() {
    local functions='a?(sin|cos|tan)h?|atan2|sincos|exp(2|10|m1)?|log(2|10|1p|b)?|pow'
    functions+='|cbrt|hypot|erfc?|[lt]gamma'
    local judges='src/device/ref/|src/cli/|src/comm/grid\.c:'
    judges+='|src/device/cpu/cpu_attention\.c:[0-9]+:.* logf\('
    ! grep -rnE "\b($functions)[fl]?\(" --include='*.[ch]' --include='*.cu' src |
        grep -vE "^($judges)|^[^:]*:[0-9]+:[[:space:]]*(\*|/\*)|//.*\b($functions)[fl]?\(" |
        sed -E 's/^([^:]*:[0-9]+:).*\b(('"$functions"')[fl]?)\(.*/\1 \2() of libm enters a result: use base\/real.h/' |
        grep .
}

check_unique_names() {
    find src bench tests -type f ! -name CMakeLists.txt ! -path '*/__pycache__/*' \
        ! -path 'bench/results/*' | awk -F/ '
        $NF in first { print $0 ":1: has the same name as " first[$NF]; bad = 1; next }
        { first[$NF] = $0 }
        END { exit bad }'
}

if [ "${1:-}" = --markdown ]; then
    markdown
    exit
fi
all=
if [ "${1:-}" = --all ]; then all=yes; fi
status=0
check_includes "$all" || status=1
check_libm || status=1
check_unique_names || status=1
if [ -n "$all" ]; then check_document || status=1; fi
exit $status
