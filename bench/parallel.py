#!/usr/bin/python3
"""Compares layouts of two processes with one process of two threads.

Trains GPT-2 124M (12L-768H-V50304, sequences of 1024) for a few steps with `trefoil
pretrain`, interleaved: one process with all threads, then dp 2, mp 2 and pp 2 with half
of the threads each. Data and tensor parallelism run a global batch of 2; the pipeline
runs 8 micro-batches, layers dealt evenly and balanced against the head, and is also
compared with its ideal: the time of its busiest stage for all micro-batches plus one
micro-batch of the other stage, from the trace of the run. Equal stages would reach 8/9 of
one process. The stages of sharding are compared with plain data parallelism.
The best step of all rounds counts.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIG = """
PreTraining:
  eval_freq: 0
  dataset: {input_dir: data, split: '1,0,0', max_seq_len: 1024}
  save_load: {save_steps: -1}
  Model:
    vocab_size: 50304
    hidden_size: 768
    num_layers: LAYERS
    num_attention_heads: 12
    hidden_dropout_prob: 0.0
    attention_probs_dropout_prob: 0.0
    max_position_embeddings: 1024
  Optimizer: {lr: {max_lr: 1.0e-4, min_lr: 1.0e-5}}
  batch_size: {micro_batch_size: 1}
"""
SHARD = "Distributed.sharding.sharding_degree=2"
STAGE = "Distributed.sharding.sharding_stage="
LAYOUTS = {  # name -> (samples a step, settings)
    "one": (2, []),
    "dp2": (2, ["Distributed.dp_degree=2"]),
    "sharding2, stage 1": (2, [SHARD, STAGE + "1"]),
    "sharding2, stage 2": (2, [SHARD, STAGE + "2"]),
    "sharding2, stage 3": (2, [SHARD, STAGE + "3"]),
    "mp2": (2, ["Distributed.mp_degree=2"]),
    "one, 8 samples": (8, []),
    "pp2, 8 micro-batches": (8, ["Distributed.pp_degree=2"]),
    "pp2 balanced": (8, ["Distributed.pp_degree=2", "Distributed.pp_balance=True"]),
}


def run(trefoil, work, name, samples, settings, steps):
    """Seconds of the best step but the first, which touches all memory; and the trace."""
    output = work / name.replace(" ", "_").replace(",", "")
    trace = work / (output.name + ".trace.json")
    every = [
        f"batch_size.global_batch_size={samples}",
        f"max_steps={steps}",
        f"save_load.output_dir={output}",
        f"trace={trace}",
        *settings,
    ]
    command = [str(trefoil), "pretrain", "-c", "run.yaml"]
    for setting in every:
        command += ["-o", setting]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{name}: {done.stderr.strip().splitlines()[-1]}")
    lines = [json.loads(line) for line in open(output / "metrics.jsonl")]
    costs = [line["batch_cost"] for line in lines if "loss" in line]
    return min(costs[1:]), json.loads(trace.read_text())["traceEvents"]


def pipeline_ideal(events, n_micro):
    """All micro-batches of the busiest stage and one of each other, from the compute spans
    of the last step."""
    spans = {}
    for event in events:
        if event.get("ph") == "X" and event["name"] in ("forward", "backward"):
            spans.setdefault(event["pid"], []).append(event["dur"] * 1e-6)
    stages = [sum(durations[-2 * n_micro :]) for durations in spans.values()]
    busiest = max(stages)
    return busiest + (sum(stages) - busiest) / n_micro


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--trefoil", type=pathlib.Path, default=ROOT / "build" / "trefoil")
    parser.add_argument("--only", help="names of layouts, with semicolons between them")
    options = parser.parse_args()
    for name in [n for n in LAYOUTS if options.only and n not in options.only.split(";")]:
        del LAYOUTS[name]
    best, ideals = {}, {}
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        (work / "words.txt").write_text("a leaf, a stem, a root and the rain\n\n" * 20000)
        prepare = ["prepare", "--input", "words.txt", "--output", "data/words"]
        (work / "data").mkdir()
        subprocess.run(
            [str(options.trefoil), *prepare], cwd=work, check=True, capture_output=True
        )
        (work / "run.yaml").write_text(CONFIG.replace("LAYERS", str(options.layers)))
        for _ in range(options.rounds):
            for name, (samples, settings) in LAYOUTS.items():
                seconds, events = run(
                    options.trefoil, work, name, samples, settings, options.steps
                )
                best[name] = min(best.get(name, seconds), seconds)
                if name.startswith("pp"):
                    share = pipeline_ideal(events, samples) / seconds
                    ideals[name] = max(ideals.get(name, share), share)
    print(f"\n{'layout':24} {'step s':>8} {'tokens/s':>9} {'/ one process':>14}")
    for name, (samples, _) in LAYOUTS.items():
        alone = best.get("one" if samples == 2 else "one, 8 samples", float("nan"))
        rate = samples * 1024 / best[name]
        print(f"{name:24} {best[name]:8.3f} {rate:9.0f} {alone / best[name]:14.2f}")
    for name in (name for name in LAYOUTS if name.startswith("sharding")):
        print(f"{name} takes {best[name] / best['dp2']:.3f} of dp2's step")
    for name, share in ideals.items():
        print(f"{name} reaches {share:.3f} of its bubble-limited ideal")


if __name__ == "__main__":
    main()
