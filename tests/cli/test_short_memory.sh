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
    *) fail "$kilobytes kB, $*: exit $code: $(tail -3 try.log)" ;;
    esac
    grep -qE 'libgomp|ended by signal|killed by signal' try.log &&
        fail "$kilobytes kB, $*: $(tail -3 try.log)"
}

# Below this size constructors of libraries (libgomp, GnuTLS) end the process before main():
# not the program's concern. Addresses are random, which moves the border a little.
begin=
for kilobytes in $(seq 12000 100 60000); do
    (ulimit -v "$kilobytes" && exec "$trefoil" --version) >try.log 2>&1
    code=$?
    [ $code -ne 3 ] || [ -s try.log ] || fail "$kilobytes kB: exit 3 without a word"
    if [ $code -eq 0 ] || { [ $code -eq 3 ] && grep -q 'ERROR.*the stack' try.log; }; then
        begin=$((kilobytes + 200))
        break
    fi
done
[ -n "$begin" ] || fail "--version does not start: $(tail -3 try.log)"

all() {
    try "$1" "$trefoil" pretrain -c run.yaml -o max_steps=1 -o save_load.output_dir=out
    try "$(($1 + 9000))" "$trefoil" pretrain -c run.yaml -o max_steps=1 \
        -o num_threads=2 -o save_load.output_dir=out
    try "$1" "$trefoil" eval --ckpt done --data data --num_threads 1
    try "$1" "$trefoil" generate --ckpt done --prompt_ids "1 2 3" --max_tokens 4 \
        --num_threads 1
    try "$1" env OMP_NUM_THREADS=2 "$trefoil" export --ckpt done --to hf --output "hf$1"
    try "$1" env OMP_NUM_THREADS=2 "$trefoil" pretrain -c run.yaml --dry_run \
        -o dataset.split_by=document -o num_threads= -o dataset.cache_dir=cache
    rm -rf cache "hf$1"
}
# where the first thread's stack could once not grow any more
for kilobytes in $(seq "$begin" 250 $((begin + 1500))); do all "$kilobytes"; done
for kilobytes in $(seq $((begin + 3000)) 3000 75000); do all "$kilobytes"; done
[ $n_done -gt 8 ] && [ $n_refused -gt 8 ] || fail "$n_done done, $n_refused refused"
