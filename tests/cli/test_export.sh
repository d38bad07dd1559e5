#!/bin/bash
# Models out to Hugging Face and GGUF and back in: whole directories or nothing, the same
# numbers after a round trip, training that goes on from an import.
. "$(dirname "$0")/lib.sh"
export ASAN_OPTIONS=detect_leaks=0 # MPI libraries keep memory until the end of a process

make_corpus
make_config
must_train max_steps=10

export_hf() {
    "$trefoil" export --to hf "$@" 2>export.log || fail "export $*: $(cat export.log)"
}

for dtype in float32 float16 bfloat16; do
    export_hf --ckpt out --output "hf-$dtype" --dtype "$dtype"
    "$trefoil" import --from hf --input "hf-$dtype" --output "in-$dtype" 2>import.log ||
        fail "import $dtype: $(cat import.log)"
    export_hf --ckpt "in-$dtype" --output "again-$dtype" --dtype "$dtype"
    diff -r "hf-$dtype" "again-$dtype" || fail "$dtype changed in a round trip"
done
cmp out/epoch_0_step_10/model.safetensors in-float32/epoch_0_step_0/model.safetensors ||
    fail "the imported parameters are not those exported"

export_hf --ckpt out --output pieces --max_file_bytes 20000
[ -e pieces/model-00002-of-00008.safetensors ] || fail "no second file: $(ls pieces)"
"$trefoil" import --from hf --input pieces/ --output in-pieces 2>import.log ||
    fail "import of pieces: $(cat import.log)"
cmp {in-float32,in-pieces}/epoch_0_step_0/model.safetensors || fail "pieces are not the whole"

# The import is a checkpoint like any other.
must_train ckpt_dir=in-float32 output_dir=on max_steps=3
grep -q 'global step 1,' run.log || fail "training did not go on from step 0: $(cat run.log)"
grep 'the learning rate of step' run.log && fail "no run had another rate before"
"$trefoil" generate --ckpt in-float32 --prompt leaf --max_tokens 5 --num_threads 1 \
    >text 2>generate.log || fail "generate: $(cat generate.log)"
grep -q 'beside the checkpoint' generate.log || fail "its tokenizer was not found"

# A layout of its own is no concern of an export.
must_train ckpt_dir=out output_dir=two max_steps=11 Distributed.mp_degree=2 \
    Distributed.dp_degree=1
export_hf --ckpt two --output hf-two

"$trefoil" export --ckpt out --to gguf --output model.gguf --dtype float16 2>export.log ||
    fail "gguf: $(cat export.log)"
[ "$(head -c 4 model.gguf)" = GGUF ] || fail "model.gguf is no GGUF"
"$trefoil" inspect model.gguf >report || fail "inspect: $(cat report)"
grep -q 'general.architecture *gpt2' report && grep -q 'token_embd.weight *F16' report ||
    fail "inspect: $(cat report)"

# Refusals, which leave everything as it was.
ls >before
expect 2 'not empty; remove it' "$trefoil" export --ckpt out --to hf --output hf-float32
expect 2 'it exists; remove it' "$trefoil" export --ckpt out --to gguf --output model.gguf
expect 2 "hf and gguf are" "$trefoil" export --ckpt out --to onnx --output x
expect 2 "'bfloat16' cannot be written to gguf" \
    "$trefoil" export --ckpt out --to gguf --output x --dtype bfloat16
expect 2 "'int8' cannot be written to hf" \
    "$trefoil" export --ckpt out --to hf --output x --dtype int8
expect 2 'nowhere' "$trefoil" export --ckpt nowhere --to hf --output x
expect 2 'no tokenizer .nothing' \
    "$trefoil" export --ckpt out --to hf --output x --tokenizer nothing
expect 2 'config.json' "$trefoil" import --from hf --input data --output x
expect 2 'holds checkpoints already' \
    "$trefoil" import --from hf --input hf-float32 --output out
expect 2 "hf is" "$trefoil" import --from gguf --input model.gguf --output x
rm -f expect.out expect.err
ls >after
diff before <(grep -v '^after$' after) || fail "refusals left something behind"

# Data that does not name its tokenizer: hf without tokenizer files, gguf not at all.
mv data elsewhere && rm elsewhere/*.meta.json
must_train input_dir=elsewhere output_dir=other max_steps=1 Model.vocab_size=1000
rm -r elsewhere
"$trefoil" export --ckpt other --to hf --output hf-other 2>export.log || fail "hf-other"
grep -q 'no tokenizer files are written' export.log || fail "silent: $(cat export.log)"
[ ! -e hf-other/tokenizer.json ] || fail "a tokenizer from nowhere"
expect 2 'name it with --tokenizer' \
    "$trefoil" export --ckpt other --to gguf --output other.gguf
head -c 3000 model.gguf >cut.gguf
expect 2 "'cut.gguf' is not a readable GGUF file: at byte" "$trefoil" inspect cut.gguf
exit 0
