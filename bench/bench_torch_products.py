#!/usr/bin/python3
"""Bare products by PyTorch on request: MKL's in float32, oneDNN's in bfloat16.

bench_torch_products.py [--dtype float32|bfloat16] [--threads T]

The twin of bench_products.c: prints a JSON object that says what multiplies, then answers
lines "product M N K FORM" of its standard input with the seconds of the best of some calls
of torch.mm on memory that is there.
"""

import argparse
import json
import os
import sys
import time

import torch

ENOUGH = 0.06  # seconds; at least two calls, the first of them on cold memory


def operands(m, n, k, form, dtype):
    a = torch.rand((k, m) if form == "weight" else (m, k)).sub_(0.5).to(dtype)
    b = torch.rand((n, k) if form == "forward" else (k, n)).sub_(0.5).to(dtype)
    c = torch.zeros((m, n), dtype=dtype)
    return a.t() if form == "weight" else a, b.t() if form == "forward" else b, c


def product_seconds(m, n, k, form, dtype):
    a, b, c = operands(m, n, k, form, dtype)
    best, total, calls = float("inf"), 0.0, 0
    while calls < 2 or total < ENOUGH:
        start = time.perf_counter()
        torch.mm(a, b, out=c)
        seconds = time.perf_counter() - start
        best, total, calls = min(best, seconds), total + seconds, calls + 1
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    dtype = getattr(torch, o.dtype)
    library = "MKL" if o.dtype == "float32" else "oneDNN"
    words = f"{library} in PyTorch {torch.__version__}"
    print(json.dumps({"words": words}), flush=True)
    for line in sys.stdin:
        word, m, n, k, form = line.split()
        if word != "product" or form not in ("forward", "input", "weight"):
            sys.exit(f"bench_torch_products: no request: {line}")
        print(product_seconds(int(m), int(n), int(k), form, dtype), flush=True)


if __name__ == "__main__":
    main()
