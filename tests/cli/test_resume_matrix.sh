#!/bin/bash
# A part of whole_matrix.sh (make matrix): every layout saves and resumes at least twice,
# once from its neighbour in the list, mostly of the same bits, and once from afar.
. "$(dirname "$0")/matrix_lib.sh"
make_matrix_config
n=${#names[@]}
for layout in "${names[@]}"; do save_whole "$layout"; done
for ((i = 0; i < n; i++)); do
    cell "${names[i]}" "${names[(i + 1) % n]}" 2e-6 1e-4
    cell "${names[i]}" "${names[(i + 4) % n]}" 2e-6 1e-4
done
# threads that share the reading of what goes to disk again
cell shard2_3 one 2e-6 1e-4 num_threads=2 ${shard}_offload=True
# cut into small files, with an index, and back
last=$((SAVED + MORE))
run "$trefoil" mp2 cut save_load.save_steps=$SAVED save_load.max_file_bytes=20000
cut=$(checkpoint cut $SAVED)
[ -f "$cut/model.safetensors.index.json" ] || fail "no index"
run "$trefoil" one from_cut save_load.ckpt_dir="$cut"
run "$trefoil" one from_whole save_load.ckpt_dir="$(checkpoint whole_mp2 $SAVED)"
same_tensors "$(checkpoint from_cut $last)" "$(checkpoint from_whole $last)" ||
    fail "files that are cut hold something else"
ls -A whole_dp2_mp2_pp2 cut | grep -qE 'tmp|trash|lock' && fail "something is left behind"
for type in float16 bfloat16; do half_cells $type ring; done
[ $N_CELLS -eq 27 ] || fail "$N_CELLS cells"
