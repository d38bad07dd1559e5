"""Running the speed programs: one JSON object each, rounds in turns, the best counts."""

import json
import os
import signal
import statistics
import subprocess
import sys

import shapes
from machine import BENCH, PYTHON

RUN_LIMIT = 1800  # seconds of any one run; the longest takes a tenth of it
SKIP_STATUS = 77  # of a program that cannot run here, through no fault of its own

# What holds PyTorch, and MKL and oneDNN in it, to AVX2; and oneDNN to what is below AMX.
AVX2_ENVIRONMENT = {
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
NO_AMX = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}


def all_threads():
    return len(os.sched_getaffinity(0))


def last_line(text, otherwise):
    lines = text.strip().splitlines()
    return lines[-1] if lines else otherwise


def run_json(command, environment=None):
    """The object that the program prints, {"skipped": why} or {"failed": why}; "signal"
    has the number of the signal that ended it."""
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
            why = last_line(done.stderr, f"exit code {done.returncode}")
            return {"failed": why, "signal": max(0, -done.returncode)}
        return json.loads(done.stdout)
    except OSError as e:
        why = f"cannot run '{command[0]}': {e.strerror}; `make bench` builds it"
        return {"failed": why}
    except subprocess.TimeoutExpired:
        return {"failed": f"'{command[0]}' was ended after {RUN_LIMIT} seconds"}
    except json.JSONDecodeError as e:
        return {"failed": f"'{command[0]}' did not print a JSON object: {e}"}


def died_of_sigill(status):
    """Of subprocess. In some virtual machines a processor has AMX but hides its description
    (leaf 0x1d of CPUID), and oneDNN then dies of SIGILL."""
    return status == -signal.SIGILL


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
        self.floors = {}  # shape -> result of its float32 floor
        self.measured_shapes = {}  # shape -> result of Trefoil's float32 step
        self.servers = {}  # name of a library -> the process that multiplies by it
        self.is_amx_broken = False  # PyTorch died of it

    @property
    def threads(self):
        return self.options.threads

    def program(self, name):
        return self.options.build / "bench" / name

    def server(self, library, make):
        if library.name not in self.servers:
            self.servers[library.name] = make(library)
        return self.servers[library.name]

    def close(self):
        for server in self.servers.values():
            server.close()

    def kernel_step(self, shape, extra=()):
        """One step of bench_step, with a clock around each kernel."""
        return self.timed(
            [self.program("bench_step"), *shapes.arguments(shape), "--steps", 1]
            + ["--threads", self.threads, "--kernels", *extra]
        )

    def pytorch(self, script, shape, n_steps, extra=(), environment=None):
        """With AMX where oneDNN survives it; else without, and "note" says so."""
        command = [PYTHON, BENCH / script, *shapes.arguments(shape), "--steps", n_steps]
        command += ["--threads", self.threads, *extra]
        environment = {**(NO_AMX if self.is_amx_broken else {}), **(environment or {})}
        result = self.timed(command, environment)
        if result.get("signal") == signal.SIGILL and not self.is_amx_broken:
            self.is_amx_broken = True
            result = self.timed(command, {**environment, **NO_AMX})
        if self.is_amx_broken and is_measured(result) and "--dtype" in command:
            result["note"] = "without AMX: with it oneDNN dies of SIGILL on this machine"
        return result

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
