#!/usr/bin/python3
"""Judges the gradients of a bfloat16 step by those in double precision, and by PyTorch's.

    check_gradients.py PATH/TO/trefoil

Trains a small GPT in bfloat16 for some steps, with a first moment that forgets at once and
no clip: what a checkpoint has of it is the gradient of the step before it. The same
gradient is computed at the weights of the step before that, matrices rounded to bfloat16
as the model has them: in double precision, by a PyTorch model that is bfloat16 throughout
(judged at its own weights, whose vectors are rounded, too), and by one in float32 under
autocast. Of the distance to double precision, all gradients being one vector and also
matrix by matrix, Trefoil's may be no more than the bfloat16 model's and at most twice that
under autocast.
"""

import math
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import torch.nn.functional as F

import check_training
import sample_order

B, S, V, SEED = 4, 128, 509, 77
LAST = 12  # the step whose gradient is judged
SPLIT = (949, 50, 1)

CONFIG = f"""
PreTraining:
  device: cpu
  seed: {SEED}
  max_steps: {LAST}
  logging_freq: 1
  eval_freq: 0
  batch_size:
    global_batch_size: {B}
    local_batch_size: {B}
    micro_batch_size: {B}
  dataset:
    input_dir: DIR/data
    split: '{','.join(map(str, SPLIT))}'
    max_seq_len: {S}
  save_load:
    save_steps: 1
    keep_last: 0
    output_dir: DIR/output
  mix_precision:
    dtype: bfloat16
  Model:
    vocab_size: {V}
    hidden_size: 128
    num_layers: 4
    num_attention_heads: 4
    ffn_hidden_size: 512
    hidden_dropout_prob: 0.0
    attention_probs_dropout_prob: 0.0
    max_position_embeddings: {S}
    initializer_range: 0.05
  Optimizer:
    weight_decay: 0.0
    adam_beta1: 0.0
    grad_clip: 0.0
    lr:
      decay_steps: 100
      warmup_rate: 0.05
      max_lr: 1.0e-3
      min_lr: 1.0e-4
"""


def write_dataset(prefix):
    """Tokens that repeat with a few errors, so that there is something to learn."""
    rng = numpy.random.RandomState(11)
    documents = []
    for _ in range(60):
        tokens = (numpy.arange(rng.randint(100, 300)) * rng.randint(1, 40)) % V
        noise = rng.rand(len(tokens)) < 0.2
        tokens[noise] = rng.randint(0, V, size=noise.sum())
        documents.append(tokens.astype(numpy.uint16))
    lens = numpy.array([len(d) for d in documents], dtype=numpy.int32)
    numpy.save(f"{prefix}_ids.npy", numpy.concatenate(documents))
    docs = numpy.arange(len(lens) + 1, dtype=numpy.int64)
    numpy.savez(f"{prefix}_idx.npz", lens=lens, docs=docs)
    return documents


def logits_of(p, tokens):
    """As torch_gpt's, in the functions that a PyTorch model is made of: they choose their
    precision themselves."""
    x = F.embedding(tokens, p["embedding.word.weight"])
    x = x + p["embedding.position.weight"][: tokens.shape[1]]
    n, _, H = x.shape
    future = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).triu(1)
    n_layers = sum(name.endswith(".attn.qkv.weight") for name in p)
    for i in range(n_layers):
        b = f"layers.{i}."
        _, A, D, _ = p[b + "attn.qkv.weight"].shape
        y = F.layer_norm(x, (H,), p[b + "ln1.weight"], p[b + "ln1.bias"])
        qkv = F.linear(y, p[b + "attn.qkv.weight"].reshape(-1, H), p[b + "attn.qkv.bias"].reshape(-1))
        q, k, v = qkv.reshape(n, -1, 3, A, D).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(D)
        y = torch.softmax(scores.masked_fill(future, -math.inf), dim=-1) @ v
        y = y.transpose(1, 2).reshape(n, -1, H)
        x = x + F.linear(y, p[b + "attn.proj.weight"], p[b + "attn.proj.bias"])
        y = F.layer_norm(x, (H,), p[b + "ln2.weight"], p[b + "ln2.bias"])
        y = F.gelu(F.linear(y, p[b + "mlp.fc.weight"], p[b + "mlp.fc.bias"]), approximate="tanh")
        x = x + F.linear(y, p[b + "mlp.proj.weight"], p[b + "mlp.proj.bias"])
    x = F.layer_norm(x, (H,), p["final_norm.weight"], p["final_norm.bias"])
    return F.linear(x, p["embedding.word.weight"])


