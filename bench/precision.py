#!/usr/bin/python3
"""Compares the step in 16 bits, and with recomputation, with the float32 step.

Every round runs all variants of bench_step one after the other for each shape; the best
step of all rounds counts.
"""

import argparse
import pathlib

import run

VARIANTS = {  # name -> arguments of bench_step
    "float32": [],
    "float16": ["--dtype", "float16"],
    "bfloat16": ["--dtype", "bfloat16"],
    "recompute full": ["--recompute", "block"],
    "only_attn": ["--recompute", "attention"],
    "core_attn": ["--recompute", "core"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--shapes", nargs="+", default=run.DEFAULT_SHAPES)
    program = run.BENCH.parent / "build" / "bench" / "bench_step"
    parser.add_argument("--program", type=pathlib.Path, default=program)
    options = parser.parse_args()
    print(f"{'shape':30}" + "".join(f"{name:>16}" for name in VARIANTS))
    for shape in map(run.parse_shape, options.shapes):
        best = {}
        for _ in range(options.rounds):
            for name, arguments in VARIANTS.items():
                extra = ["--steps", str(options.steps), *arguments]
                result = run.run_program([str(options.program)], shape, extra)
                if "failed" in result:
                    raise SystemExit(f"{shape['name']}, {name}: {result['failed']}")
                seconds = result["seconds_best"]
                best[name] = min(best.get(name, seconds), seconds)
        cells = [f"{best[n]:.3f} s ({best[n] / best['float32']:.2f})" for n in VARIANTS]
        print(f"{shape['name']:30}" + "".join(f"{cell:>16}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
