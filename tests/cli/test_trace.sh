#!/bin/bash
# -o trace=FILE: one file with what every rank did, and nothing else changed by it.
mpirun=$(realpath "$(dirname "$0")/../parallel/mpirun.sh")
. "$(dirname "$0")/lib.sh"
make_corpus
make_config

run() {
    local n=$1 settings=(-o max_steps=4 -o eval_freq=2)
    shift
    for setting in "$@"; do settings+=(-o "$setting"); done
    "$mpirun" "$mpiexec" "$n" "$trefoil" pretrain -c run.yaml "${settings[@]}" >run.log 2>&1 ||
        fail "$*: $(tail -4 run.log)"
}

# spans FILE NAME RANK PATTERN: how many there are
spans() { grep "\"name\":\"$2\"" "$1" | grep "\"pid\":$3," | grep -c -- "$4"; }

run 2 Distributed.pp_degree=2 trace=two.json
grep -q "wrote trace 'two.json': [0-9]* spans of 2 ranks" run.log || fail "the log: $(tail -2 run.log)"
head -1 two.json | grep -q '"traceEvents":\[$' && tail -1 two.json | grep -qx ']}' ||
    fail "two.json is cut"
grep -q '"name":"rank 0 (dp 0 pp 0 mp 0)"' two.json || fail "rank 0 has no name"
grep -q '"name":"rank 1 (dp 0 pp 1 mp 0)"' two.json || fail "rank 1 has no name"
for rank in 0 1; do
    # 4 steps of 2 micro-batches, and 2 evaluations of 2 batches of 2
    [ "$(spans two.json forward $rank '"micro":')" -eq 16 ] || fail "forward of rank $rank"
    [ "$(spans two.json backward $rank '"chunk":0')" -eq 8 ] || fail "backward of rank $rank"
    for name in loader optimizer step; do
        [ "$(spans two.json $name $rank '"ph":"X"')" -ge 4 ] || fail "$name of rank $rank"
    done
    [ "$(spans two.json evaluate $rank '"ph":"X"')" -eq 2 ] || fail "evaluate of rank $rank"
    [ "$(spans two.json save $rank '"ph":"X"')" -eq 1 ] || fail "save of rank $rank"
    [ "$(spans two.json all-reduce $rank '"group":"tied"')" -eq 4 ] || fail "tied of rank $rank"
    [ "$(spans two.json wait $rank '"group":"pipe"')" -ge 1 ] || fail "waits of rank $rank"
done
[ "$(spans two.json send 0 '"group":"pipe"')" -eq 16 ] || fail "activations sent"
[ "$(spans two.json receive 0 '"group":"pipe"')" -eq 8 ] || fail "gradients received"

curve out/metrics.jsonl >traced.curve
run 1 trace=one.json
[ "$(spans one.json forward 0 '"micro":')" -eq 16 ] || fail "forward of one process"
grep -q communication one.json && fail "one process communicates with nobody"
run 1
curve out/metrics.jsonl | cmp - traced.curve || fail "a trace changes the result"

# a file that cannot be written is known before the first step
expect 3 "trace: .*nowhere/t.json" "$trefoil" pretrain -c run.yaml -o trace=nowhere/t.json
grep -q 'global step' expect.err && fail "trained before refusing the trace"
exit 0
