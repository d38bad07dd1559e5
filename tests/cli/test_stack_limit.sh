#!/bin/bash
# Small stacks (ulimit -s, OMP_STACKSIZE): every command works or is refused by a sentence.
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
exit 0
