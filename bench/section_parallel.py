"""Sections about several processes: "parallel" and "switches".

Layouts of two processes with half of the threads each are compared with one process of
all threads on the same samples, and data parallelism with PyTorch's over gloo. Every
process takes its samples in one micro-batch. A pipeline is also compared with its ideal:
the time of its busiest stage for all micro-batches plus one micro-batch of the other
stage, from the trace of the run."""

import shapes
from harness import is_measured, seconds
from tables import Table, bounded, number, ratio
from training import TrainingGround

N_MICRO = 8  # micro-batches of a pipeline
IDEAL_BOUND = 0.96  # pipelines: at least, of their ideal
DDP_BOUND = 1.15  # dp2: at least, of PyTorch's tokens a second
# At least, of one process; in bfloat16 where a unit is for it, which leaves messages more
# of the step.
SPEED_BOUNDS = {"dp2": 0.96, "sharding2, stage 3": 0.96, "mp2": 0.94}
SPEED_BOUNDS_AMX = {"dp2": 0.92, "sharding2, stage 3": 0.92, "mp2": 0.85}

SHARD = "Distributed.sharding.sharding_degree=2"
STAGE = "Distributed.sharding.sharding_stage="
DP = "Distributed.dp_degree=2"
PP = "Distributed.pp_degree=2"
SIDE_BY_SIDE = {  # name -> (settings, processes that share the samples of a step)
    "one process": ([], 1),
    "dp2": ([DP], 2),
    "sharding2, stage 1": ([SHARD, STAGE + "1"], 2),
    "sharding2, stage 2": ([SHARD, STAGE + "2"], 2),
    "sharding2, stage 3": ([SHARD, STAGE + "3"], 2),
    "mp2": (["Distributed.mp_degree=2"], 1),
}
PIPELINES = {  # N_MICRO samples a step
    "one process": [],
    "pp2": [PP],
    "pp2, pp_balance": [PP, "Distributed.pp_balance=True"],
}
SWITCHES = {  # name -> (settings, what it is compared with)
    "one process": ([], None),
    "one process, fused_linear": (["fused_linear=True"], "one process"),
    "dp2": ([DP], None),
    "dp2, tensor_fusion": ([DP, "tensor_fusion=True"], "dp2"),
}


# -- parallel --------------------------------------------------------------------------


def pipeline_ideal(spans, n_micro):
    """Seconds: all micro-batches of the busiest stage and one of each other, from the
    compute spans of the last step."""
    stages = {}
    for span in spans:
        if span["name"] in ("forward", "backward"):
            stages.setdefault(span["pid"], []).append(span["dur"] * 1e-6)
    times = [sum(durations[-2 * n_micro :]) for durations in stages.values()]
    busiest = max(times)
    return busiest + (sum(times) - busiest) / n_micro


def run_pipeline(ground, shape, settings):
    samples = N_MICRO * shape["batch"]
    result = ground.train(shape, samples, settings, has_trace=bool(settings))
    if "trace" in result:
        ideal = pipeline_ideal(result.pop("trace"), N_MICRO)
        result["share_of_ideal"] = ideal / result["seconds"]
    return result


def side_contestants(context, ground, shape, dtype):
    """The shape's batch is that of a step, over all processes."""
    contestants = {}
    for name, (settings, n_sharing) in SIDE_BY_SIDE.items():
        part = {**shape, "batch": shape["batch"] // n_sharing}
        every = [f"mix_precision.dtype={dtype}", *settings]
        contestants[name] = lambda p=part, e=every: ground.train(p, shape["batch"], e)
    if not context.options.no_pytorch and dtype == "float32":
        part = {**shape, "batch": shape["batch"] // 2}
        contestants["PyTorch DDP, 2 processes"] = lambda: context.pytorch(
            "bench_torch_ddp.py", part, context.effort.measured_steps
        )
    return contestants


def measure_parallel(context):
    effort = context.effort
    pipe = shapes.parse(effort.pipeline_shape)
    sides = []
    with TrainingGround(context) as ground:
        for name in effort.layouts:
            for dtype in ("float32", "bfloat16"):
                shape = shapes.parse(name)
                contestants = side_contestants(context, ground, shape, dtype)
                subject = f"parallel, {name}, {dtype}"
                results = context.rounds(subject, contestants, effort.rounds)
                sides.append({"shape": shape, "dtype": dtype, "results": results})
        contestants = {
            name: lambda s=settings: run_pipeline(ground, pipe, s)
            for name, settings in PIPELINES.items()
        }
        pipe_results = context.rounds("pipelines", contestants, effort.rounds)
    return {
        "side_by_side": sides,
        "pipelines": {"shape": pipe, "results": pipe_results},
    }


def side_table(data, kind):
    shape, dtype, results = data["shape"], data["dtype"], data["results"]
    table = Table(
        f"{shape['name']}, {dtype}",
        ("", "step s", "tokens/s", "speed / one process", "MB a process", "dp2's speed / its"),
    )
    bounds = SPEED_BOUNDS if dtype == "float32" else {}
    if dtype == "bfloat16" and kind == "amx":
        bounds = SPEED_BOUNDS_AMX
    for name, result in results.items():
        if not is_measured(result):
            continue
        speed = ratio(seconds(results, "one process"), result["seconds"])
        to_dp2 = ratio(result["seconds"], seconds(results, "dp2"))
        table.add(
            name,
            number(result["seconds"], 3),
            number(result["tokens_per_s"], 0),
            bounded(speed, at_least=bounds.get(name)),
            number(result.get("peak_rss_mb"), 0),
            bounded(to_dp2, at_least=DDP_BOUND) if name.startswith("PyTorch") else "-",
        )
    table.add_failures(results)
    return table


def pipeline_table(data):
    results = data["results"]
    table = Table(
        f"{N_MICRO} micro-batches of {data['shape']['name']}",
        ("", "step s", "tokens/s", "speed / one process", "share of its ideal"),
        notes=[f"Equal stages would reach {N_MICRO / (N_MICRO + 1):.2f} of one process."],
    )
    for name, result in results.items():
        if not is_measured(result):
            continue
        table.add(
            name,
            number(result["seconds"], 3),
            number(result["tokens_per_s"], 0),
            number(ratio(seconds(results, "one process"), result["seconds"])),
            bounded(result.get("share_of_ideal"), at_least=IDEAL_BOUND),
        )
    table.add_failures(results)
    return table


def parallel_tables(data, kind=None):
    for side in data["side_by_side"]:
        yield side_table(side, kind)
    yield pipeline_table(data["pipelines"])


# -- switches --------------------------------------------------------------------------


def measure_switches(context):
    results = []
    with TrainingGround(context) as ground:
        for name in context.effort.switches:
            shape = shapes.parse(name)
            contestants = {
                switch: lambda s=shape, o=settings: ground.train(s, 2 * s["batch"], o)
                for switch, (settings, _) in SWITCHES.items()
            }
            measured = context.rounds(name, contestants, context.effort.rounds)
            results.append({"shape": shape, "results": measured})
    return results


def switch_tables(data, kind=None):
    for entry in data:
        results = entry["results"]
        table = Table(
            f"two micro-batches of {entry['shape']['name']}",
            ("", "step s", "time / without the switch"),
        )
        for name, result in results.items():
            if is_measured(result):
                base = SWITCHES[name][1]
                without = ratio(result["seconds"], base and seconds(results, base))
                table.add(name, number(result["seconds"], 3), number(without))
        table.add_failures(results)
        yield table
