"""Sections about the training step of one process: what `trefoil pretrain` reports of its
own steps, against the floor (products.py) and PyTorch (bench_torch.py)."""

import machine
import shapes
from harness import AVX2_ENVIRONMENT, is_measured, seconds
from products import Floor
from tables import Table, bounded, number, ratio
from training import TrainingGround

# One comparison: Trefoil, its floor and PyTorch's ways of doing the same.
GROUPS = {
    "float32": {
        "trefoil": "Trefoil float32",
        "floor": "floor float32",
        "pytorch": ("PyTorch float32",),
    },
    "bfloat16": {
        "trefoil": "Trefoil bfloat16",
        "floor": "floor bfloat16",
        "pytorch": ("PyTorch bfloat16, autocast", "PyTorch bfloat16, pure"),
    },
    "avx2": {
        "trefoil": "Trefoil float32, AVX2",
        "floor": "floor float32, AVX2",
        "pytorch": ("PyTorch float32, AVX2",),
    },
}
# What a step is to reach on a kind of processor, by group: at most so many times the floor,
# at least so many times PyTorch's speed. One long sequence leaves less to gain.
BOUNDS = {
    "amx": {
        "float32": {"floor": 1.1, "speed": 1.3, "speed_long": 1.15},
        "bfloat16": {"floor": 1.4, "floor_small": 1.8, "speed": 1.8},
        "avx2": {"floor": 1.1, "speed": 1.15},
    },
    "avx512": {
        "float32": {"floor": 1.1, "speed": 1.3, "speed_long": 1.15},
        "avx2": {"floor": 1.1, "speed": 1.15},
    },
    "avx2": {"float32": {"floor": 1.1, "speed": 1.15}},
}
LONG = 1024  # tokens of a sequence
SMALL = 512  # hidden size, below which a model is small
TOLD_SHARE = 0.003  # of a step, from which on a kernel has a row of its own
MEMORY_BOUND = 0.6  # of PyTorch's, at most, in float32
PRECISION_BOUND = 1 / 0.85  # of the float32 step, at most, where no unit is for 16 bits
PRECISIONS = {  # name -> settings
    "float32": [],
    "float16": ["mix_precision.dtype=float16"],
    "bfloat16": ["mix_precision.dtype=bfloat16"],
}
RECOMPUTES = {  # name -> (settings, at most so many times the step without)
    "none": ([], None),
    "core_attn": (["use_recompute=True", "recompute_granularity=core_attn"], None),
    "only_attn": (["use_recompute=True", "recompute_granularity=only_attn"], 1.12),
    "full": (["use_recompute=True", "recompute_granularity=full"], 1.35),
}


# -- steps -----------------------------------------------------------------------------


def group_names(context, plan):
    """AVX2 apart where the processor has more."""
    has_more = machine.kind() in ("avx512", "amx")
    return [name for name in plan.groups if name != "avx2" or has_more]


def group_contestants(context, ground, plan, group):
    """name -> function, of one comparison."""
    shape, names = shapes.parse(plan.shape), GROUPS[group]
    dtype = "bfloat16" if group == "bfloat16" else "float32"
    settings = [f"mix_precision.dtype={dtype}"]
    environment = None
    if group == "avx2":
        settings, environment = ["cpu_kernels=avx2"], AVX2_ENVIRONMENT
    floor = Floor(context, shape, dtype, is_avx2=group == "avx2")
    contestants = {
        names["trefoil"]: lambda: ground.train(shape, shape["batch"], settings, plan.steps),
        names["floor"]: floor.measure,
    }
    if not context.options.no_pytorch:
        for name, kind in zip(names["pytorch"], ("autocast", "bfloat16")):
            extra = ["--dtype", kind] if dtype == "bfloat16" else []
            contestants[name] = lambda e=extra: context.pytorch(
                "bench_torch.py", shape, plan.steps, e, environment
            )
    return contestants


def measure_steps(context):
    results = []
    with TrainingGround(context) as ground:
        for plan in context.effort.steps:
            contestants = {}
            for group in group_names(context, plan):
                contestants.update(group_contestants(context, ground, plan, group))
            measured = context.rounds(plan.shape, contestants, plan.rounds)
            context.floors[plan.shape] = measured.get("floor float32")
            context.measured_shapes[plan.shape] = measured.get("Trefoil float32")
            results.append({"shape": shapes.parse(plan.shape), "results": measured})
    return results


def step_bounds(kind, group, shape):
    bounds = BOUNDS.get(kind, {}).get(group, {})
    is_long, is_small = shape["seq"] >= LONG, shape["hidden"] < SMALL
    floor = bounds.get("floor_small") if is_small else None
    speed = bounds.get("speed_long") if is_long else None
    return {"floor": floor or bounds.get("floor"), "speed": speed or bounds.get("speed")}


def best_peer(results, group):
    """PyTorch's fastest way of doing it; {} where none was measured."""
    peers = [results.get(name, {}) for name in GROUPS[group]["pytorch"]]
    peers = [peer for peer in peers if "seconds" in peer]
    return min(peers, key=lambda peer: peer["seconds"]) if peers else {}


