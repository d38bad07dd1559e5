#!/usr/bin/python3
"""Compares Trefoil's training step with the floor and with PyTorch on the same shapes.

Every round runs, one after the other, Trefoil's step (bench_step), the floor
(bench_floor: bare matrix products, causal attention's products at that rate, one AdamW
pass at copy bandwidth) and PyTorch's step (bench_torch.py) for each shape, so that a slow
moment of the machine meets all of them. The best round of each counts. Writes the table
to the terminal and everything measured to bench/results/latest.json.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parent
DEFAULT_SHAPES = [
    "6L-384H-6A-V8192-B8-S256",
    "12L-768H-12A-V50304-B4-S64",
    "12L-768H-12A-V50304-B1-S1024",
]
NAMES = ("trefoil", "floor", "pytorch")
LETTERS = {"L": "layers", "H": "hidden", "A": "heads", "V": "vocab", "B": "batch", "S": "seq"}


def parse_shape(text):
    """"6L-384H-6A-V8192-B8-S256" -> {"layers": 6, ...}; a part is a letter and a number."""
    shape = {}
    for part in text.split("-"):
        number, letter = part.strip("".join(LETTERS)), part.strip("0123456789")
        if letter not in LETTERS or not number.isdigit() or int(number) < 1:
            raise argparse.ArgumentTypeError(f"'{part}' in '{text}' is no part of a shape")
        shape[LETTERS[letter]] = int(number)
    missing = [letter for letter, name in LETTERS.items() if name not in shape]
    if missing:
        raise argparse.ArgumentTypeError(f"'{text}' lacks {' '.join(missing)}")
    return {"name": text, **shape}


def run_program(command, shape, extra):
    """The JSON object that the program prints, or {"failed": why}."""
    arguments = [f for name in LETTERS.values() for f in (f"--{name}", str(shape[name]))]
    try:
        done = subprocess.run(
            [*command, *arguments, *extra], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            return {"failed": lines[-1]}
        return json.loads(done.stdout)
    except (OSError, json.JSONDecodeError) as e:
        return {"failed": str(e)}


def contestants(options):
    """name -> (command, extra arguments, the member that is the time of a step)."""
    build = options.build / "bench"
    threads = ["--threads", str(options.threads)]
    steps = [*threads, "--steps", str(options.steps)]
    every = {
        "trefoil": ([str(build / "bench_step")], steps, "seconds_best"),
        "floor": ([str(build / "bench_floor")], threads, "seconds"),
        "pytorch": (["/usr/bin/python3", str(BENCH / "bench_torch.py")], steps, "seconds_best"),
    }
    return {name: every[name] for name in options.only or NAMES}


def measure(shape, options):
    """name -> the best result of all rounds, with every round's seconds."""
    results = {}
    for round_number in range(options.rounds):
        for name, (command, extra, key) in contestants(options).items():
            best = results.get(name)
            if best and "failed" in best:
                continue
            if sys.stderr.isatty():
                print(
                    f"\r{shape['name']} round {round_number + 1} {name}\033[K",
                    end="", file=sys.stderr, flush=True,
                )
            result = run_program(command, shape, extra)
            if "failed" not in result:
                result["step_seconds"] = result[key]
                result["rounds"] = [*(best["rounds"] if best else []), result[key]]
                if best and best["step_seconds"] < result["step_seconds"]:
                    result = {**best, "rounds": result["rounds"]}
            results[name] = result
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return results


def ratio(results, name, other):
    a = results.get(name, {}).get("step_seconds")
    b = results.get(other, {}).get("step_seconds")
    return f"{a / b:8.2f}" if a and b else f"{'-':>8}"


def print_table(shape, results):
    tokens = shape["batch"] * shape["seq"]
    print(f"\n{shape['name']}")
    print(f"  {'':8} {'step s':>9} {'tokens/s':>9} {'/ floor':>8} {'/ torch':>8} {'MB':>7}")
    for name, result in results.items():
        if "failed" in result:
            print(f"  {name:8} {result['failed']}")
            continue
        seconds = result["step_seconds"]
        memory = f"{result['peak_rss_mb']:7.0f}" if "peak_rss_mb" in result else f"{'-':>7}"
        print(
            f"  {name:8} {seconds:9.4f} {tokens / seconds:9.0f}"
            f" {ratio(results, name, 'floor')} {ratio(results, name, 'pytorch')}"
            f" {memory}"
        )


def machine():
    model = platform.processor()
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {"processor": model, "cores": os.cpu_count(), "system": platform.platform()}


def parse_options():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog=f"The shapes without any given: {' '.join(DEFAULT_SHAPES)}",
    )
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", type=parse_shape)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="measured steps a round")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", action="append", choices=NAMES, help="may be repeated")
    parser.add_argument("--build", type=pathlib.Path, default=BENCH.parent / "build")
    parser.add_argument("--output", type=pathlib.Path, default=BENCH / "results" / "latest.json")
    options = parser.parse_args()
    if not options.shapes:
        options.shapes = [parse_shape(text) for text in DEFAULT_SHAPES]
    return options


def main():
    options = parse_options()
    report = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": machine(),
        "threads": options.threads,
        "shapes": [],
    }
    for shape in options.shapes:
        results = measure(shape, options)
        print_table(shape, results)
        report["shapes"].append({**shape, "results": results})
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\nwritten to {os.path.relpath(options.output)}")
    failed = [s for s in report["shapes"] if "failed" in s["results"].get("trefoil", {})]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
