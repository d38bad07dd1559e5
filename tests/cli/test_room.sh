#!/bin/bash
# What has no room, or no layout, is refused before any process is started or host
# reached: first the configuration, then the device, then ranks and memory in one sentence.
. "$(dirname "$0")/lib.sh"
configs=$(realpath "$(dirname "$0")/../../configs")
make_corpus
make_config
n=$(nproc)
most=$((4 * n))

refuses() { # refuses CODE PATTERN ARGUMENTS...
    expect "$1" "$2" timeout 60 "$trefoil" "${@:3}"
    [ ! -e out/log ] || fail "'${*:3}' made a log directory"
    [ "$(grep -vc WARNING expect.err)" = 1 ] || fail "'${*:3}' says more than a sentence: $(cat expect.err)"
}

crowd=(-o Distributed.dp_degree=65536 -o batch_size.global_batch_size=65536
    -o batch_size.local_batch_size=1 -o batch_size.micro_batch_size=1)
one_sentence="too many ranks: 65536 processes on this machine of $n processors?, where more than $most need --oversubscribe; the fullest, rank [0-9]+, needs [0-9.]+ GB of memory, and [0-9.]+ GB are free for each"
refuses 2 "$one_sentence" pretrain -c run.yaml "${crowd[@]}"
refuses 2 "$one_sentence" launch -n 65536 pretrain -c run.yaml "${crowd[@]}"
refuses 2 "max_step.*did you mean" pretrain -c run.yaml "${crowd[@]}" -o max_step=1
refuses 2 "device: gpu .*-o device=cpu trains on the processor" \
    pretrain -c run.yaml "${crowd[@]}" -o device=gpu
refuses 3 "not enough memory: 65536 processes on this machine of" \
    pretrain -c run.yaml "${crowd[@]}" --oversubscribe
for recipe in gpt_6.7B_sharding16:16 gpt_175B_mp8_pp16:128; do
    file=$configs/${recipe%:*}.yaml ranks=${recipe#*:}
    if [ "$ranks" -gt $most ]; then
        refuses 2 "too many ranks: $ranks processes .* needs [0-9.]+ GB of memory" \
            pretrain -c "$file" -o dataset.input_dir=data
    fi
    [ "$(free -g | awk '/^Mem/ {print $2}')" -gt 300 ] || refuses 3 \
        "not enough memory: $ranks processes .* the fullest, rank [0-9]+, needs [0-9.]+ GB" \
        pretrain -c "$file" -o dataset.input_dir=data --oversubscribe
done
must_train max_steps=1 eval_freq=0 save_load.output_dir=trained
for command in eval generate; do
    words=($command --ckpt trained)
    [ $command = eval ] && words+=(--data data) || words+=(--prompt_ids 1)
    refuses 2 "too many ranks: $((most + 1)) processes" "${words[@]}" --dp_degree $((most + 1))
    refuses 2 "too many ranks: $((most + 1)) processes" launch -n $((most + 1)) "${words[@]}"
done

# other layouts than one that does not fit: those the configuration takes
grid=(-o Distributed.dp_degree=2 -o Distributed.pp_degree=2 -o Model.num_layers=6
    -o batch_size.local_batch_size=3 -o batch_size.global_batch_size=6)
far=(launch --hosts no-such-host:9 --rsh false)
refuses 2 "dp 2 x pp 2 takes 4 processes, but there are 3; this configuration has no other" \
    "${far[@]}" -n 3 pretrain -c run.yaml "${grid[@]}" # 6 = 3 x 2 data ranks
refuses 2 "there are 6; others of that size: dp 2 x pp 3; pp 3 x sharding 2$" \
    "${far[@]}" -n 6 pretrain -c run.yaml "${grid[@]}" -o Model.num_attention_heads=4
refuses 2 "there are 8; others of that size: dp 2 x pp 4; dp 2 x pp 2 x mp 2; " \
    "${far[@]}" -n 8 pretrain -c run.yaml "${grid[@]}"

# the recipes' own script means pretrain
refuses 2 "max_step.*did you mean" launch -n 2 /path/of/run_pretrain.py -c run.yaml -o max_step=1
refuses 2 "'other.py' is not a command" launch -n 2 other.py -c run.yaml
exit 0
