#!/bin/bash
# Small stacks (ulimit -s, OMP_STACKSIZE) and no threads (ulimit -u): every command works or is
# refused by a sentence.
. "$(dirname "$0")/lib.sh"
make_corpus 20
make_config
# a sanitizer needs larger frames than any of these limits
grep -qaE '__(a|t)san_init' "$trefoil" && exit 77
must_train max_steps=1 num_threads=2

commands=(
    "pretrain -c run.yaml -o max_steps=1 -o num_threads=2"
    "pretrain -c run.yaml -o max_steps=1 -o batch_size.local_batch_size=3 -o Distributed.dp_degree=2"
    "eval --ckpt out --data data --num_threads 2"
    "generate --ckpt out --prompt leaf --max_tokens 2 --num_threads 2"
    "prepare --input words.txt --output again/words --force"
    "config -c run.yaml"
    "inspect out"
)
each() { # each CODE PATTERN LIMIT: all commands under this limit
    local command
    for command in "${commands[@]}"; do
        # shellcheck disable=SC2086
        (eval "$3" && exec timeout 60 "$trefoil" $command) >each.log 2>&1 </dev/null
        local code=$?
        [ $code = "$1" ] || fail "$3, $command: $code: $(tail -3 each.log)"
        grep -qE -- "$2" each.log || fail "$3, $command: no '$2' in $(tail -3 each.log)"
    done
}

each 0 '' 'ulimit -Ss 128'       # a soft limit is raised
each 0 '' 'ulimit -s unlimited'  # threads get 2 MB from the C library
each 3 'limited to 128 kB here .ulimit -s., and at least 1024 kB' 'ulimit -s 128'
commands=("board out --port 0" "launch -n 2 pretrain -c run.yaml" "--version")
each 3 'limited to 128 kB here' 'ulimit -s 128'
commands=("pretrain -c run.yaml -o num_threads=2" "eval --ckpt out --data data --num_threads 2")
each 3 "a thread's stack may have 1.0 MB here, and kernels need" 'ulimit -s 1024'
each 3 "a thread's stack may have 0.1 MB here.*OMP_STACKSIZE" 'export OMP_STACKSIZE=64k'

# no thread can be started: root has no such limit
as_user=()
[ "$(id -u)" != 0 ] || as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
chmod 755 .
chmod -R a+rX data out
mkdir -m 777 open
"${as_user[@]}" test -x "$trefoil" || exit 0
alone() {
    (ulimit -t 60 && cd open && exec "${as_user[@]}" bash -c 'ulimit -u 1 && exec "$@"' _ "$trefoil" "$@") \
        >each.log 2>&1 </dev/null
    local code=$?
    [ $code = 3 ] && grep -q "ERROR.*cannot start .*processes and threads is 1: raise it" each.log ||
        fail "ulimit -u 1, $*: $code: $(tail -3 each.log)"
}
cp run.yaml words.txt open
chmod a+r open/*
alone pretrain -c run.yaml -o max_steps=1 -o num_threads=2 -o dataset.input_dir=../data
alone pretrain -c run.yaml -o max_steps=1 -o num_threads=1 -o dataset.input_dir=../data
alone eval --ckpt ../out --data ../data --num_threads 2
alone generate --ckpt ../out --prompt leaf --max_tokens 2 --num_threads 2
alone prepare --input words.txt --output again/words
alone board ../out --port 0 --no_token
exit 0
