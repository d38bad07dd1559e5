#!/usr/bin/python3
"""Token files, Trefoil's read by numpy and numpy's read by Trefoil.

    check_npy.py PATH/TO/trefoil

First `trefoil prepare` writes one text in both formats and numpy takes it apart. Then numpy
writes one corpus in every format, type and packing that Trefoil reads, and a training step
on each must log the same loss, digit for digit.
"""

import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy

EOS = 256
TEXTS = ["In the beginning", "\u00e9t\u00e9\n and winter", "x", "tabs\tand  spaces  "]
MEGATRON_CODES = {"u1": 1, "i1": 2, "i2": 3, "i4": 4, "i8": 5, "u2": 8, "u4": 9, "u8": 10}

OPTIONS = """
device=cpu max_steps=1 logging_freq=1 eval_freq=0 seed=1024
Model.vocab_size=128 Model.hidden_size=16 Model.num_layers=1 Model.num_attention_heads=2
Model.max_position_embeddings=16 dataset.max_seq_len=16
batch_size.global_batch_size=8 batch_size.local_batch_size=8 batch_size.micro_batch_size=8
mix_precision.use_pure_fp16=False save_load.save_steps=0
""".split()


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr[-4000:]}")


# -- what trefoil prepare writes -------------------------------------------------------------


def read_megatron(prefix):
    """The documents of prefix.bin and prefix.idx, one sequence each."""
    index = pathlib.Path(f"{prefix}.idx").read_bytes()
    magic, version, code, n_seq, n_doc = struct.unpack_from("<9sQBQQ", index)
    assert (magic, version, code) == (b"MMIDIDX\0\0", 1, MEGATRON_CODES["u2"])
    lens = numpy.frombuffer(index, "<i4", n_seq, 34)
    pointers = numpy.frombuffer(index, "<i8", n_seq, 34 + 4 * n_seq)
    docs = numpy.frombuffer(index, "<i8", n_doc, 34 + 12 * n_seq)
    assert len(index) == 34 + 12 * n_seq + 8 * n_doc
    assert docs.tolist() == list(range(n_seq + 1))
    ids = numpy.fromfile(f"{prefix}.bin", "<u2")
    return [ids[p // 2 : p // 2 + n] for p, n in zip(pointers, lens)]


def read_fleetx(prefix):
    ids = numpy.load(f"{prefix}_ids.npy", mmap_mode="r", allow_pickle=False)
    with numpy.load(f"{prefix}_idx.npz", allow_pickle=False) as index:
        lens, docs = index["lens"], index["docs"]
    assert (ids.dtype, lens.dtype, docs.dtype) == ("uint16", "int32", "int64")
    assert docs.tolist() == list(range(len(lens) + 1)) and lens.sum() == len(ids)
    return numpy.split(ids, numpy.cumsum(lens)[:-1])


def check_prepare(trefoil, work):
    text = work / "in.jsonl"
    text.write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
    expected = [list(t.encode()) + [EOS] for t in TEXTS]
    for form, read in (("megatron", read_megatron), ("fleetx", read_fleetx)):
        prefix = work / form
        run(trefoil, "prepare", "--input", text, "--output", prefix, "--format", form)
        found = [d.tolist() for d in read(prefix)]
        if found != expected:
            sys.exit(f"'{prefix}' holds {found}, not {expected}")
        print(f"prepare --format {form}: {len(found)} documents as expected")


# -- what numpy writes ------------------------------------------------------------------------


def make_corpus():
    """Token ids below 128, sentences, and the first sentence of each document."""
    rng = numpy.random.RandomState(5)
    lens = rng.randint(1, 40, size=60)
    docs = numpy.concatenate([[0], numpy.sort(rng.choice(59, 20, False)) + 1, [60]])
    return rng.randint(0, 128, size=lens.sum()), lens, docs


def write_megatron(prefix, dtype, ids, lens, docs):
    ids = ids.astype("<" + dtype)
    pointers = (numpy.cumsum(lens) - lens) * ids.itemsize
    ids.tofile(f"{prefix}.bin")
    with open(f"{prefix}.idx", "wb") as f:
        header = (b"MMIDIDX\0\0", 1, MEGATRON_CODES[dtype], len(lens), len(docs))
        f.write(struct.pack("<9sQBQQ", *header))
        for array, kind in ((lens, "<i4"), (pointers, "<i8"), (docs, "<i8")):
            f.write(array.astype(kind).tobytes())


def write_fleetx(prefix, dtype, savez, lens_type, ids, lens, docs):
    numpy.save(f"{prefix}_ids.npy", ids.astype(dtype))
    savez(f"{prefix}_idx.npz", lens=lens.astype(lens_type), docs=docs.astype("i8"))


def write_fleetx_old(prefix, savez, ids, lens, docs):
    """No docs in this one: its documents are the sentences."""
    whole = numpy.add.reduceat(lens, docs[:-1])
    savez(f"{prefix}_ids.npz", ids=ids.astype("u2"), lens=whole.astype("i4"))


def write_all(work):
    """One directory for each way to write the corpus; yields their names."""
    writers = {f"megatron_{t}": (write_megatron, t) for t in MEGATRON_CODES}
    for name, savez in (("stored", numpy.savez), ("deflated", numpy.savez_compressed)):
        writers[f"fleetx_u2_{name}"] = (write_fleetx, "u2", savez, "i4")
        writers[f"fleetx_i4_{name}"] = (write_fleetx, "i4", savez, "i8")
        writers[f"fleetx_old_{name}"] = (write_fleetx_old, savez)
    corpus = make_corpus()
    for name, (write, *how) in writers.items():
        (work / name).mkdir()
        write(work / name / "tokens", *how, *corpus)
        yield name


def first_loss(trefoil, work, name):
    """As the text in metrics.jsonl, so that every digit counts."""
    config = work / f"{name}.yaml"
    config.write_text(f"dataset:\n  input_dir: {work / name}\n")
    options = OPTIONS + [f"save_load.output_dir={work / 'output' / name}"]
    run(trefoil, "pretrain", "-c", config, *(w for o in options for w in ("-o", o)))
    lines = (work / "output" / name / "metrics.jsonl").read_text().splitlines()
    return next(json.loads(line, parse_float=str)["loss"] for line in lines if '"loss"' in line)


def check_reading(trefoil, work):
    losses = {name: first_loss(trefoil, work, name) for name in write_all(work)}
    for name, loss in losses.items():
        print(f"{name}: loss {loss}")
    return len(set(losses.values())) == 1


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="trefoil-interop-") as name:
        work = pathlib.Path(name)
        check_prepare(sys.argv[1], work)
        return 0 if check_reading(sys.argv[1], work) else 1


if __name__ == "__main__":
    sys.exit(main())
