#!/usr/bin/python3
"""Takes models from Trefoil to llama.cpp as GGUF files.

    check_gguf.py PATH/TO/trefoil

A small GPT over bytes and one over a BPE, both with a vocabulary that is rounded up, are
trained, exported as float32 and float16, and loaded by llama.cpp: it must cut texts into
the same tokens and continue prompts with the same ones as `trefoil generate --greedy`.
"""

import pathlib
import sys
import tempfile

import interop_model
import llama_cpp

N_GREEDY = 50
PROMPTS = ["leaf stem ", "The rain. cl", "clover field stone"]
TEXTS = PROMPTS + ["Grüße, 漢字 and 🙂!", "  two  spaces\n\nlines\t", "it's 42 o'clock", "a<|endoftext"]


def encode(trefoil, tokenizer, work, text):
    path = work / "text.txt"
    path.write_text(text, newline="")
    return [int(i) for i in interop_model.run(trefoil, "tokenizer", "encode", "--tokenizer", tokenizer, path).split()]


def check(what, ours, theirs):
    is_same = ours == theirs
    print(f"{what}: {'the same' if is_same else f'{ours} IS NOT {theirs}'}")
    return not is_same


def check_model(trefoil, work, name, tokenizer, vocab_size, eos):
    checkpoint = interop_model.train(trefoil, work, vocab_size, 200, tokenizer)
    ours = [encode(trefoil, tokenizer, work, text) for text in TEXTS]
    prompts = ours[: len(PROMPTS)]
    continuations = [
        interop_model.generate_ids(trefoil, checkpoint, prompt, N_GREEDY) for prompt in prompts
    ]
    n_bad = 0
    for dtype in ("float32", "float16"):
        path = work / f"{dtype}.gguf"
        interop_model.run(
            *(trefoil, "export", "--ckpt", checkpoint, "--to", "gguf"),
            *("--dtype", dtype, "--output", path),
        )
        what = f"{name}, {dtype}"
        with llama_cpp.Model(path) as llama:
            theirs = [llama.encode(text) for text in TEXTS]
            n_bad += check(f"{what}: bos and eos", (eos, eos), (llama.bos, llama.eos))
            n_bad += check(f"{what}: tokens of texts", ours, theirs)
            n_bad += check(f"{what}: texts of tokens", TEXTS, [llama.decode(t) for t in theirs])
            theirs = [llama.greedy(prompt, N_GREEDY) for prompt in prompts]
            n_bad += check(f"{what}: greedy tokens", continuations, theirs)
    return n_bad


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    trefoil = sys.argv[1]
    n_bad = 0
    with tempfile.TemporaryDirectory(prefix="trefoil-interop-") as name:
        work = pathlib.Path(name)
        (work / "bytes").mkdir()
        (work / "bpe").mkdir()
        n_bad += check_model(trefoil, work / "bytes", "bytes", "bytes", 272, 256)
        interop_model.run(
            *(trefoil, "tokenizer", "train", "--input", work / "bytes" / "words.txt"),
            *("--vocab_size", 300, "--output", work / "bpe" / "tokenizer"),
        )
        n_bad += check_model(
            trefoil, work / "bpe", "BPE", work / "bpe" / "tokenizer", 320, 299
        )
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
