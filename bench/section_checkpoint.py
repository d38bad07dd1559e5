"""Section "checkpoint": saving and loading against `dd` on the same disk.

A save in the foreground and the stall of one in the background are the spans called
"save" in the traces of two runs. A load is the time from the memory report to the line
that says what was resumed, with the checkpoint out of the page cache. dd writes as many
zeros with fsync, and reads the same files, out of the cache too. Before each of these
memory is touched and given back: the host of a virtual machine takes free memory away,
and who first wants it back would pay more for that than for the disk."""

import json
import os
import shutil
import subprocess
import time

import shapes
from harness import is_measured, last_line, seconds
from tables import Table, bounded, number, ratio
from training import TrainingGround, shape_settings, spans_of

STALL_BOUND = 0.05  # of a save in the foreground, at most
SPEED_BOUND = 0.7  # of dd's, at least
FEWEST_STEPS, MOST_STEPS = 4, 500


class Failure(Exception):
    """Something did not run; its text says what."""


def files_of(output):
    """The files of the newest checkpoint of a run."""
    newest = output / (output / "latest").read_text().strip()
    return [path for path in newest.iterdir() if path.is_file()]


def forget(files):
    """Out of the page cache, which keeps what is not yet on the disk."""
    for path in files:
        with open(path, "rb") as f:
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def dd_seconds(*arguments):
    start = time.perf_counter()
    done = subprocess.run(
        ["dd", "bs=1M", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Failure(last_line(done.stderr, "dd failed"))
    return time.perf_counter() - start


def warm_memory(n_bytes):
    subprocess.run(
        ["dd", "if=/dev/zero", "of=/dev/null", f"bs={n_bytes}", "count=1", "iflag=fullblock"],
        capture_output=True,
        check=False,
    )


class Trial:
    """Five measurements, in an order that each finds what it needs: a save in the
    foreground leaves the checkpoint that is loaded."""

    def __init__(self, ground, shape):
        self.ground = ground
        self.shape = shape
        self.source = None  # the output directory that holds the checkpoint
        self.step_seconds = None

    def run(self, steps, settings):
        """(output directory, log) of a run."""
        output = self.ground.output()
        every = [
            *shape_settings(self.shape, self.shape["batch"]),
            f"dataset.input_dir={self.ground.dataset(self.shape['vocab'])}",
            f"max_steps={steps}",
            f"save_load.output_dir={output}",
            *settings,
        ]
        log = self.ground.log_of(self.ground.command(every))
        if "failed" in log:
            raise Failure(log["failed"])
        return output, log

    def run_saving(self, steps, settings):
        """The same with the seconds that each span "save" held training up."""
        trace = self.ground.path / "save.trace.json"
        output, log = self.run(steps, [f"trace={trace}", *settings])
        spans = [span for span in spans_of(trace) if span["name"] == "save"]
        return output, log, [s["dur"] * 1e-6 for s in sorted(spans, key=lambda s: s["ts"])]

    def n_bytes(self):
        return sum(path.stat().st_size for path in files_of(self.source))

    def save(self):
        """The save at the end of a run is in the foreground."""
        if self.source:
            shutil.rmtree(self.source)
        self.source, _, spans = self.run_saving(2, ["save_load.save_steps=0"])
        with open(self.source / "metrics.jsonl") as f:
            steps = [line for line in map(json.loads, f) if "loss" in line]
        self.step_seconds = steps[1]["batch_cost"]
        return {"seconds": spans[-1], "bytes": self.n_bytes()}

    def stall(self):
        """Half-way through the run a save in the background; the one at its end apart."""
        half = int(self.ground.context.effort.save_seconds / max(self.step_seconds, 1e-6))
        half = min(max(half, FEWEST_STEPS), MOST_STEPS)
        output, log, spans = self.run_saving(2 * half, [f"save_load.save_steps={half}"])
        shutil.rmtree(output)
        lines = [line for _, line in log]
        saved = [i for i, line in enumerate(lines) if "saved checkpoint" in line]
        last = [i for i, line in enumerate(lines) if "global step" in line][-1]
        if saved[0] > last:
            raise Failure(f"the save was not over after {half} steps")
        return {"seconds": sum(spans[:-1])}

    def warm(self):
        """A run holds the state, its gradients, and a copy or the cache of what it writes."""
        warm_memory(4 * self.n_bytes())

    def dd_write(self):
        self.warm()
        path = self.ground.path / "zeros"
        count = max(1, self.n_bytes() >> 20)
        took = dd_seconds("if=/dev/zero", f"of={path}", f"count={count}", "conv=fsync")
        path.unlink()
        return {"seconds": took, "bytes": count << 20}

    def load(self):
        """max_steps is the checkpoint's own step: nothing is left to do but to load."""
        forget(files_of(self.source))
        self.warm()
        settings = [f"save_load.ckpt_dir={self.source}", "save_load.save_steps=-1"]
        _, log = self.run(2, settings)
        opened = [moment for moment, line in log if "- rank 0 " in line]
        resumed = [moment for moment, line in log if "- resumed from " in line]
        if not opened or not resumed:
            raise Failure("the log of a resumed run lacks the lines of its memory or load")
        return {"seconds": resumed[0] - opened[0], "bytes": self.n_bytes()}

    def dd_read(self):
        files = files_of(self.source)
        forget(files)
        self.warm()
        took = sum(dd_seconds(f"if={path}", "of=/dev/null") for path in files)
        return {"seconds": took, "bytes": self.n_bytes()}


def guarded(measure):
    """A round that cannot be run is a result, not the end of the benchmark."""

    def run():
        try:
            return measure()
        except (Failure, OSError) as e:
            return {"failed": str(e)}

    return run


def measure_checkpoint(context):
    shape = shapes.parse(context.effort.checkpoint_shape)
    with TrainingGround(context) as ground:
        trial = Trial(ground, shape)
        first = context.rounds("checkpoint", {"save": guarded(trial.save)}, 1)
        if not is_measured(first["save"]):
            return {"shape": shape, "results": first}
        contestants = {
            "save": trial.save,
            "dd, write and fsync": trial.dd_write,
            "load": trial.load,
            "dd, read": trial.dd_read,
            "stall of a save in the background": trial.stall,
        }
        contestants = {name: guarded(run) for name, run in contestants.items()}
        results = context.rounds("checkpoint", contestants, context.effort.rounds)
    return {"shape": shape, "results": results}


def checkpoint_tables(data, kind=None):
    results = data["results"]
    table = Table(
        data["shape"]["name"], ("", "seconds", "GB/s", "speed / dd", "time / save")
    )
    judges = {"save": "dd, write and fsync", "load": "dd, read"}
    rates = {name: ratio(r.get("bytes"), r.get("seconds")) for name, r in results.items()}
    for name, result in results.items():
        if not is_measured(result):
            continue
        speed = ratio(rates[name], rates.get(judges.get(name)))
        is_stall = name.startswith("stall")
        stall = ratio(result["seconds"], seconds(results, "save")) if is_stall else None
        table.add(
            name,
            number(result["seconds"], 3),
            number(rates[name] and rates[name] * 1e-9),
            bounded(speed, at_least=SPEED_BOUND),
            bounded(stall, at_most=STALL_BOUND, digits=3),
        )
    table.add_failures(results)
    yield table
