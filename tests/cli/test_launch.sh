#!/bin/bash
# A job of several processes: its logs, its stop on request, and every way it can die.
# rank_probe stands in for trefoil: it has the real launch command, and ranks that do as
# they are told.
. "$(dirname "$0")/lib.sh"
probe=$(dirname "$trefoil")/tests/rank_probe
[ -x "$probe" ] || fail "no $probe"
ulimit -c 0
# Crashes are ours to record; what MPI libraries keep to the end is not ours to free.
export ASAN_OPTIONS=handle_segv=0:handle_abort=0 LSAN_OPTIONS=detect_leaks=0

launch() { # launch N ACTION [RANK]
    timeout 60 "$probe" launch -n "$1" --log_dir log eval "${@:2}" 2>err
}

# The processes and the directory (shared memory, Open MPI's session) of jobs with this log
# directory; a watcher of another host too.
leftovers() {
    grep -lzx "TREFOIL_LOG_DIR=$work/log" /proc/[0-9]*/environ 2>/dev/null
    [ ! -e job_dir ] || compgen -G "$(cat job_dir)"
}

# rank_pid RANK: its process, if the job runs
rank_pid() {
    local process
    for process in $(grep -lzx "TREFOIL_LOG_DIR=$work/log" /proc/[0-9]*/environ 2>/dev/null); do
        process=${process%/environ}
        grep -qzxE "(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1" "$process/environ" 2>/dev/null &&
            echo "${process#/proc/}" && return
    done
}

# Note which directory of the running job must not survive it; all of its shared memory is there.
note_files() {
    tr '\0' '\n' <"/proc/$(rank_pid 0)/environ" | sed -n 's|^TREFOIL_JOB=\(.*\)/[^/]*$|\1|p' >job_dir
    [ -d "$(cat job_dir)" ] || fail "no directory of the job: $(cat job_dir)"
    ! compgen -G "/dev/shm/vader_segment.*.$(rank_pid 0)" || fail "shared memory elsewhere"
}

expect() { # expect CODE PATTERN: of the job that just ended with $?
    local code=$?
    [ $code = "$1" ] || fail "$3: ended with $code, not $1: $(cat err)"
    grep -qE "$2" err || fail "$3: no '$2' in: $(cat err)"
    [ "$(grep -cE 'ERROR|WARNING\] - the job' err)" -le 1 ] || fail "$3: $(cat err)"
    [ -z "$(leftovers)" ] || fail "$3: $(leftovers)"
    [ -z "$(ls -A log | grep -v '^workerlog\.')" ] || fail "$3: log/ has $(ls -A log)"
}

# -- logs
for rank in 0 7; do mkdir -p log && echo stale >log/workerlog.$rank; done
launch 3 hello || fail "hello: $(cat err)"
for rank in 0 1 2; do
    grep -q "hello from rank $rank of 3 on .*, sum 3" log/workerlog.$rank ||
        fail "workerlog.$rank: $(cat log/workerlog.$rank)"
done
[ ! -e log/workerlog.7 ] || fail "a log of a former job is left"
grep -q 'hello from rank 0' err || fail "rank 0 is not on the terminal"
grep -q 'hello from rank 1' err && fail "rank 1 is on the terminal"
for rank in 1 2; do
    grep -q "rank $rank begins on" log/workerlog.$rank &&
        grep -q "rank $rank ends, its work done" log/workerlog.$rank ||
        fail "workerlog.$rank does not tell of its rank: $(cat log/workerlog.$rank)"
done
OMP_NUM_THREADS=3 launch 1 hello && grep -q 'threads 0,' log/workerlog.0 ||
    fail "OMP_NUM_THREADS of the user does not count: $(cat log/workerlog.0)"

# -- one failing rank: one message, its own exit code, and long before the two minutes for
# which ranks that are left alone would wait
dies() { # dies CODE PATTERN ACTION RANK
    launch 3 "$3" "$4"
    expect "$1" "$2" "$3 $4"
}
dies 2 "rank 1 on .* failed at step 3: cannot read 'tokens' the disk.*log/workerlog.1'" abort 1
dies 2 "rank 0 on .* failed at step 3: cannot read" abort 0
dies 3 "rank 2 on .* failed at step 3: the loss is not finite.*workerlog.2'" agree 2
dies 3 "rank 1 on .* was ended by signal 11 .* at step 3.*workerlog.1'" crash 1
grep -q 'its stack' log/workerlog.1 || fail "no stack in the log"
dies 3 "rank 2 on .* was killed(, it seems)? by signal 9.* at step 3.*workerlog.2'" kill 2
grep -q 'probably for lack of memory' err && fail "no process was killed for memory: $(cat err)"
dies 3 "rank 0 on .* was killed(, it seems)? by signal 9.* at step 3.*workerlog.0'" kill 0
dies 3 "rank 1 on .* failed at step 3: it ended with exit code 7" exit 1
dies 3 "rank 1 on .* failed at step 3: stuck" linger 1

