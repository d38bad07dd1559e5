#!/usr/bin/python3
"""Repeats steps of Colossal-AI's GPT tutorial in PyTorch, in double precision.

    check_tutorial.py PATH/TO/trefoil

The tutorial pads every text to the longest one, hides padding with an additive attention
mask, takes input_ids as labels, so that padding counts in the loss, and drops the last
incomplete batch of an epoch. Its model has the exact GELU and its optimizer is
torch.optim.Adam over all parameters. Trefoil trains with a configuration in the tutorial's
form; this program repeats 20 steps from the checkpoint after the first one with a model, a
data loader's arithmetic and torch.optim.Adam of its own, and compares the losses.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch

import safetensors_plain

TOLERANCE = 1e-6  # relative, float32 against double
N_STEPS, SEED, EOS, V = 21, 42, 256, 257
BATCH, ACCUMULATION, HEADS = 4, 2, 4
RATE, DECAY = 1.5e-4, 1e-2

CONFIG = f"""
NUM_EPOCHS: 60
SEQ_LEN: LENGTH
BATCH_SIZE: {BATCH}
NUM_MICRO_BATCHES: 2
gradient_accumulation: {ACCUMULATION}
seed: {SEED}
num_threads: 1
logging_freq: 1
eval_freq: 0
dataset: {{input_dir: DIR/data, split: '1,0,0', mode: padded}}
save_load: {{save_steps: 1, keep_last: 0, output_dir: DIR/output}}
Model:
  vocab_size: {V}
  hidden_size: 32
  num_layers: 2
  num_attention_heads: {HEADS}
  hidden_dropout_prob: 0.0
  attention_probs_dropout_prob: 0.0
  max_position_embeddings: 64
  initializer_range: 0.05
Optimizer:
  name: Adam
  weight_decay: {DECAY}
  grad_clip: 0.0
  lr: {{decay_steps: 1, warmup_rate: 0.0, max_lr: {RATE}, min_lr: {RATE}}}
"""


def make_texts():
    """Texts of 2 to 60 characters, 19 of them: an epoch has two updates and a rest."""
    rng = numpy.random.RandomState(3)
    return ["".join(chr(97 + c) for c in rng.randint(0, 26, size=n)) for n in rng.randint(2, 60, size=19)]


def tokenize(texts, length):
    """input_ids and attention_mask as a tokenizer with padding and truncation makes them."""
    ids = [list(text.encode())[:length] for text in texts]
    longest = max(map(len, ids))
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in ids])
    return torch.tensor([row + [EOS] * (longest - len(row)) for row in ids]), mask


class Model:
    """The tutorial's model, over the tensors of a checkpoint."""

    def __init__(self, tensors):
        self.p = {name: t.clone().requires_grad_() for name, t in tensors.items()}

    def attend(self, block, y, hidden):
        B, S, H = y.shape
        weight = self.p[block + "attn.qkv.weight"].reshape(3 * H, H)
        qkv = y @ weight.T + self.p[block + "attn.qkv.bias"].reshape(3 * H)
        q, k, v = (x.view(B, S, HEADS, H // HEADS).transpose(1, 2) for x in qkv.split(H, -1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(H // HEADS)
        causal = torch.ones(S, S, dtype=torch.bool).tril()
        scores = torch.where(causal, scores, torch.tensor(-1e4, dtype=scores.dtype)) + hidden
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, S, H)
        return mixed @ self.p[block + "attn.proj.weight"].T + self.p[block + "attn.proj.bias"]

    def loss(self, ids, mask):
        p, H = self.p, self.p["final_norm.weight"].numel()
        norm = lambda x, name: torch.layer_norm(x, [H], p[name + ".weight"], p[name + ".bias"], 1e-5)
        hidden = (1.0 - mask[:, None, None, :].double()) * -10000.0
        x = p["embedding.word.weight"][ids] + p["embedding.position.weight"][: ids.shape[1]]
        for i in range(sum(name.endswith("qkv.weight") for name in p)):
            b = f"layers.{i}."
            x = x + self.attend(b, norm(x, b + "ln1"), hidden)
            y = norm(x, b + "ln2") @ p[b + "mlp.fc.weight"].T + p[b + "mlp.fc.bias"]
            y = torch.nn.functional.gelu(y)
            x = x + y @ p[b + "mlp.proj.weight"].T + p[b + "mlp.proj.bias"]
        logits = norm(x, "final_norm") @ p["embedding.word.weight"].T
        return torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, V), ids[:, 1:].reshape(-1))


def batches_of(n_texts):
    """Indexes of the samples of each batch, epoch by epoch, the last incomplete ones dropped:
    by the data loader, and by the accumulation of gradients."""
    per_epoch = n_texts // BATCH // ACCUMULATION * ACCUMULATION
    for epoch in range(10**6):
        order = numpy.arange(n_texts)
        numpy.random.RandomState(SEED + epoch).shuffle(order)
        for i in range(per_epoch):
            yield order[i * BATCH : (i + 1) * BATCH]


def read_tensors(path):
    return {name: torch.from_numpy(a.astype("f8")) for name, a in safetensors_plain.load(path).items()}


def resume(checkpoint):
    """The model and torch's Adam as the checkpoint of step 1 left them."""
    model = Model(read_tensors(checkpoint / "model.safetensors"))
    moments = read_tensors(checkpoint / "optimizer.safetensors")
    adam = torch.optim.Adam(model.p.values(), lr=RATE, weight_decay=DECAY)
    for name, p in model.p.items():
        adam.state[p] = {
            "step": torch.tensor(1.0),
            "exp_avg": moments[name + ".exp_avg"],
            "exp_avg_sq": moments[name + ".exp_avg_sq"],
        }
    return model, adam


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr[-4000:]}")


def check(trefoil, work, length):
    """Texts are cut to `length`, or padded to the longest; returns how many steps differ."""
    texts = make_texts()
    (work / "data").mkdir(parents=True)
    (work / "web.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    run(trefoil, "prepare", "--input", work / "web.jsonl", "--output", work / "data" / "web")
    (work / "run.yaml").write_text(CONFIG.replace("DIR", str(work)).replace("LENGTH", str(length)))
    run(trefoil, "pretrain", "-c", work / "run.yaml", "-o", f"max_steps={N_STEPS}")
    output = work / "output"
    lines = map(json.loads, (output / "metrics.jsonl").read_text().splitlines())
    losses = {row["step"]: row["loss"] for row in lines if "grad_norm" in row}
    model, adam = resume(next(output.glob("epoch_*_step_1")))
    ids, mask = tokenize(texts, length)
    batches = batches_of(len(texts))
    n_bad = 0
    for step in range(1, N_STEPS + 1):
        parts = [model.loss(ids[i], mask[i]) for i in (next(batches) for _ in range(ACCUMULATION))]
        if step == 1:
            continue  # the checkpoint is of this step
        loss = sum(parts) / ACCUMULATION
        adam.zero_grad()
        loss.backward()
        adam.step()
        off = abs(losses[step] / float(loss.detach()) - 1)
        n_bad += not off <= TOLERANCE
        print(f"length {length}, step {step}: loss {losses[step]:.9g}, off by {off:.1e}" + " TOO MUCH" * (not off <= TOLERANCE))
    return n_bad


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="trefoil-interop-") as name:
        n_bad = sum(check(sys.argv[1], pathlib.Path(name) / str(n), n) for n in (24, 64))
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
