"""Sections about the rest of the program: "adamw", "generate", "startup"."""

import shapes
from harness import BENCH, is_measured
from tables import Table, bounded, number
from training import TrainingGround

ADAMW_BOUND = 0.8  # at least, of the bandwidth of a copy
GENERATE_BOUND = 0.7  # at least, of what memory and arithmetic allow
STARTUP_BOUND = 0.5  # seconds to the first step, at most
PROMPTS = (1, 8)  # at a time
STARTS = {  # name -> settings on top of the demo's
    "one process": ["Distributed.dp_degree=1", "batch_size.local_batch_size=16"],
    "dp2": ["Distributed.dp_degree=2"],
}


def measure_program(context, name, arguments):
    """A program that measures itself and its bound in one run."""
    threads = ["--threads", context.threads]
    result = context.timed([context.program(name), *arguments, *threads])
    context.note_failures(name, {"trefoil": result})
    return result


# -- adamw -----------------------------------------------------------------------------


def measure_adamw(context):
    return measure_program(
        context, "bench_adamw", ["--elements", context.effort.adamw_elements]
    )


def adamw_tables(data, kind=None):
    table = Table("", ("elements", "ms", "GB/s", "copy GB/s", "share of a copy's speed"))
    if is_measured(data):
        table.add(
            f"{data['elements'] / 1e6:.1f} M",
            number(data["seconds"] * 1e3, 1),
            number(data["gb_per_s"], 1),
            number(data["copy_gb_per_s"], 1),
            bounded(data["share_of_copy"], at_least=ADAMW_BOUND),
        )
    table.add_failures({"bench_adamw": data})
    yield table


# -- generate --------------------------------------------------------------------------


def measure_generate(context):
    shape = shapes.parse(context.effort.generate_shape)
    sizes = [
        word
        for name in ("layers", "hidden", "heads", "vocab")
        for word in (f"--{name}", shape[name])
    ]
    contestants = {
        f"{n}, {dtype}": lambda n=n, d=dtype: context.timed(
            [context.program("bench_generate"), *sizes, "--batch", n, "--dtype", d]
            + ["--threads", context.threads]
        )
        for dtype in ("float32", "bfloat16")
        for n in PROMPTS
    }
    results = context.rounds("generate", contestants, context.effort.rounds)
    return {"shape": shape, "results": results}


def generate_tables(data, kind=None):
    shape, results = data["shape"], data["results"]
    table = Table(
        f"{shape['layers']}L {shape['hidden']}H V{shape['vocab']}",
        ("prompts at a time", "tokens/s", "bound tokens/s", "share of the bound")
        + ("a step, ms", "reading", "computing"),
    )
    for name, result in results.items():
        if is_measured(result):
            table.add(
                name,
                number(result["tokens_per_second"], 1),
                number(result["bound_tokens_per_second"], 1),
                bounded(result["share_of_bound"], at_least=GENERATE_BOUND),
                number(result["seconds"] * 1e3, 2),
                number(result["reading_seconds"] * 1e3, 2),
                number(result["computing_seconds"] * 1e3, 2),
            )
    table.add_failures(results)
    yield table


# -- startup ---------------------------------------------------------------------------


def start_once(ground, settings):
    """Seconds from the start of the program to the line of the first step."""
    config = BENCH.parent / "configs" / "demo.yaml"
    every = [
        "max_steps=1",
        "logging_freq=1",
        "eval_freq=0",
        f"dataset.input_dir={ground.dataset(257)}",
        f"save_load.output_dir={ground.output()}",
        "save_load.save_steps=-1",
        *settings,
    ]
    log = ground.log_of(ground.command(every, config))
    if "failed" in log:
        return log
    moments = [moment for moment, line in log if "global step 1," in line]
    return {"seconds": moments[0]} if moments else {"failed": "no line of step 1"}


def measure_startup(context):
    with TrainingGround(context) as ground:
        contestants = {
            name: lambda s=settings: start_once(ground, s)
            for name, settings in STARTS.items()
        }
        return context.rounds("startup", contestants, context.effort.starts)


def startup_tables(data, kind=None):
    table = Table("", ("demo model", "seconds to the first step's line", "median"))
    for name, result in data.items():
        if is_measured(result):
            table.add(
                name,
                bounded(result["seconds"], at_most=STARTUP_BOUND),
                number(result["seconds_median"]),
            )
    table.add_failures(data)
    yield table
