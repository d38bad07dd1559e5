#!/bin/bash
# trefoil selftest --device: everything on the emulated device with toy sizes, one table and
# one JSON file; what it refuses, and what it says when something is wrong.
. "$(dirname "$0")/lib.sh"
export TMPDIR=$work/tmp
export OMP_NUM_THREADS=1
export ASAN_OPTIONS=detect_leaks=0 # MPI libraries keep memory until the end of a process
mkdir "$TMPDIR"

file=found.json
"$trefoil" selftest --device emulated --layouts 'recompute, pp2, mp2' --steps 1 --output $file \
    >table.txt 2>errors.txt ||
    fail "ended with $?: $(cat table.txt errors.txt)"
[ -s errors.txt ] && fail "said $(cat errors.txt)"
[ -z "$(ls "$TMPDIR")" ] || fail "left $(ls "$TMPDIR")"
for row in '^trefoil .*, device emulated: ' '^kernels +35 of 35 near the reference +float32 ' \
    '^kernels +35 of 35 near the reference +float16 ' \
    '^kernels +35 of 35 near the reference +bfloat16 ' \
    "^rows' bits +forward, .* good " "^rows' bits +by input, .* good " \
    '^bandwidth +pinned memory to the device ' '^bandwidth +device to pinned memory ' \
    '^products +by weight, ' '^attention +backward, .*, dropout ' \
    '^layout +one process, as on the processor .* good ' '^layout +pp2 .* good +same bits' \
    '^layout +mp2 .* good ' '^step +toy, .* tokens/s ' '^step +toy, .* GB +good ' \
    '^[0-9]+ good, 0 bad, 0 skipped$' "^all of it is in '$file'"; do
    grep -qE "$row" table.txt || fail "no row '$row' in: $(cat table.txt)"
done

python3 - "$file" "$work" <<'PY' || fail "the file is not what it should be"
import json, os, socket, sys
text = open(sys.argv[1], encoding="utf-8").read()
report = json.loads(text)
assert report["device"] == "emulated" and report["gpu"]["memory_bytes"] > 0, report["gpu"]
rows = report["rows"]
kernels = {(r["what"], r["type"]) for r in rows if r["section"] == "kernel"}
assert len(kernels) == 3 * 35, len(kernels)
assert all(r["verdict"] != "BAD" for r in rows)
assert sum(r["section"] == "published" and "note" in r for r in rows) >= 10
assert report["verdicts"]["good"] == sum(r["verdict"] == "good" for r in rows)
for name in (sys.argv[2], socket.gethostname() if len(socket.gethostname()) > 5 else "\0", "/tmp/"):
    assert name not in text, name
PY

expect 2 "'xyz'" "$trefoil" selftest --device xyz
expect 2 '--steps must be' "$trefoil" selftest --device emulated --steps 0
# without a driver or the plug-in: the sentence, at once
if [ ! -e /dev/nvidiactl ]; then
    "$trefoil" selftest --device gpu >table.txt 2>errors.txt && fail "a GPU was found"
    grep -q 'device=cpu' errors.txt || fail "no remedy: $(cat errors.txt)"
fi
