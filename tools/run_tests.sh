#!/bin/bash
# Runs the suite of a build directory: tools/run_tests.sh DIR [ctest arguments]
#
# The last line is "N passed, N failed", counted in test cases; the line before it names the
# programs that failed. A program that reports
# no cases of its own, or that ends badly without having named a failed case (a crash, a
# time-out), counts as one.
set -uo pipefail

dir=$1
shift
log=$dir/Testing/Temporary/LastTest.log
failures=$dir/Testing/Temporary/LastTestsFailed.log
rm -f "$log" "$failures"
# One job more than the two processors that a test of several ranks counts for: some tests
# mostly wait.
ctest --test-dir "$dir" --output-on-failure -j3 "$@"
status=$?

[ -f "$log" ] || { echo "run_tests: no tests were run in '$dir'" >&2; exit 1; }
if [ -s "$failures" ]; then
    echo "run_tests: FAILED: $(cut -d: -f2- "$failures" | tr '\n' ' ')"
fi
awk '
    # The number in "[  WORD  ] N test(s)" wherever it stands in the line: the two output
    # streams of a program may meet in one line.
    function cases(word) {
        if (!match($0, "\\[  " word "  \\] [0-9]+ test\\(s\\)")) return 0
        return substr($0, RSTART + 13) + 0
    }
    function close_program() {
        if (!in_program) return
        if (!is_good && failed == 0) failed = 1
        if (is_good && passed + failed == 0) passed = 1
        n_passed += passed; n_failed += failed; in_program = 0
    }
    /^[0-9]+\/[0-9]+ Test: / {
        close_program(); in_program = 1; passed = failed = is_good = 0
    }
    { passed += cases("PASSED"); failed += cases("FAILED") }
    /^Test Passed\.$/ || /^Test Pass Reason:$/ { is_good = 1 }
    END {
        close_program()
        printf "%d passed, %d failed\n", n_passed, n_failed
        exit n_failed > 0 || n_passed == 0
    }
' "$log"
counted=$?
exit $((status != 0 || counted != 0))
