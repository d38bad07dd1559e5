"""Running the speed programs: one JSON object each, rounds in turns, the best counts."""

import functools
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys

import shapes

BENCH = pathlib.Path(__file__).resolve().parent
PYTHON = BENCH.parent / "build" / "python-pytorch" / "bin" / "python"  # tools/setup.sh makes it
RUN_LIMIT = 1800  # seconds of any one run; the longest takes a tenth of it
SKIP_STATUS = 77  # of a program that cannot run here, through no fault of its own


def all_threads():
    return len(os.sched_getaffinity(0))


def last_line(text, otherwise):
    lines = text.strip().splitlines()
    return lines[-1] if lines else otherwise


def run_json(command, environment=None):
    """The object that the program prints, {"skipped": why} or {"failed": why}."""
    command = [str(word) for word in command]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_LIMIT,
            env={**os.environ, **(environment or {})},
        )
        if done.returncode == SKIP_STATUS:
            return {"skipped": last_line(done.stderr, "not here")}
        if done.returncode != 0:
            return {"failed": last_line(done.stderr, f"exit code {done.returncode}")}
        return json.loads(done.stdout)
    except OSError as e:
        why = f"cannot run '{command[0]}': {e.strerror}; `make bench` builds it"
        return {"failed": why}
    except subprocess.TimeoutExpired:
        return {"failed": f"'{command[0]}' was ended after {RUN_LIMIT} seconds"}
    except json.JSONDecodeError as e:
        return {"failed": f"'{command[0]}' did not print a JSON object: {e}"}


@functools.lru_cache(maxsize=None)
def pytorch_environment():
    """What it must be told here. In some virtual machines a processor has AMX but hides
    its description (leaf 0x1d of CPUID), and oneDNN then dies of SIGILL: tried once."""
    with open("/proc/cpuinfo") as f:
        if " amx_tile" not in f.read():
            return {}
    product = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a"
    tried = subprocess.run([str(PYTHON), "-c", product], capture_output=True, check=False)
    return {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"} if tried.returncode == -signal.SIGILL else {}


def is_measured(result):
    return "failed" not in result and "skipped" not in result


def seconds(results, name):
    """Of the best round; None where it was not measured."""
    return results.get(name, {}).get("seconds")


class Context:
    """What a section needs to know: options, effort, and what has been measured so far."""

    def __init__(self, options, effort):
        self.options = options
        self.effort = effort
        self.failures = []  # sentences
        self.measured_shapes = {}  # shape -> results of Trefoil and the floor

    @property
    def threads(self):
        return self.options.threads

    def program(self, name):
        return self.options.build / "bench" / name

    def step(self, shape, n_steps, extra=()):
        """One run of bench_step."""
        return self.timed(
            [self.program("bench_step"), *shapes.arguments(shape), "--steps", n_steps]
            + ["--threads", self.threads, *extra]
        )

    def floor(self, shape):
        return self.timed(
            [self.program("bench_floor"), *shapes.arguments(shape)]
            + ["--threads", self.threads]
        )

    def pytorch(self, script, shape, n_steps):
        return self.timed(
            [PYTHON, BENCH / script, *shapes.arguments(shape), "--steps", n_steps]
            + ["--threads", self.threads],
            pytorch_environment(),
        )

    def timed(self, command, environment=None):
        """run_json(), with its time as "seconds" whatever the program calls it."""
        result = run_json(command, environment)
        if "seconds_best" in result:
            result["seconds"] = result.pop("seconds_best")
        return result

    def rounds(self, subject, contestants, n_rounds):
        """name -> the best result, of n_rounds in which all contestants (name -> function)
        take turns: a slow moment of the machine meets all of them. "rounds" has the seconds
        of each; the median is that of the rounds' medians. What failed is not run again."""
        results, medians = {}, {}
        for i in range(n_rounds):
            for name, run in contestants.items():
                best = results.get(name)
                if best and not is_measured(best):
                    continue
                progress(f"{subject}, {name}, round {i + 1} of {n_rounds}")
                result = run()
                if is_measured(result):
                    rounds = [*(best["rounds"] if best else []), result["seconds"]]
                    medians.setdefault(name, []).append(
                        result.get("seconds_median", result["seconds"])
                    )
                    if best and best["seconds"] < result["seconds"]:
                        result = best
                    result = {**result, "rounds": rounds}
                    result["seconds_median"] = statistics.median(medians[name])
                results[name] = result
        progress("")
        self.note_failures(subject, results)
        return results

    def note_failures(self, subject, results):
        for name, result in results.items():
            if "failed" in result:
                self.failures.append(f"{subject}, {name}: {result['failed']}")


def progress(text):
    if sys.stderr.isatty():
        print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)