# -- MPI_Init ends a rank: what MPI said, and what may help
no_mpi() { # no_mpi PATTERN COMMAND...: one of several jobs that fail so is reported in full
    local pattern="could not join the job: MPI_Init ended (the process|a rank).*$1"
    # mpiexec itself sometimes loses what a rank says, or kills a rank before it has begun
    for _ in $(seq 20); do
        "${@:2}"
        [ $? = 3 ] && grep -qE "$pattern" err && ! grep -qE 'signal|lack of memory' err && return
    done
    fail "$1: $(cat err)"
}
setting() { # setting VARIABLE N: a job of N ranks with it
    (export "$1=nonexistent" && launch "$2" hello)
}
small_shm() {
    unshare -m bash -c "mount -t tmpfs -o size=1m none /dev/shm &&
        timeout 60 '$probe' launch -n 2 --log_dir log eval hello" 2>err
}
variables='these variables of the environment'
if "$trefoil" --version | grep -q 'Open MPI'; then
    no_mpi "$variables: OMPI_MCA_pml=nonexistent.*MPI said: .*requested component" \
        setting OMPI_MCA_pml 2
    no_mpi "$variables: OMPI_MCA_btl=nonexistent.*MPI said: " setting OMPI_MCA_btl 3
    ! unshare -m true 2>/dev/null || no_mpi "'/dev/shm' has 1024 kB.*MPI said: " small_shm
else
    no_mpi "$variables: UCX_TLS=nonexistent.*MPI said: .*Fatal error in" setting UCX_TLS 2
fi

# -- a log directory whose file system reports a full quota only when a file is closed
preload=$(dirname "$trefoil")/tests/libfault_preload.so
if [ -e "$preload" ]; then
    ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0 LD_PRELOAD=$preload FAULT_OP=close \
        FAULT_SUB=write-probe FAULT_ERRNO=122 launch 1 hello
    expect 3 "cannot write to log directory '.*/log': Disk quota exceeded" "a close that fails"
    ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0 LD_PRELOAD=$preload FAULT_OP=close \
        FAULT_SUB=write-probe FAULT_ERRNO=27 launch 1 hello
    expect 3 "log': File too large; raise the limit on files .ulimit -f" "a limit on files"
fi

# -- no process can be started: root has no such limit
as_user=()
[ "$(id -u)" != 0 ] || as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
chmod 755 .
mkdir -m 777 open
if "${as_user[@]}" test -x "$probe"; then
(cd open && "${as_user[@]}" bash -c "ulimit -u 1 && exec '$probe' launch -n 2 eval hello") 2>err
[ $? = 3 ] && grep -q "cannot start the processes of a job: .*limit of this user's processes and threads is 1: " err ||
    fail "ulimit -u 1: $(cat err)"
fi

# -- signals and violence
start() { # start ACTION: returns when the ranks are at work
    rm -f saved.* job_dir
    : >err
    setsid "$probe" launch -n 2 --log_dir log eval "$1" 2>err &
    launcher=$! # and the number of its process group, as for a job of a terminal
    for _ in $(seq 600); do
        grep -qE 'training|waiting' err && [ -n "$(rank_pid 1)" ] && break
        sleep 0.1
    done
    mpiexec=$(pgrep -P $launcher mpi)
    note_files
    [ -n "$(leftovers)" ] || fail "no process of a running job was found"
}
ends() { # ends CODE PATTERN WHAT
    wait $launcher
    expect "$@"
}

for signal in INT HUP USR1; do
    start train
    kill -$signal -- -$launcher # to the whole group, as Ctrl-C does; twice is once
    kill -$signal -- -$launcher
    ends 75 "the job was stopped by SIG$signal, and can be resumed" "SIG$signal"
    [ -e saved.0 ] && [ -e saved.1 ] || fail "SIG$signal: ranks had no time to save"
