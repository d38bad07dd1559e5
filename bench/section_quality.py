"""Section "quality": whether a model of 16 bits learns as well as one of float32.

Small recipes are trained to their end in both types, from the same seed on the same
samples, on the text of the demo: the demo itself, and nanoGPT's small recipe for CPUs on
characters. And the gradient of one step is compared with double precision's, beside
PyTorch's of the same parameters (bench_torch_gradients.py)."""

import json
import pathlib
import statistics
import subprocess

import shapes
from harness import is_measured, last_line, progress, run_json
from machine import BENCH, PYTHON
from tables import Table, bounded, number, ratio
from training import TrainingGround, shape_settings, write_random_tokens

BOUND = 1.01  # of float32's loss, at most
LAST = 0.05  # of a run's steps, whose losses are averaged
DTYPES = ("float32", "bfloat16")
# At most so many times the error of PyTorch's gradient.
GRADIENT_BOUNDS = {"PyTorch bfloat16": 1.0, "PyTorch autocast": 2.0}
RECIPES = {  # name -> (configuration, steps, has a tokenizer)
    "the demo": ("demo.yaml", 1100, True),
    "nanoGPT's, characters": ("characters.yaml", 2000, False),
}


class Failure(Exception):
    """What a recipe needs cannot be made; its text says why."""


def run(command, directory, output=None):
    done = subprocess.run(
        [str(word) for word in command],
        cwd=directory,
        stdout=output or subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Failure(last_line(done.stderr, f"'{command[0]}' failed"))


def make_data(ground, has_tokenizer):
    """The directory of the text's tokens, learnt ones or its bytes."""
    text, tokens = ground.path / "kjv.txt", ground.path / f"kjv-{has_tokenizer}"
    if not text.exists():
        with open(text, "w") as f:
            run([BENCH.parent / "tools" / "demo_text.sh"], ground.path, f)
    if tokens.exists():
        return tokens
    tokens.mkdir()
    words = [ground.trefoil, "prepare", "--input", text, "--output", tokens / "kjv"]
    if has_tokenizer:
        tokenizer = ground.path / "tokenizer"
        learn = [ground.trefoil, "tokenizer", "train", "--input", text]
        run([*learn, "--vocab_size", "2048", "--output", tokenizer], ground.path)
        words += ["--tokenizer", tokenizer]
    run(words, ground.path)
    return tokens


def losses_of(output):
    """(the last one of evaluation, mean of the last ones of training)"""
    with open(pathlib.Path(output, "metrics.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    steps = [line for line in lines if "loss" in line]
    since = (1 - LAST) * steps[-1]["step"]
    evaluated = [line["eval_loss"] for line in lines if "eval_loss" in line]
    train = statistics.fmean(line["loss"] for line in steps if line["step"] >= since)
    return evaluated[-1] if evaluated else None, train


def train_recipe(context, ground, recipe, dtype):
    config, steps, has_tokenizer = RECIPES[recipe]
    steps = max(2, int(steps * context.effort.quality_steps))
    output = ground.output()
    settings = [
        f"max_steps={steps}",
        f"Optimizer.lr.decay_steps={steps}",
        f"eval_freq={steps}",
        "eval_iters=50",
        f"logging_freq={max(1, steps // 100)}",
        f"dataset.input_dir={make_data(ground, has_tokenizer)}",
        f"save_load.output_dir={output}",
        "save_load.save_steps=-1",
        f"mix_precision.dtype={dtype}",
    ]
    log = ground.log_of(ground.command(settings, BENCH.parent / "configs" / config))
    if "failed" in log:
        return log
    evaluated, train = losses_of(output)
    return {"steps": steps, "eval_loss": evaluated, "train_loss": train}


def gradient_errors(context, ground, shape):
    """name -> {"all", "worst"} of one step of bfloat16; all of its tokens are the dataset."""
    data, output = ground.path / "gradient", ground.output()
    data.mkdir()
    write_random_tokens(data / "random", shape["vocab"], shapes.tokens(shape) + 1)
    settings = [
        *shape_settings(shape, shape["batch"]),
        f"dataset.input_dir={data}",
        f"save_load.output_dir={output}",
        "save_load.save_steps=0",
        "max_steps=1",
        "mix_precision.dtype=bfloat16",
        "Optimizer.adam_beta1=0.0",
        "Optimizer.grad_clip=1e6",
        "Optimizer.lr.max_lr=1e-12",
        "Optimizer.lr.min_lr=1e-12",
    ]
    log = ground.log_of(ground.command(settings))
    if "failed" in log:
        return log
    checkpoint = output / (output / "latest").read_text().strip()
    command = [PYTHON, BENCH / "bench_torch_gradients.py", checkpoint, data / "random.bin"]
    return run_json([*command, "--batch", shape["batch"], "--seq", shape["seq"]])


def measure_gradients(context, ground):
    shape = shapes.parse(context.effort.gradient_shape)
    if context.options.no_pytorch:
        return {"shape": shape, "errors": {"skipped": "PyTorch is left out"}}
    progress("quality, gradients")
    errors = gradient_errors(context, ground, shape)
    context.note_failures("quality", {"gradients": errors})
    return {"shape": shape, "errors": errors}


def measure_quality(context):
    results = {}
    with TrainingGround(context) as ground:
        for recipe in RECIPES:
            results[recipe] = {}
            for dtype in DTYPES:
                progress(f"quality, {recipe}, {dtype}")
                try:
                    result = train_recipe(context, ground, recipe, dtype)
                except (Failure, OSError) as e:
                    result = {"skipped": str(e)}
                results[recipe][dtype] = result
            context.note_failures(f"quality, {recipe}", results[recipe])
        gradients = measure_gradients(context, ground)
    return {"recipes": results, "gradients": gradients}


def gradient_table(data):
    errors = data["errors"]
    table = Table(
        f"error of the gradient of one step, {data['shape']['name']}, bfloat16",
        ("", "of all parameters", "Trefoil's / its", "of the worst tensor"),
    )
    if not is_measured(errors):
        table.add_failures({"gradients": errors})
        return table
    for name, error in errors.items():
        share = ratio(errors["Trefoil"]["all"], error["all"])
        is_peer = name in GRADIENT_BOUNDS
        table.add(
            name,
            f"{error['all']:.2e}",
            bounded(share, GRADIENT_BOUNDS[name]) if is_peer else "-",
            f"{error['worst']:.2e}",
        )
    return table


def quality_tables(data, kind=None):
    table = Table(
        "",
        ("recipe", "type", "steps", "loss of evaluation", "/ float32's")
        + ("loss of the last steps", "/ float32's"),
    )
    for recipe, results in data["recipes"].items():
        base = results["float32"]
        for dtype, result in results.items():
            if not is_measured(result):
                continue
            bound = BOUND if dtype != "float32" else None
            cells = []
            for key in ("eval_loss", "train_loss"):
                share = ratio(result[key], base.get(key))
                cells += [number(result[key], 4), bounded(share, bound, digits=4)]
            table.add(recipe, dtype, str(result["steps"]), *cells)
        table.add_failures({f"{recipe}, {dtype}": r for dtype, r in results.items()})
    yield table
    yield gradient_table(data["gradients"])
