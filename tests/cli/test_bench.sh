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

# Without other libraries: sanitizers refuse how they are loaded.
alone=(--no-libraries --no-pytorch)
bench --tiny --only adamw,precision >first.log 2>&1 || fail "bench: $(cat first.log)"
grep -q ' float16 .*at most 1.18' first.log || fail "no bound beside a figure"
bench --tiny "${alone[@]}" --only startup,switches >second.log 2>&1 ||
    fail "bench: $(cat second.log)"
grep -q 'dp2, tensor_fusion' second.log || fail "no row for a switch"

# The floor is there and has what it is the sum of; products and attention are measured
# alone, by the kernels that they are told to use.
bench --tiny "${alone[@]}" --only steps,products,attention >floor.log 2>&1 ||
    fail "bench: $(cat floor.log)"
for row in 'Trefoil float32' 'floor float32' 'Trefoil bfloat16' 'floor bfloat16' '16 24 8' \
    'float32, S 32, dropout 0.1'; do
    grep -q "^  $row  *[0-9]" floor.log || fail "no row for $row: $(cat floor.log)"
done
products=$(dirname "$trefoil")/bench/bench_products
printf 'product 5 7 300 %s\n' forward input weight |
    "$products" --kernels generic --threads 1 >products.log || fail "products: $(cat products.log)"
grep -q '"Trefoil generic"' products.log || fail "not the kernels it was told to use"
[ "$(wc -l <products.log)" -eq 4 ] || fail "an answer is missing: $(cat products.log)"
echo 'product 5 7 0 forward' | "$products" >products.log 2>&1 && fail "a product of nothing"

# How long a save takes decides whether its stall can be told: the others must be there.
bench --tiny --only checkpoint >third.log 2>&1
for row in save load 'dd, read'; do
    grep -q "^  $row  *[0-9]" third.log || fail "checkpoint lacks $row: $(cat third.log)"
done

/usr/bin/python3 - <<'PYTHON' || fail "the report lost a section"
import json
report = json.load(open("report.json"))
names = "adamw precision startup switches steps products attention checkpoint"
assert set(report["sections"]) == set(names.split())
floor = report["sections"]["steps"]["data"][0]["results"]["floor float32"]
parts = [floor[part + "_seconds"] for part in ("gemm", "attention", "adamw")]
assert abs(floor["seconds"] - sum(parts)) < 1e-9
assert report["machine"]["processor"]
PYTHON

# Documents: what is marked is replaced, twice the same; what was not measured stays. Every
# table says whose it is, and which kinds of processors were not measured.
cat >page.md <<'PAGE'
before
<!-- bench:adamw -->
old
<!-- /bench:adamw -->
  <!-- bench:quality -->
  kept
  <!-- /bench:quality -->
after
PAGE
bench --markdown --documents page.md >/dev/null || fail "documents"
cp page.md once.md
bench --markdown --documents page.md >/dev/null || fail "documents, again"
cmp -s once.md page.md || fail "a document changes when it is written again"
[ "$(head -1 page.md)$(tail -1 page.md)" = beforeafter ] || fail "text around the tables"
grep -q '^| elements | ' page.md || fail "no table"
processor=$(grep -m1 -oP '^model name\s*: \K.*' /proc/cpuinfo)
[ -z "$processor" ] || grep -qF "$processor" page.md || fail "no name of a processor"
grep -q '^Not measured: ' page.md || fail "kinds of processors that were not measured"
grep -q '^Measured on .*, with trefoil ' page.md || fail "what was measured"
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
