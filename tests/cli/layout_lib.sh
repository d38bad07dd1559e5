# What the tests that compare layouts share, on top of lib.sh. Source it; STEPS is how long
# a run is.
mpirun=$(realpath "$(dirname "$0")/../parallel/mpirun.sh")
. "$(dirname "$0")/lib.sh"
STEPS=4

# The tiny configuration with 12 samples a step, cut by the layout, and 4 layers.
make_layout_config() {
    make_config
    sed -i 's/global_batch_size: 6/global_batch_size: 12/
        s/local_batch_size: 6/local_batch_size:/; s/micro_batch_size: 3/micro_batch_size:/
        s/num_layers: 2/num_layers: 4/; s/eval_freq: 10/eval_freq: 2/
        s/eval_iters: 2/eval_iters: 1/; s/save_steps: 10/save_steps: -1/' run.yaml
}

# run NAME PROCESSES settings...: train into the directory NAME; the log goes to run.log
run() {
    local name=$1 n=$2 settings=(-o "max_steps=$STEPS" -o "save_load.output_dir=$1")
    shift 2
    for setting in "$@"; do settings+=(-o "$setting"); done
    local launch=("$mpirun" "$mpiexec" "$n")
    [ "$n" -gt 1 ] || launch=()
    "${launch[@]}" "$trefoil" pretrain -c run.yaml "${settings[@]}" >run.log 2>&1 ||
        fail "$name: $(tail -4 run.log)"
}

# same NAME REFERENCE: to the last digit, evaluations too
same() {
    cmp <(curve "$1/metrics.jsonl") <(curve "$2/metrics.jsonl") || fail "$1 differs from $2"
    cmp <(grep -o '"eval_loss": [^,]*' "$1/metrics.jsonl") \
        <(grep -o '"eval_loss": [^,]*' "$2/metrics.jsonl") || fail "$1 evaluates differently"
}

# near NAME REFERENCE [FIRST [ALL]]: losses and norms of step 1 within FIRST (2e-6), the
# losses of all steps within ALL (1e-4), relative
near() {
    paste <(grep '"loss"' "$1/metrics.jsonl") <(grep '"loss"' "$2/metrics.jsonl") |
        grep -oE '"(loss|grad_norm)": [^,]*' | awk '{ print $2 }' |
        awk -v steps="$STEPS" -v first="${3:-2e-6}" -v all="${4:-1e-4}" '
            function apart(a, b) { return a > b ? (a - b) / b : (b - a) / b }
            { x[(NR - 1) % 4] = $1 }
            NR % 4 == 0 {
                loss = apart(x[0], x[2]); norm = apart(x[1], x[3]); n++
                if (loss > (n == 1 ? first : all) || (n == 1 && norm > first)) bad = 1
            }
            END { exit bad || n != steps }' || fail "$1 is too far from $2"
}

# stage DEGREE STAGE: the settings of sharding
stage() {
    echo "Distributed.sharding.sharding_degree=$1 Distributed.sharding.sharding_stage=$2"
}
