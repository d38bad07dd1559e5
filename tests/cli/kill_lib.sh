# What the tests of kills during a save share: source it, then call kill_everywhere. The
# second save of a run is cut at each of its named places, by kill -9 of either rank. After
# each cut the checkpoint before is as it was, the newest one loads, and the resumed run
# ends in the bytes of one that was never interrupted.
mpirun=$(realpath "$(dirname "$0")/../parallel/mpirun.sh")
. "$(dirname "$0")/lib.sh"
faults=$(dirname "$trefoil")/tests/trefoil_faults

# run PROGRAM settings...: 6 steps, saved after 2, 4 and 6, in the directory we are in
run() {
    local program=$1 options=()
    shift
    for setting in "${common[@]}" "$@"; do options+=(-o "$setting"); done
    # jobs that begin and end at once must not share the directories of their daemons
    TMPDIR=$PWD "$mpirun" "$mpiexec" 2 "$program" pretrain -c ../run.yaml \
        "${options[@]}" >run.log 2>&1
}

# cut_at NAME VISIT WHO: in a directory of its own; complaints are in NAME/complaint.
# WHO: rank whose visit counts, and what is done there
cut_at() {
    local name=$1 visit=$2 rank=${3%:*} what=${3#*:} saved=2 settings=() same=()
    mkdir "$name-$rank-$what" && cd "$name-$rank-$what" || exit 1
    exec 2>complaint
    case $name in
    COMMITTED | LATEST_WRITTEN | TRASH_*) saved=4 ;;
    EXCHANGE) mkdir out && cp -r ../whole/out/epoch_0_step_4 out/ ;; # of another run
    esac
    # what makes trash is a setting, which is in trainer.json; and so is the name of a run,
    # which is another one for a run that begins among checkpoints of others
    [[ $name != TRASH_* ]] || settings=(save_load.keep_last=1) same=(-x trainer.json)
    [ $name != EXCHANGE ] || same=(-x trainer.json)
    TREFOIL_FAULT=CKPT_AT_$name:$rank:$visit:$what run "$faults" "${settings[@]}" &&
        fail "it was not killed"
    [ -d out/epoch_0_step_$saved ] ||
        fail "step $saved is not there: $(ls -A out) $(tail -5 run.log)"
    [ $saved = 4 ] || [ $name = EXCHANGE ] || [ ! -e out/epoch_0_step_4 ] ||
        fail "it was killed too late"
    [ ! -e out/epoch_0_step_6 ] || fail "it was killed too late"
    for step in 2 4; do
        [ ! -d out/epoch_0_step_$step ] ||
            diff -r "${same[@]}" {,../whole/}out/epoch_0_step_$step >&2 ||
            fail "step $step is damaged"
    done
    run "$trefoil" save_load.ckpt_dir=out || fail "cannot resume: $(tail -3 run.log)"
    grep -q "resumed from 'out/epoch_0_step_$saved'" run.log || fail "not from $saved"
    cmp <(curve out/metrics.jsonl) <(curve ../whole/out/metrics.jsonl) >&2 ||
        fail "other losses"
    cmp {,../whole/}out/epoch_0_step_6/model.safetensors >&2 || fail "other weights"
    cmp {,../whole/}out/epoch_0_step_6/optimizer.safetensors >&2 || fail "other moments"
    ! ls -A out | grep -qE 'tmp|trash|lock|damaged' || fail "left behind: $(ls -A out)"
    rm complaint
}

# Four at a time: a job that lost a rank mostly waits.
run_cells() {
    local n=0
    for cell in "$@"; do
        (cut_at $cell) &
        n=$((n + 1))
        [ $((n % 4)) != 0 ] || wait
    done
    wait
    for complaint in */complaint; do
        [ ! -e "$complaint" ] || fail "${complaint%/*}: $(cat "$complaint")"
    done
}

# kill_everywhere N0 OWN1 settings...: rank 0 writes N0 pieces of tensors a save; OWN1 are
# "PLACE VISIT" that rank 1 passes itself, separated by commas
kill_everywhere() {
    local n_pieces=$1 own=$2 cells=() places place
    shift 2
    make_corpus
    make_config
    common=(max_steps=6 eval_freq=0 save_load.save_steps=2 save_load.keep_last=0
        save_load.output_dir=out "dataset.input_dir=$work/data" "$@")
    mkdir whole
    (cd whole && run "$trefoil") || fail "$(tail -3 whole/run.log)"
    # the first visit in the second save, or a later one in it
    places=("TEMP_CREATED 1" "FILE_CREATED 3" "HEADER_WRITTEN 2"
        "TENSOR_WRITTEN $((n_pieces + 7))" "FILE_WRITTEN 2" "FILE_SYNCED 2"
        "MANIFEST_WRITTEN 1" "TEMP_SYNCED 1" "EXCHANGE 0" "COMMITTED 1"
        "LATEST_WRITTEN 1" "TRASH_RENAMED 0" "TRASH_REMOVED 0")
    [[ " $* " == *async_save=False* ]] || places+=("COPIED 1")
    for place in "${places[@]}"; do
        cells+=("$place 0:kill" "$place 0:peer")
    done
    IFS=, read -ra places <<<"$own"
    for place in "${places[@]}"; do cells+=("$place 1:kill"); done
    run_cells "${cells[@]}"
}
