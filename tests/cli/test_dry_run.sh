#!/bin/bash
# The memory table of a layout, without starting it: printed once, needs nothing but the
# configuration, and is not lost.
. "$(dirname "$0")/lib.sh"
make_config
rm -rf data out

dry() { "$trefoil" pretrain -c run.yaml --dry_run "$@"; }

dry -o Distributed.pp_degree=2 >two.txt 2>dry.log || fail "pp2: $(cat dry.log)"
[ "$(grep -c '^rank [01] ' two.txt)" -eq 2 ] || fail "two ranks have two rows: $(cat two.txt)"
[ -e out ] && fail "a dry run leaves nothing behind: $(ls out)"

# under mpirun, which sets these, every process knows the job, and one prints
rank() { OMPI_COMM_WORLD_SIZE=$1 OMPI_COMM_WORLD_RANK=$2 dry "${@:3}" 2>dry.log; }
rank 2 0 -o Distributed.pp_degree=2 | cmp - two.txt || fail "rank 0 of 2: $(cat dry.log)"
rank 2 1 -o Distributed.pp_degree=2 >one.txt || fail "rank 1 of 2: $(cat dry.log)"
[ ! -s one.txt ] || fail "rank 1 prints too"
rank 3 0 -o Distributed.pp_degree=2
[ $? -eq 2 ] && grep -q 'there are 3' dry.log || fail "3 processes are no pp2: $(cat dry.log)"
[ "$(rank 2 0 -o local_batch_size=3 | grep -c "^rank")" -eq 2 ] ||
    fail "left out, dp_degree is the processes: $(cat dry.log)"

"$trefoil" launch -n 2 pretrain -c run.yaml --dry_run 2>launch.log
[ $? -eq 2 ] && grep -q 'trefoil pretrain -c FILE --dry_run' launch.log ||
    fail "launch: $(cat launch.log)"

dry >/dev/full 2>full.log
[ $? -eq 3 ] && grep -q 'cannot write the memory table' full.log || fail "$(cat full.log)"