def gradients(weights, windows, dtype, autocast=False):
    params = {name: w.to(dtype).clone().requires_grad_() for name, w in weights.items()}
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        logits = logits_of(params, windows[:, :-1])
    logits = logits.reshape(-1, V)
    if dtype != torch.float64:
        logits = logits.float()
    F.cross_entropy(logits, windows[:, 1:].reshape(-1)).backward()
    return without_key_bias({name: p.grad.double() for name, p in params.items()})


def without_key_bias(gradient):
    """The keys' bias has no gradient but noise: a softmax does not feel it."""
    kept = {name: g.clone() for name, g in gradient.items()}
    for name, g in kept.items():
        if name.endswith(".attn.qkv.bias"):
            g[1] = 0.0
    return kept


def rounded(weights, has_vectors):
    """The matrices, and on demand the vectors, as bfloat16 has them; in double."""
    return {
        name: w.to(torch.bfloat16).double() if has_vectors or w.dim() > 1 else w
        for name, w in weights.items()
    }


def distance(gradient, names):
    """Of a pair (what is judged, in double precision)."""
    got, exact = gradient
    off = sum(float(((got[n] - exact[n]) ** 2).sum()) for n in names)
    size = sum(float((exact[n] ** 2).sum()) for n in names)
    return math.sqrt(off / size)


def compare(ours, by_bfloat16, by_autocast):
    """Returns how many comparisons are lost. One matrix alone may be a third worse by
    chance."""
    n_bad = 0
    exact = ours[1]
    matrices = [name for name in exact if exact[name].dim() > 1 and not name.endswith(".bias")]
    for names in [list(exact)] + [[name] for name in matrices]:
        off, theirs, mixed = (distance(g, names) for g in (ours, by_bfloat16, by_autocast))
        slack = 1.0 if len(names) > 1 else 1.33
        is_bad = not (off <= slack * theirs and off <= slack * 2 * mixed)
        n_bad += is_bad
        print(
            f"{names[0] if len(names) == 1 else 'all gradients'}: off by {off:.2e};"
            f" PyTorch's bfloat16 {theirs:.2e}, autocast {mixed:.2e}"
            + (" TOO MUCH" if is_bad else "")
        )
    return n_bad


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="trefoil-interop-") as name:
        work = pathlib.Path(name)
        (work / "data").mkdir()
        documents = write_dataset(work / "data" / "small")
        config = work / "small.yaml"
        config.write_text(CONFIG.replace("DIR", name))
        command = [sys.argv[1], "pretrain", "-c", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")

        output = work / "output"
        before = check_training.checkpoint_of(output, LAST - 1)
        after = check_training.checkpoint_of(output, LAST)
        weights = check_training.read_tensors(before / "model.safetensors")
        moments = check_training.read_tensors(after / "optimizer.safetensors")
        windows = sample_order.train_windows(documents, SPLIT, S, B * LAST, SEED)
        windows = torch.from_numpy(windows[(LAST - 1) * B :].astype("i8"))
        half, full = rounded(weights, False), rounded(weights, True)
        exact = gradients(half, windows, torch.float64)
        got = without_key_bias({n: moments[n + ".exp_avg"] for n in exact})
        n_bad = compare(
            (got, exact),
            (gradients(full, windows, torch.bfloat16), gradients(full, windows, torch.float64)),
            (gradients(half, windows, torch.float32, autocast=True), exact),
        )
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
