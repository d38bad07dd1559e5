#!/bin/bash
# Token files in PaddleFleetX's form, X_ids.npy and X_idx.npz, without .meta.json: positions
# whose input is the end of text do not count in the loss, as in PaddleFleetX.
. "$(dirname "$0")/lib.sh"
make_corpus
make_config
mkdir fleetx
"$trefoil" prepare --input words.txt --format fleetx --output fleetx/words 2>prepare.log ||
    fail "prepare: $(cat prepare.log)"

mv fleetx/words.meta.json .
must_train max_steps=4 output_dir=counted
must_train max_steps=4 output_dir=masked eod_mask_loss=True
plain="max_steps=4 dataset.input_dir=fleetx"

# the token is known: masked, unless the configuration says otherwise
must_train $plain output_dir=known eos_token_id=256
curve known/metrics.jsonl | cmp - <(curve masked/metrics.jsonl) || fail "known: not masked"
[ "$(grep -c 'without .meta.json: as there, positions whose input is token 256,' run.log)" -eq 1 ] ||
    fail "known: $(grep meta.json run.log)"
must_train $plain output_dir=written eos_token_id=256 eod_mask_loss=False
curve written/metrics.jsonl | cmp - <(curve counted/metrics.jsonl) || fail "written: masked"
grep -q 'as there' run.log && fail "written: $(grep 'as there' run.log)"

# not known: GPT-2's, where the model has it; a written -1 counts
shown() {
    "$trefoil" config -c run.yaml -o dataset.input_dir=fleetx "$@" >config.out 2>config.err ||
        fail "config $*: $(cat config.err)"
    grep -oE ' (eod_mask_loss|eos_token_id): [^ ]*' config.out | tr -d '\n'
}
check() {
    local wanted=$1
    shift
    [ "$(shown "$@")" = "$wanted" ] || fail "config $*: '$(shown "$@")'"
}
check ' eod_mask_loss: True eos_token_id: 50256' -o Model.vocab_size=50304
check ' eod_mask_loss: True eos_token_id: 50256' -o Model.vocab_size=50257
check ' eod_mask_loss: False eos_token_id: -1' -o Model.vocab_size=50256
grep -q 'eos_token_id is not known: all positions count' config.err || fail "$(cat config.err)"
check ' eod_mask_loss: False eos_token_id: -1' -o Model.vocab_size=50304 -o eos_token_id=-1
check ' eod_mask_loss: False eos_token_id: 50256' -o Model.vocab_size=50304 -o eod_mask_loss=False
check ' eod_mask_loss: True eos_token_id: 50256' -o Model.vocab_size=50304 -o eod_mask_loss=True
check ' eod_mask_loss: False eos_token_id: 256' -o dataset.input_dir=data
part="'fleetx/words' is in PaddleFleetX's form, without .meta.json, and other data are not: "
for list in fleetx,data data,fleetx none,fleetx,data; do
    check ' eod_mask_loss: False eos_token_id: 256' -o "dataset.input_dir=[$list]"
    grep -q "$part" config.err || fail "$list: $(cat config.err)"
done
check ' eod_mask_loss: True eos_token_id: 256' -o 'dataset.input_dir=[fleetx,data]' \
    -o eod_mask_loss=True
grep "$part" config.err && fail "a written key is not the last word"
check ' eod_mask_loss: False eos_token_id: -1' -o dataset.input_dir=nothing
mv words.meta.json fleetx/
check ' eod_mask_loss: False eos_token_id: 256'
mv fleetx/words.meta.json .

# a checkpoint of version 2.0.0, where all positions counted, continues as it was
big="$plain Model.vocab_size=50304 Model.hidden_size=8 Model.num_layers=1 save_steps=2 keep_last=0"
must_train $big output_dir=old eod_mask_loss=False eos_token_id=-1
must_train $big output_dir=new ckpt_dir=old/epoch_0_step_2
curve new/metrics.jsonl | cmp - <(tail -2 <(curve old/metrics.jsonl)) || fail "old: changed"
grep -q 'kept from the checkpoint: positions whose input is the end of text count' run.log ||
    fail "old: not named"
"$trefoil" config -c run.yaml -o ckpt_dir=old -o Model.vocab_size=50304 \
    -o dataset.input_dir=fleetx >config.out 2>/dev/null
grep -q ' eos_token_id: -1 ' config.out || fail "old: $(grep eos_token_id config.out)"
must_train $big output_dir=fresh
must_train $big output_dir=again ckpt_dir=fresh/epoch_0_step_2
curve again/metrics.jsonl | cmp - <(tail -2 <(curve fresh/metrics.jsonl)) || fail "fresh"
grep -q 'kept from' run.log && fail "fresh: $(grep kept run.log)"
exit 0
