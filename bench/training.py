"""`trefoil pretrain` as a subject of measurements: a temporary directory with datasets of
random tokens and a configuration, and runs in it that differ in their settings. The time
of a step is the run's own, which its metrics have: reading samples, agreements between
ranks and the metrics themselves are part of it."""

import array
import json
import math
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

from harness import RUN_LIMIT, all_threads, progress

CONFIG = """
PreTraining:
  eval_freq: 0
  logging_freq: 1
  dataset: {split: '1,0,0'}
  save_load: {save_steps: -1}
  mix_precision: {scale_loss: 128}
  Model: {hidden_dropout_prob: 0.0, attention_probs_dropout_prob: 0.0}
  Optimizer: {grad_clip: 1.0, lr: {max_lr: 1.0e-5, min_lr: 1.0e-5}}
"""
N_TOKENS = 300000
UINT16, INT32 = (8, "H"), (4, "i")  # codes of Megatron's index, of the module array


def shape_settings(shape, samples):
    """A step of `samples` samples in micro-batches of the shape's batch."""
    return [
        f"Model.vocab_size={shape['vocab']}",
        f"Model.hidden_size={shape['hidden']}",
        f"Model.num_layers={shape['layers']}",
        f"Model.num_attention_heads={shape['heads']}",
        f"Model.max_position_embeddings={shape['seq']}",
        f"dataset.max_seq_len={shape['seq']}",
        f"batch_size.micro_batch_size={shape['batch']}",
        f"batch_size.global_batch_size={samples}",
    ]


def write_random_tokens(prefix, vocab, n=N_TOKENS):
    """A dataset of one document in Megatron's format, always the same."""
    code, letter = UINT16 if vocab < 65500 else INT32
    tokens = array.array(letter, random.Random(7).choices(range(vocab), k=n))
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, 1, 2)
    index += struct.pack("<iqqq", n, 0, 0, 1)  # its length, where it begins, bounds
    if sys.byteorder == "big":
        tokens.byteswap()
    prefix.with_suffix(".bin").write_bytes(tokens.tobytes())
    prefix.with_suffix(".idx").write_bytes(index)


def n_processes(settings):
    """Of a run: the product of its degrees."""
    pairs = (setting.split("=") for setting in settings)
    return math.prod(int(value) for key, value in pairs if key.endswith("_degree"))


class TrainingGround:
    """Use it in a with statement. It lies in the build directory: temporary directories
    may be in memory, and checkpoints are to be measured on a disk."""

    def __init__(self, context):
        self.context = context
        self.trefoil = str(context.options.build.resolve() / "trefoil")
        self.n_runs = 0

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory(
            prefix="bench-", dir=self.context.options.build
        )
        self.path = pathlib.Path(self.directory.name).resolve()
        (self.path / "run.yaml").write_text(CONFIG)
        return self

    def dataset(self, vocab):
        """The directory of random tokens below `vocab`."""
        directory = self.path / f"tokens-{vocab}"
        if not directory.exists():
            directory.mkdir()
            write_random_tokens(directory / "random", vocab)
        return directory

    def __exit__(self, *_):
        progress("")
        self.directory.cleanup()

    def command(self, settings, config="run.yaml"):
        """Processes share out all cores by themselves; fewer threads have to be said."""
        words = [self.trefoil, "pretrain", "-c", str(config)]
        if self.context.threads != all_threads():
            each = max(1, self.context.threads // n_processes(settings))
            settings = [f"num_threads={each}", *settings]
        for setting in settings:
            words += ["-o", setting]
        return words

    def output(self):
        """A directory for the next run."""
        self.n_runs += 1
        return self.path / f"run{self.n_runs}"

    def log_of(self, command):
        """[(seconds since the start, line)] of the log of a run, or {"failed": why}."""
        lines, start = [], time.perf_counter()
        with subprocess.Popen(
            command,
            cwd=self.path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as run:
            limit = threading.Timer(RUN_LIMIT, run.terminate)  # it ends its ranks, too
            limit.start()
            for line in run.stderr:
                lines.append((time.perf_counter() - start, line.rstrip()))
            limit.cancel()
        if run.returncode != 0:
            return {"failed": lines[-1][1] if lines else f"exit code {run.returncode}"}
        return lines

    def train(self, shape, samples, settings=(), steps=None, has_trace=False):
        """The best of `steps` steps after the first, which touches all memory; with the
        events of all ranks as "trace" where that is wanted."""
        output = self.output()
        steps = (steps or self.context.effort.measured_steps) + 1
        trace = output.with_suffix(".trace.json")
        every = [
            *shape_settings(shape, samples),
            f"dataset.input_dir={self.dataset(shape['vocab'])}",
            f"max_steps={steps}",
            f"save_load.output_dir={output}",
            *([f"trace={trace}"] if has_trace else []),
            *settings,
        ]
        log = self.log_of(self.command(every))
        if "failed" in log:
            return log
        with open(output / "metrics.jsonl") as f:
            steps = [line for line in map(json.loads, f) if "loss" in line]
        costs = [line["batch_cost"] for line in steps][1:]
        result = {
            "seconds": min(costs),
            "seconds_median": statistics.median(costs),
            "tokens_per_s": samples * shape["seq"] / min(costs),
            "peak_rss_mb": steps[-1]["peak_memory_bytes"] / 1e6,
        }
        if has_trace:
            result["trace"] = spans_of(trace)
        return result


def spans_of(path):
    """[{"name", "pid", "ts", "dur", ...}] of a trace, times in microseconds."""
    events = json.loads(path.read_text())["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]
