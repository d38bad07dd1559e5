#!/bin/bash
# Runs docs/slurm/*.sbatch under Slurm: a cluster of this machine alone, started here and
# stopped at the end, in build/slurm. Needs root, and Debian's slurmctld, slurmd, munge.
#   tests/slurm/run_slurm.sh
set -uo pipefail
root=$(realpath "$(dirname "$0")/../..")
work=$root/build/slurm
trefoil=$root/build/trefoil
pids=()

fail() {
    echo "slurm: FAILED: $*" >&2
    tail -n 5 "$work"/*.log "$work"/job/slurm-*.log 2>/dev/null >&2
    exit 1
}

stop() {
    [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null
    wait
}
trap stop EXIT

[ "$(id -u)" = 0 ] || fail "Slurm's daemons need root"
rm -rf "$work"
mkdir -p "$work"/{state,spool,munge,job}
cd "$work" || exit 1
host=$(hostname -s)

# -- the cluster ---------------------------------------------------------------------------

dd if=/dev/urandom of=munge/key bs=128 count=1 2>/dev/null
chmod 400 munge/key
chmod 711 munge
munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge/socket" \
    --log-file="$work/munge/log" --pid-file="$work/munge/pid" --seed-file="$work/munge/seed" \
    >munged.log 2>&1 &
pids+=($!)

cat >slurm.conf <<CONF
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmctldPort=26817
SlurmdPort=26818
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
MessageTimeout=60
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
echo "CgroupPlugin=cgroup/v1" >cgroup.conf
export SLURM_CONF=$work/slurm.conf
slurmctld -D -f "$work/slurm.conf" >slurmctld.log 2>&1 &
pids+=($!)
slurmd -D -f "$work/slurm.conf" >slurmd.log 2>&1 &
pids+=($!)
for _ in $(seq 60); do
    sinfo -h -o %T 2>/dev/null | grep -q idle && break
    sleep 1
done
sinfo -h -o %T | grep -q idle || fail "the cluster does not come up"

# -- the jobs --------------------------------------------------------------------------------

cd job || exit 1
export TREFOIL=$trefoil
case $(ldd "$trefoil") in *libmpich*) export SLURM_MPI=pmi2 ;; esac
awk 'BEGIN { for (i = 0; i < 2000; i++) printf "rain wind seed %d bloom thorn %d clover\n\n", i, i * i }' >text.txt
"$trefoil" prepare --input text.txt --output data/text 2>/dev/null || fail "prepare"
cat >run.yaml <<'YAML'
max_steps: 60
logging_freq: 10
eval_freq: 0
batch_size: {global_batch_size: 8, micro_batch_size: 4}
dataset: {input_dir: data, max_seq_len: 32}
save_load: {save_steps: 0}
Distributed: {dp_degree: 2}
Model: {vocab_size: 257, hidden_size: 32, num_layers: 2, num_attention_heads: 2, max_position_embeddings: 32}
YAML

losses() { # DIR: the losses of its last step
    grep '"loss"' "$1/metrics.jsonl" | tail -1 | grep -oE '"(step|loss)": [0-9.e-]+'
}

sbatch --wait "$root/docs/slurm/train.sbatch" run.yaml -o output_dir=whole >sbatch.out 2>&1 ||
    fail "train.sbatch: $(cat sbatch.out)"
[ -e whole/epoch_0_step_60/trainer.json ] || [ -n "$(ls -d whole/epoch_*_step_60)" ] || fail "nothing saved"
echo "slurm: train.sbatch: $(losses whole | paste -sd' ')"

# Long enough to be stopped in the middle; then the queue has it again, and it goes on.
sed -i 's/max_steps: 60/max_steps: 4000/; s/logging_freq: 10/logging_freq: 100/' run.yaml
id=$(sbatch --parsable "$root/docs/slurm/resume.sbatch" run.yaml -o output_dir=parts) || fail "resume.sbatch"
for _ in $(seq 60); do
    grep -qs '"step": [0-9]*00,' parts/metrics.jsonl && break
    sleep 0.5
done
scancel --signal=USR1 "$id" || fail "scancel"
for _ in $(seq 120); do
    [ "$(scontrol show job "$id" | grep -oE 'Restarts=[0-9]+')" = Restarts=1 ] && break
    sleep 0.5
done
[ "$(scontrol show job "$id" | grep -oE 'Restarts=[0-9]+')" = Restarts=1 ] ||
    fail "the stopped job is not in the queue again: $(scontrol show job "$id")"
grep -q 'continue with -o save_load.ckpt_dir=' slurm-"$id".log || fail "it was not stopped by the signal"
scontrol update JobId="$id" StartTime=now 2>/dev/null # Slurm makes a requeued job wait for two minutes
scontrol release "$id" 2>/dev/null
for _ in $(seq 400); do
    state=$(scontrol show job "$id" | grep -oE 'JobState=[A-Z]+')
    [ "$state" = JobState=COMPLETED ] && break
    sleep 0.5
done
[ "$state" = JobState=COMPLETED ] || fail "the resumed job ends as $state"
grep -q 'resumed from ' slurm-"$id".log || fail "the second job did not resume"
"$trefoil" pretrain -c run.yaml -o output_dir=again 2>/dev/null || fail "the run without Slurm"
[ "$(losses again)" = "$(losses parts)" ] || fail "other losses: $(losses again), $(losses parts)"
echo "slurm: resume.sbatch: stopped, requeued, resumed: $(losses parts | paste -sd' '), as without a stop"
