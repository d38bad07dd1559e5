"""Sections about the training step of one process: bench_step, bench_floor, bench_torch."""

import shapes
from harness import is_measured, seconds
from tables import Table, bounded, number, ratio

# Shape -> what the step is to reach. At most so many times the floor, at least so many
# times PyTorch's tokens a second, at most that share of its memory.
STEP_BOUNDS = {
    "6L-384H-6A-V8192-B8-S256": {"floor": 1.15, "speed": 1.1, "memory": 0.6},
    "12L-768H-12A-V50304-B4-S64": {"floor": 1.15, "speed": 1.15, "memory": 0.6},
    "12L-768H-12A-V50304-B1-S1024": {"floor": 1.15, "speed": 1.05, "memory": 0.6},
    "12L-768H-12A-V50304-B1-S2048": {"speed": 2.0, "memory": 0.6},
    "12L-768H-12A-V50304-B1-S4096": {"floor": 1.25},
}
PRECISION_BOUND = 1.10  # of the float32 step
PRECISIONS = {  # name -> arguments of bench_step
    "float32": [],
    "float16": ["--dtype", "float16"],
    "bfloat16": ["--dtype", "bfloat16"],
}
RECOMPUTES = {  # name -> (arguments, at most so many times the step without)
    "none": ([], None),
    "core_attn": (["--recompute", "core"], None),
    "only_attn": (["--recompute", "attention"], 1.12),
    "full": (["--recompute", "block"], 1.35),
}


# -- steps -----------------------------------------------------------------------------


def measure_steps(context):
    results = []
    for plan in context.effort.steps:
        shape = shapes.parse(plan.shape)
        contestants = {
            "trefoil": lambda s=shape, p=plan: context.step(s, p.steps),
            "floor": lambda s=shape: context.floor(s),
        }
        if not context.options.no_pytorch:
            contestants["pytorch"] = lambda s=shape, p=plan: context.pytorch(
                "bench_torch.py", s, p.steps
            )
        measured = context.rounds(plan.shape, contestants, plan.rounds)
        context.measured_shapes[plan.shape] = measured
        results.append({"shape": shape, "results": measured})
    return results


def add_step_row(table, shape, name, results):
    """Times as a ratio to the floor, speed and memory as a ratio to PyTorch's."""
    bounds = STEP_BOUNDS.get(shape["name"], {}) if name == "trefoil" else {}
    mine, torch = results[name], results.get("pytorch", {})
    table.add(
        name,
        number(mine["seconds"], 3),
        number(mine.get("seconds_median"), 3),
        number(shapes.tokens(shape) / mine["seconds"], 0),
        bounded(ratio(mine["seconds"], seconds(results, "floor")), bounds.get("floor")),
        bounded(
            ratio(seconds(results, "pytorch"), mine["seconds"]),
            at_least=bounds.get("speed"),
        ),
        number(mine.get("peak_rss_mb"), 0),
        bounded(
            ratio(mine.get("peak_rss_mb"), torch.get("peak_rss_mb")), bounds.get("memory")
        ),
    )


def step_tables(data):
    columns = ("", "step s", "median s", "tokens/s", "time / floor", "speed / PyTorch")
    for entry in data:
        table = Table(entry["shape"]["name"], (*columns, "MB", "memory / PyTorch"))
        for name, result in entry["results"].items():
            if is_measured(result):
                add_step_row(table, entry["shape"], name, entry["results"])
        table.add_failures(entry["results"])
        yield table


def summary_tables(data):
    """The steps in one short table."""
    table = Table(
        "", ("model", "tokens/step", "Trefoil", "floor", "PyTorch", "memory / PyTorch")
    )
    for entry in data:
        s, results = entry["shape"], entry["results"]
        memory = {name: result.get("peak_rss_mb") for name, result in results.items()}
        table.add(
            f"{s['layers']}L {s['hidden']}H V{s['vocab']}",
            f"{s['batch']} x {s['seq']}",
            *(
                number(seconds(results, name), 2, " s")
                for name in ("trefoil", "floor", "pytorch")
            ),
            number(ratio(memory.get("trefoil"), memory.get("pytorch"))),
        )
    yield table


