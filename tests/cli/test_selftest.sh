#!/bin/bash
# trefoil selftest: the table, what it refuses, a layout that cannot run, an interruption.
. "$(dirname "$0")/lib.sh"
export TMPDIR=$work/tmp
export ASAN_OPTIONS=detect_leaks=0 # MPI libraries keep memory until the end of a process
mkdir "$TMPDIR"

"$trefoil" selftest --steps 2 --layouts '1 t2, pp2 v3; dp2,mp2 sp' >table.txt 2>errors.txt ||
    fail "ended with $?: $(cat table.txt errors.txt)"
loss=' +[0-9]\.[0-9]{8}'
for row in "1 t2 +1$loss$loss +0 +same +same bits +kept" \
    "pp2 v3 +2$loss$loss +0 +same +same bits +kept" \
    "dp2 +2$loss$loss +[0-9.e-]+ +(same|differ) +same, then 0.0001 +kept" \
    "mp2 sp +2$loss$loss +[0-9.e-]+ +(same|differ) +2e-06, then 0.0001 +kept"; do
    grep -qxE "$row" table.txt || fail "no row '$row' in: $(cat table.txt)"
done
grep -q '^4 of 4 layouts keep their promise' table.txt || fail "no conclusion"
[ -s errors.txt ] && fail "said $(cat errors.txt)"
[ -z "$(ls "$TMPDIR")" ] || fail "left $(ls "$TMPDIR")"

expect 2 "'qq2' in 'pp2 qq2' is no layout" "$trefoil" selftest --layouts 'pp2 qq2'
expect 2 "'' in '' is no layout" "$trefoil" selftest --layouts 'pp2,'
expect 2 '--steps must be between 1 and 50; it is 0' "$trefoil" selftest --steps 0
expect 2 'without mpirun' env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "$trefoil" selftest
[ -z "$(ls "$TMPDIR")" ] || fail "a refused self-test left $(ls "$TMPDIR")"

# 12 heads are not for 5 ranks: its row says so, the others are still run
expect 3 "layout 'mp5' ended with exit code 2" "$trefoil" selftest --steps 1 --layouts mp5,1
grep -q 'num_attention_heads' expect.err || fail "the log of mp5 is not shown"
grep -qxE 'mp5 +5 +FAILED' expect.out && grep -qE '^1 .*kept$' expect.out ||
    fail "the table: $(cat expect.out)"
kept=$(sed -nE "s/.*1 of 2 layouts .* kept in '([^']*)'.*/\1/p" expect.err)
[ -s "$kept/run2.log" ] || fail "no log in '$kept'"
rm -rf "$kept"

"$trefoil" selftest --steps 50 >table.txt 2>errors.txt &
pid=$!
until ls "$TMPDIR"/*/run1/metrics.jsonl >/dev/null 2>&1; do
    kill -0 $pid || fail "ended early: $(cat errors.txt)"
    sleep 0.05
done
kill -TERM $pid
wait $pid
[ $? -eq 75 ] || fail "an interrupted self-test did not end with 75: $(cat errors.txt)"
[ -z "$(ls "$TMPDIR")" ] || fail "an interrupted self-test left $(ls "$TMPDIR")"
