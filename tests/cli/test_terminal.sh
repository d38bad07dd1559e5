#!/bin/bash
# The log on a terminal: its width and colours, of one process and of several, and Ctrl-C.
export LSAN_OPTIONS=detect_leaks=0 # what MPI libraries keep is not ours to free
. "$(dirname "$0")/lib.sh"
on_terminal=$(dirname "$trefoil")/tests/on_terminal
[ -x "$on_terminal" ] || fail "no $on_terminal"
make_corpus
make_config
unset COLUMNS NO_COLOR
export TERM=xterm
esc=$'\033'
two=(-o Distributed.dp_degree=2 -o batch_size.local_batch_size=3)

# show COLUMNS SETTING...: what a short run shows, each redrawn line by itself
show() {
    local columns=$1
    shift
    "$on_terminal" "$columns" "" "$trefoil" pretrain -c run.yaml -o max_steps=4 \
        -o eval_freq=2 "$@" | sed "s/\r/\n/g; s/${esc}\[K//g" >shown.txt
}

for layout in one two; do
    settings=()
    [ $layout = one ] || settings=("${two[@]}")
    show 80 "${settings[@]}"
    grep -E 'global step|\[eval\]' shown.txt | sed "s/${esc}\[[0-9]*m//g" >steps.txt
    [ "$(wc -l <steps.txt)" -eq 6 ] || fail "$layout: $(cat shown.txt)"
    grep -E '.{81}' steps.txt && fail "$layout: wider than the terminal"
    grep -qE '^\[..:..:..\] global step 4, loss: [0-9.]+, ips_total: ' steps.txt ||
        fail "$layout: $(cat steps.txt)"
    grep -qE "^${esc}\[32m\[..:..:..\]${esc}\[0m global step 4" shown.txt ||
        fail "$layout: no colour: $(cat shown.txt)"
    show 300 "${settings[@]}"
    grep -qE "^${esc}\[32m\[.{23}\] \[    INFO\]${esc}\[0m - global step 4, epoch: 0, .*rate" \
        shown.txt || fail "$layout: a wide terminal: $(cat shown.txt)"
    NO_COLOR=1 show 300 "${settings[@]}"
    grep -q "${esc}" shown.txt && fail "$layout: NO_COLOR"
    TERM=dumb show 0 "${settings[@]}"
    grep -qE "^\[.{23}\] \[    INFO\] - global step 4, epoch: 0, .*rate" shown.txt ||
        fail "$layout: TERM=dumb: $(cat shown.txt)"
    grep -q "${esc}" shown.txt && fail "$layout: TERM=dumb"
done
grep -qE '^\[.{23}\] \[    INFO\] - global step 4, epoch: 0, .*rate' out/log/workerlog.0 ||
    fail "the log of rank 0 is not whole"

# the other ranks tell of themselves in their own logs
for line in 'rank 1 begins on .* with 1 thread' 'its place: dp 1 of 2, pp 0 of 1,' \
    'predicted memory: [0-9.]+ MB' 'after step 4: measured memory [0-9.]+ MB' 'rank 1 ends, its work done'; do
    grep -qE "INFO\] - $line" out/log/workerlog.1 ||
        fail "no '$line' in the log of rank 1: $(cat out/log/workerlog.1)"
done

# a letter and its value may be one word, for launch and for what it runs
"$trefoil" launch -n2 --log_dir joined pretrain -crun.yaml "${two[@]}" -omax_steps=1 \
    2>launch.log || fail "launch -n2: $(cat launch.log)"

# Ctrl-C is answered at once
"$on_terminal" 80 "global step" "$trefoil" pretrain -c run.yaml -o max_steps=100000 \
    -o save_load.output_dir=stopped >shown.txt
[ $? -eq 75 ] || fail "Ctrl-C: $(cat shown.txt)"
grep -qE 'SIGINT: finishing (step|the eval).*; again to stop now' shown.txt ||
    fail "Ctrl-C is not answered: $(cat shown.txt)"
grep -q 'stopped by SIGINT' shown.txt || fail "Ctrl-C: $(cat shown.txt)"
