#!/bin/bash
# Predicted memory of small jobs: within 5 % or 10 MB of the measured peak of every rank, in
# every kind of layout. With an emulated GPU the percentage is that of the printed columns.
. "$(dirname "$0")/layout_lib.sh"
grep -qaE '__(a|t)san_init' "$trefoil" && exit 77 # sanitizers keep what was freed
"$mpiexec" --version 2>&1 | grep -q 'Open MPI\|OpenRTE' || exit 77 # what was measured
make_corpus
make_layout_config
STEPS=3

# rows: rank, predicted and measured MB, percentage, of the table at the end of run.log
rows() {
    sed -n '/predicted and the measured peak/,$p' run.log | sed 's/  and .* on disk$//' |
        sed -nE 's/.*- rank ([0-9]+) .* ([0-9.]+) +([0-9.]+) \(([-+0-9.]+)%\)$/\1 \2 \3 \4/p'
}

# agrees NAME PROCESSES: the last run had a row for each
agrees() {
    rows | awk -v n="$2" '
        function size(x) { return x < 0 ? -x : x }
        size($3 - $2) > 10 && size($3 - $2) > 0.05 * $2 { print "rank", $1 ": predicted", $2, "measured", $3; bad = 1 }
        END { exit bad || NR != n }' || fail "$1: $(rows)"
}

check() { # check NAME PROCESSES settings...
    run "$@"
    agrees "$1" "$2"
}

D=Distributed
check one 1
check dp4 4 $D.dp_degree=4
check mp2 2 $D.mp_degree=2 save_load.save_steps=2
check dp2_pp2 4 $D.dp_degree=2 $D.pp_degree=2
check sharding4 4 $(stage 4 3) mix_precision.dtype=bfloat16
check offload 2 $(stage 2 2) $D.sharding.sharding_offload=True save_load.offload_dir=disk

# huge pages that a small reduction would touch a byte of: more than all the above
check dp6 6 $D.dp_degree=6 Model.hidden_size=64
rows | awk '$3 > 60 { exit 1 }' || fail "small reductions take much memory: $(rows)"

# many short reductions: their staging is as long as one of them, not as all together
check deep 6 $D.dp_degree=6 Model.hidden_size=64 Model.num_layers=32
check deep16 6 $D.dp_degree=6 Model.hidden_size=64 Model.num_layers=48 mix_precision.dtype=bfloat16

run emulated 1 device=emulated
rows | awk '
    { apart = 100 * ($3 / $2 - 1) - $4; if (apart > 0.3 || apart < -0.3) bad = 1 }
    END { exit bad || NR != 1 }' || fail "percentages are not those of the columns: $(rows)"
exit 0
