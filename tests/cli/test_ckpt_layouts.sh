#!/bin/bash
# A checkpoint has no layout: saved on any, resumed on any other, and the losses go on as
# if nothing had happened.
mpirun=$(realpath "$(dirname "$0")/../parallel/mpirun.sh")
. "$(dirname "$0")/lib.sh"
make_corpus
make_config
sed -i 's/global_batch_size: 6/global_batch_size: 8/; s/local_batch_size: 6/local_batch_size:/
    s/micro_batch_size: 3/micro_batch_size: 1/; s/num_layers: 2/num_layers: 4/
    s/eval_freq: 10/eval_freq: 0/; s/save_steps: 10/save_steps: 2/' run.yaml

d=Distributed
names=(one dp2 mp2 pp2 pp2_v2 sharding2_1 sharding2_2 sharding2_3 dp2_mp2_pp2)
declare -A processes=([one]=1 [dp2_mp2_pp2]=8)
declare -A settings=(
    [one]="" [dp2]=""
    [mp2]="$d.mp_degree=2" [pp2]="$d.pp_degree=2"
    [pp2_v2]="$d.pp_degree=2 $d.virtual_pp_degree=2"
    [sharding2_1]="$d.sharding.sharding_degree=2 $d.sharding.sharding_stage=1"
    [sharding2_2]="$d.sharding.sharding_degree=2 $d.sharding.sharding_stage=2"
    [sharding2_3]="$d.sharding.sharding_degree=2 $d.sharding.sharding_stage=3
        $d.sharding.sharding_offload=True"
    [dp2_mp2_pp2]="$d.mp_degree=2 $d.pp_degree=2"
)

# run LAYOUT OUTPUT settings...
run() {
    local layout=$1 options=(-o "save_load.output_dir=$2")
    shift 2
    for setting in ${settings[$layout]} "$@"; do options+=(-o "$setting"); done
    "$mpirun" "$mpiexec" "${processes[$layout]:-2}" "$trefoil" pretrain -c run.yaml \
        "${options[@]}" >run.log 2>&1 || fail "$layout $*: $(tail -4 run.log)"
}

# near A B: the losses of two steps within 1e-4
near() {
    paste <(curve "$1/metrics.jsonl") <(curve "$2/metrics.jsonl") |
        grep -oE '"loss": [^,]*' | awk '{ print $2 }' | awk '
            NR % 2 { a = $1 }
            NR % 2 == 0 { n++; if ((a > $1 ? a - $1 : $1 - a) > 1e-4 * $1) bad = 1 }
            END { exit bad || n != 2 }' || fail "$1 is too far from $2"
}

# what was saved: pipelines have the bits of one process, in all files
for layout in "${names[@]}"; do run "$layout" "saved_$layout" max_steps=4; done
for layout in pp2 pp2_v2; do
    for file in model optimizer; do
        cmp saved_{one,$layout}/epoch_0_step_4/$file.safetensors ||
            fail "$layout saves another $file"
    done
done
ls saved_dp2_mp2_pp2 | grep -qE 'tmp|trash|lock' && fail "something is left behind"

# resumed on one process, and on the two next layouts of the list
n=${#names[@]}
for ((i = 0; i < n; i++)); do
    from=${names[i]}
    run one "one_$from" max_steps=6 save_load.ckpt_dir="saved_$from"
    for layout in "${names[(i + 1) % n]}" "${names[(i + 2) % n]}"; do
        run "$layout" "next_$from" max_steps=6 save_load.ckpt_dir="saved_$from"
        near "next_$from" "one_$from"
        case $layout in pp2*)
            cmp <(curve "next_$from/metrics.jsonl") <(curve "one_$from/metrics.jsonl") ||
                fail "$from resumed on $layout has other bits than on one process"
            for file in model optimizer; do
                cmp {one,next}_"$from"/epoch_0_step_6/$file.safetensors ||
                    fail "$from resumed on $layout saves another $file"
            done
            ;;
        esac
        rm -rf "next_$from"
    done
done

# cut into small files, with an index, and back
run mp2 cut max_steps=4 save_load.max_file_bytes=20000
[ -f cut/epoch_0_step_4/model.safetensors.index.json ] || fail "no index"
run one one_cut max_steps=6 save_load.ckpt_dir=cut
cmp one_mp2/epoch_0_step_6/model.safetensors one_cut/epoch_0_step_6/model.safetensors ||
    fail "files that are cut hold something else"

# float16: the loss scale and the master weights go on
half="mix_precision.use_pure_fp16=True"
run one half max_steps=6 $half
run one half_4 max_steps=4 $half
run pp2 half_6 max_steps=6 $half save_load.ckpt_dir=half_4
cmp <(curve half_6/metrics.jsonl) <(curve half/metrics.jsonl | tail -2) ||
    fail "float16 does not go on with the same bits"
