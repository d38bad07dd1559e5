#!/bin/bash
# trefoil schedule: the picture, the figures under it, the SVG, and what it refuses.
. "$(dirname "$0")/lib.sh"
draw() { "$trefoil" schedule "$@"; }

draw --pp 2 --micro 3 >plain.txt || fail "a plain schedule ended with $?"
cat >expected.txt <<'TEXT'
1F1B, 2 stages, 3 micro-batches, forward 1, backward 2

stage 0  0 1 ....(0 )2 (1 )..(2 )
stage 1  ..0 (0 )1 (1 )2 (2 )....

0 is the forward of micro-batch 0, (0) its backward, . is idle.

time    12
bubble  25.00 % of that time (idle / total)
        33.33 % of the time without it (idle / compute, as Megatron counts)

stage 0   busy 9, idle 3; in flight at most 2 micro-batches
stage 1   busy 9, idle 3; in flight at most 1 micro-batch
TEXT
diff expected.txt plain.txt || fail "another picture than expected"

draw --pp 4 --chunks 2 --micro 8 --svg step.svg >text.txt || fail "--svg ended with $?"
grep -q '0b' text.txt || fail "no second chunk in the text"
[ "$(grep -c 'stroke=' step.svg)" -eq $((4 * 2 * 8 * 2)) ] || fail "not all cells in the SVG"
head -c 4 step.svg | grep -q '<svg' && tail -1 step.svg | grep -q '</svg>' ||
    fail "step.svg is no SVG"
draw --pp 4 --micro 8 --schedule F-then-B | grep -q '27.27 %' || fail "F-then-B's bubble"

expect 2 '--pp must be between 1 and 64; it is 0' draw --pp 0 --micro 4
expect 2 '--pp must be between 1 and 64; it is -3' draw --pp -3 --micro 4
expect 2 '--pp must be between 1 and 64; it is 65' draw --pp 65 --micro 4
expect 2 '--micro must be .*; it is 1000000000' draw --pp 4 --micro 1000000000
expect 2 '--chunks must be between 1 and 26' draw --pp 4 --micro 4 --chunks 99
expect 2 'use 4 or 8 micro-batches, or 1 chunk' draw --pp 4 --chunks 2 --micro 6
expect 2 '2 stages or more' draw --pp 1 --chunks 2 --micro 6
expect 2 "must be 1F1B or F-then-B; it is 'zb'" draw --pp 4 --micro 6 --schedule zb
expect 2 'above 0 .* they are 0 and 2' draw --pp 4 --micro 6 --forward 0
expect 2 'above 0 .* they are 1 and -2' draw --pp 4 --micro 6 --backward=-2
expect 2 'neither more than 100 times' draw --pp 4 --micro 6 --backward 1e9
expect 2 'cells' draw --pp 64 --micro 1024 --svg huge.svg
expect 2 'must be at most 2000000; it is 4194304' draw --pp 64 --micro 65536
# as many micro-batches as a model of 175B in 16 stages has
draw --pp 16 --micro 1536 >many.txt || fail "1536 micro-batches: $(cat many.txt)"
grep -q '^bubble  0.97 % of that time' many.txt || fail "$(grep bubble many.txt)"
expect 3 'nowhere/a.svg' draw --pp 4 --micro 6 --svg nowhere/a.svg
expect 2 '--micro N is missing' draw --pp 4
[ -e huge.svg ] && fail "a refused picture was written"
exit 0