done
trap '' HUP # nohup
start train
trap - HUP
kill -HUP $launcher
sleep 0.5
kill "$(rank_pid 1)"
ends 75 "the job was stopped, and can be resumed" "nohup, then SIGTERM to one rank"
start train
first=${EPOCHREALTIME/./}
kill -INT $launcher
for _ in $(seq 600); do
    grep -q 'again to stop now' err && break
    sleep 0.05
done
# two seconds later it would be a second signal, and so it might on a busy machine
[ $((${EPOCHREALTIME/./} - first)) -gt 1000000 ] || kill -INT $launcher
ends 75 "finishing step [0-9]+; again to stop now" "two signals at once, which are one"
[ -e saved.0 ] && [ -e saved.1 ] || fail "two signals at once: ranks had no time to save"
start train
kill -TERM $launcher "$mpiexec" "$(rank_pid 0)" "$(rank_pid 1)" # to all, as schedulers do
ends 75 "the job was stopped by SIGTERM, and can be resumed" "SIGTERM to all processes"
[ -e saved.0 ] && [ -e saved.1 ] || fail "SIGTERM to all: ranks had no time to save"
# a terminal that is slower than the job's output does not keep a signal waiting
read_slowly() {
    while dd bs=4096 count=1 of=part status=none && [ -s part ]; do
        cat part >>err
        [ -e fast ] || sleep 0.2
    done
}
rm -f saved.*
: >err
setsid "$probe" launch -n 2 --log_dir log eval talk 2> >(read_slowly) &
launcher=$!
for _ in $(seq 600); do
    [ "$(wc -c <err)" -gt 20000 ] && [ -n "$(rank_pid 1)" ] && break
    sleep 0.1
done
kill -INT $launcher
for _ in $(seq 300); do
    [ -e saved.0 ] && [ -e saved.1 ] && break
    sleep 0.1
done
touch fast
[ -e saved.0 ] && [ -e saved.1 ] || fail "a slow terminal: the signal was not heard"
wait $launcher
[ $? = 75 ] || fail "a slow terminal: $(tail -3 err)"
start train
rm -r log
kill -TERM $launcher # the ranks' last words take another way
wait $launcher
[ $? = 75 ] || fail "a removed log directory: $(cat err)"
mkdir log
start deaf
for _ in $(seq 20); do # it may notice the first one late
    kill -INT $launcher 2>/dev/null || break
    sleep 2.2
done
ends 3 "killed by the second signal" "two signals"
start wait
kill -USR1 $launcher
ends 3 "rank [01] on .* was killed by signal 15" "signal to ranks that do not save"
for rank in 0 1; do
    start train
    kill -9 "$(rank_pid $rank)"
    ends 3 "rank $rank on .* was killed(, it seems)? by signal 9.* at step [0-9]+" "kill -9 of rank $rank"
done
# -- job control: ^Z stops the ranks, fg continues them
state() { cut -d' ' -f3 "/proc/$1/stat"; }
is_in() { # is_in STATES PROCESS: soon
    for _ in $(seq 600); do
        [[ $(state "$2") != [$1] ]] || return 0
        sleep 0.05
    done
    fail "process $2 is in state $(state "$2"), not $1: $(cat err)"
}
rm -f saved.*
: >err
set -m # so that it has a shell that can continue it
"$probe" launch -n 2 --log_dir log eval train 2>err &
launcher=$!
set +m
for _ in $(seq 600); do
    grep -q training err && [ -n "$(rank_pid 1)" ] && break
    sleep 0.1
done
for _ in 1 2; do
    kill -TSTP $launcher
    is_in T $launcher
    for rank in 0 1; do is_in T "$(rank_pid $rank)"; done
    kill -CONT $launcher
    for rank in 0 1; do is_in RSD "$(rank_pid $rank)"; done
done
kill -TERM $launcher
while kill -0 $launcher 2>/dev/null; do sleep 0.05; done
ends 75 "the job was stopped by SIGTERM, and can be resumed" "SIGTERM after a pause"
[ "$(grep -c 'the job is paused' err)" = 2 ] || fail "SIGTSTP was not acknowledged: $(cat err)"
# ranks that mpiexec has not started yet are stopped when they begin
: >err
set -m
"$probe" launch -n 2 --log_dir log eval train 2>err &
launcher=$!
set +m
until [ "$(pgrep -c -P $launcher)" -ge 2 ]; do kill -0 $launcher || break; done # mpiexec is one
kill -TSTP $launcher
is_in T $launcher
for rank in 0 1; do
    process=$(rank_pid $rank)
    [ -n "$process" ] && [ "$(state "$process")" = T ] ||
        fail "rank $rank began during the pause, and runs: $(cat err)"