def add_step_row(table, kind, group, shape, name, results):
    """Times as a ratio to the floor, speed and memory as a ratio to PyTorch's best."""
    is_mine = name == GROUPS[group]["trefoil"]
    bounds = step_bounds(kind, group, shape) if is_mine else {}
    mine, peer = results[name], best_peer(results, group)
    floor = seconds(results, GROUPS[group]["floor"])
    memory = ratio(mine.get("peak_rss_mb"), peer.get("peak_rss_mb"))
    table.add(
        name,
        number(mine["seconds"], 3),
        number(mine.get("seconds_median"), 3),
        number(shapes.tokens(shape) / mine["seconds"], 0),
        bounded(ratio(mine["seconds"], floor), bounds.get("floor")),
        bounded(ratio(peer.get("seconds"), mine["seconds"]), at_least=bounds.get("speed")),
        number(mine.get("peak_rss_mb"), 0),
        bounded(memory, MEMORY_BOUND if is_mine and group == "float32" else None),
    )
    if "note" in mine:
        table.notes.append(f"{name}: {mine['note']}.")


def step_tables(data, kind=None):
    columns = ("", "step s", "median s", "tokens/s", "time / floor", "speed / PyTorch")
    for entry in data:
        results = entry["results"]
        table = Table(entry["shape"]["name"], (*columns, "MB", "memory / PyTorch"))
        for group, names in GROUPS.items():
            for name in (names["trefoil"], names["floor"], *names["pytorch"]):
                if is_measured(results.get(name, {"skipped": ""})):
                    add_step_row(table, kind, group, entry["shape"], name, results)
        table.add_failures(results)
        yield table


def summary_tables(data, kind=None):
    """The steps in one short table."""
    columns = ("model", "tokens/step", "type", "Trefoil", "floor", "PyTorch")
    table = Table("", (*columns, "speed / PyTorch", "memory / PyTorch"))
    for entry in data:
        s, results = entry["shape"], entry["results"]
        for group in ("float32", "bfloat16"):
            names = GROUPS[group]
            mine, peer = results.get(names["trefoil"], {}), best_peer(results, group)
            if "seconds" not in mine:
                continue
            table.add(
                f"{s['layers']}L {s['hidden']}H V{s['vocab']}",
                f"{s['batch']} x {s['seq']}",
                group,
                number(mine["seconds"], 2, " s"),
                number(seconds(results, names["floor"]), 2, " s"),
                number(peer.get("seconds"), 2, " s"),
                number(ratio(peer.get("seconds"), mine["seconds"])),
                number(ratio(mine.get("peak_rss_mb"), peer.get("peak_rss_mb"))),
            )
    yield table


# -- kernels ---------------------------------------------------------------------------


def measure_kernels(context):
    """Trefoil's step with a clock around each kernel, and the rates of the floor. A run
    measures one step, so that the kernels of the best run are those of its step."""
    results = []
    for name in context.effort.kernels:
        shape = shapes.parse(name)
        contestants = {
            "trefoil": lambda s=shape: context.kernel_step(s),
            "trefoil, bfloat16": lambda s=shape: context.kernel_step(
                s, ["--dtype", "bfloat16"]
            ),
            "floor": lambda n=name, f=Floor(context, shape): context.floors.get(n)
            or f.measure(),
            "floor, bfloat16": Floor(context, shape, "bfloat16").measure,
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
        if kernel["seconds"] < TOLD_SHARE * step:
            break
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


def kernel_tables(data, kind=None):
    columns = ("kernel", "calls", "ms", "share", "rate", "rate / floor's")
    for entry in data:
        results = entry["results"]
        for suffix in ("", ", bfloat16"):
            name = f"trefoil{suffix}"
            table = Table(entry["shape"]["name"] + suffix, columns)
            if is_measured(results[name]):
                add_kernel_rows(table, results[name], results[f"floor{suffix}"])
            table.add_failures({name: results[name]})
            yield table


# -- precision and recomputation -------------------------------------------------------


def measure_variants(context, shape_names, variants):
    """[{"shape", "results"}]; variants: name -> settings of a run."""
    results = []
    with TrainingGround(context) as ground:
        for name in shape_names:
            shape = shapes.parse(name)
            contestants = {
                variant: lambda s=shape, o=settings: ground.train(s, s["batch"], o)
                for variant, settings in variants.items()
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


def precision_tables(data, kind=None):
    bounds = {"float16": round(PRECISION_BOUND, 2), "bfloat16": round(PRECISION_BOUND, 2)}
    if kind == "amx":
        bounds["bfloat16"] = 1.0
    return variant_tables(data, "float32", bounds)


def measure_recompute(context):
    variants = {name: settings for name, (settings, _) in RECOMPUTES.items()}
    return measure_variants(context, context.effort.recompute, variants)


def recompute_tables(data, kind=None):
    bounds = {name: bound for name, (_, bound) in RECOMPUTES.items()}
    return variant_tables(data, "none", bounds)
