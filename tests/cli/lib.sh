# What the command-line tests share. Source it; $1 of the test is the trefoil program, $2
# the mpiexec of the MPI library it was built with.
# Each test works in a fresh directory that is removed at its end.
set -uo pipefail
trefoil=$(realpath "$1")
mpiexec=${2:-mpiexec}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# Before a command: a SIGTERM waits for it until it watches for signals.
with_signal=(perl -MPOSIX -e
    'sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGTERM)); kill TERM => $$; exec @ARGV')

# A corpus of n documents (default 60) of plain words in data/words, as bytes.
make_corpus() {
    awk -v n="${1:-60}" 'BEGIN {
        split("leaf stem root soil rain wind seed bloom thorn clover field stone", w, " ")
        x = 7
        for (d = 0; d < n; d++) {
            for (i = 0; i < 40; i++) {
                x = (x * 1103515245 + 12345) % 2147483648
                printf "%s%s", w[int(x / 65536) % 12 + 1], i % 8 == 7 ? "\n" : " "
            }
            print ""
        }
    }' >words.txt
    mkdir -p data
    "$trefoil" prepare --input words.txt --output data/words 2>prepare.log ||
        fail "prepare: $(cat prepare.log)"
}

# A tiny configuration, dropout on, in run.yaml.
make_config() {
    cat >run.yaml <<YAML
PreTraining:
  device: cpu
  max_steps: 20
  seed: 7
  num_threads: 1
  eval_freq: 10
  eval_iters: 2
  batch_size:
    global_batch_size: 6
    local_batch_size: 6
    micro_batch_size: 3
  dataset:
    input_dir: data
    split: '90,8,2'
    max_seq_len: 24
  save_load:
    save_steps: 10
    output_dir: out
  Model:
    vocab_size: 257
    hidden_size: 32
    num_layers: 2
    num_attention_heads: 4
    hidden_dropout_prob: 0.1
    attention_probs_dropout_prob: 0.1
    max_position_embeddings: 32
  Optimizer:
    lr:
      decay_steps: 40
      warmup_rate: 0.1
      max_lr: 1.0e-2
      min_lr: 1.0e-3
YAML
}

# Train with run.yaml and the given -o settings; the log goes to run.log.
train() {
    local settings=()
    for setting in "$@"; do settings+=(-o "$setting"); done
    "$trefoil" pretrain -c run.yaml "${settings[@]}" 2>run.log
}

must_train() {
    train "$@" || fail "training with '$*' ended with $?: $(tail -3 run.log)"
}

# Step, loss, gradient norm and rate of every training step in a metrics file.
curve() {
    grep '"loss"' "$1" | sed 's/"epoch.*"loss"/"loss"/; s/, "loss_scale".*//'
}

# expect CODE PATTERN command...: its exit code, and what it says on standard error.
expect() {
    local code=$1 pattern=$2
    shift 2
    "$@" >expect.out 2>expect.err
    local got=$?
    [ $got -eq "$code" ] || fail "'$*' ended with $got, not $code: $(cat expect.err)"
    grep -qE -- "$pattern" expect.err ||
        fail "'$*' does not say '$pattern' but: $(cat expect.err)"
}

# start STEPS COMMAND...: in the background, as $job, until the run in out/ has made so many
# steps; the log goes to run.log
start() {
    local steps=$1
    shift
    rm -rf out
    "$@" >run.log 2>&1 &
    job=$!
    for _ in $(seq 2400); do
        [ "$(cat out/metrics.jsonl 2>/dev/null | grep -c '"loss"')" -lt "$steps" ] || return 0
        kill -0 $job 2>/dev/null || fail "ended before step $steps: $(tail -5 run.log)"
        sleep 0.05
    done
    fail "no step: $(cat run.log)"
}

# rank_pid RANK: its process in the job that writes to out/.
rank_pid() {
    local process
    for process in $(pgrep -f "output_dir=out "); do
        [ "$(cat "/proc/$process/comm")" = trefoil ] &&
            [ "$(readlink "/proc/$process/cwd")" = "$work" ] &&
            grep -qzxE "(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1" "/proc/$process/environ" &&
            echo "$process" && return
    done
}
