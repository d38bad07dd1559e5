#!/bin/bash
# The benchmark runs, on toy sizes: what it reads of logs, metrics and traces is there, the
# report keeps its sections, and its tables find their places in a document. No figure is
# looked at.
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
source "$root/tests/cli/lib.sh"
[ -x /usr/bin/python3 ] || exit 77
export PYTHONDONTWRITEBYTECODE=1
# bench_step ends without giving its memory back.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

# A build directory of its own, in which the benchmark puts its work.
mkdir build
ln -s "$trefoil" "$(dirname "$trefoil")/bench" build/

bench() {
    "$root/bench/run.py" --build build --output report.json --threads 1 "$@"
}

# Not bench_floor: sanitizers refuse how it loads two BLAS libraries side by side.
bench --tiny --only adamw,precision >first.log 2>&1 || fail "bench: $(cat first.log)"
grep -q 'bfloat16 .*at most 1.1' first.log || fail "no bound beside a figure"
bench --tiny --only startup,switches >second.log 2>&1 || fail "bench: $(cat second.log)"
grep -q 'dp2, tensor_fusion' second.log || fail "no row for a switch"

# How long a save takes decides whether its stall can be told: the others must be there.
bench --tiny --only checkpoint >third.log 2>&1
for row in save load 'dd, read'; do
    grep -q "^  $row  *[0-9]" third.log || fail "checkpoint lacks $row: $(cat third.log)"
done

/usr/bin/python3 - <<'PYTHON' || fail "the report lost a section"
import json
sections = json.load(open("report.json"))["sections"]
assert set(sections) == {"adamw", "precision", "startup", "switches", "checkpoint"}
PYTHON

# Documents: what is marked is replaced, twice the same; what was not measured stays.
cat >page.md <<'PAGE'
before
<!-- bench:adamw -->
old
<!-- /bench:adamw -->
  <!-- bench:steps -->
  kept
  <!-- /bench:steps -->
after
PAGE
bench --markdown --documents page.md >/dev/null || fail "documents"
cp page.md once.md
bench --markdown --documents page.md >/dev/null || fail "documents, again"
cmp -s once.md page.md || fail "a document changes when it is written again"
[ "$(head -1 page.md)$(tail -1 page.md)" = beforeafter ] || fail "text around the tables"
grep -q '^| elements | ' page.md || fail "no table"
grep -q old page.md && fail "what was marked is still there"
grep -q '^  kept$' page.md || fail "what was not measured is gone"

# What cannot be done is said, with the exit code of a failure.
echo '<!-- bench:speed -->
<!-- /bench:speed -->' >wrong.md
bench --markdown --documents wrong.md 2>err && fail "an unknown place was accepted"
grep -q "marks a place for 'speed'" err || fail "unknown place: $(cat err)"
bench --only speed 2>err && fail "an unknown section was accepted"
grep -q "no section 'speed'" err || fail "unknown section: $(cat err)"
mkdir -p empty
ln -s "$trefoil" empty/
bench --build empty --tiny --only adamw >missing.log 2>&1
[ $? -eq 1 ] || fail "a missing program is no failure"
grep -q "bench_adamw': No such file" missing.log || fail "missing: $(cat missing.log)"
bench --build nowhere 2>err && fail "a missing build was accepted"
grep -q "no 'nowhere/trefoil'" err || fail "no build: $(cat err)"
[ "$(ls build | tr '\n' ' ')" = "bench trefoil " ] || fail "left behind: $(ls build)"
