#!/bin/bash
# Readers that go away, descriptors that are closed, files that may not grow, disks that
# are full, and outputs that are no files.
. "$(dirname "$0")/lib.sh"
make_corpus
make_config

# the reader of the log goes away: the run does not
"$trefoil" pretrain -c run.yaml 2>&1 | head -1 >head.log
[ "${PIPESTATUS[0]}" -eq 0 ] || fail "a log without a reader ended the run"
[ -d out/epoch_0_step_20 ] || fail "nothing was saved without a reader of the log"

# standard descriptors that are closed: no file of the run gets their numbers
for closed in '>&- 2>&-' '<&- >&- 2>&-'; do
    rm -rf out
    eval "\"\$trefoil\" pretrain -c run.yaml $closed" || fail "closed: $closed"
    grep -v '^{"step": ' out/metrics.jsonl && fail "$closed: the log is in metrics.jsonl"
    [ "$(grep -c '"loss"' out/metrics.jsonl)" -eq 20 ] || fail "$closed: metrics"
    [ -d out/epoch_0_step_20 ] || fail "$closed: nothing was saved"
done
"$trefoil" eval --ckpt out --data data >&- 2>closed.log
[ $? -eq 3 ] || fail "a result that nobody can get: $(cat closed.log)"

# a file that may not grow: the save fails with a sentence, the run goes on to its end
rm -rf small
(
    ulimit -f 40
    expect 3 "'epoch_0_step_20' in 'small'.*File too large .see ulimit -f" \
        "$trefoil" pretrain -c run.yaml -o save_load.output_dir=small
    grep -q "'epoch_0_step_10'.*Training goes on" expect.err || fail "$(cat expect.err)"
) || exit 1

# every result is written, or the command says that it was not
while read -r -a words; do
    "$trefoil" "${words[@]}" >/dev/full 2>full.log
    code=$?
    [ $code -eq 3 ] && grep -q 'ERROR.*cannot write .*No space left' full.log ||
        fail "'${words[*]}' on a full disk ended with $code: $(cat full.log)"
done <<'WORDS'
eval --ckpt out --data data
eval --ckpt out --data data --json
generate --ckpt out --prompt leaf --max_tokens 3
inspect out
inspect --json data
config
config --markdown
schedule --pp 2 --micro 4
selftest --layouts 1 --steps 1
pretrain --dry_run -crun.yaml
--help
help
help prepare
prepare --help
--version
version
eval --version
tokenizer --help
help tokenizer train
WORDS
"$trefoil" help tokenizer train >text.txt && grep -q -- --vocab_size text.txt ||
    fail "help tokenizer train"
"$trefoil" config -crun.yaml -omax_steps=3 >text.txt && grep -qE 'max_steps: +3 ' text.txt ||
    fail "-oKEY=VALUE"

# what is no file is written to, never replaced (behind links: what would be replaced by
# mistake are the links)
ln -s /dev/null null
ln -s /dev/full full
ln -s picture.svg link
mkfifo pipe
"$trefoil" config -c pipe >text.txt 2>config.log & # a configuration may come late
reader=$!
for _ in $(seq 600); do
    grep -q 'waiting for a writer of a named pipe, for 60 s at most' config.log && break
    sleep 0.1
done
cat run.yaml >pipe
wait $reader && grep -qE 'max_steps: +20 ' text.txt || fail "config -c pipe: $(cat config.log)"
# which each process of a job would read again: the second would find it empty
for start in "pretrain -o Distributed.dp_degree=2 -o local_batch_size=3" "pretrain --max_restarts 1" "launch -n 2 pretrain"; do
    # shellcheck disable=SC2086
    cat run.yaml | "$trefoil" $start -c /dev/stdin >job.log 2>&1
    [ $? = 2 ] && grep -q "'/dev/stdin' can be read by one process only" job.log ||
        fail "$start from a pipe: $(tail -3 job.log)"
done
draw() { "$trefoil" schedule --pp 2 --micro 4 --svg "$1"; }
draw null >/dev/null && must_train trace=null save_load.output_dir=traced
[ -L null ] || fail "a device was replaced"
expect 3 "cannot write 'full'" draw full
expect 3 "trace: cannot write 'full'" "$trefoil" pretrain -c run.yaml -o trace=full
[ -L full ] || fail "a device was replaced"
draw link >/dev/null && [ -L link ] && grep -q '</svg>' picture.svg || fail "a link"
cat pipe >got &
draw pipe >/dev/null && wait $! && grep -q '</svg>' got && [ -p pipe ] || fail "a pipe"
draw /dev/stdout >both
[ "$(grep -c '</svg>' both)" -eq 1 ] && grep -q '^stage 1' both || fail "/dev/stdout"
