#!/usr/bin/python3
"""Seconds of a training step of a plain GPT in PyTorch on the CPU.

What a careful user would write, in its fastest form: nn.Linear and nn.LayerNorm modules,
scaled_dot_product_attention, tied head, cross-entropy over all logits, clip_grad_norm_ 1.0
and the fused torch.optim.AdamW, no dropout. torch.compile brought nothing here. --dtype is
float32, autocast (forward in bfloat16 where torch.autocast holds that to be right) or
bfloat16 (model.bfloat16(), without master weights). The time of a step is forward,
backward, clip and update on tokens already in memory; one step goes first, unmeasured.
Prints one JSON object.
"""

import argparse
import json
import math
import os
import resource
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

DTYPES = ("float32", "autocast", "bfloat16")
SKIP_STATUS = 77  # as harness.py understands it


class Block(nn.Module):
    def __init__(self, H, A):
        super().__init__()
        self.A = A
        self.ln1, self.ln2 = nn.LayerNorm(H), nn.LayerNorm(H)
        self.qkv, self.proj = nn.Linear(H, 3 * H), nn.Linear(H, H)
        self.fc, self.fc_proj = nn.Linear(H, 4 * H), nn.Linear(4 * H, H)

    def attend(self, x):
        B, S, H = x.shape
        q, k, v = (
            t.view(B, S, self.A, H // self.A).transpose(1, 2)
            for t in self.qkv(x).split(H, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).contiguous().view(B, S, H))

    def forward(self, x):
        x = x + self.attend(self.ln1(x))
        return x + self.fc_proj(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.wte = nn.Embedding(o.vocab, o.hidden)
        self.wpe = nn.Embedding(o.seq, o.hidden)
        self.blocks = nn.ModuleList(Block(o.hidden, o.heads) for _ in range(o.layers))
        self.norm = nn.LayerNorm(o.hidden)
        self.head = nn.Linear(o.hidden, o.vocab, bias=False)
        self.head.weight = self.wte.weight
        self.is_autocast = o.dtype == "autocast"
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        if o.dtype == "bfloat16":
            self.bfloat16()

    def forward(self, inputs, targets):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.is_autocast):
            x = self.wte(inputs) + self.wpe.weight
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.norm(x))
            return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))


def optimizer_of(parameters):
    decay = [p for p in parameters if p.dim() > 1]
    others = [p for p in parameters if p.dim() == 1]
    groups = [
        {"params": decay, "weight_decay": 0.01},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=1e-4, fused=True)


def train(model, parameters, o, before_step=lambda: None):
    """(seconds of each step but the first, loss of the last); model(inputs, targets) is
    the loss, and before_step() is not measured."""
    optimizer = optimizer_of(parameters)
    tokens = torch.randint(0, o.vocab, (o.batch, o.seq + 1))
    seconds = []
    for _ in range(o.steps + 1):
        before_step()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    return seconds[1:], float(loss.detach())


def measure(o):
    torch.manual_seed(1)
    model = GPT(o)
    return train(model, list(model.parameters()), o)


def bytes_needed(o):
    """A lower estimate: 16 bytes a parameter, and what backward keeps of the activations:
    about 16 hidden-sized tensors a token, logits twice."""
    N, H = o.batch * o.seq, o.hidden
    parameters = o.layers * 12 * H * H + (o.vocab + o.seq) * H
    activations = o.layers * 16 * N * H
    return 4 * (4 * parameters + activations + 2 * N * o.vocab)


def bytes_available():
    with open("/proc/meminfo") as f:
        for line in f:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return math.inf


def skip_unless_it_fits(o, n_processes):
    """Rather than have the kernel end some process."""
    need = n_processes * bytes_needed(o)
    if need > 0.9 * bytes_available():
        print(f"PyTorch needs about {need / 1e9:.0f} GB for this shape", file=sys.stderr)
        sys.exit(SKIP_STATUS)


def report(o, seconds, loss, n_processes):
    return {
        "seconds_best": min(seconds),
        "seconds_median": statistics.median(seconds),
        "tokens_per_s": n_processes * o.batch * o.seq / min(seconds),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "loss": loss,
        "threads": o.threads,
        "version": torch.__version__,
    }


def parse_options(description):
    parser = argparse.ArgumentParser(description=description)
    for name in ("layers", "hidden", "heads", "vocab", "batch", "seq"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--dtype", choices=DTYPES, default=DTYPES[0])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    return parser.parse_args()


def main():
    o = parse_options(__doc__.splitlines()[0])
    skip_unless_it_fits(o, 1)
    torch.set_num_threads(o.threads)
    seconds, loss = measure(o)
    print(json.dumps(report(o, seconds, loss, 1)))


if __name__ == "__main__":
    main()
