#!/usr/bin/python3
"""Trains a tiny GPT with Trefoil and repeats its steps in PyTorch, in double precision.

    check_training.py PATH/TO/trefoil

Writes a small FleetX dataset with numpy, trains on it without dropout, then loads an early
checkpoint (parameters and moments), takes the samples of the following steps from numpy's
own computation of the order, and compares loss, gradient norm and learning rate of each
step, and the parameters at the end. A second run has exact GELU and Adam that decays every
parameter: its 20 steps are repeated by torch.optim.Adam and its losses compared.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch

import sample_order
import safetensors_plain
import torch_gpt

LOSS_TOLERANCE = 2e-6  # relative, float32 against double
NORM_TOLERANCE = 2e-5
ADAM_TOLERANCE = 1e-6  # of the losses of the second run
MAX_STEPS, SAVE_STEPS = 12, 3
N_ADAM_STEPS, NORM_EPSILON = 20, 1e-4
B, S, V, SEED = 4, 32, 301, 1234
SPLIT = (949, 50, 1)

CONFIG = f"""
PreTraining:
  device: cpu
  seed: {SEED}
  max_steps: {MAX_STEPS}
  logging_freq: 1
  eval_freq: 0
  batch_size:
    global_batch_size: {B}
    local_batch_size: {B}
    micro_batch_size: {B // 2}
  dataset:
    input_dir: DIR/data
    split: '{','.join(map(str, SPLIT))}'
    max_seq_len: {S}
  save_load:
    save_steps: {SAVE_STEPS}
    keep_last: 0
    output_dir: DIR/output
  mix_precision:
    use_pure_fp16: False
  Model:
    vocab_size: {V}
    hidden_size: 48
    num_layers: 3
    num_attention_heads: 4
    ffn_hidden_size: 160
    hidden_dropout_prob: 0.0
    attention_probs_dropout_prob: 0.0
    max_position_embeddings: {S + 5}
    initializer_range: 0.05
  Optimizer:
    weight_decay: 0.1
    grad_clip: 1.0
    lr:
      decay_steps: 10
      warmup_rate: 0.35
      max_lr: 1.0e-3
      min_lr: 1.0e-4
"""


# On one learning rate, as PyTorch's Adam has it, from the first step on.
ADAM_SETTINGS = [
    f"max_steps={SAVE_STEPS + N_ADAM_STEPS}",
    "save_load.output_dir=DIR/adam",
    "Model.activation=gelu",
    "Model.initializer_range=0.4",  # both forms of GELU are close near 0
    f"Model.norm_epsilon={NORM_EPSILON}",
    "Optimizer.name=Adam",
    "Optimizer.decay=all",
    "Optimizer.grad_clip=0",
    "Optimizer.lr.warmup_rate=0",
    "Optimizer.lr.min_lr=1.0e-3",
]


def write_dataset(prefix):
    """A corpus so small that two epochs are needed; returns its documents."""
    rng = numpy.random.RandomState(7)
    lens = rng.randint(5, 60, size=30).astype(numpy.int32)
    documents = [rng.randint(0, V, size=n).astype(numpy.uint16) for n in lens]
    numpy.save(f"{prefix}_ids.npy", numpy.concatenate(documents))
    docs = numpy.arange(len(lens) + 1, dtype=numpy.int64)
    numpy.savez(f"{prefix}_idx.npz", lens=lens, docs=docs)
    return documents


def read_tensors(path):
    arrays = safetensors_plain.load(path)
    return {name: torch.from_numpy(a.astype("f8")) for name, a in arrays.items()}


def checkpoint_of(output, step):
    found = list(output.glob(f"epoch_*_step_{step}"))
    if len(found) != 1:
        sys.exit(f"'{output}' has {len(found)} checkpoints of step {step}, not one")
    return found[0]


def resumed(checkpoint):
    """An AdamW as the checkpoint left it."""
    trainer = json.loads((checkpoint / "trainer.json").read_text())
    tensors = read_tensors(checkpoint / "model.safetensors")
    moments = read_tensors(checkpoint / "optimizer.safetensors")
    shapes = torch_gpt.parameter_shapes(torch_gpt.config_of(tensors))
    if {name: tuple(t.shape) for name, t in tensors.items()} != shapes:
        sys.exit(f"'{checkpoint}' has other parameters than a GPT")
    params = {name: tensors[name].requires_grad_() for name in shapes}
    optimizer = torch_gpt.AdamW(params, trainer["config"]["Optimizer"])
    optimizer.step = trainer["step"]
    for name in shapes:
        optimizer.m[name] = moments[name + ".exp_avg"]
        optimizer.v[name] = moments[name + ".exp_avg_sq"]
    return optimizer


def compare_steps(optimizer, metrics, windows):
    """Repeats every later step; returns how many differ by too much."""
    n_bad = 0
    while optimizer.step < MAX_STEPS:
        tokens = windows[optimizer.step * B : (optimizer.step + 1) * B]
        loss = torch_gpt.backward(optimizer.params, torch.from_numpy(tokens.astype("i8")))
        norm, _ = optimizer.update()
        row = metrics[optimizer.step]
        # The learning rate is logged after the schedule has moved on, as PaddleFleetX's is.
        lr = torch_gpt.learning_rate(optimizer.options["lr"], optimizer.step + 1)
        off = (abs(row["loss"] / loss - 1), abs(row["grad_norm"] / norm - 1), abs(row["lr"] / lr - 1))
        is_bad = not (off[0] <= LOSS_TOLERANCE and off[1] <= NORM_TOLERANCE and off[2] <= 1e-6)
        n_bad += is_bad
        print(
            f"step {optimizer.step}: loss {row['loss']:.9g}, PyTorch {loss:.9g};"
            f" off by {off[0]:.1e}, grad_norm {off[1]:.1e}, lr {off[2]:.1e}"
            + (" TOO MUCH" if is_bad else "")
        )
    return n_bad


def compare_parameters(optimizer, checkpoint):
    """The keys' bias is noise (a softmax does not feel it) and is left out."""
    n_bad = 0
    for name, t in read_tensors(checkpoint / "model.safetensors").items():
        difference = (t - optimizer.params[name].detach()).abs()
        if name.endswith(".attn.qkv.bias"):
            difference[1] = 0.0
        allowed = 0.02 * optimizer.options["lr"]["max_lr"]
        if not float(difference.max()) <= allowed:
            n_bad += 1
            print(f"{name}: differs by {float(difference.max()):.2e}, allowed {allowed:.1e}")
    return n_bad


def pytorch_adam(checkpoint):
    """(parameters, torch.optim.Adam) as the checkpoint left them."""
    old = resumed(checkpoint)
    o = old.options
    adam = torch.optim.Adam(
        old.params.values(),
        lr=o["lr"]["max_lr"],
        betas=(o["adam_beta1"], o["adam_beta2"]),
        eps=o["adam_epsilon"],
        weight_decay=o["weight_decay"],
    )
    for name, p in old.params.items():
        adam.state[p] = {
            "step": torch.tensor(float(old.step)),
            "exp_avg": old.m[name],
            "exp_avg_sq": old.v[name],
        }
    return old.params, adam


def compare_adam(output, metrics, windows):
    """The losses of the second run; returns how many differ by too much."""
    params, adam = pytorch_adam(checkpoint_of(output, SAVE_STEPS))
    form = torch_gpt.Form(torch.nn.functional.gelu, NORM_EPSILON)
    n_bad = 0
    for step in range(SAVE_STEPS, SAVE_STEPS + N_ADAM_STEPS):
        tokens = torch.from_numpy(windows[step * B : (step + 1) * B].astype("i8"))
        loss = torch_gpt.backward(params, tokens, form=form)
        adam.step()
        off = abs(metrics[step + 1]["loss"] / loss - 1)
        n_bad += not off <= ADAM_TOLERANCE
        print(
            f"Adam, step {step + 1}: loss {metrics[step + 1]['loss']:.9g}, PyTorch {loss:.9g};"
            f" off by {off:.1e}" + ("" if off <= ADAM_TOLERANCE else " TOO MUCH")
        )
    return n_bad


def train(trefoil, config, output, settings=()):
    """The metrics of a run, by step."""
    options = [word for setting in settings for word in ("-o", setting)]
    command = [trefoil, "pretrain", "-c", str(config), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    lines = (output / "metrics.jsonl").read_text().splitlines()
    return {row["step"]: row for row in map(json.loads, lines) if "grad_norm" in row}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="trefoil-interop-") as name:
        work = pathlib.Path(name)
        (work / "data").mkdir()
        documents = write_dataset(work / "data" / "tiny")
        config = work / "tiny.yaml"
        config.write_text(CONFIG.replace("DIR", name))
        output, adam_output = work / "output", work / "adam"
        metrics = train(sys.argv[1], config, output)
        windows = sample_order.train_windows(documents, SPLIT, S, B * MAX_STEPS, SEED)
        optimizer = resumed(checkpoint_of(output, SAVE_STEPS))
        n_bad = compare_steps(optimizer, metrics, windows)
        n_bad += compare_parameters(optimizer, checkpoint_of(output, MAX_STEPS))

        settings = [setting.replace("DIR", name) for setting in ADAM_SETTINGS]
        metrics = train(sys.argv[1], config, adam_output, settings)
        n_windows = B * (SAVE_STEPS + N_ADAM_STEPS)
        windows = sample_order.train_windows(documents, SPLIT, S, n_windows, SEED)
        n_bad += compare_adam(adam_output, metrics, windows)
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
