#!/usr/bin/python3
"""Takes models from Trefoil to PyTorch and back through the files of Hugging Face.

    check_export.py PATH/TO/trefoil

Out: trains a small GPT, exports it in three types, whole and in several files, and has an
independent GPT-2 read the directory: the same loss and the same greedy tokens.
In: writes directories as the transformers library does, and as older versions of it did,
imports them, and compares the loss; the export of the import has the same bytes.
"""

import json
import pathlib
import sys
import tempfile

import torch

import interop_model
import torch_gpt2

LOSS_TOLERANCE = 1e-5
# rounding to 11 or 8 bits is no error of the export, so these are compared after it
DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
N_GREEDY = 50
N_TOKENS = 700


class Checks:
    def __init__(self):
        self.n_bad = 0

    def same(self, what, ours, theirs, tolerance=0.0):
        is_good = abs(ours - theirs) <= tolerance if tolerance else ours == theirs
        self.n_bad += not is_good
        print(f"{what}: {ours} {'is' if is_good else 'IS NOT'} {theirs}")


def check_loss(checks, trefoil, work, checkpoint, directory, what):
    """The text's first tokens, with windows that overlap and with those that do not."""
    config, params = torch_gpt2.read_model(directory)
    text = (work / "words.txt").read_bytes()[:N_TOKENS]
    part = work / "part.txt"
    part.write_bytes(text)
    for stride in (64, 17):
        row = interop_model.evaluate(
            *(trefoil, "--ckpt", checkpoint, "--data", part, "--tokenizer", "bytes"),
            *("--max_seq_len", 64, "--overlapping_eval", stride),
        )
        loss = torch_gpt2.sliding_loss(config, params, list(text), 64, stride)
        checks.same(f"{what}, stride {stride}", row["loss"], loss, LOSS_TOLERANCE)


def check_out(checks, trefoil, work):
    checkpoint = interop_model.train(trefoil, work, vocab_size=272, steps=200)
    for dtype in DTYPES:
        directory = work / f"hf-{dtype}"
        interop_model.run(
            *(trefoil, "export", "--ckpt", checkpoint, "--to", "hf", "--dtype", dtype),
            *("--output", directory, "--max_file_bytes", 10**9 if dtype == "float32" else 60000),
        )
        config, params = torch_gpt2.read_model(directory)
        shapes = {name: tuple(t.shape) for name, t in params.items()}
        checks.same(f"{dtype} tensors", shapes == torch_gpt2.shapes_of(config), True)
        imported = work / f"imported-{dtype}"
        interop_model.run(
            trefoil, "import", "--from", "hf", "--input", directory, "--output", imported
        )
        check_loss(checks, trefoil, work, imported, directory, f"{dtype} loss")
    check_loss(checks, trefoil, work, checkpoint, work / "hf-float32", "loss")
    config, params = torch_gpt2.read_model(work / "hf-float32")
    for prompt in (b"leaf stem ", b"The rain. cl"):
        ours = interop_model.generate_ids(trefoil, checkpoint, prompt, N_GREEDY)
        theirs, margin = torch_gpt2.greedy(config, params, prompt, N_GREEDY)
        checks.same(f"greedy tokens (the closest choice by {margin:.2g})", ours, theirs)


def random_model(config):
    torch.manual_seed(3)
    return {
        name: torch.randn(shape, dtype=torch.float64) * 0.3 + name.endswith("ln_1.weight")
        for name, shape in torch_gpt2.shapes_of(config).items()
    }


def write_directory(directory, config, tensors, dtype, n_files):
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    names = list(tensors)
    if n_files == 1:
        torch_gpt2.write_safetensors(directory / "model.safetensors", tensors, dtype)
        return
    weight_map = {}
    for i in range(n_files):
        file = f"model-{i + 1:05d}-of-{n_files:05d}.safetensors"
        part = {name: tensors[name] for name in names[i::n_files]}
        torch_gpt2.write_safetensors(directory / file, part, dtype)
        weight_map.update({name: file for name in part})
    (directory / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map})
    )


def check_in(checks, trefoil, work):
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": 261,
        "n_positions": 80,
        "n_embd": 48,
        "n_layer": 3,
        "n_head": 6,
        "n_inner": None,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "bos_token_id": 260,
        "eos_token_id": 260,
    }
    params = random_model(config)
    old = dict(params)  # as openai-community/gpt2: no prefix, the masks among the tensors
    for i in range(config["n_layer"]):
        old[f"h.{i}.attn.bias"] = torch.ones(1, 1, 80, 80, dtype=torch.float64).tril()
        old[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4, dtype=torch.float64)
    new = {torch_gpt2.PREFIX + name: t for name, t in params.items()}
    tied = dict(new, **{"lm_head.weight": params["wte.weight"]})
    cases = {"old": (old, 1), "new": (new, 1), "in three files": (new, 3), "with head": (tied, 1)}
    for dtype, stored in DTYPES.items():
        for case, (tensors, n_files) in cases.items():
            name = f"{case.replace(' ', '-')}-{dtype}"
            source, back = work / name, work / f"{name}-back"
            write_directory(source, config, tensors, stored, n_files)
            imported = work / f"{name}-imported"
            interop_model.run(
                trefoil, "import", "--from", "hf", "--input", source, "--output", imported
            )
            interop_model.run(
                *(trefoil, "export", "--ckpt", imported, "--to", "hf", "--dtype", dtype),
                *("--output", back, "--tokenizer", "bytes"),
            )
            first, again = torch_gpt2.read_model(source)[1], torch_gpt2.read_model(back)[1]
            is_same = all(torch.equal(first[key], t) for key, t in again.items())
            checks.same(f"{name}: tensors after a round trip", is_same, True)
            if case == "old":
                check_loss(checks, trefoil, work, imported, source, f"{name}: loss")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="trefoil-interop-") as name:
        check_out(checks, sys.argv[1], pathlib.Path(name))
        check_in(checks, sys.argv[1], pathlib.Path(name))
    return 1 if checks.n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
