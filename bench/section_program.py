"""Sections about the rest of the program: "adamw", "generate", "startup"."""

import shapes
from harness import BENCH, is_measured
from tables import Table, bounded, number, ratio
from training import TrainingGround

ADAMW_BOUND = 0.8  # at least, of the bandwidth of a copy
GENERATE_BOUND = 0.7  # at least, of what reading all weights for a token allows
STARTUP_BOUND = 0.5  # seconds to the first step, at most
PROMPTS = (1, 8)  # at a time; the bound is for one
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


def adamw_tables(data):
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
    results = {
        str(n): measure_program(context, "bench_generate", [*sizes, "--batch", n])
        for n in PROMPTS
    }
    return {"shape": shape, "results": results}


def generate_tables(data):
    shape, results = data["shape"], data["results"]
    table = Table(
        f"{shape['layers']}L {shape['hidden']}H V{shape['vocab']}",
        ("prompts at a time", "tokens/s", "bound tokens/s", "share of the bound"),
    )
    for name, result in results.items():
        if is_measured(result):
            rate, bound = result["tokens_per_second"], result["bound_tokens_per_second"]
            goal = GENERATE_BOUND if name == "1" else None
            table.add(
                name,
                number(rate, 1),
                number(bound, 1),
                bounded(ratio(rate, bound), at_least=goal),
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
        f"dataset.input_dir={ground.path / 'data'}",
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


def startup_tables(data):
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
