#!/usr/bin/python3
"""Seconds of a data-parallel training step in PyTorch: DistributedDataParallel over gloo.

The model, the optimizer and the clip of bench_torch.py, one sample set of --batch each in
two processes that share --threads. Gradients are averaged in buckets while backward goes
on, which is what DistributedDataParallel is for. A step begins when both processes are
there and takes as long as the slower one. Prints one JSON object.
"""

import json
import os
import pathlib
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.nn.parallel import DistributedDataParallel

import bench_torch

N_PROCESSES = 2


def run_rank(rank, o, directory):
    """One process of the two; rank 0 leaves the result in the directory."""
    torch.set_num_threads(max(1, o.threads // N_PROCESSES))
    dist.init_process_group(
        "gloo", init_method=f"file://{directory}/meet", rank=rank, world_size=N_PROCESSES
    )
    torch.manual_seed(1)
    model = bench_torch.GPT(o)
    parameters = list(model.parameters())
    torch.manual_seed(2 + rank)  # each its own tokens
    shared = DistributedDataParallel(model)
    seconds, loss = bench_torch.train(shared, parameters, o, before_step=dist.barrier)
    slowest = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    if rank == 0:
        result = bench_torch.report(o, slowest.tolist(), loss, N_PROCESSES)
        pathlib.Path(directory, "result.json").write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


def main():
    o = bench_torch.parse_options(__doc__.splitlines()[0])
    bench_torch.skip_unless_it_fits(o, N_PROCESSES)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # host names need not resolve
    with tempfile.TemporaryDirectory() as directory:
        processes.spawn(run_rank, args=(o, directory), nprocs=N_PROCESSES)
        print(pathlib.Path(directory, "result.json").read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
