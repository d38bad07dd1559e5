#!/usr/bin/python3
"""Writes tests/golden/gpt_tiny.json, or compares the committed file with a new computation.

    make_golden.py [--check] [FILE]

The file: one forward and backward of a tiny GPT, ten AdamW steps, and twenty steps of
torch.optim.Adam, which decays every parameter, with exact GELU; in double precision, from a state that is given by a formula (torch_gpt.golden_parameters). tests/golden.h
reads it. A tensor is described by its sum of squares, by the sum of x[i] * (i % 11 - 5)
(plain sums of gradients are zero before a norm) and by some of its elements; all of them
without the bias of the keys.
"""

import argparse
import json
import math
import pathlib
import sys

import torch

import torch_gpt

GOLDEN_FILE = pathlib.Path(__file__).parent.parent / "golden" / "gpt_tiny.json"
CHECK_TOLERANCE = 1e-12  # relative; what another version of PyTorch may differ by
N_STEPS = 10

CONFIG = {
    "vocab_size": 67,
    "hidden_size": 24,
    "num_layers": 3,
    "num_attention_heads": 3,
    "ffn_hidden_size": 96,
    "max_position_embeddings": 19,
    "seq_len": 17,
    "batch_size": 3,
    "token_stream": 65536,
}
OPTIMIZER = {
    "weight_decay": 0.01,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "grad_clip": 1.0,
    # Warm-up ends between two steps and the decay before the last: every branch is taken.
    "lr": {"decay_steps": 8, "warmup_rate": 0.3, "max_lr": 1e-3, "min_lr": 1e-4},
}
MASKED_TOKEN = 5
N_ADAM_STEPS = 20
# The feed-forward matrices are scaled: both forms of GELU are close near 0.
ADAM = {"lr": 2e-3, "weight_decay": 0.1, "norm_epsilon": 1e-3, "fc_scale": 16.0}


def key_bias(name, n):
    """The elements of a fused qkv bias that belong to the keys. A softmax does not feel
    them: their gradient is zero but for rounding, and AdamW turns that into noise."""
    return range(n // 3, 2 * n // 3) if name.endswith(".attn.qkv.bias") else range(0)


def sampled_indices(name, n):
    """Elements to write down: the first and last four and seven between."""
    between = [(2 * k + 1) * n // 14 for k in range(7)]
    indices = sorted({*range(min(4, n)), *between, *range(max(n - 4, 0), n)})
    return [i for i in indices if i not in key_bias(name, n)]


def described(name, tensor):
    flat = tensor.detach().reshape(-1).clone()
    n = flat.numel()
    flat[list(key_bias(name, n))] = 0.0
    indices = sampled_indices(name, n)
    return {
        "name": name,
        "n_elements": n,
        "weighted_sum": float((flat * (torch.arange(n) % 11 - 5)).sum()),
        "sum_squares": float((flat**2).sum()),
        "index": indices,
        "value": [float(flat[i]) for i in indices],
    }


def ten_steps(params):
    optimizer = torch_gpt.AdamW(params, OPTIMIZER)
    steps = []
    for step in range(N_STEPS):
        loss = torch_gpt.backward(params, torch_gpt.golden_windows(CONFIG, step))
        norm, lr = optimizer.update()
        steps.append({"loss": loss, "grad_norm": norm, "lr": lr})
    return steps


def adam_steps():
    """The losses of updates by PyTorch's own Adam over all parameters."""
    form = torch_gpt.Form(torch.nn.functional.gelu, ADAM["norm_epsilon"])
    params = torch_gpt.golden_parameters(CONFIG)
    with torch.no_grad():
        for name, p in params.items():
            if name.endswith(".mlp.fc.weight"):
                p *= ADAM["fc_scale"]
    optimizer = torch.optim.Adam(
        params.values(), lr=ADAM["lr"], weight_decay=ADAM["weight_decay"]
    )
    losses = []
    for step in range(N_ADAM_STEPS):
        windows = torch_gpt.golden_windows(CONFIG, step)
        losses.append(torch_gpt.backward(params, windows, form=form))
        optimizer.step()
    return losses


def compute():
    windows = torch_gpt.golden_windows(CONFIG, 0)
    params = torch_gpt.golden_parameters(CONFIG)
    masked_loss = torch_gpt.backward(params, windows, MASKED_TOKEN)
    masked_norm = torch_gpt.AdamW(params, OPTIMIZER).grad_norm()
    loss = torch_gpt.backward(params, windows)
    gradients = [described(name, p.grad) for name, p in params.items()]
    steps = ten_steps(params)
    return {
        "config": CONFIG,
        "optimizer": OPTIMIZER,
        "loss": loss,
        "gradients": gradients,
        "masked": {
            "token": MASKED_TOKEN,
            "n_counted": int((windows[:, :-1] != MASKED_TOKEN).sum()),
            "loss": masked_loss,
            "grad_norm": masked_norm,
        },
        "steps": steps,
        "adam": {**ADAM, "losses": adam_steps()},
        "parameters_after": [described(name, p) for name, p in params.items()],
    }


def write_json(golden, path):
    """One tensor or step a line, so that a change shows as one."""

    def is_table(value):
        return isinstance(value, list) and isinstance(value[0], dict)

    lines = []
    for key, value in golden.items():
        if is_table(value):
            rows = ",\n".join("    " + json.dumps(row) for row in value)
            lines.append(f'  "{key}": [\n{rows}\n  ]')
        else:
            lines.append(f'  "{key}": {json.dumps(value)}')
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def differences(old, new, where, scale):
    """Yields a sentence for each place where two JSON values differ. A float may differ by
    CHECK_TOLERANCE of `scale`, the size of the tensor it belongs to: an element near zero
    is the rest of larger terms."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        if "sum_squares" in new:
            scale = math.sqrt(new["sum_squares"])
        for key in old:
            yield from differences(old[key], new[key], f"{where}.{key}", scale)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (a, b) in enumerate(zip(old, new)):
            yield from differences(a, b, f"{where}[{i}]", scale)
    elif isinstance(old, float) and isinstance(new, float):
        if not abs(old - new) <= CHECK_TOLERANCE * max(abs(old), scale):
            yield f"{where}: committed {old!r}, computed {new!r}"
    elif old != new:
        yield f"{where}: committed {old!r}, computed {new!r}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("file", nargs="?", type=pathlib.Path, default=GOLDEN_FILE)
    options = parser.parse_args()

    torch.set_num_threads(1)
    golden = compute()
    if not options.check:
        write_json(golden, options.file)
        return 0
    found = list(differences(json.loads(options.file.read_text()), golden, "golden", 0.0))
    for sentence in found[:20]:
        print(sentence)
    print(f"golden values: {len(found)} differences from PyTorch {torch.__version__}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