done
kill -CONT $launcher
for _ in $(seq 600); do
    grep -q training err && break
    sleep 0.1
done
kill -TERM $launcher
while kill -0 $launcher 2>/dev/null; do sleep 0.05; done
ends 75 "the job was stopped by SIGTERM, and can be resumed" "SIGTERM after an early pause"
start train # in a session without a shell nothing could continue it
kill -TSTP $launcher
for _ in $(seq 600); do
    grep -q 'the job continues' err && break
    sleep 0.05
done
kill -TERM $launcher
ends 75 "the job continues after a pause of" "SIGTSTP without a shell"

start train
kill -STOP "$mpiexec"
kill -TERM $launcher
ends 75 "mpiexec \(pid $mpiexec\) is stopped, and the job cannot end without it" "a stopped mpiexec"
grep -q 'the job was stopped by SIGTERM, and can be resumed' err || fail "a stopped mpiexec: $(cat err)"
[ -e saved.0 ] && [ -e saved.1 ] || fail "a stopped mpiexec: ranks had no time to save"

start train
keeper=$(pgrep -P $launcher trefoil-keeper)
kill -STOP "$keeper"
kill -TERM $launcher
for _ in $(seq 600); do # it waited for its keeper for ever
    kill -0 $launcher 2>/dev/null || break
    sleep 0.05
done
kill -CONT "$keeper" 2>/dev/null && fail "a stopped keeper is left"
ends 75 "the job was stopped by SIGTERM, and can be resumed" "a stopped keeper"

start wait
kill -9 "$mpiexec"
ends 3 "mpiexec \(pid $mpiexec\) was killed by signal 9" "kill -9 of mpiexec"

start wait
"$probe" launch -n 2 --log_dir log eval hello 2>err2
[ $? = 3 ] && grep -q "'log' is in use: another job writes its logs there" err2 ||
    fail "two jobs in one log_dir: $(cat err2)"
kill -9 $launcher
wait $launcher 2>/dev/null
for _ in $(seq 600); do
    [ -n "$(leftovers)" ] || break
    sleep 0.1
done
[ -z "$(leftovers)" ] || fail "kill -9 of the launcher: $(leftovers)"

# what a tree that was killed as a whole left, the next job removes
start wait
keeper=$(pgrep -P $launcher trefoil-keeper)
kill -9 "$keeper" $launcher "$mpiexec" "$(rank_pid 0)" "$(rank_pid 1)"
wait $launcher 2>/dev/null
[ -n "$(leftovers)" ] || fail "a killed tree left nothing"
launch 1 hello || fail "hello after a killed tree: $(cat err)"
[ -z "$(leftovers)" ] || fail "a killed tree: $(leftovers)"

# -- refused before anything is started
refused() { # refused PATTERN ARGUMENTS...
    "$trefoil" launch "${@:2}" >out 2>err </dev/null
    local code=$?
    [ $code = 2 ] || fail "launch ${*:2} ended with $code: $(cat err)"
    grep -qE "$1" err || fail "launch ${*:2}: no '$1' in: $(cat err)"
    [ ! -e refused-log ] || fail "launch ${*:2} made its log directory"
}
d="--log_dir refused-log"
refused 'say how many' $d pretrain -c x
refused '1 to 100000' $d -n 0 pretrain
refused '1 to 100000' $d -n -3 pretrain
refused '1 to 100000' $d -n 1000000000 pretrain
refused 'whole number' $d -n two pretrain
refused 'command is missing' $d -n 2
refused "'dance' is not a command" $d -n 2 dance
refused "'launch' is not a command" $d -n 2 launch -n 2 pretrain
refused 'did you mean --hosts' $d --host a -n 2 pretrain
refused 'no-such-file' $d -n 2 --hostfile no-such-file pretrain
refused "is not NAME or NAME:RANKS" $d -n 2 --hosts 'a;b' pretrain
refused 'places for 2 ranks, and 3' $d -n 3 --hosts a,b pretrain
refused 'exclude each other' $d -n 2 --hosts a:2 --hostfile "$0" pretrain
refused "number 2 of the list, '', is not an index" $d --devices 0,,2 pretrain
refused 'is there twice' $d --devices 1,1 pretrain
refused 'disagree' $d -n 3 --devices 0,1 pretrain
refused 'not a program' $d -n 2 --rsh ./none pretrain
"$trefoil" launch --help >out && grep -q 'workerlog' out || fail "no help"
exit 0
