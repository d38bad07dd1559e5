#!/bin/bash
# whole_matrix.sh TREFOIL MPIEXEC: a checkpoint has no layout. Saved on each of nine and
# resumed on each of nine, with dropout; and a smaller matrix in 16 bits.
. "$(dirname "$0")/matrix_lib.sh"
make_matrix_config
for layout in "${names[@]}"; do save_whole "$layout"; done
for from in "${names[@]}"; do
    for to in "${names[@]}"; do cell "$from" "$to" 2e-6 1e-4; done
    echo "saved on $from: resumed on all ${#names[@]} layouts"
done
for type in float16 bfloat16; do
    half_cells $type all
    echo "$type: ${#half_layouts[@]} layouts resumed on each other"
done
[ $N_CELLS -eq 113 ] || fail "$N_CELLS cells"
