#!/bin/bash
# Runs a test program on N ranks: mpirun.sh MPIEXEC N PROGRAM [ARGUMENT...]
#
# Knows what Open MPI must be told and MPICH must not: root and more ranks than
# processors are fine. A failed assertion aborts its rank, and so the job, instead of
# leaving the others to wait. Lines that every rank prints (cmocka's progress and
# counts) are shown once.
set -uo pipefail

mpiexec=$1 n=$2
shift 2
flags=()
case $("$mpiexec" --version 2>&1) in
*"Open MPI"* | *OpenRTE*) flags=(--allow-run-as-root --oversubscribe --bind-to none) ;;
esac
export CMOCKA_TEST_ABORT=1 TEST_RANKS=$n OMP_NUM_THREADS=1
# MPI libraries keep memory until the end of the process, allocated by plug-ins that are
# unloaded by then and so cannot be named in a list of exceptions. One rank uses no MPI.
[ "$n" -eq 1 ] || export ASAN_OPTIONS=detect_leaks=0

# Ranks write to this script, not through mpiexec: MPICH's loses what a rank says just
# before it aborts.
exec 3> >(awk '/\[[ =A-Z-]*\]/ && seen[$0]++ { next } { print; fflush() }')
awk=$!
"$mpiexec" "${flags[@]}" -n "$n" bash -c 'exec "$@" >"$0" 2>&1' "/proc/$$/fd/3" "$@" \
    </dev/null >&3 2>&3
code=$?
exec 3>&-
wait "$awk"
exit "$code"
