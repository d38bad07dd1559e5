# Every layout's checkpoint on every other layout, on top of lib.sh. Source it.
#
# An uninterrupted run of each layout saves after step SAVED. A cell of the matrix resumes
# one of these checkpoints on some layout, which writes it again before its first step
# (tests/parallel/resave_at_once.c) and trains on.
mpirun=$(realpath "$(dirname "$0")/../parallel/mpirun.sh")
. "$(dirname "$0")/lib.sh"
resaves=$(dirname "$trefoil")/tests/trefoil_resaves
SAVED=4 MORE=5 N_CELLS=0

# name, processes, micro-batch size, layouts with the same bits, settings. Pipelines have
# the bits of one process, sharding with one micro-batch those of data parallelism.
d=Distributed
shard=$d.sharding.sharding
layouts="
one         1 2 one
pp2         2 2 one   $d.pp_degree=2
pp2_v2      2 2 one   $d.pp_degree=2 $d.virtual_pp_degree=2
dp2         2 4 dp    $d.dp_degree=2
shard2_1    2 4 dp    ${shard}_degree=2 ${shard}_stage=1 ${shard}_offload=True
shard2_2    2 4 dp    ${shard}_degree=2 ${shard}_stage=2 ${shard}_offload=True
shard2_3    2 4 dp    ${shard}_degree=2 ${shard}_stage=3 ${shard}_offload=True
mp2         2 2 mp    $d.mp_degree=2
dp2_mp2_pp2 8 2 all   $d.dp_degree=2 $d.mp_degree=2 $d.pp_degree=2
"
names=() # of the layouts
declare -A processes micro bits settings
while read -r name n m class rest; do
    [ -n "$name" ] || continue
    names+=("$name")
    processes[$name]=$n micro[$name]=$m bits[$name]=$class settings[$name]=$rest
done <<<"$layouts"

make_matrix_config() {
    make_corpus
    make_config
    sed -i 's/global_batch_size: 6/global_batch_size: 8/; s/local_batch_size: 6/local_batch_size:/
        s/num_layers: 2/num_layers: 4/; s/eval_freq: 10/eval_freq: 0/
        s/save_steps: 10/save_steps: 0/' run.yaml
}

# run PROGRAM LAYOUT OUTPUT settings...
run() {
    local program=$1 layout=$2 options=(-o "save_load.output_dir=$3")
    shift 3
    for setting in ${settings[$layout]} "batch_size.micro_batch_size=${micro[$layout]}" \
        "max_steps=$((SAVED + MORE))" "$@"; do
        options+=(-o "$setting")
    done
    local launch=("$mpirun" "$mpiexec" "${processes[$layout]}")
    [ "${processes[$layout]}" -gt 1 ] || launch=()
    "${launch[@]}" "$program" pretrain -c run.yaml "${options[@]}" >run.log 2>&1 ||
        fail "$layout $*: $(tail -4 run.log)"
}

# The uninterrupted run of a layout, in whole_LAYOUT: save_whole LAYOUT settings...
save_whole() {
    run "$trefoil" "$1" "whole_$1" save_load.save_steps=$SAVED "${@:2}"
    [ -d "$(checkpoint "whole_$1" $SAVED)" ] || fail "$1 has not saved step $SAVED"
}

checkpoint() { echo "$1"/epoch_*_step_"$2"; }

# What the metrics of the steps after SAVED say, of one field or of what must not change.
field() { awk -v s=$SAVED -F'[ ,]+' '/"loss"/ && $2 > s' "$1/metrics.jsonl" | grep -o "\"$2\": [^,}]*"; }
steps() { awk -v s=$SAVED -F'[ ,]+' '/"loss"/ && $2 > s' "$1/metrics.jsonl" | sed 's/"reader_cost.*"consumed/"consumed/; s/, "peak.*//'; }
# How far a checkpoint is: all of its manifest before the configuration. Without a loss
# scale that changes, nobody reads how many steps were good.
progress() { sed '/"config": {/,$d; /"scale": 0.0/{n;d}' "$1/trainer.json"; }

# same_tensors A B: two checkpoints, every byte
same_tensors() {
    for file in model optimizer; do cmp "$1/$file.safetensors" "$2/$file.safetensors" || return 1; done
}

# near FIRST ALL A B: the losses of two runs, relative; the first one's bound is its own
near() {
    paste <(field "$3" loss) <(field "$4" loss) | awk -v first="$1" -v all="$2" -v more=$MORE '
        { apart = $2 > $4 ? $2 - $4 : $4 - $2 }
        apart > (NR == 1 ? first : all) * $4 { bad = 1 }
        END { exit bad || NR != more }'
}

# cell FROM TO FIRST ALL settings...: resume whole_FROM on the layout TO. The first loss
# is within FIRST of that of the uninterrupted run of FROM, the same where TO splits no sum
# of a forward pass; all are within ALL of those of one process.
cell() {
    local from=$1 to=$2 first=$3 all=$4 cell="from $1 to $2" saved
    saved=$(checkpoint "whole_$from" $SAVED)
    rm -rf cell
    run "$resaves" "$to" cell "save_load.ckpt_dir=$saved" "${@:5}"
    same_tensors "$(checkpoint cell $SAVED)" "$saved" || fail "$cell: tensors changed"
    cmp <(progress "$(checkpoint cell $SAVED)") <(progress "$saved") ||
        fail "$cell: progress changed"
    cmp <(field cell consumed_samples) <(field whole_one consumed_samples) ||
        fail "$cell: other samples"
    near "$all" "$all" cell whole_one || fail "$cell: too far from one process"
    if [ "${bits[$from]}" = "${bits[$to]}" ]; then
        cmp <(steps cell) <(steps "whole_$from") || fail "$cell: other bits than $from"
        same_tensors "$(checkpoint cell $((SAVED + MORE)))" \
            "$(checkpoint "whole_$from" $((SAVED + MORE)))" || fail "$cell: other tensors at the end"
    else
        case $from$to in *mp2*) ;; *) first=0 ;; esac
        near "$first" "$all" cell "whole_$from" || fail "$cell: too far from $from"
    fi
    N_CELLS=$((N_CELLS + 1))
}

# The same in 16 bits, on layouts of four kinds: half_cells TYPE ring|all. float16 starts
# with a scale that is too large, so that the checkpoint is between two overflows.
half_layouts=(one pp2_v2 shard2_3 dp2_mp2_pp2)
half_cells() {
    local type=mix_precision.dtype=bfloat16 n=${#half_layouts[@]} i j
    [ "$1" = bfloat16 ] || type="mix_precision.use_pure_fp16=True mix_precision.scale_loss=8388608"
    SAVED=3
    for from in "${half_layouts[@]}"; do
        rm -rf "whole_$from"
        save_whole "$from" $type
    done
    for ((i = 0; i < n; i++)); do
        for ((j = 0; j < n; j++)); do
            [ "$2" = all ] || [ $(((i + 1) % n)) -eq $j ] || continue
            cell "${half_layouts[i]}" "${half_layouts[j]}" 1e-3 1e-2 $type
        done
    done
    [ "$1" = bfloat16 ] || grep -q '"skipped": true' <(steps whole_one) ||
        fail "no step of float16 overflows after the checkpoint"
}
