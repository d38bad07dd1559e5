#!/usr/bin/python3
"""Takes models from Trefoil to the transformers library and back.

    check_export.py PATH/TO/trefoil

Out: trains a small GPT, exports it in three types, whole and in several files, and has
transformers load the directory: every tensor is known to it and of the right shape, the
loss is the same, the greedy tokens are the same, and so are the ids of its tokenizer.
In: has transformers write models, and writes directories as its older versions did,
imports them, and compares the loss; the export of the import has the same bytes.
"""

import json
import pathlib
import sys
import tempfile

import safetensors.torch
import torch
import transformers

import hf_gpt2
import interop_model

LOSS_TOLERANCE = 1e-5
# rounding to 11 or 8 bits is no error of the export, so these are compared after it
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
N_GREEDY = 50
N_TOKENS = 700


class Checks:
    def __init__(self):
        self.n_bad = 0

    def same(self, what, ours, theirs, tolerance=0.0):
        is_good = abs(ours - theirs) <= tolerance if tolerance else ours == theirs
        self.n_bad += not is_good
        print(f"{what}: {ours} {'is' if is_good else 'IS NOT'} {theirs}", flush=True)


def check_loss(checks, trefoil, work, checkpoint, directory, what):
    """The text's first tokens, with windows that overlap and with those that do not."""
    model = hf_gpt2.load(directory)
    text = (work / "words.txt").read_bytes()[:N_TOKENS]
    part = work / "part.txt"
    part.write_bytes(text)
    for stride in (64, 17):
        row = interop_model.evaluate(
            *(trefoil, "--ckpt", checkpoint, "--data", part, "--tokenizer", "bytes"),
            *("--max_seq_len", 64, "--overlapping_eval", stride),
        )
        loss = hf_gpt2.sliding_loss(model, list(text), 64, stride)
        checks.same(f"{what}, stride {stride}", row["loss"], loss, LOSS_TOLERANCE)


def check_out(checks, trefoil, work):
    checkpoint = interop_model.train(trefoil, work, vocab_size=272, steps=200)
    for dtype in DTYPES:
        directory = work / f"hf-{dtype}"
        interop_model.run(
            *(trefoil, "export", "--ckpt", checkpoint, "--to", "hf", "--dtype", dtype),
            *("--output", directory, "--max_file_bytes", 10**9 if dtype == "float32" else 60000),
        )
        checks.same(f"{dtype}: what transformers misses", hf_gpt2.complaints(directory), [])
        checks.same(f"{dtype}: its type", hf_gpt2.load_as_stored(directory).dtype, DTYPES[dtype])
        imported = work / f"imported-{dtype}"
        interop_model.run(
            trefoil, "import", "--from", "hf", "--input", directory, "--output", imported
        )
        check_loss(checks, trefoil, work, imported, directory, f"{dtype} loss")
    check_loss(checks, trefoil, work, checkpoint, work / "hf-float32", "loss")
    model = hf_gpt2.load(work / "hf-float32")
    for prompt in (b"leaf stem ", b"The rain. cl"):
        ours = interop_model.generate_ids(trefoil, checkpoint, prompt, N_GREEDY)
        theirs, margin = hf_gpt2.greedy(model, prompt, N_GREEDY)
        checks.same(f"greedy tokens (the closest choice by {margin:.2g})", ours, theirs)


def check_tokenizer(checks, trefoil, work):
    """A BPE goes with the export; its ids are those of `trefoil tokenizer encode`."""
    (work / "bpe").mkdir()
    tokenizer, directory = work / "bpe" / "tokenizer", work / "bpe" / "hf"
    interop_model.run(
        *(trefoil, "tokenizer", "train", "--input", work / "words.txt"),
        *("--vocab_size", 300, "--output", tokenizer),
    )
    checkpoint = interop_model.train(trefoil, work / "bpe", 320, 1, tokenizer)
    interop_model.run(trefoil, "export", "--ckpt", checkpoint, "--to", "hf", "--output", directory)
    theirs = transformers.AutoTokenizer.from_pretrained(directory)
    for text in ("leaf stem root.\n\nThe rain", "Gr\u00fc\u00dfe, \u6f22\u5b57 \U0001f642!  two\t"):
        (work / "text.txt").write_text(text, newline="")
        ours = interop_model.run(
            trefoil, "tokenizer", "encode", "--tokenizer", tokenizer, work / "text.txt"
        )
        found = theirs.encode(text, add_special_tokens=False)
        checks.same("ids by AutoTokenizer", [int(i) for i in ours.split()], found)


def write_old(directory, config, tensors, dtype, n_files):
    """As older versions of transformers did."""
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    tensors = {name: t.to(dtype).clone() for name, t in tensors.items()}
    if n_files == 1:
        safetensors.torch.save_file(tensors, directory / "model.safetensors", {"format": "pt"})
        return
    weight_map, names = {}, list(tensors)
    for i in range(n_files):
        file = f"model-{i + 1:05d}-of-{n_files:05d}.safetensors"
        part = {name: tensors[name] for name in names[i::n_files]}
        safetensors.torch.save_file(part, directory / file, {"format": "pt"})
        weight_map.update({name: file for name in part})
    (directory / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map})
    )


def check_in(checks, trefoil, work):
    config = transformers.GPT2Config(
        **{"vocab_size": 261, "n_positions": 80, "n_embd": 48, "n_layer": 3, "n_head": 6},
        **{"bos_token_id": 260, "eos_token_id": 260, "initializer_range": 0.3},
    )
    torch.manual_seed(3)
    model = transformers.GPT2LMHeadModel(config)
    for p in model.parameters():  # norms and biases too are to be told apart
        p.data += 0.3 * torch.randn(p.shape)
    new = {n: t for n, t in model.state_dict().items() if n != "lm_head.weight"}
    # as openai-community/gpt2: no prefix, the masks among the tensors
    old = {name.removeprefix("transformer."): t for name, t in new.items()}
    for i in range(config.n_layer):
        old[f"h.{i}.attn.bias"] = torch.ones(1, 1, 80, 80).tril()
        old[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
    tied = dict(new, **{"lm_head.weight": new["transformer.wte.weight"]})
    cases = {"old": (old, 1), "in three files": (new, 3), "with head": (tied, 1), "saved": (None, 1)}
    for dtype, stored in DTYPES.items():
        for case, (tensors, n_files) in cases.items():
            name = f"{case.replace(' ', '-')}-{dtype}"
            source, back, imported = work / name, work / f"{name}-back", work / f"{name}-imported"
            if tensors:
                write_old(source, config.to_dict(), tensors, stored, n_files)
            else:
                hf_gpt2.copy_as(model, stored).save_pretrained(source)
            interop_model.run(
                trefoil, "import", "--from", "hf", "--input", source, "--output", imported
            )
            interop_model.run(
                *(trefoil, "export", "--ckpt", imported, "--to", "hf", "--dtype", dtype),
                *("--output", back, "--tokenizer", "bytes"),
            )
            is_same = hf_gpt2.are_same(hf_gpt2.load(source), hf_gpt2.load(back))
            checks.same(f"{name}: tensors after a round trip", is_same, True)
            if case in ("old", "saved"):
                check_loss(checks, trefoil, work, imported, source, f"{name}: loss")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="trefoil-interop-") as name:
        work = pathlib.Path(name)
        check_out(checks, sys.argv[1], work)
        check_tokenizer(checks, sys.argv[1], work)
        check_in(checks, sys.argv[1], work)
    return 1 if checks.n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
