#!/bin/bash
# One job on two hosts that share nothing but files: two network namespaces, each with a
# host name of its own, joined by a virtual cable. A small program stands in for ssh.
# Needs root, ip and unshare; skipped elsewhere.
. "$(dirname "$0")/lib.sh"
probe=$(dirname "$trefoil")/tests/rank_probe
[ -x "$probe" ] || fail "no $probe"

skip() {
    echo "skipped: $*"
    exit 77
}

[ "$(id -u)" = 0 ] || skip "not root"
command -v ip >/dev/null && command -v unshare >/dev/null || skip "no ip or no unshare"
a=trefoil-a-$$
b=trefoil-b-$$
trap 'ip netns del $a 2>/dev/null; ip netns del $b 2>/dev/null; rm -rf "$work"' EXIT
ip netns add $a 2>/dev/null && ip netns add $b 2>/dev/null || skip "no network namespaces"
ip link add cable netns $a type veth peer name cable netns $b 2>/dev/null || skip "no veth"

connect() {
    ip -n "$1" link set lo up && ip -n "$1" link set cable up &&
        ip -n "$1" addr add "$2" dev cable || fail "cannot set up $1"
}
connect $a 10.231.77.1/24
connect $b 10.231.77.2/24
printf '127.0.0.1 localhost\n10.231.77.1 hosta\n10.231.77.2 hostb\n' >hosts

# enter NAMESPACE HOST COMMAND...: run a command there.
cat >enter <<EOF
#!/bin/bash
exec ip netns exec "\$1" unshare --uts --mount bash -c '
    hostname "\$1" && mount --bind $work/hosts /etc/hosts && shift && exec "\$@"' - "\${@:2}"
EOF
# Called as --help of launch says: ARGUMENTS HOST WORDS..., the words for a shell there.
cat >agent <<EOF
#!/bin/bash
[ "\$1 \$2" = "-F $work/known" ] || { echo "agent was called with \$*" >&2; exit 1; }
host=\$3
shift 3
case \$host in hosta) space=$a ;; hostb) space=$b ;; *) exit 1 ;; esac
exec $work/enter \$space \$host bash -c "\$*"
EOF
chmod +x enter agent
agent="$work/agent -F $work/known"
timeout 30 ./enter $a hosta true 2>/dev/null || skip "no namespaces of host names"
# UCX, below MPICH, would notice that both hosts are one machine.
export UCX_TLS=tcp,self
export LSAN_OPTIONS=detect_leaks=0 # what MPI libraries keep is not ours to free
launch() {
    timeout 60 ./enter $a hosta "$probe" launch -n 2 --hosts hosta,hostb \
        --rsh "$agent" --log_dir log eval "$@" 2>err
}

launch hello || fail "hello ended with $?: $(cat err)"
grep -q 'hello from rank 0 of 2 on hosta, sum 1' log/workerlog.0 || fail "rank 0: $(cat err)"
grep -q 'hello from rank 1 of 2 on hostb, sum 1' log/workerlog.1 || fail "rank 1: $(cat err)"

launch kill 1 && fail "a rank was killed on hostb and the job succeeded"
grep -qE 'rank 1 on hostb .*(killed|died).*workerlog.1' err || fail "no cause named: $(cat err)"
[ "$(grep -c ERROR err)" = 1 ] || fail "not one message: $(cat err)"

launch abort 1 && fail "a rank failed on hostb and the job succeeded"
grep -q "rank 1 on hostb failed at step 3: cannot read 'tokens'" err || fail "$(cat err)"

# Job control: the rank of the other host is stopped and continued with the launcher.
process_of() { # process_of RANK
    local process
    for process in $(grep -lzx "TREFOIL_LOG_DIR=$work/log" /proc/[0-9]*/environ 2>/dev/null); do
        process=${process%/environ}
        [ "$(cat "$process/comm")" = rank_probe ] &&
            grep -qzxE "(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1" "$process/environ" &&
            echo "${process#/proc/}" && return
    done
}
is_in() { # is_in STATES PROCESS: soon
    for _ in $(seq 600); do
        [[ $(cut -d' ' -f3 "/proc/$2/stat") != [$1] ]] || return 0
        sleep 0.05
    done
    fail "process $2 is not in state $1: $(cat err)"
}
set -m
./enter $a hosta "$probe" launch -n 2 --hosts hosta,hostb --rsh "$agent" --log_dir log \
    eval train 2>err &
launcher=$!
set +m
for _ in $(seq 600); do
    grep -q training err && [ -n "$(process_of 1)" ] && break
    sleep 0.1
done
for _ in 1 2; do
    kill -TSTP $launcher
    for process in $launcher $(process_of 0) $(process_of 1); do is_in T "$process"; done
    kill -CONT $launcher
    for process in $(process_of 0) $(process_of 1); do is_in RSD "$process"; done
done
kill -TERM $launcher
while kill -0 $launcher 2>/dev/null; do sleep 0.05; done
wait $launcher
[ $? = 75 ] || fail "after a pause: $(cat err)"

# The file is in the format of the MPI library.
ldd "$probe" >libraries
if grep -q libmpich libraries; then
    printf 'hosta:1\nhostb:1\n' >hostfile
else
    printf 'hosta slots=1\nhostb slots=1\n' >hostfile
fi
timeout 60 ./enter $a hosta "$probe" launch -n 2 --hostfile hostfile --rsh "$agent" \
    --log_dir log eval hello 2>err || fail "with a hostfile: $(cat err)"
grep -q 'on hostb' log/workerlog.1 || fail "rank 1 is not on hostb"

# Training: data parallel over the cable, with the first loss of one process.
make_corpus
make_config
must_train max_steps=3 eval_freq=0 save_load.output_dir=alone
timeout 120 ./enter $a hosta "$trefoil" launch -n 2 --hosts hosta,hostb \
    --rsh "$agent" --log_dir log pretrain -c run.yaml -o Distributed.dp_degree=2 \
    -o batch_size.local_batch_size=3 -o max_steps=3 -o eval_freq=0 \
    -o save_load.output_dir=apart 2>err || fail "training: $(tail -3 err)"
first() { grep -m1 -o '"loss": [^,]*' "$1/metrics.jsonl"; }
[ "$(first alone)" = "$(first apart)" ] || fail "the first loss is $(first apart)"
[ "$(grep -c '"loss"' apart/metrics.jsonl)" = 3 ] || fail "3 steps were wanted"

for name in /dev/shm/vader_segment.host[ab].*; do
    [ ! -e "$name" ] || fail "$name is left"
done
exit 0
