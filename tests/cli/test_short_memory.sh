#!/bin/bash
# Less and less memory (ulimit -v): every command does its work or ends with a sentence of
# its own, whatever the size, and no library ends it.
. "$(dirname "$0")/lib.sh"
make_corpus
make_config
# a sanitizer reserves more addresses than any of these limits
(ulimit -v 4000000 && "$trefoil" --version >version.log 2>&1) || exit 77
must_train max_steps=1 save_load.output_dir=done

n_done=0 n_refused=0
try() {
    local kilobytes=$1
    shift
    (ulimit -v "$kilobytes" && exec timeout 120 "$@") >try.log 2>&1 </dev/null
    local code=$?
    case $code in
    0) n_done=$((n_done + 1)) ;;
    3)
        grep -qE 'ERROR|WARNING' try.log || fail "$kilobytes kB, $*: $(tail -3 try.log)"
        n_refused=$((n_refused + 1))
        ;;
    127) ;; # not even the libraries fit
    *) fail "$kilobytes kB, $*: exit $code: $(tail -3 try.log)" ;;
    esac
    grep -qE 'libgomp|ended by signal|killed by signal' try.log &&
        fail "$kilobytes kB, $*: $(tail -3 try.log)"
}

for kilobytes in $(seq 27000 3000 75000); do
    try "$kilobytes" "$trefoil" pretrain -c run.yaml -o max_steps=1 \
        -o save_load.output_dir=out
    try "$((kilobytes + 9000))" "$trefoil" pretrain -c run.yaml -o max_steps=1 \
        -o num_threads=2 -o save_load.output_dir=out
    try "$kilobytes" "$trefoil" eval --ckpt done --data data --num_threads 1
    try "$kilobytes" "$trefoil" generate --ckpt done --prompt_ids "1 2 3" --max_tokens 4 \
        --num_threads 1
done
[ $n_done -gt 8 ] && [ $n_refused -gt 8 ] || fail "$n_done done, $n_refused refused"