# -- kernels ---------------------------------------------------------------------------


def measure_kernels(context):
    """Trefoil's step with a clock around each kernel, and the rates of the floor. A run
    measures one step, so that the kernels of the best run are those of its step."""
    results = []
    for name in context.effort.kernels:
        shape = shapes.parse(name)
        known = context.measured_shapes.get(name, {}).get("floor")
        contestants = {
            "trefoil": lambda s=shape: context.step(s, 1, ["--kernels"]),
            "floor": lambda s=shape, k=known: k or context.floor(s),
        }
        measured = context.rounds(name, contestants, context.effort.rounds)
        results.append({"shape": shape, "results": measured})
    return results


def rate_cells(kernel, floor):
    """The rate of what bounds it, arithmetic if it has any to speak of, else memory; and
    its ratio to the floor's rate of products, or of a copy."""
    if kernel["seconds"] <= 0:
        return "-", "-"
    work, unit, limit = "bytes", "GB/s", "copy_gb_per_s"
    if kernel["flops"] > 0:
        work, unit, limit = "flops", "GF/s", "gemm_gflops"
    rate = kernel[work] / kernel["seconds"] * 1e-9
    return f"{rate:.1f} {unit}", number(ratio(rate, floor.get(limit)))


def add_kernel_rows(table, result, floor):
    step = others = result["seconds"]
    for kernel in sorted(result["kernels"], key=lambda k: -k["seconds"]):
        others -= kernel["seconds"]
        table.add(
            kernel["name"],
            number(kernel["calls"], 0),
            number(kernel["seconds"] * 1e3, 2),
            f"{100 * kernel['seconds'] / step:.1f} %",
            *rate_cells(kernel, floor),
        )
    share = f"{100 * others / step:.1f} %"
    table.add("all else", "-", number(others * 1e3, 2), share, "-", "-")


def kernel_tables(data):
    for entry in data:
        results = entry["results"]
        columns = ("kernel", "calls", "ms", "share", "rate", "rate / floor's")
        table = Table(entry["shape"]["name"], columns)
        if is_measured(results["trefoil"]):
            add_kernel_rows(table, results["trefoil"], results["floor"])
        table.add_failures(results)
        yield table


# -- precision and recomputation -------------------------------------------------------


def measure_variants(context, shape_names, variants):
    """[{"shape", "results"}]; variants: name -> arguments of bench_step."""
    results = []
    for name in shape_names:
        shape, steps = shapes.parse(name), context.effort.measured_steps
        contestants = {
            variant: lambda s=shape, n=steps, a=arguments: context.step(s, n, a)
            for variant, arguments in variants.items()
        }
        measured = context.rounds(name, contestants, context.effort.rounds)
        results.append({"shape": shape, "results": measured})
    return results


def variant_tables(data, base, bounds):
    """A row a variant: its step, and time and memory against the one called `base`."""
    for entry in data:
        results = entry["results"]
        table = Table(
            entry["shape"]["name"], ("", "step s", f"time / {base}", "MB", f"MB / {base}")
        )
        memory = results[base].get("peak_rss_mb")
        for name, result in results.items():
            if not is_measured(result):
                continue
            table.add(
                name,
                number(result["seconds"], 3),
                bounded(ratio(result["seconds"], seconds(results, base)), bounds.get(name)),
                number(result["peak_rss_mb"], 0),
                number(ratio(result["peak_rss_mb"], memory)),
            )
        table.add_failures(results)
        yield table


def measure_precision(context):
    return measure_variants(context, context.effort.precision, PRECISIONS)


def precision_tables(data):
    bounds = {"float16": PRECISION_BOUND, "bfloat16": PRECISION_BOUND}
    return variant_tables(data, "float32", bounds)


def measure_recompute(context):
    variants = {name: arguments for name, (arguments, _) in RECOMPUTES.items()}
    return measure_variants(context, context.effort.recompute, variants)


def recompute_tables(data):
    bounds = {name: bound for name, (_, bound) in RECOMPUTES.items()}
    return variant_tables(data, "none", bounds)
